"""The forward model of heaters: each effect on its own, against hand calculations and conservation of energy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.errors import MatrixError
from optinc_hw.photonics import CouplerDispersion, HeaterModel

SEEDS = st.integers(0, 2**32 - 1)
TWO_PI = 2.0 * np.pi
PER_WATT = np.pi / 0.020
NEIGHBOURS = np.eye(3, k=1) + np.eye(3, k=-1)
POWER = np.array([0.0, 0.010, 0.030])


def plain(size=3, **effects):
    return HeaterModel(np.full(size, PER_WATT), np.full(size, 1200.0), **effects)


def observables(model):
    """What a lab can tell apart, each freed of what the others show."""
    dark, volts = model.phases(np.zeros(3)), np.array([1.0, 4.0, 6.0])
    off, warm = 1560e-9, 310.0
    return {
        "dark phase": dark,
        "heated phase": model.phases(POWER) - dark,
        "detuned dark phase": model.phases(np.zeros(3), off) - dark,
        "detuned heat": (model.phases(POWER, off) - model.phases(np.zeros(3), off))
        / (model.phases(POWER) - dark + 1.0),
        "warm dark phase": model.phases(np.zeros(3), None, warm) - dark,
        "warm heat": model.phases(POWER, None, warm)
        - model.phases(np.zeros(3), None, warm)
        - model.phases(POWER)
        + dark,
        "power": model.power(volts),
        "power of a warm chip": model.power(volts, warm) / model.power(volts),
        "lag": model.heat_after(np.zeros(3), POWER, 1e-5) - POWER,
        "limits": np.minimum(list(model.power_limits().values()), 1.0),
    }


EFFECTS = {
    "offset_rad": (np.array([0.1, 0.2, 0.3]), 0.0, {"dark phase"}),
    "beta_per_w": (0.8, 0.0, {"power"}),
    "resistance_growth_per_k": (1e-3, 0.0, {"power of a warm chip"}),
    "time_constant_s": (5e-5, 0.0, {"lag"}),
    "path_imbalance_m": (1e-5, 0.0, {"detuned dark phase", "warm dark phase"}),
    "thermo_optic_dispersion_per_m": (-1e5, 0.0, {"detuned heat"}),
    "max_power_w": (0.05, np.inf, {"limits"}),
    "max_voltage_v": (7.0, np.inf, {"limits"}),
    "max_current_a": (0.006, np.inf, {"limits"}),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_each_effect_changes_exactly_its_observable(name):
    """Case S-08."""
    value, off, changed = EFFECTS[name]
    without, switched_off = observables(plain()), observables(plain(**{name: off}))
    for key, values in without.items():
        np.testing.assert_array_equal(switched_off[key], values)
    seen = observables(plain(**{name: value}))
    assert {
        key for key, values in without.items() if not np.allclose(seen[key], values, rtol=1e-12, atol=1e-13)
    } == changed


def test_crosstalk_changes_only_what_heat_does_to_phases():
    without, seen = observables(plain()), observables(plain(crosstalk=np.eye(3) + 0.015 * NEIGHBOURS))
    for key in set(without) - {"heated phase", "detuned heat"}:
        np.testing.assert_allclose(seen[key], without[key], atol=1e-15)
    np.testing.assert_allclose(seen["heated phase"], PER_WATT * np.array([0.00015, 0.01045, 0.03015]))
    for key, values in observables(plain(crosstalk=np.eye(3))).items():
        np.testing.assert_allclose(values, without[key], rtol=1e-15)


def test_phases_by_heat_go_with_the_inverse_wavelength():
    model = plain(offset_rad=0.5)
    np.testing.assert_allclose(model.phases(POWER, 1310e-9) - 0.5, (model.phases(POWER) - 0.5) * 1550 / 1310)
    falling = plain(thermo_optic_dispersion_per_m=-1e5)
    np.testing.assert_allclose(falling.efficiency(1600e-9), 0.995 * plain().efficiency(1600e-9))


def test_an_unbalanced_interferometer_has_the_free_spectral_range_of_its_group_index():
    model = plain(path_imbalance_m=1e-3, group_index=4.3)
    frequency = 299792458.0 / 1550e-9
    one_period_on = 299792458.0 / (frequency + 299792458.0 / (4.3 * 1e-3))
    np.testing.assert_allclose(model.passive_phase(one_period_on), TWO_PI, rtol=1e-9)


def test_a_warmer_chip_moves_an_unbalanced_interferometer_by_66_pm_per_kelvin():
    """Fringes move by ``wavelength * dn/dT / n_g``, as rings of the same waveguide do."""
    model = plain(path_imbalance_m=1e-3)
    shift = 1550e-9 * 1.8e-4 / 4.2
    np.testing.assert_allclose(shift, 66.4e-12, rtol=1e-3)
    back = model.passive_phase(1550e-9 + shift, 299.15)
    assert np.abs(back).max() < 1e-3 * model.passive_phase(None, 299.15).min()


@given(st.floats(1e-7, 1e-2), st.floats(0.0, 1e-3), st.floats(0.0, 1e-3), SEEDS)
def test_steps_of_heat_are_exact_however_they_are_cut(tau, first, second, seed):
    heat, power = np.random.default_rng(seed).uniform(0.0, 0.05, (2, 3))
    model = plain(time_constant_s=tau)
    at_once = model.heat_after(heat, power, first + second)
    np.testing.assert_allclose(
        model.heat_after(model.heat_after(heat, power, first), power, second), at_once, atol=1e-16
    )
    assert (at_once >= np.minimum(heat, power) - 1e-17).all()
    assert (at_once <= np.maximum(heat, power) + 1e-17).all()


def test_heat_and_stored_energy_add_up_to_the_electrical_energy():
    tau, model = 5e-5, plain(time_constant_s=5e-5)
    heat, start, electrical, given_off = POWER[::-1], POWER[::-1], 0.0, 0.0
    for power in (POWER, 0.5 * POWER, np.full(3, 0.02)):
        nodes, weights = np.polynomial.legendre.leggauss(20)
        times = 2e-5 * (nodes + 1.0)
        given_off = given_off + 2e-5 * sum(
            w * model.heat_after(heat, power, t) for w, t in zip(weights, times, strict=True)
        )
        heat, electrical = model.heat_after(heat, power, 4e-5), electrical + 4e-5 * power
    np.testing.assert_allclose(electrical, given_off + tau * (heat - start), rtol=1e-12)


def test_settling_ends_when_the_slowest_phase_is_within_the_error():
    model = plain(time_constant_s=2e-5, crosstalk=np.eye(3) + 0.1 * NEIGHBOURS)
    wait = model.settle_time(np.zeros(3), POWER, 1e-3)
    missing = model.phases(POWER) - model.phases(model.heat_after(np.zeros(3), POWER, wait))
    np.testing.assert_allclose(np.abs(missing).max(), 1e-3, rtol=1e-9)
    assert model.settle_time(POWER, POWER, 1e-3) == 0.0
    assert plain().settle_time(np.zeros(3), POWER, 1e-3) == 0.0


def test_couplers_away_from_the_design_wavelength():
    dispersion = CouplerDispersion(np.array([2e6, 0.0]))
    eta = np.array([[0.78, 0.79], [0.80, 0.81]])
    np.testing.assert_allclose(dispersion.eta(eta, 1570e-9), eta + np.array([0.04, 0.0]))
    np.testing.assert_array_equal(dispersion.eta(eta, 1550e-9), eta)
    np.testing.assert_array_equal(CouplerDispersion(0.0).eta(eta, 1310e-9), eta)


@given(st.floats(0.0, 2.0), st.floats(0.5, 12.0), st.floats(0.5e-3, 9e-3))
def test_limits_in_volts_and_amperes_come_back_from_their_powers(beta, volts, amperes):
    model = plain(beta_per_w=beta, resistance_growth_per_k=2e-3, max_voltage_v=volts, max_current_a=amperes)
    allowed = model.power_limits(320.0)
    np.testing.assert_allclose(model.voltage(allowed["max_voltage_v"], 320.0), volts)
    current = allowed["max_current_a"] / model.voltage(allowed["max_current_a"], 320.0)
    np.testing.assert_allclose(current, amperes)


def test_a_current_that_the_growing_resistance_never_lets_settle_is_no_limit():
    allowed = plain(beta_per_w=10.0, max_current_a=0.01)  # 0.01^2 * 1200 * 10 > 1
    assert np.isinf(allowed.power_limits()["max_current_a"]).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resistance_ohm": 0.0}, "resistance_ohm of heater 0 is 0; it must be positive"),
        ({"efficiency_rad_per_w": [1.0, -1.0, 1.0]}, "efficiency_rad_per_w of heater 1 is -1"),
        ({"efficiency_rad_per_w": np.ones((3, 1))}, r"shape \(3, 1\); give one value per heater"),
        ({"offset_rad": np.ones(2)}, r"offset_rad has shape \(2,\); 3 heaters need \(3,\)"),
        ({"offset_rad": np.inf}, "offset_rad holds NaN or Inf"),
        ({"max_power_w": np.nan}, "max_power_w holds NaN"),
        ({"beta_per_w": -0.1}, "beta_per_w of heater 0 is -0.1; it must be at least 0"),
        ({"crosstalk": np.eye(2)}, r"crosstalk has shape \(2, 2\); 3 heaters need \(3, 3\)"),
        ({"crosstalk": 2.0 * np.eye(3)}, "its diagonal must be 1"),
        ({"crosstalk": np.full((3, 3), np.nan)}, "crosstalk holds NaN"),
        ({"time_constant_s": -1.0}, "time_constant_s must be at least 0"),
        ({"max_total_power_w": np.nan}, "max_total_power_w must be at least 0"),
        ({"design_wavelength_m": 0.0}, "design_wavelength_m must be positive"),
        ({"names": ["one"]}, "1 names for 3 heaters"),
    ],
)
def test_models_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(MatrixError, match=message):
        replace(plain(), **wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.phases(POWER, 0.0), "wavelength_m must be positive and finite, got 0.0; it is in metres"),
        (lambda m: m.phases(POWER, None, np.inf), "temperature_k must be positive"),
        (lambda m: m.heat_after(POWER, POWER, -1e-9), "time can only go forward"),
        (lambda m: m.settle_time(POWER, POWER, 0.0), "phase_error_rad must be positive"),
    ],
)
def test_questions_that_make_no_sense_are_refused(call, message):
    with pytest.raises(MatrixError, match=message):
        call(plain())
