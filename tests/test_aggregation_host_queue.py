"""Queue of the chip host: order, clients that leave, and what is known of a request."""

import pytest

from optinc_hw.aggregation import HostLimits
from optinc_hw.aggregation._host_queue import RefusalError, RequestQueue
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import AggregationError


@pytest.fixture
def clock():
    return SimulatedClock()


def queue_of(clock, **limits):
    return RequestQueue(HostLimits(**limits), clock)


def run_next(queue, answer=b"answer"):
    request = queue.begin()
    queue.finish(request, answer)
    return request.name


def test_requests_run_in_order_of_arrival_whoever_sends_them(clock):
    queue = queue_of(clock)
    for name, client in (("a", 1), ("b", 2), ("c", 1), ("d", 2)):
        queue.submit(name, 1, b"", client)
    first = queue.begin()
    assert [queue.ahead(request) for request in queue.waiting] == [1, 2, 3]
    queue.finish(first, b"")
    assert [first.name, *(run_next(queue) for _ in range(3))] == ["a", "b", "c", "d"]
    assert queue.begin() is None


def test_a_name_is_accepted_once(clock):
    queue = queue_of(clock)
    request = queue.submit("a", 1, b"codes", 1)
    assert queue.submit("a", 1, b"codes", 2) is request
    assert run_next(queue) == "a"
    assert queue.submit("a", 1, b"codes", 2) is request
    assert (queue.accepted, queue.begin(), request.answer) == (1, None, b"answer")


def test_a_full_queue_refuses_and_counts_only_what_waits(clock):
    queue = queue_of(clock, waiting=2)
    for name in "ab":
        queue.submit(name, 1, b"", 1)
    with pytest.raises(RefusalError, match="2 requests wait already"):
        queue.submit("c", 1, b"", 1)
    assert queue.ask("c", queue.accepted, 1) == "unknown"
    queue.begin()
    queue.submit("c", 1, b"", 1)


def test_a_queue_that_is_full_of_bytes_refuses_and_takes_smaller_ones(clock):
    queue = queue_of(clock, waiting_bytes=100)
    queue.submit("large", 1, bytes(150), 1)  # no request that may be sent is refused for ever
    with pytest.raises(RefusalError, match=r"150 bytes of codes wait already .* has 1; .* limit is 100 bytes"):
        queue.submit("small", 1, bytes(1), 1)
    assert queue.ask("small", queue.accepted, 1) == "unknown"
    queue.begin()  # what runs does not wait
    queue.submit("small", 1, bytes(60), 1)
    with pytest.raises(RefusalError, match=r"60 bytes of codes wait already .* has 41; .* limit is 100 bytes"):
        queue.submit("too much", 1, bytes(41), 1)
    queue.submit("just fits", 1, bytes(40), 1)
    assert queue.waiting_bytes == 100
    queue.cancel("small", 0, 1)
    assert queue.waiting_bytes == 40


def test_a_request_of_an_absent_client_lets_others_pass_and_keeps_its_place(clock):
    queue = queue_of(clock)
    queue.submit("a", 1, b"", 1)
    queue.submit("b", 1, b"", 2)
    queue.submit("c", 1, b"", 2)
    queue.leave(1)
    assert run_next(queue) == "b"
    assert queue.ask("a", 0, 3).phase == "queued"
    assert [run_next(queue), run_next(queue)] == ["a", "c"]


def test_what_waits_is_cancelled_when_its_client_stays_away(clock):
    queue = queue_of(clock, return_s=30.0, waiting=1)
    queue.submit("a", 1, b"codes", 1)
    queue.leave(1)
    clock.sleep(30.0)
    assert [request.name for request in queue.waiting] == ["a"]
    clock.sleep(0.5)
    queue.submit("b", 1, b"", 2)  # there is room again
    found = queue.ask("a", 0, 1)
    assert (found.failure, found.payload) == ("cancelled", b"")
    assert "away for 30 s" in found.reason
    assert run_next(queue) == "b"
    assert queue.begin() is None


def test_what_runs_is_finished_and_kept_though_its_client_has_left(clock):
    queue = queue_of(clock)
    queue.submit("a", 1, b"", 1)
    request = queue.begin()
    queue.leave(1)
    clock.sleep(1e4)
    queue.finish(request, b"answer")
    clock.sleep(1e4)
    assert queue.ask("a", 0, 2).answer == b"answer"


@pytest.mark.parametrize("limits", [{"kept": 2}, {"kept_bytes": 20}])
def test_a_name_that_may_have_been_forgotten_is_not_called_unknown(clock, limits):
    queue = queue_of(clock, **limits)
    for name in "abc":
        queue.submit(name, 1, b"", 1)
        run_next(queue, b"0123456789")
    assert queue.ask("a", 0, 1) == "forgotten"

    assert queue.ask("never", 0, 1) == "forgotten"
    assert queue.ask("never", 1, 1) == "unknown"  # only the first was dropped
    assert queue.ask("b", 0, 1).answer == b"0123456789"


def test_confirmed_answers_are_dropped_without_doubt_about_others(clock):
    queue = queue_of(clock, kept=1)
    for name in "abcdef":
        queue.submit(name, 1, b"", 1)
        queue.confirm(name)  # too early: ignored
        run_next(queue)
        queue.confirm(name)
    assert queue.ask("never", 0, 1) == "unknown"


def test_the_newest_answer_is_kept_however_large(clock):
    queue = queue_of(clock, kept_bytes=3)
    queue.submit("a", 1, b"", 1)
    run_next(queue, b"too large to be kept")
    assert queue.ask("a", 0, 1).answer == b"too large to be kept"


def test_the_answer_of_a_slow_request_is_not_the_first_to_go(clock):
    queue = queue_of(clock, kept=1)
    queue.submit("early", 1, b"", 1)
    queue.leave(1)
    queue.submit("late", 1, b"", 2)
    run_next(queue)
    queue.ask("early", 0, 1)
    run_next(queue)
    assert queue.ask("early", 0, 1).answer == b"answer"
    assert queue.ask("late", 0, 2) == "forgotten"


def test_cancelling_takes_out_what_waits_and_forgets_what_runs(clock):
    queue = queue_of(clock)
    for name in "ab":
        queue.submit(name, 1, b"", 1)
    running = queue.begin()
    assert queue.cancel("b", 0, 1).failure == "cancelled"
    assert queue.cancel("a", 0, 1).phase == "running"
    queue.finish(running, b"answer")
    assert queue.begin() is None
    assert queue.ask("a", 0, 1) == queue.ask("b", 0, 1) == "unknown"
    queue.submit("c", 1, b"", 1)
    run_next(queue)
    assert queue.cancel("c", 0, 1).answer == b"answer"  # it was there in time after all


def test_a_closed_queue_refuses_what_waits_and_what_comes(clock):
    queue = queue_of(clock)
    for name in "abc":
        queue.submit(name, 1, b"", 1)
    running = queue.begin()
    assert [(request.name, request.failure) for request in queue.close()] == [("b", "refused"), ("c", "refused")]
    with pytest.raises(RefusalError, match="closed"):
        queue.submit("d", 1, b"", 1)
    queue.finish(running, b"answer")
    assert queue.ask("a", 0, 1).answer == b"answer"


@pytest.mark.parametrize("limits", [{"clients": 0}, {"idle_s": 0.0}, {"waiting": 1.5}, {"return_s": float("inf")}])
def test_limits_must_be_positive(limits):
    with pytest.raises(AggregationError, match=f"limit {next(iter(limits))} must be positive"):
        HostLimits(**limits)
