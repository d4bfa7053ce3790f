"""A job of four ranks trains through a simulated bench that drifts; spot checks have it calibrated anew."""

import numpy as np
import pytest
import torch
import torch.multiprocessing
from _bench_job_ranks import DRIFT_AT, STEPS, train

RANKS = 4


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(train, args=(RANKS, str(folder)), nprocs=RANKS)
    return [torch.load(folder / f"rank_{rank}", weights_only=False) for rank in range(RANKS)]


def test_training_succeeds_with_equal_bits_on_all_ranks(job):
    parameters = [one["parameters"] for one in job]
    assert all(torch.equal(parameters[0], other) for other in parameters[1:])
    losses = np.mean([one["losses"] for one in job], axis=0)
    assert len(losses) == STEPS
    assert losses[0] == pytest.approx(np.log(10), abs=0.4)
    assert losses[-4:].mean() < 0.6 * losses[0]


def test_the_alarm_follows_the_drift_and_one_recalibration_the_alarm(job):
    host = job[0]
    assert len(host["alarms"]) == host["recalibrations"] == 1
    assert "drift: bench and twin differ by" in host["alarms"][0]


def test_answers_are_right_before_the_drift_and_after_the_recalibration(job):
    wrong = np.array(job[0]["wrong"])
    assert len(wrong) == STEPS
    assert wrong[:DRIFT_AT].max() == 0.0
    assert wrong[-5:].max() == 0.0


def test_the_account_covers_every_step_and_the_heaters_are_at_zero_in_the_end(job):
    costs = job[0]["costs"]
    assert costs.elements == STEPS * 170
    assert costs.symbols == STEPS * 170 * 2
    assert costs.buckets == STEPS
    assert job[0]["answered"] == STEPS * 176  # filled up to whole bytes of all codes together
    assert job[0]["voltages"] == [0.0] * len(job[0]["voltages"])
