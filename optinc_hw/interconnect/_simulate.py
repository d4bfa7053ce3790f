"""Event-driven simulation of schedules: late and slow nodes, and jobs that share a fabric."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._channels import Channels, channels_of
from optinc_hw.interconnect._fabrics import Fabric, Ints, SwitchTree, WdmRing, require, whole_numbers
from optinc_hw.interconnect._links import Floats, LinkParameters, check_payload, phase_times, setup_time
from optinc_hw.interconnect._schedule import Phase, Schedule


@dataclass(frozen=True, eq=False)
class Job:
    """An all-reduce of one job on a fabric that others may use, too.

    Parameters
    ----------
    schedule
        What is done.
    payload_bytes
        Of one server's vector.
    places
        (nodes,) positions of its servers on the fabric, increasing on a ring; 0 .. N - 1 if ``None``.
    start_s
        When servers are ready: seconds, one for all or (nodes,).
    slowdown
        How many times longer servers take to send, receive and add, 1 or more: one for all or (nodes,).
    first_channel
        Integer from 0, added to the wavelengths or transceivers of the schedule.
    """

    schedule: Schedule
    payload_bytes: float
    places: Sequence[int] | None = None
    start_s: ArrayLike = 0.0
    slowdown: ArrayLike = 1.0
    first_channel: int = 0


@dataclass(frozen=True, eq=False)
class Simulation:
    """When a job's all-reduce is done.

    Parameters
    ----------
    finish_s
        When the last server holds the sum.
    node_finish_s
        (nodes,) when each server does.
    step_finish_s
        (steps,) when the last target of each step has what it receives.
    blocked_s
        Sum over all transfers of the time for which their nodes were ready but a channel, or the switches of an
        exclusive tree, were in use.
    """

    finish_s: float
    node_finish_s: Floats
    step_finish_s: Floats
    blocked_s: float


def simulate(
    schedule: Schedule, payload_bytes: float, links: LinkParameters | None = None, *, start_s: ArrayLike = 0.0,
    slowdown: ArrayLike = 1.0, overlap: bool = False, barrier: bool = False,
) -> Simulation:  # fmt: skip
    """Simulate one all-reduce that has its fabric to itself.

    A transfer begins when both of its nodes have done the steps before, its circuit is set up, and its channels are
    free on the whole way; it holds them until its last bit has arrived.

    Parameters
    ----------
    schedule, payload_bytes
        What is sent.
    links
        Rates and delays; the defaults of `LinkParameters` if ``None``.
    start_s, slowdown
        As in `Job`.
    overlap
        Whether a circuit is set up as soon as its channels are free, while its nodes may still be busy.
    barrier
        Whether a step begins only when all nodes have done the one before, as `step_time` assumes.

    Raises
    ------
    ScheduleError
        If an argument does not fit the schedule.
    """
    job = Job(schedule, payload_bytes, start_s=start_s, slowdown=slowdown)
    return simulate_jobs([job], links, overlap=overlap, barrier=barrier)[0]


def simulate_jobs(
    jobs: Sequence[Job], links: LinkParameters | None = None, *, overlap: bool = False, barrier: bool = False
) -> list[Simulation]:
    """Simulate all-reduces of several jobs that share a fabric.

    Whenever channels are free, the job whose next step can begin first takes those of the whole step.  The ring has
    as many nodes as the highest place needs.  Switches are shared by number; an exclusive tree serves one
    all-reduce after the other.

    Parameters
    ----------
    jobs
        Of one kind of fabric, with the same wavelengths, reach or transceivers.
    links, overlap, barrier
        As in `simulate`.

    Returns
    -------
    list of Simulation
        One for each job; times count from 0 for all.

    Raises
    ------
    ScheduleError
        If jobs do not fit one fabric, or an argument does not fit a schedule.
    """
    links = LinkParameters() if links is None else links
    if not jobs:
        return []
    places = [_places(job) for job in jobs]
    size = max(int(one.max()) + 1 for one in places)
    fabric = _shared_fabric(jobs)
    channels = channels_of(fabric, size, [job.schedule for job in jobs])
    running = [
        _Running(job, place, channels, links, overlap=overlap, barrier=barrier)
        for job, place in zip(jobs, places, strict=True)
    ]
    exclusive = isinstance(fabric, SwitchTree) and fabric.exclusive
    queue = [(one.next_start(), number) for number, one in enumerate(running)]
    heapq.heapify(queue)
    while queue:
        _, number = heapq.heappop(queue)
        one = running[number]
        if exclusive:
            one.run_whole()
        elif one.advance():
            heapq.heappush(queue, (one.next_start(), number))
    return [one.result() for one in running]


class _Running:
    """A job and the times at which its nodes are ready for their next step."""

    def __init__(
        self, job: Job, places: Ints, channels: Channels, links: LinkParameters, *, overlap: bool, barrier: bool
    ) -> None:
        schedule = job.schedule
        self._schedule = schedule
        self._payload = job.payload_bytes
        self._places = np.concatenate([places, channels.size + np.arange(schedule.switches)])
        self._first_channel = require(job.first_channel, 0, f"first_channel of {schedule.name}")
        self._channels = channels
        self._links = links
        self._overlap, self._barrier = overlap, barrier
        start = _each(job.start_s, schedule.nodes, "start_s", 0.0)
        self._ready = np.concatenate([start, np.zeros(schedule.switches)])
        self._heads = self._ready.copy()  # when the first bits of what a node passes on are there
        self._slow = np.concatenate([_each(job.slowdown, schedule.nodes, "slowdown", 1.0), np.ones(schedule.switches)])
        self._phase, self._index = 0, 0
        self._blocked = 0.0
        self._step_ends: list[float] = []
        self._enter()

    def next_start(self) -> float:
        """Return when the first transfer of the next step has its nodes ready."""
        return float(self._nodes_ready().min())

    def run_whole(self) -> None:
        """Do all steps with the switches to itself, after whoever had them before."""
        while self.advance():
            pass
        self._channels.engine = float(self._ready.max())

    def advance(self) -> bool:
        """Do the next step; return whether there are more."""
        phase = self._schedule.phases[self._phase]
        base = self._nodes_ready()
        if self._barrier and not phase.streamed:
            base = np.full_like(base, self._ready.max())
        pause = setup_time(self._schedule, self._links, changes=phase.reconfigures and self._index == 0)
        free = np.maximum(self._way.free(), self._channels.engine)
        self._blocked += float(np.maximum(free - base, 0.0).sum())
        start = np.maximum(base, free + pause) if self._overlap else np.maximum(base, free) + pause
        if self._barrier and not phase.streamed:
            start = np.full_like(start, start.max())
        self._receive(phase, start)
        self._index += 1
        if self._index == phase.steps:
            self._phase, self._index = self._phase + 1, 0
            if self._phase == len(self._schedule.phases):
                return False
            self._enter()
        return True

    def result(self) -> Simulation:
        """Return what was found."""
        ends = self._ready[: self._schedule.nodes]
        return Simulation(float(ends.max()), ends, np.array(self._step_ends), self._blocked)

    def _enter(self) -> None:
        """Work out what all steps of a phase have in common."""
        phase = self._schedule.phases[self._phase]
        circuits = phase.circuits
        self._way, circuits = self._channels.way(circuits, self._places, self._first_channel)
        sending, self._latency, adding = phase_times(
            self._schedule, Phase(phase.kind, circuits, phase.first, phase.count, phase.add), self._payload, self._links
        )
        source, target = phase.circuits.source, phase.circuits.target
        self._sending = sending * np.maximum(self._slow[source], self._slow[target])
        members = self._ready.size
        self._adding = np.bincount(target, weights=adding * self._slow[target], minlength=members)
        self._source, self._target = source, target

    def _nodes_ready(self) -> Floats:
        if self._schedule.phases[self._phase].streamed:
            heads: Floats = self._heads[self._source]
            return heads
        both: Floats = np.maximum(self._ready[self._source], self._ready[self._target])
        return both

    def _receive(self, phase: Phase, start: Floats) -> None:
        """Set the times at which nodes are ready after a step."""
        sent = start + self._sending
        if phase.streamed:
            sent = np.maximum(sent, self._ready[self._source])
        arrived = sent + self._latency
        self._way.occupy(arrived)
        if isinstance(self._schedule.fabric, SwitchTree):
            np.maximum.at(self._heads, self._target, start + self._latency)
        np.maximum.at(self._ready, self._source, sent)
        np.maximum.at(self._ready, self._target, arrived)
        self._ready += self._adding
        self._step_ends.append(float(self._ready[self._target].max()))


def _places(job: Job) -> Ints:
    check_payload(job.payload_bytes)
    nodes, name = job.schedule.nodes, job.schedule.name
    places = np.arange(nodes) if job.places is None else whole_numbers(job.places, f"places of {name}")
    if places.shape != (nodes,) or places.min() < 0 or np.unique(places).size != nodes:
        raise ScheduleError(f"places of {name} must be {nodes} different positions from 0, got {job.places!r}")
    if isinstance(job.schedule.fabric, WdmRing) and np.any(np.diff(places) < 0):
        raise ScheduleError(f"places of {name} on a ring must increase, got {job.places!r}; number servers along it")
    return places


def _shared_fabric(jobs: Sequence[Job]) -> Fabric:
    """Return the fabric of all jobs."""
    fabric = jobs[0].schedule.fabric
    for job in jobs[1:]:
        other = job.schedule.fabric
        same = type(other) is type(fabric) and (
            other.exclusive == fabric.exclusive
            if isinstance(fabric, SwitchTree) and isinstance(other, SwitchTree)
            else other == fabric
        )
        if not same:
            raise ScheduleError(f"jobs share one fabric, but one is for {fabric} and one for {other}; build them alike")
    return fabric


def _each(value: ArrayLike, nodes: int, name: str, low: float) -> Floats:
    """Return ``value`` as (nodes,) floats."""
    values: Floats = np.asarray(value, dtype=np.float64)
    if values.shape not in ((), (nodes,)) or not np.all((values >= low) & (values < math.inf)):
        raise ScheduleError(f"{name} must be one number or {nodes}, each {low:g} or more and finite, got {value!r}")
    return np.zeros(nodes) + values
