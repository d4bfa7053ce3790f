"""Schedules against arithmetic, the published step counts, and the checker for any number of servers."""

from fractions import Fraction

import numpy as np
import pytest
from _schedules import BUILDERS, channels_in_use, sums
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect import (
    Crossbar,
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
    wrht,
)

WRHT_STEPS = {
    64: (4, 3, 2, 2),
    256: (5, 3, 3, 2),
    1024: (7, 4, 3, 3),
    4096: (8, 5, 4, 3),
}
"""Facts on WRHT, table of section 4.2: steps for 4, 16, 64 and 256 wavelengths."""


@pytest.mark.parametrize("nodes", WRHT_STEPS)
@pytest.mark.parametrize(("column", "wavelengths"), list(enumerate((4, 16, 64, 256))))
def test_wrht_takes_the_published_steps(nodes, column, wavelengths):
    made = wrht(nodes, wavelengths)
    assert made.step_count == WRHT_STEPS[nodes][column]
    check_schedule(made)


def test_baselines_take_the_published_steps_at_1024_nodes():
    assert ring(1024).step_count == 2046
    assert hierarchical_ring(1024, 5).step_count == 417  # 2 (m^2 + N) / m - 3 = 416.6, of whole groups 417
    assert hierarchical_ring(1024, 5, inter="slices").step_count == 416
    assert binary_tree(1024).step_count == 20
    assert recursive_doubling(1024, WdmRing(1024)).step_count == 10
    assert recursive_doubling(1024, Crossbar()).step_count == 10


def test_wavelengths_and_rounds_of_recursive_doubling():
    """Pairs at distance d cross on d wavelengths; at N / 2 they go both ways round on N / 4."""
    made = recursive_doubling(64, WdmRing(16))
    assert made.channels_needed == 16
    assert made.step_count == 6
    rounds = recursive_doubling(64, WdmRing(4))  # distances 1, 2, 4 in one round, 8 in 2, 16 in 4, 32 in 4
    assert rounds.channels_needed == 16
    assert rounds.step_count == 3 + 2 + 4 + 4


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_normalised_traffic(nodes):
    """OptINC, figure 6: 1.5, 1.75, 1.875 of a ring against 1."""
    expected = Fraction(2 * (nodes - 1), nodes)
    assert ring(nodes).traffic == expected
    assert halving_doubling(nodes).traffic == expected
    assert oddl(nodes).traffic == expected
    assert hierarchical_ring(nodes, 2, inter="slices").traffic == expected
    assert optinc(nodes).traffic == optinc(nodes, 4).traffic == in_switch(nodes).traffic == 1


