"""The global fit: its Jacobian, its solver, what it recovers, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from twins import imperfect_twin

from calibration import NoiseModel, Settings, fit_twin, residual_over_noise
from calibration._linearised import LinearisedReadings, conjugate_gradients
from calibration._space import BLOCKS, HeatPaths, ParameterSpace
from calibration._twin_fit import NEIGHBOUR_PITCHES
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, ChipModel

NOISE = NoiseModel(relative=1e-3, floor_w=5e-9)


def silent(step, chi):
    pass


def synthetic(twin, count, seed, noise=NOISE):
    """Readings of random settings as a bench would take them."""
    rng = np.random.default_rng(seed)
    power = rng.uniform(0.0, 0.04, (count, len(twin.offset)))
    readings = ChipModel.from_parameters(twin).readings(twin, power)
    return Settings(power, readings + noise.sigma(readings) * rng.standard_normal(readings.shape))


def start_of(twin, seed, phase_error=0.05):
    """What the start-up stages would know: phases and amplitudes roughly, no crosstalk, perfect couplers."""
    rng = np.random.default_rng(seed)
    ideal = {name: np.full_like(getattr(twin, name), np.pi / 4) for name in ("input_eta", "mesh_eta", "attenuator_eta")}
    return replace(
        twin,
        offset=twin.offset + phase_error * rng.standard_normal(len(twin.offset)),
        efficiency=twin.efficiency * (1.0 + 0.005 * rng.standard_normal(len(twin.offset))),
        crosstalk=np.eye(len(twin.offset)),
        receiver_eta=np.full_like(twin.receiver_eta, np.pi / 4),
        gain=np.ones_like(twin.gain),
        mzi_transmission=np.full_like(twin.mzi_transmission, 0.983),
        **ideal,
    )


@pytest.fixture(scope="module")
def fitted():
    """A fit of a 3-port twin from a rough start."""
    twin = imperfect_twin(3, 5)
    steps = []
    fit = fit_twin(synthetic(twin, 300, 0), start_of(twin, 1), NOISE, lambda step, chi: steps.append((step, chi)))
    return twin, fit, steps


def test_the_fit_predicts_settings_that_it_has_not_seen(fitted):
    twin, fit, _ = fitted
    residual = residual_over_noise(fit.parameters, synthetic(twin, 200, 1), NOISE)
    # 1 is perfect; sqrt(1 + parameters / readings) is what even the right model pays for finite data.
    assert residual < 1.35
    assert fit.chi < 1.05
    assert residual_over_noise(twin, synthetic(twin, 200, 1), NOISE) == pytest.approx(1.0, abs=0.05)


def test_steps_are_reported_and_the_residual_falls(fitted):
    _, fit, steps = fitted
    numbers = [step for step, _ in steps]
    assert numbers == sorted(numbers)
    assert steps[-1][1] < 0.1 * steps[0][1]
    assert fit.steps == numbers[-1]


def test_efficiencies_lie_within_their_uncertainty(fitted):
    twin, fit, _ = fitted
    assert fit.offset_sigma.shape == fit.efficiency_sigma.shape == twin.offset.shape
    np.testing.assert_array_equal(np.diagonal(fit.parameters.crosstalk), 1.0)
    pull = (fit.parameters.efficiency - twin.efficiency) / fit.efficiency_sigma
    assert np.sqrt(np.median(pull**2)) < 5.0


def test_the_fit_is_reproducible(fitted):
    twin, fit, _ = fitted
    again = fit_twin(synthetic(twin, 300, 0), start_of(twin, 1), NOISE, silent)
    np.testing.assert_allclose(again.parameters.offset, fit.parameters.offset, rtol=1e-9)


def test_dark_readings_are_measured_and_not_fitted(fitted):
    twin, fit, _ = fitted
    np.testing.assert_array_equal(fit.parameters.dark_w, twin.dark_w)


def test_a_fit_on_a_wrong_chip_shows_in_the_residual():
    twin = imperfect_twin(2, 0)
    fit = fit_twin(synthetic(twin, 150, 0), start_of(twin, 1), NOISE, silent)
    assert residual_over_noise(fit.parameters, synthetic(imperfect_twin(2, 1), 50, 2), NOISE) > 50.0


def test_too_few_settings_are_refused():
    twin = imperfect_twin(3, 0)
    with pytest.raises(CalibrationError, match=r"24 readings cannot determine 38 .* take more settings"):
        fit_twin(synthetic(twin, 4, 0), twin, NOISE, silent)


@pytest.mark.parametrize("name", ["power_w", "readings_w"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_settings_that_are_not_finite_are_refused(name, value):
    twin = imperfect_twin(2, 0)
    data = synthetic(twin, 30, 0)
    spoilt = getattr(data, name).copy()
    spoilt[7, 2] = value
    with pytest.raises(CalibrationError, match="NaN or Inf"):
        fit_twin(replace(data, **{name: spoilt}), twin, NOISE, silent)


def point(ports=3, seed=0, settings=9):
    """A parameter space with a vector off its centre, and the settings to linearise at."""
    twin = imperfect_twin(ports, seed)
    data = synthetic(twin, settings, seed)
    space = ParameterSpace(twin, NEIGHBOUR_PITCHES, data.power_w.mean(axis=0))
    vector = space.centre + 0.3 * space.prior_sigma * np.random.default_rng(seed).standard_normal(len(space.centre))
    return space, vector, data


def linearised(space, vector, data):
    weight = 1.0 / NOISE.sigma(data.readings_w)
    return LinearisedReadings(space, space.parameters(vector), data.power_w, weight), weight


def test_the_space_begins_at_its_start():
    space, *_ = point()
    rebuilt = space.parameters(space.centre)
    for name in BLOCKS:
        np.testing.assert_allclose(getattr(rebuilt, name), getattr(space.start, name), rtol=1e-12, atol=1e-12)
    assert [name for name, _ in sorted(space.slices.items(), key=lambda item: item[1].start)] == list(BLOCKS)
    assert len(space.prior_sigma) == len(space.centre)
    assert (space.prior_sigma > 0.0).all()


@pytest.mark.parametrize("ports", [2, 3, 4])
def test_the_jacobian_agrees_with_finite_differences(ports):
    space, vector, data = point(ports)
    operator, weight = linearised(space, vector, data)
    rng, step = np.random.default_rng(0), 1e-6

    def readings(at):
        twin = space.parameters(at)
        return ChipModel.from_parameters(twin).readings(twin, data.power_w) * weight

    for name in BLOCKS:
        direction = np.zeros(len(vector))
        place = space.slices[name]
        direction[place] = rng.standard_normal(place.stop - place.start)
        numeric = (readings(vector + step * direction) - readings(vector - step * direction)) / (2.0 * step)
        analytic = operator.apply(direction)
        np.testing.assert_allclose(analytic, numeric, atol=1e-5 * np.abs(numeric).max(), err_msg=name)
        assert np.abs(numeric).max() > 0.0


def dense_jacobian(operator, size):
    return np.stack([operator.apply(unit).ravel() for unit in np.eye(size)], axis=1)


def test_transposed_products_and_blocks_agree_with_the_dense_jacobian():
    space, vector, data = point(2)
    operator, _ = linearised(space, vector, data)
    jacobian = dense_jacobian(operator, len(vector))
    residual = np.random.default_rng(1).standard_normal(data.readings_w.shape)
    scale = np.abs(jacobian).max()
    np.testing.assert_allclose(operator.apply_transposed(residual), jacobian.T @ residual.ravel(), atol=1e-9 * scale)
    pairs = space.slices["crosstalk"]
    kept = np.r_[0 : pairs.start, pairs.stop : len(vector)]
    gauss = jacobian.T @ jacobian
    np.testing.assert_allclose(operator.dense_block(), gauss[np.ix_(kept, kept)], atol=1e-9 * scale**2)


def test_conjugate_gradients_solve_the_normal_equations():
    space, vector, data = point(2, settings=200)
    operator, _ = linearised(space, vector, data)
    precision = 1.0 / space.prior_sigma**2
    jacobian = dense_jacobian(operator, len(vector))
    right = operator.apply_transposed(np.random.default_rng(2).standard_normal(data.readings_w.shape))
    solve = operator.solver(precision)
    matrix = jacobian.T @ jacobian + np.diag(precision)
    exact = np.linalg.solve(matrix, right)
    error = solve(right, 0.0) - exact
    assert error @ matrix @ error < 1e-4 * (exact @ matrix @ exact)
    shorter = solve(right, 10.0)
    assert shorter @ matrix @ shorter < 0.1 * (exact @ matrix @ exact)
    assert shorter @ right > 0.0


def test_conjugate_gradients_of_nothing_is_nothing():
    solution = conjugate_gradients(lambda v: 2.0 * v, lambda v: v, np.zeros(5))
    np.testing.assert_array_equal(solution, np.zeros(5))


def test_heat_paths_reach_neighbours_and_never_a_heaters_own_arm():
    layout = ChipLayout(4)
    paths = HeatPaths.near(layout, NEIGHBOUR_PITCHES)
    heaters = len(layout.heaters)
    assert (paths.distance < NEIGHBOUR_PITCHES).all()
    assert not ((paths.arm == paths.heater) & (paths.arm < heaters)).any()
    assert (np.diff(paths.heater) >= 0).all()
    assert layout.lo not in set(paths.heater)
    assert set(paths.heater) == set(range(heaters)) - {layout.lo}
    nothing = HeatPaths.near(layout, 0.4)
    assert not nothing.crosstalk(np.zeros(len(nothing.arm))).any()


def test_a_strength_between_heated_arms_is_one_entry_of_the_crosstalk():
    layout = ChipLayout(3)
    paths = HeatPaths.near(layout, NEIGHBOUR_PITCHES)
    heated = np.flatnonzero(paths.arm < len(layout.heaters))
    for pair in heated[:: max(1, len(heated) // 7)]:
        strength = np.zeros(len(paths.arm))
        strength[pair] = 0.01
        expected = np.zeros((len(layout.heaters),) * 2)
        expected[paths.arm[pair], paths.heater[pair]] = 0.01
        np.testing.assert_array_equal(paths.crosstalk(strength), expected)


def test_noise_adds_in_squares():
    noise = NoiseModel(relative=0.03, floor_w=4e-9)
    np.testing.assert_allclose(noise.sigma(np.array([0.0, 1e-7, -1e-7])), [4e-9, 5e-9, 5e-9])
