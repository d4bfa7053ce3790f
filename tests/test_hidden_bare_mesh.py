"""Hidden chips without modulators or homodyne receivers, against an independent library, matrices and energy."""

import math

import numpy as np
import pytest
from library_meshes import haar, phases_from_library
from twins import set_heater_powers

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics import ChipLayout, MeshLayout, TriangularLayout
from simulated_instruments import HiddenChip, HiddenEffects
from simulated_instruments._geometry import ArmSections

POWER_W = 1e-2
WAVELENGTH_M = 1550e-9
BARE = {"inputs": "ports", "receivers": "power"}


def lit_chip(ports, effects=None, seed=3, **kinds):
    chip = HiddenChip.from_seed(
        seed, ports, effects=HiddenEffects.none() if effects is None else effects, **(kinds or BARE)
    )
    chip.set_laser(POWER_W, WAVELENGTH_M)
    return chip


def heat_randomly(chip, seed=0, most_w=0.04):
    power = np.random.default_rng(seed).uniform(0.0, most_w, len(chip.layout.heaters))
    set_heater_powers(chip, power)
    return power


def powers_by_port(chip):
    rows = []
    for port in range(chip.layout.ports):
        chip.set_lit_port(port)
        rows.append(chip.detector_powers())
    return np.stack(rows, axis=1)


def program(chip, phases):
    power = np.zeros(len(chip.layout.heaters))
    for name, phase in phases.items():
        power[chip.layout.heater_index[name]] = phase % (2.0 * math.pi) / math.pi * chip.effects.pi_power_w
    set_heater_powers(chip, power)


@pytest.mark.parametrize("ports", [2, 3, 4, 5, 8])
def test_ports_and_power_detectors_agree_with_an_independent_library(ports):
    chip = lit_chip(ports)
    unitary = haar(ports, seed=ports)
    phases, outputs = phases_from_library(unitary, chip.layout)
    program(chip, phases)
    np.testing.assert_allclose(powers_by_port(chip), POWER_W * np.abs(unitary) ** 2, atol=1e-9 * POWER_W)
    seen = np.exp(1j * outputs)[:, None] * chip.transfer_matrix()
    np.testing.assert_allclose(seen, unitary, atol=1e-7)


def test_coherent_light_in_several_ports_interferes():
    chip = lit_chip(5)
    unitary = haar(5, seed=1)
    program(chip, phases_from_library(unitary, chip.layout)[0])
    fields = np.array([0.5, 0.3j, 0.0, -0.4 + 0.2j, 0.1])
    chip.light_ports(fields)
    np.testing.assert_allclose(chip.detector_powers(), POWER_W * np.abs(unitary @ fields) ** 2, atol=1e-10)


def test_no_port_is_lit_to_begin_with_and_every_port_can_go_dark():
    chip = lit_chip(3, HiddenEffects())
    np.testing.assert_array_equal(chip.detector_powers(), np.zeros(3))
    chip.set_lit_port(2)
    assert chip.detector_powers().sum() > 0.0
    chip.set_lit_port(None)
    np.testing.assert_array_equal(chip.detector_powers(), np.zeros(3))


@pytest.mark.parametrize("ports", [2, 5, 8])
def test_only_losses_take_energy(ports):
    lossless = HiddenEffects(
        arm_loss_rms=0.0, mzi_loss_db=0.0, mzi_loss_spread_db=0.0, input_coupling_db=0.0, input_coupling_spread_db=0.0,
        output_coupling_db=0.0, output_coupling_spread_db=0.0,
    )  # fmt: skip
    chip = lit_chip(ports, lossless)
    heat_randomly(chip)
    np.testing.assert_allclose(powers_by_port(chip).sum(axis=0), POWER_W, rtol=1e-12)
    matrix = chip.transfer_matrix()
    np.testing.assert_allclose(matrix @ matrix.conj().T, np.eye(ports), atol=1e-12)
    lossy = lit_chip(ports, HiddenEffects())
    heat_randomly(lossy)
    assert (powers_by_port(lossy).sum(axis=0) < POWER_W).all()


def dense_matrix(chip, heat_w):
    """Transfer matrix of a bare mesh by dense matrices, straight from the conventions and the chip's parameters."""
    p, layout, n = chip.parameters, chip.layout, chip.layout.ports
    sections = ArmSections(layout)
    phase = p.offset_rad + p.crosstalk @ (heat_w / p.pi_power_w * math.pi)
    factor = p.section_amplitude * np.exp(1j * phase)
    external, internal = (factor[sections.blocks[f"mesh_{k}"]].reshape(-1, n) for k in ("external", "internal"))

    def coupler(eta):
        return np.array([[math.cos(eta), 1j * math.sin(eta)], [1j * math.sin(eta), math.cos(eta)]])

    matrix = np.diag(p.input_amplitude).astype(complex)
    for column in range(layout.mesh.depth):
        step = np.diag(internal[column])
        for k, (c, m) in enumerate(layout.mesh.mzis):
            if c == column:
                arms = np.diag(internal[column, m : m + 2])
                step[m : m + 2, m : m + 2] = (
                    p.mzi_amplitude[k] * coupler(p.eta_out_rad[k]) @ arms @ coupler(p.eta_in_rad[k])
                )
        matrix = step @ np.diag(external[column]) @ matrix
    return np.diag(p.output_amplitude) @ matrix


