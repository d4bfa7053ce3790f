"""Reply grammar and error table of the Qontrol Q8iv's text protocol."""

import re
from collections.abc import Callable, Mapping

from drivers._link import Dialect
from optinc_hw.units import AMPERE_PER_MILLIAMPERE

CHANNELS_PER_MODULE = 8

MODULE_ID = re.compile(r"(\w+)-([0-9A-Fa-f]+|\*+)", re.ASCII)
CHAIN_LINE = re.compile(r"(\w+-(?:[0-9A-Fa-f]+|\*+)): (\d+)", re.ASCII)
FIRMWARE = re.compile(r"v?\d[\w.]*", re.ASCII)

_RESYNC_REPLY = re.compile(MODULE_ID.pattern.encode())
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


def q8iv_dialect(modules: int) -> Dialect:
    """Framing of a chain of ``modules`` modules: error lines may come before, after or instead of a reply."""
    return Dialect(
        terminator=b"\n",
        resync_command="ID?",
        resync_reply=_RESYNC_REPLY,
        event=_ERROR,
        event_start=_ERROR_START,
        explain_events=lambda events: explain_errors(modules, events),
    )
