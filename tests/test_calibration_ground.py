"""Ground returns that heaters share: circuits that obey Kirchhoff's laws give back their resistances."""

import numpy as np
import pytest

from calibration import BenchProbe, fit_common_ground, measure_common_ground
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError, LimitError

R0, BETA = 1200.0, 2.0


def circuit(rng, groups, ground_ohm, settings, heating=0.0, noise_a=0.0, offset_a=0.0):
    """Source voltages and currents (settings, H) of heaters R0 (1 + beta P) on shared returns."""
    groups = np.asarray(groups)
    count, member = len(groups), groups[:, None] == groups
    resistance = R0 * (1.0 + 0.03 * rng.standard_normal(count))
    voltage = rng.uniform(1.0, 6.0, (settings, count)) * (rng.uniform(size=(settings, count)) > 0.3)
    current = np.zeros_like(voltage)
    for _ in range(200):
        across = voltage - ground_ohm * (current @ member)
        power = across * current
        warm = 1.0 + heating * (power @ member - power)
        old, current = current, across / (resistance * (1.0 + BETA * power) * warm)
    assert np.abs(current - old).max() < 1e-15
    return voltage, current + offset_a + noise_a * rng.standard_normal(current.shape)


def test_two_heaters_by_hand():
    """One at 0 V: the other's 5 mA lift the ground by 10 mV, which sends 10 mV / 1 kohm back through it."""
    voltage = np.array([[0.0, v] for v in np.linspace(1.0, 5.0, 6)] + [[v, 0.0] for v in np.linspace(1.0, 5.0, 6)])
    ground, own = 2.0, 1000.0
    potential = voltage.sum(axis=1) / own / (1.0 / ground + 2.0 / own)
    current = (voltage - potential[:, None]) / own
    assert current.min() < -5e-6
    fit = fit_common_ground(voltage, current, groups=[0, 0])
    assert fit.verdict == "found"
    assert fit.resistance_ohm == pytest.approx([2.0], rel=1e-6)
    np.testing.assert_allclose(fit.potential(current), np.stack([potential, potential], axis=1), rtol=1e-6)


@pytest.mark.parametrize("ground_ohm", [0.3, 3.0])
def test_groups_and_resistances_are_found_without_being_told(ground_ohm):
    rng = np.random.default_rng(0)
    groups = [0, 1, 0, 1, 0, 1, 0]
    fit = fit_common_ground(*circuit(rng, groups, ground_ohm, 80, noise_a=5e-7, offset_a=3e-6))
    assert fit.verdict == "found"
    assert fit.groups.tolist() == groups
    np.testing.assert_array_less(np.abs(fit.resistance_ohm - ground_ohm), 4.0 * fit.sigma_ohm)
    assert fit.sigma_ohm.max() < 0.05


def test_without_a_shared_return_none_is_found():
    rng = np.random.default_rng(1)
    fit = fit_common_ground(*circuit(rng, [0] * 6, 0.0, 40, noise_a=2e-6))
    assert fit.verdict == "none"
    assert len(set(fit.groups.tolist())) == 6
    stated = fit_common_ground(*circuit(rng, [0] * 6, 0.0, 40, noise_a=2e-6), groups=[0] * 6)
    assert stated.verdict == "none"
    assert abs(stated.resistance_ohm[0]) < 4.0 * stated.sigma_ohm[0]


@pytest.mark.parametrize("ground_ohm", [0.0, 1.0])
def test_heat_of_neighbours_is_no_ground(ground_ohm):
    """Resistances grow by 20 %/W of the others' heat; the ground is what it is."""
    rng = np.random.default_rng(2)
    data = circuit(rng, [0] * 5, ground_ohm, 60, heating=0.2, noise_a=1e-6)
    fit = fit_common_ground(*data, groups=[0] * 5)
    assert fit.verdict == ("found" if ground_ohm else "none")
    assert fit.resistance_ohm[0] == pytest.approx(ground_ohm, abs=4.0 * fit.sigma_ohm[0] + 0.01)
    assert fit.heating_per_w[0] == pytest.approx(0.2, abs=4.0 * fit.heating_sigma_per_w[0] + 0.01)


def test_wrong_groups_are_refused():
    rng = np.random.default_rng(3)
    fit = fit_common_ground(*circuit(rng, [0, 0, 0, 1, 1, 1], 3.0, 60, noise_a=1e-6), groups=[0, 0, 0, 0, 1, 1])
    assert fit.verdict == "poor"
    assert "heaters 3 and 4 share a return" in fit.reason


def test_a_heater_alone_has_no_shared_return():
    fit = fit_common_ground(*circuit(np.random.default_rng(4), [0, 1, 1], 2.0, 30), groups=[0, 1, 1])
    assert np.isnan(fit.resistance_ohm[0])
    assert fit.resistance_ohm[1] == pytest.approx(2.0, rel=1e-3)
    assert np.isfinite(fit.potential(np.full(3, 1e-3))).all()


