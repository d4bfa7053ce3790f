"""The pure parts of the start-up stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration._electrical import noise_model
from calibration._optical import affine_phase
from optinc_hw.errors import CalibrationError

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.floats(1.0, 400.0), st.integers(6, 30))
def test_a_phase_enters_a_field_affinely(seed, efficiency, points):
    rng = np.random.default_rng(seed)
    power = np.arange(points) / points * 2.0 * np.pi / efficiency
    c0, c1 = (complex(*rng.standard_normal(2)) for _ in range(2))
    found0, found1 = affine_phase(power, c0 + c1 * np.exp(1j * efficiency * power), efficiency)
    assert found0 == pytest.approx(c0, abs=1e-9)
    assert found1 == pytest.approx(c1, abs=1e-9)


def repeats(rng, dark=0.0, light=1e-5, relative=1e-3, floor=5e-9, count=4000):
    quiet = dark + floor * rng.standard_normal((count, 6))
    power = np.linspace(0.5, 2.0, 6) * light
    lit = power + np.hypot(relative * power, floor) * rng.standard_normal((count, 6))
    return quiet, lit


def test_noise_is_split_into_floor_and_relative_part():
    noise = noise_model(*repeats(np.random.default_rng(0)))
    assert noise.floor_w == pytest.approx(5e-9, rel=0.03)
    assert noise.relative == pytest.approx(1e-3, rel=0.03)


def test_readings_without_noise_still_have_a_sigma():
    noise = noise_model(np.zeros((5, 4)), np.ones((5, 4)))
    assert noise.relative > 0.0
    assert noise.floor_w > 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"light": 0.0}, "all detectors are dark although the light is on; check laser, shutter"),
        ({"dark": 1e-3}, r"see 0\.006 W with the light off .*shutter"),
        ({"count": 1}, "at least two"),
    ],
)
def test_light_that_does_not_come_or_does_not_go_is_named(change, message):
    with pytest.raises(CalibrationError, match=message):
        noise_model(*repeats(np.random.default_rng(0), **change))
