"""Optics of the hidden chip against hand calculations, an independent library and dense matrices."""

import math
from itertools import pairwise

import numpy as np
import pytest
from library_meshes import haar, phases_from_library

from simulated_instruments import HiddenChip, HiddenEffects
from simulated_instruments._geometry import ArmSections

POWER_W = 1e-2
WAVELENGTH_M = 1550e-9
LO_SHARE = 0.15


def lit_chip(ports, effects=None):
    chip = HiddenChip.from_seed(3, ports, effects=HiddenEffects.none() if effects is None else effects)
    chip.set_laser(POWER_W, WAVELENGTH_M)
    return chip


def program(chip, **phases):
    """Heat an ideal chip so that the named heaters give these phases (rad, any sign); the others stay cold."""
    effects = chip.effects
    voltages = dict.fromkeys(range(len(chip.layout.heaters)), 0.0)
    for name, phase in phases.items():
        power = (phase % (2.0 * math.pi)) / math.pi * effects.pi_power_w
        voltages[chip.layout.heater_index[name]] = math.sqrt(power * effects.heater_resistance_ohm)
    chip.set_heater_voltages(voltages)


def all_open(ports):
    return {f"{name}": math.pi for i in range(ports) for name in (f"in_{i}_theta", f"att_{i}")}


def received(chip, phases):
    """Fields at the receivers relative to the local oscillator, from readings at four of its phases."""
    ports = chip.layout.ports
    lo = math.sqrt(LO_SHARE * POWER_W / ports)
    # plus - minus = 2 Im(b conj(l)) for l = lo e^{i alpha}; alpha = 0 gives Im b, alpha = -pi/2 gives Re b.
    parts = []
    for alpha in (0.0, -math.pi / 2.0):
        program(chip, **phases, lo=alpha)
        powers = chip.detector_powers()
        parts.append((powers[:ports] - powers[ports:]) / (2.0 * lo))
    return parts[1] + 1j * parts[0]


def test_dark_laser_gives_no_power():
    chip = HiddenChip.from_seed(0, 4)
    np.testing.assert_array_equal(chip.detector_powers(), np.zeros(8))


def test_local_oscillator_alone_splits_evenly():
    chip = lit_chip(4)  # theta = 0: every modulator is dark
    np.testing.assert_allclose(chip.detector_powers(), LO_SHARE * POWER_W / 4 / 2, rtol=1e-12)


@pytest.mark.parametrize("ports", [2, 3, 4, 8])
def test_ideal_chip_conserves_energy(ports):
    chip = lit_chip(ports)
    rng = np.random.default_rng(ports)
    phases = {name: rng.uniform(0, 2 * math.pi) for name in chip.layout.heaters}
    program(chip, **{**phases, **all_open(ports)})
    assert chip.detector_powers().sum() == pytest.approx(POWER_W, rel=1e-12)


def test_modulator_power_follows_sine_squared():
    chip = lit_chip(2)
    for theta in (0.3, 1.1, 2.5):
        # The first mesh MZI in bar state and the attenuator open: input 0 arrives at receiver 0.
        program(chip, in_0_theta=theta, mzi_0_0_theta=math.pi, att_0=math.pi)
        powers = chip.detector_powers()
        signal = powers[[0, 2]].sum() - LO_SHARE * POWER_W / 2
        assert signal == pytest.approx((1 - LO_SHARE) * POWER_W / 2 * math.sin(theta / 2) ** 2, rel=1e-9)
        assert powers[[1, 3]].sum() == pytest.approx(LO_SHARE * POWER_W / 2, rel=1e-9)


@pytest.mark.parametrize(("theta", "lit"), [(0.0, 1), (math.pi, 0)])
def test_single_mzi_cross_and_bar(theta, lit):
    chip = lit_chip(2)
    program(chip, in_0_theta=math.pi, mzi_0_0_theta=theta, att_0=math.pi, att_1=math.pi)
    powers = chip.detector_powers()
    signal = powers[:2] + powers[2:] - LO_SHARE * POWER_W / 2
    assert signal[lit] == pytest.approx((1 - LO_SHARE) * POWER_W / 2, rel=1e-12)
    assert signal[1 - lit] == pytest.approx(0.0, abs=1e-18)