def test_readings_that_tell_no_ground_are_refused():
    voltage, current = circuit(np.random.default_rng(5), [0, 0, 0], 1.0, 20)
    with pytest.raises(CalibrationError, match=r"\(20, 3\) and \(19, 3\)"):
        fit_common_ground(voltage, current[1:])
    with pytest.raises(CalibrationError, match="at least 13, or state the groups"):
        fit_common_ground(voltage[:12], current[:12])
    with pytest.raises(CalibrationError, match="at least 8"):
        fit_common_ground(voltage[:7], current[:7], groups=[0, 0, 0])
    with pytest.raises(CalibrationError, match=r"groups must be \(3,\)"):
        fit_common_ground(voltage, current, groups=[0, 0])
    broken = current.copy()
    broken[:, 1] = 0.0
    with pytest.raises(CalibrationError, match=r"heaters \[1\] carry no current"):
        fit_common_ground(voltage, broken)
    broken[0, 0] = np.nan
    with pytest.raises(CalibrationError, match="NaN or Inf"):
        fit_common_ground(voltage, broken)


@pytest.mark.parametrize("ground_ohm", [0.0, 1.0])
def test_on_a_bench_without_any_light(ground_ohm):
    effects = {"ground_resistance_ohm": ground_ohm, "ground_group": 4}
    done = []
    with Bench.simulated(ports=4, seed=1, kind="mesh", chip={"effects": effects}) as bench:
        data = measure_common_ground(bench, np.random.default_rng(0), progress=lambda *entry: done.append(entry))
        np.testing.assert_array_equal(bench.voltages, 0.0)
        assert data["ground_voltage"].max() <= bench.max_voltage.max()
    assert done[-1] == ("common ground", 32, 32)
    fit = fit_common_ground(data["ground_voltage"], data["ground_current"])
    assert fit.verdict == ("found" if ground_ohm else "none")
    if ground_ohm:
        assert fit.groups.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        np.testing.assert_array_less(np.abs(fit.resistance_ohm - ground_ohm), 4.0 * fit.sigma_ohm)


@pytest.mark.parametrize("error", [ValueError("of the progress bar"), KeyboardInterrupt("of the user")])
def test_a_measurement_that_ends_early_leaves_the_heaters_at_zero_and_the_chip_dark(error):
    def stop(stage, done, total):
        if done == 3:
            assert bench.voltages.any()
            raise error

    with Bench.simulated(ports=4, seed=1, kind="mesh") as bench:
        bench.light(on=True)
        with pytest.raises(type(error), match=str(error)):
            measure_common_ground(bench, np.random.default_rng(0), progress=stop)
        np.testing.assert_array_equal(bench.voltages, 0.0)
        assert not bench.station.components["laser"].shutter_open.get()


def test_heaters_that_fail_on_the_way_are_set_to_zero_too():
    with Bench.simulated(ports=2, seed=1, kind="mesh") as bench, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "read_heaters", lambda: bench.interlock.check(np.full(2, 99.0)))
        with pytest.raises(LimitError):
            measure_common_ground(bench, np.random.default_rng(0))
        np.testing.assert_array_equal(bench.voltages, 0.0)


@pytest.mark.parametrize("settings", [0, -1, 7, 2.5, True, "40"])
def test_settings_that_are_no_number_or_too_few_to_fit_are_refused(settings):
    with Bench.simulated(ports=2, seed=1, kind="mesh") as bench:
        with pytest.raises(CalibrationError, match="settings must be a whole number of at least 8"):
            measure_common_ground(bench, np.random.default_rng(0), settings=settings)
        np.testing.assert_array_equal(bench.voltages, 0.0)


def readings_of_chip(ground_ohm, powers, lit):
    """Readings (settings, n) of one chip, with heat that reaches neighbours, whose returns have some resistance.

    Once at voltages that know of the returns, once at voltages that only know each heater's own law.
    """
    effects = {"ground_resistance_ohm": ground_ohm, "ground_group": 6}
    with Bench.simulated(ports=4, seed=2, kind="mesh", chip={"effects": effects}) as bench:
        data = measure_common_ground(bench, np.random.default_rng(0))
        found = fit_common_ground(data["ground_voltage"], data["ground_current"])
        law, dark = (found.own_resistance_ohm, found.own_beta_per_w), np.zeros(4)
        probes = [BenchProbe(bench, *law, dark, lambda *_: None, ground) for ground in (found, None)]
        return found, [probe.measure("test", powers, lit) for probe in probes]


def test_powers_do_not_depend_on_a_shared_return_that_was_found():
    """Heat that reaches neighbours is there with and without the return: what differs is electrical."""
    powers = np.random.default_rng(1).uniform(0.002, 0.02, (6, 12))
    lit = np.arange(6) % 4
    none, (expected, _) = readings_of_chip(0.0, powers, lit)
    found, (right, lowered) = readings_of_chip(4.0, powers, lit)
    assert (none.verdict, found.verdict) == ("none", "found")
    np.testing.assert_allclose(found.own_resistance_ohm, none.own_resistance_ohm, rtol=2e-3)
    scale = expected.max()
    assert np.abs(right - expected).max() < 0.01 * scale
    assert np.abs(lowered - expected).max() > 0.05 * scale
