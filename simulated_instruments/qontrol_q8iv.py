"""Simulated chain of Qontrol Q8iv heater drivers: the text commands; binary frames are in a module of their own.

Shapes of commands and replies follow transcripts of real hardware. Where those are silent, this simulator decides:
a voltage above its limit is refused and answered with its error line instead of ``OK``; an over-current is answered
with ``OK``, then its error line, and the voltage is brought down; channels in error lines are local to the module.
"""

import math
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.units import a_to_ma, ma_to_a
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._qontrol_binary import QontrolSession
from simulated_instruments._qontrol_channels import (
    BAD_CHANNEL,
    BAD_PARAMETER,
    BUFFER_OVERFLOW,
    CHANNELS_PER_MODULE,
    FORBIDDEN,
    FULL_CURRENT_A,
    FULL_VOLTAGE_V,
    SERIAL_ERROR,
    UNKNOWN_COMMAND,
    QontrolChannels,
)
from simulated_instruments.hidden_chip import HiddenChip

_COMMAND = re.compile(r"([A-Z]+?)(ALL)?(\d{0,5})([=?])(.*)")
_FIRMWARE = "v2.4.1"
_LIFETIME_AT_START_S = 156607
_LOG_DEPTH = 64
_SIGNIFICANT_CURRENT_A = 1e-4  # from here on VIP lines also tell power and resistance


