"""Broken schedules are caught, and the message names what is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from _schedules import BUILDERS, changed, channels_in_use, sums, taken, with_columns
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optinc_hw.errors import OptincError, ScheduleError
from optinc_hw.interconnect import (
    Crossbar,
    WdmRing,
    binary_tree,
    check_schedule,
    hierarchical_ring,
    in_switch,
    oddl,
    optinc,
    recursive_doubling,
    ring,
    wrht,
)

SOME = st.tuples(st.sampled_from(sorted(BUILDERS)), st.integers(2, 20), st.data())


def refused(schedule, said=None):
    with pytest.raises(ScheduleError, match=said) as caught:
        check_schedule(schedule)
    assert isinstance(caught.value, OptincError)
    return str(caught.value)


def edited(index, edit):
    def change(steps):
        steps[index] = edit(steps[index])

    return change


def column(step, name, transfer, value):
    values = getattr(step.circuits, name).copy()
    values[transfer] = value
    return with_columns(step, **{name: values})


def needed(schedule, index):
    """Let pass a step without which the sum is not right.

    H-ring's leaders send the result to members that gathered their group's sum for nothing.
    """
    kinds = [step.kind for step in schedule.steps]
    assume(kinds[index] != "all-gather in groups" or "broadcast in groups" not in kinds)
    return index


@settings(max_examples=120)
@given(SOME)
def test_a_dropped_transfer_is_caught(some):
    name, nodes, data = some
    made = BUILDERS[name](nodes)
    index = needed(made, data.draw(st.integers(0, made.step_count - 1)))

    def change(steps):
        size = steps[index].circuits.source.size
        dropped = data.draw(st.integers(0, size - 1))
        if size == 1:
            del steps[index]
        else:
            steps[index] = taken(steps[index], np.delete(np.arange(size), dropped))

    refused(changed(made, change))


@settings(max_examples=60)
@given(SOME)
def test_a_step_that_adds_twice_is_caught(some):
    name, nodes, data = some
    made = BUILDERS[name](nodes)
    adds = [index for index, step in enumerate(made.steps) if step.add]
    index = data.draw(st.sampled_from(adds))

    def change(steps):
        steps[index : index + 1] = [replace(steps[index], streamed=False)] * 2

    refused(changed(made, change), "added twice")


@settings(max_examples=150)
@given(SOME)
def test_what_passes_with_another_target_or_source_sums_right(some):
    """Some such schedules are right, a node folded into another one say: arithmetic must agree."""
    name, nodes, data = some
    made = BUILDERS[name](nodes)
    index = data.draw(st.integers(0, made.step_count - 1))
    step = list(made.steps)[index]
    transfer = data.draw(st.integers(0, step.circuits.source.size - 1))
    end = data.draw(st.sampled_from(["source", "target"]))
    other = data.draw(st.integers(0, made.nodes + made.switches - 1))
    mutant = changed(made, edited(index, lambda one: column(one, end, transfer, other)))
    try:
        check_schedule(mutant)
    except ScheduleError:
        return
    vectors = np.random.default_rng(nodes).integers(-(2**40), 2**40, size=(nodes, made.chunks))
    assert np.array_equal(sums(mutant, vectors), np.tile(vectors.sum(axis=0), (nodes, 1)))
    for one in mutant.steps:
        used = channels_in_use(mutant, one)
        assert len(set(used)) == len(used)


@settings(max_examples=60)
@given(SOME)
def test_a_wrong_chunk_is_caught(some):
    name, nodes, data = some
    made = BUILDERS[name](nodes)
    index = needed(made, data.draw(st.integers(0, made.step_count - 1)))

    def later(step):
        first, stop = step.first.copy(), step.stop.copy()
        first[0] += 1
        stop[0] += 1
        return replace(step, first=first, stop=stop)

    refused(changed(made, edited(index, later)))


@pytest.mark.parametrize("name", BUILDERS)
def test_missing_distribution_is_caught(name):
    made = BUILDERS[name](11)
    message = refused(changed(made, lambda steps: steps.pop()), "after the last step node")
    assert "lacks the contribution" in message


@pytest.mark.parametrize("build", [ring, lambda n: wrht(n, 4), recursive_doubling, oddl, binary_tree])
def test_adding_in_place_of_keeping_is_caught_and_the_reverse(build):
    made = build(8)
    for index, step in enumerate(made.steps):
        change = edited(index, lambda one: replace(one, add=not one.add))
        refused(changed(made, change), "twice" if not step.add else "twice|lacks")


def test_a_wavelength_used_twice_is_named_with_its_segment():
    made = wrht(9, 4)  # one group: nodes 0 to 3 send up to node 4 on wavelengths 3 to 0
    message = refused(changed(made, edited(0, lambda step: column(step, "channel", 0, 2))), "used twice")
    assert "WRHT of 9 servers, step 0" in message
    assert "transfer 0 from node 0 to node 4" in message
    assert "wavelength 2 is used twice on segment 1 upward, also by transfer 1 from node 1" in message


@pytest.mark.parametrize("nodes", [3, 4, 9, 24, 25])
def test_any_two_transfers_of_an_exchange_that_cross_are_caught(nodes):
    made = wrht(nodes, 100)
    step = next(made.steps)
    circuits = step.circuits
    for transfer in range(0, circuits.source.size, 7):
        alike = circuits.direction == circuits.direction[transfer]
        same = np.flatnonzero(alike & (circuits.channel != circuits.channel[transfer]))
        if not same.size:
            continue
        # Every wavelength below the last is in use all round, so any move onto one clashes.
        other = int(circuits.channel[same].min())
        refused(changed(made, edited(0, lambda one, t=transfer, c=other: column(one, "channel", t, c))), "used twice")


def test_wraps_round_the_ring_are_seen():
    made = ring(6)
    message = refused(
        changed(made, edited(0, lambda step: with_columns(
            step, target=(step.circuits.source + 2) % 6, segments=np.full(6, 2)))), "used twice"
    )  # fmt: skip
    assert "upward" in message


def test_wavelengths_and_transceivers_that_do_not_exist():
    refused(changed(ring(4), edited(0, lambda step: column(step, "channel", 2, 64))), "wavelength 64 does not exist")
    refused(changed(oddl(4), edited(0, lambda step: column(step, "channel", 2, 2))), "transceiver 2 does not exist")
    refused(changed(oddl(4), edited(0, lambda step: column(step, "channel", 2, -1))), "transceiver -1 does not exist")


def test_a_port_used_twice_is_named():
    made = hierarchical_ring(9, 3, Crossbar(2))
    index = [step.kind for step in made.steps].index("broadcast in groups")
    message = refused(changed(made, edited(index, lambda step: column(step, "channel", 1, 0))), "used twice")
    assert "transmitter 0 of node 1 is used twice" in message
    both = changed(ring(4, Crossbar()), edited(0, lambda step: column(step, "target", 0, 2)))
    assert "receiver 0 of node 2 is used twice" in refused(both, "used twice")


def test_switches_send_only_what_they_hold():
    made = in_switch(4)
    refused(changed(made, lambda steps: steps.reverse()), "holds nothing of chunk 0 yet")
    early = changed(optinc(16, 4), lambda steps: steps.insert(0, steps.pop(1)))
    assert "transfer 0 from node 16 to node 20" in refused(early, "holds nothing")


def test_trees_have_links_used_once():
    made = optinc(16, 4)
    refused(changed(made, edited(0, lambda step: column(step, "target", 3, 17))), "no link between them")
    refused(changed(made, edited(0, lambda step: taken(step, [*range(16), 5]))), "link is used twice")


def test_hops_beyond_the_reach_are_named():
    made = wrht(300, 64, reach=8)
    message = refused(
        changed(made, edited(1, lambda step: with_columns(step, relays=0 * step.circuits.relays))), "exceeds the reach"
    )
    assert "hop of 136 segments exceeds the reach of 8; regenerate the light in 16 nodes" in message
    short = recursive_doubling(64)
    check_schedule(short)
    refused(replace(short, fabric=WdmRing(64, reach=15)), "hop of 16 segments exceeds the reach of 15")


def test_circuits_change_only_announced():
    made = wrht(100, 4)
    for index in range(made.step_count):
        refused(changed(made, edited(index, lambda step: replace(step, reconfigures=False))), "set reconfigures")


def test_malformed_steps():
    made = ring(5)
    refused(changed(made, edited(1, lambda step: column(step, "source", 0, 1))), "way is 0 segments|sends to itself")
    refused(changed(made, edited(1, lambda step: column(step, "target", 0, 5))), "there is no node 5")
    refused(changed(made, edited(1, lambda step: column(step, "segments", 0, 2))), "the way is 1 segments, not 2")
    refused(changed(made, edited(1, lambda step: column(step, "direction", 0, 0))), "direction 0")
    refused(changed(made, edited(1, lambda step: taken(step, []))), "at least one transfer")
    refused(changed(made, edited(1, lambda step: replace(step, streamed=True))), "only switches")
    refused(changed(made, edited(1, lambda step: with_columns(step, relays=np.zeros(2, dtype=np.int64)))), "shapes")
    refused(changed(made, edited(1, lambda step: replace(step, stop=step.first))), "no part of 5")
    refused(changed(made, edited(1, lambda step: replace(step, first=step.first - 9))), "no part of 5")
    twice = changed(in_switch(3), lambda steps: steps.append(replace(
        taken(steps[0], [0, 1]), add=False, streamed=False)))  # fmt: skip
    refused(twice, "chunk 0 of the target is replaced twice")
    refused(replace(made, phases=()), "lacks the contribution of 4 servers")
