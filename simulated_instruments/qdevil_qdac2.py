"""Simulated QDevil QDAC-II: 24 low-noise voltage channels with current sensors, SCPI over TCP.

Replies are in lower case where their value is a word, as QDevil's own driver expects them. Where documents are silent,
this simulator decides: a sensor beyond its range reads 9.9E+37, one that has measured nothing yet 9.91E+37. Slew rates
are remembered, but voltages change at once.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

from optinc_hw.errors import ConfigurationError
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._scpi import (
    ILLEGAL_VALUE,
    OUT_OF_RANGE,
    PARAMETER_NOT_ALLOWED,
    ErrorQueue,
    Handler,
    Quantity,
    Reply,
    ScpiError,
    ScpiInterpreter,
    one_argument,
    query,
)
from simulated_instruments._session import LineSession
from simulated_instruments._source_channels import ReadBack, Source, SourceChannels
from simulated_instruments.hidden_chip import HiddenChip

CHANNELS = 24
SPAN_V = {"low": 2.0, "high": 10.0}
"""Highest voltage of each voltage range; the lowest is its negative."""
FULL_CURRENT_A = 10e-3

_SENSOR_SPAN_A = {"low": 200e-9, "high": 10.5e-3}
_STEPS = 2**20
"""Steps of the converter from the lowest to the highest voltage of a range."""
_OVER_RANGE, _NO_READING = "9.9E+37", "9.91E+37"
_INVALID_SUFFIX_NUMBER = (-114, "Header suffix out of range")
_SYSTEM_ERROR = (-310, "System error")
_START = Source(
    on=True, max_voltage_v=SPAN_V["high"], max_current_a=FULL_CURRENT_A, step_v=2.0 * SPAN_V["high"] / _STEPS
)
_READ_BACK = ReadBack(voltage_noise_v=0.0, current_noise_a=5e-9, current_offset_a=20e-9)
_CHANNEL_LIST = re.compile(r"\(@([\d,: ]*)\)", re.ASCII)
_PLAIN_UNITS, _VOLT, _SECOND = {"": 1.0}, {"": 1.0, "V": 1.0, "MV": 1e-3}, {"": 1.0, "S": 1.0, "MS": 1e-3}

_NUMBERS: Mapping[str, tuple[Quantity, str]] = {
    "SOURce#:VOLTage:SLEW": (Quantity(0.01, 2e7, 2e7, _PLAIN_UNITS), "g"),
    "SOURce#:DC:DELay": (Quantity(0.0, 3600.0, 0.0, _SECOND), "g"),
    "SENSe#:NPLCycles": (Quantity(1.0, 100.0, 1.0, _PLAIN_UNITS), ".0f"),
    "SENSe#:APERture": (Quantity(3e-4, 2.0, 0.02, _SECOND), "g"),
    "SENSe#:DELay": (Quantity(0.0, 3600.0, 0.0, _SECOND), "g"),
    "SENSe#:COUNt": (Quantity(1.0, 1000.0, 1.0, _PLAIN_UNITS), ".0f"),
}
"""Settings that are only remembered: limits, and the format of the reply."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    "SOURce#:VOLTage:MODE": ("fix", "list", "swe"),
    "SOURce#:FILTer": ("high", "med", "dc"),
    "SOURce#:DC:TRIGger:SOURce": ("imm", "bus", "hold"),
    "SENSe#:TRIGger:SOURce": ("imm", "bus", "hold"),
}
"""Settings that are only remembered: the possible words, the first of which is the one after a reset."""

_LONG_WORDS = {"FIXED": "fix", "SWEEP": "swe", "MEDIUM": "med", "IMMEDIATE": "imm"}