class SimulatedQontrolQ8iv:
    """A daisy chain of Q8iv modules of 8 channels (12 V, 24 mA, 16 bit) with the chip's heaters on it.

    Parameters
    ----------
    name
        Name on the bench; seeds the read-back noise.
    modules
        Number of modules, 1..32.
    chip
        The chip with the heaters.
    heaters
        Heater index per channel (0-based through the chain); the other channels are open.
    clock
        Time for life time and error log.

    Raises
    ------
    ConfigurationError
        If the number of modules or a channel is out of range.
    """

    def __init__(self, name: str, modules: int, chip: HiddenChip, heaters: Mapping[int, int], clock: Clock) -> None:
        if not 1 <= modules <= 32:
            raise ConfigurationError(f"simulated {name}: a Qontrol chain has 1..32 modules, got {modules}")
        count = modules * CHANNELS_PER_MODULE
        for channel in heaters:
            if not 0 <= channel < count:
                raise ConfigurationError(f"simulated {name}: channel {channel} is not in 0..{count - 1}")
        self.modules = modules
        self.channels = QontrolChannels(count, chip, heaters, name)
        self._clock = clock
        self._lock = threading.RLock()
        self._logs: list[deque[tuple[str, float]]] = [deque(maxlen=_LOG_DEPTH) for _ in range(modules)]
        self._module_texts: dict[str, Callable[[int], str]] = {
            "ID": self._identity,
            "NUP": lambda module: f"{self._identity(module)}: {module}",
            "FIRMWARE": lambda _module: _FIRMWARE,
            "LIFETIME": lambda _module: f"{_LIFETIME_AT_START_S + int(clock.now())} s",
            "NCHAN": lambda _module: str(CHANNELS_PER_MODULE),
            "VFULL": lambda _module: f"{FULL_VOLTAGE_V:+.4f} V",
            "IFULL": lambda _module: f"{a_to_ma(FULL_CURRENT_A):+.4f} mA",
            "LOG": self._log_lines,
            "ADCT": lambda _module: "5",
            "ADCN": lambda _module: "2",
            "LED": lambda _module: "1",
            "OK": lambda _module: "1",
            "SAFE": lambda _module: "1",
        }
        self._channel_texts: dict[str, Callable[[], list[str]]] = {
            "V": lambda: _volts(self.channels.read_voltages().tolist()),
            "I": lambda: _milliamperes(self.channels.read_currents().tolist()),
            "VMAX": lambda: _volts(self.channels.max_voltage_v),
            "IMAX": lambda: _milliamperes(self.channels.max_current_a),
            "VCAL": lambda: ["+1,+0,+0,+0"] * self.channels.count,
            "ICAL": lambda: ["+1,+0,+0,+0"] * self.channels.count,
            "VIP": self._voltage_current_power,
        }

    def open_session(self) -> QontrolSession:
        """Return a session for a new client; it takes text lines and binary frames."""
        return QontrolSession(self)

    def answer_line(self, line: str) -> bytes:
        """Run one text command and return the lines of its reply."""
        match = _COMMAND.fullmatch(line.strip().upper())
        with self._lock:
            if match is None:
                return self.error(UNKNOWN_COMMAND)
            name, everywhere, index, operator, text = match.groups()
            if operator == "?":
                if text:
                    return self.error(BAD_PARAMETER)
                return self.get(name, int(index) if index else None, everywhere=everywhere is not None)
            values = text.split(",")
            if len(values) > CHANNELS_PER_MODULE:
                return self.error(BUFFER_OVERFLOW) + self.error(SERIAL_ERROR)
            try:
                numbers = [float(value) for value in values]
            except ValueError:
                return self.error(BAD_PARAMETER, int(index or 0))
            return self._set_text(name, int(index) if index else None, everywhere is not None, numbers)

    def get(self, name: str, index: int | None, *, everywhere: bool) -> bytes:
        """Answer a query of a channel or module, or of all of them; without an index, of the first module."""
        with self._lock:
            if name in self._module_texts:
                module = index or 0
                if module >= self.modules:
                    return self.error(BAD_CHANNEL, module)
                chosen = range(self.modules) if everywhere else (module,)
                texts = [text for text in map(self._module_texts[name], chosen) if text]
            elif name in self._channel_texts:
                if not everywhere and (index is None or index >= self.channels.count):
                    return self.error(BAD_CHANNEL, index or 0)
                texts = self._channel_texts[name]()
                if index is not None and not everywhere:
                    texts = [texts[index]]
            elif name in ("VERR", "IERR", "ROCOM"):
                return self.error(0, 1)  # what firmware 2.4.1 says
            else:
                return self.error(UNKNOWN_COMMAND)
            return "".join([f"{text}\n" for text in texts]).encode("ascii")

    def set_run(self, name: str, first: int, values: list[float]) -> bytes:
        """Set V, I, VMAX or IMAX (in V and A) of a run of channels; return ``OK`` or error lines."""
        with self._lock:
            if not all(0.0 <= value < math.inf for value in values):
                return self.error(BAD_PARAMETER, first)
            if first + len(values) > self.channels.count:
                return self.error(BAD_CHANNEL, first + len(values) - 1)
            if name == "V":
                errors = self.channels.set_voltages(first, values)
            elif name == "I":
                errors = self.channels.set_currents(first, values)
            else:
                errors = [e for k, value in enumerate(values) for e in self.channels.set_limit(name, first + k, value)]
            if not errors:
                return b"OK\n"
            refused = any(value_refused for _, _, value_refused in errors)
            lines = b"".join([self.error(code, channel) for code, channel, _ in errors])
            return lines if refused else b"OK\n" + lines

    def renumber(self) -> bytes:
        """Give the modules their numbers anew, as ``NUP=0`` does: an acknowledgement from each module."""
        return b"\x06OK\n" * self.modules

    def error(self, code: int, channel: int = 0) -> bytes:
        """Log an error and return its line; ``channel`` counts through the chain, the line's is local."""
        with self._lock:
            module, local = divmod(channel, CHANNELS_PER_MODULE)
            text = f"E{code:02d}:{local:02d}"
            self._logs[min(module, self.modules - 1)].appendleft((text, self._clock.now()))
            return f"{text}\n".encode("ascii")

    def _set_text(self, name: str, index: int | None, everywhere: bool, values: list[float]) -> bytes:
        if name == "NUP":
            return self.renumber() if values == [0.0] else self.error(BAD_PARAMETER)
        run = name.removesuffix("VEC") if name.endswith("VEC") else name
        if run in self._module_texts or run in ("VCAL", "ICAL", "VIP"):
            return self.error(FORBIDDEN)
        if run not in ("V", "I", "VMAX", "IMAX"):
            return self.error(UNKNOWN_COMMAND)
        if run in ("I", "IMAX"):
            values = [ma_to_a(value) for value in values]
        if everywhere:
            if len(values) != 1:
                return self.error(BAD_PARAMETER)
            return self.set_run(run, 0, values * self.channels.count)
        if index is None:
            return self.error(BAD_CHANNEL)
        if run == name and len(values) != 1:
            return self.error(BAD_PARAMETER, index)
        if index % CHANNELS_PER_MODULE + len(values) > CHANNELS_PER_MODULE:
            return self.error(BAD_CHANNEL, index)
        return self.set_run(run, index, values)

    def _identity(self, module: int) -> str:
        return f"Q8iv-{module + 1:04X}"

    def _log_lines(self, module: int) -> str:
        now = self._clock.now()
        return "\n".join(
            f"# {k:2d}, {text}, {_age(now - time)} ago" for k, (text, time) in enumerate(self._logs[module])
        )

    def _voltage_current_power(self) -> list[str]:
        lines = []
        voltages, currents = self.channels.read_voltages().tolist(), self.channels.read_currents().tolist()
        for channel, (voltage, current) in enumerate(zip(voltages, currents, strict=True)):
            module, local = divmod(channel, CHANNELS_PER_MODULE)
            line = f"{module},{local}: {voltage:+.4f} V, {a_to_ma(current):+.4f} mA"
            if abs(current) > _SIGNIFICANT_CURRENT_A:
                line += f", {1e3 * voltage * current:8.4f} mW, {voltage / current:6.0f} Ohm"
            lines.append(line)
        return lines


def _volts(values: list[float]) -> list[str]:
    return [f"{value:+.4f} V" for value in values]


def _milliamperes(values: list[float]) -> list[str]:
    return [f"{a_to_ma(value):+.4f} mA" for value in values]


def _age(seconds: float) -> str:
    if seconds < 60.0:
        return f"{int(seconds)} s"
    return f"{int(seconds / 60.0)} m" if seconds < 3600.0 else f"{int(seconds / 3600.0)} h"


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedQontrolQ8iv:
    return SimulatedQontrolQ8iv(spec.name, spec.size, at.chip, at.channels, at.clock)


KIND = InstrumentKind("qontrol_q8iv", "heaters", _build, "serial")
