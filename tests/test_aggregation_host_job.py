"""T-14: a training job whose chip is behind a chip host that is killed in step 3."""

import multiprocessing
import signal

import pytest
from _host_ranks import serve, train

RANKS = 2


@pytest.fixture
def processes(monkeypatch):
    """Start functions in processes of their own, which are killed in the end."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    started = []

    def start(target, *arguments):
        started.append(multiprocessing.get_context("spawn").Process(target=target, args=arguments))
        started[-1].start()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.join()


def test_t14_every_rank_names_the_host_that_was_killed_and_what_is_known(processes, tmp_path):
    reader, writer = multiprocessing.Pipe(duplex=False)
    host = processes(serve, str(tmp_path), RANKS, writer)
    writer.close()
    address = reader.recv()
    reader.close()
    ranks = [processes(train, rank, RANKS, str(tmp_path), address) for rank in range(RANKS)]
    for rank, process in enumerate(ranks):
        process.join(200)
        assert process.exitcode == 0
        equal, message, *_ = (tmp_path / f"rank_{rank}").read_text().splitlines()
        assert equal == "True"  # bit for bit as with a table on the same rank, until the host was lost
        assert f"rank 0: ChipHostError: chip host {address}" in message
        assert "may or may not have run on the chip" in message
    host.join(100)
    assert host.exitcode == -signal.SIGKILL
