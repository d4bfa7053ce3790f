"""Modules, reply grammar, binary frames and error table of Qontrol's 8-channel heater drivers."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drivers._link import Dialect
from optinc_hw.units import AMPERE_PER_MILLIAMPERE

CHANNELS_PER_MODULE = 8


@dataclass(frozen=True)
class FullScale:
    """Full scale of a module in V and A."""

    voltage: float
    current: float


MODULE_TYPES: Mapping[str, FullScale] = {
    "Q8iv": FullScale(12.0, 24e-3),
    "Q8b": FullScale(12.0, 0.25 / 3.0),
    "Q8bi": FullScale(12.0, 0.1),
    "Q8a": FullScale(12.0, 0.1),
}
"""Full scale by type, from the vendor's table of devices."""

MODULE_ID = re.compile(r"(\w+)-([0-9A-Fa-f]+|\*+)", re.ASCII)
CHAIN_LINE = re.compile(r"(\w+-(?:[0-9A-Fa-f]+|\*+)): (\d+)", re.ASCII)
FIRMWARE = re.compile(r"v?\d[\w.]*", re.ASCII)

_BINARY, _EXTENDED, _PARITY = 0x80, 0x02, 0x01
_SET_VOLTAGE = 0x00
_FULL_SCALE_CODE = 0xFFFF
_ROUNDING = 1e-6
"""Part of a code by which a product may miss a whole number."""

_VOLTS = re.compile(r"([+-]\d+\.\d+) V", re.ASCII)
_MILLIAMPERES = re.compile(r"([+-]\d+\.\d+) mA", re.ASCII)
_ERROR = re.compile(rb"E\d\d:\d\d")
_ERROR_START = re.compile(rb"E(?:\d(?:\d(?::(?:\d\d?)?)?)?)?")
_CHANNEL_ERRORS = frozenset({"01", "02", "03", "04", "05"})

_ERROR_TEXTS: Mapping[str, str] = {
    "00": "unknown error",
    "01": "over-voltage",
    "02": "over-current",
    "03": "power error",
    "04": "calibration error",
    "05": "output error",
    "10": "unrecognised command",
    "11": "bad parameter",
    "12": "bad channel",
    "13": "operation forbidden",
    "14": "serial buffer overflow",
    "15": "serial error",
    "16": "command timed out",
    "17": "SPI error",
    "18": "ADC error",
    "19": "I2C error",
    "20": "interlock",
    "30": "too many errors, some suppressed",
    "31": "firmware trap",
    "90": "powered up, outputs are at 0 V",
}


def explain_errors(modules: int, events: list[str]) -> str:
    """Put error lines into words; their channel number counts within a module that they do not name."""
    texts = []
    for event in events:
        code, channel = event[1:3], int(event[4:6])
        text = f"{event} ({_ERROR_TEXTS.get(code, 'undocumented error')}"
        if modules > 1 and code in _CHANNEL_ERRORS:
            candidates = range(channel, modules * CHANNELS_PER_MODULE, CHANNELS_PER_MODULE)
            text += f", ambiguous between modules: channel {' or '.join(map(str, candidates))}"
        texts.append(text + ")")
    return ", ".join(texts)


def expect(pattern: re.Pattern[str], what: str) -> Callable[[str], re.Match[str]]:
    """Make a parser that accepts lines of the form ``pattern`` only."""

    def parse(text: str) -> re.Match[str]:
        match = pattern.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no {what}")
        return match

    return parse


def parse_volts(text: str) -> float:
    """Parse a voltage line such as ``+2.5000 V`` to V."""
    return _number_of(_VOLTS, text, "voltage like '+2.5000 V'")


def parse_amperes(text: str) -> float:
    """Parse a current line such as ``+2.5000 mA`` to A."""
    return _number_of(_MILLIAMPERES, text, "current like '+2.5000 mA'") * AMPERE_PER_MILLIAMPERE


def _number_of(pattern: re.Pattern[str], text: str, what: str) -> float:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no {what}")
    return float(match[1])


def parse_ok(text: str) -> None:
    """Parse the acknowledgement of a set command."""
    if text != "OK":
        raise ValueError(f"{text!r} is no acknowledgement 'OK'")


def voltage_frame(first: int, codes: Sequence[int]) -> bytes:
    """Write the binary frame that sets neighbouring channels of one module, from ``first``, to converter codes.

    Header (with even parity), command, 0 and 16-bit channel, then the word, or a count and that many words.
    """
    header, count = _BINARY, b""
    if len(codes) > 1:
        header |= _EXTENDED
        count = len(codes).to_bytes(2, "big")
    if header.bit_count() % 2:
        header |= _PARITY
    words = b"".join([code.to_bytes(2, "big") for code in codes])
    return bytes((header, _SET_VOLTAGE, 0)) + first.to_bytes(2, "big") + count + words


def voltage_code(voltage: float, full_voltage: float) -> int:
    """Return the converter code for a voltage of 0 V to ``full_voltage`` V: the highest that does not exceed it."""
    return int(voltage / full_voltage * _FULL_SCALE_CODE + _ROUNDING)


def qontrol_dialect(modules: int) -> Dialect:
    """Framing of a chain of ``modules`` modules: error lines may come before, after or instead of a reply."""
    return Dialect(
        terminator=b"\n",
        resync_command="ID?",
        resync_reply=re.compile(MODULE_ID.pattern.encode()),
        confirm_command="FIRMWARE?",
        confirm_reply=re.compile(FIRMWARE.pattern.encode()),
        event=_ERROR,
        event_start=_ERROR_START,
        explain_events=lambda events: explain_errors(modules, events),
    )
