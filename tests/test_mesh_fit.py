"""The global fit of bare meshes on small simulated chips: what it learns, what it refuses, what it leaves out."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from calibration._mesh_fit import MeshFit, fit_mesh, refit
from calibration._mesh_linear import MeshData
from calibration._posterior import held_out
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters
from tests.mesh_truths import NOISE, measured, nominal, quiet, rough, truth


@cache
def fitted(mean=0.0, positive=True, readings=150, ports=4, seed=0):
    """A chip, its fit and the readings of the fit."""
    rng = np.random.default_rng(seed)
    chip = truth(ports, seed, mean=mean, positive=positive)
    data = measured(chip, readings, rng)
    return chip, fit_mesh(data, rough(chip, rng), NOISE, quiet, rounds=1), data


def judged(chip, fit, seed=99):
    return held_out(fit.parameters, measured(chip, 100, np.random.default_rng(seed)), NOISE)


@pytest.mark.parametrize(("mean", "positive"), [(0.067, False), (-0.067, True)])
def test_fit_predicts_new_settings_and_learns_the_mean_coupler(mean, positive):
    chip, fit, _ = fitted(mean, positive)
    judgement = judged(chip, fit)
    assert judgement.chi < 2.5
    assert judgement.tvd < 0.002
    assert np.mean(fit.parameters.mesh_eta - chip.mesh_eta) == pytest.approx(0.0, abs=5e-3)


def test_crosstalk_profile_is_learned():
    chip, fit, _ = fitted()
    near = np.abs(chip.crosstalk - np.eye(len(chip.offset))) > 0.008
    error = fit.parameters.crosstalk - chip.crosstalk
    seen = np.ones(len(chip.offset), dtype=bool)
    seen[chip.layout.mesh_phi[:4]] = False  # external phases of the first columns hold what powers cannot see
    assert np.median(np.abs(error[seen][near[seen]])) < 0.002


def test_more_readings_continue_a_fit():
    chip, fit, data = fitted(readings=60)
    more = refit(fit, data.joined(measured(chip, 90, np.random.default_rng(5))), NOISE, quiet)
    assert judged(chip, more).tvd < judged(chip, fit).tvd
    assert judged(chip, more).chi < 2.5


def test_invalid_outputs_are_left_out():
    chip, fit, data = fitted()
    readings = data.readings_w.copy()
    readings[::7, 2] = np.nan
    readings[5] = np.nan
    again = refit(fit, MeshData(data.power_w, data.lit, readings), NOISE, quiet)
    assert judged(chip, again).chi < 2.5


def test_spoilt_readings_are_named_and_do_no_harm():
    chip, _, data = fitted()
    readings = data.readings_w.copy()
    readings[40] = readings[40, ::-1]
    readings[77] *= 0.5
    spoilt = MeshData(data.power_w, data.lit, readings)
    fit = fit_mesh(spoilt, rough(chip, np.random.default_rng(1)), NOISE, quiet)
    assert fit.spoilt.tolist() == [40, 77]
    assert judged(chip, fit).chi < 2.5


def test_a_stuck_heater_gets_its_phase():
    chip = replace(truth(4, 2), stuck=("mzi_1_1_theta",))
    rng = np.random.default_rng(2)
    start = replace(rough(chip, rng), stuck=chip.stuck)
    fit = fit_mesh(measured(chip, 150, rng), start, NOISE, quiet, rounds=1)
    assert judged(chip, fit).chi < 2.5


def test_arm_loss_second_order_and_curvature_are_found():
    chip = truth(4, 3, arm_loss=0.02, second_order=(1e-3, 5e-4), curvature=3e-4)
    rng = np.random.default_rng(3)
    fit = fit_mesh(measured(chip, 250, rng), rough(chip, rng), NOISE, quiet)
    assert judged(chip, fit).chi < 2.5
    assert fit.parameters.second_order == pytest.approx(chip.second_order, abs=4e-4)
    assert fit.widths.arm_loss == pytest.approx(0.02, rel=0.5)


@pytest.mark.parametrize("turn", [0.1, 1.5])
def test_a_fit_may_begin_at_a_twin_and_goes_back_to_coarse_stages_if_that_is_wrong(turn):
    chip, _, data = fitted()
    rng = np.random.default_rng(1)
    begin = replace(chip, offset=chip.offset + turn * rng.standard_normal(len(chip.offset)))
    fit = fit_mesh(data, rough(chip, rng), NOISE, quiet, rounds=1, begin=begin)
    assert judged(chip, fit).chi < 2.5


def test_steps_are_told():
    chip, _, data = fitted()
    told = []
    fit = fit_mesh(data, rough(chip, np.random.default_rng(1)), NOISE, lambda *step: told.append(step), rounds=0)
    assert [number for number, _ in told] == list(range(fit.steps))
    assert told[-1][1] == fit.chi


def wrong(**changes):
    _, _, data = fitted()
    return MeshData(**{"power_w": data.power_w, "lit": data.lit, "readings_w": data.readings_w, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lit": np.full(150, 4)}, "0 to 3"),
        ({"lit": np.zeros(149, dtype=int)}, "shapes"),
        ({"readings_w": np.full((150, 4), np.nan)}, "more settings"),
        ({"power_w": np.full((150, 12), np.inf)}, "NaN or Inf"),
    ],
)
def test_what_cannot_be_fitted_is_refused(changes, message):
    with pytest.raises(CalibrationError, match=message):
        fit_mesh(wrong(**changes), nominal(4), NOISE, quiet)


def test_chips_of_another_kind_are_refused():
    start = TwinParameters.nominal(4, input_amplitude=1.0, lo_amplitude=1.0)
    with pytest.raises(CalibrationError, match="fit_twin"):
        fit_mesh(wrong(), start, NOISE, quiet)


def test_a_fit_is_a_value():
    _, fit, _ = fitted()
    assert isinstance(fit, MeshFit)
    assert fit.spoilt.size == 0
    assert fit.chi < 1.1
