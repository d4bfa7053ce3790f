"""Instruments without a wire for the bench's tests; each call goes into one journal."""

import numpy as np
from qcodes.instrument import Instrument

from optinc_hw.bench import write_bench_folder
from optinc_hw.bench.write import instrument_names
from optinc_hw.errors import LinkError

JOURNAL: list[tuple] = []
SETTINGS: dict = {}


def reset():
    JOURNAL.clear()
    SETTINGS.update(dead=(), at_start={}, channels=64, connected={}, jammed=False)


reset()


class _Reading:
    def __init__(self, power_w, valid):
        self.power_w = power_w
        self.valid = valid


class _Fake(Instrument):
    def __init__(self, name, address, **kwargs):
        super().__init__(name)
        self.address = address
        self.init = kwargs
        self.clock = None
        self.closed = False
        if address.endswith("unreachable"):
            raise LinkError(f"{name}: nobody answers at {address}")
        JOURNAL.append((name, "open", address))

    def get_idn(self):
        return {"vendor": "fake", "model": type(self).__name__, "serial": f"SN-{self.name}", "firmware": None}

    def note(self, *entry):
        if self.name in SETTINGS["dead"]:
            raise LinkError(f"{self.name}: link is dead")
        JOURNAL.append((self.name, *entry))

    def make_safe(self):
        self.note("make_safe")

    def close(self):
        if not getattr(self, "closed", True):  # QCoDeS closes again when the object is collected
            self.closed = True
            JOURNAL.append((self.name, "close"))
        super().close()


class FakeHeaters(_Fake):
    def __init__(self, name, address, modules=8):
        super().__init__(name, address, modules=modules)
        self.channel_count = SETTINGS["channels"]
        self.limits = {}
        self.ramp_step = self.ramp_interval = 0.0
        self.held = np.zeros(self.channel_count)
        self.known = np.full(self.channel_count, np.nan)
        for channel, value in SETTINGS["at_start"].get(name, {}).items():
            self.held[channel] = value

    def set_channel_limits(self, channel, *, max_voltage, max_current, max_power):
        self.limits[channel] = (max_voltage, max_current, max_power)

    def set_voltages(self, values):
        self.note("set_voltages", dict(values))
        for channel, value in values.items():
            self.held[channel] = self.known[channel] = value

    def voltages_last_set(self):
        return self.known.copy()

    def read_voltages(self):
        return self.held.copy()

    def read_currents(self):
        return self.held / 1000.0

    def nonzero_outputs(self, threshold=0.02):
        return {k: float(v) for k, v in enumerate(self.held) if v > threshold}

    def make_safe(self):
        super().make_safe()
        self.held[:] = self.known[:] = 0.0


class FakeMeter(_Fake):
    def __init__(self, name, address, ports=8):
        super().__init__(name, address, ports=ports)
        self.port_count = ports

    def initialise(self, wavelength_m, averaging_time_s):
        self.note("initialise", wavelength_m, averaging_time_s)

    def read_powers(self):
        sign = 1.0 if "plus" in self.name else -1.0
        valid = np.ones(self.port_count, dtype=np.bool_)
        valid[1] = False
        return _Reading(sign * np.arange(1.0, self.port_count + 1.0), valid)


class FakeLaser(_Fake):
    def set_wavelength(self, wavelength_m):
        self.note("wavelength", wavelength_m)

    def set_power(self, power_w):
        self.note("power", power_w)

    def set_light(self, on):
        self.note("light", on)

    def wait_settled(self, deadline_s):
        self.note("wait_settled")


class FakeSwitch(_Fake):
    """A 1 x N switch; ``SETTINGS["connected"]`` is how it stands, and a jammed one stays so."""

    def __init__(self, name, address, channels=4):
        super().__init__(name, address, channels=channels)
        self.input_count, self.output_count = channels, 1

    def connect(self, input_port, output_port):
        self.note("connect", input_port, output_port)
        if not SETTINGS["jammed"]:
            SETTINGS["connected"] = {input_port: output_port}

    def disconnect(self, input_port):
        self.note("disconnect", input_port)
        if not SETTINGS["jammed"]:
            SETTINGS["connected"].pop(input_port, None)

    def connections(self):
        self.note("connections")
        return dict(SETTINGS["connected"])


def write_fake_folder(folder, ports=8, kind="homodyne"):
    """Bench folder of the default wiring whose drivers are the fakes of this module."""
    write_bench_folder(folder, ports, {name: f"fake:{name}" for name in instrument_names(ports, kind)}, kind=kind)
    path = folder / "station.yaml"
    text = path.read_text()
    for real, fake in (
        ("QontrolQ8iv", "FakeHeaters"),
        ("KeysightN7745A", "FakeMeter"),
        ("SantecTSL570", "FakeLaser"),
        ("DiConMemsSwitch", "FakeSwitch"),
    ):
        text = text.replace(f"drivers.{real}", f"{__name__}.{fake}")
    path.write_text(text)
    return folder


def calls(name=None, what=None):
    return [e for e in JOURNAL if (name is None or e[0] == name) and (what is None or e[1] == what)]


def drive(bench):
    """Switch the light on and every heater to 1 V."""
    bench.light(True)
    bench.set_voltages(np.ones(len(bench.layout.heaters)))
