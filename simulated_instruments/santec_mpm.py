"""Simulated Santec MPM-210H power meter mainframe with MPM-211 modules: one-word commands, CR, logging memory.

Where the vendor's documents are silent this simulator decides: a reading waits for its averaging time; above the
upper limit of its range the converter stays at 1.05 times this limit; a power of zero or less reads -200 dBm; zeroing
keeps what the ports saw when it began, and the mainframe is busy meanwhile; a fixed level holds for readings while the
automatic range is off, and for logging in CONST1, SWEEP1 and FREERUN.
"""

import math
import struct
from collections.abc import Mapping, Sequence

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.units import WATT_PER_MILLIWATT, dbm_to_watt, watt_to_dbm
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._mpm_log import RUNNING, PowerLog
from simulated_instruments._mpm_words import (
    BUSY,
    CONFLICT,
    DATA_TYPE,
    NO_MODULE,
    OUT_OF_RANGE,
    Word,
    WordInterpreter,
    decimal,
    integer,
)
from simulated_instruments._scpi import ErrorQueue, Reply, ScpiError, block
from simulated_instruments._session import LineSession
from simulated_instruments.hidden_chip import HiddenChip

DBM, MILLIWATT = 0, 1

_SLOTS, _PORTS = 5, 4
_ALL = 5
_UPPER_LIMITS_W = [dbm_to_watt(level) for level in (10.0, 0.0, -10.0, -20.0, -30.0)]
_SATURATION = 1.05
_NO_LEVEL_DBM = -200.0
_DARK_NOISE_W = 1e-11  # rms of a port with nothing before it
_ZEROING_S = 3.0
_SHORTEST_NM, _LONGEST_NM = 1250.0, 1630.0
_SHORTEST_MS, _LONGEST_MS = 0.01, 10_000.0
_MOST_POINTS = 1_000_000
_CALIBRATION_NM = [1250.0 + 20.0 * k for k in range(20)]
_MODES = {"CONST1": False, "CONST2": True, "SWEEP1": False, "SWEEP2": True, "FREERUN": False}
"""Measuring mode: whether its gain is automatic."""


