"""Programming imperfect meshes: exact where MZIs reach their splits; elsewhere brute force and published floors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import special_ortho_group

from optinc_hw.errors import LimitError, MatrixError
from optinc_hw.photonics import (
    MeshImperfections,
    MeshLayout,
    MeshPhases,
    PhasePlacement,
    RectangularLayout,
    TriangularLayout,
    coupler_matrix,
    fidelity,
    haar_unitary,
    mesh_matrix,
    program_mesh,
)

SEEDS = st.integers(0, 2**32 - 1)
TWO_PI = 2.0 * math.pi
BRICKS = MeshLayout(4, ((0, 1), (1, 0), (1, 2), (2, 1), (3, 0), (3, 2), (4, 1)))
PLACEMENTS = [
    PhasePlacement(),
    PhasePlacement("push_pull", "lower"),
    PhasePlacement("lower", "push_pull", "after"),
    PhasePlacement("upper", "upper", "after"),
]


def coupler_errors(layout, sigma, rng, **others):
    eta = math.pi / 4 + sigma * rng.standard_normal((2, len(layout.mzis)))
    return MeshImperfections(eta[0], eta[1], np.ones(len(layout.mzis)), **others)


def random_phases(layout, rng):
    sizes = len(layout.mzis), len(layout.mzis), layout.ports
    return MeshPhases(layout, *(rng.uniform(0, TWO_PI, size) for size in sizes))


def dense(layout, flaws, theta, phi, output):
    """The mesh as a product of full matrices, independent of the engine."""
    arms = np.ones((len(layout.mzis), 2)) if flaws.arms is None else flaws.arms
    product = np.eye(layout.ports, dtype=complex)
    for k, (_, mode) in enumerate(layout.mzis):
        cell = coupler_matrix(flaws.eta_out[k]) @ np.diag(arms[k] * [np.exp(1j * theta[k]), 1.0])
        cell = cell @ coupler_matrix(flaws.eta_in[k]) @ np.diag([np.exp(1j * phi[k]), 1.0])
        whole = np.eye(layout.ports, dtype=complex)
        whole[mode : mode + 2, mode : mode + 2] = flaws.transmission[k] * cell
        product = whole @ product
    return np.exp(1j * output)[:, None] * product


def brute_force(target, layout, flaws, rng, starts):
    """Smallest infidelity that descents on the dense product find."""
    mzis = len(layout.mzis)

    def missed(x):
        return 1.0 - fidelity(target, dense(layout, flaws, x[:mzis], x[mzis : 2 * mzis], x[2 * mzis :]))

    size = 2 * mzis + layout.ports
    return min(minimize(missed, rng.uniform(0, TWO_PI, size), options={"gtol": 1e-7}).fun for _ in range(starts))


@given(SEEDS, st.integers(1, 8), st.sampled_from([RectangularLayout, TriangularLayout]))
@settings(max_examples=60, deadline=None)
def test_local_correction_is_exact_where_all_splits_are_reachable(seed, n, shape):
    rng, layout = np.random.default_rng(seed), shape(n)
    mzis = len(layout.mzis)
    eta = math.pi / 4 + rng.uniform(-0.3, 0.3, (2, mzis))
    flaws = MeshImperfections(eta[0], eta[1], np.ones(mzis))
    low, high = np.abs(np.cos(eta.sum(axis=0))), np.cos(eta[0] - eta[1])
    theta = 2.0 * np.arcsin(low + (high - low) * rng.uniform(0.001, 0.999, mzis))
    target = mesh_matrix(
        MeshPhases(layout, theta, rng.uniform(0, TWO_PI, mzis), rng.uniform(0, TWO_PI, n)),
    )
    program = program_mesh(target, layout, flaws)
    np.testing.assert_allclose(mesh_matrix(program.phases, flaws), target, atol=1e-12)
    assert program.method != "refined"
    assert program.limiting == ()
    assert program.converged


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_two_ports_clipped_or_lossy_are_as_good_as_can_be(seed):
    rng, layout = np.random.default_rng(seed), RectangularLayout(2)
    eta = math.pi / 4 + rng.uniform(-0.5, 0.5, (2, 1))
    flaws = MeshImperfections(eta[0], eta[1], np.ones(1))
    target = mesh_matrix(MeshPhases(layout, rng.uniform(0, 0.3, 1), rng.uniform(0, 6, 1), rng.uniform(0, 6, 2)))
    program = program_mesh(target, layout, flaws, refine=False)
    # Phases at all ports but one: the overlap of the sizes of the elements is the most there is.
    theta = np.linspace(0, TWO_PI, 4001)
    cells = np.array([dense(layout, flaws, [t], [0.0], np.zeros(2)) for t in theta[::40]])
    best = (((np.abs(cells) * np.abs(target)).sum(axis=(1, 2)) / 2.0) ** 2).max()
    assert program.fidelity >= best - 1e-12


@pytest.mark.parametrize("arms", [None, np.array([[1.0, 0.7], [0.6, 1.0], [0.9, 1.0]])])
def test_three_ports_clipped_reach_the_brute_force_optimum(arms):
    rng, layout = np.random.default_rng(2), RectangularLayout(3)
    for _ in range(2):
        flaws = coupler_errors(layout, 0.25, rng, arms=arms)
        target = haar_unitary(3, rng)
        best = brute_force(target, layout, flaws, rng, 5)
        assert 1.0 - program_mesh(target, layout, flaws).fidelity <= best * (1.0 + 1e-5) + 1e-9


@pytest.mark.parametrize(("n", "sigma", "chips"), [(8, 0.05, 60), (16, 0.05, 40), (32, 0.02, 25)])
def test_published_floors_of_beam_splitter_errors(n, sigma, chips):
    rng, layout = np.random.default_rng(n), RectangularLayout(n)
    errors = []
    for _ in range(chips):
        flaws = coupler_errors(layout, sigma, rng)
        program = program_mesh(haar_unitary(n, rng), layout, flaws, refine=False)
        errors.append((program.uncorrected_residual, program.corrected_residual))
    uncorrected, corrected = np.sqrt(np.mean(np.square(errors), axis=0))
    assert uncorrected == pytest.approx(math.sqrt(2 * n) * sigma, rel=0.15)
    assert corrected == pytest.approx(math.sqrt(2 / 3) * n * sigma**2, rel=0.25)


@pytest.mark.parametrize(
    "layout", [RectangularLayout(6), TriangularLayout(6), BRICKS], ids=["Clements", "Reck", "data"]
)
@pytest.mark.parametrize("criterion", ["fidelity", "real_part"])
@pytest.mark.parametrize("real", [True, False])
def test_never_worse_than_ignoring_the_errors(layout, criterion, real):
    rng, n = np.random.default_rng(3), layout.ports
    for _ in range(8):
        target = special_ortho_group.rvs(n, random_state=rng) if real else haar_unitary(n, rng)
        flaws = coupler_errors(layout, 0.1, rng, arms=rng.uniform(0.95, 1.0, (len(layout.mzis), 2)))
        for steps in ({"refine": False}, {"max_steps": 30}):
            program = program_mesh(target, layout, flaws, criterion=criterion, **steps)
            if criterion == "fidelity":
                assert program.fidelity >= max(program.uncorrected_fidelity, program.corrected_fidelity) - 1e-15
                assert program.residual <= min(program.uncorrected_residual, program.corrected_residual)
            else:
                assert program.real_part_error <= program.uncorrected_real_part_error
            seen = mesh_matrix(program.phases, flaws)
            assert fidelity(target, seen) == pytest.approx(program.fidelity, abs=1e-12)
            scale = np.vdot(target.real, seen.real) / np.vdot(target.real, target.real)
            off = np.linalg.norm(seen.real / scale - target.real) / np.linalg.norm(target.real)
            assert off == pytest.approx(program.real_part_error, rel=1e-9)


def test_local_correction_alone_can_spoil_real_parts_and_the_criterion_repairs_it():
    # Uncorrected errors of a real orthogonal mesh are imaginary to first order; clipped splits are real errors.
    rng, layout = np.random.default_rng(4), RectangularLayout(16)
    spoiled = 0
    for _ in range(6):
        target = special_ortho_group.rvs(16, random_state=rng)
        flaws = coupler_errors(layout, 0.05, rng)
        local = program_mesh(target, layout, flaws, refine=False)
        assert local.residual < 0.5 * local.uncorrected_residual
        spoiled += local.real_part_error > local.uncorrected_real_part_error
        refined = program_mesh(target, layout, flaws, criterion="real_part", max_steps=100)
        assert refined.real_part_error < 0.1 * refined.uncorrected_real_part_error
        assert 0.9 < refined.scale.real < 1.0
        assert refined.scale.imag == 0.0
    assert spoiled >= 4


def test_refinement_improves_clipped_meshes():
    rng, layout = np.random.default_rng(5), RectangularLayout(16)
    for _ in range(3):
        flaws = coupler_errors(layout, 0.05, rng)
        program = program_mesh(haar_unitary(16, rng), layout, flaws, max_steps=300)
        assert program.method == "refined"
        assert program.residual < 0.6 * program.corrected_residual
        assert program.scale == pytest.approx(abs(program.scale), abs=1e-9)
        for phases in (program.phases.theta, program.phases.phi, program.phases.output):
            assert (phases >= 0.0).all()
            assert (phases < TWO_PI).all()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_programs_in_any_placement_with_crosstalk_and_stuck_phases(placement):
    rng, layout = np.random.default_rng(6), RectangularLayout(5)
    stuck = np.full((2, 10), np.nan)
    stuck[0, 4], stuck[1, 6] = 1.2, 0.4
    flaws = coupler_errors(layout, 0.05, rng, stuck_theta=stuck[0], stuck_phi=stuck[1])
    theta, phi, ports = *rng.uniform(0.5, 5.5, (2, 10)), rng.uniform(0, 6, 5)

    def setting(theta, phi, ports):
        ends = {"output": ports} if placement.side == "before" else {"output": np.zeros(5), "input": ports}
        return MeshPhases(layout, theta, phi, **ends, placement=placement)

    target = mesh_matrix(setting(theta, phi, ports), flaws)
    size = 2 * 10 + 5
    crosstalk = np.eye(size) + rng.uniform(0, 0.02, (size, size)) * (1 - np.eye(size))
    near = setting(theta + 0.05, phi - 0.05, ports)
    program = program_mesh(target, layout, flaws, crosstalk=crosstalk, placement=placement, start=near)
    assert program.converged
    assert program.residual < 1e-4
    assert program.phases.placement == placement
    assert program.commanded.min() >= 0.0
    assert program.commanded[[4, 16]].tolist() == [0.0, 0.0]
    actual = crosstalk @ program.commanded
    heated = setting(actual[:10], actual[10:20], actual[20:])
    np.testing.assert_allclose(mesh_matrix(heated, flaws), mesh_matrix(program.phases, flaws), atol=1e-9)


def test_placements_differ_in_nothing_but_the_phases():
    rng, layout = np.random.default_rng(15), RectangularLayout(7)
    target, flaws = haar_unitary(7, rng), coupler_errors(layout, 0.15, rng)
    standard = program_mesh(target, layout, flaws, refine=False)
    for placement in PLACEMENTS:
        local = program_mesh(target, layout, flaws, placement=placement, refine=False)
        assert local.residual == pytest.approx(standard.residual, rel=1e-9)
        refined = program_mesh(target, layout, flaws, placement=placement, max_steps=60)
        assert refined.residual < 0.8 * local.residual
        for phases in (refined.phases.theta, refined.phases.phi, refined.phases.output):
            assert phases.min() >= 0.0
            assert phases.max() < TWO_PI


def test_stuck_and_dead_mzis_are_named_and_refined_around():
    rng, layout = np.random.default_rng(7), RectangularLayout(8)
    stuck, arms = np.full(28, np.nan), np.ones((28, 2))
    stuck[9], arms[20, 0] = 2.5, 0.0
    flaws = coupler_errors(layout, 0.02, rng, stuck_theta=stuck, arms=arms)
    program = program_mesh(haar_unitary(8, rng), layout, flaws, max_steps=150)
    causes = {(mzi.column, mzi.mode): mzi for mzi in program.limiting}
    held, dead = causes[layout.mzis[9]], causes[layout.mzis[20]]
    assert held.cause == "stuck"
    assert held.lowest == held.highest == pytest.approx(math.sin(1.25), abs=0.05)
    assert dead.cause == "arms"
    assert dead.highest - dead.lowest == pytest.approx(0.0, abs=1e-12)
    assert program.fidelity > program.uncorrected_fidelity
    assert "stuck" in str(program)


def test_missing_mzis_are_waveguides_and_the_rest_makes_up_for_them():
    rng, whole = np.random.default_rng(8), RectangularLayout(6)
    lacking = whole.without([(2, 2)])
    program = program_mesh(haar_unitary(6, rng), lacking, max_steps=100)
    (missing,) = program.limiting
    assert (missing.column, missing.mode, missing.cause) == (2, 2, "missing")
    assert (missing.lowest, missing.highest) == (1.0, 1.0)
    assert program.fidelity > program.corrected_fidelity > program.uncorrected_fidelity - 1e-12
    # A target that has a bar state there does not miss the MZI.
    phases = random_phases(whole, rng)
    theta = phases.theta.copy()
    theta[whole.index(2, 2)] = math.pi
    bar = mesh_matrix(MeshPhases(whole, theta, phases.phi, phases.output))
    flaws = coupler_errors(lacking, 0.005, rng)
    program = program_mesh(bar, lacking, refine=False)
    np.testing.assert_allclose(mesh_matrix(program.phases), bar, atol=1e-12)
    assert program_mesh(bar, lacking, flaws).residual < 1e-6


def test_meshes_without_a_decomposition_are_searched():
    rng = np.random.default_rng(9)
    target = haar_unitary(4, rng)
    flaws = coupler_errors(BRICKS, 0.05, rng)
    program = program_mesh(target, BRICKS, flaws)
    assert program.converged
    assert fidelity(target, mesh_matrix(program.phases, flaws)) > 1.0 - 1e-8
    again = program_mesh(target, BRICKS, flaws)
    np.testing.assert_array_equal(program.phases.theta, again.phases.theta)
    shallow = program_mesh(target, MeshLayout(4, ((0, 0), (0, 2))))
    assert not shallow.fidelity > 0.99


@pytest.mark.parametrize(("n", "steps"), [(16, 500), (32, 200)])
def test_starts_at_the_corners_of_the_range_reach_the_target_or_say_so(n, steps):
    # Case M-05: optimisers with bounds fail where periodic phases meet their bounds.
    layout, target = RectangularLayout(n), haar_unitary(n, np.random.default_rng(n))
    top, mzis = np.nextafter(TWO_PI, 0.0), len(layout.mzis)
    for theta, phi, output in ((0.0, 0.0, 0.0), (top, top, top), (0.0, top, 0.0), (top, 0.0, top)):
        start = MeshPhases(layout, np.full(mzis, theta), np.full(mzis, phi), np.full(n, output))
        program = program_mesh(target, layout, start=start, max_steps=steps)
        assert program.fidelity > 0.85
        assert program.converged == (program.residual**2 < 1e-8)
        for phases in (program.phases.theta, program.phases.phi, program.phases.output):
            assert phases.min() >= 0.0
            assert phases.max() < TWO_PI
    assert program_mesh(target, layout).converged


def test_a_corner_of_the_range_is_left_for_the_target():
    layout, target = RectangularLayout(16), haar_unitary(16, np.random.default_rng(16))
    start = MeshPhases(layout, np.zeros(120), np.zeros(120), np.zeros(16))
    program = program_mesh(target, layout, start=start, max_steps=4000)
    assert program.converged
    assert fidelity(target, mesh_matrix(program.phases)) > 1.0 - 1e-8


def test_a_start_near_the_target_reaches_it():
    rng, layout = np.random.default_rng(10), RectangularLayout(12)
    aim, flaws = random_phases(layout, rng), coupler_errors(layout, 0.05, rng)
    near = MeshPhases(layout, aim.theta + 0.02, aim.phi, aim.output)
    program = program_mesh(mesh_matrix(aim, flaws), layout, flaws, start=near)
    assert program.converged
    assert program.residual < 1e-4
    assert program.corrected_fidelity == program.uncorrected_fidelity < 1.0
    kept = program_mesh(mesh_matrix(aim, flaws), layout, flaws, start=aim, refine=False)
    np.testing.assert_allclose(np.exp(1j * kept.phases.theta), np.exp(1j * aim.theta), atol=1e-12)


def test_clipped_mzis_explain_the_residual_of_local_correction():
    # A mesh of unitary parts: E^2 = sum |T_ideal - T|_F^2 / n = sum 2 delta^2 / n with delta in half angles.
    rng, layout = np.random.default_rng(11), RectangularLayout(16)
    for _ in range(10):
        program = program_mesh(haar_unitary(16, rng), layout, coupler_errors(layout, 0.05, rng), refine=False)
        clipped = program.limiting
        assert all(mzi.cause == "clipped" and mzi.shortfall > 0.0 for mzi in clipped)
        ends = [mzi.lowest if mzi.asked < mzi.lowest else mzi.highest for mzi in clipped]
        deltas = np.arcsin(ends) - np.arcsin([mzi.asked for mzi in clipped])
        assert program.corrected_residual**2 == pytest.approx(2.0 * (deltas**2).sum() / 16, rel=0.2)
        assert sum(mzi.share for mzi in clipped) == pytest.approx(1.0, abs=0.2)
        assert [mzi.share for mzi in clipped] == sorted((mzi.share for mzi in clipped), reverse=True)


def test_unequal_losses_explain_their_part():
    rng, layout = np.random.default_rng(12), RectangularLayout(8)
    flaws = coupler_errors(layout, 0.15, rng)
    lossy = MeshImperfections(flaws.eta_in, flaws.eta_out, rng.uniform(0.97, 1.0, 28))
    target = haar_unitary(8, rng)
    only = program_mesh(target, layout, MeshImperfections(*np.full((2, 28), math.pi / 4), lossy.transmission))
    assert only.loss_share == pytest.approx(1.0, abs=1e-6)
    assert abs(only.scale) < 0.95
    both = program_mesh(target, layout, lossy, refine=False)
    assert both.loss_share + sum(mzi.share for mzi in both.limiting) == pytest.approx(1.0, abs=0.1)
    assert "losses that differ" in str(both)


def test_one_port_is_a_phase():
    program = program_mesh([[np.exp(0.7j)]], RectangularLayout(1), crosstalk=[[1.0]])
    np.testing.assert_allclose(program.commanded, [0.7])
    assert program.converged


def test_summary_names_the_worst_mzis():
    rng, layout = np.random.default_rng(13), RectangularLayout(16)
    text = str(program_mesh(haar_unitary(16, rng), layout, coupler_errors(layout, 0.1, rng), max_steps=5))
    assert text.startswith("mesh of 16 ports, 120 MZIs: 1 - F = ")
    assert "NOT CONVERGED" in text
    assert "more MZIs that fall short" in text
    assert "NaN" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": 0.9 * np.eye(3)}, "nearest_unitary"),
        ({"target": np.eye(4)}, "3 ports"),
        ({"target": np.stack([np.eye(3)] * 2)}, "one square matrix"),
        ({"criterion": "phase"}, "choose 'fidelity', 'columns', 'real_part'"),
        ({"target": 1j * np.eye(3), "criterion": "real_part"}, "real part is 0"),
        ({"max_steps": 0}, "max_steps"),
        ({"imperfections": MeshImperfections.ideal(RectangularLayout(4))}, "eta_in"),
        ({"imperfections": MeshImperfections(np.ones((2, 3)), np.ones(3), np.ones(3))}, "one at a time"),
        ({"crosstalk": np.eye(8)}, r"\(9, 9\)"),
        ({"crosstalk": 2.0 * np.eye(9)}, "diagonal"),
        ({"crosstalk": np.full((9, 9), np.nan)}, "NaN"),
        ({"crosstalk": "heat"}, "real numbers"),
        ({"crosstalk": np.ones((9, 9))}, "no inverse"),
        ({"start": random_phases(RectangularLayout(4), np.random.default_rng(0))}, "the same mesh"),
        ({"start": MeshPhases(RectangularLayout(3), *np.zeros((3, 2, 3)))}, "give one"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(MatrixError, match=message):
        program_mesh(**{"target": np.eye(3), "layout": RectangularLayout(3), **change})


def test_crosstalk_that_no_period_can_undo_is_refused():
    crosstalk = np.eye(9)
    crosstalk[0, 1] = crosstalk[1, 0] = -1.5  # each heater turns the other more than itself
    with pytest.raises(LimitError, match="below 0"):
        program_mesh(haar_unitary(3, np.random.default_rng(14)), RectangularLayout(3), crosstalk=crosstalk)
