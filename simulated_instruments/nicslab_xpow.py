"""Simulated Nicslab XPOW source of 8 or 40 channels, in both dialects of its serial text commands.

What is known of the instrument comes from the drivers of two laboratories. Where they are silent, this simulator
decides: sets have no reply, and nor have unknown commands and values out of range, which change nothing; the last set
of a channel, voltage or current, decides which of the two is regulated.
"""

import re
import threading
from collections.abc import Callable, Mapping

from optinc_hw.errors import ConfigurationError
from optinc_hw.units import a_to_ma, ma_to_a
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._session import LineSession
from simulated_instruments._source_channels import ReadBack, Source, SourceChannels
from simulated_instruments.hidden_chip import HiddenChip

FULL_VOLTAGE_V, FULL_CURRENT_A = 40.0, 0.3
"""What the highest count of the converters stands for."""

_CHANNELS = (8, 40)
_HIGHEST_COUNT = 65535
_IDENTITY = "Nicslab XPOW-8AX-CCvCV-U"
_START = Source(
    on=True, max_voltage_v=FULL_VOLTAGE_V, max_current_a=FULL_CURRENT_A, step_v=FULL_VOLTAGE_V / _HIGHEST_COUNT
)
_READ_BACK = ReadBack(voltage_noise_v=2e-4, current_noise_a=2e-6, current_offset_a=4e-6)

_COUNT = re.compile(r"\d{1,5}", re.ASCII)
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)


class _Dialect:
    """How one firmware writes levels and readings.

    Parameters
    ----------
    current_word
        Keyword of the current level.
    level
        Turns the text of a level into a fraction of full scale; raises ValueError.
    reading
        Writes the reading of a channel (1-based) with V and mA.
    """

    def __init__(
        self, current_word: str, level: Callable[[str, float], float], reading: Callable[[int, float, float], str]
    ) -> None:
        self.command = re.compile(rf"CH:(\d{{1,3}}):(VOLT|{current_word}|VAL\?)(?::(.*))?", re.ASCII)
        self.level = level
        self.reading = reading


def _counted(text: str, full: float) -> float:
    if _COUNT.fullmatch(text) is None:
        raise ValueError(text)
    return int(text) * full / _HIGHEST_COUNT


def _written(text: str, _full: float) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


DIALECTS: Mapping[str, _Dialect] = {
    "counts": _Dialect("CUR", _counted, lambda n, v, i: f"CH:{n}:VAL? Channel {n} = {v:.3f}V, {i:.3f}mA"),
    "units": _Dialect("CURR", _written, lambda n, v, i: f"CH:{n}:{v:.3f}:{i:.3f}"),
}
"""Dialect by name: converter counts, or volts and milliamperes."""


class SimulatedNicslabXPOW:
    """An XPOW with the chip's heaters on its channels.

    Parameters
    ----------
    name
        Name on the bench; seeds the read-back noise.
    channels
        8 or 40.
    dialect
        ``"counts"`` or ``"units"``.
    chip
        The chip with the heaters.
    heaters
        Heater index per 0-based channel; the other channels are open.

    Raises
    ------
    ConfigurationError
        If the number of channels, the dialect or a channel is not possible.
    """

    def __init__(self, name: str, channels: int, dialect: str, chip: HiddenChip, heaters: Mapping[int, int]) -> None:
        if channels not in _CHANNELS:
            raise ConfigurationError(f"simulated {name}: an XPOW has 8 or 40 channels, got {channels}")
        if dialect not in DIALECTS:
            raise ConfigurationError(
                f"simulated {name}: dialect {dialect!r} is not possible; an XPOW speaks {' or '.join(DIALECTS)}"
            )
        self._channels = SourceChannels(name, channels, _START, _READ_BACK, chip, heaters)
        self._dialect = DIALECTS[dialect]
        self._lock = threading.RLock()

    def open_session(self) -> LineSession:
        """Return a session for a new client; CR, LF and CRLF end a command."""
        return LineSession(self._answer)

    def restart(self) -> None:
        """Switch power off and on again: all outputs at 0 V."""
        with self._lock:
            self._channels.restart()

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` errors happen inside, of which this instrument tells nothing."""
        del count
        return b""

    def _answer(self, line: str) -> bytes:
        with self._lock:
            if line == "*IDN?":
                return f"{_IDENTITY}\n".encode("ascii")
            match = self._dialect.command.fullmatch(line)
            if match is None or not 1 <= int(match[1]) <= self._channels.count:
                return b""
            channel, what, level = int(match[1]) - 1, match[2], match[3]
            if what == "VAL?":
                return self._read(channel) if level is None else b""
            self._set(channel, what == "VOLT", level or "")
            return b""

    def _read(self, channel: int) -> bytes:
        volts = float(self._channels.read_voltages()[channel])
        milliamperes = a_to_ma(float(self._channels.read_currents()[channel]))
        return f"{self._dialect.reading(channel + 1, volts, milliamperes)}\n".encode("ascii")

    def _set(self, channel: int, is_voltage: bool, text: str) -> None:
        full = FULL_VOLTAGE_V if is_voltage else a_to_ma(FULL_CURRENT_A)
        try:
            level = self._dialect.level(text, full)
        except ValueError:
            return
        if level > full:
            return
        source = self._channels[channel]
        source.regulates_current = not is_voltage
        if is_voltage:
            source.voltage_v = level
        else:
            source.current_a = ma_to_a(level)
        self._channels.apply(channel)


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedNicslabXPOW:
    return SimulatedNicslabXPOW(spec.name, spec.size, spec.options.get("dialect", "counts"), at.chip, at.channels)


KIND = InstrumentKind("nicslab_xpow", "heaters", _build, "serial")
