"""What no schedule may claim: ways shorter than they are, streams of what never came, trees that are none."""

import math
from dataclasses import replace

import numpy as np
import pytest
from _schedules import BUILDERS, changed, with_columns
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect import (
    Circuits,
    Crossbar,
    Cycle,
    Job,
    LinkParameters,
    Phase,
    Schedule,
    SwitchTree,
    WdmRing,
    binary_tree,
    check_schedule,
    halving_doubling,
    hierarchical_ring,
    in_switch,
    oddl,
    optinc,
    recursive_doubling,
    ring,
    simulate,
    simulate_jobs,
    step_time,
    wrht,
)

SOME = st.tuples(st.sampled_from(sorted(BUILDERS)), st.integers(2, 20), st.data())
BYTE_A_NANOSECOND = LinkParameters(
    rate_bps=8e9, reconfiguration_s=0.0, conversion_s=0.0, segment_s=0.0, reduce_Bps=math.inf
)  # fmt: skip


def refused(schedule, said):
    with pytest.raises(ScheduleError, match=said):
        check_schedule(schedule)


def edited(schedule, index, **columns):
    """Return the schedule with one value for all transfers of a step in the given columns."""

    def change(steps):
        size = steps[index].circuits.source.size
        steps[index] = with_columns(steps[index], **{name: np.full(size, value) for name, value in columns.items()})

    return changed(schedule, change)


def transfers(kind, links, first, count, *, add, streamed=False):
    """Return a phase of one step on a tree."""
    source, target = np.array(links, dtype=np.int64).T
    zeros, ones = np.zeros_like(source), np.ones_like(source)
    circuits = Circuits(source, target, zeros, zeros, ones, zeros)
    return Phase(kind, circuits, np.array(first), np.array(count), add, streamed=streamed)


@pytest.mark.parametrize("relays", [-1, -2, -1000, 136, 1000])
def test_light_is_regenerated_on_the_way_only(relays):
    """The longest way of the second level of WRHT passes 136 segments, so at most 135 nodes."""
    refused(edited(wrht(300, 64, reach=8), 1, relays=relays), "are to regenerate the light on [0-9]+ segments; give 0")


@settings(max_examples=100)
@given(SOME, st.sampled_from(["direction", "segments", "relays", "channel"]), st.integers(-(10**6), 10**6))
def test_no_other_way_than_the_fabric_has_is_accepted(some, column, value):
    """One column of one transfer changed: only another free channel, or relays without need, are as good as before."""
    name, nodes, data = some
    made = BUILDERS[name](nodes)
    index = data.draw(st.integers(0, made.step_count - 1))
    steps = list(made.steps)
    values = getattr(steps[index].circuits, column).copy()
    transfer = data.draw(st.integers(0, values.size - 1))
    assume(values[transfer] != value)
    values[transfer] = value
    steps[index] = with_columns(steps[index], **{column: values})
    mutant = Schedule.from_steps(made.name, made.nodes, made.chunks, made.fabric, steps)
    try:
        check_schedule(mutant)
    except ScheduleError:
        return
    way = steps[index].circuits
    if column == "relays":
        assert isinstance(made.fabric, WdmRing)
        assert 0 < value < way.segments[transfer]
    elif column == "channel":
        channels = made.fabric.wavelengths if isinstance(made.fabric, WdmRing) else made.fabric.transceivers
        assert 0 <= value < channels
    else:  # two nodes, or opposite ones: the other way round is as long
        assert column == "direction"
        assert 2 * way.segments[transfer] == nodes


@pytest.mark.parametrize("made", [ring(4, Crossbar()), oddl(4), in_switch(4), optinc(8, 4)])
def test_ways_off_a_ring_have_one_length(made):
    for columns in ({"segments": -1000, "relays": -5000}, {"segments": 0}, {"segments": 2}):
        refused(edited(made, 1, **columns), f"segments {columns['segments']} is a ring's")
    refused(edited(made, 0, relays=-1), "relays -1 is a ring's")
    refused(edited(made, 0, direction=1), "direction 1 is a ring's")


def test_trees_have_no_channels():
    refused(edited(in_switch(4), 0, channel=1), "channel 1 does not exist")


@pytest.mark.parametrize("made", [ring(4), oddl(4), in_switch(4)])
@pytest.mark.parametrize("column", ["source", "target", "channel", "direction", "segments", "relays"])
def test_columns_are_whole_numbers(made, column):
    """Half a wavelength apart is the same wavelength; of small integers the products overflow."""
    for kind in (np.float64, np.int8, np.uint64):

        def change(steps, kind=kind):
            values = getattr(steps[0].circuits, column).astype(kind)
            steps[0] = with_columns(steps[0], **{column: values})

        refused(changed(made, change), f"give one int64 a transfer.*at least one|{np.dtype(kind).name}")


