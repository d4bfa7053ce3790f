"""MZIs and meshes: by hand, by dense products, and by property."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import (
    MeshImperfections,
    MeshPhases,
    RectangularLayout,
    coupler_matrix,
    mesh_matrix,
    mzi_matrix,
)

SEEDS = st.integers(0, 2**32 - 1)
TWO_PI = 2.0 * math.pi


def random_phases(layout, rng):
    k = len(layout.mzis)
    return MeshPhases(layout, *(rng.uniform(0, TWO_PI, size) for size in (k, k, layout.ports)))


def random_imperfections(layout, rng):
    k = len(layout.mzis)
    eta = math.pi / 4 + 0.1 * rng.standard_normal((2, k))
    return MeshImperfections(eta[0], eta[1], rng.uniform(0.9, 1.0, k))


def test_coupler_by_hand():
    np.testing.assert_allclose(coupler_matrix(0.0), np.eye(2), atol=1e-16)
    np.testing.assert_allclose(coupler_matrix(), np.array([[1, 1j], [1j, 1]]) / math.sqrt(2), atol=1e-16)
    np.testing.assert_allclose(coupler_matrix(math.pi / 2), [[0, 1j], [1j, 0]], atol=1e-16)
    assert coupler_matrix(np.zeros((3, 4))).shape == (3, 4, 2, 2)


def test_cross_and_bar_states_by_hand():
    np.testing.assert_allclose(mzi_matrix(0.0, 0.0), [[0, 1j], [1j, 0]], atol=1e-15)
    np.testing.assert_allclose(mzi_matrix(math.pi, 0.0), [[-1, 0], [0, 1]], atol=1e-15)
    # An external phase acts on the upper input alone, before the MZI.
    np.testing.assert_allclose(mzi_matrix(0.0, math.pi / 2), [[0, 1j], [-1, 0]], atol=1e-15)


@given(st.floats(-10, 10), st.floats(-10, 10))
def test_mzi_formula_of_ideal_couplers(theta, phi):
    half, outer = theta / 2, np.exp(1j * phi)
    expected = (
        1j
        * np.exp(1j * half)
        * np.array([[outer * math.sin(half), math.cos(half)], [outer * math.cos(half), -math.sin(half)]])
    )
    np.testing.assert_allclose(mzi_matrix(theta, phi), expected, atol=1e-14)


@given(*(st.floats(-7, 7),) * 4)
def test_mzi_is_the_product_of_its_parts(theta, phi, eta_in, eta_out):
    product = (
        coupler_matrix(eta_out)
        @ np.diag([np.exp(1j * theta), 1.0])
        @ coupler_matrix(eta_in)
        @ np.diag([np.exp(1j * phi), 1.0])
    )
    np.testing.assert_allclose(mzi_matrix(theta, phi, eta_in, eta_out), product, atol=1e-14)


def test_mzi_broadcasts():
    assert mzi_matrix(np.zeros(5), 0.1).shape == (5, 2, 2)
    assert mzi_matrix(np.zeros((3, 1)), np.zeros(4)).shape == (3, 4, 2, 2)


@given(st.integers(2, 9), SEEDS)
def test_mesh_matrix_is_the_dense_product(ports, seed):
    rng = np.random.default_rng(seed)
    layout = RectangularLayout(ports)
    phases, flaws = random_phases(layout, rng), random_imperfections(layout, rng)
    product = np.eye(ports, dtype=complex)
    for k, (_, mode) in enumerate(layout.mzis):
        cell = np.eye(ports, dtype=complex)
        block = mzi_matrix(phases.theta[k], phases.phi[k], flaws.eta_in[k], flaws.eta_out[k])
        cell[mode : mode + 2, mode : mode + 2] = flaws.transmission[k] * block
        product = cell @ product
    product = np.diag(np.exp(1j * phases.output)) @ product
    np.testing.assert_allclose(mesh_matrix(phases, flaws), product, atol=1e-13)


@pytest.mark.parametrize("name", ["theta", "phi", "output"])
@pytest.mark.parametrize(
    ("value", "message"), [(np.zeros(7), r"shape \(7,\)"), (np.full(3, np.nan), "NaN or Inf"), (0.0, r"shape \(\)")]
)
def test_phases_of_wrong_shape_or_value_are_named(name, value, message):
    values = {part: np.zeros(3) for part in ("theta", "phi", "output")} | {name: value}
    with pytest.raises(MatrixError, match=f"{name} .*{message}"):
        MeshPhases(RectangularLayout(3), **values)


def test_imperfections_of_another_mesh_are_refused():
    layout = RectangularLayout(4)
    phases = random_phases(layout, np.random.default_rng(0))
    with pytest.raises(MatrixError, match=r"eta_in has shape \(3,\), the layout needs \(6,\)"):
        mesh_matrix(phases, MeshImperfections.ideal(RectangularLayout(3)))


@settings(max_examples=20)
@given(st.integers(2, 9), SEEDS)
def test_lossless_meshes_are_unitary_and_losses_only_take_away(ports, seed):
    rng = np.random.default_rng(seed)
    layout = RectangularLayout(ports)
    phases, flaws = random_phases(layout, rng), random_imperfections(layout, rng)
    lossless = mesh_matrix(phases, MeshImperfections(flaws.eta_in, flaws.eta_out, np.ones(len(layout.mzis))))
    np.testing.assert_allclose(lossless.conj().T @ lossless, np.eye(ports), atol=1e-13)
    assert np.linalg.norm(mesh_matrix(phases, flaws), 2) <= 1.0 + 1e-12


def test_m09_a_mesh_of_two_hundred_ports_is_the_product_of_its_mzis():
    """Its time is in `benchmarks/mesh.py`; here it must be right at a size where others go component by component."""
    layout, rng = RectangularLayout(200), np.random.default_rng(9)
    phases, flaws = random_phases(layout, rng), random_imperfections(layout, rng)
    cells = flaws.transmission[:, None, None] * mzi_matrix(phases.theta, phases.phi, flaws.eta_in, flaws.eta_out)
    product = np.eye(200, dtype=complex)
    for (_, mode), cell in zip(layout.mzis, cells, strict=True):
        product[mode : mode + 2] = cell @ product[mode : mode + 2]
    product = np.exp(1j * phases.output)[:, None] * product
    np.testing.assert_allclose(mesh_matrix(phases, flaws), product, atol=1e-12)


def test_m08_aliases_that_numpy_removed_are_found_by_warnings_and_by_the_linter():
    settings_of = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["tool"]
    assert settings_of["pytest"]["ini_options"]["filterwarnings"] == ["error"]
    assert "NPY" in settings_of["ruff"]["lint"]["select"]
