"""Codes through memory that ranks share, and over sockets: equal means, and what happens where memory is not shared."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from _way_ranks import SETTINGS, SIZES, killed, run

MEMORY = Path("/dev/shm")
RANKS = 3

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="ranks share memory on Linux only")


def left_behind():
    return {path for path in MEMORY.iterdir() if path.name.startswith("optinc")} if MEMORY.is_dir() else set()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("ways"), left_behind()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(RANKS, str(folder)), nprocs=RANKS)
    found = [torch.load(folder / f"found_{rank}", weights_only=False) for rank in range(RANKS)]
    return found, left_behind() - before


@pytest.mark.parametrize("name", SETTINGS)
def test_means_and_bytes_do_not_depend_on_the_way(found, name):
    ranks, _ = found
    for one in ranks:
        (shared, shared_costs), (sent, sent_costs) = one[name]
        assert all(torch.equal(a, b) for a, b in zip(shared, sent, strict=True))
        assert (shared_costs.way, sent_costs.way) == ("shared memory", "sockets")
        assert shared_costs.bytes_sent == sent_costs.bytes_sent
        assert "codes by shared memory" in str(shared_costs)
    for index in range(len(SIZES)):
        assert all(torch.equal(one[name][0][0][index], ranks[0][name][0][0][index]) for one in ranks)


@pytest.mark.parametrize(
    "name", ["another machine", "other process numbers", "no such memory", "no memory left", "memory used up later"]
)
def test_sockets_serve_where_memory_cannot_be_shared(found, name):
    ranks, _ = found
    for one in ranks:
        means, costs = one[name][0]
        assert all(torch.equal(a, b) for a, b in zip(means, one["shares"][1][0], strict=True))
        assert costs.way == "sockets"


def test_no_file_is_left_behind(found):
    assert found[1] == set()


def test_a_rank_killed_while_it_makes_memory_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    before = left_behind()
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(str(tmp_path),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert left_behind() == before
