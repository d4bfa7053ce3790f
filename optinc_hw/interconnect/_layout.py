"""Transfers laid on a fabric: ways, channels, rounds where channels run out, and where circuits change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Crossbar, Ints, WdmRing, require
from optinc_hw.interconnect._schedule import Circuits, Cycle, Phase, Schedule


class Layout:
    """Lays phases on a ring or a crossbar.

    The wavelengths and lanes that callers name count from 0 without a limit; where they exceed what the fabric has, a
    phase is cut into rounds, one after the other.  So transfers of different wavelengths and lanes must not wait for
    one another within a phase, and two nodes that exchange must do so on one number.
    """

    def __init__(self, name: str, nodes: int, fabric: WdmRing | Crossbar) -> None:
        self.nodes = require(nodes, 2, f"servers of {name}")
        if not isinstance(fabric, WdmRing | Crossbar):
            raise ScheduleError(f"{name} runs on a WdmRing or a Crossbar, got the fabric {fabric!r}")
        self.fabric = fabric
        self._name = name
        self._phases: list[Phase] = []
        self._channels = 1

    def add(
        self, kind: str, source: Ints, target: Ints, first: ArrayLike, count: ArrayLike, *, add: bool, steps: int = 1,
        cycle: Cycle | None = None, wavelength: ArrayLike = 0, direction: ArrayLike = 1, lane: ArrayLike = 0,
    ) -> None:  # fmt: skip
        """Append a phase; scalars hold for all transfers.  No transfer or no step adds nothing."""
        if source.size == 0 or steps == 0:
            return
        if isinstance(self.fabric, WdmRing):
            circuits = ring_circuits(self.nodes, self.fabric, source, target, wavelength, direction)
            channels = self.fabric.wavelengths
        else:
            zeros, ones = np.zeros_like(source), np.ones_like(source)
            circuits = Circuits(source, target, spread(lane, source), zeros, ones, zeros)
            channels = self.fabric.transceivers
        whole = Phase(kind, circuits, spread(first, source), spread(count, source), add, steps, cycle)
        self._channels = max(self._channels, int(circuits.channel.max()) + 1)
        rounds = circuits.channel // channels
        for number in np.unique(rounds):
            phase = whole.take(np.flatnonzero(rounds == number))
            columns = phase.circuits
            self._phases.append(replace(phase, circuits=replace(columns, channel=columns.channel % channels)))

    def schedule(self, chunks: int) -> Schedule:
        """Return the schedule of all phases."""
        return Schedule(self._name, self.nodes, chunks, self.fabric, tuple(mark_changes(self._phases)), self._channels)


def mark_changes(phases: Sequence[Phase]) -> list[Phase]:
    """Return the phases, with `reconfigures` where circuits are not among those of the phase before."""
    marked: list[Phase] = []
    for phase in phases:
        changes = not marked or not phase.circuits.within(marked[-1].circuits)
        marked.append(replace(phase, reconfigures=changes))
    return marked


def ring_circuits(
    nodes: int, ring: WdmRing, source: Ints, target: Ints, wavelength: ArrayLike, direction: ArrayLike
) -> Circuits:
    """Return circuits on a ring, regenerated after every `WdmRing.reach` segments."""
    ways = spread(direction, source)
    segments = ways * (target - source) % nodes
    relays = np.zeros_like(source) if ring.reach is None else (segments - 1) // ring.reach
    return Circuits(source, target, spread(wavelength, source), ways, segments, relays)


def spread(value: ArrayLike, like: Ints) -> Ints:
    """Return ``value`` as (transfers,) integers."""
    return np.broadcast_to(np.asarray(value, dtype=np.int64), like.shape)


def integers(values: Any) -> Ints:  # Any: whatever numpy takes
    """Return an array of integers."""
    return np.asarray(values, dtype=np.int64)
