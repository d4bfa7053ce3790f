"""Limits of chip.yaml that leave little room: calibration keeps them, whatever the resistances turn out to be."""

import numpy as np
import pytest
from ruamel.yaml import YAML

from calibration import calibrate, measure_common_ground
from calibration._session import allowed_power, allowed_total
from optinc_hw import Bench
from optinc_hw.bench import instrument_names, write_bench_folder
from optinc_hw.photonics import power_from_voltage, voltage_from_power

PORTS = 3


def folder_with(tmp_path, kind, *, total_power_w=None, max_current_a=None, **design):
    """A bench folder with tighter limits than the default ones."""
    folder = tmp_path / "bench"
    write_bench_folder(folder, PORTS, {n: f"simulated:{n}" for n in instrument_names(PORTS, kind)}, kind=kind, **design)
    yaml, path = YAML(), folder / "chip.yaml"
    content = yaml.load(path)
    if total_power_w is not None:
        content["limits"]["total_power_w"] = total_power_w
    if max_current_a is not None:
        content["heaters"]["defaults"]["max_current_a"] = max_current_a
    yaml.dump(content, path)
    return folder


CASES = {
    "a current that no nominal period needs": {"max_current_a": 0.006},
    "a current below one period": {"max_current_a": 0.0045},
    "little power, resistances above the nominal one": {"total_power_w": 0.17, "resistance_ohm": 1080.0},
    "resistances below the nominal one": {"max_current_a": 0.005, "resistance_ohm": 1330.0},
}


def within(record, voltage, lock):
    """Whether all heaters kept their limits by the law that was measured, not only by what the bench took them for."""
    power = power_from_voltage(np.array(voltage), record.resistance_ohm, record.resistance_beta_per_w)
    current = np.divide(power, voltage, out=np.zeros_like(power), where=np.array(voltage) > 0.0)
    total = power.sum(axis=1).max()
    return current.max() <= lock.max_current[0], power.max() <= lock.max_power[0], total <= lock.max_total_power


@pytest.mark.parametrize("case", CASES)
def test_a_bare_mesh_is_calibrated_within_tight_limits(tmp_path, case):
    asked = []
    with Bench.open(folder_with(tmp_path, "mesh", **CASES[case]), simulate=True, seed=1) as bench:
        lock, measure = bench.interlock, bench.measure
        bench.measure = lambda voltages, port=None: asked.append(voltages) or measure(voltages, port)
        record = calibrate(bench)
    assert record.quality.residual_over_noise < 3.0
    assert within(record, asked, lock) == (True, True, True)


@pytest.mark.parametrize("case", ["a current that no nominal period needs", "resistances below the nominal one"])
def test_other_experiments_keep_tight_limits_too(tmp_path, case):
    with Bench.open(folder_with(tmp_path, "mesh", **CASES[case]), simulate=True, seed=1) as bench:
        found = measure_common_ground(bench, np.random.default_rng(0))
        assert found["ground_current"].max() <= bench.max_current[0]


def test_a_chip_with_receivers_is_calibrated_within_a_tight_current(tmp_path):
    """Its heaters do not reach a whole period here; that it is calibrated at all is what counts."""
    asked = []
    with Bench.open(folder_with(tmp_path, "homodyne", max_current_a=0.006), simulate=True, seed=1) as bench:
        lock, move = bench.interlock, bench.set_voltages
        bench.set_voltages = lambda voltages: asked.append(voltages) or move(voltages)
        record = calibrate(bench)
    assert within(record, asked, lock) == (True, True, True)


def test_allowed_powers_are_those_of_the_tightest_limit(tmp_path):
    """By hand: at 6 mA a heater of 1500 ohm takes 54 mW, and the bench takes it for one of 1200 ohm at 7.2 V."""
    with Bench.open(folder_with(tmp_path, "mesh", max_current_a=0.006), simulate=True, seed=1) as bench:
        count = len(bench.layout.heaters)
        ohm, beta = np.full(count, 1500.0), np.zeros(count)
        assert allowed_power(bench, ohm, beta) == pytest.approx(np.full(count, 0.9 * 7.2**2 / 1500.0))
        assert allowed_total(bench, ohm, beta) == pytest.approx(bench.max_total_power * 1200.0 / 1500.0)
        ohm = np.full(count, 1000.0)
        assert allowed_power(bench, ohm, beta) == pytest.approx(np.full(count, 0.9 * 0.006**2 * 1000.0))
        assert allowed_total(bench, ohm, beta) == bench.max_total_power
        grown = np.full(count, 5.0)  # 1/W: at 6 mA, R = R0 / (1 - I^2 R0 beta)
        power = 0.006**2 * 1000.0 / (1.0 - 0.006**2 * 1000.0 * 5.0)
        assert allowed_power(bench, ohm, grown)[0] == pytest.approx(
            0.9 * min(power, power_from_voltage(np.array([7.2]), ohm[:1], grown[:1])[0])
        )
        assert voltage_from_power(np.array([power]), ohm[:1], grown[:1])[0] / 0.006 == pytest.approx(
            1000.0 * (1.0 + 5.0 * power)
        )
