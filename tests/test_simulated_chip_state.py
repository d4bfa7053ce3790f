"""Heat, electricity, noise, seeds and files of the hidden chip."""

import dataclasses
import json
import math
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, MatrixError
from simulated_instruments import HiddenChip, HiddenEffects

WAVELENGTH_M = 1550e-9


def test_heat_follows_first_order_lag():
    tau = 50e-6
    effects = dataclasses.replace(HiddenEffects.none(), thermal_time_constant_s=tau)
    chip = HiddenChip.from_seed(0, 2, effects=effects)
    chip.set_laser(1e-2, WAVELENGTH_M)
    heaters = chip.layout.heater_index
    full = math.sqrt(effects.pi_power_w * effects.heater_resistance_ohm)
    chip.set_heater_voltages({heaters["mzi_0_0_theta"]: full, heaters["att_0"]: full})
    chip.clock.sleep(1.0)

    def theta_of_input():
        powers = chip.detector_powers()
        return 2.0 * math.asin(math.sqrt((powers[0] + powers[2] - 0.15e-2 / 2) / (0.85e-2 / 2)))

    chip.set_heater_voltages({heaters["in_0_theta"]: full * math.sqrt(0.6)})
    phases = []
    for _ in range(4):
        chip.clock.sleep(tau)
        phases.append(theta_of_input())
    expected = 0.6 * math.pi * (1.0 - np.exp(-np.arange(1, 5)))
    np.testing.assert_allclose(phases, expected, rtol=1e-6)
    chip.set_heater_voltages({heaters["in_0_theta"]: 0.0})  # from where the heat was, not from its target
    chip.clock.sleep(2.0 * tau)
    assert theta_of_input() == pytest.approx(expected[-1] * math.exp(-2.0), rel=1e-6)
    chip.clock.sleep(1.0)
    assert theta_of_input() == pytest.approx(0.0, abs=1e-6)


def test_voltage_acts_only_as_time_passes():
    chip = HiddenChip.from_seed(0, 2)
    chip.set_laser(1e-2, WAVELENGTH_M)
    before = chip.detector_powers()
    chip.set_heater_voltages({0: 5.0})
    np.testing.assert_array_equal(chip.detector_powers(), before)
    chip.clock.sleep(1e-3)
    assert np.abs(chip.detector_powers() - before).max() > 1e-6


@given(voltage=st.floats(0.01, 12.0), heater=st.integers(0, 20))
@settings(max_examples=50)
def test_resistance_grows_with_power(voltage, heater):
    chip = HiddenChip.from_seed(5, 4)
    p = chip.parameters
    chip.set_heater_voltages({heater: voltage})
    current = chip.heater_current(heater)
    power = voltage * current
    resistance = p.resistance_ohm[heater] * (1.0 + p.resistance_growth_per_w[heater] * power)
    assert voltage / current == pytest.approx(resistance, rel=1e-12)
    assert chip.heater_currents()[heater] == pytest.approx(current, rel=1e-12)
    assert chip.voltage_for_current(heater, current) == pytest.approx(voltage, rel=1e-9)
    assert chip.heater_voltage(heater) == voltage


def test_resistance_growth_is_four_percent_at_fifty_milliwatt():
    effects = HiddenEffects(resistance_growth_spread=0.0, heater_resistance_spread=0.0)
    chip = HiddenChip.from_seed(0, 2, effects=effects)
    chip.set_heater_voltages({0: math.sqrt(0.050 * 1200.0 * 1.04)})
    assert chip.heater_current(0) == pytest.approx(math.sqrt(0.050 / (1200.0 * 1.04)), rel=1e-12)


def test_thermal_runaway_has_no_voltage():
    chip = HiddenChip.from_seed(0, 2)
    assert chip.voltage_for_current(0, 1.0) == math.inf


