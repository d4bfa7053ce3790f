"""Codes through memory that ranks share, and over sockets: equal means, and what happens where memory is not shared."""

import os
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from _way_ranks import SETTINGS, SIZES, run

MEMORY = Path("/dev/shm")
RANKS = 3

pytestmark = pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason="there is no /dev/shm on this platform")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("ways"), set(MEMORY.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(RANKS, str(folder)), nprocs=RANKS)
    left = {path for path in set(MEMORY.iterdir()) - before if path.name.startswith("optinc")}
    return [torch.load(folder / f"found_{rank}", weights_only=False) for rank in range(RANKS)], left


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


@pytest.mark.parametrize("name", ["another machine", "no memory left", "memory used up later"])
def test_sockets_serve_where_memory_cannot_be_shared(found, name):
    ranks, _ = found
    for one in ranks:
        means, costs = one[name][0]
        assert all(torch.equal(a, b) for a, b in zip(means, one["shares"][1][0], strict=True))
        assert costs.way == "sockets"


def test_no_file_is_left_behind(found):
    assert found[1] == set()
