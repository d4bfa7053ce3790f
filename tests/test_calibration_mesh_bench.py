"""Bare meshes from the bench to the record: calibration, verification, resume, and correction of drift."""

import logging

import numpy as np
import pytest

from calibration import calibrate, compare_matrices, read_run, recalibrate, verify
from optinc_hw import Bench
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import haar_unitary, program_unitary, voltage_from_power
from optinc_hw.photonics.twin import parameter_shapes
from simulated_instruments import HiddenChip, HiddenEffects

PORTS, SEED, BUDGET = 3, 3, 120
DRIFTED = {"temperature_k": 1.0, "temperature_phase_rad_per_k": 0.2, "pi_power_w": 0.0202}
LAW = {"temperature_phase_rad_per_k": 0.2}


def mesh_bench(**changes):
    effects = {**LAW, **changes}
    chip = {"preset": "method_a", "ports": PORTS, "seed": SEED, "effects": effects}
    return Bench.simulated(PORTS, SEED, kind="mesh", chip=chip)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """The record of one calibration, the stages that it showed, and its file."""
    path, stages = tmp_path_factory.mktemp("mesh") / "run.nc", []
    with mesh_bench() as bench:
        record = calibrate(
            bench, budget=BUDGET, held_out=12, data_file=path, progress=lambda *entry: stages.append(entry)
        )
        assert not bench.voltages.any()
        assert bench.readings == BUDGET
    return record, stages, path


def test_record_predicts_settings_that_it_has_not_seen(calibrated):
    record, stages, _ = calibrated
    assert record.quality.readings == BUDGET
    assert record.quality.residual_over_noise < 3.0
    assert record.quality.held_out_tvd < 0.002
    names = [stage for stage, _, _ in stages]
    assert {"heater resistances", "random settings", "held-out settings", "twin fit"} <= set(names)
    with mesh_bench() as bench:
        result = verify(bench, record, settings=20)
    assert result.good
    assert result.tvd < 0.002


@pytest.mark.parametrize(("ground_ohm", "named"), [(0.0, False), (1.0, True)])
def test_effects_that_the_model_lacks_are_told_from_too_few_readings(caplog, ground_ohm, named):
    """Heaters that share a resistance to ground heat each other less than their voltages say; no twin knows that."""
    with mesh_bench(ground_resistance_ohm=ground_ohm) as bench:
        quality = calibrate(bench, budget=180, held_out=20).quality
    assert 1.0 <= quality.expected_residual < 1.2
    assert ("are to be expected; the chip has effects that the model lacks" in caplog.text) == named
    if not named:
        assert quality.residual_over_noise == pytest.approx(quality.expected_residual, rel=0.3)


def test_programmed_unitaries_come_out_of_the_hidden_chip(calibrated):
    """The truth judges: what the chip does at the voltages that the record gives for a target."""
    record, _, _ = calibrated
    effects = HiddenEffects.preset("method_a", **LAW)
    chip = HiddenChip.from_seed(SEED, PORTS, inputs="ports", receivers="power", effects=effects)
    rng = np.random.default_rng(0)
    for _ in range(3):
        target = haar_unitary(PORTS, rng)
        programmed = program_unitary(record.twin(), target, 0.06)
        volts = voltage_from_power(programmed.power_w, record.resistance_ohm, record.resistance_beta_per_w)
        chip.set_heater_voltages(dict(enumerate(volts)))
        chip.clock.sleep(1.0)
        comparison = compare_matrices(chip.transfer_matrix(), target)
        assert comparison.fidelity > 0.998
        assert comparison.fidelity == pytest.approx(programmed.fidelity, abs=5e-4)


def test_finished_run_gives_the_same_record_without_a_reading_or_a_fit(calibrated, monkeypatch):
    record, _, path = calibrated
    for name in ("fit_mesh", "refit"):
        monkeypatch.setattr(f"calibration._mesh_calibrate.{name}", lambda *_: pytest.fail("a fit began"))
    with mesh_bench() as bench:
        again = calibrate(bench, budget=BUDGET, held_out=12, resume=path)
        assert bench.readings == 0
    for name in parameter_shapes(record.layout):
        np.testing.assert_array_equal(getattr(again.twin(), name), getattr(record.twin(), name), err_msg=name)
    assert sum(len(step.answered.get("readings_w", ())) for step in read_run(path).steps) == BUDGET


def test_drift_is_corrected_from_six_readings_a_port(calibrated, caplog):
    record, _, _ = calibrated
    with mesh_bench(**DRIFTED) as bench, caplog.at_level(logging.INFO):
        before = verify(bench, record, settings=12)
        corrected = recalibrate(bench, record)
        after = verify(bench, corrected, settings=12)
    assert before.tvd > 0.05
    assert after.tvd < 0.005
    assert corrected.quality.readings == 6 * PORTS
    assert corrected.provenance.kind == "drift"
    assert corrected.provenance.parent_hash == record.content_hash
    assert corrected.twin().crosstalk == pytest.approx(record.twin().crosstalk)
    assert "accepted" in caplog.text


def test_changes_that_are_no_drift_are_refused_and_the_record_stays(calibrated):
    """Couplers do not drift; where they differ this is another chip, and no correction of phases bears it out."""
    record, _, _ = calibrated
    with mesh_bench(coupler_mean_rad=0.15) as bench:
        with pytest.raises(
            CalibrationError, match=r"REFUSED.*full calibration.*the old record stays: calibrate the chip"
        ):
            recalibrate(bench, record)
        assert not bench.voltages.any()


def test_too_few_readings_for_a_correction_are_refused(calibrated):
    record, _, _ = calibrated
    with mesh_bench() as bench, pytest.raises(CalibrationError, match=r"6 readings are too few .* measure 16 or more"):
        recalibrate(bench, record, readings=6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 5}, "budget = 5.* at least 6"),
        ({"settings": 100}, "settings = 100 is not for this kind of chip; give budget"),
        ({"budget": 50}, "a budget of .* leaves -?\\d+ random settings for the fit. Allow at least"),
    ],
)
def test_budgets_that_do_not_suffice_are_refused(change, message):
    with mesh_bench() as bench, pytest.raises(CalibrationError, match=message):
        calibrate(bench, **change)


def test_records_of_another_kind_are_not_corrected(calibrated):
    record, _, _ = calibrated
    with Bench.simulated(ports=2) as bench, pytest.raises(CalibrationError, match="inputs: ports, receivers: power"):
        recalibrate(bench, record)


def test_around_a_dead_heater_that_chip_yaml_does_not_state_the_rest_is_calibrated(caplog):
    chip = {"preset": "method_a", "ports": 4, "seed": 1, "truth": {"stuck_heaters": {"mzi_2_0_theta": 1.0}}}
    with Bench.simulated(4, 1, kind="mesh", chip=chip) as bench:
        record = calibrate(bench, budget=400, held_out=12)
        assert record.stuck == ("mzi_2_0_theta",)
        assert record.quality.residual_over_noise < 3.0
        assert "mzi_2_0_theta (its heater does nothing" in caplog.text
        bench.save_record(record)
        assert verify(bench, bench.require_record(), settings=8).good