@pytest.mark.parametrize("values", [{99: 1.0}, {-1: 1.0}, {0: -0.1}, {0: math.nan}, {0: math.inf}, {1: 2.0, 0: -1.0}])
def test_impossible_voltages_change_nothing(values):
    chip = HiddenChip.from_seed(0, 2)
    with pytest.raises(ConfigurationError, match="heater"):
        chip.set_heater_voltages(values)
    assert all(chip.heater_voltage(k) == 0.0 for k in range(len(chip.layout.heaters)))


@pytest.mark.parametrize("light", [(-1e-3, WAVELENGTH_M), (math.nan, WAVELENGTH_M), (1e-3, 0.0), (1e-3, math.inf)])
def test_impossible_light_is_refused(light):
    with pytest.raises(ConfigurationError, match="laser"):
        HiddenChip.from_seed(0, 2).set_laser(*light)


def test_readings_have_gain_offset_and_noise_of_the_averaging_time():
    chip = HiddenChip.from_seed(2, 4)
    chip.set_laser(1e-2, WAVELENGTH_M)
    truth, p = chip.detector_powers(), chip.parameters
    expected = p.gain * truth + p.dark_w
    for averaging, scale in ((0.010, 1.0), (1.0, 0.1)):
        readings = np.array([chip.measure(range(8), averaging) for _ in range(2000)])
        sigma = scale * np.hypot(0.001 * p.gain * truth, 5e-9)
        np.testing.assert_allclose(readings.std(axis=0), sigma, rtol=0.07)
        assert np.abs((readings.mean(axis=0) - expected) / sigma).max() < 4.0 / math.sqrt(2000)


def test_averaging_time_may_differ_between_detectors():
    chip = HiddenChip.from_seed(2, 4)
    readings = np.array([chip.measure([0, 1], np.array([1e-2, 1e-4])) for _ in range(1000)])
    assert readings[:, 1].std() / readings[:, 0].std() == pytest.approx(10.0, rel=0.1)


def test_noise_does_not_depend_on_the_order_of_meters():
    chips = [HiddenChip.from_seed(7, 4) for _ in range(2)]
    first = [chips[0].measure(range(4), 0.01), chips[0].measure(range(4, 8), 0.01)]
    second = [chips[1].measure(range(4, 8), 0.01), chips[1].measure(range(4), 0.01)]
    np.testing.assert_array_equal(first, second[::-1])


def test_same_seed_same_chip_other_seed_other_chip():
    one, same, other = (HiddenChip.from_seed(seed, 3).parameters.to_lists() for seed in (1, 1, 2))
    assert one == same
    undrawn = {"phase_per_kelvin_rad", "phase_curvature", "heats", "connected", "wiring"}  # effects that are off
    assert {name for name in one if one[name] == other[name]} == undrawn


def test_switching_one_effect_off_leaves_the_others():
    default = HiddenChip.from_seed(1, 3)
    without = HiddenChip.from_seed(1, 3, effects=HiddenEffects(crosstalk_strength=0.0))
    changed = [k for k, v in default.parameters.to_lists().items() if v != without.parameters.to_lists()[k]]
    assert changed == ["crosstalk"]
    assert set(np.unique(without.parameters.crosstalk)) == {0.0, 1.0}


def test_no_effects_means_an_ideal_chip():
    p = HiddenChip.from_seed(1, 3, effects=HiddenEffects.none()).parameters
    assert (p.offset_rad == 0.0).all()
    assert (p.eta_in_rad == math.pi / 4).all()
    assert (p.mzi_amplitude == 1.0).all()
    assert (p.gain == 1.0).all()
    assert set(np.unique(p.crosstalk)) == {0.0, 1.0}


def test_parameters_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        HiddenChip.from_seed(1, 2).parameters.gain[0] = 2.0


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None])
def test_bad_seed(seed):
    with pytest.raises(ConfigurationError, match="seed"):
        HiddenChip.from_seed(seed, 2)


def test_bad_ports():
    with pytest.raises(MatrixError):
        HiddenChip.from_seed(0, 1)


@pytest.mark.parametrize(
    "change",
    [{"pi_power_w": 0.0}, {"noise_floor_w": -1e-9}, {"lo_fraction": 1.5}, {"mzi_loss_db": math.nan}, {"gain": "x"}],
)
def test_bad_effects(change):
    change = {"detector_gain_spread" if k == "gain" else k: v for k, v in change.items()}
    with pytest.raises(ConfigurationError, match=next(iter(change))):
        HiddenEffects(**change)


