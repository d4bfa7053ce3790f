"""Schedules side by side: hand calculations, ranges of payload, verdicts, pictures."""

import math
from dataclasses import replace
from itertools import pairwise

import matplotlib as mpl
import pytest

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect import LinkParameters, ring, wrht
from optinc_hw.interconnect.comparison import (
    Network,
    NetworkDesign,
    System,
    Training,
    build_systems,
    compare,
    crossover,
    fastest_ranges,
    find_workload,
    plot_energy,
    plot_shares,
    plot_times,
    plot_winners,
    system_names,
    training_step,
)

BARE = Network(
    rate_bps=8e9,
    message_s=0.0,
    switch_s=0.0,
    reconfiguration_s=0.0,
    tuning_s=0.0,
    control_s=0.0,
    reduce_Bps=math.inf,
)
DESIGN = NetworkDesign("small", 4, 16, (8, 8, 8), frozenset({1, 2}), 100)


def job(batch=1.0, **changes):
    values = {"name": "net", "parameters": 1_000_000, "batch": batch, "sample_s": 1e-3, "bits": 16, "sample": "token"}
    return Training(**values | changes)


def rows(comparison):
    return {row.name: row for row in comparison.rows}


def test_a_table_by_hand():
    """2 MB at 1 byte a ns: 2 ms through OptINC, 3 ms round a ring of 4, besides 1 ms of computing."""
    found = rows(compare(job(), 4, BARE, names=("ring", "optinc", "wrht", "wdm-tree")))
    assert list(found) == ["ring", "optinc", "wrht", "wdm-tree"]
    assert found["ring"].all_reduce_s == pytest.approx(3e-3, rel=1e-3)
    assert found["optinc"].all_reduce_s == pytest.approx(2e-3, rel=1e-3)
    assert found["ring"].step.share == pytest.approx(3 / 4, rel=1e-3)
    assert found["optinc"].speed_up == pytest.approx(4 / 3, rel=1e-3)
    assert [found[name].steps for name in found] == [6, 2, 1, 4]
    assert [found[name].lanes for name in found] == [1, 1, 3, 1]  # in WRHT's exchange each of 4 hears 3 others
    assert found["ring"].traffic == 1.5
    # Waiting is 5 % of the step where computing takes 19 times as long.
    assert found["ring"].batch_of_small_share == pytest.approx(57, rel=1e-3)
    # 1 ms less of 3 ms + batch ms is 1 % at 97.
    assert found["optinc"].batch_of_small_gain == pytest.approx(97, rel=2e-3)
    assert found["wdm-tree"].batch_of_small_gain == 0.0


def test_bandwidth_of_a_server_is_shared_by_its_links():
    network = replace(BARE, rated="server")
    found = {system.name: system for system in build_systems(4, network)}
    assert found["wrht"].links.rate_bps == pytest.approx(8e9 / 3)
    assert found["ring"].links.rate_bps == 8e9


def test_every_system_is_built_and_moves_its_payload():
    systems = build_systems(64)
    assert tuple(system.name for system in systems) == system_names()
    for system in systems:
        least = 8 * 1e6 / Network().rate_bps
        assert system.time(1e6) >= least, system.name
    assert "optinc-cascade" not in {system.name for system in build_systems(4)}


def test_unknown_and_empty_choices_are_refused():
    with pytest.raises(ComparisonError, match=r"'rings'; there are ring, tree"):
        build_systems(8, names=("rings",))
    with pytest.raises(ComparisonError, match="no schedule is left of optinc-cascade for 4"):
        build_systems(4, names=("optinc-cascade",))


def published(schedule):
    return System(schedule.name, "WDM ring", schedule, LinkParameters.wrht())


def test_a_ring_overtakes_wrht_where_the_formula_says():
    for nodes, wavelengths, theta in ((1024, 64, 3), (256, 16, 3)):
        formula = 25e-6 * (2 * (nodes - 1) - theta) / (theta - 2 * (nodes - 1) / nodes) * 40e9 / 8
        found = crossover(published(wrht(nodes, wavelengths)), published(ring(nodes)))
        assert found == pytest.approx(formula, rel=1e-6)
    assert crossover(published(ring(8)), published(ring(8))) is None


