"""Schedules of every kind for the tests, and what a schedule does by plain arithmetic."""

from dataclasses import replace

import numpy as np

from optinc_hw.interconnect import (
    Crossbar,
    Schedule,
    SwitchTree,
    WdmRing,
    binary_tree,
    halving_doubling,
    hierarchical_ring,
    in_switch,
    oddl,
    optinc,
    recursive_doubling,
    ring,
    wrht,
)

BUILDERS = {
    "ring": ring,
    "binary tree": binary_tree,
    "recursive doubling": recursive_doubling,
    "recursive doubling, rounds and relays": lambda n: recursive_doubling(n, WdmRing(2, reach=3)),
    "recursive doubling, crossbar": lambda n: recursive_doubling(n, Crossbar()),
    "halving-doubling": halving_doubling,
    "halving-doubling, crossbar": lambda n: halving_doubling(n, Crossbar()),
    "WRHT": wrht,
    "WRHT, 4 wavelengths": lambda n: wrht(n, 4),
    "WRHT, 1 wavelength": lambda n: wrht(n, 1),
    "WRHT, reach 8": lambda n: wrht(n, 64, reach=8),
    "WRHT, groups of 2": lambda n: wrht(n, 64, group=2),
    "ODDL": oddl,
    "ODDL, one transceiver": lambda n: oddl(n, 1),
    "in-switch": in_switch,
    "in-switch, 3 ports": lambda n: in_switch(n, 3),
    "OptINC": optinc,
    "OptINC cascade": lambda n: optinc(n, 4),
    "ODDL ring": lambda n: oddl(n, collective="ring"),
    "H-ring": hierarchical_ring,
    "H-ring of 5": lambda n: hierarchical_ring(n, min(5, n)),
    "H-ring, 1 wavelength": lambda n: hierarchical_ring(n, min(4, n), WdmRing(1)),
    "H-ring, crossbar": lambda n: hierarchical_ring(n, min(3, n), Crossbar()),
    "H-ring slices": lambda n: hierarchical_ring(n, min(5, n), inter="slices"),
    "H-ring slices, 1 wavelength": lambda n: hierarchical_ring(n, min(5, n), WdmRing(1), inter="slices"),
    "H-ring slices, crossbar": lambda n: hierarchical_ring(n, min(7, n), Crossbar(), inter="slices"),
}


def changed(schedule, change):
    """Return the schedule with its list of single steps changed by a function of it."""
    steps = list(schedule.steps)
    change(steps)
    return Schedule.from_steps(schedule.name, schedule.nodes, schedule.chunks, schedule.fabric, steps)


def with_columns(step, **columns):
    """Return a step with other circuits."""
    return replace(step, circuits=replace(step.circuits, **columns))


def taken(step, which):
    """Return a step with some of its transfers."""
    which = np.asarray(which, dtype=np.int64)
    return replace(step, circuits=step.circuits.take(which), first=step.first[which], stop=step.stop[which])


def sums(schedule, vectors):
    """Carry a schedule out on integers (nodes, chunks), one transfer after the other; what servers hold at the end."""
    held = [list(map(int, row)) for row in vectors] + [[0] * schedule.chunks for _ in range(schedule.switches)]
    for step in schedule.steps:
        before = [row[:] for row in held]
        circuits = step.circuits
        for source, target, first, stop in zip(circuits.source, circuits.target, step.first, step.stop, strict=True):
            for chunk in range(first, stop):
                held[target][chunk] = before[source][chunk] + (held[target][chunk] if step.add else 0)
    return np.array(held[: schedule.nodes])


def channels_in_use(schedule, step):
    """List every channel that a step uses: (segment, direction, wavelength), (end, node, transceiver), or link."""
    used = []
    circuits = step.circuits
    for source, target, channel, direction, segments, _ in zip(*circuits.columns, strict=True):
        if isinstance(schedule.fabric, SwitchTree):
            used.append((source, target))
        elif isinstance(schedule.fabric, Crossbar):
            used += [("from", source, channel), ("to", target, channel)]
        else:
            at = source
            for _ in range(segments):
                following = (at + direction) % schedule.nodes
                used.append((at if direction > 0 else following, direction, channel))
                at = following
            assert at == target
    return used
