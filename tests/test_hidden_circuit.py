"""Heaters that share a ground return, against Kirchhoff's laws."""

import dataclasses
import math

import numpy as np
import pytest
from hidden_meshes import BARE, POWER_W, WAVELENGTH_M
from hypothesis import given, settings
from hypothesis import strategies as st

from simulated_instruments import HiddenChip, HiddenEffects

GROUND_OHM, GROUP = 5.0, 5


def grounded_chip(ports=4, seed=0, **effects):
    chip = HiddenChip.from_seed(
        seed, ports, effects=HiddenEffects(ground_resistance_ohm=GROUND_OHM, ground_group=GROUP, **effects), **BARE
    )
    chip.set_laser(POWER_W, WAVELENGTH_M)
    chip.set_lit_port(0)
    return chip


def raised(currents):
    """Potential of each heater's ground return."""
    group = np.arange(len(currents)) // GROUP
    return GROUND_OHM * np.bincount(group, currents)[group]


@given(st.lists(st.floats(0.0, 12.0), min_size=12, max_size=12), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_currents_obey_kirchhoff_and_the_resistance_law(voltages, seed):
    chip = grounded_chip(seed=seed)
    chip.set_heater_voltages(dict(enumerate(voltages)))
    current, truth = chip.heater_currents(), chip.parameters
    across = np.array(voltages) - raised(current)
    power = across * current
    resistance = truth.resistance_ohm * (1.0 + truth.resistance_growth_per_w * power)
    np.testing.assert_allclose(across, current * resistance, rtol=1e-9, atol=1e-12)


def test_a_loaded_ground_sends_current_back_through_a_heater_at_zero_volt():
    chip = grounded_chip()
    chip.set_heater_voltages({0: 8.0})
    current = chip.heater_currents()
    assert current[0] > 0.0
    assert (current[1:GROUP] < 0.0).all()
    assert not current[GROUP:].any()


def test_light_sees_the_power_that_is_left():
    """The same heat by other voltages on a chip without the shared ground gives the same light."""
    grounded = grounded_chip()
    free = HiddenChip(
        grounded.layout, dataclasses.replace(grounded.effects, ground_resistance_ohm=0.0), grounded.parameters, 1
    )
    free.set_laser(POWER_W, WAVELENGTH_M)
    free.set_lit_port(0)
    voltages = np.random.default_rng(0).uniform(0.0, 7.0, 12)
    grounded.set_heater_voltages(dict(enumerate(voltages.tolist())))
    across = np.abs(voltages - raised(grounded.heater_currents()))
    free.set_heater_voltages(dict(enumerate(across.tolist())))
    for chip in (grounded, free):
        chip.clock.sleep(1.0)
    np.testing.assert_allclose(grounded.detector_powers(), free.detector_powers(), rtol=1e-9)
    free.set_heater_voltages(dict(enumerate(voltages.tolist())))
    free.clock.sleep(1.0)
    assert np.abs(grounded.detector_powers() - free.detector_powers()).max() > 1e-5


def test_a_current_source_raises_its_voltage_by_that_of_the_ground():
    chip = grounded_chip()
    chip.set_heater_voltages({0: 6.0, 2: 4.0, 7: 5.0})
    voltage = chip.voltage_for_current(1, 4e-3)
    chip.set_heater_voltages({1: voltage})
    assert chip.heater_current(1) == pytest.approx(4e-3, rel=1e-9)
    assert chip.voltage_for_current(1, 1.0) == math.inf


def test_without_ground_resistance_heaters_do_not_know_of_one_another():
    chip = HiddenChip.from_seed(0, 3, **BARE)
    chip.set_heater_voltages({0: 5.0})
    alone = chip.heater_current(0)
    chip.set_heater_voltages({1: 9.0})
    assert chip.heater_current(0) == alone


def test_resistance_can_grow_by_twelve_percent_over_the_drive():
    effects = HiddenEffects.preset("silicon_8", heater_resistance_spread=0.0, resistance_growth_spread=0.0)
    chip = HiddenChip.from_seed(0, 2, effects=effects, **BARE)
    two_pi = 2.0 * effects.pi_power_w
    chip.set_heater_voltages({0: math.sqrt(two_pi * 1050.0 * 1.12)})
    assert chip.heater_current(0) == pytest.approx(math.sqrt(two_pi / (1050.0 * 1.12)), rel=1e-9)
