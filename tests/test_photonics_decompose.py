"""Decomposition: special and random unitaries, both layouts, placements, batches, and what is refused."""

import itertools
import math

import numpy as np
import pytest
from dense_meshes import dense_matrix
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.errors import MatrixError, OptincError
from optinc_hw.photonics import (
    Decomposition,
    MeshImperfections,
    MeshLayout,
    MeshPhases,
    PhasePlacement,
    RectangularLayout,
    TriangularLayout,
    convert_phases,
    decompose,
    haar_unitary,
    mesh_matrix,
    nearest_unitary,
)

SEEDS = st.integers(0, 2**32 - 1)
LAYOUTS = (RectangularLayout, TriangularLayout)
BOTH = st.sampled_from(LAYOUTS)
ARMS = ("upper", "lower", "push_pull")
TWO_PI = 2.0 * math.pi
FOLDED = PhasePlacement("push_pull", "push_pull")


def check(unitary, layout, tolerance=1e-12):
    """Decompose one matrix or a batch: documented intervals, canonical form, and the matrix again."""
    found = decompose(unitary, layout(np.shape(unitary)[-1]))
    assert isinstance(found, Decomposition)
    assert ((found.theta >= 0.0) & (found.theta <= math.pi)).all()
    for angles in (found.phi, found.output):
        assert ((angles >= 0.0) & (angles < TWO_PI)).all()
    np.testing.assert_array_equal(found.phi[(found.theta == 0.0) | (found.theta == math.pi)], math.pi)
    made = mesh_matrix(found)
    np.testing.assert_allclose(made, unitary, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(found.error, np.abs(made - unitary).max((-2, -1)), rtol=0.0, atol=1e-15)
    np.testing.assert_array_equal(found.distance, np.zeros(np.shape(unitary)[:-2]))
    return found


@given(BOTH, st.integers(1, 12), SEEDS)
def test_haar_unitaries(layout, ports, seed):
    found = check(haar_unitary(ports, np.random.default_rng(seed)), layout)
    np.testing.assert_allclose(
        dense_matrix(found, MeshImperfections.ideal(found.layout)), mesh_matrix(found), atol=1e-13
    )


@given(BOTH, st.integers(1, 9), SEEDS)
def test_phases_come_back(layout, ports, seed):
    mesh, rng = layout(ports), np.random.default_rng(seed)
    mzis = len(mesh.mzis)
    phases = MeshPhases(
        mesh, rng.uniform(0.5, math.pi - 0.5, mzis), rng.uniform(0.0, TWO_PI, mzis), rng.uniform(0.0, TWO_PI, ports)
    )
    found = decompose(mesh_matrix(phases), mesh)
    for part in ("theta", "phi", "output"):
        apart = np.exp(1j * getattr(found, part)) - np.exp(1j * getattr(phases, part))
        np.testing.assert_allclose(apart, 0.0, atol=1e-8)


@given(BOTH, st.integers(2, 12), SEEDS)
def test_real_orthogonal_matrices(layout, ports, seed):
    check(np.linalg.qr(np.random.default_rng(seed).standard_normal((ports, ports)))[0], layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ports", range(1, 7))
def test_m02_every_permutation_exactly(layout, ports):
    orders = list(itertools.permutations(range(ports)))
    found = check(np.eye(ports)[orders], layout, 1e-14)
    np.testing.assert_array_equal(found.theta % math.pi, 0.0)  # nothing but bar and cross


@given(BOTH, st.data(), st.integers(2, 12))
def test_m02_signed_permutations(layout, data, ports):
    order = data.draw(st.permutations(range(ports)))
    signs = data.draw(st.lists(st.sampled_from([1, -1, 1j, -1j]), min_size=ports, max_size=ports))
    check(np.eye(ports)[order] * np.array(signs), layout, 1e-14)


@given(BOTH, st.lists(st.integers(1, 4), min_size=1, max_size=4), SEEDS)
def test_m02_block_diagonals_in_any_order(layout, sizes, seed):
    rng = np.random.default_rng(seed)
    unitary, place = np.zeros((sum(sizes), sum(sizes)), dtype=complex), 0
    for size in sizes:
        unitary[place : place + size, place : place + size] = haar_unitary(size, rng)
        place += size
    for matrix in (unitary, unitary[::-1], unitary[rng.permutation(len(unitary))][:, rng.permutation(len(unitary))]):
        check(matrix, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ports", [2, 5, 8, 33, 64])
def test_m02_m03_special_matrices(layout, ports):
    rng = np.random.default_rng(ports)
    permuted = np.eye(ports)[rng.permutation(ports)]
    noise = rng.standard_normal((ports, ports)) + 1j * rng.standard_normal((ports, ports))
    cycled = np.roll(np.eye(ports), 1, axis=0)
    for matrix in (
        np.eye(ports),
        np.exp(-1e-17j) * np.eye(ports),
        1j * np.eye(ports),
        np.eye(ports)[::-1],  # the anti-identity, whose phases are not unique: only matrices are compared
        -np.eye(ports)[::-1],
        cycled,
        permuted,
        permuted + 1e-13 * noise,
        np.fft.fft(np.eye(ports), norm="ortho"),
        np.diag(rng.choice([1.0, -1.0], ports)),
        np.diag(np.exp(1j * rng.uniform(0, TWO_PI, ports))),
    ):
        check(matrix, layout, 1e-10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_m03_canonical_form_of_bar_and_cross(layout):
    identity = check(np.eye(6), layout)
    for part, value in (("theta", math.pi), ("phi", math.pi), ("output", 0.0)):
        np.testing.assert_array_equal(getattr(identity, part), value)
    # A cross of phi = pi is i [[0, 1], [-1, 0]].
    cross = check([[0.0, 1.0], [1.0, 0.0]], layout)
    assert (cross.theta, cross.phi) == (0.0, math.pi)
    np.testing.assert_allclose(cross.output, [3 * math.pi / 2, math.pi / 2], atol=1e-15)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_m06_rows_are_outputs(layout):
    cycle = np.zeros((3, 3))
    for source, sink in ((0, 1), (1, 2), (2, 0)):
        cycle[sink, source] = 1.0
    leaving = np.abs(mesh_matrix(decompose(cycle, layout(3))) @ [1.0, 0.0, 0.0]) ** 2
    np.testing.assert_allclose(leaving, [0.0, 1.0, 0.0], atol=1e-14)


@given(BOTH, st.integers(2, 9), SEEDS, st.sampled_from([1e-200, 1e-16, 1e-13, 1e-10, 1e-8, 1e-4]))
def test_nearly_degenerate_matrices(layout, ports, seed, size):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((ports, ports)) + 1j * rng.standard_normal((ports, ports))
    check(nearest_unitary(np.eye(ports)[rng.permutation(ports)] + size * noise), layout)


def givens(ports, mode, angle, phase):
    turned = np.eye(ports, dtype=complex)
    turned[mode : mode + 2, mode : mode + 2] = [
        [np.exp(1j * phase) * np.cos(angle), -np.sin(angle)],
        [np.exp(1j * phase) * np.sin(angle), np.cos(angle)],
    ]
    return turned


@given(st.data(), BOTH, st.integers(2, 8))
def test_products_of_few_rotations_by_angles_of_any_size(data, layout, ports):
    sizes = st.sampled_from([0.0, 1e-308, 1e-160, 1e-150, 1e-140, 1e-80, 1e-17, 1e-9, 0.3, math.pi / 4, math.pi / 2])
    turn = st.tuples(st.integers(0, ports - 2), sizes, st.floats(-7, 7))
    unitary = np.eye(ports, dtype=complex)
    for mode, angle, phase in data.draw(st.lists(turn, max_size=6)):
        unitary = givens(ports, mode, angle, phase) @ unitary
    check(unitary, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(("internal", "external"), [*itertools.product(ARMS, ARMS)])
def test_phases_on_other_arms(layout, side, internal, external):
    placement = PhasePlacement(internal, external, side)
    for ports in (1, 2, 5, 6):
        unitary = haar_unitary(ports, np.random.default_rng(ports))
        found = decompose(unitary, layout(ports), placement=placement)
        assert found.placement == placement
        assert (found.input is None) == (side == "before")
        np.testing.assert_allclose(mesh_matrix(found), unitary, atol=1e-13)
        np.testing.assert_allclose(dense_matrix(found, MeshImperfections.ideal(found.layout)), unitary, atol=1e-13)
        if placement != FOLDED:
            same = convert_phases(decompose(unitary, layout(ports)), placement)
            np.testing.assert_array_equal(found.phi, same.phi)


@given(BOTH, st.integers(2, 12), SEEDS)
def test_real_matrices_need_no_external_phases_in_push_pull(layout, ports, seed):
    orthogonal = np.linalg.qr(np.random.default_rng(seed).standard_normal((ports, ports)))[0]
    found = decompose(orthogonal, layout(ports), placement=FOLDED)
    assert (np.abs(found.theta) <= math.pi).all()
    np.testing.assert_allclose(found.phi, math.pi, atol=1e-12)
    np.testing.assert_allclose(mesh_matrix(found), orthogonal, atol=1e-12)


@given(BOTH, st.integers(2, 9), SEEDS)
def test_external_phases_in_push_pull_span_half_the_range(layout, ports, seed):
    unitary = haar_unitary(ports, np.random.default_rng(seed))
    found = decompose(unitary, layout(ports), placement=FOLDED)
    assert ((found.phi >= math.pi / 2) & (found.phi < 3 * math.pi / 2)).all()
    np.testing.assert_allclose(mesh_matrix(found), unitary, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [(0,), (1,), (7,), (2, 3)])
@pytest.mark.parametrize("ports", [1, 2, 5])
def test_batches_are_their_members(layout, batch, ports):
    rng = np.random.default_rng(ports)
    members = [haar_unitary(ports, rng) for _ in range(math.prod(batch))]
    found = check(np.array(members).reshape(*batch, ports, ports), layout)
    assert found.batch == np.shape(found.error) == batch
    for position, member in zip(np.ndindex(batch), members, strict=True):
        alone = decompose(member, layout(ports))
        assert isinstance(alone.error, float)
        for part in ("theta", "phi", "output"):
            np.testing.assert_array_equal(getattr(found, part)[position], getattr(alone, part))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_left_alone_and_may_lie_in_any_order(layout):
    unitary = haar_unitary(5, np.random.default_rng(0))
    expected = decompose(unitary, layout(5)).theta
    frozen = unitary.copy()
    frozen.flags.writeable = False
    for given_ in (
        unitary.copy(),
        unitary[None].copy(),
        np.asfortranarray(unitary),
        np.moveaxis(unitary[..., None].copy(), -1, 0),
        np.repeat(unitary, 2, axis=1)[:, ::2],
        frozen,
    ):
        before = given_.copy()
        np.testing.assert_array_equal(np.ravel(decompose(given_, layout(5)).theta), expected)
        np.testing.assert_array_equal(given_, before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_meshes_are_known_by_their_mzis(layout):
    unitary = haar_unitary(5, np.random.default_rng(0))
    described = MeshLayout(5, tuple(reversed(layout(5).mzis)))
    np.testing.assert_array_equal(decompose(unitary, described).theta, decompose(unitary, layout(5)).theta)
    with pytest.raises(MatrixError, match=r"9 MZIs on 5 ports is neither rectangular nor triangular.*program_mesh"):
        decompose(unitary, layout(5).without([(0, 0)]))


NOT_UNITARY = np.random.default_rng(3).standard_normal((3, 3)) * (1.0 + 1j)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (0.9 * np.eye(3), r"not unitary: max \|U\^dagger U - 1\| = 0\.19 exceeds 1e-09.*nearest_unitary=True"),
        (NOT_UNITARY, "not unitary"),
        (np.eye(3) + 1e-6, "not unitary"),
        (1e200 * np.eye(3), "not unitary"),
        (haar_unitary(3, np.random.default_rng(0)).astype(np.complex64), "not unitary.*single precision"),
        (np.full((3, 3), np.nan), "NaN or Inf"),
        (np.diag([1.0, np.inf, 1.0]), "NaN or Inf"),
        (np.ones((3, 2)), r"square matrix .* got shape \(3, 2\)"),
        (np.eye(4), r"has shape \(4, 4\), the layout has 3 ports"),
        (np.eye(1), r"has shape \(1, 1\), the layout has 3 ports"),
        (np.zeros((0, 0)), r"got shape \(0, 0\)"),
        (np.ones(3), r"got shape \(3,\)"),
        (1.0, r"got shape \(\)"),
        ([[1.0, 2.0], [3.0]], "matrix of numbers"),
        ([["a", "b"], ["c", "d"]], "matrix of numbers"),
        (None, r"matrix|NaN"),
        (np.stack([np.eye(3), 2 * np.eye(3)]), r"at batch index 1 is not unitary: max .* = 3 "),
        (np.where(np.arange(6).reshape(2, 3, 1, 1) == 4, np.nan, np.eye(3)), r"at batch index \(1, 1\) holds NaN"),
    ],
)
def test_m11_what_is_no_unitary_is_refused(matrix, message):
    with pytest.raises(MatrixError, match=message) as caught:
        decompose(matrix, RectangularLayout(3))
    assert isinstance(caught.value, OptincError)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_m11_a_mesh_of_one_port_is_one_phase(layout):
    found = check([[1j]], layout)
    assert found.output == pytest.approx(math.pi / 2)
    with pytest.raises(MatrixError, match="not unitary"):
        decompose([[0.5]], layout(1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_m11_the_closest_unitary_and_its_distance_on_request(layout):
    unitary = haar_unitary(4, np.random.default_rng(0))
    batch = np.stack([0.9 * unitary, unitary, unitary @ np.diag([1.0, 1.0, 0.25, 1.5])])
    found = decompose(batch, layout(4), nearest_unitary=True)
    np.testing.assert_allclose(found.distance, [0.1, 0.0, 0.75], atol=1e-14)
    np.testing.assert_allclose(mesh_matrix(found), np.stack([unitary] * 3), atol=1e-13)
    assert (found.error < 1e-13).all()
    alone = decompose(0.9 * unitary, layout(4), nearest_unitary=True)
    assert isinstance(alone.distance, float)
    single = decompose(unitary.astype(np.complex64), layout(4), nearest_unitary=True)
    assert 1e-9 < single.distance < 1e-6
    assert single.error < 1e-13


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((3, 3)), "deficient rank .*no unitary is closest"),
        (np.zeros((3, 3)), "deficient rank"),
        (np.stack([np.eye(3), np.diag([1.0, 1.0, 0.0])]), "at batch index 1 has deficient rank"),
        (np.full((3, 3), np.nan), "NaN or Inf"),
        (np.ones((3, 2)), "square matrix"),
        (np.eye(4), "the layout has 3 ports"),
    ],
)
def test_m11_what_has_no_closest_unitary_is_refused(matrix, message):
    with pytest.raises(MatrixError, match=message):
        decompose(matrix, RectangularLayout(3), nearest_unitary=True)


@given(BOTH, st.integers(2, 8), SEEDS)
def test_matrices_unitary_to_the_tolerance_are_reproduced_that_well(layout, ports, seed):
    rng = np.random.default_rng(seed)
    matrix = haar_unitary(ports, rng) + 5e-11 * rng.uniform(-1.0, 1.0, (ports, ports))
    found = decompose(matrix, layout(ports))
    assert found.error < 1e-9
    assert found.error == pytest.approx(np.abs(mesh_matrix(found) - matrix).max(), abs=1e-15)