def test_file_round_trip_is_exact(tmp_path):
    path = tmp_path / "chip.json"
    chip = HiddenChip.from_seed(9, 3, effects=HiddenEffects(noise_floor_w=1e-8))
    chip.to_file(path)
    clock = SimulatedClock()
    copy = HiddenChip.from_file(path, clock=clock)
    assert copy.clock is clock
    assert copy.effects == chip.effects
    assert copy.parameters.to_lists() == chip.parameters.to_lists()
    for each in (chip, copy):
        each.set_laser(1e-3, WAVELENGTH_M)
    np.testing.assert_array_equal(chip.measure(range(6), 0.01), copy.measure(range(6), 0.01))
    assert chip.generator("a").random() == copy.generator("a").random() != chip.generator("b").random()
    assert [p.name for p in tmp_path.iterdir()] == ["chip.json"]


def test_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "chip.json"
    HiddenChip.from_seed(1, 2).to_file(path)
    before = path.read_bytes()

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ConfigurationError, match="No space left"):
        HiddenChip.from_seed(2, 2).to_file(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["chip.json"]


def damage(content, how):
    if how == "format":
        content["format"] = "something else"
    elif how == "version":
        content["version"] = 2
    elif how == "missing":
        del content["parameters"]["gain"]
    elif how == "shape":
        content["parameters"]["gain"] = [1.0]
    elif how == "ragged":
        content["parameters"]["crosstalk"] = [[1.0], [1.0, 2.0]]
    elif how == "nan":
        content["parameters"]["gain"][0] = math.nan
    elif how == "effect":
        content["effects"]["magic"] = 1.0
    elif how == "ports":
        content["ports"] = 1
    elif how == "entropy":
        content["noise_entropy"] = "x"
    elif how == "list":
        content = [content]
    return content


@pytest.mark.parametrize(
    "how", ["format", "version", "missing", "shape", "ragged", "nan", "effect", "ports", "entropy", "list"]
)
def test_damaged_file_is_refused(tmp_path, how):
    path = tmp_path / "chip.json"
    HiddenChip.from_seed(1, 2).to_file(path)
    path.write_text(json.dumps(damage(json.loads(path.read_text()), how)))
    with pytest.raises(ConfigurationError, match=r"chip\.json"):
        HiddenChip.from_file(path)


def test_file_that_is_not_json_or_not_there(tmp_path):
    (tmp_path / "chip.json").write_text("{")
    for name in ("chip.json", "none.json"):
        with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
            HiddenChip.from_file(tmp_path / name)
    with pytest.raises(ConfigurationError, match="cannot write"):
        HiddenChip.from_seed(1, 2).to_file(tmp_path / "no" / "folder.json")


def test_new_clock_leaves_heat_settled():
    chip = HiddenChip.from_seed(1, 2)
    chip.set_laser(1e-3, WAVELENGTH_M, at_s=1.0)
    chip.set_heater_voltages({0: 4.0})
    twin = HiddenChip.from_seed(1, 2)
    twin.set_laser(1e-3, WAVELENGTH_M)
    twin.set_heater_voltages({0: 4.0})
    twin.clock.sleep(2.0)
    chip.clock = SimulatedClock()
    np.testing.assert_array_equal(chip.detector_powers(), twin.detector_powers())


def test_threads_share_a_chip():
    chip = HiddenChip.from_seed(1, 4)
    chip.set_laser(1e-3, WAVELENGTH_M)
    failures = []

    def work(heater):
        for k in range(200):
            chip.set_heater_voltages({heater: k % 7})
            chip.clock.sleep(1e-5)
            if not (np.isfinite(chip.measure(range(8), 0.01)).all() and chip.heater_voltage(heater) == k % 7):
                failures.append(heater)

    threads = [threading.Thread(target=work, args=(heater,)) for heater in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
