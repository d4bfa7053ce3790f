"""Chip host: what it serves, where, its limits, and how it ends."""

import socket

import numpy as np
import pytest
import torch
from _returning import RIGHT, WRONG, Returning
from chip_hosts import (
    BareClient,
    CountingExecutor,
    SteppingExecutor,
    codes_of,
    in_thread,
    name_of,
)

from optinc_hw.aggregation import (
    Aggregator,
    BenchExecutor,
    ChipHost,
    ChipHostError,
    ExactExecutor,
    HostLimits,
    RemoteExecutor,
    TableExecutor,
)
from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.bench import BenchTileRunner
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import AggregationError, NetworkError
from optinc_hw.onn import build_exact, quantised_mean


@pytest.mark.parametrize(("servers", "bits"), [(1, 8), (4, 2), (3, 5), (4, 8), (2, 11), (4, 16)])
def test_answers_are_those_of_the_executor(servers, bits):
    rng = np.random.default_rng(bits)
    with ChipHost(ExactExecutor(servers, bits)) as host, RemoteExecutor(host.address) as remote:
        assert (remote.servers, remote.bits) == (servers, bits)
        for elements in (1, 7, 8, 1001):
            codes = rng.integers(0, 1 << bits, (elements, servers))
            answers = remote.run(codes)
            assert answers.dtype == np.int64
            assert np.array_equal(answers, quantised_mean(codes))
            out = np.zeros(elements, dtype=np.uint16)
            assert remote.run(codes.astype(np.uint16), out=out) is out
            assert np.array_equal(out, answers)
        assert remote.run(np.empty((0, servers), dtype=np.uint8)).shape == (0,)


def test_an_aggregator_gets_the_same_bits_as_without_a_host():
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(5000, generator=generator) for _ in range(4)]
    table = TableExecutor.from_executor(ExactExecutor(4, 8))
    limits = HostLimits(elements=1024)  # the aggregator sends parts of that size
    with ChipHost(table, limits=limits) as host, RemoteExecutor(host.address) as remote:
        assert (remote.inputs, remote.batch_limit) == (table.inputs, 1024)
        mean = Aggregator(remote).mean(tensors)
        assert remote.health().requests_done == 5
    assert torch.equal(mean, Aggregator(table).mean(tensors))


def test_a_bench_is_served(calibrated):
    codes = codes_of(9, elements=2)
    network = build_exact(4, 8)
    with calibrated.bench() as bench:
        executor = BenchExecutor(network, BenchTileRunner(bench))
        told = []
        with ChipHost(executor) as host, RemoteExecutor(host.address, progress=lambda *one: told.append(one)) as remote:
            answers = remote.run(codes)
            assert remote.health().executor == "BenchExecutor"
        assert np.array_equal(answers, executor.run(codes))
    assert told[-1] == (18, 18)  # 9 tiles on 4 ports for each element
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_progress_passes_the_host_and_reaches_the_client():
    executor, told, shown = SteppingExecutor(), [], []
    executor.progress = lambda *one: shown.append(one)
    mine = executor.progress
    with ChipHost(executor) as host, RemoteExecutor(host.address, progress=lambda *one: told.append(one)) as remote:
        remote.run(codes_of(1))
    assert shown == [(step, 10) for step in range(1, 11)]
    assert set(told) <= set(shown)
    assert told == sorted(told)
    assert told[-1] == (10, 10)
    assert executor.progress is mine


# -- addresses --


def test_the_loopback_address_of_ipv6_needs_no_token():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with ChipHost(CountingExecutor(), address="::1") as host:
        assert host.address.startswith("[::1]:")
        with RemoteExecutor(host.address) as remote:
            assert np.array_equal(remote.run(codes_of(1)), quantised_mean(codes_of(1)))


def test_an_error_in_what_is_told_of_requests_ends_the_host_and_is_raised():
    def broken(_):
        raise ValueError("broken by the test")

    host = ChipHost(CountingExecutor(), served=broken).__enter__()
    with RemoteExecutor(host.address) as remote:
        remote.run(codes_of(1))
        with pytest.raises(ValueError, match="broken by the test"):
            host.__exit__(None, None, None)


def test_an_address_in_use_is_named():
    with ChipHost(CountingExecutor()) as host:
        port = int(host.address.rsplit(":", 1)[1])
        with (
            pytest.raises(AggregationError, match=f"port {port}.*choose another"),
            ChipHost(CountingExecutor(), port=port),
        ):
            pass


# -- order and limits --


