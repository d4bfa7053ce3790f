"""Strict parsers of reply lines; all raise ValueError, which the link turns into a ReplyError with the bytes."""

import math
import re
from dataclasses import dataclass

OVER_RANGE = 1e20
"""Magnitude from which a number is a code (9.9E37, 9.91E37, 3.4E38), not a measurement."""

HIGHEST_LEVEL_DBM = 100.0
"""Magnitude beyond which a level in dBm is a sentinel, not a measurement."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_A_READING = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_SYSTEM_ERROR = re.compile(r"([+-]?\d+),\s*(.*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Identity:
    """Answer to an identity query."""

    vendor: str
    model: str
    serial: str
    firmware: str

    def as_dict(self) -> dict[str, str | None]:
        """Write the four fields as QCoDeS expects them."""
        return {"vendor": self.vendor, "model": self.model, "serial": self.serial, "firmware": self.firmware}


def is_reading(value: float) -> bool:
    """Tell whether ``value`` is a measurement and no over-range, under-range or not-a-number code."""
    return math.isfinite(value) and abs(value) < OVER_RANGE


def parse_number(text: str) -> float:
    """Parse a finite number that is no over-range code.

    Raises
    ------
    ValueError
        For anything else, such as ``-0.-1``, ``0,5``, ``1_0``, ``nan`` or ``9.91E+37``.
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no number")
    value = float(text)
    if not is_reading(value):
        raise ValueError(f"{text!r} is an out-of-range code, no value")
    return value


def parse_reading(text: str) -> float:
    """Parse a measurement; out-of-range codes, infinities and not-a-number become NaN.

    Raises
    ------
    ValueError
        If the text is neither a number nor such a code.
    """
    if _NOT_A_READING.fullmatch(text) is not None:
        return math.nan
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no number")
    value = float(text)
    return value if is_reading(value) else math.nan


def parse_level(text: str) -> float:
    """Parse a level in dBm that some real light can have; sentinels such as -200 dBm raise ValueError."""
    value = parse_number(text)
    if abs(value) > HIGHEST_LEVEL_DBM:
        raise ValueError(f"{text!r} is no level of real light in dBm")
    return value


def parse_integer(text: str) -> int:
    """Parse a decimal integer with an optional sign."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no integer")
    return int(text)


def parse_flag(text: str) -> bool:
    """Parse ``0`` or ``1`` (with an optional sign)."""
    value = parse_integer(text)
    if value not in (0, 1):
        raise ValueError(f"{text!r} is neither 0 nor 1")
    return value == 1


def parse_identity(text: str) -> Identity:
    """Parse an answer to ``*IDN?``: exactly four fields, vendor and model not empty."""
    fields = [field.strip() for field in text.split(",")]
    if len(fields) != 4 or not fields[0] or not fields[1]:
        raise ValueError(f"{text!r} is no identity of the form vendor,model,serial,firmware")
    return Identity(*fields)


def parse_system_error(text: str) -> tuple[int, str]:
    """Parse an entry of an error queue, such as ``-113,"Undefined header"`` or ``0,No error``."""
    match = _SYSTEM_ERROR.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no entry of an error queue")
    return int(match.group(1)), match.group(2).strip().strip('"')
