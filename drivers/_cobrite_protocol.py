"""Replies of ID Photonics CoBrite lasers; all parsers raise ValueError, which the link turns into a ReplyError."""

import math
import re
from dataclasses import dataclass

from drivers._link import Dialect
from drivers._parsing import HIGHEST_LEVEL_DBM, Identity, parse_flag, parse_integer, parse_level, parse_number
from drivers._parsing import parse_reading as parse_measurement
from optinc_hw.units import dbm_to_watt, ma_to_a

HZ_PER_THZ, HZ_PER_GHZ = 1e12, 1e9

_ICE_POINT_K = 273.15
_IDENTITY_REPLY = re.compile(rb"[^,;\n]*,\s*CoBrite[^;\n]*", re.IGNORECASE)
_REFUSAL = re.compile(r"ERR\s*(-?\d+)\s*,\s*(.*)", re.ASCII | re.DOTALL)
_DX_SLOT = re.compile(r"LAY,(\d+),(\d+),DEV(\d*)", re.ASCII)
_MX_SLOT = re.compile(r"(\d+),(\d+),(?:EMP|[A-Za-z]+(\d*))", re.ASCII)
_REMEDIES = {
    100: "command error; check that the laser has this port and can have this value",
    101: "wrong number of arguments",
    104: "the unit is powered down; wake it at its front panel",
    201: "not authorised; call log_in() first",
    204: "another session has locked the unit; end that session or its lock",
}

DIALECT = Dialect(terminator=b";", resync_command="*IDN?", resync_reply=_IDENTITY_REPLY)


@dataclass(frozen=True)
class Refusal:
    """An error reply: its number and what the laser says to it."""

    code: int
    detail: str

    def __str__(self) -> str:
        return f"error {self.code} ({self.detail}): {_REMEDIES.get(self.code, 'unknown error')}"


@dataclass(frozen=True)
class Limits:
    """What a laser can do, in Hz and W."""

    lowest_hz: float
    highest_hz: float
    offset_hz: float
    lowest_w: float
    highest_w: float


@dataclass(frozen=True)
class Configuration:
    """All settings of a laser, in Hz and W."""

    frequency_hz: float
    offset_hz: float
    power_w: float
    on: bool
    busy: bool
    dither: bool


def parse_refusal(text: str) -> Refusal | None:
    """Parse an error reply; None if the reply is none."""
    if not text.startswith("ERR"):
        return None
    match = _REFUSAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no error of the form ERR code,detail")
    return Refusal(int(match.group(1)), match.group(2).strip())


def parse_acknowledgement(text: str) -> str:
    """Parse the answer to a command, which is some word; a number belongs to another question."""
    if not text.isprintable() or not text[:1].isalpha():
        raise ValueError(f"{text!r} does not acknowledge a command")
    return text


def parse_identity(text: str) -> Identity:
    """Parse ``ID Photonics,CoBrite-DX,serial,firmware``; serial and firmware may be missing or be several fields."""
    vendor, _, rest = text.partition(",")
    fields = [field.strip() for field in rest.split(",", 2)]
    if not vendor.strip() or not fields[0]:
        raise ValueError(f"{text!r} is no identity of the form vendor,model,serial,firmware")
    return Identity(vendor.strip(), *fields, *[""] * (3 - len(fields)))


def parse_layout(text: str) -> tuple[bool, dict[tuple[int, int], int]]:
    """Parse the number of lasers by chassis and slot, and tell whether this is an MX."""
    devices: dict[tuple[int, int], int] = {}
    forms = set()
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.upper().startswith("SYSTEM"):
            continue
        dx, mx = _DX_SLOT.fullmatch(line), _MX_SLOT.fullmatch(line)
        match = dx or mx
        if match is None:
            raise ValueError(f"{line!r} is no line of a layout")
        forms.add(dx is None)
        empty = line.endswith(("DEV", "EMP"))
        devices[int(match.group(1)), int(match.group(2))] = 0 if empty else int(match.group(3) or 1)
    if len(forms) != 1:
        raise ValueError("it is no layout of either a DX or an MX")
    return forms.pop(), devices


def parse_limits(text: str) -> Limits:
    """Parse ``freq_min,freq_max,offset_range,pow_min,pow_max`` in THz, GHz and dBm."""
    lowest, highest, offset, weakest, strongest = _fields(text, 5)
    limits = Limits(
        parse_number(lowest) * HZ_PER_THZ,
        parse_number(highest) * HZ_PER_THZ,
        parse_number(offset) * HZ_PER_GHZ,
        dbm_to_watt(parse_level(weakest)),
        dbm_to_watt(parse_level(strongest)),
    )
    if not 0.0 < limits.lowest_hz < limits.highest_hz:
        raise ValueError(f"{text!r} are no limits")
    return limits


def parse_configuration(text: str) -> Configuration:
    """Parse ``freq,offset,power,state,busy,dither`` in THz, GHz and dBm."""
    frequency, offset, power, state, busy, dither = _fields(text, 6)
    return Configuration(
        parse_number(frequency) * HZ_PER_THZ,
        parse_number(offset) * HZ_PER_GHZ,
        dbm_to_watt(parse_level(power)),
        parse_flag(state),
        parse_flag(busy),
        parse_dither(dither),
    )


def parse_monitor(text: str) -> tuple[float, float, float, float]:
    """Parse chip and base temperature to K, diode and cooler current to A; codes become NaN."""
    chip, base, diode, cooler = (parse_measurement(field) for field in _fields(text, 4))
    return chip + _ICE_POINT_K, base + _ICE_POINT_K, ma_to_a(diode), ma_to_a(cooler)


def parse_measured_level(text: str) -> float:
    """Parse a measured level in dBm to W; what no real light has becomes NaN."""
    level = parse_measurement(text)
    return dbm_to_watt(level) if abs(level) <= HIGHEST_LEVEL_DBM else math.nan


def parse_dither(text: str) -> bool:
    """Parse 0 or 1, or -1 of a laser that always dithers."""
    return True if parse_integer(text) == -1 else parse_flag(text)


def _fields(text: str, count: int) -> list[str]:
    fields = [field.strip() for field in text.split(",")]
    if len(fields) != count:
        raise ValueError(f"{text!r} has not {count} fields")
    return fields