class SimulatedSantecMPM210H:
    """A mainframe with 4-port modules on the hidden chip's photodiodes.

    Parameters
    ----------
    name
        Name on the bench; seeds the noise of ports with nothing before them.
    slots
        Slots 0..4 that hold a module; ports are numbered through in their order.
    chip
        The chip whose photodiodes are read.
    detectors
        Detector index per 0-based port; the other ports are dark.
    clock
        Averaging, zeroing and logging take time on it.

    Raises
    ------
    ConfigurationError
        If a slot or port is out of range.
    """

    def __init__(
        self, name: str, slots: Sequence[int], chip: HiddenChip, detectors: Mapping[int, int], clock: Clock
    ) -> None:
        if not slots or sorted(set(slots)) != list(slots) or not 0 <= slots[0] <= slots[-1] < _SLOTS:
            raise ConfigurationError(f"simulated {name}: an MPM-210H has slots 0..4, got {list(slots)}")
        self._port_count = _PORTS * len(slots)
        for port in detectors:
            if not 0 <= port < self._port_count:
                raise ConfigurationError(f"simulated {name}: port {port} is not in 0..{self._port_count - 1}")
        self._slots = list(slots)
        self._chip, self._detectors, self._clock = chip, detectors, clock
        self._rng = chip.generator(name)
        self._errors = ErrorQueue("%d,%s", depth=20)
        self._log = PowerLog(clock, self._log_point)
        self._interpreter = WordInterpreter(self._words(), self._errors, self._zeroing, self._measuring)
        self._reset()

    def open_session(self) -> LineSession:
        """Return a session for a new client; CR, LF and CRLF end a command."""
        return self._interpreter.open_session()

    def restart(self) -> None:
        """Switch off and on: settings, zero, logging memory and the error queue are as when new."""
        self._reset()
        self._errors.clear()

    def flood_errors(self, count: int) -> bytes:
        """Let the communication with a module fail ``count`` times; errors go to the queue and nothing is sent."""
        for _ in range(count):
            self._errors.push(ScpiError(101, "Module communication error"))
        return b""

    def pulse(self, count: int = 1) -> None:
        """Let ``count`` pulses arrive at the trigger input."""
        self._log.pulse(count)

    def _reset(self) -> None:
        self._unit = DBM
        self._wavelength_nm = 1550.0
        self._port_wavelengths_nm = [1550.0] * self._port_count
        self._averaging_ms = self._fine_averaging_ms = 1.0
        self._automatic, self._module_automatic = 1, dict.fromkeys(self._slots, 1)
        self._level, self._levels = 1, [1] * self._port_count
        self._mode = "CONST1"
        self._sweep = (1500.0, 1600.0, 0.1)
        self._speed_nm_s = 10.0
        self._log_points = 1
        self._external_trigger = 0
        self._zero_w = [0.0] * self._port_count
        self._next_zero_w, self._zeroed_at = self._zero_w, -math.inf
        self._log.clear()

    def _words(self) -> dict[str, Word]:
        return {
            "*IDN?": Word(lambda _: "SANTEC,MPM-210H,00000000,Ver.2.0", always=True),
            "IDIS?": Word(lambda _: ",".join(str(int(slot in self._slots)) for slot in range(_SLOTS)), always=True),
            "MMVER?": Word(self._module_version, (1,), always=True),
            "ERR?": Word(lambda _: self._errors.pop(), always=True),
            "READ?": Word(self._read, (1,)),
            "UNIT": Word(self._set_unit, (1,), sets=True),
            "UNIT?": Word(lambda _: str(self._unit)),
            "ZERO": Word(self._start_zeroing, sets=True),
            "CWAV?": Word(self._calibration_wavelength, (2,)),
            "CWAVPO?": Word(self._calibration_offset, (3,)),
            **self._setting_words(),
            **self._log_words(),
        }

    def _setting_words(self) -> dict[str, Word]:
        return {
            "WAV": Word(self._set_wavelength, (1,), sets=True),
            "WAV?": Word(lambda _: f"{self._wavelength_nm:.3f}"),
            "DWAV": Word(self._set_port_wavelength, (3,), sets=True),
            "DWAV?": Word(lambda a: f"{self._port_wavelengths_nm[self._port(a[0], a[1])]:.3f}", (2,)),
            "AVG": Word(self._set_averaging, (1,), sets=True),
            "AVG?": Word(lambda _: f"{self._averaging_ms:.2f}"),
            "FGSAVG": Word(self._set_fine_averaging, (1,), sets=True),
            "FGSAVG?": Word(lambda _: f"{self._fine_averaging_ms:.2f}"),
            "AUTO": Word(self._set_automatic, (1,), sets=True),
            "AUTO?": Word(lambda _: str(self._automatic)),
            "DAUTO": Word(self._set_module_automatic, (2,), sets=True),
            "DAUTO?": Word(lambda a: str(self._module_automatic[self._slot(a[0])]), (1,)),
            "LEV": Word(self._set_level, (1,), sets=True),
            "LEV?": Word(lambda _: str(self._level)),
            "DLEV": Word(self._set_port_level, (3,), sets=True),
            "DLEV?": Word(lambda a: str(self._levels[self._port(a[0], a[1])]), (2,)),
        }

    def _log_words(self) -> dict[str, Word]:
        return {
            "WMOD": Word(self._set_mode, (1,), sets=True),
            "WMOD?": Word(lambda _: self._mode),
            "WSET": Word(self._set_sweep, (3,), sets=True),
            "WSET?": Word(lambda _: "{:.3f},{:.3f},{:.3f}".format(*self._sweep)),
            "SPE": Word(self._set_speed, (1,), sets=True),
            "SPE?": Word(lambda _: f"{self._speed_nm_s:.3f}"),
            "LOGN": Word(self._set_log_points, (1,), sets=True),
            "LOGN?": Word(lambda _: str(self._log_points)),
            "TRIG": Word(self._set_trigger, (1,), sets=True),
            "TRIG?": Word(lambda _: str(self._external_trigger)),
            "MEAS": Word(self._start_log),
            "STOP": Word(lambda _: self._log.stop()),
            "STAT?": Word(lambda _: f"{self._log.state},{self._log.count}", always=True),
            "LOGG?": Word(self._logged, (2,)),
        }

    # Modules and ports

    def _slot(self, text: str) -> int:
        slot = integer(text, 0, _SLOTS - 1)
        if slot not in self._slots:
            raise ScpiError(*NO_MODULE)
        return slot

    def _port(self, slot: str, channel: str) -> int:
        """0-based port of a slot and a channel that counts from 1."""
        first = _PORTS * self._slots.index(self._slot(slot))
        return first + integer(channel, 1, _PORTS) - 1

    def _module_version(self, arguments: list[str]) -> Reply:
        slot = self._slot(arguments[0])
        return f"Santec,MPM-211,0000000{slot}M211,Ver1.11"

    def _calibration_wavelength(self, arguments: list[str]) -> Reply:
        self._slot(arguments[0])
        return f"{_CALIBRATION_NM[integer(arguments[1], 1, len(_CALIBRATION_NM)) - 1]:.3f}"

    def _calibration_offset(self, arguments: list[str]) -> Reply:
        self._port(arguments[0], arguments[1])
        integer(arguments[2], 1, len(_CALIBRATION_NM))
        return "0.000"

    # Measuring

    def _zeroing(self) -> bool:
        return self._clock.now() < self._zeroed_at

    def _measuring(self) -> bool:
        self._log.advance()
        return self._log.state == RUNNING

    def _start_zeroing(self, _arguments: list[str]) -> Reply:
        self._zero_w = self._present_zero_w()
        self._next_zero_w = self._signals_w(range(self._port_count), _ZEROING_S)
        self._zeroed_at = self._clock.now() + _ZEROING_S
        return None

    def _present_zero_w(self) -> list[float]:
        return self._zero_w if self._zeroing() else self._next_zero_w

    def _signals_w(self, ports: Sequence[int], averaging_s: float) -> list[float]:
        """Return what the ports see at this moment in W, offsets included."""
        lit = [port for port in ports if port in self._detectors]
        seen = self._chip.measure([self._detectors[port] for port in lit], averaging_s).tolist() if lit else []
        signals = dict(zip(lit, seen, strict=True))
        return [
            signals[port] if port in signals else float(_DARK_NOISE_W * self._rng.standard_normal()) for port in ports
        ]

    def _values_w(self, ports: Sequence[int], averaging_s: float, *, automatic: Sequence[bool]) -> list[float]:
        zero = self._present_zero_w()
        values = []
        for port, signal, free in zip(ports, self._signals_w(ports, averaging_s), automatic, strict=True):
            limit = _UPPER_LIMITS_W[0 if free else self._levels[port] - 1]
            values.append(min(signal - zero[port], _SATURATION * limit))
        return values

    def _in_unit(self, value_w: float) -> float:
        if self._unit == MILLIWATT:
            return value_w / WATT_PER_MILLIWATT
        return watt_to_dbm(value_w) if value_w > 0.0 else _NO_LEVEL_DBM

    def _read(self, arguments: list[str]) -> Reply:
        if self._measuring():
            raise ScpiError(*BUSY)
        slot = self._slot(arguments[0])
        first = _PORTS * self._slots.index(slot)
        averaging_s = 1e-3 * self._averaging_ms
        self._clock.sleep(averaging_s)
        automatic = [bool(self._module_automatic[slot])] * _PORTS
        values = self._values_w(range(first, first + _PORTS), averaging_s, automatic=automatic)
        form = "{:.6E}" if self._unit == MILLIWATT else "{:.3f}"
        return ",".join(form.format(self._in_unit(value)) for value in values)

    # Logging

    def _log_point(self, averaging_s: float) -> list[float]:
        automatic = [_MODES[self._mode]] * self._port_count
        return self._values_w(range(self._port_count), averaging_s, automatic=automatic)

    def _start_log(self, _arguments: list[str]) -> Reply:
        if self._measuring():
            raise ScpiError(*BUSY)
        points, interval_s = self._log_points, 1e-3 * self._averaging_ms
        if self._mode.startswith("SWEEP"):
            start, stop, step = self._sweep
            points, interval_s = math.floor((stop - start) / step + 1e-6) + 1, step / self._speed_nm_s
        if points > _MOST_POINTS:
            raise ScpiError(*OUT_OF_RANGE)
        self._log.start(points, interval_s, external=bool(self._external_trigger))
        return None

    def _logged(self, arguments: list[str]) -> Reply:
        port = self._port(*arguments)
        if self._measuring():
            raise ScpiError(*BUSY)
        if not self._log.count:
            raise ScpiError(*CONFLICT)
        values = [self._in_unit(value) for value in self._log.column(port)]
        return block(struct.pack(f"<{len(values)}f", *values))

    # Settings

    def _set_unit(self, arguments: list[str]) -> Reply:
        self._unit = integer(arguments[0], DBM, MILLIWATT)
        return None

    def _set_wavelength(self, arguments: list[str]) -> Reply:
        self._wavelength_nm = decimal(arguments[0], _SHORTEST_NM, _LONGEST_NM)
        self._port_wavelengths_nm = [self._wavelength_nm] * self._port_count
        return None

    def _set_port_wavelength(self, arguments: list[str]) -> Reply:
        wavelength = decimal(arguments[2], _SHORTEST_NM, _LONGEST_NM)
        if integer(arguments[0], 0, _ALL) == _ALL:
            self._port_wavelengths_nm = [wavelength] * self._port_count
        else:
            self._port_wavelengths_nm[self._port(arguments[0], arguments[1])] = wavelength
        return None

    def _set_averaging(self, arguments: list[str]) -> Reply:
        self._averaging_ms = decimal(arguments[0], _SHORTEST_MS, _LONGEST_MS)
        return None

    def _set_fine_averaging(self, arguments: list[str]) -> Reply:
        self._fine_averaging_ms = decimal(arguments[0], _SHORTEST_MS, _LONGEST_MS)
        return None

    def _set_automatic(self, arguments: list[str]) -> Reply:
        self._automatic = integer(arguments[0], 0, 1)
        self._module_automatic = dict.fromkeys(self._slots, self._automatic)
        return None

    def _set_module_automatic(self, arguments: list[str]) -> Reply:
        self._module_automatic[self._slot(arguments[0])] = integer(arguments[1], 0, 1)
        return None

    def _set_level(self, arguments: list[str]) -> Reply:
        self._level = integer(arguments[0], 1, len(_UPPER_LIMITS_W))
        self._levels = [self._level] * self._port_count
        return None

    def _set_port_level(self, arguments: list[str]) -> Reply:
        port = self._port(arguments[0], arguments[1])
        self._levels[port] = integer(arguments[2], 1, len(_UPPER_LIMITS_W))
        return None

    def _set_mode(self, arguments: list[str]) -> Reply:
        mode = arguments[0].replace("FREE-RUN", "FREERUN")
        if mode not in _MODES:
            raise ScpiError(*DATA_TYPE)
        self._mode = mode
        return None

    def _set_sweep(self, arguments: list[str]) -> Reply:
        start, stop = (decimal(text, _SHORTEST_NM, _LONGEST_NM) for text in arguments[:2])
        step = decimal(arguments[2], 0.001, 10.0)
        if stop <= start:
            raise ScpiError(*OUT_OF_RANGE)
        self._sweep = (start, stop, step)
        return None

    def _set_speed(self, arguments: list[str]) -> Reply:
        self._speed_nm_s = decimal(arguments[0], 0.001, 200.0)
        return None

    def _set_log_points(self, arguments: list[str]) -> Reply:
        self._log_points = integer(arguments[0], 1, _MOST_POINTS)
        return None

    def _set_trigger(self, arguments: list[str]) -> Reply:
        self._external_trigger = integer(arguments[0], 0, 1)
        return None


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedSantecMPM210H:
    if not 1 <= spec.size <= _SLOTS:
        raise ConfigurationError(f"simulated {spec.name}: an MPM-210H has 1..{_SLOTS} modules, got {spec.size}")
    return SimulatedSantecMPM210H(spec.name, range(spec.size), at.chip, at.channels, at.clock)


KIND = InstrumentKind("santec_mpm210h", "meter", _build, "socket")
