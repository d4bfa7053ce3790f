"""Networks retrained through chips: against finite differences, brute force, and hidden chips with 8-bit drivers."""

import itertools
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from twins import imperfect_twin

from calibration import HeaterDac, RetrainingSettings, TwinDoubt, judge, retrain
from calibration._retrain_file import identity, load_tiles
from calibration._retrain_linear import TwinProducts
from calibration._retrain_steps import LinearModel
from calibration._retrain_twin import LearningTwin
from optinc_hw.bench import BenchTileRunner, TwinTileRunner
from optinc_hw.errors import CalibrationError
from optinc_hw.onn import build_cell, build_exact, tile
from optinc_hw.photonics import voltage_from_power

LIMIT_W = 0.055
QUICK = RetrainingSettings(judged=60)


@pytest.fixture
def hidden(monkeypatch):
    """Hidden chips of 4 ports, and twins that are wrong: (runner, twin, dac) of a seed."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import _retrained
    from _truth import true_homodyne_twin

    from simulated_instruments import HiddenChip

    def made(seed, ports=4):
        chip = HiddenChip.from_seed(seed, ports, effects=_retrained.effects(seed))
        twin = _retrained.wrong_twin(true_homodyne_twin(chip, _retrained.LASER_W), np.random.default_rng(seed))
        nominal = chip.effects.heater_resistance_ohm, chip.effects.resistance_growth_per_w
        step = _retrained.step_v(*nominal, _retrained.DRIVER_BITS)
        fine = _retrained.step_v(*nominal, _retrained.GENERATOR_BITS)
        law = chip.parameters.resistance_ohm, chip.parameters.resistance_growth_per_w
        return _retrained.HiddenRunner(chip, step, fine), twin, HeaterDac(step, *law)

    return made


def settings_of(twin, batch, rng):
    """Powers (batch, H) that differ in the generator alone, and scales of three outputs."""
    power = np.tile(rng.uniform(0.0, 0.04, len(twin.offset)), (batch, 1))
    generator = 2 * twin.layout.modulators
    power[:, :generator] = rng.uniform(0.0, 0.04, (batch, generator))
    return power, np.array([0.01, 0.02, 0.03])


def products(twin, power, scale):
    return TwinProducts(twin, scale).values(power)


@pytest.mark.parametrize(("kind", "field"), [("by_coupler", "mesh_eta"), ("by_input_coupler", "input_eta")])
def test_slopes_by_couplers_are_those_of_finite_differences(kind, field):
    twin, rng = imperfect_twin(4, 1), np.random.default_rng(0)
    power, scale = settings_of(twin, 5, rng)
    found = getattr(TwinProducts(twin, scale).slopes(power), kind)
    for k in range(getattr(twin, field).size):
        away = np.zeros(getattr(twin, field).size)
        away[k] = 1e-5
        sides = [
            products(replace(twin, **{field: getattr(twin, field) + sign * away.reshape(-1, 2)}), power, scale)
            for sign in (1.0, -1.0)
        ]
        np.testing.assert_allclose(found[..., k], (sides[0] - sides[1]) / 2e-5, atol=1e-6)


def test_slopes_by_phases_are_those_of_finite_differences():
    twin, rng = imperfect_twin(4, 1), np.random.default_rng(0)
    power, scale = settings_of(twin, 5, rng)
    found = TwinProducts(twin, scale).slopes(power)
    np.testing.assert_allclose(found.values, products(twin, power, scale), atol=1e-12)
    moved = [heater for heater in range(len(twin.offset)) if heater != twin.layout.lo]
    for heater in moved:
        away = np.zeros(len(twin.offset))
        away[heater] = 1e-5
        sides = [products(replace(twin, offset=twin.offset + sign * away), power, scale) for sign in (1.0, -1.0)]
        np.testing.assert_allclose(found.by_phase[..., heater], (sides[0] - sides[1]) / 2e-5, atol=1e-6)
    np.testing.assert_allclose(TwinProducts(twin, scale).by_phase(power), found.by_phase, atol=1e-12)


def linear_model(rng, size, rows):
    slopes = rng.standard_normal((rows, size))
    return LinearModel(
        rng.standard_normal(rows), slopes, np.full(size, 1e-3), rng.uniform(0, 4, size), np.full(size, 4.0)
    )


def cost(model, settings):
    return float(np.sum((model.error + model.slopes @ (settings - model.settings)) ** 2))


def rounded(model):
    return np.clip(np.rint(model.solve(1e-6, whole=False)), 0.0, 4.0)


@pytest.mark.parametrize("seed", range(10))
def test_whole_settings_are_at_least_as_good_as_rounded_ones(seed):
    model = linear_model(np.random.default_rng(seed), 4, 3)
    found = model.solve(1e-6, whole=True)
    assert ((found == np.rint(found)) & (found >= 0.0) & (found <= 4.0)).all()
    assert cost(model, found) <= cost(model, rounded(model)) + 1e-9


def test_whole_settings_are_nearly_the_best_in_the_mean():
    """Against the best of all 5^4 whole settings, by brute force: rounding alone costs twice as much as that."""
    grid, costs = [np.array(point, float) for point in itertools.product(range(5), repeat=4)], []
    for seed in range(40):
        model = linear_model(np.random.default_rng(seed), 4, 3)
        best = min(cost(model, point) for point in grid)
        costs.append([best, cost(model, model.solve(1e-6, whole=True)), cost(model, rounded(model))])
    best, found, simple = np.mean(costs, axis=0)
    assert found < 1.35 * best
    assert simple > 2.0 * best


def test_continuous_settings_solve_the_normal_equations():
    rng = np.random.default_rng(0)
    model = replace(linear_model(rng, 3, 8), settings=np.full(3, 2.0), error=0.1 * rng.standard_normal(8))
    gram = model.slopes.T @ model.slopes + 0.5 * np.diag(model.radians**2)
    by_hand = model.settings - np.linalg.solve(gram, model.slopes.T @ model.error)
    np.testing.assert_allclose(model.solve(0.5, whole=False), by_hand, rtol=1e-9)


def test_a_twin_learns_to_predict_settings_that_it_has_not_seen():
    truth, rng = imperfect_twin(4, 2), np.random.default_rng(3)
    offset, off = truth.offset.copy(), 0.05 * rng.standard_normal(len(truth.offset))
    off[[*truth.layout.attenuator, truth.layout.lo]] = 0.0
    wrong = replace(
        truth, offset=offset + off, mesh_eta=truth.mesh_eta + 0.03 * rng.standard_normal(truth.mesh_eta.shape)
    )
    known = LearningTwin(wrong, TwinDoubt(), 12)
    unseen = settings_of(truth, 10, rng)
    for _ in range(12):
        power, scale = settings_of(truth, 30, rng)
        known.learn(power, products(truth, power, scale), scale)
    errors = [
        np.sqrt(np.mean((products(twin, *unseen) - products(truth, *unseen)) ** 2))
        for twin in (wrong, known.parameters)
    ]
    assert errors[1] < errors[0] / 5.0


@pytest.mark.parametrize("seed", [0, 1])
def test_a_cell_is_right_on_a_hidden_chip_after_retraining(seed, hidden):
    runner, twin, dac = hidden(seed)
    plan = tile(build_cell(4, slope=8.0), 4)
    found = retrain(plan, runner, twin, dac, QUICK, max_power_w=LIMIT_W)
    assert found.before.rate > 0.1
    assert found.after.wrong == 0
    assert found.after.margin > 0.3
    again = judge(plan, [part.programmed for part in found.tiles], runner, inputs=60, seed=7)
    assert again.wrong == 0
    static = slice(2 * twin.layout.modulators, None)
    for part in found.tiles:
        power = part.programmed.static_power_w
        steps = voltage_from_power(power, dac.resistance_ohm, dac.beta_per_w)[static] / dac.step_v
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
        assert (power <= LIMIT_W).all()
        assert part.after < part.before
    assert "symbols wrong" in str(found)


def test_on_the_twin_alone_nothing_is_asked_of_a_chip(calibrated):
    """The fast path: drivers of 6 bits spoil a network on the twin, and retraining mends it."""
    record, plan = calibrated.record, tile(build_exact(4, 4, slope=8.0), 4)
    law = record.resistance_ohm, record.resistance_beta_per_w
    coarse = HeaterDac(float(voltage_from_power(LIMIT_W, law[0].max(), 0.8)) / 2**6, *law)
    found = retrain(plan, TwinTileRunner(record), record.twin(), coarse, QUICK, max_power_w=LIMIT_W)
    assert found.before.wrong > 0
    assert found.after.wrong == 0
    assert found.after.margin > found.before.margin + 0.1


def test_on_a_bench_through_its_instruments(calibrated):
    with calibrated.bench() as bench:
        dac = HeaterDac.of_bench(bench, float(voltage_from_power(LIMIT_W, 1250.0, 0.8)) / 2**8)
        twin = calibrated.record.twin()
        rough = replace(twin, mesh_eta=np.full_like(twin.mesh_eta, np.pi / 4), crosstalk=np.eye(len(twin.offset)))
        runner = BenchTileRunner(bench)
        found = retrain(
            tile(build_cell(4, slope=8.0), 4),
            runner,
            rough,
            dac,
            QUICK,
            max_power_w=np.minimum(bench.max_power, LIMIT_W),
        )
    assert found.after.wrong == 0
    assert found.after.margin > max(found.before.margin, 0.2)


def test_an_interrupted_retraining_goes_on_after_its_finished_tiles(hidden, tmp_path):
    runner, twin, dac = hidden(2)
    plan, file = tile(build_cell(4, slope=8.0), 4), tmp_path / "tiles.safetensors"

    def stop(_stage, done, _total):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrain(plan, runner, twin, dac, QUICK, max_power_w=LIMIT_W, checkpoint=file, progress=stop)
    begun = identity(plan, twin, dac, np.full(len(twin.offset), LIMIT_W), asdict(QUICK))
    (first,) = load_tiles(file, plan, twin, begun)
    found = retrain(plan, runner, twin, dac, QUICK, max_power_w=LIMIT_W, checkpoint=file, resume=True)
    np.testing.assert_array_equal(found.tiles[0].programmed.static_power_w, first.programmed.static_power_w)
    assert found.after.wrong == 0
    stored = load_tiles(file, plan, twin, begun)
    assert judge(plan, [part.programmed for part in stored], runner, inputs=60).wrong == 0
    for one, other in zip(stored, found.tiles, strict=True):
        np.testing.assert_array_equal(one.programmed.parameters.offset, other.programmed.parameters.offset)


def test_what_makes_no_sense_is_refused(hidden, tmp_path):
    runner, twin, dac = hidden(0)
    with pytest.raises(CalibrationError, match="the plan is for 8 ports, the chip has 4"):
        retrain(tile(build_exact(4, 8), 8), runner, twin, dac)
    plan = tile(build_cell(4), 4)
    with pytest.raises(CalibrationError, match="name the checkpoint"):
        retrain(plan, runner, twin, dac, resume=True)
    (tmp_path / "odd").write_bytes(b"no tensors")
    with pytest.raises(CalibrationError, match="no readable file of retrained tiles"):
        retrain(plan, runner, twin, dac, checkpoint=tmp_path / "odd", resume=True)


def test_a_bench_takes_no_matrix_of_another_chip(calibrated, hidden):
    _, twin, dac = hidden(0, ports=2)
    found = retrain(tile(build_cell(4), 2), _Perfect(twin), twin, dac, replace(QUICK, settings=1), max_power_w=LIMIT_W)
    with calibrated.bench() as bench, pytest.raises(CalibrationError, match="of another chip"):
        BenchTileRunner(bench).load(found.tiles[0].programmed)


class _Perfect:
    """A chip that multiplies as asked."""

    def __init__(self, twin):
        self.ports, self._programmed = twin.ports, None

    def load(self, programmed):
        self._programmed = programmed

    def forward(self, amplitudes):
        return amplitudes @ self._programmed.matrix.T
