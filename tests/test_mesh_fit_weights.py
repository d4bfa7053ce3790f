"""Weights of readings while the model of a bare mesh is still poor: an error of amplitudes counts alike everywhere."""

import numpy as np
import pytest

from calibration._mesh_descent import Readings
from calibration._mesh_linear import MeshData
from calibration._twin_fit import NoiseModel

ERROR = 1e-3
"""Error of field amplitudes, in sqrt(W)."""


def wrong_fields(readings=4000, ports=3):
    """Readings from dark to bright in W and the errors of powers from fields that are wrong alike."""
    rng = np.random.default_rng(0)
    power = 10.0 ** rng.uniform(-9.0, -2.0, (readings, ports))
    wrong = ERROR * (rng.standard_normal(power.shape) + 1j * rng.standard_normal(power.shape)) / np.sqrt(2.0)
    residual = np.abs(np.sqrt(power) + wrong) ** 2 - power
    data = MeshData(np.zeros((readings, 1)), np.zeros(readings, dtype=np.intp), power)
    return Readings(data, NoiseModel(1e-3, 1e-9)), power, residual


def test_wrong_fields_weigh_alike_in_dark_and_bright_readings():
    readings, power, residual = wrong_fields()
    weighted = residual * readings.weight(residual, 1.0)
    for dark, bright in ((1e-9, 1e-7), (1e-7, 1e-5), (1e-5, 1e-3), (1e-3, 1e-2)):
        part = weighted[(power > dark) & (power < bright)]
        assert 0.5 < np.sqrt(np.mean(part**2)) < 1.5


def test_weights_without_share_are_those_of_the_noise():
    readings, _, residual = wrong_fields()
    np.testing.assert_allclose(readings.weight(residual, 0.0), 1.0 / readings.sigma)


def test_a_perfect_model_needs_no_inflated_noise():
    readings, power, _ = wrong_fields()
    np.testing.assert_allclose(readings.weight(np.zeros_like(power), 1.0), 1.0 / readings.sigma)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_invalid_readings_have_no_weight(share):
    data = MeshData(np.zeros((2, 1)), np.zeros(2, dtype=np.intp), np.array([[1e-3, np.nan], [0.0, 1e-4]]))
    weight = Readings(data, NoiseModel(1e-3, 1e-9)).weight(np.full((2, 2), 1e-5), share)
    assert weight[0, 1] == 0.0
    assert np.isfinite(weight).all()
    assert (weight > 0.0).sum() == 3
