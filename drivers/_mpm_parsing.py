"""Replies of Santec's power meter mainframe: readings, slots, logging, errors."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivers._parsing import HIGHEST_LEVEL_DBM, OVER_RANGE, parse_flag, parse_integer, parse_number, parse_reading
from optinc_hw.units import WATT_PER_MILLIWATT

_LOG_STATE = re.compile(r"(-1|0|1),(\d+)", re.ASCII)

ERRORS = {
    -101: "a character that it does not take",
    -103: "a separator where none belongs",
    -104: "a parameter of the wrong kind",
    -108: "too many or too few parameters",
    -109: "a parameter that is too long",
    -110: "a command that is too long",
    -113: "a command that it does not know",
    -221: "settings cannot change while it measures",
    -222: "a value out of its range",
    -284: "it is busy",
    -300: "a fault of the mainframe",
    -301: "no module in this slot",
    -350: "more errors than the queue holds",
    -351: "the queue lost errors",
    101: "communication with a module failed",
    103: "communication with a module failed",
    104: "communication with a module failed",
    110: "communication over TCP failed",
    116: "communication over GPIB failed",
    117: "communication over GPIB failed",
    120: "a fault of the trigger",
    210: "a fault of a task",
}
"""What the codes of ``ERR?`` mean."""


@dataclass(frozen=True)
class LogState:
    """How far logging is.

    Attributes
    ----------
    running
        Whether it goes on.
    done
        Whether all points are there; if neither, it was stopped or never started.
    points
        Number of points so far.
    """

    running: bool
    done: bool
    points: int


def parse_log_state(text: str) -> LogState:
    """Parse ``<state>,<points>`` with 0 running, 1 done, -1 stopped; raises ValueError for anything else."""
    match = _LOG_STATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no state and number of points")
    return LogState(match[1] == "0", match[1] == "1", int(match[2]))


def parse_slots(text: str) -> list[int]:
    """Parse ``1,1,0,0,0`` to the slots that hold a module; raises ValueError for anything but five flags."""
    flags = [parse_flag(field.strip()) for field in text.split(",")]
    if len(flags) != 5:
        raise ValueError(f"{text!r} does not tell about 5 slots")
    return [slot for slot, present in enumerate(flags) if present]


def parse_range_level(text: str) -> int:
    """Parse a range level; raises ValueError if it is not 1 to 5."""
    level = parse_integer(text)
    if not 1 <= level <= 5:
        raise ValueError(f"{text!r} is no range level")
    return level


def parse_numbers(text: str) -> list[float]:
    """Parse numbers between commas; raises ValueError for anything else."""
    return [parse_number(field.strip()) for field in text.split(",")]


def parse_ports(text: str, count: int | None = None) -> list[float]:
    """Parse the readings of a module; NaN for codes. Raises ValueError if they are not ``count`` (1 to 4 if None)."""
    values = [parse_reading(field.strip()) for field in text.split(",")]
    if not (1 <= len(values) <= 4 if count is None else len(values) == count):
        raise ValueError(f"{len(values)} readings came instead of {count or '1 to 4'}")
    return values


def parse_block(data: bytes, points: int) -> NDArray[np.float64]:
    """Parse a port's log; raises ValueError if it has not ``points`` points."""
    if len(data) != 4 * points:
        raise ValueError(f"{len(data)} bytes are not {points} points of 4 bytes")
    return np.frombuffer(data, dtype="<f4").astype(np.float64)


def judge_powers(
    raw: NDArray[np.float64], *, milliwatts: bool, limits_w: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Convert readings in mW or dBm to W and flag what is no measurement: codes, sentinels, more than a limit.

    Returns
    -------
    tuple
        Powers in W, NaN where not valid, and whether they are valid; both of the shape of ``raw``.
    """
    is_number = np.isfinite(raw) & (np.abs(raw) < (OVER_RANGE if milliwatts else HIGHEST_LEVEL_DBM))
    safe = np.where(is_number, raw, 0.0)
    power = safe * WATT_PER_MILLIWATT if milliwatts else WATT_PER_MILLIWATT * 10.0 ** (safe / 10.0)
    # Beyond the range in use the converter stays at some value; far below zero nothing was measured either.
    valid = is_number & (np.abs(power) <= limits_w)
    return np.where(valid, power, np.nan), valid
