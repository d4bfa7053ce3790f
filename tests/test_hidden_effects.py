"""Each effect of the hidden chip does what its description says, and nothing happens without it."""

import dataclasses
import math

import numpy as np
import pytest
from hidden_meshes import BARE, POWER_W, WAVELENGTH_M, bare_chip, heat, seen_theta
from test_hidden_bare_mesh import dense_matrix, heat_randomly

from optinc_hw.errors import ConfigurationError
from simulated_instruments import PRESETS, HiddenChip, HiddenEffects, coupler_mean
from simulated_instruments._geometry import ArmSections
from simulated_instruments.faults import ModeHop


def test_crosstalk_of_both_signs_falls_with_distance_and_ends():
    effects = HiddenEffects.preset("method_b", crosstalk_reach=4.0)
    chip = HiddenChip.from_seed(1, 12, effects=effects, **BARE)
    sections = ArmSections(chip.layout)
    difference = sections.sites[:, None] - chip.layout.heater_sites[None]
    distance = np.maximum(np.hypot(difference[..., 0], difference[..., 1]), 1.0)
    distance[sections.own, np.arange(132)] = np.inf
    crosstalk = chip.parameters.crosstalk
    assert (crosstalk[sections.own, np.arange(132)] == 1.0).all()
    for d in (1.0, 2.0, 4.0):
        values = crosstalk[distance == d]
        width = 0.015 * math.exp(-(d - 1.0) / 1.5)
        error = width / math.sqrt(len(values))
        assert abs(values.mean()) < 4.0 * error
        assert values.std() == pytest.approx(width, abs=4.0 * error)
    assert not crosstalk[np.isfinite(distance) & (distance > 4.0)].any()


def test_bare_arms_of_the_presets_are_as_warm_as_heated_ones():
    chip = HiddenChip.from_seed(1, 4, effects=HiddenEffects.preset("method_a", crosstalk_spread=0.0), **BARE)
    sections = ArmSections(chip.layout)
    for heater, site in enumerate(chip.layout.heater_sites):
        near = np.hypot(*(sections.sites - site).T) == 1.0
        np.testing.assert_allclose(chip.parameters.crosstalk[near, heater], 0.015)


def test_signed_crosstalk_changes_nothing_else():
    without, with_it = (
        HiddenChip.from_seed(2, 3, effects=HiddenEffects(crosstalk_rms=rms), **BARE).parameters for rms in (0.0, 0.01)
    )
    names = [field.name for field in dataclasses.fields(without)]
    changed = [name for name in names if not np.array_equal(getattr(without, name), getattr(with_it, name))]
    assert changed == ["crosstalk"]


def test_far_heat_that_is_left_out_leaves_the_light_as_dense_matrices_say():
    effects = HiddenEffects.preset("method_b", crosstalk_reach=5.0, phase_curvature_spread=0.0)
    chip = HiddenChip.from_seed(0, 20, effects=effects, **BARE)
    chip.set_laser(POWER_W, WAVELENGTH_M)
    assert (chip.parameters.crosstalk == 0.0).mean() > 0.5
    power = heat_randomly(chip)
    np.testing.assert_allclose(chip.transfer_matrix(), dense_matrix(chip, power), atol=1e-11)


@pytest.mark.parametrize("phase", [0.5, 1.5, 2.5])
def test_curvature_makes_the_phase_quadratic_in_power(phase):
    chip = bare_chip(2, phase_curvature=0.05)
    heat(chip, mzi_0_0_theta=phase)
    assert seen_theta(chip) == pytest.approx(phase * (1.0 + 0.05 * phase / math.pi), rel=1e-9)
    spread = HiddenChip.from_seed(0, 12, effects=HiddenEffects(phase_curvature_spread=0.01), **BARE)
    curvature = spread.parameters.phase_curvature
    assert curvature.std() == pytest.approx(0.01, rel=0.3)
    assert abs(curvature.mean()) < 0.004