def test_switches_stream_only_what_comes_in():
    """Both halves go up, then both come down streamed: that would be half the time that a server's link needs."""
    up, down = [(server, 4) for server in range(4)], [(4, server) for server in range(4)]
    parents = in_switch(4).fabric
    phases = [
        transfers(kind, links, [half] * 4, [1] * 4, add=kind == "up", streamed=streamed)
        for kind, links, half, streamed in (("up", up, 0, False), ("up", up, 1, True), ("down", down, 0, True),
                                            ("down", down, 1, True))
    ]  # fmt: skip
    made = Schedule("halves", 4, 2, parents, tuple(phases))
    assert step_time(made, 1e6, BYTE_A_NANOSECOND) < 1e-3 < simulate(made, 1e6, BYTE_A_NANOSECOND).finish_s
    refused(made, "step 1 .*from node 0 to node 4: only switches pass vectors on")
    half_way = replace(made, phases=(phases[0], replace(phases[1], streamed=False), *phases[2:]))
    refused(half_way, "step 2 .*from node 4 to node 0.*chunk 0 did not come in; make the step not streamed")
    after = replace(made, phases=(*half_way.phases[:2], replace(phases[2], streamed=False), phases[3]))
    refused(after, "step 3 .*chunk 1 did not come in")
    honest = replace(made, phases=(phases[0], phases[2], replace(phases[1], streamed=False), phases[3]))
    check_schedule(honest)
    expected = step_time(honest, 1e6, BYTE_A_NANOSECOND)
    assert expected == pytest.approx(1e-3, rel=1e-12)
    assert simulate(honest, 1e6, BYTE_A_NANOSECOND).finish_s == pytest.approx(expected, rel=1e-12)


def test_a_stream_uses_each_link_once():
    """Server 0 is one switch below node 3, server 1 two: two halves that come by turns would share the link upward."""
    tree = SwitchTree(np.array([3, 2, 3, 4, -1]), exclusive=False)
    rest = (
        transfers("up", [(2, 3)], [0], [1], add=True),
        transfers("down", [(3, 0), (3, 2)], [0, 0], [2, 2], add=False),
        transfers("down", [(2, 1)], [0], [2], add=False, streamed=True),
    )
    begin = (
        transfers("up", [(0, 3), (1, 2)], [0, 0], [2, 2], add=True),
        transfers("up", [(2, 3), (3, 4)], [1, 0], [1, 1], add=True, streamed=True),
    )
    again = transfers("up", [(3, 4)], [1], [1], add=True, streamed=True)
    refused(Schedule("stairs", 2, 2, tree, (*begin, again, *rest)), "step 2 .*node 3 to node 4: the link still carries")
    check_schedule(Schedule("stairs", 2, 2, tree, (*begin, replace(again, streamed=False), *rest)))


@settings(max_examples=80)
@given(st.sampled_from([in_switch, optinc]), st.integers(2, 40), st.integers(2, 6), st.data())
def test_streamed_or_not_is_proved(build, nodes, fan_in, data):
    """A step that begins anew is right and takes longer; the first cannot be streamed, nor one put in between."""
    made = build(nodes, fan_in)
    refused(changed(made, lambda steps: steps.__setitem__(0, replace(steps[0], streamed=True))), "only switches")
    index = data.draw(st.integers(1, made.step_count - 1))
    anew = changed(made, lambda steps: steps.__setitem__(index, replace(steps[index], streamed=False)))
    check_schedule(anew)
    assert step_time(anew, 1e6, BYTE_A_NANOSECOND) == pytest.approx(2e-3, rel=1e-12)

    def wait(steps):
        last = steps[-1]
        steps.append(replace(last, streamed=True))

    refused(changed(made, wait), "did not come in")


@pytest.mark.parametrize(
    ("parents", "said"),
    [
        ([4, 4, 5, 5, 5, 4], "end in the root's -1"),
        ([4, 4, 5, 5, 5, 4, -1], "node 5 of a tree of switches has the parent 4"),
        ([2, -1, -1], "node 1 .*the parent -1; number"),
        ([2, 2, -1, -1], "node 2 .*the parent -1"),
        ([2, 9, -1], "node 1 .*the parent 9; .*here 2 to 2"),
        ([0, 2, -1], "node 0 .*the parent 0"),
        ([-1], "two or more"),
        ([], "one row of integers"),
        ([2.0, 2.0, -1.0], "one row of integers"),
        ([[2, 2, -1]], "one row of integers"),
        ([[2], [2, -1]], "one row of integers"),
        (None, "one row of integers"),
    ],
)
def test_what_is_no_tree_is_refused(parents, said):
    with pytest.raises(ScheduleError, match=said):
        SwitchTree(parents, exclusive=False)


def test_trees_are_of_their_servers():
    made = in_switch(4)
    for parents in ([2, 2, -1], [1, 2, 3, 4, -1], [3, 3, 3, 4, -1]):
        with pytest.raises(ScheduleError, match="nodes 0 to 3 are servers; number switches from 4 upward"):
            replace(made, fabric=SwitchTree(parents, exclusive=False))
    check_schedule(replace(made, fabric=SwitchTree([4, 4, 4, 4, -1], exclusive=False)))


