"""What every driver does under faults: exchanges of its role, and how their outcomes are judged by the chip's truth."""

import dataclasses
import itertools
import re
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from driver_cases import PORTS, opened

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import DeviceError, LinkError, OptincError
from simulated_instruments import BenchWiring, HiddenChip, HiddenEffects, InstrumentSpec, SimulatedBench
from simulated_instruments._fault_rules import altered
from simulated_instruments.faults import (
    Doubled,
    Dropped,
    ErrorFlood,
    FlippedBit,
    Frozen,
    Garbled,
    Glued,
    Late,
    LostReply,
    LostWrite,
    Restarted,
    Split,
    Stuttered,
    Truncated,
    Unasked,
)

RIGHT, ERROR, FLAGGED, WRONG = "right", "typed error", "flagged", "WRONG"
ALIKE = "well-formed"  # the bytes that arrived are a reply that the instrument could have given
NOT_HIT = "not hit"

PATIENT_S, HASTY_S = 5.0, 0.06
LIGHT = (2e-3, 1550e-9)
QUIET = dataclasses.replace(HiddenEffects(), noise_relative=0.0, noise_floor_w=0.0)

FAULTS = {
    "late until the next command": Late(),
    "late by 0.1 s": Late(seconds=0.1),
    "truncated": Truncated(),
    "truncated by its last byte": Truncated(keep=1 << 20),
    "split": Split(piece=2),
    "glued": Glued(),
    "doubled": Doubled(),
    "garbled start": Garbled(at=0),
    "garbled end": Garbled(at=-1, byte=0x00),
    "flipped bit 7": FlippedBit(at=1, bit=7),
    "flipped bit 4": FlippedBit(at=2, bit=4),
    "stuttered": Stuttered(),
    "unasked before": Unasked(b"\x80\xfe\n"),
    "unasked after": Unasked(b"0\r\n", where="after"),
    "lost reply": LostReply(),
    "lost write": LostWrite(),
    "dropped unheard": Dropped("unheard"),
    "dropped before": Dropped("before"),
    "dropped within": Dropped("within"),
    "dropped after": Dropped("after"),
    "frozen": Frozen(),
    "restart, link dropped": Restarted(),
    "restart, link kept": Restarted(drop=False),
    "error flood": ErrorFlood(60),
}
"""Faults that happen during an exchange, by name."""


class HeaterExchanges:
    """Voltages in V on two channels; read back, and in truth."""

    targets = ({0: 1.5, 1: 0.7}, {0: 1.0, 1: 1.2})

    def __init__(self, rig):
        self._rig = rig

    def put(self, which):
        wanted = {k: volts for k, volts in self.targets[which].items() if k < self._rig.device.channel_count}
        self._rig.device.set_voltages(wanted)
        truth = [self._rig.chip.heater_voltage(heater) for heater in wanted]
        return RIGHT if np.allclose(truth, list(wanted.values()), atol=5e-3) else WRONG

    def read(self):
        device, chip = self._rig.device, self._rig.chip
        heaters = range(min(device.channel_count, len(chip.layout.heaters)))
        volts, amperes = device.read_voltages(), device.read_currents()
        if not (np.isfinite(volts).all() and np.isfinite(amperes).all()):
            return FLAGGED
        true_volts, true_amperes = np.zeros(len(volts)), np.zeros(len(volts))
        true_volts[: len(heaters)] = [chip.heater_voltage(heater) for heater in heaters]
        true_amperes[: len(heaters)] = chip.heater_currents()[: len(heaters)]
        if self._rig.case.id.startswith("qdevil"):
            # It tells setpoints, as its driver says; a source at its limit has less on its output.
            setpoints = [target.get(0, 0.0) for target in self.targets]
            true_volts[0] = min((true_volts[0], *setpoints), key=lambda setpoint: abs(setpoint - volts[0]))
        right = np.allclose(volts, true_volts, atol=5e-3) and np.allclose(amperes, true_amperes, atol=3e-5, rtol=5e-3)
        return RIGHT if right else WRONG


