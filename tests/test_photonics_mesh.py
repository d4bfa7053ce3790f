"""MZIs, meshes and decomposition: by hand, by dense products, by an independent library, and by property."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interferometer import Beamsplitter, Interferometer, square_decomposition

from optinc_hw.errors import MatrixError, OptincError
from optinc_hw.photonics import (
    MeshImperfections,
    MeshPhases,
    RectangularLayout,
    coupler_matrix,
    decompose,
    haar_unitary,
    mesh_matrix,
    mzi_matrix,
    nearest_unitary,
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


def library_mesh(phases):
    """The mesh in the library `interferometer`: its element is B = [[e^ip cos a, -sin a], [e^ip sin a, cos a]].

    Ours is T(t, f) = -i e^{it/2} B(pi/2 - t/2, f + pi).  The common phase has no element there, so it is carried along
    to the outputs, and turns the external phases that it meets.
    """
    mesh = Interferometer()
    carried = np.zeros(phases.layout.ports)
    for k, (_, mode) in enumerate(phases.layout.mzis):
        relative = carried[mode] - carried[mode + 1]
        mesh.add_BS(
            Beamsplitter(mode + 1, mode + 2, (math.pi - phases.theta[k]) / 2, phases.phi[k] + math.pi + relative)
        )
        carried[mode : mode + 2] = carried[mode + 1] - math.pi / 2 + phases.theta[k] / 2
    for port, phase in enumerate(phases.output):
        mesh.add_phase(port + 1, phase + carried[port])
    return mesh.calculate_transformation()


@pytest.mark.parametrize("ports", [2, 3, 4, 5, 8])
def test_mesh_matrix_agrees_with_an_independent_library(ports):
    phases = random_phases(RectangularLayout(ports), np.random.default_rng(ports))
    np.testing.assert_allclose(mesh_matrix(phases), library_mesh(phases), atol=1e-13)


@pytest.mark.parametrize("ports", [2, 3, 6, 7])
def test_decomposition_agrees_with_an_independent_library(ports):
    unitary = haar_unitary(ports, np.random.default_rng(ports))
    ours = library_mesh(decompose(unitary, RectangularLayout(ports)))
    theirs = square_decomposition(unitary).calculate_transformation()
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def check_decomposition(unitary):
    phases = decompose(unitary, RectangularLayout(len(unitary)))
    assert ((phases.theta >= 0.0) & (phases.theta <= math.pi)).all()
    for angles in (phases.phi, phases.output):
        assert ((angles >= 0.0) & (angles < TWO_PI)).all()
    np.testing.assert_allclose(mesh_matrix(phases), unitary, atol=1e-12)


@given(st.integers(2, 12), SEEDS)
def test_haar_unitaries_are_reconstructed(ports, seed):
    check_decomposition(haar_unitary(ports, np.random.default_rng(seed)))


@given(st.integers(2, 12), SEEDS)
def test_real_orthogonal_matrices_are_reconstructed(ports, seed):
    rng = np.random.default_rng(seed)
    check_decomposition(np.linalg.qr(rng.standard_normal((ports, ports)))[0])


@given(st.data(), st.integers(2, 12))
def test_signed_permutations_are_reconstructed(data, ports):
    order = data.draw(st.permutations(range(ports)))
    signs = data.draw(st.lists(st.sampled_from([1, -1, 1j, -1j]), min_size=ports, max_size=ports))
    check_decomposition(np.eye(ports)[order] * np.array(signs))


@pytest.mark.parametrize("ports", [2, 3, 4])
def test_every_permutation_is_reconstructed(ports):
    for order in itertools.permutations(range(ports)):
        check_decomposition(np.eye(ports)[list(order)])


def test_rows_are_outputs():
    cycle = np.zeros((3, 3))
    for source, sink in ((0, 1), (1, 2), (2, 0)):
        cycle[sink, source] = 1.0
    leaving = np.abs(mesh_matrix(decompose(cycle, RectangularLayout(3))) @ [1.0, 0.0, 0.0]) ** 2
    np.testing.assert_allclose(leaving, [0.0, 1.0, 0.0], atol=1e-14)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) >= 2), SEEDS)
def test_block_diagonal_matrices_are_reconstructed(sizes, seed):
    rng = np.random.default_rng(seed)
    unitary, place = np.zeros((sum(sizes), sum(sizes)), dtype=complex), 0
    for size in sizes:
        unitary[place : place + size, place : place + size] = haar_unitary(size, rng)
        place += size
    check_decomposition(unitary)
    check_decomposition(unitary[::-1])


@given(st.integers(2, 9), SEEDS, st.sampled_from([1e-16, 1e-13, 1e-10, 1e-8, 1e-4]))
def test_nearly_degenerate_matrices_are_reconstructed(ports, seed, size):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((ports, ports)) + 1j * rng.standard_normal((ports, ports))
    check_decomposition(nearest_unitary(np.eye(ports)[rng.permutation(ports)] + size * noise))


@pytest.mark.parametrize("ports", [2, 5, 8])
def test_identity_reversal_and_fourier(ports):
    check_decomposition(np.eye(ports))
    check_decomposition(np.exp(-1e-17j) * np.eye(ports))
    check_decomposition(np.eye(ports)[::-1])
    check_decomposition(np.fft.fft(np.eye(ports), norm="ortho"))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (0.9 * np.eye(3), r"not unitary: max \|U\^dagger U - 1\| = 0\.19 exceeds 1e-09.*nearest_unitary"),
        (np.eye(3) + 1e-6, "not unitary"),
        (np.full((3, 3), np.nan), "NaN or Inf"),
        (np.diag([1.0, np.inf, 1.0]), "NaN or Inf"),
        (np.ones((3, 2)), r"square matrix .* got shape \(3, 2\)"),
        (np.eye(4), r"has shape \(4, 4\), the layout has 3 ports"),
        (np.zeros((0, 0)), r"got shape \(0, 0\)"),
        (np.ones(3), r"got shape \(3,\)"),
        (1.0, r"got shape \(\)"),
        ([[1.0, 2.0], [3.0]], "matrix of numbers"),
        ([["a", "b"], ["c", "d"]], "matrix of numbers"),
        (None, r"matrix|NaN"),
    ],
)
def test_what_is_no_unitary_is_refused(matrix, message):
    with pytest.raises(MatrixError, match=message) as caught:
        decompose(matrix, RectangularLayout(3))
    assert isinstance(caught.value, OptincError)


def test_decompose_leaves_its_input_alone():
    unitary = haar_unitary(4, np.random.default_rng(0))
    before = unitary.copy()
    decompose(unitary, RectangularLayout(4))
    np.testing.assert_array_equal(unitary, before)


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
