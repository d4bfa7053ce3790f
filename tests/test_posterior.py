"""What a fit of a bare mesh says about its own errors: posterior samples, covariances, null space, effects."""

from functools import cache

import numpy as np
import pytest

from calibration._identifiability import identifiability
from calibration._mesh_descent import Readings
from calibration._mesh_fit import fit_mesh
from calibration._mesh_linear import MeshData, MeshPoint
from calibration._mesh_solve import NormalEquations
from calibration._posterior import MeshPosterior, cross_validate, effect_asked_for, held_out
from optinc_hw.errors import CalibrationError
from tests.mesh_truths import NOISE, exact, measured, quiet, rough, settings, truth


@cache
def fitted(ports=4, readings=120, arm_loss=0.0):
    rng = np.random.default_rng(4)
    chip = truth(ports, 4, arm_loss=arm_loss)
    data = measured(chip, readings, rng)
    fit = fit_mesh(data, rough(chip, rng), NOISE, quiet, rounds=1)
    return chip, fit, data, MeshPosterior(fit, data, NOISE)


def exact_covariance(fit, data):
    readings = Readings(data, NOISE)
    point = readings.point(fit.space, fit.vector)
    equations = NormalEquations(fit.space, point, readings.weight(readings.residual(point), 0.0))
    sigma = fit.space.sigma
    scaled = np.stack([sigma * equations.multiply(sigma * unit) for unit in np.eye(fit.space.size)])
    return np.linalg.inv(scaled) * sigma * sigma[:, None]


def test_covariance_and_samples_are_those_of_the_inverse_matrix():
    _, fit, data, posterior = fitted(ports=3, readings=60)
    covariance = exact_covariance(fit, data)
    which = [0, 3, fit.space.slices["eta"].start, fit.space.slices["crosstalk"].start + 5]
    expected = covariance[np.ix_(which, which)]
    scale = np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(posterior.covariance(which) / scale / scale[:, None], expected / scale / scale[:, None],
                               atol=0.02)  # fmt: skip
    samples = posterior.samples(25, np.random.default_rng(0))
    ratio = samples.std(axis=0) / np.sqrt(np.diagonal(covariance))
    assert np.median(ratio) == pytest.approx(1.0, abs=0.12)


def test_predictive_errors_are_those_that_happen():
    chip, fit, _, posterior = fitted()
    rng = np.random.default_rng(7)
    power_w, lit = settings(chip, 100, rng)
    samples = posterior.samples(6, rng)
    sigma = posterior.predictive_sigma(samples, power_w, lit)
    happened = exact(fit.parameters, power_w, lit) - exact(chip, power_w, lit)
    assert 0.6 < np.sqrt(np.mean(happened**2) / np.mean(sigma**2)) < 1.6
    happened_tvd = 0.5 * np.abs(happened).sum(axis=1).mean() / exact(chip, power_w, lit).sum(axis=1).mean()
    assert posterior.expected_tvd(samples, power_w, lit) == pytest.approx(happened_tvd, rel=0.6)


@pytest.mark.parametrize("ports", [3, 4])
def test_powers_do_not_see_the_phases_of_the_inputs(ports):
    _, fit, data, _ = fitted(ports=ports)
    report = identifiability(fit, data, NOISE)
    phases, couplers, losses, curvatures = report.unseen
    assert len(phases.directions) == ports - 1
    # A phase on one input is carried no further than to the first MZI that each mode meets.
    assert all(name.startswith(("mzi_0_", "mzi_1_", "mzi_2_0_")) and name.endswith("phi") for name in phases.names)
    assert len(couplers.directions) == 0
    assert len(losses.directions) > 0
    # The phis in front of everything do not show at all.
    assert curvatures.names == tuple(f"mzi_0_{mode}_phi" for mode in range(0, ports - 1, 2))
    assert len(curvatures.directions) == ports // 2
    text = str(report)
    assert f"{ports - 1} of {ports * (ports - 1)} combinations are not seen" in text
    assert "output phases" in text