class LaserExchanges:
    """Power in W and wavelength in m of light that is on; as told, and on the chip."""

    targets = ((5e-3, 1550e-9), (8e-3, 1545e-9))

    def __init__(self, rig):
        self._rig = rig
        self._possible = {None}

    def put(self, which):
        device, (power_w, wavelength_m) = self._rig.device, self.targets[which]
        self._possible.add(self.targets[which])
        device.set_wavelength(wavelength_m)
        device.set_power(power_w)
        device.set_light(True)
        device.wait_settled(100.0)
        self._possible = {self.targets[which]}
        true_power, true_wavelength = self._rig.chip._light.at(self._rig.clock.now())
        right = abs(true_power / power_w - 1.0) < 0.01 and abs(true_wavelength - wavelength_m) < 1e-12
        return RIGHT if right else WRONG

    def read(self):
        device = self._rig.device
        power_w, wavelength_m = device.power(), device.wavelength()
        if not (np.isfinite(power_w) and np.isfinite(wavelength_m)):
            return FLAGGED
        powers, wavelengths = zip(*(target for target in self._possible if target is not None), strict=True)
        right = any(abs(power_w / power - 1.0) < 0.01 for power in powers)
        right &= any(abs(wavelength_m - wavelength) < 1e-12 for wavelength in wavelengths)
        return RIGHT if right else WRONG


class MeterExchanges:
    """Settings, by what the meter tells of them later, undisturbed; powers in W, as noiseless electronics see them."""

    targets = (1e-2, 5e-2)

    def __init__(self, rig):
        self._rig = rig
        self._settings = {}
        self._powers = itertools.cycle([LIGHT[0], 0.7 * LIGHT[0], 0.4 * LIGHT[0]])

    def put(self, which):
        device = self._rig.device
        device.initialise(LIGHT[1], self.targets[which])
        with self._rig.undisturbed():
            told = _settings_of(device)
            expected = self._settings.setdefault(which, told)  # the first calls are undisturbed
        return RIGHT if told == expected else WRONG

    def read(self):
        device, chip = self._rig.device, self._rig.chip
        light = next(self._powers)  # another one each time, so that no old reading is right
        chip.set_laser(light, LIGHT[1])
        reading = device.read_powers()
        wired = min(device.port_count, len(chip.layout.detectors))
        truth = np.zeros(device.port_count)
        truth[:wired] = chip.measure(range(wired), 1.0)
        if not np.isnan(reading.power_w[~reading.valid]).all():
            return WRONG
        valid = reading.valid
        if not np.allclose(reading.power_w[valid], truth[valid], rtol=5e-3, atol=2e-8):
            return WRONG
        return RIGHT if valid.all() else FLAGGED


class SwitchExchanges:
    """Connections, as told, and as light passes."""

    def __init__(self, rig):
        self._rig = rig
        self.targets = ((0, 1), (0, 2)) if rig.device.output_count > 2 else ((1, 0), (2, 0))

    def put(self, which):
        self._rig.device.connect(*self.targets[which])
        return RIGHT if self._rig.instrument.passes(*self.targets[which]) else WRONG

    def read(self):
        self._rig.clock.sleep(1.0)  # mirrors that an interrupted exchange has set in motion arrive
        device, told = self._rig.device, self._rig.device.connections()
        truth = {
            i: o
            for i in range(device.input_count)
            for o in range(device.output_count)
            if self._rig.instrument.passes(i, o)
        }
        return RIGHT if told == truth else WRONG


EXCHANGES = {
    "heaters": HeaterExchanges,
    "laser": LaserExchanges,
    "meter": MeterExchanges,
    "switch": SwitchExchanges,
}


