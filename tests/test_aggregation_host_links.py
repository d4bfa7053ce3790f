"""Links to the chip host that break: a request is done once, or reported as not done or in doubt, never twice."""

import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from chip_hosts import (
    TOKEN,
    BareClient,
    CountingExecutor,
    CutAt,
    TimedLinks,
    codes_of,
    in_thread,
    name_of,
)

import optinc_hw
from optinc_hw.aggregation import ChipHost, ChipHostError, ExactExecutor, HostLimits, RemoteExecutor
from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._host_frames import codes_to_wire, write_head
from optinc_hw.clock import SimulatedClock
from optinc_hw.onn import quantised_mean

WANTED = quantised_mean(codes_of(1))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_wherever_the_link_is_cut_the_request_runs_once_and_is_answered(after):
    executor = CountingExecutor()
    cuts = 0
    with ChipHost(executor) as host:
        for cut in itertools.count():
            plan = CutAt(cut, after)
            executor.runs.clear()
            with RemoteExecutor(host.address, clock=SimulatedClock(), connect=plan) as remote:
                assert np.array_equal(remote.run(codes_of(1)), WANTED), cut
                assert np.array_equal(remote.run(codes_of(2)), quantised_mean(codes_of(2))), cut
                assert remote.health().waiting == 0, cut
            assert executor.runs == [1, 2], cut
            if plan.operations <= cut:
                break
            cuts += 1
            assert plan.links == 2
    assert cuts > 20  # every message of both sides has a head and a rest


def test_a_link_cut_while_the_request_runs_is_opened_anew_and_gets_the_kept_answer():
    executor = CountingExecutor(waits=True)
    links = []

    def connect(where, timeout):
        links.append(socket.create_connection(where, timeout))
        return links[-1]

    with ChipHost(executor) as host, RemoteExecutor(host.address, clock=SimulatedClock(), connect=connect) as remote:
        running = in_thread(lambda: remote.run(codes_of(1)))
        executor.has_started()
        links[0].shutdown(socket.SHUT_RDWR)
        executor.gate.release()
        assert np.array_equal(running(), WANTED)
    assert executor.runs == [1]
    assert len(links) == 2


class SplitHost:
    """Connects the first link to one host and all others to another."""

    def __init__(self, first, others):
        self.ports = itertools.chain([first], itertools.repeat(others))
        self.links = []

    def __call__(self, where, timeout):
        self.links.append(socket.create_connection(("127.0.0.1", port_of(next(self.ports))), timeout))
        return self.links[-1]


def port_of(host):
    return int(host.address.rsplit(":", 1)[1])


def test_a_host_that_was_restarted_meanwhile_leaves_the_request_in_doubt():
    former, latter = CountingExecutor(waits=True), CountingExecutor()
    with ChipHost(former) as old, ChipHost(latter) as new:
        connect = SplitHost(old, new)
        with RemoteExecutor(old.address, clock=SimulatedClock(), connect=connect) as remote:
            running = in_thread(lambda: remote.run(codes_of(1)))
            former.has_started()
            connect.links[0].shutdown(socket.SHUT_RDWR)
            with pytest.raises(ChipHostError, match=r"restarted .* may or may not have run .* is lost") as caught:
                running()
            assert caught.value.outcome == "unknown"
            former.gate.release()
            assert np.array_equal(remote.run(codes_of(2)), quantised_mean(codes_of(2)))
    assert (former.runs, latter.runs) == ([1], [2])


def test_a_host_that_was_restarted_between_two_requests_is_found_again():
    old, latter = ChipHost(CountingExecutor()), CountingExecutor()
    with ChipHost(latter) as new:
        old.__enter__()
        with RemoteExecutor(old.address, clock=SimulatedClock(), connect=SplitHost(old, new)) as remote:
            remote.run(codes_of(2))
            old.__exit__(None, None, None)
            assert np.array_equal(remote.run(codes_of(1)), WANTED)
    assert latter.runs == [1]


def test_a_host_that_serves_something_else_now_is_refused():
    with ChipHost(CountingExecutor()) as old, ChipHost(ExactExecutor(4, 8)) as new:
        connect = SplitHost(old, new)
        with RemoteExecutor(old.address, clock=SimulatedClock(), connect=connect) as remote:
            connect.links[0].shutdown(socket.SHUT_RDWR)
            with pytest.raises(ChipHostError, match=r"now serves ExactExecutor .* longer CountingExecutor") as caught:
                remote.run(codes_of(1))
            assert caught.value.outcome == "not_done"


def test_an_answer_that_is_not_kept_any_more_is_in_doubt_and_never_computed_again():
    executor = CountingExecutor()
    with ChipHost(executor, limits=HostLimits(kept=1)) as host, BareClient(host.address) as client:
        for number in (1, 2, 3):
            client.submit(number, number)
            client.expect(messages.Result, request=name_of(number))
        for number, state in ((1, "forgotten"), (2, "forgotten"), (77, "forgotten")):
            client.send(messages.Ask(request=name_of(number), since=0))
            assert client.receive()[0] == messages.State(request=name_of(number), state=state)
        client.send(messages.Ask(request=name_of(77), since=2))
        assert client.receive()[0].state == "unknown"
        client.send(messages.Ask(request=name_of(3), since=0))
        client.expect(messages.Result, request=name_of(3))
    assert executor.runs == [1, 2, 3]


