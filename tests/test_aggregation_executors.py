"""Executors against integer arithmetic, with runners that are exact, noisy or broken."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.aggregation import BenchExecutor, ExactExecutor, TableExecutor, TwinExecutor
from optinc_hw.errors import CalibrationError, NetworkError
from optinc_hw.onn import (
    CellChain,
    CellTree,
    InputSpace,
    build_cell,
    build_exact,
    quantised_mean,
    symbol_error_rate,
    tile,
)


class FakeChip:
    """Tile runner that multiplies exactly, plus noise, and refuses what a chip cannot do."""

    def __init__(self, ports=8, noise=0.0, gain=1.0):
        self.ports = ports
        self.noise = noise
        self.gain = gain
        self.rng = np.random.default_rng(0)
        self.matrix = None
        self.log = []

    def program(self, matrix):
        assert max(matrix.shape) <= self.ports
        assert np.linalg.norm(matrix, 2) <= 1.0
        self.matrix = matrix
        self.log.append("program")

    def forward(self, amplitudes):
        assert np.abs(amplitudes).max() <= 1.0
        self.log.append(len(amplitudes))
        outputs = self.gain * amplitudes @ self.matrix.T
        return outputs + self.rng.normal(0.0, self.noise, outputs.shape)


def _codes(count=500, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (count, 4))


@pytest.mark.parametrize("rounding", ["half_up", "floor"])
def test_exact_executor_is_the_integer_mean(rounding):
    executor = ExactExecutor(4, 8, rounding)
    assert executor.run([[1, 1, 2, 2]]).tolist() == [2 if rounding == "half_up" else 1]
    assert np.array_equal(executor.run(_codes()), quantised_mean(_codes(), rounding))
    assert (executor.servers, executor.bits, executor.inputs) == (4, 8, 4)


@pytest.mark.parametrize(("bits", "inputs"), [(2, 1), (8, 4), (10, 3), (16, 4), (32, 4)])
def test_exact_executor_states_the_inputs_of_unit_p(bits, inputs):
    assert ExactExecutor(3, bits).inputs == inputs


@pytest.mark.parametrize("arguments", [(0, 8), (4, 0), (4, 33), (4, 8, "up"), (True, 8)])
def test_exact_executor_refuses_bad_parameters(arguments):
    with pytest.raises(NetworkError):
        ExactExecutor(*arguments)


@pytest.mark.parametrize(("servers", "bits"), [(4, 8), (3, 6), (2, 9), (8, 4)])
@pytest.mark.parametrize("rounding", ["half_up", "floor"])
def test_table_repeats_its_source_on_all_codes(servers, bits, rounding):
    exact = ExactExecutor(servers, bits, rounding)
    table = TableExecutor.from_executor(exact)
    codes = np.random.default_rng(2).integers(0, 2**bits, (20_000, servers))
    answers = table.run(codes)
    assert answers.dtype == np.int64
    assert np.array_equal(answers, exact.run(codes))
    assert (table.servers, table.bits, table.inputs) == (servers, bits, exact.inputs)


def test_table_takes_narrow_codes_and_any_memory_order():
    table = TableExecutor.from_executor(ExactExecutor(4, 8))
    codes = _codes().astype(np.uint8)
    expected = quantised_mean(codes)
    assert np.array_equal(table.run(codes), expected)
    assert np.array_equal(table.run(np.asfortranarray(codes)), expected)
    assert table.run(np.zeros((0, 4), dtype=np.uint8)).shape == (0,)


def test_table_of_a_noisy_executor_freezes_its_errors():
    noisy = TwinExecutor(build_exact(4, 8), FakeChip(noise=0.02))
    done = []
    table = TableExecutor.from_executor(noisy, progress=lambda points, total: done.append((points, total)))
    assert done == [(28_561, 28_561)]
    codes = _codes(5000)
    assert np.array_equal(table.run(codes), table.run(codes))
    assert 0.01 < symbol_error_rate(table.run(codes), quantised_mean(codes), 8) < 0.2


def test_table_that_would_not_fit_memory_is_refused_with_a_remedy():
    with pytest.raises(NetworkError, match="815730721 entries; the limit is 16777216"):
        TableExecutor.from_executor(TwinExecutor(build_exact(4, 16), FakeChip()))


def test_table_must_fit_its_space():
    space = InputSpace(2, 4, 2)
    with pytest.raises(NetworkError, match="does not fit an input space of 49 points"):
        TableExecutor(space, np.zeros(48, dtype=int))
    with pytest.raises(NetworkError, match="table answer"):
        TableExecutor(space, np.full(49, 16))


@pytest.mark.parametrize("kind", [TwinExecutor, BenchExecutor])
@pytest.mark.parametrize("ports", [8, 4, 3])
def test_tiled_executors_on_an_exact_chip_are_exact(kind, ports):
    executor = kind(build_exact(4, 8), FakeChip(ports))
    codes = _codes()
    assert np.array_equal(executor.run(codes), quantised_mean(codes))
    assert (executor.servers, executor.bits, executor.inputs) == (4, 8, 4)


def test_each_tile_is_programmed_once_and_all_vectors_stream_through():
    chip, calls = FakeChip(), []
    executor = BenchExecutor(
        build_exact(4, 8), chip, slice_size=64, progress=lambda done, total: calls.append((done, total))
    )
    executor.run(_codes(150))
    assert chip.log == ["program", 64, 64, 22] * 5
    assert calls[0] == (64, 750)
    assert calls[-1] == (750, 750)
    assert len(calls) == 15


def test_empty_batches_touch_nothing():
    chip = FakeChip()
    executor = BenchExecutor(build_exact(4, 8), chip)
    assert executor.run(np.zeros((0, 4), dtype=int)).shape == (0,)
    assert executor.run_analog(np.zeros((0, 4), dtype=int)).shape == (0, 4)
    assert chip.log == []


def test_bad_codes_are_refused_before_anything_is_programmed():
    chip = FakeChip()
    with pytest.raises(NetworkError):
        BenchExecutor(build_exact(4, 8), chip).run([[0, 1, 2, 256]])
    assert chip.log == []


def test_analogue_outputs_show_the_predicted_error():
    network = build_exact(4, 8)
    executor = TwinExecutor(network, FakeChip(noise=1e-3))
    codes = _codes(20_000)
    errors = executor.run_analog(codes) - network.forward(network.prepare(codes))
    assert errors.std(axis=0) / 1e-3 == pytest.approx(executor.plan.noise_gain[-1], rel=0.05)


def test_noise_of_a_good_bench_makes_no_symbol_error():
    codes = _codes(5000)
    received = BenchExecutor(build_exact(4, 8), FakeChip(noise=0.003)).run(codes)
    assert symbol_error_rate(received, quantised_mean(codes), 8) == 0.0


def test_plans_can_be_smaller_than_the_chip_but_must_belong_to_the_network():
    network = build_exact(4, 8)
    chip = FakeChip(8)
    executor = TwinExecutor(network, chip, plan=tile(network, 4))
    assert np.array_equal(executor.run(_codes()), quantised_mean(_codes()))
    assert chip.log.count("program") == 9
    with pytest.raises(NetworkError, match="another network"):
        TwinExecutor(network, chip, plan=tile(build_exact(4, 8), 8))
    with pytest.raises(NetworkError, match="8 ports, the chip has 4"):
        TwinExecutor(network, FakeChip(4), plan=tile(network, 8))
    with pytest.raises(NetworkError, match="slice_size"):
        TwinExecutor(network, chip, slice_size=0)
    with pytest.raises(NetworkError, match="excess"):
        BenchExecutor(network, chip, excess=math.nan)


def test_readings_beyond_a_passive_chip_stop_the_bench_but_not_an_uncalibrated_run():
    network = build_exact(4, 8)
    chip = FakeChip(gain=3.0)
    with pytest.raises(CalibrationError, match=r"of tile 0 of 5 \(layer 0\) reads amplitude"):
        BenchExecutor(network, chip).run(_codes())
    assert chip.log.count("program") == 1
    codes = _codes()
    answers = BenchExecutor(network, FakeChip(gain=3.0), excess=math.inf).run(codes)
    assert symbol_error_rate(answers, quantised_mean(codes), 8) > 0.3


@pytest.mark.parametrize("kind", [TwinExecutor, BenchExecutor])
def test_runners_that_return_rubbish_are_reported(kind):
    class Deaf(FakeChip):
        def forward(self, amplitudes):
            return np.full((len(amplitudes), len(self.matrix)), np.nan)

    class Short(FakeChip):
        def forward(self, amplitudes):
            return super().forward(amplitudes)[:-1]

    with pytest.raises(CalibrationError, match="NaN or inf for tile 0"):
        kind(build_exact(4, 8), Deaf()).run(_codes())
    with pytest.raises(NetworkError, match="returned shape"):
        kind(build_exact(4, 8), Short()).run(_codes())


@pytest.mark.parametrize("kind", [TwinExecutor, BenchExecutor])
@pytest.mark.parametrize(
    "network",
    [
        CellChain(build_cell(), 4, 8),
        CellChain(build_cell(), 2, 5, "floor"),
        CellTree(build_cell(), (4, 4), 8),
        CellTree(build_cell(), (2, 4), 6, "floor"),
    ],
)
def test_chains_and_trees_of_cells_run_on_one_chip(kind, network):
    chip, calls = FakeChip(3), []
    executor = kind(network, chip, progress=lambda done, total: calls.append((done, total)))
    codes = np.random.default_rng(3).integers(0, 1 << network.bits, (300, executor.servers))
    assert np.array_equal(executor.run(codes), quantised_mean(codes, network.rounding))
    assert (executor.bits, executor.inputs) == (network.bits, -(-network.bits // 2))
    assert calls[-1][0] == calls[-1][1]
    assert executor.run(codes[:0]).shape == (0,)


def test_the_use_of_the_chip_is_counted():
    """A tree of 4 x 4 servers and 8 bits: four chains of 4 cells at once, then one of 5 cells."""
    chip = FakeChip(8)
    executor = TwinExecutor(CellTree(build_cell(), (4, 4), 8), chip)
    tiles = len(executor.plan.tiles)
    executor.run(np.zeros((10, 16), dtype=int))
    assert executor.use.reprogrammings == (4 + 5) * tiles == chip.log.count("program")
    assert executor.use.vectors == (4 * 10 * 4 + 10 * 5) * tiles
    assert executor.use.seconds > 0.0


def test_a_tree_has_no_analogue_symbols():
    with pytest.raises(NetworkError, match="receivers decide at each level"):
        TwinExecutor(CellTree(build_cell(), (4, 4), 8), FakeChip()).run_analog(np.zeros((1, 16), dtype=int))


class LoadingChip(FakeChip):
    """A runner that takes programmed matrices."""

    def load(self, programmed):
        self.matrix = programmed.matrix
        self.log.append("load")


def test_matrices_that_were_programmed_before_are_loaded():
    network, chip = build_exact(4, 8), LoadingChip()
    programmed = [SimpleNamespace(matrix=part.matrix) for part in tile(network, 8).tiles]
    executor = BenchExecutor(network, chip, programmed=programmed)
    assert np.array_equal(executor.run(_codes(20)), quantised_mean(_codes(20)))
    assert chip.log == ["load", 20] * 5
    with pytest.raises(NetworkError, match="do not fit the plan's tiles"):
        BenchExecutor(network, chip, programmed=programmed[1:])
    with pytest.raises(NetworkError, match="FakeChip cannot load programmed matrices"):
        BenchExecutor(network, FakeChip(), programmed=programmed)


@pytest.mark.parametrize("kind", [ExactExecutor, TableExecutor, TwinExecutor])
def test_answers_go_where_they_are_wanted(kind):
    exact = ExactExecutor(4, 8)
    executor = {ExactExecutor: lambda: exact, TableExecutor: lambda: TableExecutor.from_executor(exact)}.get(
        kind, lambda: TwinExecutor(build_exact(4, 8), FakeChip())
    )()
    codes, out = _codes(50), np.zeros(50, dtype=np.uint8)
    assert executor.run(codes, out=out) is out
    assert np.array_equal(out, quantised_mean(codes))
    for wrong in (np.zeros(49, np.uint8), np.zeros(50)):
        with pytest.raises(NetworkError, match="out has shape"):
            executor.run(codes, out=wrong)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([(1, 2), (4, 3), (17, 8), (5, 12), (3, 13), (86, 4), (2, 16)]), st.integers(0, 2**32 - 1))
def test_tables_of_every_shape_add_keys_and_fields_alike(shape, seed):
    """Spaces with fields of 2 and 4 bits and such without; sums that fit a byte and such that do not."""
    servers, bits = shape
    executor = ExactExecutor(servers, bits)
    space = InputSpace(servers, bits, executor.inputs)
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 1 << bits, space.size)
    codes = rng.integers(0, 1 << bits, (200, servers))
    codes[0], codes[1] = 0, (1 << bits) - 1
    index = space.keys[codes].sum(axis=1)
    assert np.array_equal(TableExecutor(space, table).run(codes), table[index])
