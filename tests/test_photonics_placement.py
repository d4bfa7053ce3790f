"""Phase shifters in other places: against dense products of single arms, and from every place into every other."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from dense_meshes import dense_matrix
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import (
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
)
from optinc_hw.photonics.placement import fold_push_pull

ARMS = ("upper", "lower", "push_pull")
PLACEMENTS = [PhasePlacement(*places) for places in itertools.product(ARMS, ARMS, ("before", "after"))]
TWO_PI = 2.0 * math.pi
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def layouts(draw):
    """Rectangular, triangular and arbitrary meshes of up to six modes."""
    ports = draw(st.integers(1, 6))
    kind = draw(st.sampled_from([RectangularLayout, TriangularLayout, None]))
    if kind is not None:
        return kind(ports)
    mzis, free = [], {}
    for _ in range(draw(st.integers(0, 9)) if ports > 1 else 0):
        mode = draw(st.integers(0, ports - 2))
        column = max(free.get(mode, 0), free.get(mode + 1, 0)) + draw(st.integers(0, 2))
        free[mode] = free[mode + 1] = column + 1
        mzis.append((column, mode))
    return MeshLayout(ports, tuple(mzis))


def random_phases(layout, placement, rng, batch=(), with_input=True):
    k, n = len(layout.mzis), layout.ports
    theta, phi, output, first = (rng.uniform(-9.0, 9.0, (*batch, size)) for size in (k, k, n, n))
    return MeshPhases(layout, theta, phi, output, first if with_input else None, placement)


def random_flaws(layout, rng):
    k = len(layout.mzis)
    eta = math.pi / 4 + 0.2 * rng.standard_normal((2, k))
    return MeshImperfections(eta[0], eta[1], rng.uniform(0.8, 1.0, k))


def with_unequal_arms(flaws, rng):
    return replace(flaws, arms=rng.uniform(0.7, 1.0, (len(flaws.eta_in), 2)))


def in_turn(*angles):
    return all(((values >= 0.0) & (values < TWO_PI)).all() for values in angles)


@given(layouts(), st.sampled_from(PLACEMENTS), st.booleans(), SEEDS)
def test_matrix_of_every_placement_is_the_dense_product(layout, placement, with_input, seed):
    rng = np.random.default_rng(seed)
    phases, flaws = random_phases(layout, placement, rng, with_input=with_input), random_flaws(layout, rng)
    np.testing.assert_allclose(mesh_matrix(phases, flaws), dense_matrix(phases, flaws), atol=1e-13)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_unequal_arms_of_every_placement_are_in_the_dense_product(placement):
    rng = np.random.default_rng(0)
    layout = RectangularLayout(5)
    phases, flaws = random_phases(layout, placement, rng), with_unequal_arms(random_flaws(layout, rng), rng)
    np.testing.assert_allclose(mesh_matrix(phases, flaws), dense_matrix(phases, flaws), atol=1e-13)


@settings(max_examples=200)
@given(layouts(), st.sampled_from(PLACEMENTS), st.sampled_from(PLACEMENTS), st.booleans(), SEEDS)
def test_every_placement_becomes_every_other(layout, first, second, with_input, seed):
    rng = np.random.default_rng(seed)
    phases = random_phases(layout, first, rng, with_input=with_input)
    flaws = with_unequal_arms(random_flaws(layout, rng), rng)
    moved = convert_phases(phases, second)
    assert moved.placement == second
    assert in_turn(moved.theta, moved.phi, moved.output)
    if second.side == "before":
        assert moved.input is None
    else:
        assert in_turn(moved.input)
        assert not moved.output.any()
    np.testing.assert_allclose(dense_matrix(moved, flaws), dense_matrix(phases, flaws), atol=1e-12)


@pytest.mark.parametrize("first", PLACEMENTS)
def test_all_pairs_of_placements_give_the_same_matrices_of_a_batch(first):
    rng = np.random.default_rng(0)
    layout = RectangularLayout(5)
    phases, flaws = random_phases(layout, first, rng, batch=(2, 3)), random_flaws(layout, rng)
    matrices = mesh_matrix(phases, flaws)
    assert matrices.shape == (2, 3, 5, 5)
    for second in PLACEMENTS:
        moved = convert_phases(phases, second)
        assert moved.batch == (2, 3)
        np.testing.assert_allclose(mesh_matrix(moved, flaws), matrices, atol=1e-12)
        back = convert_phases(moved, first)
        np.testing.assert_allclose(mesh_matrix(back, flaws), matrices, atol=1e-12)


@given(layouts(), st.sampled_from(PLACEMENTS), SEEDS)
def test_batches_are_converted_setting_by_setting(layout, placement, seed):
    rng = np.random.default_rng(seed)
    phases = random_phases(layout, PhasePlacement("lower", "push_pull", "after"), rng, batch=(3,))
    moved = convert_phases(phases, placement)
    for k in range(3):
        single = MeshPhases(layout, phases.theta[k], phases.phi[k], phases.output[k], phases.input[k], phases.placement)
        one = convert_phases(single, placement)
        for name in ("theta", "phi", "output"):
            np.testing.assert_array_equal(getattr(moved, name)[k], getattr(one, name))


@given(st.sampled_from(PLACEMENTS), st.sampled_from(PLACEMENTS))
def test_converting_changes_no_phases_of_the_caller(first, second):
    phases = random_phases(RectangularLayout(4), first, np.random.default_rng(0))
    before = [values.copy() for values in (phases.theta, phases.phi, phases.output, phases.input)]
    convert_phases(phases, second)
    for values, kept in zip((phases.theta, phases.phi, phases.output, phases.input), before, strict=True):
        np.testing.assert_array_equal(values, kept)


def test_tiny_negative_phases_stay_below_a_full_turn():
    layout = RectangularLayout(3)
    tiny = MeshPhases(layout, np.full(3, -1e-18), np.full(3, -1e-18), np.full(3, -1e-18))
    for placement in PLACEMENTS:
        moved = convert_phases(tiny, placement)
        assert in_turn(moved.theta, moved.phi, moved.output)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_whole_numbers_are_angles_too(placement):
    layout = RectangularLayout(3)
    whole = MeshPhases(layout, np.array([1, 2, 3]), np.array([4, 5, 6]), np.array([1, 3, 5]), np.array([2, 0, 1]))
    moved = convert_phases(whole, placement)
    np.testing.assert_allclose(mesh_matrix(moved), mesh_matrix(whole), atol=1e-13)


@pytest.mark.parametrize("layout", [RectangularLayout, TriangularLayout])
@pytest.mark.parametrize("ports", [1, 2, 3, 6, 7])
def test_residual_phases_at_inputs_or_at_outputs_give_the_same_matrix(layout, ports):
    """Case M-12: moving phase shifters between layers must not change the matrix."""
    unitary = haar_unitary(ports, np.random.default_rng(ports))
    at_outputs = convert_phases(decompose(unitary, layout(ports)), PhasePlacement(side="before"))
    at_inputs = convert_phases(at_outputs, PhasePlacement(side="after"))
    np.testing.assert_allclose(mesh_matrix(at_outputs), unitary, atol=1e-12)
    np.testing.assert_allclose(mesh_matrix(at_inputs), unitary, atol=1e-12)
    rng = np.random.default_rng(0)
    there = random_phases(layout(ports), PhasePlacement(side="after"), rng)
    here = convert_phases(there, PhasePlacement(side="before"))
    np.testing.assert_allclose(mesh_matrix(here), mesh_matrix(there), atol=1e-12)


def test_one_mzi_by_hand():
    # A phase on the lower arm is minus that phase on the upper one, and the phase itself on both.
    layout = RectangularLayout(2)
    lower = MeshPhases(
        layout, np.array([0.3]), np.array([0.5]), np.zeros(2), placement=PhasePlacement("lower", "lower")
    )
    moved = convert_phases(lower, PhasePlacement())
    np.testing.assert_allclose(moved.theta, [TWO_PI - 0.3])
    np.testing.assert_allclose(moved.phi, [TWO_PI - 0.5])
    np.testing.assert_allclose(moved.output, [0.8, 0.8])
    # Behind the MZI a phase on the upper arm is an output phase.
    behind = MeshPhases(layout, np.array([0.3]), np.array([0.5]), np.zeros(2), placement=PhasePlacement(side="after"))
    moved = convert_phases(behind, PhasePlacement())
    np.testing.assert_allclose([*moved.theta, *moved.phi, *moved.output], [0.3, 0.0, 0.5, 0.0], atol=1e-15)


def free_phases(phases, names):
    """Number of directions in which the matrix moves with the named phases: the rank of its derivatives."""
    settings_of, step = {name: getattr(phases, name) for name in names}, 1e-6
    sizes = [len(values) for values in settings_of.values()]
    moves = step * np.concatenate([np.eye(sum(sizes)), -np.eye(sum(sizes))])
    batch = {
        name: settings_of.get(name, getattr(phases, name)) + np.zeros((len(moves), 1))
        for name in ("theta", "phi", "input", "output")
    }
    for name, part in zip(names, np.split(moves, np.cumsum(sizes)[:-1], axis=1), strict=True):
        batch[name] = batch[name] + part
    ahead, behind = np.split(mesh_matrix(replace(phases, **batch)), 2)
    derivatives = ((ahead - behind) / (2.0 * step)).reshape(sum(sizes), -1)
    return np.linalg.matrix_rank(np.hstack([derivatives.real, derivatives.imag]), tol=1e-6)


@pytest.mark.parametrize("layout", [RectangularLayout, TriangularLayout])
@pytest.mark.parametrize("ports", [2, 3, 5])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_only_two_arrangements_have_all_phases_of_a_unitary(layout, ports, placement):
    mesh = layout(ports)
    phases = random_phases(mesh, placement, np.random.default_rng(ports))
    universal, other = ("output", "input") if placement.side == "before" else ("input", "output")
    assert free_phases(phases, ("theta", "phi", universal)) == ports**2
    # Elsewhere, the n phases do little that the external phases do not do; on single arms, only what all share is new.
    reached = free_phases(phases, ("theta", "phi", other))
    assert reached < ports**2 if placement.external == "push_pull" else reached == ports**2 - (ports - 1)


def orthogonals():
    rng = np.random.default_rng(0)
    for ports in range(1, 8):
        matrix = np.linalg.qr(rng.standard_normal((ports, ports)))[0]
        yield pytest.param(matrix, id=f"random {ports}")
        yield pytest.param(matrix * np.where(np.arange(ports) == 0, -1.0, 1.0), id=f"other determinant {ports}")
        yield pytest.param(np.eye(ports), id=f"identity {ports}")
        yield pytest.param(np.eye(ports)[::-1], id=f"reversal {ports}")
        signs = rng.choice([-1.0, 1.0], ports)
        yield pytest.param(np.eye(ports)[rng.permutation(ports)] * signs, id=f"signed permutation {ports}")
    blocks = np.zeros((6, 6))
    blocks[:2, :2] = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    blocks[2:5, 2:5] = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    blocks[5, 5] = -1.0
    yield pytest.param(blocks, id="block diagonal")


@pytest.mark.parametrize("layout", [RectangularLayout, TriangularLayout])
@pytest.mark.parametrize("matrix", list(orthogonals()))
def test_real_orthogonal_matrices_need_external_phases_of_pi_only(matrix, layout):
    folded = fold_push_pull(decompose(matrix, layout(len(matrix))))
    assert folded.placement == PhasePlacement("push_pull", "push_pull", "before")
    np.testing.assert_allclose(folded.phi, math.pi, atol=1e-11)
    np.testing.assert_allclose(np.sin(folded.output), 0.0, atol=1e-11)
    np.testing.assert_allclose(dense_matrix(folded, MeshImperfections.ideal(folded.layout)), matrix, atol=1e-12)


@given(layouts(), SEEDS)
def test_folded_phases_make_the_same_matrix_from_half_the_range(layout, seed):
    rng = np.random.default_rng(seed)
    phases = random_phases(layout, PhasePlacement(), rng, batch=(2,), with_input=False)
    exact = rng.choice([math.nan, 0.0, math.pi], phases.theta.shape)  # some MZIs in the cross or the bar state
    phases = replace(phases, theta=np.where(np.isnan(exact), phases.theta, exact))
    folded = fold_push_pull(phases)
    np.testing.assert_allclose(folded.phi[~np.isnan(exact)], math.pi, atol=1e-14)
    assert (np.abs(folded.theta) <= math.pi).all()
    assert (np.abs(folded.phi - math.pi) <= math.pi / 2).all()
    assert in_turn(folded.output)
    np.testing.assert_allclose(mesh_matrix(folded), mesh_matrix(phases), atol=1e-12)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"internal": "middle"}, "internal is 'middle'; choose one of upper, lower, push_pull"),
        ({"external": None}, "external is None; choose one of upper, lower, push_pull"),
        ({"side": "behind"}, "side is 'behind'; choose one of before, after"),
    ],
)
def test_unknown_places_are_named(places, message):
    with pytest.raises(MatrixError, match=message):
        PhasePlacement(**places)