def test_what_was_forgotten_of_others_puts_no_later_request_in_doubt():
    executor, plan = CountingExecutor(), CutAt(None, after=False)
    with (
        ChipHost(executor, limits=HostLimits(kept=1)) as host,
        RemoteExecutor(host.address, clock=SimulatedClock(), connect=plan) as remote,
        BareClient(host.address) as other,
    ):
        for number in (1, 2):  # never confirmed, so the first one is dropped
            other.submit(number, number)
            other.expect(messages.Result, request=name_of(number))
        remote.run(codes_of(3))
        plan.cut = plan.operations + 1  # the first operation looks whether the link is open, the next one submits
        assert np.array_equal(remote.run(codes_of(1)), WANTED)
        assert plan.links == 2
    assert executor.runs == [1, 2, 3, 1]


def test_what_a_former_link_of_a_session_had_sent_is_not_read_any_more():
    """Half a submission is under way when its client comes back; the other half arrives later and must not run."""
    executor = CountingExecutor()
    payload = codes_to_wire(codes_of(1).T, 8)
    data = write_head(messages.Submit(request=name_of(1), elements=5), payload) + bytes(payload)
    with ChipHost(executor) as host, BareClient(host.address, session=5) as former:
        former.socket.sendall(data[:-4])
        with BareClient(host.address, session=5) as client:
            client.send(messages.Ask(request=name_of(1), since=client.welcome.accepted))
            assert client.receive()[0].state == "unknown"
            try:
                former.socket.sendall(data[-4:])
                assert former.ended()
            except ConnectionError:
                pass
            client.submit(2, 2)
            client.expect(messages.Result, request=name_of(2))
    assert executor.runs == [2]


# -- time --


def test_a_slow_executor_ends_in_an_error_within_the_timeout():
    executor, clock = CountingExecutor(waits=True), SimulatedClock()
    with (
        ChipHost(executor) as host,
        RemoteExecutor(host.address, timeout_s=40.0, clock=clock, connect=TimedLinks(clock)) as remote,
    ):
        with pytest.raises(ChipHostError, match="no answer within 40 s; it runs or has run on the chip") as caught:
            remote.run(codes_of(1))
        assert caught.value.outcome == "unknown"
        assert host.address in str(caught.value)
        assert 30.0 < clock.now() <= 40.0
        executor.gate.release()


def test_what_still_waits_at_the_timeout_is_cancelled_and_never_runs():
    executor, clock = CountingExecutor(waits=True), SimulatedClock()
    with ChipHost(executor) as host, BareClient(host.address) as other:
        other.submit(1, 1)
        executor.has_started()
        connect = TimedLinks(clock, {messages.Login: 1, messages.Submit: 1, messages.Ask: 1, messages.Cancel: 1})
        with RemoteExecutor(host.address, timeout_s=40.0, clock=clock, connect=connect) as remote:
            with pytest.raises(ChipHostError, match=r"still in the queue and is cancelled; nothing .* done") as caught:
                remote.run(codes_of(2))
            assert caught.value.outcome == "not_done"
            assert clock.now() <= 40.0
        other.submit(3, 3)
        executor.gate.release(2)
        other.expect(messages.Result, request=name_of(1))
        other.expect(messages.Result, request=name_of(3))
    assert executor.runs == [1, 3]


def test_a_host_that_hangs_is_given_up_within_the_timeout():
    clock = SimulatedClock()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        links = []

        def serve():  # greets, and never says anything again
            while True:
                link, _ = listener.accept()
                links.append(link)
                link.sendall(write_head(messages.Greeting(instance=name_of(1), nonce=name_of(2), token_needed=False)))
                if not link.recv(1 << 16):
                    return
                welcome = messages.Welcome(
                    proof="", servers=4, bits=8, inputs=4, executor="E", most_elements=9, accepted=0
                )
                link.sendall(write_head(welcome))

        finished = in_thread(serve)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        connect = TimedLinks(clock, {messages.Login: 1})
        with RemoteExecutor(address, timeout_s=100.0, clock=clock, connect=connect) as remote:
            with pytest.raises(ChipHostError, match=r"lost and not found again .*does not answer for 20 s") as caught:
                remote.run(codes_of(1))
            assert caught.value.outcome == "unknown"
            assert clock.now() <= 100.0
        assert len(links) > 1
        with socket.create_connection(listener.getsockname()) as last:
            last.shutdown(socket.SHUT_WR)
            finished()
        for link in links:
            link.close()


def test_nothing_is_sent_when_no_host_is_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    clock = SimulatedClock()
    with pytest.raises(ChipHostError, match=r"cannot be reached: .*refused; nothing was sent") as caught:
        RemoteExecutor(address, clock=clock, reconnect_s=20.0)
    assert caught.value.outcome == "not_done"
    assert 10.0 < clock.now() <= 20.0


