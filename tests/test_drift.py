"""Correction of a record after drift: phases, common efficiency, single heaters; too few readings are refused."""

from dataclasses import replace

import numpy as np
import pytest

from calibration._drift import correct_drift
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters
from tests.mesh_truths import NOISE, measured, quiet, truth


def drifted(chip, rng, rms=0.3):
    heaters = len(chip.offset)
    scatter = 1.0 + 0.003 * rng.standard_normal(heaters)
    return replace(
        chip,
        offset=chip.offset + rms * rng.standard_normal(heaters),
        efficiency=chip.efficiency * 0.98 * 1.001 * scatter,
    )


def test_drift_is_corrected_from_six_readings_a_port():
    rng = np.random.default_rng(0)
    record = truth(6, 0)
    now = drifted(record, rng)
    fit = correct_drift(measured(now, 36, rng), record, NOISE, quiet)
    assert fit.accepted
    assert fit.before.tvd > 0.1
    assert fit.after.tvd < 0.003
    assert fit.common_efficiency == pytest.approx(0.98 * 1.001 - 1.0, abs=3e-3)
    assert fit.common_temperature == pytest.approx(0.3, rel=0.3)
    assert "accepted" in str(fit)


def test_too_few_readings_are_refused_by_those_kept_out():
    rng = np.random.default_rng(1)
    record = truth(6, 1)
    fit = correct_drift(measured(drifted(record, rng), 12, rng), record, NOISE, quiet)
    assert fit.verdict == "too few readings"
    assert not fit.accepted
    assert fit.fit.chi < 5.0  # those of the fit look well
    assert fit.after.tvd > 0.02
    assert "REFUSED, too few readings" in str(fit)
    with pytest.raises(CalibrationError, match="too few"):
        correct_drift(measured(record, 11, rng), record, NOISE, quiet)


def test_a_single_heater_is_told_from_the_others():
    rng = np.random.default_rng(2)
    record = truth(5, 2)
    now = drifted(record, rng, rms=0.03)
    name = "mzi_2_2_theta"
    offset = now.offset.copy()
    offset[record.layout.heater_index[name]] += 1.0
    fit = correct_drift(measured(replace(now, offset=offset), 40, rng), record, NOISE, quiet)
    assert fit.accepted
    assert fit.single_heaters == (name,)


def test_a_record_that_still_holds_is_left_nearly_as_it_is():
    rng = np.random.default_rng(3)
    record = truth(5, 3)
    fit = correct_drift(measured(record, 40, rng), record, NOISE, quiet)
    assert fit.accepted
    assert fit.single_heaters == ()
    assert fit.common_temperature < 0.02
    assert fit.after.chi < 2.0


def test_a_corrected_record_that_predicts_no_better_is_not_taken():
    """Eight readings for the fit, of a chip as the record says: what they change is their noise."""
    rng = np.random.default_rng(4)
    record = truth(5, 4)
    fit = correct_drift(measured(record, 12, rng), record, NOISE, quiet)
    assert fit.verdict == "record holds"
    assert fit.accepted
    assert fit.parameters is record
    assert (fit.common_efficiency, fit.common_temperature) == (0.0, 0.0)
    assert "still holds" in str(fit)


def test_a_heater_that_has_become_weaker_by_a_fifth_is_found_and_named():
    rng = np.random.default_rng(6)
    record, name = truth(6, 6), "mzi_2_2_theta"
    now = with_efficiency(drifted(record, rng), name, 0.8)
    fit = correct_drift(measured(now, 36, rng), record, NOISE, quiet)
    assert fit.accepted
    assert fit.single_heaters == (name,)
    assert fit.common_efficiency == pytest.approx(0.98 * 1.001 - 1.0, abs=3e-3)
    at = record.layout.heater_index[name]
    assert fit.parameters.efficiency[at] == pytest.approx(now.efficiency[at], rel=5e-3)


def test_a_dead_heater_is_no_drift_and_needs_a_full_calibration():
    rng = np.random.default_rng(5)
    record = truth(6, 5)
    now = with_efficiency(drifted(record, rng), "mzi_2_2_theta", 0.0)
    fit = correct_drift(measured(now, 36, rng), record, NOISE, quiet)
    assert fit.verdict == "not drift"
    assert not fit.accepted
    assert fit.single_heaters == ()
    assert "a full calibration is needed" in str(fit)


def with_efficiency(chip, name, factor):
    efficiency = chip.efficiency.copy()
    efficiency[chip.layout.heater_index[name]] *= factor
    return replace(chip, efficiency=efficiency)


def test_chips_of_another_kind_are_refused():
    rng = np.random.default_rng(0)
    other = TwinParameters.nominal(4, input_amplitude=1.0, lo_amplitude=1.0)
    with pytest.raises(CalibrationError, match="bare meshes"):
        correct_drift(measured(truth(4, 0), 40, rng), other, NOISE, quiet)
