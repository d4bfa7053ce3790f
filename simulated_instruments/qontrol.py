"""Simulated chain of Qontrol heater drivers (Q8iv, Q8b, Q8bi, Q8a): the text commands; binary frames are elsewhere.

Shapes of commands and replies follow transcripts of real hardware. Where those are silent, this simulator decides:
a voltage above its limit is refused and answered with its error line instead of ``OK``; an over-current is answered
with ``OK``, then its error line, and the voltage is brought down; channels in error lines are local to the module.
Lines that nobody asked for (an open load in current mode, a load that has changed, a restart) come with the reply to
the next command of each client.
"""

import math
import re
import threading
import weakref
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
    FORBIDDEN,
    OVER_VOLTAGE,
    POWERED_UP,
    SERIAL_ERROR,
    SUPPRESSED,
    UNKNOWN_COMMAND,
    ChannelError,
    QontrolChannels,
)
from simulated_instruments._qontrol_modules import CHANNELS_PER_MODULE, MODULE_TYPES, QontrolModules
from simulated_instruments.hidden_chip import HiddenChip

_COMMAND = re.compile(r"([A-Z]+?)(ALL)?(\d{0,5})([=?])(.*)")
_SIGNIFICANT_CURRENT_A = 1e-4  # from here on VIP lines also tell power and resistance
_FLOOD_LINES = 16  # more errors than these at once are suppressed


class SimulatedQontrol:
    """A daisy chain of modules of 8 channels with the chip's heaters on it.

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
    module_type
        Type of all modules: ``Q8iv``, ``Q8b``, ``Q8bi`` or ``Q8a``.

    Raises
    ------
    ConfigurationError
        If the type, the number of modules or a channel does not exist.
    """

    def __init__(
        self,
        name: str,
        modules: int,
        chip: HiddenChip,
        heaters: Mapping[int, int],
        clock: Clock,
        module_type: str = "Q8iv",
    ) -> None:
        if not 1 <= modules <= 32:
            raise ConfigurationError(f"simulated {name}: a Qontrol chain has 1..32 modules, got {modules}")
        if module_type not in MODULE_TYPES:
            raise ConfigurationError(
                f"simulated {name}: there is no module_type {module_type!r}; it is one of {', '.join(MODULE_TYPES)}"
            )
        count = modules * CHANNELS_PER_MODULE
        for channel in heaters:
            if not 0 <= channel < count:
                raise ConfigurationError(f"simulated {name}: channel {channel} is not in 0..{count - 1}")
        self.kind = MODULE_TYPES[module_type]
        self.modules = QontrolModules(self.kind, modules, clock)
        self.channels = QontrolChannels(self.kind, count, chip, heaters, name)
        self._lock = threading.RLock()
        self._sessions: weakref.WeakSet[QontrolSession] = weakref.WeakSet()
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
        session = QontrolSession(self)
        with self._lock:
            self._sessions.add(session)
        return session

    def restart(self) -> None:
        """Let the power fail for a moment: outputs at 0 V, limits at full scale, logs empty; the modules say so."""
        with self._lock:
            self.channels.restart()
            self.modules.restart()
            self._announce([f"E{POWERED_UP:02d}:00\n".encode("ascii")] * self.modules.count)

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` over-voltages be reported; return the lines, the last of which tells of suppressed ones."""
        with self._lock:
            lines = [self.error(OVER_VOLTAGE, k % self.channels.count) for k in range(count)][:_FLOOD_LINES]
            return b"".join(lines) + (self.error(SUPPRESSED) if count > _FLOOD_LINES else b"")

    def notice_loads(self) -> None:
        """Report what has become of outputs whose loads have changed."""
        with self._lock:
            self._announce([self.error(code, channel) for code, channel, _ in self.channels.follow_loads()])

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
            if name in self._channel_texts:
                if not everywhere and (index is None or index >= self.channels.count):
                    return self.error(BAD_CHANNEL, index or 0)
                texts = self._channel_texts[name]()
                if index is not None and not everywhere:
                    texts = [texts[index]]
            elif name in ("VERR", "IERR", "ROCOM"):
                return self.error(0, 1)  # what firmware 2.4.1 says
            elif (first := self.modules.tell(name, 0)) is None:
                return self.error(UNKNOWN_COMMAND)
            elif not everywhere and index is not None and index >= self.modules.count:
                return self.error(BAD_CHANNEL, index)
            else:
                chosen = range(1, self.modules.count) if everywhere else ()
                texts = [first] if everywhere or not index else [self.modules.tell(name, index) or ""]
                texts += [self.modules.tell(name, module) or "" for module in chosen]
            return "".join([f"{text}\n" for text in texts if text]).encode("ascii")

    def set_run(self, name: str, first: int, values: list[float]) -> bytes:
        """Set V, I, VMAX or IMAX (in V and A) of a run of channels; return ``OK`` or error lines."""
        with self._lock:
            if not all(0.0 <= value < math.inf for value in values):
                return self.error(BAD_PARAMETER, first)
            if first + len(values) > self.channels.count:
                return self.error(BAD_CHANNEL, first + len(values) - 1)
            if name == "I":
                return self._report(self.channels.set_currents(first, values), late=True)
            if name == "V":
                return self._report(self.channels.set_voltages(first, values))
            errors = [e for k, value in enumerate(values) for e in self.channels.set_limit(name, first + k, value)]
            return self._report(errors)

    def renumber(self) -> bytes:
        """Give the modules their numbers anew, as ``NUP=0`` does: an acknowledgement from each module."""
        return b"\x06OK\n" * self.modules.count

    def error(self, code: int, channel: int = 0) -> bytes:
        """Log an error and return its line; ``channel`` counts through the chain, the line's is local."""
        with self._lock:
            module, local = divmod(channel, CHANNELS_PER_MODULE)
            text = f"E{code:02d}:{local:02d}"
            self.modules.log(min(module, self.modules.count - 1), text)
            return f"{text}\n".encode("ascii")

    def _announce(self, lines: list[bytes]) -> None:
        """Put lines that nobody asked for on their way to all clients."""
        for session in self._sessions:
            session.pending.extend(lines)

    def _report(self, errors: list[ChannelError], *, late: bool = False) -> bytes:
        """Answer a set command with its errors; ``late`` ones of a command that was carried out come unasked."""
        lines = [self.error(code, channel) for code, channel, _ in errors]
        if any(refused for _, _, refused in errors):
            return b"".join(lines)
        if late:
            self._announce(lines)
            lines = []
        return b"OK\n" + b"".join(lines)

    def _set_text(self, name: str, index: int | None, everywhere: bool, values: list[float]) -> bytes:
        if name == "NUP":
            return self.renumber() if values == [0.0] else self.error(BAD_PARAMETER)
        run = name.removesuffix("VEC") if name.endswith("VEC") else name
        if run in ("VCAL", "ICAL", "VIP") or self.modules.tell(run, 0) is not None:
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


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedQontrol:
    module_type = spec.options.get("module_type", "Q8iv")
    return SimulatedQontrol(spec.name, spec.size, at.chip, at.channels, at.clock, module_type)


KIND = InstrumentKind("qontrol", "heaters", _build, "serial")
Q8IV_KIND = InstrumentKind("qontrol_q8iv", "heaters", _build, "serial")