def test_attenuator_closes():
    chip = lit_chip(2)
    program(chip, in_0_theta=math.pi, mzi_0_0_theta=math.pi, att_0=0.0)
    np.testing.assert_allclose(chip.detector_powers(), LO_SHARE * POWER_W / 4, rtol=1e-9)


@pytest.mark.parametrize("ports", [2, 3, 4, 5, 8])
def test_mesh_agrees_with_independent_library(ports):
    chip = lit_chip(ports)
    unitary = haar(ports, seed=ports)
    phases, outputs = phases_from_library(unitary, chip.layout)
    phases |= {f"out_{j}": outputs[j] for j in range(ports)} | {f"att_{j}": math.pi for j in range(ports)}
    scale = math.sqrt((1 - LO_SHARE) * POWER_W / ports)
    # An open modulator and an open attenuator at theta = pi each multiply by i e^{i pi/2} sin(pi/2) = -1.
    for i in range(ports):
        fields = received(chip, {**phases, f"in_{i}_theta": math.pi}) / scale
        np.testing.assert_allclose(fields, unitary[:, i], atol=1e-7)
    # Several coherent inputs, with phases of their own, check the columns against each other.
    shifts = np.linspace(0.2, 1.7, ports)
    lit = {f"in_{i}_theta": math.pi for i in range(ports)} | {f"in_{i}_phi": shifts[i] for i in range(ports)}
    np.testing.assert_allclose(
        received(chip, {**phases, **lit}) / scale, unitary @ np.exp(1j * shifts), atol=1e-7 * ports
    )


def dense_powers(chip, heat_w):
    """Detector powers by dense matrices, straight from the conventions and the parameters of the chip."""
    p, layout, n = chip.parameters, chip.layout, chip.layout.ports
    sections = ArmSections(layout)
    phase = p.offset_rad + p.crosstalk @ (heat_w / p.pi_power_w * math.pi)
    factor = {name: (p.section_amplitude * np.exp(1j * phase))[block] for name, block in sections.blocks.items()}

    def coupler(eta):
        return np.array([[math.cos(eta), 1j * math.sin(eta)], [1j * math.sin(eta), math.cos(eta)]])

    def inner(k, arms):
        return p.mzi_amplitude[k] * coupler(p.eta_out_rad[k]) @ np.diag(arms) @ coupler(p.eta_in_rad[k])

    inputs = factor["input_internal"].reshape(n, 2)
    field = np.array([inner(i, inputs[i])[0, 0] * factor["input_external"][i] for i in range(n)])
    field *= p.input_amplitude * math.sqrt((1 - chip.effects.lo_fraction) * POWER_W / n)
    for column in range(n):
        external = factor["mesh_external"].reshape(n, n)[column]
        internal = factor["mesh_internal"].reshape(n, n)[column]
        matrix = np.diag(internal).astype(complex)
        for k, (c, m) in enumerate(layout.mesh.mzis):
            if c == column:
                matrix[m : m + 2, m : m + 2] = inner(n + k, internal[m : m + 2])
        field = matrix @ np.diag(external) @ field
    attenuators = factor["attenuator"].reshape(n, 2)
    first = n + len(layout.mesh.mzis)
    field = np.array([inner(first + j, attenuators[j])[0, 0] * factor["output"][j] for j in range(n)]) * field
    field *= p.output_amplitude
    lo = math.sqrt(chip.effects.lo_fraction * POWER_W / n) * factor["lo"][0] * np.exp(1j * p.lo_phase_rad)
    pairs = [coupler(p.receiver_eta_rad[j]) @ (field[j], lo[j]) for j in range(n)]
    return np.abs(np.array(pairs).T.ravel()) ** 2


@pytest.mark.parametrize("ports", [2, 5, 8])
def test_imperfect_chip_agrees_with_dense_matrices(ports):
    chip = lit_chip(ports, HiddenEffects())
    heaters = len(chip.layout.heaters)
    voltages = np.random.default_rng(1).uniform(0, 7, heaters)
    chip.set_heater_voltages(dict(enumerate(voltages.tolist())))
    chip.clock.sleep(1.0)
    currents = np.array([chip.heater_current(k) for k in range(heaters)])
    np.testing.assert_allclose(chip.detector_powers(), dense_powers(chip, voltages * currents), rtol=1e-9)


