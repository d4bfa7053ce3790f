"""Predicted powers of bare meshes and their derivatives: against the chip model and central differences."""

from dataclasses import replace

import numpy as np
import pytest

from calibration._mesh_fit import predict
from calibration._mesh_linear import MeshPoint
from calibration._mesh_solve import NormalEquations, conjugate_gradients
from calibration._mesh_space import BLOCKS, MeshSpace, PriorWidths
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import MeshPhases, RectangularLayout, TriangularLayout, mesh_matrix
from tests.mesh_truths import P_PI, exact, rough, settings, truth

STEP = 1e-6


def random_point(seed=0, ports=4, readings=9, **flaws):
    rng = np.random.default_rng(seed)
    chip = truth(ports, seed, **flaws)
    space = MeshSpace(rough(chip, rng), np.full(len(chip.offset), P_PI), PriorWidths())
    vector = space.centre + 0.5 * space.sigma * rng.standard_normal(space.size)
    power_w, lit = settings(chip, readings, rng)
    return space, vector, power_w, lit, rng


@pytest.mark.parametrize(
    "mesh",
    [None, TriangularLayout(5), RectangularLayout(5).without([(0, 2), (3, 1)])],
    ids=["rectangular", "triangular", "gaps"],
)
def test_powers_are_those_of_the_chip_model(mesh):
    chip = truth(5, 3, mean=0.05, arm_loss=0.03, second_order=(2e-3, 1e-3), curvature=3e-4, mesh=mesh)
    power_w, lit = settings(chip, 37, np.random.default_rng(0))
    np.testing.assert_allclose(predict(chip, power_w, lit), exact(chip, power_w, lit), rtol=1e-10, atol=1e-14)


def test_powers_are_squares_of_the_mesh_matrix():
    chip = truth(4, 1, mean=-0.04)
    power_w, lit = settings(chip, 3, np.random.default_rng(0))
    flaws, before = chip.mesh_imperfections()
    phases = chip.phases(power_w)
    for row in range(3):
        theta, phi = phases[row, chip.layout.mesh_theta], phases[row, chip.layout.mesh_phi]
        matrix = mesh_matrix(MeshPhases(chip.layout.mesh, theta, phi, np.zeros(4)), flaws) * before
        amplitudes = matrix[:, lit[row]] * chip.input_amplitude[lit[row]]
        expected = chip.gain * np.abs(amplitudes) ** 2
        np.testing.assert_allclose(predict(chip, power_w, lit)[row], expected, rtol=1e-10)


@pytest.mark.parametrize("block", [name for name in BLOCKS if "efficiency" not in name])
def test_derivatives_are_central_differences(block):
    space, vector, power_w, lit, rng = random_point(arm_loss=0.02, second_order=(2e-3, 1e-3), curvature=3e-4)
    direction = np.zeros(space.size)
    direction[space.slices[block]] = rng.standard_normal(direction[space.slices[block]].shape)
    ahead, behind = (MeshPoint(space, vector + s * STEP * direction, power_w, lit).predicted for s in (1, -1))
    derivative = MeshPoint(space, vector, power_w, lit).apply(direction)
    expected = (ahead - behind) / (2 * STEP)
    np.testing.assert_allclose(derivative, expected, atol=1e-7 * np.abs(expected).max() + 1e-10)


def test_derivatives_by_efficiencies_are_central_differences_without_second_order():
    space, vector, power_w, lit, rng = random_point()
    space = space.with_free(set(BLOCKS) - {"second_order", "curvature"})
    vector[space.slices["second_order"]] = vector[space.slices["curvature"]] = 0.0
    direction = np.zeros(space.size)
    direction[space.slices["efficiency"]] = rng.standard_normal(len(space.start.offset))
    direction[space.slices["common_efficiency"]] = 0.3
    ahead, behind = (MeshPoint(space, vector + s * STEP * direction, power_w, lit).predicted for s in (1, -1))
    derivative = MeshPoint(space, vector, power_w, lit).apply(direction)
    np.testing.assert_allclose(derivative, (ahead - behind) / (2 * STEP), atol=1e-6)


def test_transposed_product_is_the_adjoint():
    space, vector, power_w, lit, rng = random_point(readings=21)
    point = MeshPoint(space, vector, power_w, lit)
    direction, weights = rng.standard_normal(space.size), rng.standard_normal(point.predicted.shape)
    assert np.sum(weights * point.apply(direction)) == pytest.approx(point.apply_transposed(weights) @ direction)


def test_dense_rows_are_the_products_with_unit_vectors():
    space, vector, power_w, lit, _ = random_point(ports=3, readings=5)
    point = MeshPoint(space, vector, power_w, lit)
    _, rows = point.dense_rows()
    for index in range(space.dense_size):
        unit = np.zeros(space.size)
        unit[index] = 1.0
        np.testing.assert_allclose(rows[..., index], point.apply(unit), atol=1e-12)


def test_products_in_single_precision_are_right_to_six_digits():
    space, vector, power_w, lit, rng = random_point(readings=21, arm_loss=0.02, second_order=(2e-3, 1e-3))
    point = MeshPoint(space, vector, power_w, lit)
    direction = space.sigma * rng.standard_normal(space.size)
    weights = rng.standard_normal(point.predicted.shape)
    exact_change, exact_gradient = point.apply(direction), point.apply_transposed(weights)
    change, gradient = (point.single_jacobian.apply(direction), point.single_jacobian.apply_transposed(weights))
    np.testing.assert_allclose(change, exact_change, atol=3e-6 * np.abs(exact_change).max())
    for place in space.slices.values():
        largest = np.abs(exact_gradient[place]).max()
        np.testing.assert_allclose(gradient[place], exact_gradient[place], atol=1e-5 * largest)


