"""Faults of the chip change what instruments measure, at their time, as physics says."""

import dataclasses
import math

import numpy as np
import pytest

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedBench, default_bench
from simulated_instruments.faults import (
    DeadDetector,
    DriftingHeater,
    FaultScript,
    Late,
    ModeHop,
    OffsetDetector,
    OpenHeater,
    PowerDrop,
    SaturatedDetector,
    ShortedHeater,
)

TAU = 50e-6
QUIET = dataclasses.replace(HiddenEffects(), noise_relative=0.0, noise_floor_w=0.0, thermal_time_constant_s=TAU)
HEATER, VOLTS = "in_0_theta", 3.0


def lit_chip(effects=QUIET):
    chip = HiddenChip.from_seed(4, 2, effects=effects, clock=SimulatedClock())
    chip.set_laser(1e-3, 1550e-9)
    chip.set_heater_voltages({chip.layout.heater_index[HEATER]: VOLTS})
    chip.clock.sleep(1.0)
    return chip


def reading(chip):
    return chip.measure(range(len(chip.layout.detectors)), 1e-2)


def test_open_heater_carries_no_current_and_gives_no_heat():
    chip = lit_chip()
    index = chip.layout.heater_index[HEATER]
    hot = chip.detector_powers()
    chip.inject(OpenHeater(HEATER), after_s=2.0, for_s=3.0)
    chip.clock.sleep(1.0)
    np.testing.assert_array_equal(chip.detector_powers(), hot)
    assert chip.heater_current(index) > 1e-3
    chip.clock.sleep(1.5)
    assert chip.heater_current(index) == 0.0
    assert chip.heater_currents()[index] == 0.0
    assert chip.heater_voltage(index) == VOLTS
    assert chip.voltage_for_current(index, 1e-3) == math.inf
    cold = HiddenChip.from_seed(4, 2, effects=QUIET)
    cold.set_laser(1e-3, 1550e-9)
    np.testing.assert_allclose(chip.detector_powers(), cold.detector_powers(), rtol=1e-9)
    assert np.abs(hot - cold.detector_powers()).max() > 1e-6
    chip.clock.sleep(3.0)
    np.testing.assert_allclose(chip.detector_powers(), hot, rtol=1e-9)


def test_heat_leaves_an_open_heater_with_its_time_constant():
    chip = lit_chip()
    chip.inject(OpenHeater(HEATER), after_s=1.0)
    chip.clock.sleep(1.0 + 2.0 * TAU)  # nobody looked when the fault began
    closed = lit_chip()
    closed.set_heater_voltages({closed.layout.heater_index[HEATER]: 0.0})
    closed.clock.sleep(2.0 * TAU)
    np.testing.assert_allclose(chip.detector_powers(), closed.detector_powers(), rtol=1e-6)


def test_shorted_heater_draws_what_its_source_gives():
    chip = lit_chip()
    index, before = chip.layout.heater_index[HEATER], chip.resistance_revision
    chip.inject(ShortedHeater(HEATER, resistance_ohm=2.0))
    assert chip.heater_current(index) == pytest.approx(VOLTS / 2.0)
    assert chip.voltage_for_current(index, 24e-3) == pytest.approx(48e-3)
    assert chip.resistance_revision > before


def test_drifting_heater_follows_time():
    chip = lit_chip()
    index = chip.layout.heater_index[HEATER]
    chip.inject(DriftingHeater(HEATER, per_s=0.01), after_s=1.0)
    cold_ohm, growth = chip.parameters.resistance_ohm[index], chip.parameters.resistance_growth_per_w[index]
    for seconds, factor in ((0.5, 1.0), (1.5, 1.01), (2.0, 1.03)):
        chip.clock.sleep(seconds)
        current = chip.heater_current(index)
        ohm = cold_ohm * factor * (1.0 + growth * VOLTS * current)
        assert VOLTS / current == pytest.approx(ohm, rel=1e-9)
    stronger = HiddenChip.from_seed(4, 2, effects=QUIET)  # the same heat from the resistor of before
    stronger.set_laser(1e-3, 1550e-9)
    volts = math.sqrt(VOLTS * current * cold_ohm * (1.0 + growth * VOLTS * current))
    stronger.set_heater_voltages({index: volts})
    stronger.clock.sleep(1.0)
    np.testing.assert_allclose(chip.detector_powers(), stronger.detector_powers(), rtol=1e-6)


