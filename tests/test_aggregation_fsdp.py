"""Connections of FSDP2's reduce-scatter: one set for all modules of a process group, and none once it is closed."""

import pytest
import torch
import torch.multiprocessing
from _fsdp_ranks import OPEN_FILES, run

RANKS = 2
needs_list = pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="the platform does not list open files")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(RANKS, str(folder)), nprocs=RANKS)
    return [torch.load(folder / f"found_{rank}", weights_only=False) for rank in range(RANKS)]


def test_one_reduce_scatter_for_all_modules_trains_as_one_for_each(found):
    for one in found:
        assert torch.equal(one["shared"], one["own"])
        assert torch.equal(one["again"], one["own"])
        assert torch.equal(one["own"], found[0]["own"])


@needs_list
def test_modules_that_share_a_reduce_scatter_share_its_connections(found):
    for one in found:
        before, four, closed, shared, again, *_ = one["files"]
        assert shared - closed <= (four - before) / 3 + 2  # the model itself has no parameters of its own
        assert again <= shared + 2


@needs_list
def test_closed_reduce_scatters_leave_no_connections_behind(found):
    for one in found:
        before, four, closed, _, _, *later = one["files"]
        assert four > before + 20
        assert closed <= before + 2
        assert later[-1] <= later[1] + 2


def test_one_reduce_scatter_serves_several_groups_and_works_after_it_was_closed(found):
    """A share of 3 of (0 .. 5) k on rank k - 1: the mean is one and a half times that."""
    for rank, one in enumerate(found):
        wanted = 1.5 * torch.arange(6.0)[3 * rank : 3 * rank + 3]
        assert len(one["means"]) == 10
        for mean in one["means"]:
            assert torch.equal(mean, one["means"][0])
            assert mean.tolist() == pytest.approx(wanted.tolist(), abs=10 / 127)
