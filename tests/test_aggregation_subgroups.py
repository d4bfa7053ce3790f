"""Hooks on parts of a job, closed and used again; ranks that do not come, and the warm-up."""

import multiprocessing
import signal
import sys

import pytest
import torch
import torch.multiprocessing
from _hook_models import drawn
from _lost_ranks import LOST_IN, train
from _subgroup_ranks import GROUPS, run

from optinc_hw.aggregation import Aggregator, BlockQuantizer, ExactExecutor

RANKS = 3


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def found(name):
        torch.multiprocessing.spawn(run, args=(RANKS, str(tmp_path), name), nprocs=RANKS)
        return [torch.load(tmp_path / f"found_{rank}", weights_only=False) for rank in range(RANKS)]

    return found


def test_hooks_on_overlapping_groups_average_over_their_ranks_and_go_on_after_close(ranks):
    """Against the aggregator in one process."""
    found = ranks("together")
    for name, members in GROUPS.items():
        aggregator = Aggregator(ExactExecutor(len(members)), BlockQuantizer(block_size=64))
        parts = zip(*(drawn(rank, 300, 70) for rank in members), strict=True)
        expected = torch.cat([aggregator.mean(part) for part in parts])
        for rank in members:
            assert len(found[rank]["seen"][name]) == 3
            assert all(torch.equal(seen, expected) for seen in found[rank]["seen"][name])
    for one in found:
        assert set(one["closed"]) == {""}


def test_a_rank_that_does_not_come_is_named_inside_the_timeout(ranks):
    for message in ranks("absent")[0].values():
        assert "AggregationError: rank 0: rank 1 did not come to the step within 4.5 s" in message
        assert "give a longer timeout_s" in message


def test_ranks_that_differ_are_told_before_the_warm_up(ranks):
    for one in ranks("warm_up"):
        assert "differ in warmup_steps: rank 0 has 0; rank 1 has 1; rank 2 has 2; set up all" in one["steps"]
        assert "differ in block_size: rank 0 has 32; ranks 1, 2 have 64; set up all ranks alike" in one["blocks"]


@pytest.mark.skipif(sys.platform == "win32", reason="kills by a signal")
@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_a_rank_lost_in_the_warm_up_is_named(tmp_path, monkeypatch, how):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    context, lost = multiprocessing.get_context("spawn"), 1
    options = {"warmup_steps": LOST_IN + 2}
    started = [
        context.Process(target=train, args=(rank, RANKS, str(tmp_path), lost, how, options)) for rank in range(RANKS)
    ]
    for process in started:
        process.start()
    for rank in (0, 2):
        started[rank].join(100)
    try:
        assert [started[rank].exitcode for rank in (0, 2)] == [0, 0]
        assert started[lost].exitcode == (-signal.SIGKILL if how == "killed" else None)
        for rank in (0, 2):
            step, message, *_ = (tmp_path / f"rank_{rank}").read_text().splitlines()
            assert int(step) == LOST_IN
            assert f"rank {rank}: averaging failed in step {LOST_IN}, and rank {lost} does not answer" in message
            assert "with a timeout_s above 8 s if an executor needs more than 6 s for an answer" in message
    finally:
        for process in started:
            process.kill()
            process.join()