class SimulatedQDevilQDAC2:
    """A QDAC-II with the chip's heaters on its channels.

    Parameters
    ----------
    name
        Name on the bench; seeds the read-back noise.
    chip
        The chip with the heaters.
    heaters
        Heater index per 0-based channel; the other channels are open.

    Raises
    ------
    ConfigurationError
        If a channel does not exist.
    """

    def __init__(self, name: str, chip: HiddenChip, heaters: Mapping[int, int]) -> None:
        self._channels = SourceChannels(name, CHANNELS, _START, _READ_BACK, chip, heaters)
        self._errors = ErrorQueue('%d, "%s"')
        self._set_defaults()
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\n")

    def open_session(self) -> LineSession:
        """Return a session for a new client; CR, LF and CRLF end a command."""
        return self._interpreter.open_session()

    def restart(self) -> None:
        """Switch power off and on again: all outputs at 0 V, settings at their defaults, no errors."""
        self._reset()
        self._errors.clear()

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` errors happen inside; they wait in the error queue."""
        for _ in range(count):
            self._errors.push(ScpiError(*_SYSTEM_ERROR))
        return b""

    def _set_defaults(self) -> None:
        self._range = ["high"] * CHANNELS
        self._sensor_range = ["high"] * CHANNELS
        self._triggered_v = [0.0] * CHANNELS
        self._readings: list[list[str]] = [[] for _ in range(CHANNELS)]
        self._numbers = {name: [quantity.default] * CHANNELS for name, (quantity, _) in _NUMBERS.items()}
        self._words = {name: [words[0]] * CHANNELS for name, words in _WORDS.items()}

    def _reset(self) -> Reply:
        self._set_defaults()
        self._channels.restart()
        return None

    def _commands(self) -> Mapping[str, Handler]:
        return {
            **self._remembered_commands(),
            "SOURce#:VOLTage[:LEVel][:IMMediate][:AMPLitude]": _for_channels(self._set_voltage),
            "SOURce#:VOLTage[:LEVel][:IMMediate][:AMPLitude]?": _of_channels(self._voltage_text),
            "SOURce#:VOLTage:LAST?": _of_channels(lambda n: f"{self._channels.output_voltage(n):.6g}"),
            "SOURce#:VOLTage:TRIGgered": _for_channels(self._set_triggered),
            "SOURce#:VOLTage:TRIGgered?": _of_channels(lambda n: f"{self._triggered_v[n]:g}"),
            "SOURce#:RANGe": _for_channels(self._set_range),
            "SOURce#:RANGe?": _of_channels(lambda n: self._range[n]),
            "SOURce#:RANGe:LOW:MINimum?": _of_channels(lambda _: f"{-SPAN_V['low']:g}"),
            "SOURce#:RANGe:LOW:MAXimum?": _of_channels(lambda _: f"{SPAN_V['low']:g}"),
            "SOURce#:RANGe:HIGH:MINimum?": _of_channels(lambda _: f"{-SPAN_V['high']:g}"),
            "SOURce#:RANGe:HIGH:MAXimum?": _of_channels(lambda _: f"{SPAN_V['high']:g}"),
            "SOURce#:DC:INITiate": _for_channels(self._trigger),
            "SOURce#:DC:ABORt": _for_channels(_ignore),
            "SOURce#:ALL:ABORt": _for_channels(_ignore),
            "SENSe#:RANGe": _for_channels(self._set_sensor_range),
            "SENSe#:RANGe?": _of_channels(lambda n: self._sensor_range[n]),
            "SENSe#:NCLeft?": _of_channels(lambda _: "0"),
            "SENSe#:DATA:LAST?": _of_channels(lambda n: self._readings[n][-1] if self._readings[n] else _NO_READING),
            "SENSe#:DATA:POINts?": _of_channels(lambda n: str(len(self._readings[n]))),
            "SENSe#:DATA:REMove?": _of_channels(self._take_readings),
            "SENSe#:ABORt": _for_channels(_ignore),
            "READ#?": self._read,
            "FETCh#?": _of_channels(lambda n: ",".join(self._readings[n])),
            "SYSTem:ERRor[:NEXT]?": query(self._errors.pop),
            "SYSTem:ERRor:ALL?": query(self._all_errors),
            "SYSTem:ERRor:COUNt?": query(lambda: str(len(self._errors))),
            "SYSTem:COMMunicate:LAN:MAC?": query(lambda: '"049162C01016"'),
            "ABORt": query(lambda: None),
            "*IDN?": query(lambda: "QDevil, QDAC-II, 12, 11-1.14"),
            "*STB?": query(lambda: "4" if len(self._errors) else "0"),
            "*OPC?": query(lambda: "1"),
            "*TRG": query(self._trigger_all),
            "*CLS": query(self._errors.clear),
            "*RST": query(self._reset),
        }

    def _remembered_commands(self) -> Mapping[str, Handler]:
        commands: dict[str, Handler] = {}
        for name in _NUMBERS:
            commands[name] = _for_channels(partial(self._set_number, name))
            commands[f"{name}?"] = _of_channels(partial(self._number_text, name))
        for name in _WORDS:
            commands[name] = _for_channels(partial(self._set_word, name))
            commands[f"{name}?"] = _of_channels(partial(self._word, name))
        return commands

    def _set_number(self, name: str, channel: int, text: str) -> None:
        quantity, _ = _NUMBERS[name]
        self._numbers[name][channel] = quantity.maximum if text.upper() == "INF" else quantity.parse([text])

    def _number_text(self, name: str, channel: int) -> str:
        return format(self._numbers[name][channel], _NUMBERS[name][1])

    def _set_word(self, name: str, channel: int, text: str) -> None:
        word = _LONG_WORDS.get(text.upper(), text.lower())
        if word not in _WORDS[name]:
            raise ScpiError(*ILLEGAL_VALUE)
        self._words[name][channel] = word

    def _word(self, name: str, channel: int) -> str:
        return self._words[name][channel]

    def _volts(self, channel: int, text: str) -> float:
        span = SPAN_V[self._range[channel]]
        return Quantity(-span, span, 0.0, _VOLT).parse([text])

    def _set_voltage(self, channel: int, text: str) -> None:
        self._channels[channel].voltage_v = self._volts(channel, text)
        self._channels.apply(channel)

    def _voltage_text(self, channel: int) -> str:
        return f"{self._channels[channel].voltage_v:.6g}"

    def _set_triggered(self, channel: int, text: str) -> None:
        self._triggered_v[channel] = self._volts(channel, text)

    def _trigger(self, channel: int, _text: str) -> None:
        self._channels[channel].voltage_v = self._triggered_v[channel]
        self._channels.apply(channel)

    def _trigger_all(self) -> Reply:
        for channel in range(CHANNELS):
            self._trigger(channel, "")
        return None

    def _set_range(self, channel: int, text: str) -> None:
        span = _range_word(text)
        source = self._channels[channel]
        if abs(source.voltage_v) > SPAN_V[span]:
            raise ScpiError(*OUT_OF_RANGE)
        self._range[channel] = span
        source.step_v = 2.0 * SPAN_V[span] / _STEPS
        self._channels.apply(channel)

    def _set_sensor_range(self, channel: int, text: str) -> None:
        self._sensor_range[channel] = _range_word(text)

    def _read(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        channels = _channels(suffixes, arguments)
        counts = [int(self._numbers["SENSe#:COUNt"][channel]) for channel in channels]
        rounds = [self._channels.read_currents().tolist() for _ in range(max(counts))]
        for channel, count in zip(channels, counts, strict=True):
            span = _SENSOR_SPAN_A[self._sensor_range[channel]]
            currents = [currents[channel] for currents in rounds[:count]]
            self._readings[channel] = [f"{value:.6e}" if abs(value) <= span else _OVER_RANGE for value in currents]
        return ",".join([",".join(self._readings[channel]) for channel in channels])

    def _take_readings(self, channel: int) -> str:
        readings, self._readings[channel] = self._readings[channel], []
        return ",".join(readings)

    def _all_errors(self) -> str:
        return ",".join([self._errors.pop() for _ in range(max(1, len(self._errors)))])


def _range_word(text: str) -> str:
    if text.lower() not in SPAN_V:
        raise ScpiError(*ILLEGAL_VALUE)
    return text.lower()


def _ignore(_channel: int, _text: str) -> None:
    """Do what needs nothing done here."""


def _channels(suffixes: tuple[int, ...], arguments: list[str]) -> list[int]:
    """Return the 0-based channels of a channel list such as ``(@1,3:5)``, or else of the header's suffix."""
    if arguments:
        match = _CHANNEL_LIST.fullmatch(",".join(arguments))
        if match is None:
            raise ScpiError(*PARAMETER_NOT_ALLOWED)
        numbers: list[int] = []
        for part in match[1].split(","):
            first, _, last = part.partition(":")
            if not first.strip().isdecimal() or (last and not last.strip().isdecimal()):
                raise ScpiError(*ILLEGAL_VALUE)
            numbers += range(int(first), int(last or first) + 1)
    else:
        numbers = list(suffixes)
    if not all(1 <= number <= CHANNELS for number in numbers):
        raise ScpiError(*_INVALID_SUFFIX_NUMBER)
    return [number - 1 for number in numbers]


def _for_channels(action: Callable[[int, str], None]) -> Handler:
    """Make the handler of a command: an argument for one channel, or an argument and a channel list."""

    def handler(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        listed = next((k for k, argument in enumerate(arguments) if argument.startswith("(@")), len(arguments))
        text = one_argument(arguments[:listed]) if arguments[:listed] else ""
        for channel in _channels(suffixes, arguments[listed:]):
            action(channel, text)
        return None

    return handler


def _of_channels(text: Callable[[int], str]) -> Handler:
    """Make the handler of a query for one channel, or for those of a channel list."""
    return lambda suffixes, arguments: ",".join([text(channel) for channel in _channels(suffixes, arguments)])


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedQDevilQDAC2:
    if not 1 <= spec.size <= CHANNELS:
        raise ConfigurationError(f"simulated {spec.name}: a QDAC-II has {CHANNELS} channels, got {spec.size}")
    return SimulatedQDevilQDAC2(spec.name, at.chip, at.channels)


KIND = InstrumentKind("qdevil_qdac2", "heaters", _build, "socket")
