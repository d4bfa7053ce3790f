"""Which schedule wins at which payload."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect._links import Floats
from optinc_hw.interconnect.comparison._systems import System, log_payloads

LOWEST_BYTES, HIGHEST_BYTES = 1e3, 1e11
_TIE = 1e-9  # rounding of equal times and slopes is below that, and no model tells so little apart


@dataclass(frozen=True)
class Range:
    """Payloads at which one system is the fastest.

    Parameters
    ----------
    name
        Of the system.
    low_bytes, high_bytes
        From where to where; the first range begins and the last one ends where the search does.
    """

    name: str
    low_bytes: float
    high_bytes: float


def fastest_ranges(
    systems: Sequence[System], low_bytes: float = LOWEST_BYTES, high_bytes: float = HIGHEST_BYTES
) -> tuple[Range, ...]:
    """Divide the payloads among the systems that are the fastest there; the first one named wins a tie.

    Times are affine in the payload but for few kinks; between points of a logarithmic grid, three a decade, they are
    taken as lines, whose crossings are exact.

    Parameters
    ----------
    systems
        Of one number of servers.
    low_bytes, high_bytes
        Payloads to look at.

    Raises
    ------
    ComparisonError
        If there is no system, or the payloads do not increase.
    """
    if not systems:
        raise ComparisonError("there is no schedule of which one could be the fastest; name at least one")
    grid = np.array(log_payloads(low_bytes, high_bytes))
    times = np.array([[system.time(payload) for payload in grid] for system in systems])
    found: list[tuple[int, float]] = []  # winners and where they begin
    for index in range(grid.size - 1):
        found += _envelope(grid[index : index + 2], times[:, index : index + 2])
    starts = [one for number, one in enumerate(found) if number == 0 or one[0] != found[number - 1][0]]
    ends = [start for _, start in starts[1:]] + [high_bytes]
    return tuple(
        Range(systems[winner].name, start, end) for (winner, start), end in zip(starts, ends, strict=True)
    )  # fmt: skip


def crossover(one: System, other: System, low_bytes: float = LOWEST_BYTES, high_bytes: float = 1e12) -> float | None:
    """Return the first payload in bytes at which the faster of two systems becomes the slower, or ``None``."""
    ranges = fastest_ranges((one, other), low_bytes, high_bytes)
    return ranges[0].high_bytes if len(ranges) > 1 else None


def _envelope(ends: Floats, times: Floats) -> list[tuple[int, float]]:
    """Return who is the lowest of lines between two payloads, and from where on."""
    slopes = (times[:, 1] - times[:, 0]) / (ends[1] - ends[0])
    at = float(ends[0])
    now = times[:, 0].copy()
    winner = _lowest(now, slopes)
    found = [(winner, at)]
    while True:
        gaining = slopes < slopes[winner] - _TIE * abs(slopes[winner])
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = np.where(gaining, at + (now - now[winner]) / (slopes[winner] - slopes), np.inf)
        following = float(meet.min())
        if not following < ends[1]:
            return found
        now = times[:, 0] + slopes * (following - ends[0])
        winner = _lowest(np.where(meet == following, now, np.inf), slopes)
        at = following
        found.append((winner, at))


def _lowest(now: Floats, slopes: Floats) -> int:
    """Return the lowest; of equal ones the one that grows the least, of these the first."""
    lowest = float(now.min())
    tied = np.flatnonzero(now <= lowest * (1.0 + _TIE))
    slowest = float(slopes[tied].min())
    return int(tied[slopes[tied] <= slowest + _TIE * abs(slowest)][0])