def test_a_warm_neighbour_makes_a_heater_more_efficient():
    chip = bare_chip(2, second_order_crosstalk=0.02, second_order_length=2.0)
    heat(chip, mzi_0_0_phi=math.pi / 2.0)
    assert seen_theta(chip) == pytest.approx(0.0, abs=1e-9)
    heat(chip, mzi_0_0_theta=1.0, mzi_0_0_phi=math.pi / 2.0)  # one pitch apart
    assert seen_theta(chip) == pytest.approx(1.0 * (1.0 + 0.02 * 0.5), rel=1e-9)
    wide = bare_chip(3, second_order_crosstalk=0.02, second_order_length=2.0)
    heat(wide, mzi_0_0_theta=1.0, mzi_2_0_theta=math.pi)  # four pitches apart
    near = math.exp(-3.0 / 2.0)
    first, last = 1.0 + 0.02 * near, math.pi * (1.0 + 0.02 * near / math.pi)
    # The light that stays in mode 0 passes both.
    expected = POWER_W * (math.sin(first / 2.0) * math.sin(last / 2.0)) ** 2
    assert wide.detector_powers()[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("loss", [0.03, -0.03])
def test_heated_arms_lose_more_or_less_than_bare_ones(loss):
    chip = bare_chip(2, heated_arm_loss=loss)
    heat(chip, mzi_0_0_theta=1.0)
    upper, lower = (math.exp(-loss), 1.0) if loss > 0.0 else (1.0, math.exp(loss))
    # Input 0 passes the upper external arm, then both internal arms; column 1 of two ports has bare arms only.
    beside = lower**2
    inside = (upper * np.exp(1j) - lower) / 2.0
    assert chip.detector_powers()[0] == pytest.approx(POWER_W * abs(upper * inside * beside) ** 2, rel=1e-9)


def test_couplers_turn_with_the_wavelength():
    chip = bare_chip(2, coupler_dispersion_rad_per_nm=0.002)
    for off_nm in (0.0, 10.0, -20.0, 0.0):
        chip.set_laser(POWER_W, WAVELENGTH_M + off_nm * 1e-9)
        eta = math.pi / 4.0 + 0.002 * off_nm
        assert chip.detector_powers()[0] == pytest.approx(POWER_W * math.cos(2.0 * eta) ** 2, abs=1e-12)


def test_mean_reflectivity_is_the_light_that_crosses_one_coupler():
    assert coupler_mean(0.5) == pytest.approx(0.0, abs=1e-15)
    assert coupler_mean(0.567) == pytest.approx(0.067, abs=5e-4)
    chip = bare_chip(2, coupler_mean_rad=coupler_mean(0.567))
    # Two couplers in a row, no phase: the bar amplitude is 1 - 2 R.
    assert chip.detector_powers()[0] == pytest.approx(POWER_W * (1.0 - 2.0 * 0.567) ** 2, rel=1e-9)
    with pytest.raises(ConfigurationError, match=r"not in 0\.\.1"):
        coupler_mean(1.2)


def test_temperature_turns_every_arm_by_its_own_coefficient():
    effects = {"temperature_phase_rad_per_k": 0.1, "offset_range_rad": 6.0}
    cold, warm = bare_chip(4, 7, **effects), bare_chip(4, 7, **effects, temperature_k=-1.5)
    pattern = cold.parameters.phase_per_kelvin_rad
    assert pattern.std() == pytest.approx(0.1, rel=0.4)
    np.testing.assert_array_equal(pattern, warm.parameters.phase_per_kelvin_rad)
    moved = HiddenChip(
        cold.layout,
        cold.effects,
        dataclasses.replace(cold.parameters, offset_rad=cold.parameters.offset_rad - 1.5 * pattern),
        1,
    )
    np.testing.assert_allclose(warm.transfer_matrix(), moved.transfer_matrix(), atol=1e-12)


def test_temperature_changes_resistances_and_efficiencies():
    chip = bare_chip(2, temperature_k=10.0, resistance_per_k=0.001, efficiency_per_k=-0.0002)
    heater = chip.layout.heater_index["mzi_0_0_theta"]
    chip.set_heater_voltages({heater: 3.0})
    chip.clock.sleep(1.0)
    nominal = chip.effects.heater_resistance_ohm
    assert chip.heater_current(heater) == pytest.approx(3.0 / (1.01 * nominal), rel=1e-12)
    phase = 9.0 / (1.01 * nominal) / chip.effects.pi_power_w * math.pi * (1.0 - 0.002)
    assert seen_theta(chip) == pytest.approx(phase, rel=1e-9)


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"silicon_64"}))
def test_every_preset_is_a_chip(name):
    chip = HiddenChip.from_preset(name, 0)
    assert chip.layout.bare
    assert chip.layout.ports == PRESETS[name].ports
    chip.set_laser(POWER_W, WAVELENGTH_M)
    chip.set_lit_port(0)
    readings = chip.measure(range(chip.layout.ports), 0.01)
    assert 0.05 * POWER_W < readings.sum() < POWER_W


def test_presets_take_changes_and_nothing_else():
    effects = HiddenEffects.preset("silicon_6", crosstalk_strength=0.04)
    assert (effects.pi_power_w, effects.crosstalk_strength) == (0.025, 0.04)
    with pytest.raises(ConfigurationError, match="no preset 'silicon_7'; presets are method_a"):
        HiddenEffects.preset("silicon_7")
    with pytest.raises(ConfigurationError, match="there is no effect magic"):
        HiddenEffects.preset("silicon_6", magic=1.0)
    with pytest.raises(ConfigurationError, match="ground_group must be a whole number"):
        HiddenEffects(ground_group=2.5)


def test_a_preset_fits_other_numbers_of_ports():
    chip = HiddenChip.from_preset("method_a", 3, 5)
    assert len(chip.layout.heaters) == 20
    assert chip.effects == HiddenEffects.preset("method_a")


def test_loss_of_the_twenty_port_preset_is_that_of_the_chip_it_is_named_after():
    chip = HiddenChip.from_preset("nitride_20", 4)
    chip.set_laser(POWER_W, WAVELENGTH_M)
    totals = []
    for port in range(20):
        chip.set_lit_port(port)
        totals.append(chip.detector_powers().sum() / POWER_W)
    assert -10.0 * math.log10(np.mean(totals)) == pytest.approx(2.9, abs=0.15)


def test_the_truth_follows_a_laser_that_hops():
    """Light that falls on the detectors is that of the transfer matrix, faults of the laser included."""
    chip = bare_chip(3, offset_range_rad=6.0, coupler_dispersion_rad_per_nm=0.01)
    heat(chip, mzi_0_0_theta=1.0, mzi_1_1_phi=2.0)
    before = chip.transfer_matrix()
    chip.inject(ModeHop(shift_m=5e-9))
    matrix = chip.transfer_matrix()
    assert np.abs(matrix - before).max() > 0.01
    np.testing.assert_allclose(chip.detector_powers(), POWER_W * np.abs(matrix[:, 0]) ** 2, rtol=1e-12)


def test_currents_that_are_handed_out_are_nobody_elses():
    chip = bare_chip(2)
    chip.set_heater_voltages({0: 3.0})
    chip.heater_currents()[:] = 0.0
    assert chip.heater_current(0) > 0.0