def test_a_tree_keeps_its_parents():
    parents = np.array([2, 2, -1])
    tree = SwitchTree(parents, exclusive=False)
    parents[0] = 0
    assert tree.parents.tolist() == [2, 2, -1]


@pytest.mark.parametrize("steps", [0, -3, 1.0, True])
def test_a_phase_has_steps(steps):
    with pytest.raises(ScheduleError, match="steps of the phase 'reduce-scatter' must be an integer of at least 1"):
        replace(ring(4).phases[0], steps=steps)


def test_a_phase_has_a_row_for_each_transfer():
    phase = ring(4).phases[0]
    short = np.ones(3, dtype=np.int64)
    for columns in (
        {"first": short}, {"count": short}, {"cycle": Cycle(short, phase.cycle.period, phase.cycle.shift)}
    ):  # fmt: skip
        with pytest.raises(ScheduleError, match="give one entry a transfer in each"):
            replace(phase, **columns)
    with pytest.raises(ScheduleError, match="periods of the phase"):
        replace(phase, cycle=replace(phase.cycle, period=0 * phase.cycle.period))


INTEGERS = {
    "ring": lambda n: ring(n(5)),
    "ring, one wavelength": lambda n: ring(n(5), WdmRing(n(1), n(2))),
    "binary tree": lambda n: binary_tree(n(200)),
    "recursive doubling": lambda n: recursive_doubling(n(200), WdmRing(n(2), reach=n(3))),
    "halving-doubling": lambda n: halving_doubling(n(9), Crossbar(n(2))),
    "H-ring": lambda n: hierarchical_ring(n(200), n(7)),
    "H-ring of the root": lambda n: hierarchical_ring(n(200), inter="slices"),
    "WRHT": lambda n: wrht(n(200), n(100), reach=n(100), group=n(130)),
    "WRHT, largest groups": lambda n: wrht(n(200), n(100)),
    "ODDL": lambda n: oddl(n(9), n(3)),
    "ODDL ring": lambda n: oddl(n(9), n(3), collective="ring"),
    "in-switch": lambda n: in_switch(n(200), n(130)),
    "OptINC": lambda n: optinc(n(9)),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array])
def test_integers_of_numpy_are_integers(name, kind):
    """Twice 200 is more than a uint8 holds."""
    ours, theirs = INTEGERS[name](kind), INTEGERS[name](int)
    assert type(ours.nodes) is int
    assert (ours.name, ours.nodes, ours.chunks, ours.channels_needed) == (
        theirs.name, theirs.nodes, theirs.chunks, theirs.channels_needed
    )  # fmt: skip
    check_schedule(ours)
    assert step_time(ours, 1e6) == step_time(theirs, 1e6)


@pytest.mark.parametrize("value", [True, np.True_, 8.0, np.float64(8), "8", None, np.array([8])])
def test_what_is_no_integer_is_none(value):
    for build in (
        ring, binary_tree, wrht, oddl, in_switch, WdmRing, Crossbar, lambda n: hierarchical_ring(9, n or 0.5),
        lambda n: simulate_jobs([Job(ring(2), 1.0, first_channel=n)]),
    ):  # fmt: skip
        with pytest.raises(ScheduleError, match="must be an integer of at least"):
            build(value)


@pytest.mark.parametrize("fabric", [64, None, in_switch(4).fabric, WdmRing])
def test_other_fabrics_are_named(fabric):
    for build in (ring, binary_tree, recursive_doubling, halving_doubling, lambda n, f: hierarchical_ring(n, 2, f)):
        with pytest.raises(ScheduleError, match="runs on a WdmRing or a Crossbar, got the fabric"):
            build(4, fabric)
    if not isinstance(fabric, SwitchTree):
        with pytest.raises(ScheduleError, match="must be a WdmRing, a Crossbar or a SwitchTree, got"):
            replace(ring(4), fabric=fabric)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"places": [0.2, 1.9]}, "places of ring must be one row of integers"),
        ({"places": np.array([0.0, 1.0])}, "places of ring must be one row of integers"),
        ({"places": [False, True]}, "places of ring must be one row of integers"),
        ({"places": 3}, "places of ring must be one row of integers"),
        ({"first_channel": 0.5}, "first_channel of ring must be an integer of at least 0, got 0.5"),
        ({"first_channel": -1}, "first_channel of ring must be an integer of at least 0, got -1"),
    ],
)
def test_places_and_channels_are_whole_numbers(job, said):
    with pytest.raises(ScheduleError, match=said):
        simulate_jobs([Job(ring(2), 1.0, **job)])


@pytest.mark.parametrize("some", [slice(1), slice(3)])
def test_a_step_has_a_range_for_each_transfer(some):
    step = next(ring(4).steps)
    with pytest.raises(ScheduleError, match="first and stop of the step 'reduce-scatter' have the shapes"):
        replace(step, stop=step.stop[some])