@pytest.mark.parametrize(
    "mesh", [None, TriangularLayout(5), MeshLayout(5, ((0, 0), (0, 3), (2, 1)))], ids=["rectangular", "triangular", "3"]
)
def test_imperfect_bare_mesh_agrees_with_dense_matrices(mesh):
    chip = HiddenChip.from_seed(5, 5, mesh=mesh, effects=HiddenEffects(), **BARE)
    chip.set_laser(POWER_W, WAVELENGTH_M)
    heat = heat_randomly(chip)
    matrix = dense_matrix(chip, heat)
    np.testing.assert_allclose(chip.transfer_matrix(), matrix, atol=1e-12)
    np.testing.assert_allclose(powers_by_port(chip), POWER_W * np.abs(matrix) ** 2, atol=1e-16)


def test_modulators_before_power_detectors():
    """All modulators open and equally lit: each gives -1 times its share, and power detectors see no local light."""
    chip = lit_chip(4, inputs="modulators", receivers="power")
    assert chip.layout.detectors == ("rx_0", "rx_1", "rx_2", "rx_3")
    unitary = haar(4, seed=2)
    phases = phases_from_library(unitary, chip.layout)[0]
    program(chip, phases | {f"in_{i}_theta": math.pi for i in range(4)})
    np.testing.assert_allclose(chip.detector_powers(), POWER_W / 4 * np.abs(unitary.sum(axis=1)) ** 2, atol=1e-9)
    program(chip, phases | {"in_1_theta": math.pi / 2})
    np.testing.assert_allclose(chip.detector_powers(), POWER_W / 8 * np.abs(unitary[:, 1]) ** 2, atol=1e-9)
    with pytest.raises(ConfigurationError, match="light enters all modulators at once"):
        chip.set_lit_port(0)


def test_ports_before_homodyne_receivers():
    chip = lit_chip(3, inputs="ports", receivers="homodyne")
    unitary = haar(3, seed=4)
    phases, outputs = phases_from_library(unitary, chip.layout)
    program(
        chip,
        phases | {f"out_{j}": outputs[j] for j in range(3)} | {f"att_{j}": math.pi for j in range(3)},
    )
    share = chip.effects.lo_fraction
    oscillator = math.sqrt(share / 3)
    for port in range(3):
        chip.set_lit_port(port)
        field = -math.sqrt(1.0 - share) * unitary[:, port]  # an open attenuator multiplies by -1
        expected = np.concatenate([np.abs(field + 1j * oscillator) ** 2, np.abs(1j * field + oscillator) ** 2]) / 2
        np.testing.assert_allclose(chip.detector_powers(), POWER_W * expected, atol=1e-9)
    np.testing.assert_allclose(chip.transfer_matrix(), -unitary, atol=1e-7)


def test_transfer_matrix_of_the_whole_chip_gives_its_readings():
    chip = HiddenChip.from_seed(2, 4)
    chip.set_laser(POWER_W, WAVELENGTH_M)
    heat_randomly(chip)
    share, truth = chip.effects.lo_fraction, chip.parameters
    signal = chip.transfer_matrix().sum(axis=1) * math.sqrt((1 - share) * POWER_W / 4)
    powers = chip.detector_powers()
    # Both photodiodes of a receiver together see all light that enters its coupler.
    lo_power = share * POWER_W / 4 * truth.section_amplitude[-1] ** 2
    np.testing.assert_allclose(powers[:4] + powers[4:], np.abs(signal) ** 2 + lo_power, rtol=1e-9)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda chip: chip.set_lit_port(3), "no input port 3; the chip has 0..2"),
        (lambda chip: chip.set_lit_port(-1), "no input port -1"),
        (lambda chip: chip.light_ports(np.ones(2)), r"shape \(2,\)"),
        (lambda chip: chip.light_ports(np.ones(3)), "more power than the laser gives"),
        (lambda chip: chip.light_ports(np.array([math.nan, 0, 0])), "finite"),
    ],
)
def test_light_that_cannot_enter(act, message):
    chip = lit_chip(3)
    chip.set_lit_port(1)
    before = chip.detector_powers()
    with pytest.raises(ConfigurationError, match=message):
        act(chip)
    np.testing.assert_array_equal(chip.detector_powers(), before)


def test_a_bare_mesh_survives_its_file(tmp_path):
    chip = lit_chip(4, HiddenEffects())
    chip.to_file(tmp_path / "chip.json")
    again = HiddenChip.from_file(tmp_path / "chip.json")
    assert again.layout == chip.layout == ChipLayout(4, **BARE)
    again.set_laser(POWER_W, WAVELENGTH_M)
    for each in (chip, again):
        heat_randomly(each)
        each.set_lit_port(1)
    np.testing.assert_array_equal(chip.measure(range(4), 0.01), again.measure(range(4), 0.01))


def test_readings_of_a_bare_mesh_have_gain_dark_offset_and_noise():
    effects = HiddenEffects(noise_relative=0.01, noise_floor_w=0.0)
    chip = lit_chip(3, effects)
    heat_randomly(chip)
    chip.set_lit_port(0)
    rows = np.stack([chip.measure(range(3), 0.01) for _ in range(2000)])
    expected = chip.detector_powers() * chip.parameters.gain
    np.testing.assert_allclose(rows.mean(axis=0) - chip.parameters.dark_w, expected, rtol=2e-3)
    np.testing.assert_allclose(rows.std(axis=0), 0.01 * expected, rtol=0.1)
