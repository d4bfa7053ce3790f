"""What schedules run on: a WDM ring, a crossbar of circuits, a tree of switches that add."""

from dataclasses import dataclass

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
        require(self.wavelengths, 1, "wavelengths of a ring")
        if self.reach is not None:
            require(self.reach, 1, "reach in segments")


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
        require(self.transceivers, 1, "transceivers of a node")


@dataclass(frozen=True, eq=False)
class SwitchTree:
    """Servers on a tree of switches that add what their children send and pass the result on.

    Every link is full duplex.  A vector streams: a switch sends on while it receives.

    Parameters
    ----------
    parents
        (servers + switches,) integers: the switch above every server and switch; -1 for the root.
    exclusive
        Whether a switch serves one job at a time.
    """

    parents: Ints
    exclusive: bool


Fabric = WdmRing | Crossbar | SwitchTree


def require(value: object, low: int, what: str) -> None:
    """Raise ScheduleError unless ``value`` is an integer of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ScheduleError(f"{what} must be an integer of at least {low}, got {value!r}")