def test_ranges_agree_with_trying_every_schedule():
    systems = build_systems(100, names=[name for name in system_names() if name.startswith("wdm") or name == "wrht"])
    ranges = fastest_ranges(systems)
    assert len(ranges) > 1
    assert (ranges[0].low_bytes, ranges[-1].high_bytes) == (1e3, 1e11)
    for one, following in pairwise(ranges):
        assert one.high_bytes == following.low_bytes
    for one in ranges:
        payload = math.sqrt(one.low_bytes * one.high_bytes)
        times = {system.name: system.time(payload) for system in systems}
        assert times[one.name] <= min(times.values()) * (1 + 1e-6), one


@pytest.mark.parametrize("names", [("halving", "oddl"), ("oddl", "halving")])
def test_the_first_wins_where_times_are_equal_but_for_rounding(names):
    """Four messages of 2.65 us through switches take as long as 2.5 us for circuits and four of 2.025 us."""
    systems = build_systems(4, Network(rate_bps=100e9), names)
    assert systems[0].time(1e6) == pytest.approx(systems[1].time(1e6), rel=1e-12)
    assert [one.name for one in fastest_ranges(systems)] == [systems[0].name]


def test_three_lines_between_two_points_of_the_grid():
    """A third line may be the lowest in between only; here from 2 to 4 kB."""

    class Line:
        def __init__(self, name, offset, slope):
            self.name, self.time = name, lambda payload: offset + slope * payload / 1e3

    lines = [Line("steep", 1.0, 3.0), Line("middle", 5.0, 1.0), Line("flat", 9.0, 0.0)]
    found = fastest_ranges(lines, 1e3, 1e4)
    assert [one.name for one in found] == ["steep", "middle", "flat"]
    assert [one.low_bytes for one in found] == pytest.approx([1e3, 2e3, 4e3])


@pytest.mark.parametrize(
    ("batch", "phrase"), [(1.0, "optinc shortens the step by 25.0 %"), (1e4, "There is little to gain")]
)
def test_the_verdict_says_whether_it_is_worth_it(batch, phrase):
    compared = compare(job(batch), 4, BARE, names=("ring", "optinc"))
    assert phrase in compared.verdict
    assert f"computing waits for the ring {100 * compared.baseline.step.share:.1f} % of the step" in compared.verdict
    assert compared.gain <= compared.baseline.step.share


def test_the_verdict_says_how_much_longer_the_best_takes():
    """A tree of 4 takes 4 x 2 ms, a ring 3 ms: 5 ms more, of 4 ms or of 1.003 s."""
    longer = compare(job(), 4, BARE, names=("wdm-tree",))
    assert longer.gain == pytest.approx(-5 / 4, rel=1e-3)
    assert longer.verdict.startswith("Nothing is gained")
    assert longer.verdict.endswith("and the best, wdm-tree, lengthens it by 125.0 %.")
    little = compare(job(1000.0), 4, BARE, names=("wdm-tree",))
    assert little.verdict.startswith("There is little to gain")
    assert little.verdict.endswith("the best, wdm-tree, lengthens it by 0.5 %.")


def test_the_baseline_may_be_the_best():
    compared = compare(job(), 4, BARE, names=("wdm-tree", "ring"))
    assert compared.best.name == "ring"
    assert compared.verdict.endswith("and no other is faster.")


def test_where_computing_takes_no_time_every_batch_waits():
    compared = compare(job(sample_s=1e-18), 4, BARE, names=("ring", "optinc"))
    ring, optinc = compared.rows
    assert (ring.batch_of_small_share, ring.batch_of_small_gain) == (math.inf, 0.0)
    assert (optinc.batch_of_small_share, optinc.batch_of_small_gain) == (math.inf, math.inf)
    assert "Less than 1 % is gained at no batch." in compared.verdict


