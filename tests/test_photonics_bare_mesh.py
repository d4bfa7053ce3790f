"""Bare meshes (one lit port, power detectors), losses that differ between arms, and heat of second order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import (
    ChipLayout,
    ChipModel,
    MeshPhases,
    RectangularLayout,
    TriangularLayout,
    TwinParameters,
    mesh_matrix,
    solve_powers,
)
from optinc_hw.photonics.arms import bare_arms


def bare_twin(mesh, rng, **changes):
    n, mzis = mesh.ports, len(mesh.mzis)
    twin = TwinParameters.nominal(
        n, input_amplitude=1.0, lo_amplitude=1.0, mesh=mesh, inputs="ports", receivers="power"
    )
    drawn = {
        "offset": rng.uniform(0.0, 2 * np.pi, 2 * mzis),
        "mesh_eta": np.pi / 4 + 0.05 * rng.standard_normal((mzis, 2)),
        "mzi_transmission": rng.uniform(0.97, 1.0, mzis),
        "input_amplitude": rng.uniform(0.8, 1.0, n),
        "output_transmission": rng.uniform(0.8, 1.0, n),
        "gain": rng.uniform(0.9, 1.1, n),
        "dark_w": 1e-3 * rng.standard_normal(n),
        "arm_loss": 0.02 * rng.standard_normal((mzis, 2)),
    }
    return replace(twin, **(drawn | changes))


def matrix_by_hand(twin, phases):
    """Product of 2x2 matrices with complex phases, as design.md writes an MZI."""

    def coupler(eta):
        return np.array([[np.cos(eta), 1j * np.sin(eta)], [1j * np.sin(eta), np.cos(eta)]])

    matrix = np.eye(twin.ports, dtype=complex)
    for k, (_, upper) in enumerate(twin.layout.mesh.mzis):
        theta, phi = phases[2 * k : 2 * k + 2] + 1j * twin.arm_loss[k]
        eta_in, eta_out = twin.mesh_eta[k]
        inner, outer = np.diag([np.exp(1j * theta), 1.0]), np.diag([np.exp(1j * phi), 1.0])
        cell = twin.mzi_transmission[k] * coupler(eta_out) @ inner @ coupler(eta_in) @ outer
        matrix[upper : upper + 2] = cell @ matrix[upper : upper + 2]
    return matrix


@pytest.mark.parametrize("mesh", [RectangularLayout(2), RectangularLayout(5), TriangularLayout(4)], ids=repr)
def test_readings_are_those_of_a_product_of_mzis(mesh):
    rng = np.random.default_rng(1)
    twin = bare_twin(mesh, rng)
    power = rng.uniform(0.0, 0.04, (6, len(twin.offset)))
    lit = rng.integers(0, mesh.ports, 6)
    readings = ChipModel.from_parameters(twin).readings(twin, power, lit)
    for row, port, reading in zip(twin.phases(power), lit, readings, strict=True):
        field = twin.output_transmission * matrix_by_hand(twin, row)[:, port] * twin.input_amplitude[port]
        np.testing.assert_allclose(reading, twin.gain * np.abs(field) ** 2 + twin.dark_w, atol=1e-14)


@pytest.mark.parametrize("transmission", [1.0, 0.97])
def test_imperfections_of_a_twin_give_its_matrix(transmission):
    rng = np.random.default_rng(2)
    twin = bare_twin(RectangularLayout(6), rng, mzi_transmission=np.full(15, transmission))
    phases = rng.uniform(0.0, 2 * np.pi, 30)
    flaws, before = twin.mesh_imperfections()
    made = mesh_matrix(MeshPhases(twin.layout.mesh, phases[::2], phases[1::2], np.zeros(6)), flaws) * before
    np.testing.assert_allclose(made, matrix_by_hand(twin, phases), atol=1e-14)


def test_coherent_fields_superpose():
    rng = np.random.default_rng(3)
    twin = bare_twin(RectangularLayout(4), rng)
    phases = torch.as_tensor(rng.uniform(0.0, 6.0, (1, 12)))
    fields = rng.standard_normal((1, 4)) + 1j * rng.standard_normal((1, 4))
    model = ChipModel.from_parameters(twin)
    seen = model.detector_powers(phases, torch.as_tensor(fields))[0].numpy()
    made = matrix_by_hand(twin, phases[0].numpy()) @ (twin.input_amplitude * fields[0])
    np.testing.assert_allclose(seen, twin.gain * np.abs(twin.output_transmission * made) ** 2 + twin.dark_w, rtol=1e-12)


def test_arm_losses_are_differentiable():
    rng = np.random.default_rng(4)
    twin = bare_twin(RectangularLayout(3), rng)
    phases = torch.as_tensor(rng.uniform(0.0, 6.0, (2, 6)))
    lit = torch.tensor([0, 2])

    def readings(arm_loss):
        elements = replace(ChipModel.from_parameters(twin).elements, arm_loss=arm_loss)
        return ChipModel(twin.layout, elements).detector_powers(phases, lit)

    assert torch.autograd.gradcheck(readings, torch.tensor(twin.arm_loss, requires_grad=True))


def test_heat_on_both_arms_of_an_mzi_is_nothing_to_power_detectors():
    layout = ChipLayout(4, inputs="ports", receivers="power")
    bare = bare_arms(layout)
    rng = np.random.default_rng(5)
    twin = bare_twin(layout.mesh, rng, arm_loss=np.zeros((6, 2)), mzi_transmission=np.ones(6))
    mzis = layout.mesh.mzis
    last = [k for k, (column, _) in enumerate(mzis) if column == 3]
    phases = rng.uniform(0.0, 6.0, 12)
    for k in last:  # the lower arm between the couplers of the last column: minus the upper one, and an output phase
        site = (2.0 * mzis[k][0] + 1.0, mzis[k][1] + 1.0)
        (arm,) = np.flatnonzero((bare.sites == site).all(axis=1))
        expected = np.zeros(12)
        expected[layout.mesh_theta[k]] = -1.0
        np.testing.assert_array_equal(bare.effect[:, arm], expected)
    assert np.abs(matrix_by_hand(twin, phases)).max() <= 1.0 + 1e-12


def test_powers_for_phases_with_heat_of_second_order():
    rng = np.random.default_rng(6)
    twin = bare_twin(RectangularLayout(5), rng, second_order=np.array([2e-3, 1e-3]))
    wanted = rng.uniform(0.0, 2 * np.pi, (3, 20))
    power = solve_powers(twin, wanted, max_power_w=0.06)
    turns = (twin.phases(power) - wanted) / (2 * np.pi)
    np.testing.assert_allclose(turns, np.rint(turns), atol=1e-8)
    assert power.min() >= 0.0
    straight = replace(twin, second_order=np.zeros(2))
    # Own heat alone, by hand: d + 2e-3 d^2 more than the straight law for one heater.
    one = np.zeros(20)
    one[7] = 0.03
    drive = np.pi * 0.03 / 0.02
    np.testing.assert_allclose(twin.phases(one)[7] - straight.phases(one)[7], 2e-3 * drive**2, rtol=1e-12)


def test_layouts_name_only_what_is_there():
    bare = ChipLayout(3, inputs="ports", receivers="power")
    assert bare.bare
    assert bare.heaters == tuple(
        f"mzi_{c}_{m}_{kind}" for c, m in ((0, 0), (1, 1), (2, 0)) for kind in ("theta", "phi")
    )
    assert bare.detectors == ("rx_0", "rx_1", "rx_2")
    mixed = ChipLayout(3, receivers="power")
    assert mixed.heaters[:6] == ("in_0_theta", "in_0_phi", "in_1_theta", "in_1_phi", "in_2_theta", "in_2_phi")
    assert not any(name.startswith(("out", "att", "lo")) for name in mixed.heaters)
    assert mixed != bare
    with pytest.raises(MatrixError, match="no local oscillator"):
        _ = bare.lo
    with pytest.raises(MatrixError, match="'camera' is unknown; choose one of homodyne, power"):
        ChipLayout(3, receivers="camera")


def test_the_lit_port_must_be_stated_where_there_are_no_modulators():
    twin = bare_twin(RectangularLayout(3), np.random.default_rng(7))
    with pytest.raises(MatrixError, match="lit port"):
        ChipModel.from_parameters(twin).detector_powers(torch.zeros(1, 6, dtype=torch.float64))
