"""A hidden chip that ages: what changes, what stays, and that it is reproducible."""

import numpy as np
import pytest
from hidden_meshes import BARE, POWER_W, WAVELENGTH_M, bare_chip, heat, seen_theta

from simulated_instruments import HiddenChip, HiddenEffects


def lit_chip(seed=0, ports=8):
    chip = HiddenChip.from_preset("method_a", seed, ports)
    chip.set_laser(POWER_W, WAVELENGTH_M)
    chip.set_lit_port(0)
    chip.set_heater_voltages(dict.fromkeys(range(len(chip.layout.heaters)), 4.0))
    chip.clock.sleep(1.0)
    return chip


def test_the_drift_of_the_method():
    """Resistance -2 %, P_pi x 1.001 with a scatter of 0.3 %, offsets 0.3 rad rms."""
    chip = lit_chip()
    before, current = chip.parameters, chip.heater_currents()
    chip.drift(
        resistance_change=-0.02, efficiency_change=1 / 1.001 - 1, efficiency_spread=0.003, offset_rms_rad=0.3, seed=1
    )
    after = chip.parameters
    np.testing.assert_allclose(after.resistance_ohm, 0.98 * before.resistance_ohm, rtol=1e-12)
    factor = after.pi_power_w / before.pi_power_w
    assert factor.mean() == pytest.approx(1.001, abs=4 * 0.003 / np.sqrt(56))
    assert factor.std() == pytest.approx(0.003, rel=0.4)
    shift = after.offset_rad - before.offset_rad
    assert shift.std() == pytest.approx(0.3, rel=0.3)
    assert abs(shift.mean()) < 4 * 0.3 / np.sqrt(shift.size)
    assert (chip.heater_currents() > current).all()
    assert chip.heater_voltage(3) == 4.0
    np.testing.assert_array_equal(after.crosstalk, before.crosstalk)
    np.testing.assert_array_equal(after.eta_in_rad, before.eta_in_rad)


def test_the_same_seed_drifts_the_same_way():
    chips = [lit_chip() for _ in range(3)]
    for chip, seed in zip(chips, (5, 5, 6), strict=True):
        chip.drift(offset_rms_rad=0.2, seed=seed)
    one, same, other = (chip.detector_powers() for chip in chips)
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-5


def test_no_drift_is_none():
    chip = lit_chip()
    before = chip.detector_powers()
    chip.drift(seed=3)
    np.testing.assert_array_equal(chip.detector_powers(), before)


def test_light_follows_the_drift_of_the_heat():
    chip = bare_chip(2)
    heat(chip, mzi_0_0_theta=1.0)
    chip.drift(efficiency_change=0.1)
    assert seen_theta(chip) == pytest.approx(1.1, rel=1e-9)
    chip.drift(resistance_change=-0.05)  # at the same voltage the power grows
    chip.clock.sleep(1.0)
    assert seen_theta(chip) == pytest.approx(1.1 / 0.95, rel=1e-9)


def test_temperature_adds_up_and_comes_back():
    chip = bare_chip(3, temperature_phase_rad_per_k=0.2, resistance_per_k=0.001)
    chip.set_heater_voltages({0: 3.0, 1: 2.0})
    chip.clock.sleep(1.0)
    cold, current = chip.transfer_matrix(), chip.heater_current(0)
    chip.drift(temperature_k=2.0)
    chip.drift(temperature_k=3.0)
    chip.clock.sleep(1.0)
    assert chip.effects.temperature_k == 5.0
    assert chip.heater_current(0) == pytest.approx(current / 1.005, rel=1e-12)
    assert np.abs(chip.transfer_matrix() - cold).max() > 0.05
    chip.drift(temperature_k=-5.0)
    chip.clock.sleep(1.0)
    np.testing.assert_allclose(chip.transfer_matrix(), cold, atol=1e-12)


def test_meters_see_the_drift_of_gains():
    chip = bare_chip(2)
    heat(chip, mzi_0_0_theta=1.0)
    before = chip.measure(range(2), 0.01)
    chip.drift(gain_spread=0.1, seed=2)
    np.testing.assert_allclose(chip.measure(range(2), 0.01), before * chip.parameters.gain, rtol=1e-12)


def test_a_drifted_chip_survives_its_file(tmp_path):
    chip = lit_chip(ports=3)
    chip.drift(offset_rms_rad=0.3, temperature_k=1.0)
    chip.to_file(tmp_path / "chip.json")
    again = HiddenChip.from_file(tmp_path / "chip.json")
    assert again.effects == chip.effects
    np.testing.assert_array_equal(again.parameters.offset_rad, chip.parameters.offset_rad)


def test_the_homodyne_chip_drifts_too():
    chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects())
    chip.set_laser(POWER_W, WAVELENGTH_M)
    before = chip.detector_powers()
    chip.drift(offset_rms_rad=0.3)
    assert chip.layout == HiddenChip.from_seed(0, 2).layout != HiddenChip.from_seed(0, 2, **BARE).layout
    assert np.abs(chip.detector_powers() - before).max() > 1e-5
