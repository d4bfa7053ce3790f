"""Unitaries through a twin: powers whose mesh makes them, as the twin's own model says."""

from dataclasses import replace

import numpy as np
import pytest
from test_photonics_bare_mesh import bare_twin, matrix_by_hand
from true_records import TrueMesh

from optinc_hw.errors import LimitError, MatrixError
from optinc_hw.photonics import (
    MeshImperfections,
    RectangularLayout,
    TriangularLayout,
    fidelity,
    haar_unitary,
    mesh_matrix,
    program_mesh,
    program_unitary,
)


def crosstalk(heaters, rng):
    return np.eye(heaters) + 0.01 * rng.standard_normal((heaters, heaters)) * (1 - np.eye(heaters))


@pytest.mark.parametrize("ports", [2, 3, 6])
def test_powers_make_the_target(ports):
    rng = np.random.default_rng(ports)
    mzis = ports * (ports - 1) // 2
    perfect = {"mesh_eta": np.full((mzis, 2), np.pi / 4), "mzi_transmission": np.ones(mzis)}
    twin = bare_twin(
        RectangularLayout(ports), rng, arm_loss=np.zeros((mzis, 2)), crosstalk=crosstalk(2 * mzis, rng), **perfect
    )
    target = haar_unitary(ports, rng)
    programmed = program_unitary(twin, target, 0.06)
    made = matrix_by_hand(twin, twin.phases(programmed.power_w))
    np.testing.assert_allclose(np.abs(made), np.abs(target), atol=1e-6)
    np.testing.assert_allclose(programmed.matrix, made, atol=1e-12)
    np.testing.assert_allclose(programmed.distribution, np.abs(target) ** 2, atol=1e-6)
    assert programmed.fidelity == pytest.approx(1.0, abs=1e-9)
    assert programmed.power_w.min() >= 0.0
    assert programmed.power_w.max() <= 0.06


def test_fidelity_is_of_normalised_columns_up_to_port_phases():
    rng = np.random.default_rng(11)
    twin = bare_twin(RectangularLayout(5), rng)
    programmed = program_unitary(twin, haar_unitary(5, rng), 0.06)
    made = matrix_by_hand(twin, twin.phases(programmed.power_w))
    columns = made / np.linalg.norm(made, axis=0)
    assert programmed.fidelity == pytest.approx(fidelity(programmed.target, columns, gauge="ports"), abs=1e-12)
    assert programmed.fidelity > 0.99


def test_losses_at_the_inputs_do_not_matter_to_columns():
    rng = np.random.default_rng(12)
    layout, target = RectangularLayout(5), haar_unitary(5, rng)
    eta = np.pi / 4 + 0.1 * rng.standard_normal((2, 10))
    # The first column's MZIs and nothing else lose light: that is a loss of inputs 0 to 3 alone.
    lossy = np.where([column == 0 for column, _ in layout.mzis], 0.7, 1.0)
    fidelities = []
    for transmission in (np.ones(10), lossy):
        flaws = MeshImperfections(*eta, transmission)
        made = mesh_matrix(program_mesh(target, layout, flaws, criterion="columns", max_steps=5000).phases, flaws)
        fidelities.append(fidelity(target, made / np.linalg.norm(made, axis=0)))
    assert fidelities[1] == pytest.approx(fidelities[0], abs=1e-5)


def test_mesh_is_programmed_around_a_stuck_phase_that_others_warm():
    rng = np.random.default_rng(13)
    twin = bare_twin(RectangularLayout(4), rng, crosstalk=crosstalk(12, rng))
    broken = replace(twin, stuck=("mzi_1_1_theta",))
    target = haar_unitary(4, rng)
    around, ignored = program_unitary(broken, target, 0.06), program_unitary(twin, target, 0.06)
    assert around.power_w[twin.layout.heater_index["mzi_1_1_theta"]] == 0.0
    as_if_it_moved = matrix_by_hand(broken, broken.phases(ignored.power_w))
    as_if_it_moved /= np.linalg.norm(as_if_it_moved, axis=0)
    assert around.fidelity > fidelity(target, as_if_it_moved, gauge="ports")


def test_bad_targets_and_limits_are_refused():
    rng = np.random.default_rng(14)
    twin = bare_twin(RectangularLayout(3), rng)
    with pytest.raises(MatrixError, match="3 ports"):
        program_unitary(twin, np.eye(4))
    with pytest.raises(MatrixError, match="unitary"):
        program_unitary(twin, np.ones((3, 3)))
    with pytest.raises(LimitError, match="mzi_"):
        program_unitary(twin, haar_unitary(3, rng), 0.001)


@pytest.mark.parametrize("stuck", [False, True])
@pytest.mark.parametrize("layout", [RectangularLayout(5), TriangularLayout(4), RectangularLayout(6).without([(2, 2)])])
def test_normalised_columns_end_where_no_phase_helps_any_more(layout, stuck):
    rng = np.random.default_rng(len(layout.mzis))
    mzis = len(layout.mzis)
    held = np.full(mzis, np.nan)
    held[1] = 1.3
    flaws = MeshImperfections(
        0.85 + rng.normal(0.0, 0.02, mzis), 0.85 + rng.normal(0.0, 0.02, mzis), rng.uniform(0.95, 1.0, mzis),
        arms=rng.uniform(0.97, 1.0, (mzis, 2)), behind=rng.uniform(0.97, 1.0, (mzis, 2)),
        stuck_theta=held if stuck else None,
    )  # fmt: skip
    target = haar_unitary(layout.ports, rng)
    program = program_mesh(target, layout, flaws, criterion="columns")

    def lost(theta):
        made = mesh_matrix(replace(program.phases, theta=theta), flaws)
        return 1.0 - fidelity(target, made / np.linalg.norm(made, axis=0), gauge="ports")

    step, best = 1e-3, lost(program.phases.theta)
    around = np.array([[lost(program.phases.theta + sign * step * one) for sign in (1, -1)] for one in np.eye(mzis)])
    slopes = (around[:, 0] - around[:, 1]) / (2.0 * step)
    assert program.converged
    assert best > 1e-5
    np.testing.assert_allclose(slopes, 0.0, atol=1e-3 * best + 1e-9)
    assert np.all(around.sum(axis=1) - 2.0 * best > -1e-12)


def test_limits_that_leave_more_than_a_turn_are_kept_on_a_large_mesh():
    """380 heaters, crosstalk of both signs: too many undecided whole turns for a search, and the first guess is out."""
    mesh = TrueMesh.of("method_b", 20, 17)
    rng = np.random.default_rng(17)
    target = [haar_unitary(20, rng) for _ in range(5)][-1]
    limit = 3.0 * mesh.chip.effects.pi_power_w
    programmed = program_unitary(mesh.twin, target, limit)
    assert (programmed.power_w >= 0.0).all()
    assert programmed.power_w.max() <= limit * (1.0 + 1e-9)
    assert programmed.fidelity > 0.997
