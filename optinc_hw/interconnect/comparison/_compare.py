"""Schedules side by side on one training job, and whether any of them is worth it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect.comparison._energy import (
    Energy,
    EnergyParameters,
    OpticalPower,
    all_reduce_energy,
    optical_power,
)
from optinc_hw.interconnect.comparison._optics import MeshLoss, NetworkDesign
from optinc_hw.interconnect.comparison._payloads import Range, fastest_ranges
from optinc_hw.interconnect.comparison._systems import BASELINE, Network, System, build_systems
from optinc_hw.interconnect.comparison._training import Training, TrainingStep, training_step

SMALL_SHARE, SMALL_GAIN = 0.05, 0.01
_SMALLEST_BATCH, _LARGEST_BATCH = 1e-6, 1e12


@dataclass(frozen=True)
class Row:
    """A schedule in a comparison.

    Parameters
    ----------
    name, kind, known
        Of the system; what is not `known` is an ideal, and never the best.
    steps
        Steps of one all-reduce.
    lanes
        Links that a server uses at a time.
    traffic
        Most that one server sends, in vectors.
    all_reduce_s
        Time of one all-reduce of all gradients.
    step
        Of the training.
    speed_up
        Step of the baseline over this one.
    energy
        Of one all-reduce, all servers; ``None`` for optical networks that are ideals, or if no design was given.
    optics
        Of optical networks.
    batch_of_small_share
        Samples a server and step above which computing waits less than 5 % of the step; 0 if it never waits longer,
        ``inf`` if it still does with 10^12 samples.
    batch_of_small_gain
        Samples above which steps are less than 1 % shorter than the baseline's; 0 if they never are shorter by more,
        ``inf`` if they still are with 10^12 samples.
    """

    name: str
    kind: str
    known: bool
    steps: int
    lanes: int
    traffic: float
    all_reduce_s: float
    step: TrainingStep
    speed_up: float
    energy: Energy | None
    optics: OpticalPower | None
    batch_of_small_share: float
    batch_of_small_gain: float

    @property
    def all_reduce_J(self) -> float | None:  # noqa: N802 - joules
        """Energy of one all-reduce: what passes, and what is drawn meanwhile."""
        return None if self.energy is None else self.energy.of(self.all_reduce_s)

    @property
    def step_J(self) -> float | None:  # noqa: N802
        """Energy of communication in one step: what passes, and what is drawn during the whole step."""
        return None if self.energy is None else self.energy.of(self.step.total_s)


@dataclass(frozen=True)
class Comparison:
    """Schedules of N servers on one training job.

    Parameters
    ----------
    nodes
        Servers N.
    training
        The job.
    overlap
        Whether buckets are sent while the backward pass goes on.
    baseline
        What others are held against; also if it was not asked for as a row.
    rows
        One a schedule.
    ranges
        Which of them wins at which payload: of all, of those in which servers add, and of those on a WDM ring; ideals
        do not take part.
    """

    nodes: int
    training: Training
    overlap: bool
    baseline: Row
    rows: tuple[Row, ...]
    ranges: Mapping[str, tuple[Range, ...]]

    @property
    def best(self) -> Row:
        """The row of the shortest step whose network can be built, the first of equal ones; else the baseline."""
        built = (row for row in self.rows if row.known)
        return min(built, key=lambda row: row.step.total_s, default=self.baseline)

    @property
    def gain(self) -> float:
        """Part by which the best step is shorter than the baseline's; negative if it is longer."""
        return 1.0 - self.best.step.total_s / self.baseline.step.total_s

    @property
    def verdict(self) -> str:
        """Whether there is anything to gain, in a sentence or two."""
        share = self.baseline.step.share
        waits = f"computing waits for the {self.baseline.name} {_percent(share)} of the step"
        limit = f"no schedule can shorten it by more than {_percent(share)}"
        if not any(row.known for row in self.rows):
            names = ", ".join(row.name for row in self.rows)
            return f"There is nothing to choose: {waits}, and the optical networks of {names} are ideals."
        change = f"{'shortens' if self.gain >= 0.0 else 'lengthens'} it by {_percent(abs(self.gain))}"
        itself = self.best.name == self.baseline.name
        best = "no other is faster" if itself else f"the best, {self.best.name}, {change}"
        if share < SMALL_SHARE:
            return f"There is little to gain: {waits}, so {limit}; {best}."
        if self.gain < SMALL_GAIN:
            return f"Nothing is gained: {waits}, and {best}."
        batch = self.best.batch_of_small_gain
        above = f"above {batch:,.0f} {self.training.sample}s a server and step" if batch < math.inf else "at no batch"
        return (
            f"{self.best.name} shortens the step by {_percent(self.gain)}: {waits}, and {limit}. "
            f"Less than 1 % is gained {above}.{self._without_optics}"
        )

    @property
    def _without_optics(self) -> str:
        """What packet switches can do, where something else is the best."""
        packet = [row for row in self.rows if row.kind == "packet" and row.name != self.baseline.name]
        if self.best.kind == "packet" or not packet:
            return ""
        rival = min(packet, key=lambda row: row.step.total_s)
        left = 1.0 - self.best.step.total_s / rival.step.total_s
        return f" Packet switches alone come within {_percent(left)} of that: {rival.name}."


