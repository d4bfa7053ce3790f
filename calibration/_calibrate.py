"""The whole calibration of a chip."""

import logging
from pathlib import Path

import numpy as np

from calibration._checks import require_whole
from calibration._homodyne_run import run_homodyne
from calibration._journal_run import Argument
from calibration._leaving import dark_afterwards
from calibration._mesh_calibrate import LEAST_BUDGET, READINGS_PER_HEATER
from calibration._mesh_run import held_out_by_default, run_mesh
from calibration._outcome import Outcome, finish
from calibration._run_file import RunFile, kept_on_failure
from calibration._run_opening import begin_run, check_run_arguments
from calibration._session import Progress
from optinc_hw.bench import Bench, CalibrationRecord
from optinc_hw.bench.chip_file import CHIP_FILE
from optinc_hw.errors import CalibrationError, ConfigurationError
from optinc_hw.photonics import RectangularLayout

_log = logging.getLogger(__name__)

MAX_RESIDUAL_OVER_NOISE = 15.0
"""A twin that predicts held-out settings worse than this many times the noise is refused."""
GOOD_RESIDUAL_OVER_NOISE = 3.0
"""`verify` calls a record good up to this, and `calibrate` warns beyond it."""
MOST_OVER_EXPECTED = 2.0
"""The same, as a multiple of what is to be expected of a chip that does nothing but what the model knows."""
SETTINGS_PER_HEATER = 10
HELD_OUT = 200
_CALIBRATION_STREAM = 0
"""First word of the seed: verifications and corrections of drift never repeat a calibration's settings."""


def calibrate(
    bench: Bench, *, settings: int | None = None, budget: int | None = None, held_out: int | None = None,
    seed: int = 0, data_file: str | Path | None = None, resume: str | Path | None = None,
    progress: Progress | None = None,
) -> CalibrationRecord:  # fmt: skip
    """Calibrate a chip from measured data only.

    OptINC's own chip: dark readings, heater resistances, phase curves, attenuators, input modulators, and the phases of
    the mesh column by column from fields give a start; a global fit to random settings gives the twin.  A bare mesh:
    dark readings, heater resistances, internal and external phases column by column from output powers; then random
    settings and global fits in turn.  Settings that the fit has not seen judge it.

    Every sweep is in the run's journal before the next one begins, so that a run that was killed can be resumed; the
    journal becomes part of the netCDF file at the end.  Leaves the chip dark and its heaters at zero.

    Parameters
    ----------
    bench
        An open bench.
    settings
        Random settings for the fit of OptINC's own chip; None takes 10 a heater.  At least as many readings as offsets
        and efficiencies.
    budget
        Readings of all kinds that a bare mesh may take; None takes 15 a heater, and at least 300.
    held_out
        Random settings that judge the fit; None takes 200, or 5 a port of a bare mesh, whose judges join the last fit.
    seed
        Seed of the random settings.
    data_file
        netCDF file for raw data and result, which must not be there yet; None names one by the time beside chip.yaml,
        or takes that of ``resume``.
    resume
        Journal (``.journal``) or netCDF file of a run to go on with: what it holds is not measured again.  All other
        arguments must be those of that run, and so must the bench's light, averaging, settling and wiring.
    progress
        Called with (stage, done, total).

    Returns
    -------
    CalibrationRecord
        Not yet in force: give it to ``bench.save_record``.

    Raises
    ------
    ConfigurationError
        If chip.yaml describes a mesh that cannot be calibrated; nothing is driven.
    CalibrationError
        If any stage does not support a result, or an argument is not for this kind of chip or too small; the record
        in force stays as it is.
    InstrumentError
        If an instrument fails.
    """
    _require_known_mesh(bench)
    arguments = _arguments(bench, settings, budget, held_out)
    check_run_arguments(seed, data_file, resume)
    path, journal = begin_run(bench, "calibration", seed, dict[str, Argument](arguments), data_file, resume)
    rng = np.random.default_rng((_CALIBRATION_STREAM, seed))
    with journal:
        run = RunFile(path, journal)
        with kept_on_failure(run), dark_afterwards(bench):
            measure = run_mesh if bench.layout.bare else run_homodyne
            counts = (arguments["budget" if bench.layout.bare else "settings"], arguments["held_out"])
            outcome = measure(bench, journal, run, counts, rng, progress or silent)
        record = finish(bench, journal, run, outcome)
        _judge(outcome, run.path)
        return record


