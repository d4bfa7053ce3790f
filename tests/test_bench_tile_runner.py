"""Tiles on a calibrated twin and on the instruments: products, noise, and what is refused before anything moves."""

import numpy as np
import pytest

from calibration import verify
from optinc_hw.bench import Bench, BenchTileRunner, TileRunner, TwinTileRunner
from optinc_hw.errors import CalibrationError, LimitError, MatrixError
from optinc_hw.photonics import TwinParameters
from simulated_instruments import HiddenChip


@pytest.fixture
def bench(calibrated):
    with calibrated.bench() as opened:
        yield opened


def tile(rows=3, columns=4, seed=0):
    """A matrix of norm 1 and inputs that keep off zero."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, columns))
    inputs = rng.choice([-1.0, 1.0], (25, columns)) * rng.uniform(0.2, 1.0, (25, columns))
    return matrix / np.linalg.norm(matrix, 2), inputs


@pytest.mark.parametrize("shape", [(4, 4), (3, 4), (4, 2), (1, 1)])
def test_bench_and_twin_multiply_by_the_matrix(calibrated, bench, shape):
    matrix, inputs = tile(*shape)
    exact = inputs @ matrix.T
    twin, chip = TwinTileRunner(calibrated.record), BenchTileRunner(bench)
    for runner, tolerance in ((twin, 2e-3), (chip, 1e-2)):
        assert runner.ports == 4
        runner.program(matrix)
        products = runner.forward(inputs)
        assert products.shape == exact.shape
        np.testing.assert_allclose(products, exact, atol=tolerance)


def test_the_runner_can_be_programmed_again_and_again(bench):
    runner = BenchTileRunner(bench)
    for seed in range(3):
        matrix, inputs = tile(seed=seed)
        runner.program(matrix)
        np.testing.assert_allclose(runner.forward(inputs[:5]), inputs[:5] @ matrix.T, atol=1e-2)


def test_a_chip_left_dark_by_something_else_is_lit_again(calibrated, bench):
    runner = BenchTileRunner(bench)
    matrix, inputs = tile()
    runner.program(matrix)
    verify(bench, calibrated.record, settings=2)
    np.testing.assert_allclose(runner.forward(inputs[:5]), inputs[:5] @ matrix.T, atol=1e-2)


def test_a_refused_matrix_leaves_no_other_one_programmed(calibrated, bench):
    matrix, inputs = tile()
    for runner in (TwinTileRunner(calibrated.record), BenchTileRunner(bench)):
        runner.program(matrix)
        with pytest.raises(MatrixError):
            runner.program(2.0 * matrix)
        with pytest.raises(CalibrationError, match="no matrix is programmed"):
            runner.forward(inputs)


def test_without_calibration_the_products_are_lost(bench):
    matrix, inputs = tile(4, 4)
    runner = BenchTileRunner(bench, TwinParameters.nominal(4, input_amplitude=0.03, lo_amplitude=0.02))
    runner.program(matrix)
    products = runner.forward(inputs)
    assert abs(np.corrcoef(products.ravel(), (inputs @ matrix.T).ravel())[0, 1]) < 0.6


def test_the_twins_noise_is_the_records_and_follows_the_generator(calibrated):
    matrix, inputs = tile()
    inputs = np.repeat(inputs[:1], 2000, axis=0)

    def run(rng):
        runner = TwinTileRunner(calibrated.record, rng)
        runner.program(matrix)
        return runner.forward(inputs)

    quiet, noisy = run(None), run(np.random.default_rng(1))
    np.testing.assert_allclose(quiet, quiet[:1].repeat(2000, axis=0), atol=1e-12)
    np.testing.assert_array_equal(noisy, run(np.random.default_rng(1)))
    assert (noisy != run(np.random.default_rng(2))).any()
    np.testing.assert_allclose(noisy.mean(axis=0), quiet[0], atol=5 * noisy.std(axis=0).max() / np.sqrt(2000))
    assert 1e-5 < noisy.std(axis=0).min() < noisy.std(axis=0).max() < 1e-2


def test_the_twins_noise_is_as_large_as_the_benchs(calibrated, bench):
    matrix, inputs = tile()
    inputs = np.repeat(inputs[:1], 150, axis=0)
    scatter = []
    for runner in (BenchTileRunner(bench), TwinTileRunner(calibrated.record, np.random.default_rng(0))):
        runner.program(matrix)
        scatter.append(runner.forward(inputs).std(axis=0))
    np.testing.assert_allclose(scatter[0], scatter[1], rtol=0.35)


def test_an_empty_batch_gives_no_products(calibrated, bench):
    matrix, _ = tile(3, 4)
    for runner in (TwinTileRunner(calibrated.record), BenchTileRunner(bench)):
        runner.program(matrix)
        assert runner.forward(np.zeros((0, 4))).shape == (0, 3)


def test_vectors_need_a_program_first(calibrated, bench):
    for runner in (TwinTileRunner(calibrated.record), BenchTileRunner(bench)):
        with pytest.raises(CalibrationError, match=r"call program\(matrix\) before forward"):
            runner.forward(np.zeros((1, 4)))


def test_a_bench_without_calibration_says_what_to_run():
    with Bench.simulated(ports=2) as bare, pytest.raises(CalibrationError, match="run `optinc calibrate`"):
        BenchTileRunner(bare)


def test_a_twin_of_another_size_is_refused(bench):
    with pytest.raises(CalibrationError, match="twin has 2 ports, the bench 4"):
        BenchTileRunner(bench, TwinParameters.nominal(2, input_amplitude=0.03, lo_amplitude=0.02))


@pytest.mark.parametrize("matrix", [np.eye(5), 2.0 * np.eye(4), np.full((2, 2), np.nan), 1j * np.eye(2)])
def test_a_matrix_that_does_not_fit_moves_nothing(calibrated, bench, matrix):
    for runner in (TwinTileRunner(calibrated.record), BenchTileRunner(bench)):
        with pytest.raises(MatrixError):
            runner.program(matrix)
    np.testing.assert_array_equal(bench.voltages, 0.0)
    assert np.abs(bench.read_detectors().power_w).max() < 1e-7  # and the light stayed off


@pytest.mark.parametrize("inputs", [np.zeros((2, 3)), np.full((2, 4), 1.5), np.full((2, 4), np.nan)])
def test_inputs_that_do_not_fit_move_nothing(bench, inputs):
    runner = BenchTileRunner(bench)
    runner.program(tile(3, 4)[0])
    with pytest.raises(MatrixError):
        runner.forward(inputs)
    np.testing.assert_array_equal(bench.voltages, 0.0)


def test_a_limit_is_found_before_anything_moves(calibrated):
    runner = TwinTileRunner(calibrated.record, max_power_w=0.005)
    with pytest.raises(LimitError, match=r"heater \w+ would need .* mW"):
        runner.program(tile(4, 4)[0])


def test_a_reading_out_of_range_is_never_a_product(bench, monkeypatch):
    runner = BenchTileRunner(bench)
    matrix, inputs = tile(3, 4)
    runner.program(matrix)
    measure = HiddenChip.measure
    with monkeypatch.context() as patch:
        patch.setattr(HiddenChip, "measure", lambda self, *args: 1e3 * measure(self, *args))
        with pytest.raises(CalibrationError, match=r"detectors rx_0_plus.* are out of range while a tile runs; check"):
            runner.forward(inputs[:2])
    np.testing.assert_allclose(runner.forward(inputs[:2]), inputs[:2] @ matrix.T, atol=1e-2)


def test_both_runners_keep_the_protocol(calibrated, bench):
    runners: list[TileRunner] = [TwinTileRunner(calibrated.record), BenchTileRunner(bench)]
    for runner in runners:
        assert {name for name in vars(TileRunner) if not name.startswith("_")} <= set(dir(runner))
