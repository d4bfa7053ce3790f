"""T-14: a rank is killed or hangs in step 3, the chip host too; all others end with an error that names it.

How long they take is not measured; what ended the wait is seen by the cause that the error names: where a rank hangs,
the timeout; where it was killed, a connection that broke before the timeout.
"""

import csv
import multiprocessing
import signal
import sys

import pytest
from _lost_ranks import LOST_IN, train, train_on_bench

RANKS = 3
PATIENCE_S = 200.0  # ends a test that fails; no test that passes is as long
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by a signal")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Start ranks and wait for those that are not lost; a lost one that still lives is killed in the end."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    started = []

    def start(target, lost, *settings):
        context = multiprocessing.get_context("spawn")
        for rank in range(RANKS):
            arguments = (rank, RANKS, str(tmp_path), lost, *settings)
            started.append(context.Process(target=target, args=arguments))
        for process in started:
            process.start()
        for rank, process in enumerate(started):
            if rank != lost:
                process.join(PATIENCE_S)
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
    processes, folder = job(train, lost, how, options)
    for rank, process in enumerate(processes):
        if rank == lost:
            assert process.exitcode == (-signal.SIGKILL if how == "killed" else None)
            continue
        assert process.exitcode == 0
        step, message, *_ = (folder / f"rank_{rank}").read_text().splitlines()
        assert int(step) == LOST_IN
        assert f"rank {rank}: averaging failed in step {LOST_IN}, and rank {lost} does not answer" in message
        assert f"averaging failed in step {LOST_IN}" in (folder / f"rank_{rank}").read_text().splitlines()[-1]
        cause = message.rpartition("(")[2].lower()
        assert ("timeout" in cause or "timed out" in cause) == (how == "hangs")


def test_t14_the_heaters_are_at_zero_when_the_rank_with_the_bench_has_lost_another(job):
    processes, folder = job(train_on_bench, 1, "killed")
    assert [process.exitcode for process in processes] == [1, -signal.SIGKILL, 1]
    assert (folder / "steps_0").read_text() == str(LOST_IN)
    voltages = dict.fromkeys((folder / "heaters").read_text().split(), 0.0)
    highest = dict(voltages)
    with (folder / "trace.csv").open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            voltages[row["heater"]] = float(row["voltage_v"])
            highest[row["heater"]] = max(highest[row["heater"]], voltages[row["heater"]])
    assert sum(highest.values()) > 1.0  # they were in use
    assert voltages == dict.fromkeys(voltages, 0.0)
