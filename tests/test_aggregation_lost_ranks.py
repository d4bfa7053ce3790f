"""T-14: a rank is killed or hangs in step 3, the chip host too; all others end with an error that names it."""

import multiprocessing
import signal
import sys

import pytest
from _lost_ranks import LOST_IN, train

RANKS = 3
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by a signal")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Start ranks and wait for those that are not lost; a lost one that still lives is killed in the end."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    started = []

    def start(lost, how, options):
        context = multiprocessing.get_context("spawn")
        for rank in range(RANKS):
            arguments = (rank, RANKS, str(tmp_path), lost, how, options)
            started.append(context.Process(target=train, args=arguments))
        for process in started:
            process.start()
        for rank, process in enumerate(started):
            if rank != lost:
                process.join(100)
        return started, tmp_path

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.mark.parametrize(
    ("lost", "how", "options"),
    [
        (1, "killed", {}),
        (0, "killed", {"chip_host": 0}),
        (2, "killed", {"chip_host": 0}),
        (1, "hangs", {}),
    ],
)
def test_t14_all_other_ranks_name_the_lost_one_and_the_step(job, lost, how, options):
    processes, folder = job(lost, how, options)
    for rank, process in enumerate(processes):
        if rank == lost:
            assert process.exitcode == (-signal.SIGKILL if how == "killed" else None)
            continue
        assert process.exitcode == 0
        step, message, *_ = (folder / f"rank_{rank}").read_text().splitlines()
        assert int(step) == LOST_IN
        assert f"rank {rank}: averaging failed in step {LOST_IN}, and rank {lost} does not answer" in message
        assert f"averaging failed in step {LOST_IN}" in (folder / f"rank_{rank}").read_text().splitlines()[-1]