def compare(
    training: Training, nodes: int, network: Network | None = None, *, names: Iterable[str] | None = None,
    overlap: bool = False, design: NetworkDesign | None = None, energies: EnergyParameters | None = None,
    loss: MeshLoss | None = None,
) -> Comparison:  # fmt: skip
    """Compare schedules on a training job.

    Parameters
    ----------
    training
        Model, batch, bits, computing time.
    nodes
        Servers N, at least 2.
    network
        Rates and delays; the defaults of `Network` if ``None``.
    names
        Which of `system_names`; all if ``None``.
    overlap
        Whether buckets are sent while the backward pass goes on (`training_step`).
    design
        Optical network, for the energy of OptINC; none is counted if ``None``.  Its inputs are the network's
        ``fan_in``.
    energies, loss
        The defaults of `EnergyParameters` and `MeshLoss` if ``None``.

    Raises
    ------
    ComparisonError
        If a name is unknown, or the design does not fit the network or the job.
    ScheduleError
        If a schedule cannot be built on the network.
    """
    network = Network() if network is None else network
    if design is not None:
        _check_design(design, network, training)
    systems = build_systems(nodes, network, names)
    base = next((one for one in systems if one.name == BASELINE), None) or build_systems(nodes, network, [BASELINE])[0]
    parts = energies or EnergyParameters(), loss or MeshLoss(), design
    reference = remembered(base.time)

    def row(system: System) -> Row:
        return _row(system, training, reference, parts, overlap=overlap)

    rows = tuple(row(system) for system in systems)
    baseline = next((one for one in rows if one.name == BASELINE), None) or row(base)
    return Comparison(nodes, training, overlap, baseline, rows, _ranges([one for one in systems if one.known]))


def _check_design(design: NetworkDesign, network: Network, training: Training) -> None:
    if design.servers != network.fan_in:
        raise ComparisonError(
            f"{design.name} has {design.servers} inputs, but fan_in of the network is {network.fan_in}; "
            f"give Network(fan_in={design.servers})"
        )
    if design.bits < training.bits:
        raise ComparisonError(
            f"{design.name} carries codes of {design.bits} bits, but gradients of {training.name} have "
            f"{training.bits}; give a wider design, or None"
        )


def _ranges(systems: Sequence[System]) -> dict[str, tuple[Range, ...]]:
    groups = {
        "all": systems,
        "servers add": [one for one in systems if not one.adds_on_the_way],
        "WDM ring": [one for one in systems if one.kind == "WDM ring"],
    }
    return {name: fastest_ranges(group) for name, group in groups.items() if group}


_Parts = tuple[EnergyParameters, MeshLoss, NetworkDesign | None]


def _row(
    system: System, training: Training, reference: Callable[[float], float], parts: _Parts, *, overlap: bool
) -> Row:
    schedule, time = system.schedule, remembered(system.time)
    energy, optics = _energy(system, training.payload_bytes, parts)

    def step(batch: float, seconds: Callable[[float], float] = time) -> TrainingStep:
        return training_step(replace(training, batch=batch), seconds, overlap=overlap)

    def gain(batch: float) -> float:
        return 1.0 - step(batch).total_s / step(batch, reference).total_s

    here = step(training.batch)
    return Row(
        name=system.name,
        kind=system.kind,
        known=system.known,
        steps=schedule.step_count,
        lanes=system.lanes,
        traffic=float(schedule.traffic),
        all_reduce_s=time(training.payload_bytes),
        step=here,
        speed_up=step(training.batch, reference).total_s / here.total_s,
        energy=energy,
        optics=optics,
        batch_of_small_share=_last_batch(lambda batch: step(batch).share >= SMALL_SHARE),
        batch_of_small_gain=_last_batch(lambda batch: gain(batch) >= SMALL_GAIN),
    )


def _energy(system: System, payload_bytes: float, parts: _Parts) -> tuple[Energy | None, OpticalPower | None]:
    energies, loss, design = parts
    optics = None
    if system.kind == "OptINC":
        if design is None or not system.known:
            return None, None
        optics = optical_power(system.schedule, system.links.rate_bps, design, energies, loss)
    electrical = system.kind == "packet"
    return all_reduce_energy(system.schedule, payload_bytes, energies, optics, electrical=electrical), optics


def _last_batch(holds: Callable[[float], bool]) -> float:
    """Return up to which batch a condition holds that holds for small ones: 0 if for none, inf if for all."""
    low, high = _SMALLEST_BATCH, _LARGEST_BATCH
    if not holds(low):
        return 0.0
    if holds(high):
        return math.inf
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
        if high / low < 1.0 + 1e-9:
            break
    return low


def remembered(time: Callable[[float], float]) -> Callable[[float], float]:
    """Return a function that works each payload out once."""
    known: dict[float, float] = {}

    def look_up(payload_bytes: float) -> float:
        if payload_bytes not in known:
            known[payload_bytes] = time(payload_bytes)
        return known[payload_bytes]

    return look_up


def _percent(part: float) -> str:
    return f"{100.0 * part:.1f} %"
