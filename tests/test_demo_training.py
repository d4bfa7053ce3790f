"""Training with optical and with float averaging."""

import sys

import numpy as np
import pytest
import torch

from optinc_hw.aggregation import Aggregator, ExactExecutor
from optinc_hw.demo import DemoSettings, compare_training, run_demo
from optinc_hw.demo._training import SAMPLED_STEP, WORKERS
from optinc_hw.errors import ConfigurationError, GradientError
from optinc_hw.onn import quantised_mean


@pytest.fixture(scope="module")
def comparison():
    return compare_training(ExactExecutor(WORKERS), [3, 4], epochs=4)


def test_both_averages_start_equal_and_learn(comparison):
    for optical, reference in zip(comparison.optical, comparison.float_, strict=True):
        assert optical.seed == reference.seed
        assert optical.loss[0] == reference.loss[0]
        assert optical.accuracy[0] == reference.accuracy[0]
        assert not np.array_equal(optical.loss, reference.loss)
        assert optical.accuracy[-1] > 0.8
        assert abs(optical.accuracy[-1] - reference.accuracy[-1]) < 0.03
    assert comparison.optical[0].loss[0] != comparison.optical[1].loss[0]


def test_equal_seeds_give_equal_bits(comparison):
    again = compare_training(ExactExecutor(WORKERS), [3], epochs=4)
    np.testing.assert_array_equal(again.optical[0].loss, comparison.optical[0].loss)
    np.testing.assert_array_equal(again.float_[0].accuracy, comparison.float_[0].accuracy)
    assert torch.equal(again.sampled_gradients, comparison.sampled_gradients)


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    compare_training(ExactExecutor(WORKERS), [0], epochs=3)
    assert torch.equal(torch.rand(3), wanted)


def test_every_step_goes_through_the_executor():
    class Counting(ExactExecutor):
        elements = 0

        def run(self, codes):
            Counting.elements += len(codes)
            return super().run(codes)

    found = compare_training(Counting(WORKERS), [0], epochs=3)
    steps, parameters = len(found.optical[0].loss), found.sampled_gradients.shape[1]
    assert Counting.elements == steps * parameters


def test_the_sampled_gradients_are_enough_for_the_bench(comparison):
    codes = Aggregator(ExactExecutor(WORKERS)).encode(list(comparison.sampled_gradients))
    assert codes.shape[1] == WORKERS
    assert (codes != 128).any(axis=1).sum() >= 2000
    assert len(np.unique(quantised_mean(codes))) > 100


def test_progress_ends_with_all_runs():
    seen = []
    compare_training(ExactExecutor(WORKERS), [0], epochs=3, progress=lambda *call: seen.append(call))
    assert seen == [("training", done, 2) for done in range(3)]


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigurationError, match="at least one seed"):
        compare_training(ExactExecutor(WORKERS), [])
    with pytest.raises(ConfigurationError, match=f"{SAMPLED_STEP + 1} steps"):
        compare_training(ExactExecutor(WORKERS), [0], epochs=1)
    with pytest.raises(GradientError, match="averages 8 servers"):
        compare_training(ExactExecutor(8), [0])


def test_without_scikit_learn_the_demo_says_what_to_install_before_it_does_anything(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'optinc-hw\[demo\]'"):
        run_demo(DemoSettings(), tmp_path / "report")
    assert not (tmp_path / "report").exists()
