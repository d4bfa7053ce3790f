"""Spot checks on chips that drift: alarms when there is drift and only then, and recalibration while answers go on."""

import threading

import numpy as np
import pytest

from optinc_hw.aggregation import (
    BenchExecutor,
    Checked,
    DriftAlarm,
    ExactExecutor,
    SpotCheckedExecutor,
    SpotCheckSettings,
    TableExecutor,
    TwinExecutor,
)
from optinc_hw.errors import CalibrationError, NetworkError
from optinc_hw.onn import build_exact, quantised_mean

NETWORK = build_exact(4, 8)
ALL = SpotCheckSettings(share=1.0, batch=32, baseline=64, window=64)


class Chip:
    """Tile runner whose products have noise, and a gain that a test changes."""

    ports = 8

    def __init__(self, noise=0.0, seed=0):
        self.noise, self.gain, self.vectors = noise, 1.0, 0
        self.rng = np.random.default_rng(seed)

    def program(self, matrix):
        self.matrix = matrix

    def forward(self, amplitudes):
        self.vectors += len(amplitudes)
        outputs = self.gain * amplitudes @ self.matrix.T
        return outputs + self.noise * self.rng.standard_normal(outputs.shape)


def checked(chip, fast=None):
    bench = BenchExecutor(NETWORK, chip)
    quick = TableExecutor.from_executor(ExactExecutor(4, 8)) if fast is None else fast
    return Checked(quick, TwinExecutor(NETWORK, Chip()), bench)


def codes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 4))


def run(executor, batches, size=64, start=0):
    for k in range(batches):
        batch = codes(size, start + k)
        assert np.array_equal(executor.run(batch), quantised_mean(batch))


def test_noise_alone_raises_no_alarm():
    executor = SpotCheckedExecutor(checked(Chip(noise=2e-3)), np.random.default_rng(1), ALL)
    run(executor, 200)
    assert executor.alarms == ()


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_drift_raises_an_alarm_before_symbols_are_wrong(noise):
    chip, told = Chip(noise), []
    executor = SpotCheckedExecutor(checked(chip), np.random.default_rng(1), ALL, on_alarm=told.append)
    run(executor, 10)
    chip.gain = 0.995
    run(executor, 4, start=10)
    assert told == list(executor.alarms)
    alarm = told[0]
    assert isinstance(alarm, DriftAlarm)
    assert alarm.wrong == 0.0
    assert alarm.rms > 2.0 * alarm.usual
    assert "after the calibration they did by" in str(alarm)


def test_only_the_share_asked_for_goes_through_the_bench():
    chip = Chip()
    parts = checked(chip)
    executor = SpotCheckedExecutor(parts, np.random.default_rng(1), SpotCheckSettings(share=0.02, batch=8))
    run(executor, 100, size=500)
    expected = 0.02 * 50_000 * len(parts.bench.plan.tiles)
    assert chip.vectors == pytest.approx(expected, rel=0.15)  # five sigma of a binomial count of 1000
    assert parts.bench.use.reprogrammings < chip.vectors / 8 * 1.01


def test_recalibration_runs_beside_the_answers_and_comes_into_use():
    chip, begun, go_on = Chip(1e-3), threading.Event(), threading.Event()

    def recalibrate():
        begun.set()
        assert go_on.wait(60)
        chip.gain = 1.0
        return checked(chip)

    executor = SpotCheckedExecutor(checked(chip), np.random.default_rng(1), ALL, recalibrate=recalibrate)
    run(executor, 5)
    chip.gain = 0.99
    run(executor, 3, start=5)
    assert begun.wait(60)
    assert executor.recalibrating
    before = chip.vectors
    run(executor, 5, start=8)  # training goes on, nothing is checked
    assert (chip.vectors, executor.recalibrations) == (before, 0)
    go_on.set()
    executor.finish()
    assert (executor.recalibrations, executor.recalibrating, len(executor.alarms)) == (1, False, 1)
    run(executor, 20, start=13)
    assert len(executor.alarms) == 1
    assert chip.vectors > before


class Wrapper:
    """An executor that hands everything to another one."""

    def __init__(self, executor):
        self.executor = executor
        self.servers, self.bits, self.inputs, self.batch_limit = 4, 8, 4, None

    def run(self, codes, out=None):
        return self.executor.run(codes, out)


class Counted(TableExecutor):
    """What looks like a table, but could do anything."""


USERS_OF_THE_BENCH = {
    "the bench": lambda bench: bench,
    "another executor on the bench": lambda bench: BenchExecutor(NETWORK, bench.runner),
    "a wrapper of the bench": Wrapper,
    "a wrapper of a wrapper": lambda bench: Wrapper(Wrapper(bench)),
    "a subclass": lambda bench: Counted.from_executor(ExactExecutor(4, 8)),
}


@pytest.mark.parametrize("name", USERS_OF_THE_BENCH)
def test_answers_that_may_come_from_the_bench_wait_for_the_recalibration(name):
    chip = Chip(1e-3)
    bench = BenchExecutor(NETWORK, chip)
    kept = Checked(USERS_OF_THE_BENCH[name](bench), TwinExecutor(NETWORK, Chip()), bench)

    def recalibrate():
        chip.gain = 1.0
        return kept

    executor = SpotCheckedExecutor(kept, np.random.default_rng(1), ALL, recalibrate=recalibrate)
    run(executor, 4)
    chip.gain = 0.99
    run(executor, 2, start=4)
    assert (executor.recalibrations, executor.recalibrating, chip.gain) == (1, False, 1.0)
    executor.finish()


def test_whether_answers_wait_can_be_said():
    bench = BenchExecutor(NETWORK, Chip())
    twin, table = TwinExecutor(NETWORK, Chip()), TableExecutor.from_executor(ExactExecutor(4, 8))
    for fast in (table, twin, ExactExecutor(4, 8)):
        assert not Checked(fast, twin, bench).answers_wait
        assert Checked(fast, twin, bench, fast_uses_bench=True).answers_wait
    assert not Checked(Wrapper(table), twin, bench, fast_uses_bench=False).answers_wait


def test_a_failed_recalibration_ends_the_next_answer():
    chip = Chip(1e-3)

    def recalibrate():
        raise CalibrationError("no light at output 3")

    executor = SpotCheckedExecutor(checked(chip), np.random.default_rng(1), ALL, recalibrate=recalibrate)
    run(executor, 2)
    chip.gain = 0.98
    run(executor, 1, start=2)
    assert executor.recalibrating
    with pytest.raises(CalibrationError, match="after a drift alarm failed: no light at output 3"):
        executor.finish()


def test_it_is_an_executor_like_its_fast_one():
    parts = checked(Chip())
    executor, table = SpotCheckedExecutor(parts, np.random.default_rng(1)), parts.fast
    assert (executor.servers, executor.bits, executor.inputs) == (4, 8, 4)
    assert executor.batch_limit == table.batch_limit
    out = np.zeros(5, dtype=np.uint8)
    assert executor.run(codes(5), out=out) is out
    with pytest.raises(NetworkError):
        executor.run([[1, 2, 3]])


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(NetworkError, match="TwinExecutor 4 with 8; check like with like"):
        SpotCheckedExecutor(checked(Chip(), ExactExecutor(2, 8)), np.random.default_rng(1))


@pytest.mark.parametrize(
    "settings", [{"share": 0.0}, {"share": 1.5}, {"batch": 0}, {"window": 1.5}, {"excess": 1.0}, {"chance": 0.0}]
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(NetworkError):
        SpotCheckSettings(**settings)
