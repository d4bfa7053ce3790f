"""Numbers and models of Santec TSL lasers as they are on the wire."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from drivers._parsing import HIGHEST_LEVEL_DBM, parse_flag, parse_integer, parse_number
from optinc_hw.units import METRE_PER_NANOMETRE, WATT_PER_MILLIWATT, nm_to_m

T = TypeVar("T")

_NANOMETRES = (400.0, 3000.0)
"""Numbers in this range are wavelengths in nm; 193 (THz) is outside."""

_TERAHERTZ = (100.0, 750.0)
_LONGEST_STEP_M = 1e-6  # a step of more metres must be one in nm, of which the least is 1e-4
_LOG_STEP_M = 1e-13
SWEEP_STATES = {0: "stopped", 1: "running", 3: "waiting for trigger", 4: "preparing"}
LONGEST_LOG = 500_000
_ALERT = re.compile(r'(?:No\.\s*)?\+?(\d{1,3})\s*(?:[,:]?\s*"?(.*?)"?)?', re.ASCII | re.IGNORECASE)

ALERTS = {
    0: "power supply error 1",
    2: "power supply error 2",
    3: "power supply error 3",
    4: "power error",
    5: "wavelength error",
    6: "power setting error",
    7: "interlock open",
    20: "temperature control error 1",
    21: "temperature control error 2",
    22: "temperature control error 3",
    23: "warming up",
    24: "sensor error",
    25: "shutter error",
    26: "sensor error",
    27: "connection error",
    28: "fan error",
    30: "fan error",
}
"""Meaning of the alert numbers."""


@dataclass(frozen=True)
class Codec(Generic[T]):
    """How a setting is written and read."""

    parse: Callable[[str], T]
    write: Callable[[T], str]


FLAG = Codec(parse_flag, lambda on: str(int(on)))


def decimals(places: int) -> Codec[float]:
    """Return the codec of a number with that many decimal places."""
    return Codec(parse_number, lambda value: f"{value:.{places}f}")


def choices(names: Sequence[str]) -> Codec[str]:
    """Return the codec of words that are numbers from 0 on the wire."""

    def parse(text: str) -> str:
        value = parse_integer(text)
        if not 0 <= value < len(names):
            raise ValueError(f"{text!r} is not in 0..{len(names) - 1}")
        return names[value]

    return Codec(parse, lambda name: str(names.index(name)))


@dataclass(frozen=True)
class SantecModel:
    """What one model differs in.

    Attributes
    ----------
    name
        As in ``*IDN?``.
    two_command_sets
        Whether it has a SCPI command set beside the Legacy one, and a query for its range.
    sweep_speeds
        Speeds of a sweep in m/s; None for any from 0.5 nm/s to 100 nm/s.
    """

    name: str
    two_command_sets: bool
    sweep_speeds: tuple[float, ...] | None

    def allows_speed(self, speed_m_s: float) -> bool:
        """Tell whether it can sweep that fast."""
        nm_s = speed_m_s / METRE_PER_NANOMETRE
        if self.sweep_speeds is None:
            return 0.5 - 1e-6 <= nm_s <= 100.0 + 1e-6
        return any(abs(speed_m_s - speed) <= 1e-6 * speed for speed in self.sweep_speeds)

    @property
    def speeds_text(self) -> str:
        """The speeds in words."""
        if self.sweep_speeds is None:
            return "5e-10 m/s to 1e-07 m/s"
        return ", ".join(f"{speed:g}" for speed in self.sweep_speeds) + " m/s"


_TABLE = tuple(nm_to_m(speed) for speed in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0))
MODELS = {
    model.name: model
    for model in (
        SantecModel("TSL-550", two_command_sets=False, sweep_speeds=None),
        SantecModel("TSL-570", two_command_sets=True, sweep_speeds=_TABLE),
        SantecModel("TSL-710", two_command_sets=False, sweep_speeds=None),
        SantecModel("TSL-770", two_command_sets=True, sweep_speeds=_TABLE),
    )
}
"""Model by name."""


def parse_wavelength(text: str) -> tuple[float, bool]:
    """Parse a wavelength to m, and tell whether the laser speaks in metres (else nanometres)."""
    value = parse_number(text)
    if _NANOMETRES[0] <= value <= _NANOMETRES[1]:
        return nm_to_m(value), False
    if nm_to_m(_NANOMETRES[0]) <= value <= nm_to_m(_NANOMETRES[1]):
        return value, True
    raise ValueError(f"{text!r} is a wavelength neither in nm nor in m")


def parse_step(text: str) -> float:
    """Parse a difference of wavelengths in nm or m to m."""
    value = parse_number(text)
    if value <= 0.0:
        raise ValueError(f"{text!r} is no step of a wavelength")
    return value if value < _LONGEST_STEP_M else nm_to_m(value)


def parse_frequency(text: str) -> float:
    """Parse an optical frequency in THz or Hz to Hz."""
    value = parse_number(text)
    if _TERAHERTZ[0] <= value <= _TERAHERTZ[1]:
        return value * 1e12
    if _TERAHERTZ[0] * 1e12 <= value <= _TERAHERTZ[1] * 1e12:
        return value
    raise ValueError(f"{text!r} is an optical frequency neither in THz nor in Hz")


def parse_sweep_state(text: str) -> str:
    """Parse the state of a sweep."""
    value = parse_integer(text)
    if value not in SWEEP_STATES:
        raise ValueError(f"{text!r} is no state of a sweep")
    return SWEEP_STATES[value]


def parse_alert(text: str) -> tuple[int | None, str]:
    """Parse an alert to its number (None if there is no number) and the laser's words."""
    match = _ALERT.fullmatch(text)
    return (None, text) if match is None else (int(match.group(1)), match.group(2) or text)


def parse_wavelength_log(data: bytes, points: int) -> NDArray[np.float64]:
    """Parse a log of wavelengths, 32-bit little-endian integers in 0.1 pm, to (points,) in m.

    Raises
    ------
    ValueError
        If it has another size, or holds what is no wavelength.
    """
    wavelength_m = _numbers(data, points, "<i4") * _LOG_STEP_M
    low, high = (nm_to_m(limit) for limit in _NANOMETRES)
    outside = np.flatnonzero((wavelength_m < low) | (wavelength_m > high))
    if outside.size:
        raise ValueError(f"entry {outside[0]} of the log, {wavelength_m[outside[0]]:g} m, is no wavelength")
    return wavelength_m


def parse_power_log(data: bytes, points: int) -> NDArray[np.float64]:
    """Parse a log of powers, 32-bit little-endian floats in dBm, to (points,) in W; NaN for what is no reading.

    Raises
    ------
    ValueError
        If it has another size.
    """
    level_dbm = _numbers(data, points, "<f4")
    valid = np.abs(level_dbm) <= HIGHEST_LEVEL_DBM  # False for NaN
    power_w = np.full(points, np.nan)
    power_w[valid] = WATT_PER_MILLIWATT * 10.0 ** (level_dbm[valid] / 10.0)
    return power_w


def _numbers(data: bytes, points: int, form: str) -> NDArray[np.float64]:
    if len(data) != 4 * points:
        raise ValueError(f"the log has {len(data)} bytes, but {points} points of 4 bytes were announced")
    return np.frombuffer(data, dtype=form).astype(np.float64)
