"""Schedules of all-reduces as data: phases of equal steps of transfers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Fabric, Ints, SwitchTree, require


@dataclass(frozen=True, eq=False)
class Circuits:
    """Who sends to whom in a step, and through what.  All fields are (transfers,) integers.

    Parameters
    ----------
    source, target
        Nodes; switches are numbered from the number of servers upward.
    channel
        On a ring the wavelength; on a crossbar the transceiver, of the source and of the target; 0 on a tree.
    direction
        On a ring +1 towards higher nodes, -1 towards lower ones; 0 elsewhere.
    segments
        Segments of the ring on the way; 1 elsewhere.
    relays
        Nodes on the way that regenerate the light, fewer than segments; 0 elsewhere.
    """

    source: Ints
    target: Ints
    channel: Ints
    direction: Ints
    segments: Ints
    relays: Ints

    def take(self, which: Ints) -> "Circuits":
        """Return the transfers of the given indices."""
        return Circuits(*(column[which] for column in self.columns))

    @property
    def columns(self) -> tuple[Ints, ...]:
        """The six fields in order."""
        return self.source, self.target, self.channel, self.direction, self.segments, self.relays

    def within(self, other: "Circuits") -> bool:
        """Whether every circuit (source, target, channel, direction) is also one of ``other``."""
        if self is other:
            return True
        mine, theirs = (
            {*zip(*(column.tolist() for column in one.columns[:4]), strict=True)} for one in (self, other)
        )  # fmt: skip
        return mine <= theirs


@dataclass(frozen=True, eq=False)
class Cycle:
    """How the chunk of each transfer moves from step to step of a phase: round a part of the vector.

    In step k of a phase transfer t begins at chunk ``base + (first - base + k * shift) mod period``.

    Parameters
    ----------
    base, period
        (transfers,) first chunk and number of chunks of the part.
    shift
        (transfers,) chunks from one step to the next.
    """

    base: Ints
    period: Ints
    shift: Ints

    def take(self, which: Ints) -> "Cycle":
        """Return the transfers of the given indices."""
        return Cycle(self.base[which], self.period[which], self.shift[which])


@dataclass(frozen=True, eq=False)
class Step:
    """Transfers at the same time.  Every source sends what it holds when the step begins.

    Parameters
    ----------
    kind
        What the step is for, such as ``"collect"``.
    circuits
        Source, target and way of each transfer.
    first, stop
        (transfers,) half-open ranges of chunks.
    add
        Whether targets add what they receive, or keep it in place of what they held.
    reconfigures
        Whether circuits differ from those of the step before, so that they must be set first.
    streamed
        Whether sources, which must be switches, pass on what they receive in the step before while it comes in.

    Raises
    ------
    ScheduleError
        If `first` and `stop` differ in length.
    """

    kind: str
    circuits: Circuits
    first: Ints
    stop: Ints
    add: bool
    reconfigures: bool = False
    streamed: bool = False

    def __post_init__(self) -> None:
        _check_rows(f"first and stop of the step {self.kind!r}", self.first, self.stop)


@dataclass(frozen=True, eq=False)
class Phase:
    """Steps that differ only in the chunks that are sent.

    Parameters
    ----------
    kind, circuits, add, reconfigures, streamed
        As in `Step`; circuits are set before the first step of the phase only.
    steps
        How many.
    first, count
        (transfers,) first chunk in the first step, and number of chunks.
    cycle
        How the first chunk moves; ``None`` if it stays.

    Raises
    ------
    ScheduleError
        If there is no step, or `first`, `count` and the cycle differ in length, or a period is not positive.
    """

    kind: str
    circuits: Circuits
    first: Ints
    count: Ints
    add: bool
    steps: int = 1
    cycle: Cycle | None = None
    reconfigures: bool = False
    streamed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", require(self.steps, 1, f"steps of the phase {self.kind!r}"))
        cycle = () if self.cycle is None else (self.cycle.base, self.cycle.period, self.cycle.shift)
        _check_rows(f"first, count and cycle of the phase {self.kind!r}", self.first, self.count, *cycle)
        if self.cycle is not None and np.any(self.cycle.period < 1):
            raise ScheduleError(f"periods of the phase {self.kind!r} must be 1 or more, got {self.cycle.period}")

    def step(self, index: int) -> Step:
        """Return step ``index`` (from 0) of the phase."""
        first = self.first
        if self.cycle is not None:
            base = self.cycle.base
            first = base + (first - base + index * self.cycle.shift) % self.cycle.period
        reconfigures = self.reconfigures and index == 0
        return Step(self.kind, self.circuits, first, first + self.count, self.add, reconfigures, self.streamed)

    def take(self, which: Ints) -> "Phase":
        """Return the phase with the transfers of the given indices only."""
        cycle = None if self.cycle is None else self.cycle.take(which)
        return replace(
            self, circuits=self.circuits.take(which), first=self.first[which], count=self.count[which], cycle=cycle
        )


@dataclass(frozen=True)
class PhaseFacts:
    """How much a phase sends, adds and occupies.

    Parameters
    ----------
    steps
        As in `Phase`.
    share
        Most of the vector that one transfer carries.
    reduced
        Most of the vector (times transfers) that one target adds up in a step; 0 if it adds nothing.
    sent
        Of the vector, over all transfers of a step.
    channels
        Wavelengths of a direction, or transceivers of a node, that a step uses.
    """

    steps: int
    share: Fraction
    reduced: Fraction
    sent: Fraction
    channels: int


@dataclass(frozen=True, eq=False)
class Schedule:
    """An all-reduce: the steps after which every server holds the sum of all servers' vectors.

    Parameters
    ----------
    name
        Of the algorithm.
    nodes
        Servers N.
    chunks
        Equal parts that the vector is cut into.
    fabric
        What it runs on.
    phases
        Of equal steps, in order.  `steps` makes them one by one.
    channels_needed
        Wavelengths of each direction (on a crossbar transceivers of each node) with which no step has to be cut into
        rounds.

    Raises
    ------
    ScheduleError
        If there are too few servers or chunks, or the fabric is of another kind, or joins others than the servers.
    """

    name: str
    nodes: int
    chunks: int
    fabric: Fabric
    phases: tuple[Phase, ...]
    channels_needed: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", require(self.nodes, 2, f"servers of {self.name}"))
        object.__setattr__(self, "chunks", require(self.chunks, 1, f"chunks of {self.name}"))
        if not isinstance(self.fabric, Fabric):
            raise ScheduleError(
                f"the fabric of {self.name} must be a WdmRing, a Crossbar or a SwitchTree, got {self.fabric!r}"
            )
        if isinstance(self.fabric, SwitchTree):
            lowest = int(self.fabric.parents[:-1].min())
            if lowest < self.nodes:
                raise ScheduleError(
                    f"the tree of {self.name} has node {lowest} as a switch, but nodes 0 to {self.nodes - 1} are "
                    f"servers; number switches from {self.nodes} upward"
                )

    @classmethod
    def from_steps(cls, name: str, nodes: int, chunks: int, fabric: Fabric, steps: Sequence[Step]) -> "Schedule":
        """Build a schedule from single steps, each a phase of its own."""
        phases = tuple(
            Phase(
                step.kind, step.circuits, step.first, step.stop - step.first, step.add,
                reconfigures=step.reconfigures, streamed=step.streamed,
            )
            for step in steps
        )  # fmt: skip
        channels = max((int(step.circuits.channel.max(initial=0)) + 1 for step in steps), default=1)
        return cls(name, nodes, chunks, fabric, phases, channels)

    @property
    def switches(self) -> int:
        """Nodes that add and own nothing, numbered from `nodes` upward."""
        return self.fabric.parents.size - self.nodes if isinstance(self.fabric, SwitchTree) else 0

    @property
    def step_count(self) -> int:
        """Steps of all phases."""
        return sum(phase.steps for phase in self.phases)

    @property
    def steps(self) -> Iterator[Step]:
        """All steps in order, made one by one."""
        return (phase.step(index) for phase in self.phases for index in range(phase.steps))

    @cached_property
    def facts(self) -> tuple[PhaseFacts, ...]:
        """How much is sent, added and occupied, a row a phase: no step is made for it."""
        return tuple(self._facts(phase) for phase in self.phases)

    @cached_property
    def traffic(self) -> Fraction:
        """Most that one server sends, in vectors: 2 (N - 1) / N of a ring, 1 of a switch."""
        sent = np.zeros(self.nodes + self.switches, dtype=np.int64)
        for phase in self.phases:
            np.add.at(sent, phase.circuits.source, phase.steps * phase.count)
        return Fraction(int(sent[: self.nodes].max()), self.chunks)

    def _facts(self, phase: Phase) -> PhaseFacts:
        circuits = phase.circuits
        received = np.bincount(circuits.target, weights=phase.count if phase.add else np.zeros(phase.count.size))
        return PhaseFacts(
            steps=phase.steps,
            share=Fraction(int(phase.count.max(initial=0)), self.chunks),
            reduced=Fraction(int(received.max(initial=0)), self.chunks),
            sent=Fraction(int(phase.count.sum()), self.chunks),
            channels=int(circuits.channel.max(initial=0)) + 1,
        )


def _check_rows(what: str, *columns: Ints) -> None:
    """Raise ScheduleError unless all columns have one shape."""
    shapes = [np.shape(column) for column in columns]
    if len(set(shapes)) != 1:
        raise ScheduleError(f"{what} have the shapes {shapes}; give one entry a transfer in each")