def _arguments(bench: Bench, settings: int | None, budget: int | None, held_out: int | None) -> dict[str, int]:
    """Fill in what was left out, and refuse what is not for this kind of chip or too small."""
    heaters, ports = len(bench.layout.heaters), bench.layout.ports
    if bench.layout.bare:
        other, value, what, least = "settings", settings, "budget", heaters
        chosen = {
            "budget": max(READINGS_PER_HEATER * heaters, LEAST_BUDGET) if budget is None else budget,
            "held_out": held_out_by_default(ports) if held_out is None else held_out,
        }
    else:
        other, value, what, least = "budget", budget, "settings", -(-heaters // ports)
        chosen = {
            "settings": SETTINGS_PER_HEATER * heaters if settings is None else settings,
            "held_out": HELD_OUT if held_out is None else held_out,
        }
    if value is not None:
        raise CalibrationError(f"{other} = {value} is not for this kind of chip; give {what}")
    for name, given in chosen.items():
        require_whole(name, given, 0)
    if chosen[what] < least or chosen["held_out"] < 1:
        raise CalibrationError(
            f"{what} = {chosen[what]}, held_out = {chosen['held_out']}: this chip needs at least {least} "
            f"{'readings' if bench.layout.bare else 'settings'} and 1 held out"
        )
    return {name: int(given) for name, given in chosen.items()}


def good_residual(expected: float | None) -> float:
    """Residual over noise up to which a twin is called good.

    Parameters
    ----------
    expected
        What it would be on a chip that does nothing but what the model knows; None where not known.
    """
    return max(GOOD_RESIDUAL_OVER_NOISE, 0.0 if expected is None else MOST_OVER_EXPECTED * expected)


def _judge(outcome: Outcome, path: Path) -> None:
    """Refuse a twin that does not predict held-out settings, warn of one that predicts them badly."""
    residual, expected = outcome.residual_over_noise, outcome.expected_residual
    good = good_residual(expected)
    found = f"the twin predicts held-out settings only to {residual:.3g} times the noise"
    if not residual <= max(MAX_RESIDUAL_OVER_NOISE, good):
        raise CalibrationError(
            f"{found} ({max(MAX_RESIDUAL_OVER_NOISE, good):.3g} allowed); the old record stays. Are two detectors or "
            f"heaters swapped in chip.yaml? The data are in {path}"
        )
    if outcome.doubt and residual > good:
        raise CalibrationError(
            f"the start was in doubt ({outcome.doubt}), and {found} ({good:.3g} allowed then); the old record stays. "
            f"Look for dead or swapped heaters (optinc discover); the data are in {path}"
        )
    if expected is not None and residual > MOST_OVER_EXPECTED * expected:
        _log.warning("%s, %.3g are to be expected; the chip has effects that the model lacks", found, expected)
    elif expected is not None and residual > GOOD_RESIDUAL_OVER_NOISE:
        _log.warning("%s, as is to be expected of so few readings; more of them predict better", found)
    elif residual > GOOD_RESIDUAL_OVER_NOISE:
        _log.warning(
            "%s (good: up to %g); the chip has effects that the model lacks, or more settings are needed",
            found,
            GOOD_RESIDUAL_OVER_NOISE,
        )


def _require_known_mesh(bench: Bench) -> None:
    """Refuse a mesh whose lines and columns the stages would not find."""
    chip, layout = bench.description.chip, bench.layout
    lacking = [f"{name} is missing" for name in chip.mesh.missing_mzis]
    lacking += [] if layout.bare else [f"{name} is stuck" for name in layout.stuck]
    mixed = layout.receivers != ("power" if layout.inputs == "ports" else "homodyne")
    if layout.mesh != RectangularLayout(layout.ports) or lacking or mixed:
        kind = [f"inputs: {layout.inputs}, receivers: {layout.receivers}"] if mixed else []
        found = "; ".join([f"layout: {chip.layout}", *kind, *lacking])
        raise ConfigurationError(
            f"{bench.folder / CHIP_FILE} describes a mesh that cannot be calibrated yet ({found}): calibration needs "
            "layout: rectangular with every MZI present, behind modulators and before homodyne receivers with every "
            "phase following its heater, or with input ports and power detectors alone; nothing was driven"
        )


def silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""
    del stage, done, total