def test_unseen_directions_change_no_reading():
    _, fit, data, _ = fitted()
    vector = fit.vector.copy()
    vector[fit.space.slices["offset"]] += 0.3 * identifiability(fit, data, NOISE).unseen[0].directions[0]
    moved = exact(fit.space.twin(vector), data.power_w, data.lit)
    np.testing.assert_allclose(moved, exact(fit.parameters, data.power_w, data.lit), atol=1e-9)


def test_effects_that_the_chip_has_are_asked_for_and_others_are_not():
    _, fit, data, _ = fitted(arm_loss=0.02)
    arms, second = (effect_asked_for(fit, data, NOISE, block) for block in ("arm_loss", "second_order"))
    assert arms.asked_for
    assert not second.asked_for
    assert "arm_loss: asked for" in str(arms)
    assert "second_order: not asked for" in str(second)


def test_an_effect_that_was_not_fitted_cannot_be_judged():
    _, fit, data, _ = fitted()
    with pytest.raises(CalibrationError, match="not free"):
        effect_asked_for(fit, data, NOISE, "nonsense")


def test_cross_validation_agrees_with_new_readings():
    chip, fit, data, _ = fitted(ports=3, readings=60)
    folds = cross_validate(data, fit.space.start, NOISE, 2, np.random.default_rng(0))
    assert len(folds.folds) == 2
    assert sum(fold.count for fold in folds.folds) == 60
    new = held_out(fit.parameters, measured(chip, 100, np.random.default_rng(8)), NOISE)
    assert 0.5 * new.tvd < folds.tvd < 20 * new.tvd
    assert folds.chi > 0.8
    with pytest.raises(CalibrationError, match="parts"):
        cross_validate(data, fit.space.start, NOISE, 1, np.random.default_rng(0))


def test_a_judgement_needs_a_complete_reading():
    _, fit, data, _ = fitted()
    blind = MeshData(data.power_w, data.lit, np.full_like(data.readings_w, np.nan))
    with pytest.raises(CalibrationError, match="nothing to judge"):
        held_out(fit.parameters, blind, NOISE)


def test_expected_residual_is_that_of_the_exact_covariance():
    chip, fit, data, posterior = fitted(ports=3, readings=60)
    new = measured(chip, 40, np.random.default_rng(5))
    point = MeshPoint(fit.space, fit.vector, new.power_w, new.lit)
    jacobian = np.stack([point.apply(unit).ravel() for unit in np.eye(fit.space.size)], axis=1)
    unsure = np.einsum("bi,ij,bj->b", jacobian, exact_covariance(fit, data), jacobian)
    wanted = np.sqrt(1.0 + np.mean(unsure / NOISE.sigma(point.predicted).ravel() ** 2))
    samples = posterior.samples(12, np.random.default_rng(2))
    assert posterior.expected_residual(samples, new.power_w, new.lit) == pytest.approx(wanted, rel=0.25)


def test_standard_deviations_of_heaters_are_about_the_exact_ones():
    _, fit, data, posterior = fitted(ports=3, readings=60)
    covariance, place = exact_covariance(fit, data), fit.space.slices
    growth = np.zeros((len(fit.parameters.offset), fit.space.size))
    growth[:, place["efficiency"]] = np.eye(len(growth))
    growth[:, place["common_efficiency"]] = 1.0
    exact_ones = (
        np.sqrt(np.diagonal(covariance)[place["offset"]]),
        np.sqrt(np.einsum("hi,ij,hj->h", growth, covariance, growth)) * fit.parameters.efficiency,
    )
    samples = posterior.samples(12, np.random.default_rng(2))
    for sigma, wanted in zip(posterior.heater_sigmas(samples), exact_ones, strict=True):
        ratio = sigma / wanted
        assert 0.7 < np.median(ratio) < 1.5
        assert np.all((ratio > 0.3) & (ratio < 3.0))