def test_losses_only_ever_take_power_away():
    for seed in range(5):
        chip = HiddenChip.from_seed(seed, 4)
        chip.set_laser(POWER_W, WAVELENGTH_M)
        assert 0.0 < chip.detector_powers().sum() < POWER_W


def test_powers_scale_with_the_laser():
    chip = lit_chip(4, HiddenEffects())
    once = chip.detector_powers()
    chip.set_laser(2.5 * POWER_W, WAVELENGTH_M)
    np.testing.assert_allclose(chip.detector_powers(), 2.5 * once, rtol=1e-12)


def test_thermo_optic_phase_falls_with_wavelength():
    chip = lit_chip(2)
    signals = []
    for wavelength in (1550e-9, 1580e-9):
        chip.set_laser(POWER_W, wavelength)
        program(
            chip, in_0_theta=1.0, mzi_0_0_theta=math.pi * wavelength / 1550e-9, att_0=math.pi * wavelength / 1550e-9
        )
        powers = chip.detector_powers()
        signals.append(powers[0] + powers[2] - LO_SHARE * POWER_W / 2)
    expected = [math.sin(0.5) ** 2, math.sin(0.5 * 1550 / 1580) ** 2]
    np.testing.assert_allclose(signals, np.array(expected) * (1 - LO_SHARE) * POWER_W / 2, rtol=1e-6)


def test_laser_change_can_lie_ahead():
    chip = HiddenChip.from_seed(0, 2)
    chip.set_laser(POWER_W, WAVELENGTH_M, at_s=0.5)
    assert chip.detector_powers().sum() == 0.0
    chip.clock.sleep(0.4)
    assert chip.detector_powers().sum() == 0.0
    chip.clock.sleep(0.2)
    assert chip.detector_powers().sum() > 0.0
    chip.set_laser(POWER_W / 2, WAVELENGTH_M, at_s=1.0)
    chip.set_laser(0.0, WAVELENGTH_M)  # takes the place of what was to come
    chip.clock.sleep(1.0)
    assert chip.detector_powers().sum() == 0.0


def test_every_heater_moves_the_light():
    chip = lit_chip(4, HiddenEffects())
    rest = dict(enumerate(np.random.default_rng(0).uniform(2, 5, len(chip.layout.heaters)).tolist()))
    chip.set_heater_voltages(rest)
    chip.clock.sleep(1.0)
    before = chip.detector_powers()
    for heater, voltage in rest.items():
        chip.set_heater_voltages({heater: voltage + 1.0})
        chip.clock.sleep(1.0)
        assert np.abs(chip.detector_powers() - before).max() > 1e-7, chip.layout.heaters[heater]
        chip.set_heater_voltages({heater: voltage})
        chip.clock.sleep(1.0)


def test_crosstalk_falls_with_distance_and_spares_bare_arms():
    effects = HiddenEffects(crosstalk_spread=0.0)
    chip = HiddenChip.from_seed(0, 6, effects=effects)
    sections = ArmSections(chip.layout)
    crosstalk = chip.parameters.crosstalk
    heater = chip.layout.heater_index["mzi_2_2_theta"]
    own = int(np.flatnonzero(sections.heater == heater)[0])
    assert crosstalk[own, heater] == 1.0
    distance = np.hypot(*(sections.sites - sections.sites[own]).T)
    for bare, factor in ((False, 1.0), (True, effects.bare_arm_factor)):
        chosen = (sections.heater < 0) == bare
        chosen[own] = False
        order = np.flatnonzero(chosen)[np.argsort(distance[chosen], kind="stable")]
        values = crosstalk[order, heater]
        assert values[0] == pytest.approx(0.008 * factor)
        assert distance[order[0]] == 1.0
        assert all(far <= near + 1e-18 for near, far in pairwise(values))
        np.testing.assert_allclose(values, factor * 0.008 * np.exp(-(distance[order] - 1.0) / 0.6), rtol=1e-9)
