"""Schedules carried out by eight processes give what all_reduce gives."""

import pytest
import torch
import torch.multiprocessing
from _schedule_ranks import RANKS, SCHEDULES, run


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(RANKS, str(folder)), nprocs=RANKS)
    return [torch.load(folder / f"sums_{rank}") for rank in range(RANKS)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_sums_integers_as_all_reduce_does(found, name):
    for size in range(2, RANKS + 1):
        for rank in range(RANKS - size, RANKS):
            for kind in ("integers", "few"):
                ours, theirs = found[rank][name, size][kind]
                assert ours.dtype == theirs.dtype
                assert torch.equal(ours, theirs), (size, rank, kind)


@pytest.mark.parametrize("name", SCHEDULES)
def test_floating_point_sums_have_the_same_bits_on_all_ranks(found, name):
    for size in range(2, RANKS + 1):
        sums = [found[rank][name, size]["floats"] for rank in range(RANKS - size, RANKS)]
        for ours, theirs in sums:
            assert torch.equal(ours, sums[0][0]), size
            torch.testing.assert_close(ours, theirs, rtol=0.0, atol=8 * size * torch.finfo(ours.dtype).eps)


def test_what_does_not_fit_is_refused(found):
    for one in found:
        size, layout = one["refused"]
        assert "3 servers" in size
        assert "8 ranks" in size
        assert "to_dense()" in layout