@pytest.mark.parametrize("nodes", range(2, 41))
def test_wrht_exchange_meets_the_bound_of_wavelengths(nodes):
    """All to all on a ring in one step: ceil(floor(k^2 / 4) / 2) wavelengths of each direction, and not one less."""
    bound = -(-(nodes**2 // 4) // 2)
    made = wrht(nodes, max(bound, nodes // 2))
    assert [phase.kind for phase in made.phases] == ["exchange"]
    assert made.channels_needed == bound
    assert made.phases[0].circuits.segments.max() == nodes // 2  # every way is a shortest one
    check_schedule(made)
    if bound - 1 >= nodes // 2:
        assert [phase.kind for phase in wrht(nodes, bound - 1).phases] == ["collect", "distribute"]


def test_wrht_reuses_wavelengths_in_all_groups_and_relays_long_ways():
    made = wrht(1000, 64, reach=8)
    assert made.facts[0].channels == 8  # groups of 2 * 8 + 1
    first, second = (phase.circuits for phase in made.phases[:2])
    assert first.segments.max() == 8
    assert first.source.size == 1000 - 59
    assert first.relays.max() == 0
    # Middles are 17 apart, so that the next level spans 8 * 17 segments: 17 hops of 8.
    assert second.segments.max() == 136
    assert second.relays.max() == 16


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("nodes", [*range(2, 14), 16, 17, 25])
def test_schedules_sum_integers_and_use_no_channel_twice(name, nodes):
    made = BUILDERS[name](nodes)
    vectors = np.random.default_rng(nodes).integers(-(2**40), 2**40, size=(nodes, made.chunks))
    assert np.array_equal(sums(made, vectors), np.tile(vectors.sum(axis=0), (nodes, 1)))
    for step in made.steps:
        used = channels_in_use(made, step)
        assert len(set(used)) == len(used)
    check_schedule(made)


@pytest.mark.parametrize("name", BUILDERS)
def test_every_number_of_servers_up_to_300_is_proved(name):
    for nodes in range(2, 301):
        check_schedule(BUILDERS[name](nodes))


@settings(max_examples=25)
@given(nodes=st.integers(2, 300), wavelengths=st.integers(1, 70), data=st.data())
def test_any_wrht(nodes, wavelengths, data):
    reach = data.draw(st.none() | st.integers(1, 40))
    group = data.draw(st.none() | st.integers(2, 2 * wavelengths + 1))
    made = wrht(nodes, wavelengths, reach=reach, group=group)
    check_schedule(made)
    assert made.channels_needed <= wavelengths
    if reach is not None:
        ways = [phase.circuits for phase in made.phases]
        assert all(np.all(reach * (way.relays + 1) >= way.segments) for way in ways)


@settings(max_examples=25)
@given(nodes=st.integers(2, 300), channels=st.integers(1, 20), crossed=st.booleans(), data=st.data())
def test_any_hierarchical_ring(nodes, channels, crossed, data):
    group = data.draw(st.integers(1, min(nodes, 20)))
    inter = data.draw(st.sampled_from(["leaders", "slices"]))
    made = hierarchical_ring(nodes, group, Crossbar(channels) if crossed else WdmRing(channels), inter=inter)
    check_schedule(made)
    if inter == "slices" and nodes % group == 0:
        assert made.traffic == Fraction(2 * (nodes - 1), nodes)


@settings(max_examples=25)
@given(nodes=st.integers(2, 300), wavelengths=st.integers(1, 100), reach=st.none() | st.integers(1, 50))
def test_any_doubling(nodes, wavelengths, reach):
    for build in (recursive_doubling, halving_doubling):
        made = build(nodes, WdmRing(wavelengths, reach))
        check_schedule(made)
        whole = 1 << (nodes.bit_length() - 1)
        assert made.channels_needed == max(1, whole // 4)
        assert made.step_count >= build(nodes, Crossbar()).step_count


@settings(max_examples=25)
@given(nodes=st.integers(2, 300), fan_in=st.integers(2, 300))
def test_any_tree(nodes, fan_in):
    for build in (in_switch, optinc):
        made = build(nodes, fan_in)
        check_schedule(made)
        assert isinstance(made.fabric, SwitchTree)
        assert np.bincount(made.fabric.parents[:-1]).max() <= fan_in
        levels = next(level for level in range(1, 10) if fan_in**level >= nodes)
        assert made.step_count == 2 * levels


def test_sixteen_servers_cascade_through_five_networks():
    """OptINC, section on cascades."""
    made = optinc(16, 4)
    assert made.switches == 5
    assert made.step_count == 4
    assert made.fabric.exclusive
    assert not in_switch(16).fabric.exclusive


def test_oddl_alternates_transceivers_and_keeps_circuits_of_a_ring():
    made = oddl(16)
    assert made.fabric == Crossbar(2, carved=True)
    assert [int(step.circuits.channel[0]) for step in made.steps] == [0, 1, 0, 1, 1, 0, 1, 0]
    assert [step.reconfigures for step in made.steps] == [True] * 4 + [False] + [True] * 3
    assert [phase.reconfigures for phase in oddl(16, collective="ring").phases] == [True, False]


def test_phases_tell_the_steps_without_making_them():
    made = ring(4096)
    assert [facts.steps for facts in made.facts] == [4095, 4095]
    assert [facts.share for facts in made.facts] == [Fraction(1, 4096)] * 2
    assert [facts.reduced for facts in made.facts] == [Fraction(1, 4096), 0]
    last = made.phases[1].step(4094)
    assert last.first[0] == (0 + 1 - 4094) % 4096


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: ring(1), "at least 2, got 1"),
        (lambda: wrht(2.0), "integer"),
        (lambda: wrht(True), "integer"),
        (lambda: wrht(10, 0), "wavelengths of a ring"),
        (lambda: wrht(10, 2, group=6), "take groups of at most 5"),
        (lambda: wrht(10, 2, reach=0), "reach"),
        (lambda: hierarchical_ring(4, 5), "take at most 4"),
        (lambda: hierarchical_ring(4, inter="both"), "'leaders' or 'slices'"),
        (lambda: oddl(4, collective="tree"), "'ring' or 'halving-doubling'"),
        (lambda: oddl(4, 0), "transceivers"),
        (lambda: optinc(4, 1), "inputs of a switch"),
        (lambda: in_switch(0), "servers of in-switch"),
    ],
)
def test_schedules_that_cannot_be_are_refused(build, said):
    with pytest.raises(ScheduleError, match=said):
        build()