def test_pauses_between_attempts_grow():
    pauses = []

    class Clock(SimulatedClock):
        def sleep(self, seconds):
            pauses.append(seconds)
            super().sleep(seconds)

    def refused(where, timeout):
        raise ConnectionRefusedError("refused by the test")

    with pytest.raises(ChipHostError, match="refused by the test"):
        RemoteExecutor("127.0.0.1:5600", clock=Clock(), connect=refused)
    assert pauses == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0])


# -- clients and hosts that die --


def test_the_queue_does_not_wait_for_a_client_that_has_left():
    executor, clock = CountingExecutor(waits=True), SimulatedClock()
    with ChipHost(executor, clock=clock) as host, BareClient(host.address) as watcher:
        watcher.submit(1, 1)
        executor.has_started()
        with BareClient(host.address) as lost:
            lost.submit(2, 2)
            lost.receive()
        with RemoteExecutor(host.address) as remote:
            while remote.health().clients > 2:  # until the host has seen it leave
                pass
            assert remote.health().waiting == 1  # it might come back
            clock.sleep(31.0)
            assert remote.health().waiting == 0
        watcher.submit(3, 3)
        executor.gate.release(2)
        for number in (1, 3):
            watcher.expect(messages.Result, request=name_of(number))
        watcher.send(messages.Ask(request=name_of(2), since=0))
        watcher.expect(messages.Failed, request=name_of(2), failure="cancelled")
    assert executor.runs == [1, 3]


CLIENT = """
import sys
import numpy as np
from optinc_hw.aggregation import RemoteExecutor
remote = RemoteExecutor(sys.argv[1])
remote.run(np.full((3, 4), 9))
"""
HOST = """
import sys, threading
from optinc_hw.aggregation import ChipHost, ExactExecutor

class Stuck(ExactExecutor):
    def run(self, codes, out=None):
        print("running", flush=True)
        threading.Event().wait()

with ChipHost(Stuck(4, 8)) as host:
    print(host.address, flush=True)
    threading.Event().wait()
"""


def child(code, *arguments):
    environment = os.environ | {"PYTHONPATH": str(Path(optinc_hw.__file__).parent.parent)}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, stdout=-1, text=True)


def test_a_killed_client_costs_no_more_than_what_it_runs():
    executor = CountingExecutor(waits=True)
    with ChipHost(executor) as host, RemoteExecutor(host.address) as remote:
        with child(CLIENT, host.address) as process:
            executor.has_started()
            process.kill()
        while remote.health().clients > 1:
            pass
        executor.gate.release(2)
        assert np.array_equal(remote.run(codes_of(1)), WANTED)
    assert executor.runs == [9, 1]


@pytest.mark.skipif(sys.platform == "win32", reason="kills by a signal")
def test_a_killed_host_ends_the_request_in_an_error_that_says_so():
    clock = SimulatedClock()
    with child(HOST) as process:
        remote = RemoteExecutor(process.stdout.readline().strip(), clock=clock)
        running = in_thread(lambda: remote.run(codes_of(1)))
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGKILL)
    with pytest.raises(ChipHostError, match=r"lost and not found again .* may or may not have run") as caught:
        running()
    assert caught.value.outcome == "unknown"
    assert clock.now() <= 30.0
    with pytest.raises(ChipHostError, match=r"cannot be reached .* nothing of it was done") as caught:
        remote.run(codes_of(1))
    assert caught.value.outcome == "not_done"


# -- copies, threads, names --


def test_a_copy_works_without_the_open_link_and_without_the_token():
    with (
        ChipHost(CountingExecutor()) as host,
        RemoteExecutor(host.address) as remote,
        pickle.loads(pickle.dumps(remote)) as copy,  # noqa: S301 - our own bytes
    ):
        assert np.array_equal(copy.run(codes_of(1)), WANTED)
    with ChipHost(CountingExecutor(), token=TOKEN) as host, RemoteExecutor(host.address, TOKEN) as remote:
        content = pickle.dumps(remote)
        assert TOKEN.encode() not in content
        with pytest.raises(ChipHostError, match="needs a token"):
            pickle.loads(content).run(codes_of(1))  # noqa: S301


def test_several_threads_share_a_remote_executor():
    executor = CountingExecutor()
    with ChipHost(executor) as host, RemoteExecutor(host.address) as remote:
        calls = [in_thread(lambda first=first: remote.run(codes_of(first))) for first in range(8)]
        for first, answer in enumerate(calls):
            assert np.array_equal(answer(), quantised_mean(codes_of(first)))
    assert sorted(executor.runs) == list(range(8))


def test_names_of_requests_repeat_with_their_generator():
    executor, expected = CountingExecutor(), np.random.default_rng(5).bytes(16).hex()
    served = []
    with ChipHost(executor, served=served.append) as host:
        for _ in range(2):
            with RemoteExecutor(host.address, rng=np.random.default_rng(5)) as remote:
                remote.run(codes_of(1))
    assert [one.name for one in served] == [expected[:8]] * 2
