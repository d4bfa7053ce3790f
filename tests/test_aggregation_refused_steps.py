"""T-15: a step that ``non_finite="raise"`` refuses and the user skips is as if it had never been."""

import pytest
import torch
import torch.multiprocessing
from _refused_ranks import CASES, SIZE, run

RANKS = 2


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(RANKS, str(folder)), nprocs=RANKS)
    return [torch.load(folder / f"found_{rank}", weights_only=False) for rank in range(RANKS)]


@pytest.mark.parametrize("name", CASES)
def test_all_ranks_are_told_the_parameter(found, name):
    bad, _ = CASES[name]
    for rank, one in enumerate(found):
        whose = "this rank's" if rank == 1 else "another rank's"
        assert f"step 2: {whose} gradient of module.parts.{bad} holds NaN or Inf" in one[name][False]["message"]
        assert one[name][True]["message"] == ""


@pytest.mark.parametrize("name", CASES)
def test_later_steps_and_residuals_have_the_bits_of_a_run_without_it(found, name):
    for one in found:
        refused, skipped = one[name][False], one[name][True]
        assert len(refused["seen"]) == 3
        assert all(torch.equal(a, b) for a, b in zip(refused["seen"], skipped["seen"], strict=True))
        assert refused["residuals"].keys() == skipped["residuals"].keys()
        assert len(refused["residuals"]) >= 3
        assert all(torch.equal(refused["residuals"][key], skipped["residuals"][key]) for key in skipped["residuals"])


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_the_step_is_under_way_when_it_is_refused(found, name):
    """All that is answered later are the three parts of the last step."""
    share = 3 * SIZE // (1 if CASES[name][1] == "host" else RANKS)
    for rank, one in enumerate(found):
        assert one[name][False]["left"] == (0 if CASES[name][1] == "host" and rank else share)
