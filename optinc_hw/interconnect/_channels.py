"""Channels of a fabric that jobs share, and when each is free."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Crossbar, Fabric, Ints, SwitchTree, WdmRing
from optinc_hw.interconnect._layout import ring_circuits
from optinc_hw.interconnect._links import Floats
from optinc_hw.interconnect._schedule import Circuits, Schedule


@dataclass(eq=False)
class Channels:
    """When each channel of a fabric is free, in seconds.

    Parameters
    ----------
    fabric
        That all jobs share.
    size
        Positions of servers on it.
    free
        One entry for each wavelength, direction and segment of a ring, each transmitter and receiver of a crossbar,
        each link and direction of a tree.
    engine
        When the switches of an exclusive tree are; 0 elsewhere.
    """

    fabric: Fabric
    size: int
    free: Floats
    engine: float = 0.0

    def way(self, circuits: Circuits, places: Ints, first_channel: int) -> tuple["Way", Circuits]:
        """Return the channels that circuits use with nodes at their places, and how long the circuits are there."""
        source, target = places[circuits.source], places[circuits.target]
        fabric, channel = self.fabric, circuits.channel + first_channel
        if isinstance(fabric, SwitchTree):
            return Way(self.free, _links(circuits, source, target, self.free.size // 2), None), circuits
        limit = fabric.wavelengths if isinstance(fabric, WdmRing) else fabric.transceivers
        if channel.min() < 0 or channel.max() >= limit:
            raise ScheduleError(
                f"a job asks for channels {int(channel.min())} to {int(channel.max())}, there are 0 to {limit - 1}; "
                f"lower first_channel, or build the schedule for fewer channels"
            )
        if isinstance(fabric, Crossbar):
            ends = np.stack([source * limit + channel, (self.size + target) * limit + channel], axis=1)
            return Way(self.free, ends.ravel(), np.arange(0, ends.size, 2)), circuits
        placed = ring_circuits(self.size, fabric, source, target, channel, circuits.direction)
        return self._arcs(placed), replace(placed, source=circuits.source, target=circuits.target)

    def _arcs(self, circuits: Circuits) -> "Way":
        lengths = circuits.segments
        begins = np.cumsum(lengths) - lengths
        start = np.where(circuits.direction > 0, circuits.source, circuits.target)
        segment = (np.arange(lengths.sum()) + np.repeat(start - begins, lengths)) % self.size
        plane = (2 * circuits.channel + (circuits.direction > 0)) * self.size
        return Way(self.free, np.repeat(plane, lengths) + segment, begins)


@dataclass(frozen=True, eq=False)
class Way:
    """The channels of the transfers of a step.

    Parameters
    ----------
    times
        When each channel of the fabric is free; changed in place.
    used
        Channels of all transfers, one transfer after the other.
    begins
        (transfers,) where in `used` each transfer begins; ``None`` if each uses one.
    """

    times: Floats
    used: Ints
    begins: Ints | None

    def free(self) -> Floats:
        """Return (transfers,) times at which all channels of each are free."""
        times: Floats = self.times[self.used]
        return times if self.begins is None else np.maximum.reduceat(times, self.begins)

    def occupy(self, until: Floats) -> None:
        """Keep each transfer's channels in use until the given time."""
        if self.begins is None:
            self.times[self.used] = until
        else:
            self.times[self.used] = np.repeat(until, np.diff(np.append(self.begins, self.used.size)))


def channels_of(fabric: Fabric, size: int, schedules: Sequence[Schedule]) -> Channels:
    """Return the free channels of a fabric with ``size`` positions for servers."""
    if isinstance(fabric, WdmRing):
        count = 2 * fabric.wavelengths * size
    elif isinstance(fabric, Crossbar):
        count = 2 * fabric.transceivers * size
    else:
        count = 2 * (size + max(schedule.switches for schedule in schedules))
    return Channels(fabric, size, np.zeros(count))


def _links(circuits: Circuits, source: Ints, target: Ints, members: int) -> Ints:
    """Links are named by their lower end; in a tree the upper end has the higher number."""
    up = circuits.target > circuits.source
    return np.where(up, source, members + target)