def test_healed_heater_is_the_one_of_before():
    chip = lit_chip()
    before, index = chip.heater_currents(), chip.layout.heater_index[HEATER]
    chip.inject(ShortedHeater(HEATER))
    assert chip.heater_current(index) > 1.0
    chip.heal()
    np.testing.assert_array_equal(chip.heater_currents(), before)
    chip.inject(OpenHeater(HEATER), after_s=1.0)
    chip.heal()
    chip.clock.sleep(2.0)
    np.testing.assert_array_equal(chip.heater_currents(), before)


def test_detectors_read_wrongly_and_light_is_as_it_was():
    chip = lit_chip()
    names, right, light = chip.layout.detectors, reading(chip), chip.detector_powers()
    chip.inject(DeadDetector(names[0]))
    chip.inject(OffsetDetector(names[1], 2e-6))
    chip.inject(SaturatedDetector(names[2]))
    chip.inject(SaturatedDetector(names[3], above_w=1.0))
    wrong = reading(chip)
    assert wrong[0] == chip.parameters.dark_w[0]
    assert wrong[1] == pytest.approx(right[1] + 2e-6)
    assert wrong[2] > 100.0  # no meter has such a range
    assert wrong[3] == right[3]
    np.testing.assert_array_equal(chip.detector_powers(), light)
    chip.heal()
    np.testing.assert_array_equal(reading(chip), right)


def test_light_is_not_what_the_laser_believes():
    chip = lit_chip()
    right = chip.detector_powers()
    chip.inject(PowerDrop(0.25), for_s=1.0)
    np.testing.assert_allclose(chip.detector_powers(), right / 4.0)
    chip.clock.sleep(1.0)
    np.testing.assert_array_equal(chip.detector_powers(), right)
    chip.inject(ModeHop(1e-9))
    hopped = chip.detector_powers()
    assert np.abs(hopped - right).max() > 1e-8
    chip.heal()
    chip.set_laser(1e-3, 1551e-9)
    np.testing.assert_allclose(chip.detector_powers(), hopped, rtol=1e-12)


def test_chip_without_faults_is_as_it_always_was():
    ill, well = lit_chip(HiddenEffects()), lit_chip(HiddenEffects())
    ill.inject(DeadDetector(ill.layout.detectors[0]), after_s=100.0)
    for _ in range(300):
        np.testing.assert_array_equal(reading(ill), reading(well))


def test_faults_go_over_to_another_clock():
    chip = lit_chip()
    chip.inject(PowerDrop(0.5), after_s=1.0)
    right, clock = chip.detector_powers(), SimulatedClock()
    clock.sleep(1000.0)
    chip.clock = clock
    np.testing.assert_array_equal(chip.detector_powers(), right)
    clock.sleep(1.0)
    np.testing.assert_allclose(chip.detector_powers(), right / 2.0)


@pytest.mark.parametrize("fault", [OpenHeater("in_9"), DeadDetector("rx"), DriftingHeater("", 0.1)])
def test_parts_that_do_not_exist_are_named(fault):
    with pytest.raises(ConfigurationError, match=r"the chip has no (heater|detector)"):
        lit_chip().inject(fault)


def test_script_for_links_and_chip_of_one_bench():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(4, 2, effects=QUIET, clock=clock)
    bench = SimulatedBench(chip, *default_bench(2), clock)
    script = FaultScript.from_dicts(
        [
            {"fault": "late", "instrument": "laser"},
            {"fault": "power_drop", "factor": 0.5, "after_s": 3},
            {"fault": "offset_detector", "detector": "rx_0_plus", "offset_w": 1e-6, "for_s": 2},
        ]
    )
    assert script.steps[0].fault == Late()
    chip.set_laser(1e-3, 1550e-9)
    right = reading(chip)
    bench.faults.play(script)
    assert reading(chip)[0] == pytest.approx(right[0] + 1e-6)
    clock.sleep(3.0)
    assert reading(chip) - chip.parameters.dark_w == pytest.approx((right - chip.parameters.dark_w) / 2.0)
    bench.faults.clear()
    np.testing.assert_array_equal(reading(chip), right)
