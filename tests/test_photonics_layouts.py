"""Where MZIs stand: rectangular, triangular and from data; missing and stuck MZIs; the reach of the light."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from dense_meshes import dense_matrix, dense_steps
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import (
    MeshImperfections,
    MeshLayout,
    MeshPhases,
    PhasePlacement,
    RectangularLayout,
    TriangularLayout,
    coupler_matrix,
    mesh_matrix,
    mzi_matrix,
)

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def placed_mzis(draw, most_ports=9):
    """A number of ports and MZIs at any free places, gaps included, in any order."""
    ports = draw(st.integers(1, most_ports))
    places = list(product(range(8), range(ports - 1)))
    chosen, taken = [], set()
    for column, mode in draw(st.lists(st.sampled_from(places), max_size=20)) if places else []:
        if not {(column, mode), (column, mode + 1)} & taken:
            taken |= {(column, mode), (column, mode + 1)}
            chosen.append((column, mode))
    return ports, tuple(chosen)


def random_phases(layout, rng, placement=None):
    k, n = len(layout.mzis), layout.ports
    theta, phi, output = (rng.uniform(-7.0, 7.0, size) for size in (k, k, n))
    return MeshPhases(layout, theta, phi, output, placement=placement or PhasePlacement())


def random_flaws(layout, rng):
    k = len(layout.mzis)
    eta = math.pi / 4 + 0.2 * rng.standard_normal((2, k))
    return MeshImperfections(eta[0], eta[1], rng.uniform(0.8, 1.0, k))


@pytest.mark.parametrize("ports", range(2, 10))
def test_layout_counts_and_order(ports):
    layout = RectangularLayout(ports)
    assert len(layout.mzis) == ports * (ports - 1) // 2
    assert len(set(layout.mzis)) == len(layout.mzis)
    assert list(layout.mzis) == sorted(layout.mzis)
    assert all((column + mode) % 2 == 0 and 0 <= mode < ports - 1 for column, mode in layout.mzis)
    assert [k for column in layout.columns for k in column] == list(range(len(layout.mzis)))
    assert len(layout.columns) == ports


@pytest.mark.parametrize("ports", range(2, 10))
def test_triangular_counts_and_order(ports):
    layout = TriangularLayout(ports)
    assert len(layout.mzis) == ports * (ports - 1) // 2
    assert layout.depth == len(layout.columns) == 2 * ports - 3
    assert np.bincount(layout.modes).tolist() == list(range(ports - 1, 0, -1))  # n - 1 at the top, one at the bottom
    assert {column - mode for column, mode in layout.mzis} == set(range(0, 2 * (ports - 1), 2))
    earliest = [0] * ports  # every MZI stands where its light can first be
    for column, mode in layout.mzis:
        assert column == max(earliest[mode : mode + 2])
        earliest[mode] = earliest[mode + 1] = column + 1


def test_triangle_of_four_modes_by_hand():
    assert TriangularLayout(4).mzis == ((0, 0), (1, 1), (2, 0), (2, 2), (3, 1), (4, 0))
    assert TriangularLayout(4).columns == ((0,), (1,), (2, 3), (4,), (5,))


@pytest.mark.parametrize("layout", [RectangularLayout, TriangularLayout, lambda ports: MeshLayout(ports, ())])
def test_a_mesh_of_one_mode_is_a_phase(layout):
    mesh = layout(1)
    assert mesh.mzis == ()
    assert mesh.modes.shape == (0,)
    assert mesh.table.shape == (0, 3)
    nothing = np.zeros(0)
    np.testing.assert_allclose(mesh_matrix(MeshPhases(mesh, nothing, nothing, np.array([0.4]))), [[np.exp(0.4j)]])


@given(placed_mzis(), SEEDS)
def test_any_placement_from_data_makes_the_dense_product(placed, seed):
    rng = np.random.default_rng(seed)
    layout = MeshLayout(*placed)
    assert list(layout.mzis) == sorted(placed[1])
    assert layout.modes.tolist() == [mode for _, mode in layout.mzis]
    assert [layout.index(*mzi) for mzi in layout.mzis] == list(range(len(layout.mzis)))
    assert [[layout.mzis[k][0] for k in members] for members in layout.columns] == [
        [column] * len(members) for column, members in enumerate(layout.columns)
    ]
    phases, flaws = random_phases(layout, rng), random_flaws(layout, rng)
    np.testing.assert_allclose(mesh_matrix(phases, flaws), dense_matrix(phases, flaws), atol=1e-13)


def test_data_as_files_and_numpy_give_it():
    expected = MeshLayout(3, ((0, 0), (1, 1)))
    assert MeshLayout(3, [[1, 1], [0, 0]]) == expected
    assert MeshLayout(np.int64(3), np.array([[0, 0], [1, 1]])) == expected
    assert MeshLayout(3, (mzi for mzi in [(0, 0), (1, 1)])) == expected
    assert all(type(number) is int for mzi in MeshLayout(3, np.array([[0, 0]])).mzis for number in mzi)


@pytest.mark.parametrize(
    ("ports", "mzis", "message"),
    [
        (4, [(0, 0), (0, 0)], r"MZIs \(0, 0\) and \(0, 0\) share a mode; move one to another column"),
        (4, [(3, 2), (3, 1)], r"MZIs \(3, 1\) and \(3, 2\) share a mode"),
        (4, [(0, 3)], r"MZI \(0, 3\) needs modes 3 and 4; the mesh has 0 to 3"),
        (1, [(0, 0)], r"MZI \(0, 0\) needs modes 0 and 1; the mesh has 0 to 0"),
        (4, [(-1, 0)], "the column of an MZI must be an integer of at least 0, got -1"),
        (4, [(0, -1)], "the upper mode of an MZI must be an integer of at least 0, got -1"),
        (4, [(0.0, 1)], r"the column of an MZI must be an integer of at least 0, got 0\.0"),
        (4, [(0, "1")], "the upper mode of an MZI must be an integer of at least 0, got '1'"),
        (4, [(0, None)], "the upper mode of an MZI must be an integer of at least 0, got None"),
        (4, [(0, 1, 2)], r"an MZI is a pair \(column, upper mode\), got \(0, 1, 2\)"),
        (4, [3], r"an MZI is a pair \(column, upper mode\), got 3"),
        (4, None, r"MZIs are a list of pairs \(column, upper mode\), got None"),
        (4, 5, r"MZIs are a list of pairs \(column, upper mode\), got 5"),
        (4, ["mzi"], r"an MZI is a pair \(column, upper mode\), got 'mzi'"),
    ],
)
def test_impossible_placements_are_named(ports, mzis, message):
    with pytest.raises(MatrixError, match=message):
        MeshLayout(ports, mzis)


@pytest.mark.parametrize("layout", [RectangularLayout, TriangularLayout, lambda ports: MeshLayout(ports, ())])
@pytest.mark.parametrize("ports", [0, -3, 2.5, "4", None, np.nan])
def test_layout_refuses_other_than_one_or_more_ports(layout, ports):
    with pytest.raises(MatrixError, match="the number of ports must be an integer of at least 1"):
        layout(ports)


def test_equal_meshes_are_equal_whatever_made_them():
    by_hand = MeshLayout(4, reversed(RectangularLayout(4).mzis))
    assert by_hand == RectangularLayout(4)
    assert hash(by_hand) == hash(RectangularLayout(4))
    assert len({by_hand, RectangularLayout(4), TriangularLayout(4)}) == 2
    assert RectangularLayout(4) != TriangularLayout(4)
    assert RectangularLayout(4) != RectangularLayout(5)
    assert MeshLayout(3, ()) != MeshLayout(4, ())
    assert RectangularLayout(2) == TriangularLayout(2)
    assert RectangularLayout(4) != RectangularLayout(4).mzis
    assert repr(TriangularLayout(4)) == "TriangularLayout(ports=4, 6 MZIs)"


def test_an_mzi_that_is_not_there_has_no_index():
    with pytest.raises(MatrixError, match="no MZI at column 0, upper mode 1"):
        RectangularLayout(4).index(0, 1)


@given(st.sampled_from([RectangularLayout, TriangularLayout]), st.integers(2, 7), st.data(), SEEDS)
def test_missing_mzis_are_bare_waveguides(kind, ports, data, seed):
    """Case S-11: what is absent couples nothing; it is not an MZI at phase 0, which would cross."""
    rng = np.random.default_rng(seed)
    layout = kind(ports)
    missing = data.draw(st.sets(st.sampled_from(layout.mzis)))
    present = [k for k, mzi in enumerate(layout.mzis) if mzi not in missing]
    mesh = layout.without(missing)
    assert mesh.mzis == tuple(layout.mzis[k] for k in present)
    phases, flaws = random_phases(layout, rng), random_flaws(layout, rng)
    state = np.eye(ports)
    for k in present:
        mode = layout.mzis[k][1]
        cell = np.eye(ports, dtype=complex)
        block = mzi_matrix(phases.theta[k], phases.phi[k], flaws.eta_in[k], flaws.eta_out[k])
        cell[mode : mode + 2, mode : mode + 2] = flaws.transmission[k] * block
        state = cell @ state
    broken = MeshPhases(mesh, phases.theta[present], phases.phi[present], phases.output)
    broken_flaws = MeshImperfections(*(values[present] for values in (flaws.eta_in, flaws.eta_out, flaws.transmission)))
    expected = np.exp(1j * phases.output)[:, None] * state
    np.testing.assert_allclose(mesh_matrix(broken, broken_flaws), expected, atol=1e-13)


def test_absent_couplings_are_zero_and_not_one():
    layout = RectangularLayout(4)
    empty = layout.without(layout.mzis)
    assert empty == MeshLayout(4, ())
    nothing = np.zeros(0)
    np.testing.assert_array_equal(mesh_matrix(MeshPhases(empty, nothing, nothing, np.zeros(4))), np.eye(4))
    # The same with couplers that do not couple: no light changes its mode.
    zeros = np.zeros(6)
    uncoupled = MeshImperfections(zeros, zeros, np.ones(6))
    np.testing.assert_array_equal(mesh_matrix(MeshPhases(layout, zeros, zeros, np.zeros(4)), uncoupled), np.eye(4))
    np.testing.assert_array_equal(coupler_matrix(0.0), np.eye(2))


def test_missing_mzis_may_be_named_twice_but_must_exist():
    layout = RectangularLayout(4)
    assert layout.without([[0, 0], [0, 0]]) == layout.without({(0, 0)})
    assert layout.without(()) == layout
    with pytest.raises(MatrixError, match="no MZI at column 0, upper mode 1"):
        layout.without([(0, 1)])
    with pytest.raises(MatrixError, match=r"an MZI is a pair \(column, upper mode\), got 3"):
        layout.without([3])


ARMS = ("upper", "lower", "push_pull")
PLACEMENTS = [PhasePlacement(*places) for places in product(ARMS, ARMS, ("before", "after"))]


@given(st.integers(2, 6), st.sampled_from(PLACEMENTS), SEEDS)
def test_stuck_mzis_stay_where_they_are_in_the_placement_of_the_chip(ports, placement, seed):
    rng = np.random.default_rng(seed)
    layout = RectangularLayout(ports)
    phases, flaws = random_phases(layout, rng, placement), random_flaws(layout, rng)
    k = len(layout.mzis)
    stuck_theta, stuck_phi = (np.where(rng.random(k) < 0.4, rng.uniform(-7.0, 7.0, k), np.nan) for _ in range(2))
    held = MeshPhases(
        layout,
        np.where(np.isnan(stuck_theta), phases.theta, stuck_theta),
        np.where(np.isnan(stuck_phi), phases.phi, stuck_phi),
        phases.output,
        placement=placement,
    )
    broken = MeshImperfections(
        flaws.eta_in, flaws.eta_out, flaws.transmission, stuck_theta=stuck_theta, stuck_phi=stuck_phi
    )
    np.testing.assert_allclose(mesh_matrix(phases, broken), dense_matrix(held, flaws), atol=1e-13)


def test_chips_with_different_stuck_mzis_are_a_batch():
    layout = RectangularLayout(3)
    rng = np.random.default_rng(0)
    phases = random_phases(layout, rng)
    stuck = np.array([[np.nan, np.nan, np.nan], [0.0, np.nan, np.nan], [np.nan, np.pi, 1.0]])
    ones = np.full(3, math.pi / 4)
    together = mesh_matrix(phases, MeshImperfections(ones, ones, np.ones(3), stuck_theta=stuck))
    assert together.shape == (3, 3, 3)
    np.testing.assert_allclose(together[0], mesh_matrix(phases), atol=1e-15)
    for single, angles in zip(together, stuck, strict=True):
        alone = MeshImperfections(ones, ones, np.ones(3), stuck_theta=angles)
        np.testing.assert_allclose(single, mesh_matrix(phases, alone), atol=1e-14)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stuck_theta": np.array([np.inf, 0.0, 0.0])}, "stuck_theta holds Inf; give an angle in rad, or NaN"),
        ({"stuck_phi": np.zeros(4)}, r"stuck_phi has shape \(4,\), the layout needs \(3,\)"),
        ({"eta_out": np.array([0.1, np.nan, 0.1])}, "eta_out holds NaN or Inf"),
        ({"transmission": np.array([0.1, 1.1, 0.1])}, "transmission must lie between 0 and 1"),
        ({"arms": np.full((3, 2), -0.1)}, "arms must lie between 0 and 1"),
        ({"arms": np.ones(3)}, r"arms has shape \(3,\), the layout needs \(3, 2\)"),
    ],
)
def test_impossible_imperfections_are_named(values, message):
    layout = RectangularLayout(3)
    zeros, ones = np.zeros(3), np.ones(3)
    flaws = MeshImperfections(**({"eta_in": ones, "eta_out": ones, "transmission": ones} | values))
    with pytest.raises(MatrixError, match=message):
        mesh_matrix(MeshPhases(layout, zeros, zeros, zeros), flaws)


def check_cones(layout, seed):
    """No light of inputs outside an MZI's range is at the MZI, and the range is no wider than rounding makes it."""
    rng = np.random.default_rng(seed)
    phases = MeshPhases(layout, *(rng.uniform(0.5, 2.5, size) for size in (*(len(layout.mzis),) * 2, layout.ports)))
    steps = dense_steps(phases, MeshImperfections.ideal(layout))
    for (mode, low, high), after in zip(layout.table, steps[1:], strict=True):
        assert 0 <= low < high <= layout.ports
        lit = np.flatnonzero(np.any(after[mode : mode + 2] != 0.0, axis=0))
        assert low <= lit[0]
        assert lit[-1] < high
        assert low == lit[0] // 16 * 16
        assert high == min(-(-(lit[-1] + 1) // 16) * 16, layout.ports)


@given(placed_mzis(), SEEDS)
def test_light_outside_the_cone_of_an_mzi_is_exactly_zero(placed, seed):
    check_cones(MeshLayout(*placed), seed)


@pytest.mark.parametrize(
    "layout", [RectangularLayout(37), TriangularLayout(37), RectangularLayout(33).without([(0, 16)])]
)
def test_cones_of_meshes_wider_than_a_vector(layout):
    assert (layout.table[:, 2] - layout.table[:, 1] < layout.ports).any()
    check_cones(layout, 0)


@given(placed_mzis())
def test_layers_hold_every_mzi_once_in_an_order_of_the_light(placed):
    layout = MeshLayout(*placed)
    order, starts = layout.layers
    assert sorted(order.tolist()) == list(range(len(layout.mzis)))
    assert starts[-1] == len(order)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    modes = layout.modes[order]
    for first, last in pairwise(starts):
        assert (np.diff(modes[first:last]) >= 2).all()
        assert len(set(modes[first:last] % 2)) == 1
    for mode in range(layout.ports):
        on_mode = [k for k in order.tolist() if layout.modes[k] in (mode - 1, mode)]
        assert on_mode == sorted(on_mode)
