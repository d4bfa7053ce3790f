"""The chip model against the hidden chip's independent physics, its gradients, and the names on the chip."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import bare_sections, imperfect_twin, matched_twin, set_heater_powers

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import ChipElements, ChipLayout, ChipModel, TwinParameters, mesh_matrix
from optinc_hw.photonics._mesh import MeshImperfections, MeshPhases
from optinc_hw.photonics.arms import bare_arms
from optinc_hw.photonics.twin import parameter_shapes
from simulated_instruments import HiddenChip, HiddenEffects

LASER_W = 0.01
WAVELENGTH_M = 1550e-9
SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("ports", range(2, 9))
def test_names_order_and_indices_of_the_chip(ports):
    layout = ChipLayout(ports)
    assert len(layout.heaters) == ports * (ports - 1) + 4 * ports + 1
    assert len(layout.detectors) == 2 * ports
    assert len(set(layout.heaters)) == len(layout.heaters)
    assert [layout.heater_index[name] for name in layout.heaters] == list(range(len(layout.heaters)))

    def names(indices):
        return [layout.heaters[k] for k in indices]

    assert names(layout.input_theta) == [f"in_{i}_theta" for i in range(ports)]
    assert names(layout.input_phi) == [f"in_{i}_phi" for i in range(ports)]
    assert names(layout.mesh_theta) == [f"mzi_{c}_{m}_theta" for c, m in layout.mesh.mzis]
    assert names(layout.mesh_phi) == [f"mzi_{c}_{m}_phi" for c, m in layout.mesh.mzis]
    assert names(layout.output_phase) == [f"out_{j}" for j in range(ports)]
    assert names(layout.attenuator) == [f"att_{j}" for j in range(ports)]
    assert layout.heaters[layout.lo] == "lo"
    every = [layout.input_theta, layout.input_phi, layout.mesh_theta, layout.mesh_phi, layout.output_phase]
    assert sorted(np.concatenate([*every, layout.attenuator, [layout.lo]])) == list(range(len(layout.heaters)))
    assert layout.detectors[0] == "rx_0_plus"
    assert layout.detectors[ports] == "rx_0_minus"
    assert layout.heater_sites.shape == (len(layout.heaters), 2)
    assert len(np.unique(layout.heater_sites, axis=0)) == len(layout.heaters)


@pytest.mark.parametrize("ports", [1, 0, -2, 2.0, "3"])
def test_a_chip_of_fewer_than_two_ports_is_refused(ports):
    with pytest.raises(MatrixError, match="at least 2"):
        TwinParameters.nominal(ports, input_amplitude=0.1, lo_amplitude=0.1)


def hidden_chip(ports, seed, effects):
    chip = HiddenChip.from_seed(seed, ports, effects=effects)
    chip.set_laser(LASER_W, WAVELENGTH_M)
    return chip


def hidden_readings(chip, power_w):
    truth, rows = chip.parameters, []
    for row in power_w:
        set_heater_powers(chip, row)
        rows.append(chip.detector_powers() * truth.gain + truth.dark_w)
    return np.stack(rows)


@pytest.mark.parametrize("ports", [2, 3, 4, 5, 8])
def test_the_ideal_chip_agrees_with_independent_physics(ports):
    chip = hidden_chip(ports, 0, HiddenEffects.none())
    share = HiddenEffects.none().lo_fraction
    twin = TwinParameters.nominal(
        ports,
        input_amplitude=np.sqrt(LASER_W * (1.0 - share) / ports),
        lo_amplitude=np.sqrt(LASER_W * share / ports),
        p_pi_w=HiddenEffects().pi_power_w,
    )
    power = np.random.default_rng(ports).uniform(0.0, 0.05, (5, len(twin.offset)))
    np.testing.assert_allclose(
        ChipModel.from_parameters(twin).readings(twin, power), hidden_readings(chip, power), atol=1e-15, rtol=1e-9
    )


@pytest.mark.parametrize("ports", [2, 3, 4, 5, 8])
def test_an_imperfect_chip_agrees_with_independent_physics(ports):
    """All effects but unequal arm losses: the crosstalk and offsets of bare arms are pushed onto heated ones."""
    chip = hidden_chip(ports, ports, HiddenEffects(arm_loss_rms=0.0, bare_arm_factor=1.0, crosstalk_strength=0.05))
    twin = matched_twin(chip, LASER_W)
    power = np.random.default_rng(ports).uniform(0.0, 0.05, (5, len(twin.offset)))
    predicted, true = ChipModel.from_parameters(twin).readings(twin, power), hidden_readings(chip, power)
    np.testing.assert_allclose(predicted, true, atol=1e-14, rtol=1e-9)


def test_every_bare_section_that_light_passes_is_known():
    for ports in (2, 3, 4, 5, 8):
        index = bare_sections(ChipLayout(ports))
        assert len(set(index)) == len(index) == 2 * ports + ports * (ports + 1)


@pytest.mark.parametrize("ports", [2, 3, 4, 5])
def test_a_phase_on_one_bare_arm_moves_the_powers_as_predicted(ports):
    chip = hidden_chip(ports, 1, HiddenEffects(arm_loss_rms=0.0))
    layout, twin, bare = chip.layout, matched_twin(chip, LASER_W), bare_arms(chip.layout)
    sections = bare_sections(layout)
    power = np.random.default_rng(2).uniform(0.0, 0.05, (1, len(layout.heaters)))
    before = hidden_readings(chip, power)
    for arm, section in enumerate(sections):
        offset = chip.parameters.offset_rad.copy()
        offset[section] += 0.7
        turned = HiddenChip(layout, chip.effects, replace(chip.parameters, offset_rad=offset), 0)
        turned.set_laser(LASER_W, WAVELENGTH_M)
        seen = hidden_readings(turned, power)
        moved = replace(twin, offset=twin.offset + 0.7 * bare.effect[:, arm])
        np.testing.assert_allclose(ChipModel.from_parameters(moved).readings(moved, power), seen, rtol=1e-9)
        assert np.abs(seen / before - 1.0).max() > 1e-3


def as_leaves(elements):
    return {name: value.clone().requires_grad_() for name, value in vars(elements).items()}


@pytest.mark.parametrize("ports", [2, 3, 4])
def test_gradients_of_phases_and_elements(ports):
    twin = imperfect_twin(ports, 0)
    bright = replace(twin, input_amplitude=30.0 * twin.input_amplitude, lo_amplitude=30.0 * twin.lo_amplitude)
    leaves = as_leaves(ChipElements.from_parameters(bright))
    phases = torch.as_tensor(np.random.default_rng(0).uniform(0, 6, (2, len(twin.offset)))).requires_grad_()

    def readings(phases, *values):
        elements = ChipElements(**dict(zip(leaves, values, strict=True)))
        return ChipModel(twin.layout, elements).detector_powers(phases)

    assert torch.autograd.gradcheck(readings, (phases, *leaves.values()))


@settings(max_examples=15)
@given(st.integers(2, 6), SEEDS)
def test_settings_of_a_batch_do_not_touch_each_other(ports, seed):
    twin, rng = imperfect_twin(ports, 0), np.random.default_rng(seed)
    model = ChipModel.from_parameters(twin)
    power = rng.uniform(0.0, 0.05, (7, len(twin.offset)))
    together = model.readings(twin, power)
    alone = np.concatenate([model.readings(twin, row[None]) for row in power])
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    order = rng.permutation(7)
    np.testing.assert_allclose(model.readings(twin, power[order]), together[order], rtol=1e-12)


def test_a_batch_of_chips_broadcasts():
    twins = [imperfect_twin(3, seed) for seed in range(4)]
    phases = torch.as_tensor(np.random.default_rng(0).uniform(0, 6, (4, len(twins[0].offset))))
    single = [ChipElements.from_parameters(twin) for twin in twins]
    stacked = ChipElements(**{name: torch.stack([vars(e)[name] for e in single]) for name in vars(single[0])})
    together = ChipModel(twins[0].layout, stacked).detector_powers(phases)
    for k, elements in enumerate(single):
        alone = ChipModel(twins[0].layout, elements).detector_powers(phases[k : k + 1])
        torch.testing.assert_close(together[k : k + 1], alone)


def test_an_empty_batch_gives_an_empty_answer():
    twin = imperfect_twin(3, 0)
    assert ChipModel.from_parameters(twin).readings(twin, np.zeros((0, len(twin.offset)))).shape == (0, 6)


def test_single_precision_agrees_with_double():
    twin = imperfect_twin(8, 0)
    power = np.random.default_rng(0).uniform(0.0, 0.05, (20, len(twin.offset)))
    double = ChipModel.from_parameters(twin).readings(twin, power)
    model = ChipModel.from_parameters(twin, dtype=torch.float32)
    phases = torch.as_tensor(twin.phases(power), dtype=torch.float32)
    assert model.detector_powers(phases).dtype == torch.float32
    assert model.transfer_matrix(phases).dtype == torch.complex64
    np.testing.assert_allclose(model.readings(twin, power), double, atol=2e-5 * double.max())


@pytest.mark.parametrize("ports", [2, 3, 6, 7])
def test_the_transfer_matrix_is_mesh_then_attenuators(ports):
    twin, rng = imperfect_twin(ports, 3), np.random.default_rng(0)
    layout, phases = twin.layout, rng.uniform(0, 6, len(twin.offset))
    mesh = mesh_matrix(
        MeshPhases(layout.mesh, *(phases[i] for i in (layout.mesh_theta, layout.mesh_phi, layout.output_phase))),
        MeshImperfections(twin.mesh_eta[:, 0], twin.mesh_eta[:, 1], twin.mzi_transmission),
    )
    eta_in, eta_out = twin.attenuator_eta.T
    bar = np.cos(eta_out) * np.exp(1j * phases[layout.attenuator]) * np.cos(eta_in) - np.sin(eta_out) * np.sin(eta_in)
    expected = (bar * twin.output_transmission)[:, None] * mesh
    model = ChipModel.from_parameters(twin)
    np.testing.assert_allclose(model.transfer_matrix(torch.as_tensor(phases)[None])[0], expected, atol=1e-13)


def test_parameters_of_wrong_shape_or_value_are_named():
    twin = imperfect_twin(3, 0)
    for name, shape in parameter_shapes(3).items():
        with pytest.raises(MatrixError, match=rf"{name} has shape .*a chip of 3 ports needs"):
            replace(twin, **{name: np.zeros((*shape, 2))})
        spoilt = np.array(getattr(twin, name))
        spoilt.flat[0] = np.nan
        with pytest.raises(MatrixError, match=f"{name} holds NaN or Inf"):
            replace(twin, **{name: spoilt})