@pytest.mark.parametrize("overlap", [False, True])
def test_gain_and_share_fall_with_the_batch(overlap):
    """So that one batch divides those that are worth it from the others."""
    training = Training.of(find_workload("resnet50"), 1.0)
    batches = [2.0**power for power in range(-8, 16)]
    base, *others = build_systems(64, names=("ring", "halving", "switch", "wdm-slices", "wrht", "oddl"))
    for system in others:
        ours, rings = (
            [training_step(replace(training, batch=batch), one.time, overlap=overlap) for batch in batches]
            for one in (system, base)
        )
        gains = [max(0.0, 1.0 - one.total_s / ring.total_s) for one, ring in zip(ours, rings, strict=True)]
        assert all(one >= other - 1e-12 for one, other in pairwise(gains)), system.name
        assert all(one.share >= other.share - 1e-12 for one, other in pairwise(ours)), system.name


def test_the_verdict_names_what_packet_switches_can_do():
    compared = compare(job(), 4, Network(), names=("ring", "switch", "optinc"))
    assert "Packet switches alone come within 0.1 % of that: switch." in compared.verdict
    assert compare(job(), 4, BARE, names=("wdm-tree",)).baseline.name == "ring"
    assert "Nothing is gained" in compare(job(), 4, BARE, names=("ring", "wdm-tree")).verdict


def test_overlap_hides_what_the_backward_pass_is_long_enough_for():
    plain, hidden = (
        rows(compare(job(100.0, bucket_bytes=4e5), 8, names=("ring",), overlap=overlap))["ring"]
        for overlap in (False, True)
    )
    assert hidden.step.total_s < plain.step.total_s
    assert hidden.batch_of_small_share < plain.batch_of_small_share
    assert hidden.step.exposed_s == pytest.approx(hidden.step.communication_s / 5)  # the last of 5 buckets


def test_optical_energy_needs_a_design_that_fits():
    network = replace(BARE, fan_in=4)
    found = rows(compare(job(), 16, network, names=("optinc", "optinc-cascade", "ring"), design=DESIGN))
    assert (found["optinc"].energy, found["optinc"].all_reduce_J, found["optinc"].step_J) == (None, None, None)
    cascade = found["optinc-cascade"]
    assert cascade.optics.networks == 5
    assert cascade.step_J - cascade.all_reduce_J == pytest.approx(cascade.optics.total_W * cascade.step.compute_s)
    assert rows(compare(job(), 16, network, names=("optinc",)))["optinc"].energy is None


def test_a_measured_step_counts_as_it_is():
    training = replace(Training.of(find_workload("gpt2"), 10), sample_s=0.02)
    assert training_step(training, lambda _: 0.1).total_s == pytest.approx(0.3)


def test_pictures_show_every_schedule_and_leave_settings_alone():
    before = dict(mpl.rcParams)
    names = ("ring", "wrht", "oddl", "optinc", "optinc-cascade")
    network = replace(Network(), fan_in=4)
    training = Training.of(find_workload("resnet50"), 32)
    compared = compare(training, 16, network, names=names, design=DESIGN)
    systems = build_systems(16, network, names)
    times, shares = plot_times(systems, 1e8), plot_shares(compared, systems)
    labels = ["ring", "wrht", "oddl", "optinc (ideal)", "optinc-cascade"]
    assert [line.get_label() for line in times.axes[0].lines][:5] == labels
    assert [line.get_label() for line in shares.axes[0].lines][:5] == labels
    winners = plot_winners(network, 1e8, names)
    assert [axes.get_title() for axes in winners.axes] == [
        "all schedules", "servers add: nothing is summed on the way", "WDM ring"
    ]  # fmt: skip
    assert [text.get_text() for text in winners.axes[2].texts] == ["wrht"]
    energy = plot_energy(compared)
    assert [label.get_text() for label in energy.axes[0].get_yticklabels()] == [
        "ring",
        "wrht",
        "oddl",
        "optinc-cascade",
    ]
    assert dict(mpl.rcParams) == before
