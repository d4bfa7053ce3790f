"""Cheap re-calibration of a bare mesh on a bench: a small correction of the record in force."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from calibration._calibrate import silent
from calibration._checks import require_record, require_whole
from calibration._drift import LEAST_READINGS, READINGS_PER_PORT, DriftFit, correct_drift
from calibration._journal import Journal
from calibration._journal_run import Argument
from calibration._leaving import dark_afterwards
from calibration._mesh_calibrate import measure_random
from calibration._mesh_run import TYPICAL_DRIFT_STEPS, electrical_start
from calibration._outcome import Outcome, finish
from calibration._posterior import MeshPosterior
from calibration._run_file import RunFile, kept_on_failure
from calibration._run_opening import begin_run, check_run_arguments
from calibration._session import Progress
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench, CalibrationRecord
from optinc_hw.errors import CalibrationError

_log = logging.getLogger(__name__)

_DARK_READINGS = 4
_DRIFT_STREAM = 2
_SAMPLES = 4


def recalibrate(
    bench: Bench, record: CalibrationRecord, *, readings: int | None = None, seed: int = 0,
    data_file: str | Path | None = None, resume: str | Path | None = None, progress: Progress | None = None,
) -> CalibrationRecord:  # fmt: skip
    """Correct a record of a bare mesh for drift, from few readings.

    Resistances are measured anew, and averaged with those of the record where both agree; phases, their growth with
    power and port transmissions are fitted with the record as prior, everything else stays.  Some of the readings are
    kept out of a first fit and judge the correction.
    Leaves the chip dark and its heaters at zero.

    Parameters
    ----------
    bench
        An open bench.
    record
        The record to correct.
    readings
        Readings in all, 4 of them dark; None takes 6 a port.
    seed
        Seed of the settings.
    data_file, resume, progress
        As for `calibrate`.

    Returns
    -------
    CalibrationRecord
        Not yet in force; its provenance links to ``record`` (kind ``"drift"``).

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, the record is none or of another layout, there are too few readings, or those kept
        out do not bear the correction out: then more readings or a full calibration are needed, and the old record
        stays.
    InstrumentError
        If an instrument fails.
    """
    require_record("record", record)
    layout = bench.layout
    if not layout.bare or not layout.admits(record.layout):
        raise CalibrationError(
            "a record is corrected for drift on the bare mesh that it describes (inputs: ports, receivers: power); "
            "calibrate this chip (optinc calibrate)"
        )
    check_run_arguments(seed, data_file, resume)
    least = LEAST_READINGS + _DARK_READINGS
    count = max(least, READINGS_PER_PORT * layout.ports) if readings is None else readings
    require_whole("readings", count, 0)
    if count < least:
        raise CalibrationError(f"{count} readings are too few to correct a record; measure {least} or more")
    arguments: dict[str, Argument] = {"readings": int(count), "record": record.content_hash}
    path, journal = begin_run(bench, "drift", seed, arguments, data_file, resume)
    with journal:
        run = RunFile(path, journal)
        with kept_on_failure(run), dark_afterwards(bench):
            outcome, drift = _correct(bench, journal, run, record, count, progress or silent)
        made = finish(bench, journal, run, outcome)
    if not drift.accepted:
        enough = max(2 * count, READINGS_PER_PORT * layout.ports)
        remedy = "calibrate the chip (optinc calibrate)"
        if drift.verdict == "too few readings":
            remedy = f"take more readings (readings = {enough}); if that does not help, {remedy}"
        raise CalibrationError(f"{drift}; the old record stays: {remedy}")
    _log.info("%s", drift)
    return made


def _correct(
    bench: Bench, journal: Journal, run: RunFile, record: CalibrationRecord, count: int, progress: Progress
) -> tuple[Outcome, DriftFit]:
    rng, old = np.random.default_rng((_DRIFT_STREAM, journal.header.seed)), record.twin()
    known = record.resistance_ohm, record.resistance_beta_per_w
    found = electrical_start(bench, journal, run, rng, progress, _DARK_READINGS, known)
    data = measure_random(found.probe, old, rng, "drift settings", count - _DARK_READINGS, progress)
    noise = NoiseModel(record.quality.noise_relative, record.quality.noise_floor_w)

    def on_step(step: int, chi: float) -> None:
        del chi
        progress("drift fit", step, max(step, TYPICAL_DRIFT_STEPS))

    drift = correct_drift(data, old, noise, on_step)
    posterior = MeshPosterior(drift.fit, drift.used, noise)
    sigmas = posterior.heater_sigmas(posterior.samples(_SAMPLES, rng))
    twin = replace(drift.parameters, dark_w=found.dark_w)
    outcome = Outcome(
        twin, found.law, sigmas, noise, drift.after.chi, drift.fit.chi, drift.after.count, drift.after.tvd, len(data),
        corrected=record, before=drift.before,
    )  # fmt: skip
    return outcome, drift
