"""Noise of a reading where one photodiode hardly sees light."""

import numpy as np
import pytest

from calibration._electrical import noise_model

RELATIVE, FLOOR_W = 1e-3, 5e-9


@pytest.mark.parametrize("seed", range(5))
def test_a_dim_detector_does_not_pass_its_floor_off_as_relative_noise(seed):
    rng = np.random.default_rng(seed)
    power = np.array([*([9e-5] * 15), 12.0 * FLOOR_W])
    dark = FLOOR_W * rng.standard_normal((40, 16))
    lit = power + np.hypot(RELATIVE * power, FLOOR_W) * rng.standard_normal((60, 16))
    assert noise_model(dark, lit).relative == pytest.approx(RELATIVE, rel=0.15)