def test_requests_of_two_clients_run_in_order_of_arrival():
    executor = CountingExecutor(waits=True)
    with ChipHost(executor) as host, BareClient(host.address) as one, BareClient(host.address) as two:
        for client, first in ((one, 1), (two, 2), (one, 3), (two, 4), (two, 5)):
            client.submit(first, first)
            state, _ = client.receive()  # the host has it before the next one is sent
            while state.request != name_of(first):
                state, _ = client.receive()
            assert state.ahead == first - 1
        executor.gate.release(5)
        for client, numbers in ((one, (1, 3)), (two, (2, 4, 5))):
            for number in numbers:
                client.expect(messages.Result, request=name_of(number))
    assert executor.runs == [1, 2, 3, 4, 5]


def test_a_full_queue_refuses_with_its_limit_and_runs_the_rest():
    executor = CountingExecutor(waits=True)
    with (
        ChipHost(executor, limits=HostLimits(waiting=1)) as host,
        BareClient(host.address) as client,
        RemoteExecutor(host.address) as remote,
    ):
        client.submit(1, 1)
        executor.has_started()
        client.submit(2, 2)
        for _ in range(3):
            client.receive()  # 1 in the queue, 1 running, 2 in the queue
        health = remote.health()
        assert (health.waiting, health.running, health.elements, health.clients) == (1, "00000000", 5, 2)
        with pytest.raises(ChipHostError, match="1 requests wait already, which is the chip host's limit") as caught:
            remote.run(codes_of(3))
        assert caught.value.outcome == "not_done"
        executor.gate.release(2)
        for number in (1, 2):
            client.expect(messages.Result, request=name_of(number))
        assert remote.health().requests_done == 2
    assert executor.runs == [1, 2]


def test_too_many_bytes_that_wait_are_refused_as_not_done():
    """Five elements of 4 servers and 8 bits take 4 x 8 bytes."""
    executor = CountingExecutor(waits=True)
    with (
        ChipHost(executor, limits=HostLimits(waiting_bytes=64)) as host,
        BareClient(host.address) as client,
        RemoteExecutor(host.address) as remote,
    ):
        client.submit(1, 1)
        executor.has_started()
        for number in (2, 3):
            client.submit(number, number)
        for _ in range(4):
            client.receive()
        assert (remote.health().waiting, remote.health().waiting_bytes) == (2, 64)
        with pytest.raises(ChipHostError, match=r"64 bytes of codes wait already .*nothing of it was done") as caught:
            remote.run(codes_of(4))
        assert caught.value.outcome == "not_done"
        executor.gate.release(4)
        for number in (1, 2, 3):
            client.expect(messages.Result, request=name_of(number))
        assert remote.health().waiting_bytes == 0
        assert np.array_equal(remote.run(codes_of(5)), quantised_mean(codes_of(5)))
    assert executor.runs == [1, 2, 3, 5]


def test_too_many_elements_are_refused_before_anything_is_sent():
    executor = CountingExecutor()
    with ChipHost(executor, limits=HostLimits(elements=8)) as host, RemoteExecutor(host.address) as remote:
        with pytest.raises(ChipHostError, match="9 elements is too large; the limit is 8") as caught:
            remote.run(codes_of(1, elements=9))
        assert caught.value.outcome == "not_done"
        assert len(remote.run(codes_of(1, elements=8))) == 8
    assert executor.runs == [1]


def test_requests_that_no_message_holds_are_refused_at_the_start():
    with pytest.raises(AggregationError, match=r"take 4294967296 bytes; .* lower the limit of elements"):
        ChipHost(CountingExecutor(), limits=HostLimits(elements=1 << 30))
    ChipHost(CountingExecutor(), limits=HostLimits(elements=(1 << 30) - 8))


def test_too_many_clients_are_told_the_limit():
    clock = SimulatedClock()
    with ChipHost(CountingExecutor(), limits=HostLimits(clients=1)) as host, RemoteExecutor(host.address) as first:
        with pytest.raises(ChipHostError, match="1 clients are connected, which is the chip host's limit"):
            RemoteExecutor(host.address, clock=clock)
        assert 10.0 < clock.now() <= 30.0  # it tried again for a while
        first.run(codes_of(1))


