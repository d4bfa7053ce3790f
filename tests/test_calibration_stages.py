"""The pure parts of the start-up stages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration._electrical import noise_model
from calibration._optical import affine_phase, balance, line
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import MeshPhases, RectangularLayout, haar_unitary, mesh_matrix

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.floats(1.0, 400.0), st.integers(6, 30))
def test_a_phase_enters_a_field_affinely(seed, efficiency, points):
    rng = np.random.default_rng(seed)
    power = np.arange(points) / points * 2.0 * np.pi / efficiency
    c0, c1 = (complex(*rng.standard_normal(2)) for _ in range(2))
    found0, found1, rms = affine_phase(power, c0 + c1 * np.exp(1j * efficiency * power), efficiency)
    assert found0 == pytest.approx(c0, abs=1e-9)
    assert found1 == pytest.approx(c1, abs=1e-9)
    assert rms < 1e-9


def test_the_residual_of_an_affine_fit_is_the_noise():
    rng = np.random.default_rng(0)
    power = np.linspace(0.0, 0.04, 400, endpoint=False)
    noise = 0.01 * (rng.standard_normal(400) + 1j * rng.standard_normal(400))
    *_, rms = affine_phase(power, 1.0 + np.exp(1j * 157.0 * power) + noise, 157.0)
    assert rms == pytest.approx(0.01 * np.sqrt(2.0), rel=0.1)


def cross_state(layout):
    zeros = np.zeros(len(layout.mzis))
    return MeshPhases(layout, zeros, zeros, np.zeros(layout.ports))


@pytest.mark.parametrize("ports", range(2, 10))
def test_lines_lead_through_the_cross_state(ports):
    layout = RectangularLayout(ports)
    arriving = np.abs(mesh_matrix(cross_state(layout))) ** 2
    met = [line(layout, port) for port in range(ports)]
    for port in range(ports):
        np.testing.assert_allclose(arriving[:, port], np.eye(ports)[ports - 1 - port], atol=1e-12)
        columns = [layout.mzis[k][0] for k in met[port]]
        assert columns == sorted(set(columns))
        assert len(met[port]) == ports - 1
    for first in range(ports):
        for second in range(first):
            assert len(set(met[first]) & set(met[second])) == 1  # every pair of lines crosses exactly once
    assert set().union(*met) == set(range(len(layout.mzis)))


@settings(max_examples=25)
@given(st.integers(2, 8), SEEDS)
def test_only_one_path_leads_along_each_line_once_the_earlier_ones_cross(ports, seed):
    """The field at a line's output is a product of one factor per MZI of the line, whatever the rest does."""
    rng = np.random.default_rng(seed)
    layout = RectangularLayout(ports)
    known = set()
    for port in range(ports):
        unknown = [k for k in line(layout, port) if k not in known]
        theta = rng.uniform(0.0, 2.0 * np.pi, len(layout.mzis))
        theta[list(known)] = 0.0
        phi = rng.uniform(0.0, 2.0 * np.pi, len(layout.mzis))
        field = mesh_matrix(MeshPhases(layout, theta, phi, np.zeros(ports)))[ports - 1 - port, port]
        assert abs(field) == pytest.approx(np.prod(np.abs(np.cos(theta[unknown] / 2.0))), abs=1e-12)
        known.update(unknown)


@given(st.integers(2, 8), SEEDS)
def test_balancing_removes_losses_at_the_ports(ports, seed):
    rng = np.random.default_rng(seed)
    unitary = haar_unitary(ports, rng)
    left, right = rng.uniform(0.2, 5.0, (2, ports))
    balanced = balance(left[:, None] * unitary * right)
    np.testing.assert_allclose(np.linalg.norm(balanced, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.angle(balanced * unitary.conj()), 0.0, atol=1e-6)


def test_balancing_recovers_the_unitary_of_half_split_meshes():
    layout = RectangularLayout(8)
    rng = np.random.default_rng(0)
    k = len(layout.mzis)
    phases = MeshPhases(layout, np.full(k, np.pi / 2), rng.uniform(0, 6, k), rng.uniform(0, 6, 8))
    unitary = mesh_matrix(phases)
    left, right = rng.uniform(0.5, 1.0, (2, 8))
    np.testing.assert_allclose(balance(left[:, None] * unitary * right), unitary, atol=1e-9)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_dark_port_is_refused(axis):
    matrix = haar_unitary(4, np.random.default_rng(0))
    matrix[(2, slice(None)) if axis else (slice(None), 2)] = 0.0
    with pytest.raises(CalibrationError, match="a port of the measured matrix is dark; check"):
        balance(matrix)


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
