"""Times of schedules: closed forms of the papers, hand calculations, late and slow nodes, shared fabrics."""

import math

import numpy as np
import pytest
from _schedules import BUILDERS
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect import (
    Crossbar,
    Job,
    LinkParameters,
    WdmRing,
    binary_tree,
    halving_doubling,
    hierarchical_ring,
    in_switch,
    job_setup_time,
    oddl,
    optinc,
    recursive_doubling,
    ring,
    simulate,
    simulate_jobs,
    step_time,
    wrht,
)

MICRO = 1e-6
BYTE_A_NANOSECOND = LinkParameters(
    rate_bps=8e9, reconfiguration_s=0.0, conversion_s=0.0, segment_s=0.0, reduce_Bps=math.inf
)  # fmt: skip
PAPER = LinkParameters.wrht()
RATE, DELAY = 40e9, 25e-6


def close(value):
    return pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("nodes", [4, 64, 1024])
@pytest.mark.parametrize("payload", [4e3, 2.5e8])
def test_closed_forms_of_the_wrht_paper(nodes, payload):
    bits = 8 * payload
    levels = math.log2(nodes)
    cases = [
        (ring(nodes), 2 * (nodes - 1) * (bits / nodes / RATE + DELAY)),
        (binary_tree(nodes), 2 * levels * (bits / RATE + DELAY)),
        (recursive_doubling(nodes, WdmRing(nodes)), levels * (bits / RATE + DELAY)),
        (halving_doubling(nodes, Crossbar()), 2 * (1 - 1 / nodes) * bits / RATE + 2 * levels * DELAY),
        (wrht(nodes, 64), {4: 1, 64: 2, 1024: 3}[nodes] * (bits / RATE + DELAY)),
        (hierarchical_ring(nodes, 4), _leaders(nodes, 4, bits)),
        (optinc(nodes), bits / RATE),
        (in_switch(nodes, 8), bits / RATE),
    ]
    for schedule, expected in cases:
        assert step_time(schedule, payload, PAPER) == close(expected), schedule.name
        assert simulate(schedule, payload, PAPER).finish_s == pytest.approx(expected, rel=1e-9), schedule.name


