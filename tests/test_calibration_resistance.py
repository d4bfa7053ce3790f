"""Resistance laws of heaters: the right value, or a verdict with a reason."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calibration import fit_resistance
from optinc_hw.errors import CalibrationError

SEEDS = st.integers(0, 2**32 - 1)


def heater(rng, resistance=1200.0, beta=0.8, points=7, noise_a=0.0, top_w=0.05):
    power = top_w * np.arange(1, points + 1) / points
    voltage = np.sqrt(power * resistance * (1.0 + beta * power))
    return power / voltage + noise_a * rng.standard_normal(points), voltage


@given(st.floats(50.0, 1e4), st.floats(0.0, 5.0), SEEDS)
def test_resistance_law_is_recovered(resistance, beta, seed):
    fit = fit_resistance(*heater(np.random.default_rng(seed), resistance, beta))
    assert fit.good
    assert fit.reason == ""
    assert fit.resistance_ohm == pytest.approx(resistance, rel=1e-9)
    assert fit.beta_per_w == pytest.approx(beta, abs=1e-7)


def test_resistance_uncertainty_is_true():
    rng = np.random.default_rng(0)
    pulls = []
    for _ in range(300):
        fit = fit_resistance(*heater(rng, noise_a=2e-6, points=15))
        error = np.array([fit.resistance_ohm, fit.beta_per_w]) - [1200.0, 0.8]
        pulls.append(error / np.sqrt(np.diag(fit.covariance)))
    np.testing.assert_allclose(np.std(pulls, axis=0), 1.0, atol=0.2)
    assert np.abs(np.mean(pulls, axis=0)).max() < 0.3


@given(SEEDS, st.floats(1e-7, 2e-5))
@example(1008, 1e-7)  # the points that carry current happen to be of one power
def test_an_open_heater_is_never_taken_for_a_resistor(seed, leakage):
    """What is left is the offset and the noise of the current reading."""
    rng = np.random.default_rng(seed)
    voltage = np.linspace(1.0, 8.0, 7)
    current = leakage + 1e-6 * rng.standard_normal(7)
    carried = (voltage * current)[current > 0.0]
    if len(carried) < 3 or np.ptp(carried) < 0.1 * carried.max():
        with pytest.raises(CalibrationError, match=r"carry current|only over different powers"):
            fit_resistance(current, voltage)
        return
    fit = fit_resistance(current, voltage)
    assert not fit.good
    assert fit.reason


def test_an_open_heater_without_current_is_named():
    with pytest.raises(CalibrationError, match=r"only 0 of 7 points carry current; .*is the heater open\?"):
        fit_resistance(np.zeros(7), np.linspace(1, 8, 7))
    fit = fit_resistance(np.full(7, 2e-6), np.linspace(1, 8, 7))
    assert "open or damaged" in fit.reason
    assert np.isnan(fit.beta_per_w)


@pytest.mark.parametrize("current", np.geomspace(1e-7, 1e-4, 13))
@pytest.mark.parametrize("top", [6.0, 8.0])
def test_a_current_that_never_changes_is_no_resistance_whichever_way_it_is_rounded(current, top):
    fit = fit_resistance(np.full(7, current), np.linspace(1.0, top, 7))
    assert not fit.good
    assert "open or damaged" in fit.reason


def test_a_heater_that_jumps_is_refused():
    current, voltage = heater(np.random.default_rng(0))
    current[4:] *= 0.8
    fit = fit_resistance(current, voltage)
    assert not fit.good
    assert "damaged" in fit.reason


@pytest.mark.parametrize(
    ("current", "voltage", "message"),
    [
        ([1e-3, 2e-3], [1.0, 2.0, 3.0], r"one length, got \(2,\) and \(3,\)"),
        (np.ones((2, 2)), np.ones((2, 2)), "vectors"),
        ([1e-3, np.nan, 3e-3], [1.0, 2.0, 3.0], "NaN or Inf"),
        ([1e-3, 2e-3, 3e-3], [1.0, np.inf, 3.0], "NaN or Inf"),
        ([1e-3, 2e-3], [1.0, 2.0], "only 2 of 2 points"),
        ([], [], "only 0 of 0 points"),
        ([1e-3, -2e-3, -3e-3], [1.0, 2.0, 3.0], "only 1 of 3"),
        ([1e-3, 1e-3, 1e-3], [1.0, 1.0, 1.0], "different powers"),
    ],
)
def test_readings_that_determine_no_resistance_are_refused(current, voltage, message):
    with pytest.raises(CalibrationError, match=message):
        fit_resistance(current, voltage)


@given(SEEDS, st.floats(-2e-5, 2e-5), st.booleans())
def test_the_offset_of_the_current_reading_is_found(seed, offset, with_zero):
    rng = np.random.default_rng(seed)
    current, voltage = heater(rng, points=12)
    if with_zero:
        current, voltage = np.append(current, 0.0), np.append(voltage, 0.0)
    fit = fit_resistance(current + offset, voltage)
    assert fit.good
    assert fit.offset_a == pytest.approx(offset, abs=1e-9)
    assert fit.resistance_ohm == pytest.approx(1200.0, rel=1e-6)


def test_an_offset_that_the_readings_do_not_tell_is_left_out():
    fit = fit_resistance(*heater(np.random.default_rng(0), points=4))
    assert fit.good
    assert fit.offset_a == 0.0
    assert np.isnan(fit.offset_sigma_a)


@given(SEEDS, st.integers(0, 11), st.sampled_from([-1e-3, -1e-4, 1e-4, 1e-3]))
def test_one_outlier_is_left_out_or_refused(seed, place, size):
    current, voltage = heater(np.random.default_rng(seed), points=12, noise_a=1e-6)
    current[place] += size
    try:
        fit = fit_resistance(current, voltage)
    except CalibrationError:
        return
    if fit.good:  # with 8 degrees of freedom chance gives 5 sigmas once in a thousand tries, 10 once in 10^5
        assert abs(fit.resistance_ohm - 1200.0) < 10.0 * np.sqrt(fit.covariance[0, 0])


def test_twelve_per_cent_over_the_drive_is_a_heater():
    """The published 8-port chip."""
    fit = fit_resistance(*heater(np.random.default_rng(0), 1050.0, 0.12 / 0.025, 10, 1e-6, 0.025))
    assert fit.good
    assert fit.beta_per_w * 0.025 == pytest.approx(0.12, abs=0.01)


@pytest.mark.parametrize("fall", [-0.3, -0.1])
def test_a_resistance_that_falls_is_a_law_too(fall):
    fit = fit_resistance(*heater(np.random.default_rng(0), 1050.0, fall / 0.025, 10, 1e-6, 0.025))
    assert fit.good
    assert fit.beta_per_w * 0.025 == pytest.approx(fall, abs=0.01)


def test_what_a_diode_does_is_no_heater():
    voltage = np.linspace(0.2, 1.0, 12)
    fit = fit_resistance(1e-9 * np.expm1(voltage / 0.05), voltage)
    assert not fit.good
    assert fit.reason


@pytest.mark.parametrize(("ohm", "word"), [(3.0, "shorted"), (1e5, "open or damaged")])
def test_what_a_heater_cannot_have_is_named(ohm, word):
    fit = fit_resistance(*heater(np.random.default_rng(0), ohm), expected_ohm=(400.0, 4000.0))
    assert not fit.good
    assert word in fit.reason


def test_points_may_repeat():
    current, voltage = heater(np.random.default_rng(0), points=4)
    fit = fit_resistance(np.tile(current, 5), np.tile(voltage, 5))
    assert fit.good
    assert fit.resistance_ohm == pytest.approx(1200.0, rel=1e-9)


@pytest.mark.parametrize("noise_a", [0.0, 5e-7])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_readings_at_the_limit_of_the_source_are_left_out(share, noise_a):
    """A voltage source at its current limit, and a current source at its voltage limit."""
    current, voltage = heater(np.random.default_rng(0), points=20, noise_a=noise_a)
    for limited in (
        (np.minimum(current, share * current.max()), voltage),
        (current, np.minimum(voltage, share * voltage.max())),
    ):
        fit = fit_resistance(*limited)
        assert fit.good
        assert fit.limited >= 2
        assert abs(fit.resistance_ohm - 1200.0) < max(5.0 * np.sqrt(fit.covariance[0, 0]), 1e-6)


@pytest.mark.parametrize("bend", [-0.1, -0.03, 0.03, 0.1])
def test_a_resistance_that_does_not_grow_in_proportion_to_the_power_is_less_certain(bend):
    power = 0.05 * np.arange(1, 13) / 12
    resistance = 1200.0 * (1.0 + 2.0 * power + bend * (power / 0.05) ** 2)
    voltage = np.sqrt(power * resistance)
    fit = fit_resistance(power / voltage, voltage)
    if not fit.good:
        assert "does not grow in proportion" in fit.reason
        return
    assert abs(bend) < 0.1
    assert abs(fit.resistance_ohm - 1200.0) < 3.0 * np.sqrt(fit.covariance[0, 0])
    assert np.sqrt(fit.covariance[0, 0]) > 0.1 * abs(bend) * 1200.0


@pytest.mark.parametrize(
    "expected",
    [
        (4000.0, 400.0), (400.0, 400.0), (-1.0, 400.0), (-np.inf, 4000.0), (np.inf, np.inf), (np.nan, 4000.0),
        (400.0, np.nan), (400.0,), (1.0, 2.0, 3.0), (), 1200.0, "400-4000", ("400", "4000"), (400.0 + 1j, 4000.0),
        ((1.0, 2.0), 3.0), (None, 4000.0), np.ma.array([400.0, 4000.0], mask=[True, False]),
    ],
)  # fmt: skip
def test_an_expected_range_that_is_none_is_refused(expected):
    with pytest.raises(CalibrationError, match="expected_ohm"):
        fit_resistance(*heater(np.random.default_rng(0)), expected_ohm=expected)


@pytest.mark.parametrize("expected", [(0.0, np.inf), [1000, 1400], np.array([1000.0, 1400.0])])
def test_an_expected_range_may_be_open_above(expected):
    assert fit_resistance(*heater(np.random.default_rng(0)), expected_ohm=expected).good
