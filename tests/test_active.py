"""Active design: the candidates it draws and the settings it prefers."""

from functools import cache

import numpy as np
import pytest

from calibration._active import choose_settings, random_candidates
from calibration._mesh_fit import fit_mesh
from calibration._posterior import MeshPosterior
from optinc_hw.errors import CalibrationError
from tests.mesh_truths import NOISE, P_PI, measured, quiet, rough, truth


@cache
def fitted():
    rng = np.random.default_rng(6)
    chip = truth(3, 6)
    data = measured(chip, 40, rng)
    fit = fit_mesh(data, rough(chip, rng), NOISE, quiet, rounds=1)
    posterior = MeshPosterior(fit, data, NOISE)
    return posterior, posterior.samples(12, rng), data


def test_candidates_respect_the_limits():
    limits = np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06])
    power_w, lit = random_candidates(300, 3, limits, 0.08, np.random.default_rng(0))
    assert np.all(power_w >= 0.0)
    assert np.all(power_w <= limits)
    assert power_w.sum(axis=1).max() <= 0.08 * (1 + 1e-12)
    assert np.bincount(lit).tolist() == [100, 100, 100]


def test_a_setting_is_not_asked_for_twice_as_if_it_told_twice():
    posterior, samples, _ = fitted()
    power_w, lit = random_candidates(6, 3, np.full(6, 2 * P_PI), 1.0, np.random.default_rng(1))
    twice = np.concatenate([power_w, power_w]), np.concatenate([lit, lit])
    design = choose_settings(posterior, NOISE, *twice, 3, samples)
    assert len(set(design.chosen % 6)) == 3
    assert design.chosen[0] % 6 == np.argmax(design.information[:6])


def test_settings_that_were_measured_tell_less_than_new_ones():
    posterior, samples, data = fitted()
    new = random_candidates(40, 3, np.full(6, 2 * P_PI), 1.0, np.random.default_rng(2))
    power_w, lit = (np.concatenate(pair) for pair in zip((data.power_w, data.lit), new, strict=True))
    design = choose_settings(posterior, NOISE, power_w, lit, 10, samples)
    assert np.mean(design.information[40:]) > np.mean(design.information[:40])
    assert np.mean(design.information[design.chosen]) > np.mean(design.information)


@pytest.mark.parametrize("count", [0, 5])
def test_more_settings_than_candidates_cannot_be_chosen(count):
    posterior, samples, data = fitted()
    with pytest.raises(CalibrationError, match="candidates"):
        choose_settings(posterior, NOISE, data.power_w[:4], data.lit[:4], count, samples)