@dataclass
class Rig:
    """A driver on its simulated instrument, which is called ``device``; ``other`` is an instrument of another kind."""

    case: object
    bench: SimulatedBench
    chip: HiddenChip
    clock: SimulatedClock
    device: object = None
    exchanges: object = None

    @property
    def faults(self):
        return self.bench.faults

    @property
    def instrument(self):
        return self.bench._links["device"].instrument

    @contextmanager
    def undisturbed(self):
        """Ask without faults in wait."""
        link = self.bench._links["device"]
        disturbed, link.disturbed = link.disturbed, False
        timeout = self.device.timeout()
        self.device.timeout(PATIENT_S)
        try:
            yield
        finally:
            link.disturbed = disturbed
            self.device.timeout(timeout)

    def prepare(self):
        """Bring the instrument from whatever state into the first of its two; undisturbed."""
        self.bench._links["device"].clear()
        self.device.timeout(PATIENT_S)
        self.faults.restart("device")
        self.device.reconnect()
        assert self.exchanges.put(0) == RIGHT
        assert self.exchanges.read() == RIGHT

    def suffer(self, fault, kind, after, **rule):
        """Put a fault in wait for command number ``after`` of an exchange (``read`` or ``put``); tell the outcome."""
        self.device.timeout(HASTY_S)
        earlier, struck = len(self.faults.hits("device")), sum(self.faults.counts()["device"].values())
        self.faults.inject("device", fault, match=b"", after=after, **rule)
        try:
            outcome = self.exchanges.read() if kind == "read" else self.exchanges.put(1)
        except OptincError as error:
            outcome, self.error = ERROR, error
            if after == 0:
                # The first command was given little time, and may not have arrived yet.
                self.faults.wait_for("device", struck + 1, PATIENT_S)
        finally:
            self.bench._links["device"].clear()
        hits = self.faults.hits("device")[earlier:]
        if not hits:
            return NOT_HIT
        if outcome == WRONG and all(looks_genuine(hit) for hit in hits):
            return ALIKE
        return outcome

    def carry_on(self, fault, kind):
        """Do the next exchanges, undisturbed; tell what is not right with them, or nothing.

        A break behind a reply, and errors in a queue, show only when somebody looks, so they may raise once more.
        """
        self.device.timeout(PATIENT_S)
        later = {Dropped: LinkError, ErrorFlood: DeviceError}.get(type(fault))
        # What a restarted instrument measures depends on settings that it has lost.
        steps = [self.exchanges.read] if not isinstance(fault, Restarted) else []
        for step in (*steps, lambda: self.exchanges.put(kind == "read"), self.exchanges.read):
            for again in (False, True):
                try:
                    if self.device._link.broken:
                        self.device.reconnect()
                    outcome = step()
                except OptincError as error:
                    outcome = f"{type(error).__name__}: {error}"
                    if not again and later is not None and isinstance(error, later):
                        later = None
                        continue
                break
            if outcome != RIGHT:
                return f"a next exchange: {outcome}"
        return ""


@contextmanager
def rig_of(case, seed=3, device=True):
    """Serve the instrument of a case and one of another kind on a chip without noise, and open the driver."""
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(seed, PORTS, effects=QUIET, clock=clock)
    kind = case.driver.simulated_as
    other = (
        InstrumentSpec("other", "keysight_n7745a", 2)
        if case.role == "laser"
        else InstrumentSpec("other", "santec_tsl570")
    )
    specs = (InstrumentSpec("device", kind.kind, case.size, case.options), other)
    channels = case.size * kind.channels_per_unit
    wiring = BenchWiring(
        heaters=_places(chip.layout.heaters, channels) if case.role == "heaters" else {},
        detectors=_places(chip.layout.detectors, channels) if case.role == "meter" else {},
        laser="device" if case.role == "laser" else "other",
    )
    with SimulatedBench(chip, specs, wiring, clock, hislip=("device",) if case.hislip else ()) as bench:
        rig = Rig(case, bench, chip, clock)
        if not device:
            yield rig
            return
        with opened(case, bench.addresses["device"], clock) as rig.device:
            rig.exchanges = EXCHANGES[case.role](rig)
            rig.prepare()
            for which in (1, 0):
                assert rig.exchanges.put(which) == RIGHT
            yield rig


def looks_genuine(hit):
    """Tell whether what arrived could be another genuine reply: only numbers, or bytes of a block, are different."""
    if isinstance(hit.fault, FlippedBit | Garbled | Stuttered):
        return _shape(altered(hit.fault, hit.reply)) == _shape(hit.reply)
    return False


def _shape(reply):
    if reply[:1] == b"#":  # a block of IEEE 488.2: its header, its length, and what follows
        digits = reply[1:2]
        size = int(reply[2 : 2 + int(digits)]) if digits.isdigit() and reply[2 : 2 + int(digits)].isdigit() else -1
        return reply[:2], size, len(reply), reply[2 + size :][-2:] if size >= 0 else reply
    return re.sub(rb"[+-]?(\d+\.?\d*|\.\d+)(E[+-]?\d+)?", b"#", reply)


def _settings_of(device):
    """Every value of a snapshot, read anew, but for ranges, which follow the light by themselves."""
    entries = _entries(device.snapshot(update=True))
    return {
        name: entry.get("value")
        for name, entry in entries
        if not name.endswith(("power_range", "_range_w", "range_dbm"))
    }


def _entries(snapshot, path=""):
    for name, entry in snapshot.get("parameters", {}).items():
        if name != "timeout":
            yield f"{path}{name}", entry
    for name, part in snapshot.get("submodules", {}).items():
        yield from _entries(part, f"{path}{name}.")
    for name, part in snapshot.get("channels", {}).items():
        yield from _entries(part, f"{path}{name}.")


def _places(names, channels):
    return {name: ("device", k) for k, name in enumerate(names[:channels])}
