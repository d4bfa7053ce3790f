"""What the hook takes from an executor: the array that it returns, if it holds codes, and never anything else."""

import re

import numpy as np
import pytest
import torch
import torch.multiprocessing
from _answer_ranks import WAYS, run
from _returning import RIGHT, WRONG, Returning

from optinc_hw.aggregation import Aggregator, Checked, ExactExecutor, SpotCheckedExecutor, TableExecutor
from optinc_hw.aggregation._executor import answer
from optinc_hw.errors import NetworkError

RANKS = 2


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(RANKS, str(folder)), nprocs=RANKS)
    return [torch.load(folder / f"found_{rank}", weights_only=False) for rank in range(RANKS)]


ways = pytest.mark.parametrize("way", range(len(WAYS)), ids=map(str, WAYS))


@ways
@pytest.mark.parametrize("name", RIGHT)
def test_the_hook_takes_what_the_executor_returns(found, way, name):
    for one in found:
        if name in one[way]:  # 16 bits do not fit all of them
            assert torch.equal(one[way][name], one[way]["wanted"])


@ways
@pytest.mark.parametrize("name", WRONG)
def test_answers_that_are_no_codes_end_the_step_on_all_ranks(found, way, name):
    top = 2 ** WAYS[way].get("bits", 8) - 1
    for one in found:
        assert isinstance(one[way][name], str), one[way][name]
        assert "the executor failed on rank 1: NetworkError: " in one[way][name]
        assert re.search(WRONG[name][1].format(top=top), one[way][name])


@ways
def test_code_zero_alone_is_no_answer(found, way):
    for one in found:
        assert "the executor of rank 1 answered with code 0 alone" in str(one[way]["dark"])


@pytest.mark.parametrize("name", WRONG)
def test_an_executor_that_wraps_another_is_no_way_around(name):
    fast = Returning(name)
    executor = SpotCheckedExecutor(Checked(fast, fast, fast), np.random.default_rng(0))
    with pytest.raises(NetworkError, match=WRONG[name][1].format(top=255)):
        answer(executor, np.ones((8, 4), np.uint8), np.empty(8, np.uint8))


@pytest.mark.parametrize("name", WRONG)
def test_neither_the_average_of_one_process_nor_a_table_takes_them(name):
    wrong = Returning(name)
    gradients = [torch.linspace(-1.0, 1.0, 512)] * 4
    for take in (lambda: Aggregator(wrong).mean(gradients), lambda: TableExecutor.from_executor(wrong)):
        with pytest.raises(NetworkError, match=WRONG[name][1].format(top=255)):
            take()


class Adding(TableExecutor):
    """Answers out of range, written into ``out`` as they are."""

    def run(self, codes, out=None):
        answers = super().run(codes) + 250
        if out is None:
            return answers
        out[:] = answers.astype(out.dtype)
        return out


def test_only_an_executor_whose_answers_are_known_to_fit_writes_them_itself():
    """A mean of 7 and 250 more are 257, which 8 bits hold as 1."""
    exact = ExactExecutor(4, 8)
    table = TableExecutor.from_executor(exact)
    codes, out = np.full((16, 4), 7, np.uint8), np.zeros(16, np.uint8)
    for executor in (exact, table):
        answer(executor, codes, out)
        assert out.tolist() == [7] * 16
        out[:] = 0
    with pytest.raises(NetworkError, match=r"Adding's answer at index .0,. is 257; allowed are 0 to 255"):
        answer(Adding(table.space, np.full(table.space.size, 7)), codes, out)
    assert out.tolist() == [0] * 16
