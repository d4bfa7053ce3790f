"""What schedules run on: a WDM ring, a crossbar of circuits, a tree of switches that add."""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import ScheduleError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class WdmRing:
    """Nodes on a ring of two fibres, one a direction; segment i joins nodes i and i + 1.

    Parameters
    ----------
    wavelengths
        Of each direction.  A wavelength carries one transfer on a segment and direction at a time; there is no
        optical multicast.
    reach
        Segments that light can pass before it must be regenerated (O/E/O) in a node; ``None`` if loss sets no limit.
    """

    wavelengths: int = 64
    reach: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "wavelengths", require(self.wavelengths, 1, "wavelengths of a ring"))
        if self.reach is not None:
            object.__setattr__(self, "reach", require(self.reach, 1, "reach in segments"))


@dataclass(frozen=True)
class Crossbar:
    """Circuits from any node to any other, each between one transmitter and one receiver.

    Parameters
    ----------
    transceivers
        Of each node: transceiver k is transmitter k and receiver k.
    carved
        Whether a slow plane of switches makes this network for a job, once.
    """

    transceivers: int = 1
    carved: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "transceivers", require(self.transceivers, 1, "transceivers of a node"))


@dataclass(frozen=True, eq=False)
class SwitchTree:
    """Servers on a tree of switches that add what their children send and pass the result on.

    Every link is full duplex.  A vector streams: a switch sends on while it receives.

    Parameters
    ----------
    parents
        (servers + switches,) integers: the switch above every server and switch, which has a higher number than what
        is below it; -1 for the root, the last.
    exclusive
        Whether a switch serves one job at a time.

    Raises
    ------
    ScheduleError
        If the parents are no integers or no tree.
    """

    parents: Ints
    exclusive: bool

    def __post_init__(self) -> None:
        parents = whole_numbers(self.parents, "parents of a tree of switches")
        if parents.size < 2 or parents[-1] != -1:
            raise ScheduleError(
                f"parents of a tree of switches must be two or more and end in the root's -1, got {parents.tolist()}"
            )
        numbers = np.arange(parents.size - 1)
        wrong = np.flatnonzero((parents[:-1] <= numbers) | (parents[:-1] >= parents.size))
        if wrong.size:
            node = int(wrong[0])
            raise ScheduleError(
                f"node {node} of a tree of switches has the parent {int(parents[node])}; number every switch above "
                f"what it joins, here {node + 1} to {parents.size - 1}"
            )
        object.__setattr__(self, "parents", parents)


Fabric = WdmRing | Crossbar | SwitchTree


def require(value: Any, low: int, what: str) -> int:  # Any: what a caller gave
    """Return ``value`` as an int; raise ScheduleError unless it is an integer of at least ``low``."""
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = low - 1
    if number < low:
        raise ScheduleError(f"{what} must be an integer of at least {low}, got {value!r}")
    return number


def whole_numbers(values: Any, what: str) -> Ints:  # Any: what a caller gave
    """Return a copy as a vector of int64; raise ScheduleError unless they are integers."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):  # rows of several lengths
        found = np.zeros(())
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ScheduleError(f"{what} must be one row of integers, got {values!r}")
    return found.astype(np.int64)