def test_sketches_are_rows_of_the_jacobian():
    space, vector, power_w, lit, rng = random_point(ports=3, readings=5, arm_loss=0.02)
    point = MeshPoint(space, vector, power_w, lit)
    weights, jacobian = rng.standard_normal(point.predicted.shape), point.jacobian
    heaters, mzis = len(space.start.offset), len(space.start.mzi_transmission)
    first = heaters + np.array([0, 2 * mzis, 3 * mzis])
    rows = np.zeros((jacobian.lanes.lit.size, heaters + 5 * mzis))
    jacobian.sketch(weights, first, rows)
    _, dense = point.dense_rows()
    by_vector = np.einsum("bj,bjp->bp", weights, dense)
    blocks = ("offset", "eta", "loss", "arm_loss")
    places = np.concatenate([np.arange(space.size)[space.slices[name]] for name in blocks])
    np.testing.assert_allclose(rows[jacobian.lanes.rows], by_vector[:, places], atol=1e-12)


def test_spaces_with_other_priors_keep_what_vectors_mean():
    space, vector, *_ = random_point()
    other = space.with_widths(PriorWidths(eta=0.05, crosstalk=0.003, length=2.5)).with_free({"offset", "eta"})
    fresh = MeshSpace(
        space.start, space.reference_power_w, PriorWidths(eta=0.05, crosstalk=0.003, length=2.5), {"offset", "eta"}
    )
    np.testing.assert_array_equal(other.sigma, fresh.sigma)
    np.testing.assert_array_equal(other.precision, fresh.precision)
    np.testing.assert_array_equal(other.crosstalk(vector), fresh.crosstalk(vector))
    np.testing.assert_array_equal(space.precision, 1.0 / random_point()[0].sigma ** 2)


def test_vector_of_a_twin_holds_its_mean_crosstalk():
    space, _, power_w, lit, rng = random_point(readings=3)
    vector = space.centre.copy()
    vector[space.slices["profile"]] = 0.005 * rng.standard_normal(6)
    vector[space.slices["offset"]] += 0.1
    again = space.vector(space.twin(vector))
    np.testing.assert_allclose(again, vector, atol=1e-9)
    np.testing.assert_allclose(
        exact(space.twin(vector), power_w, lit), exact(space.twin(again), power_w, lit), rtol=1e-6
    )


def test_twin_of_a_vector_predicts_what_the_vector_predicts():
    space, vector, power_w, lit, _ = random_point(arm_loss=0.02, second_order=(2e-3, 1e-3), curvature=3e-4)
    point = MeshPoint(space, vector, power_w, lit)
    twin = space.twin(vector)
    np.testing.assert_allclose(exact(twin, power_w, lit), point.predicted, rtol=1e-9)
    np.testing.assert_array_equal(np.diagonal(twin.crosstalk), 1.0)


def test_a_stuck_heater_moves_nothing():
    chip = truth(4, 0)
    chip = replace(chip, stuck=("mzi_1_1_theta",))
    power_w, lit = settings(chip, 5, np.random.default_rng(0))
    moved = power_w.copy()
    moved[:, chip.layout.heater_index["mzi_1_1_theta"]] = 0.0
    np.testing.assert_array_equal(predict(chip, power_w, lit), predict(chip, moved, lit))


def test_normal_equations_are_solved():
    space, vector, power_w, lit, rng = random_point(ports=3, readings=30)
    point = MeshPoint(space, vector, power_w, lit)
    equations = NormalEquations(space, point, np.full(point.predicted.shape, 1e3))
    matrix = np.stack([equations.multiply(unit) for unit in np.eye(space.size)])
    wanted = space.sigma * rng.standard_normal(space.size)
    solved, _ = conjugate_gradients(equations.multiply, equations.preconditioner(), matrix @ wanted, 1e-10, 2000)
    np.testing.assert_allclose(solved / space.sigma, wanted / space.sigma, atol=1e-4)


@pytest.mark.parametrize("scatter", [0.002, 0.05])
def test_preconditioner_knows_what_random_settings_tell(scatter):
    chip = truth(4, 2)
    power_w, lit = settings(chip, 300, np.random.default_rng(1))
    space = MeshSpace(chip, power_w.mean(axis=0), PriorWidths(crosstalk=scatter))
    point = MeshPoint(space, space.centre, power_w, lit)
    equations = NormalEquations(space, point, 1.0 / np.hypot(1e-3 * point.predicted, 1e-7))
    scaled = np.stack([equations.multiply(space.sigma * unit) * space.sigma for unit in np.eye(space.size)])
    inverse = equations.preconditioner()
    nearly = np.stack([inverse(unit / space.sigma) / space.sigma for unit in np.eye(space.size)])
    np.testing.assert_allclose(nearly, nearly.T, atol=1e-5 * np.abs(nearly).max())
    found = np.linalg.eigvals(nearly @ scaled).real
    assert found.max() < 100.0
    # What common and own parts of efficiencies add up to is known far better than each.
    total = np.zeros((len(chip.offset), space.size))
    total[:, space.slices["efficiency"]] = np.eye(len(chip.offset))
    total[:, space.slices["common_efficiency"]] = 1.0
    covariance = np.linalg.inv(scaled) * space.sigma * space.sigma[:, None]
    ratio = np.sqrt(inverse.variances()[1] / np.diagonal(total @ covariance @ total.T))
    assert 0.4 < np.median(ratio) < 1.1


def test_overflow_is_an_error_of_ours():
    with pytest.raises(CalibrationError, match="overflows"):
        conjugate_gradients(lambda x: x * np.inf, lambda x: x, np.ones(2), 1e-3, 5)
