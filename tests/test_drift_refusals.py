"""Readings that no drift explains are refused, whatever hides it: scales, which shares do not see, mixed-up rows."""

from dataclasses import replace

import numpy as np
import pytest

from calibration._drift import MAX_CHI, MAX_LIGHT_CHANGE, correct_drift
from optinc_hw.errors import CalibrationError
from tests.mesh_truths import NOISE, measured, quiet, truth
from tests.test_drift import drifted

PORTS = 6


def case(seed, *, has_drifted):
    rng = np.random.default_rng(seed)
    record = truth(PORTS, seed)
    now = drifted(record, rng) if has_drifted else record
    return record, measured(now, 6 * PORTS, rng)


def scaled(data, factor):
    return replace(data, readings_w=factor * data.readings_w)


@pytest.mark.parametrize("has_drifted", [True, False])
@pytest.mark.parametrize("factor", [1000.0, 10.0, 3.0, 0.3, 0.1, 1e-3])
def test_readings_on_another_scale_are_refused(factor, has_drifted):
    record, data = case(0, has_drifted=has_drifted)
    fit = correct_drift(scaled(data, factor), record, NOISE, quiet)
    assert fit.verdict == "not drift"
    assert "REFUSED" in str(fit)
    assert fit.reasons
    assert all(reason in str(fit) and "allowed" in reason for reason in fit.reasons)


@pytest.mark.parametrize("has_drifted", [True, False])
def test_readings_without_any_light_are_refused(has_drifted):
    record, data = case(0, has_drifted=has_drifted)
    with pytest.raises(CalibrationError, match="light"):
        correct_drift(scaled(data, 0.0), record, NOISE, quiet)


@pytest.mark.parametrize("has_drifted", [True, False])
@pytest.mark.parametrize("axis", [0, 1], ids=["settings", "detectors"])
def test_readings_in_the_wrong_order_are_refused(axis, has_drifted):
    record, data = case(0, has_drifted=has_drifted)
    fit = correct_drift(replace(data, readings_w=np.roll(data.readings_w, 1, axis=axis)), record, NOISE, quiet)
    assert fit.verdict == "not drift"


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
def test_a_laser_that_became_weaker_or_stronger_is_drift(factor):
    record, data = case(0, has_drifted=True)
    fit = correct_drift(scaled(data, factor), record, NOISE, quiet)
    assert fit.verdict == "accepted"
    assert fit.reasons == ()
    assert fit.light_change == pytest.approx(factor, rel=0.01)
    assert fit.after.chi < MAX_CHI
    assert 1.0 / MAX_LIGHT_CHANGE < fit.light_change < MAX_LIGHT_CHANGE


def test_a_record_holds_only_if_it_predicts_the_powers_too():
    """With 10 % less light nothing else has changed: shares are as before, powers miss by a hundred times the noise."""
    record, data = case(1, has_drifted=False)
    fit = correct_drift(scaled(data, 0.9), record, NOISE, quiet)
    assert fit.before.tvd < 0.003
    assert fit.before.chi > 50.0
    assert fit.verdict == "accepted"
    assert fit.light_change == pytest.approx(0.9, rel=0.01)
    assert fit.parameters is not record


def test_a_scale_in_the_fitted_readings_alone_is_refused():
    """Those kept out are right, those of the fit are not: neither twin explains all of them."""
    record, data = case(0, has_drifted=True)
    readings = data.readings_w.copy()
    readings[: len(data) // 2] *= 1.5
    fit = correct_drift(replace(data, readings_w=readings), record, NOISE, quiet)
    assert not fit.accepted


def test_a_large_scale_with_too_few_readings_is_not_put_down_to_their_number():
    record = truth(PORTS, 1)
    fit = correct_drift(scaled(measured(record, 12, np.random.default_rng(1)), 10.0), record, NOISE, quiet)
    assert fit.verdict == "not drift"
    assert any("laser" in reason for reason in fit.reasons)


@pytest.mark.parametrize("dark", [0.0, 1e-9])
def test_a_chip_with_a_dark_input_port_is_corrected(dark):
    """The fibre of one port was dark when the record was made, and still is: the other ports tell the drift."""
    rng = np.random.default_rng(7)
    amplitude = truth(PORTS, 7).input_amplitude.copy()
    amplitude[2] = max(dark, np.finfo(float).tiny)
    record = replace(truth(PORTS, 7), input_amplitude=amplitude)
    fit = correct_drift(measured(drifted(record, rng), 8 * PORTS, rng), record, NOISE, quiet)
    assert fit.verdict == "accepted"
    assert fit.after.tvd < 0.003
    assert fit.after.count >= 4


@pytest.mark.parametrize("invalid", [32, 26])
def test_readings_of_the_fit_that_are_invalid_everywhere_tell_nothing(invalid):
    """Of 36 readings the last 4 are kept out; fewer than 8 of the others are valid."""
    record, data = case(0, has_drifted=True)
    readings = data.readings_w.copy()
    readings[:invalid] = np.nan
    with pytest.raises(CalibrationError, match=f"{32 - invalid} of the 32 readings of the fit are valid"):
        correct_drift(replace(data, readings_w=readings), record, NOISE, quiet)


def test_some_invalid_readings_do_no_harm():
    record, data = case(0, has_drifted=True)
    readings = data.readings_w.copy()
    readings[3], readings[10, 2] = np.nan, np.nan
    assert correct_drift(replace(data, readings_w=readings), record, NOISE, quiet).verdict == "accepted"