def _leaders(nodes, group, bits):
    within, between = 2 * (group - 1), 2 * (nodes // group - 1)
    steps = within + between + (between > 0)
    sent = within * bits / group + between * bits / (nodes // group) + (between > 0) * bits
    return sent / RATE + steps * DELAY


def test_payload_at_which_a_ring_overtakes_wrht():
    """About 255 MB for N = 1024, w = 64, 40 Gb/s and 25 us."""
    one, other = ring(1024), wrht(1024)
    low, high = 1e6, 1e10
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if step_time(one, middle, PAPER) > step_time(other, middle, PAPER) else (low, middle)
    expected = DELAY * (2 * 1023 - 3) / (3 / RATE - 2 * 1023 / (1024 * RATE)) / 8
    assert low == pytest.approx(expected, rel=1e-6)
    assert round(low / 1e6) == 255


@pytest.mark.parametrize(
    ("parameters", "with_wrht", "with_ring"), [(62.3e6, 150, 151), (138e6, 331, 272), (25e6, 60, 91), (6.8e6, 16, 62)]
)
def test_published_models_at_1024_nodes(parameters, with_wrht, with_ring):
    """Facts on WRHT, section 4.5, in ms: AlexNet, VGG16, ResNet50, GoogLeNet in fp32."""
    assert step_time(wrht(1024), 4 * parameters, PAPER) * 1e3 == pytest.approx(with_wrht, abs=0.5)
    assert step_time(ring(1024), 4 * parameters, PAPER) * 1e3 == pytest.approx(with_ring, abs=0.5)


def test_optinc_against_a_ring_on_its_published_links():
    """OptINC, figure 7b: 800 GB/s, 59 us for the 16-bit gradients of ResNet50 where a ring of 4 takes 89 us."""
    links = LinkParameters.optinc()
    payload = 23.7e6 * 2
    assert step_time(optinc(4), payload, links) / MICRO == pytest.approx(59, abs=0.5)
    assert step_time(ring(4, Crossbar()), payload, links) / MICRO == pytest.approx(89, abs=0.5)


@settings(max_examples=150)
@given(
    name=st.sampled_from(sorted(BUILDERS)), nodes=st.integers(2, 40), payload=st.floats(1.0, 1e10),
    links=st.builds(
        LinkParameters, rate_bps=st.floats(1e9, 1e13), reconfiguration_s=st.floats(0, 1e-3),
        setup=st.sampled_from(["every_step", "on_change"]), conversion_s=st.floats(0, 1e-6),
        segment_s=st.floats(0, 1e-6), switch_s=st.floats(0, 1e-6), reduce_Bps=st.floats(1e9, 1e12),
    ),
)  # fmt: skip
def test_simulation_agrees_with_the_closed_form(name, nodes, payload, links):
    schedule = BUILDERS[name](nodes)
    expected = step_time(schedule, payload, links)
    strict = simulate(schedule, payload, links, barrier=True)
    assert strict.finish_s == pytest.approx(expected, rel=1e-9)
    assert strict.step_finish_s.size == schedule.step_count
    assert strict.finish_s == strict.node_finish_s.max()
    # Without the barrier smaller groups run ahead, never behind.
    assert simulate(schedule, payload, links).finish_s <= expected * (1 + 1e-9)
    # Circuits set up beforehand save time or nothing.
    early = step_time(schedule, payload, links, overlap=True)
    assert early <= expected * (1 + 1e-9)
    assert simulate(schedule, payload, links, overlap=True, barrier=True).finish_s <= early * (1 + 1e-9)


def test_a_step_by_hand():
    """Nine nodes, one group: 1000 bytes at 1 ns, the way of four segments, and eight additions at 1 us."""
    links = LinkParameters(
        rate_bps=8e9, reconfiguration_s=10e-6, conversion_s=50e-9, segment_s=1e-9, reduce_Bps=1e9
    )  # fmt: skip
    assert step_time(wrht(9, 4), 1000, links) == close((10 + 1 + 0.054 + 8 + 10 + 1 + 0.054) * MICRO)
    # With a reach of two segments the outer nodes are relayed; groups of 5 leave two middles for one exchange.
    relayed = wrht(9, 4, reach=2, group=9)
    assert step_time(relayed, 1000, links) == close((10 + 1 + 0.104 + 8 + 10 + 1 + 0.104) * MICRO)
    by_five = wrht(9, 4, reach=2)  # 0..4 and 5..8 send over two segments; then 2 and 6, four and five apart
    assert by_five.step_count == 3
    collect, exchange, distribute = 10 + 1 + 0.052 + 4, 10 + 1 + 0.005 + 3 * 0.05 + 1, 10 + 1 + 0.052
    assert step_time(by_five, 1000, links) == close((collect + exchange + distribute) * MICRO)


def test_vectors_stream_through_switches():
    """Up and down through two levels: the vector once, four links and three switches of delay."""
    links = LinkParameters(rate_bps=8e9, conversion_s=20e-9, segment_s=5e-9, switch_s=100e-9)
    for build in (optinc, in_switch):
        assert step_time(build(16, 4), 1e6, links) == close(1e-3 + 4 * 25e-9 + 3 * 100e-9)
        assert simulate(build(16, 4), 1e6, links).finish_s == close(1e-3 + 4 * 25e-9 + 3 * 100e-9)


def test_setup_on_change_only():
    links = LinkParameters(
        rate_bps=8e9, reconfiguration_s=3e-6, control_s=1e-6, setup="on_change", conversion_s=0.0, segment_s=0.0,
        reduce_Bps=math.inf,
    )  # fmt: skip
    assert step_time(ring(4), 4000, links) == close((4 + 6) * MICRO)
    assert simulate(ring(4), 4000, links).finish_s == close((4 + 6) * MICRO)
    assert step_time(oddl(8), 8000, links) == close((5 * 4 + 14) * MICRO)


def test_tuning_beside_sending_by_hand():
    """ODDL, 8 servers, 4 + 2 + 1 + 1 + 2 + 4 us, transceivers 0 1 0 0 1 0, 3 us to tune, the third and fourth alike.

    Steps begin at 3; 7; 10 = 7 + 3; 11; 12 = 9 + 3; 15 = 12 + 3, and the last takes 4.
    """
    links = LinkParameters(
        rate_bps=8e9, reconfiguration_s=3e-6, setup="on_change", conversion_s=0.0, segment_s=0.0, reduce_Bps=math.inf
    )
    assert step_time(oddl(8), 8000, links, overlap=True) == close(19 * MICRO)
    found = simulate(oddl(8), 8000, links, overlap=True)
    assert found.step_finish_s == pytest.approx(np.array([7, 9, 11, 12, 14, 19]) * MICRO)
    assert step_time(oddl(8), 8000, links) == close(29 * MICRO)
    assert step_time(oddl(8, 1), 8000, links, overlap=True) == close(29 * MICRO)  # one transceiver cannot do both


def test_the_slow_plane_is_set_once_a_job():
    links = LinkParameters.oddl()
    assert job_setup_time(oddl(8), links) == 50e-3
    assert job_setup_time(ring(8, Crossbar()), links) == 0.0
    assert step_time(oddl(8), 1e3, links) < 1e-3


@pytest.mark.parametrize("build", [ring, wrht, recursive_doubling, optinc, lambda n: optinc(n, 4), oddl])
def test_all_wait_for_a_late_server(build):
    schedule = build(16)
    alone = simulate(schedule, 1e6, PAPER).finish_s
    late = simulate(schedule, 1e6, PAPER, start_s=np.where(np.arange(16) == 5, 0.25, 0.0)).finish_s
    assert late == pytest.approx(0.25 + alone, rel=1e-9)
    assert simulate(schedule, 1e6, PAPER, start_s=2.0).finish_s == pytest.approx(2.0 + alone, rel=1e-9)


def test_a_slow_server_slows_what_it_takes_part_in():
    slow = np.where(np.arange(8) == 3, 3.0, 1.0)
    for schedule in (optinc(8), in_switch(8, 2)):
        found = simulate(schedule, 1000, BYTE_A_NANOSECOND, slowdown=slow)
        assert found.finish_s == close(3 * MICRO)
    # In a ring of 8 its transfers of 1/8 take three times as long, and it takes part in all 14 steps.
    assert simulate(ring(8), 8000, BYTE_A_NANOSECOND, slowdown=slow).finish_s == close(14 * 3 * MICRO)
    # In a tree node 3 sends in the first step and receives in the last; the other four steps are as fast as ever.
    assert simulate(binary_tree(8), 1000, BYTE_A_NANOSECOND, slowdown=slow).finish_s == close(
        (3 + 1 + 1 + 1 + 1 + 3) * MICRO
    )


def test_two_jobs_on_one_ring_take_turns_on_a_wavelength():
    """Servers 0 and 2, 1 and 3 of four: both rings of two close the circle; by turns A 1, B 2, A 3, B 4 us."""
    first = Job(ring(2), 2000, places=[0, 2])
    second = Job(ring(2), 2000, places=[1, 3])
    one, two = simulate_jobs([first, second], BYTE_A_NANOSECOND)
    assert one.step_finish_s == pytest.approx(np.array([1, 3]) * MICRO)
    assert two.step_finish_s == pytest.approx(np.array([2, 4]) * MICRO)
    assert two.blocked_s == close(2 * (1 + 1) * MICRO)  # two transfers a step, a microsecond each
    apart = Job(ring(2), 2000, places=[1, 3], first_channel=1)
    assert [found.finish_s for found in simulate_jobs([first, apart], BYTE_A_NANOSECOND)] == [close(2 * MICRO)] * 2


def test_jobs_side_by_side_on_a_ring_pass_over_one_another():
    """Neighbours that close their rings of two the long way round meet; trees between them do not."""
    left, right = Job(binary_tree(2), 1000, places=[0, 1]), Job(binary_tree(2), 1000, places=[2, 3])
    assert [found.finish_s for found in simulate_jobs([left, right], BYTE_A_NANOSECOND)] == [close(2 * MICRO)] * 2
    around = Job(ring(2), 1000, places=[2, 3])
    assert max(found.finish_s for found in simulate_jobs([left, around], BYTE_A_NANOSECOND)) > 2 * MICRO


def test_jobs_share_switches_or_wait_for_them():
    """An OptINC averages for one job at a time; an electrical switch only shares the links that both use."""
    for build, ends in ((optinc, [1, 2]), (in_switch, [1, 1])):
        jobs = [Job(build(4), 1000), Job(build(4), 1000, places=[4, 5, 6, 7])]
        assert [found.finish_s for found in simulate_jobs(jobs, BYTE_A_NANOSECOND)] == [
            close(end * MICRO) for end in ends
        ]
    for build in (optinc, in_switch):
        jobs = [Job(build(4), 1000), Job(build(4), 1000)]
        assert [found.blocked_s for found in simulate_jobs(jobs, BYTE_A_NANOSECOND)] == [0.0, close(4 * MICRO)]
    assert [found.finish_s for found in simulate_jobs(jobs, BYTE_A_NANOSECOND)] == [close(MICRO), close(2 * MICRO)]
    late = [Job(optinc(4), 1000, start_s=5 * MICRO), Job(optinc(4), 1000, places=[4, 5, 6, 7])]
    assert [found.finish_s for found in simulate_jobs(late, BYTE_A_NANOSECOND)] == [close(6 * MICRO), close(MICRO)]


def test_waiting_for_an_optinc_is_blocked_time():
    """Ends at 1, 2 and 3 us: the four servers of a job send at once, and one is ready half a microsecond late."""
    jobs = [
        Job(optinc(4), 1000), Job(optinc(4), 1000, places=[4, 5, 6, 7], start_s=[0, 0, 0, 0.5e-6]),
        Job(optinc(16, 4), 1000, places=range(8, 24), start_s=0.75e-6),
    ]  # fmt: skip
    found = simulate_jobs(jobs, BYTE_A_NANOSECOND)
    assert [one.finish_s for one in found] == [close(1 * MICRO), close(2 * MICRO), close(3 * MICRO)]
    assert [one.blocked_s for one in found] == [0.0, close((3 * 1 + 0.5) * MICRO), close(16 * 1.25 * MICRO)]


def test_thousands_of_nodes():
    for schedule in (ring(4096), wrht(4096), oddl(4096), optinc(4096, 16), recursive_doubling(4096)):
        expected = step_time(schedule, 1e8)
        assert simulate(schedule, 1e8, barrier=True).finish_s == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: step_time(ring(4), 0.0), "payload must be positive"),
        (lambda: simulate(ring(4), math.nan), "payload must be positive"),
        (lambda: LinkParameters(rate_bps=0.0), "rate_bps of the links must be positive"),
        (lambda: LinkParameters(reconfiguration_s=-1.0), "reconfiguration_s of the links must be 0 or more"),
        (lambda: LinkParameters(reduce_Bps=math.nan), "reduce_Bps"),
        (lambda: LinkParameters(setup="never"), "'every_step' or 'on_change'"),
        (lambda: simulate(ring(4), 1.0, start_s=[0.0, 1.0]), "start_s must be one number or 4"),
        (lambda: simulate(ring(4), 1.0, slowdown=0.5), "each 1 or more"),
        (lambda: simulate_jobs([Job(ring(2), 1.0, places=[0, 0])]), "2 different positions"),
        (lambda: simulate_jobs([Job(ring(2), 1.0, places=[1, 0])]), "must increase"),
        (lambda: simulate_jobs([Job(ring(2), 1.0, first_channel=64)]), "lower first_channel"),
        (lambda: simulate_jobs([Job(ring(2), 1.0), Job(oddl(2), 1.0)]), "jobs share one fabric"),
        (lambda: simulate_jobs([Job(optinc(2), 1.0), Job(in_switch(2), 1.0)]), "jobs share one fabric"),
    ],
)  # fmt: skip
def test_what_cannot_be_timed_is_refused(call, said):
    with pytest.raises(ScheduleError, match=said):
        call()


def test_no_jobs_take_no_time():
    assert simulate_jobs([]) == []