def test_a_silent_client_is_sent_away_and_comes_back_by_itself():
    with ChipHost(CountingExecutor(), limits=HostLimits(idle_s=0.05)) as host, RemoteExecutor(host.address) as remote:
        with BareClient(host.address) as silent:  # logged in after the other, so sent away after it
            goodbye = silent.expect(messages.Goodbye, again=True)
            assert "0.05 s" in goodbye.reason
            assert silent.ended()
        assert np.array_equal(remote.run(codes_of(1)), quantised_mean(codes_of(1)))


# -- errors --


def test_bad_codes_are_refused_before_anything_is_sent():
    executor = CountingExecutor()
    with ChipHost(executor) as host, RemoteExecutor(host.address) as remote:
        for codes in (np.full((3, 4), 256), np.zeros((3, 5), dtype=int), np.zeros((3, 4))):
            with pytest.raises(NetworkError):
                remote.run(codes)
        with pytest.raises(NetworkError, match="out has shape"):
            remote.run(codes_of(1), out=np.zeros(4, dtype=int))
    assert executor.runs == []


class FailingExecutor(CountingExecutor):
    def run(self, codes, out=None):
        answers = super().run(codes, out)
        if codes[0, 0] == 13:
            raise RuntimeError("heater 3 is open \udcff" + "x" * 9000)
        return answers


def test_an_error_of_the_executor_reaches_the_client_and_the_host_goes_on():
    served = []
    with ChipHost(FailingExecutor(), served=served.append) as host, RemoteExecutor(host.address) as remote:
        with pytest.raises(ChipHostError, match="the executor failed: RuntimeError: heater 3 is open") as caught:
            remote.run(codes_of(13))
        assert caught.value.outcome == "failed"
        assert np.array_equal(remote.run(codes_of(1)), quantised_mean(codes_of(1)))
        assert remote.health().requests_failed == 1
    assert [(one.elements, bool(one.failure)) for one in served] == [(5, True), (5, False)]


# -- leaving --


def test_leaving_stops_what_tells_its_progress_and_refuses_what_waits():
    executor = SteppingExecutor(endless=True)
    with ChipHost(executor) as host, RemoteExecutor(host.address) as first, BareClient(host.address) as second:
        running = in_thread(lambda: first.run(codes_of(1)))
        assert executor.started.wait(60.0)
        second.submit(2, 2)
        second.receive()
        host.__exit__(None, None, None)
        with pytest.raises(ChipHostError, match="HostClosedError: the chip host was closed while it ran") as caught:
            running()
        assert caught.value.outcome == "failed"
        second.expect(messages.Failed, request=name_of(2), failure="refused")
        second.expect(messages.Goodbye, reason="the chip host was closed", again=True)
        assert second.ended()


def test_leaving_lets_other_executors_finish():
    executor = CountingExecutor(waits=True)
    with ChipHost(executor) as host, RemoteExecutor(host.address) as remote, BareClient(host.address) as watcher:
        running = in_thread(lambda: remote.run(codes_of(1)))
        executor.has_started()
        watcher.submit(2, 2)
        watcher.receive()
        leaving = in_thread(lambda: host.__exit__(None, None, None))
        watcher.expect(messages.Failed, failure="refused")  # so the host is being closed
        executor.gate.release()
        leaving()
        assert np.array_equal(running(), quantised_mean(codes_of(1)))
    assert executor.runs == [1]


def test_a_host_can_be_entered_again_and_is_another_one_then():
    executor = CountingExecutor()
    host = ChipHost(executor)
    instances = set()
    for _ in range(2):
        with host, BareClient(host.address) as client:
            instances.add(client.instance)
            client.submit(1, 1)
            client.expect(messages.Result)
    assert len(instances) == 2
    assert executor.runs == [1, 1]


def test_a_host_that_does_not_serve_has_no_address():
    with pytest.raises(AggregationError, match="enter its context first"):
        _ = ChipHost(CountingExecutor()).address


@pytest.mark.parametrize("bits", [3, 8, 16])
@pytest.mark.parametrize("name", WRONG)
def test_answers_that_are_no_codes_are_an_error(name, bits):
    with ChipHost(Returning(name, bits=bits)) as host, RemoteExecutor(host.address) as remote:
        with pytest.raises(ChipHostError, match=WRONG[name][1].format(top=2**bits - 1)) as caught:
            remote.run(np.ones((3, 4), dtype=int))
        assert caught.value.outcome == "failed"


@pytest.mark.parametrize("name", RIGHT)
def test_answers_count_as_they_are_returned(name):
    codes = codes_of(1)
    with ChipHost(Returning(name)) as host, RemoteExecutor(host.address) as remote:
        assert np.array_equal(remote.run(codes), quantised_mean(codes))
