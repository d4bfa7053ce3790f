"""The whole calibration of a chip, and the check of an old one."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from calibration._electrical import (
    measure_dark,
    measure_fringes,
    measure_noise,
    measure_resistances,
    noise_model,
    random_powers,
    use_fringes,
    use_resistances,
)
from calibration._journal import Journal
from calibration._journal_results import kept_fit
from calibration._optical import find_attenuators, find_columns, find_generator, find_lines
from calibration._run_file import RunFile, kept_on_failure, open_journal, run_header
from calibration._session import Array, Progress, Session
from calibration._twin_fit import NoiseModel, Settings, TwinFit, fit_twin, residual_over_noise
from optinc_hw.bench import Bench, CalibrationRecord
from optinc_hw.bench.chip_file import CHIP_FILE
from optinc_hw.bench.record import Provenance, Quality, make_provenance
from optinc_hw.errors import CalibrationError, ConfigurationError, InstrumentError
from optinc_hw.photonics import ChipLayout, TwinParameters
from optinc_hw.units import db_to_amplitude, dbm_to_watt, nm_to_m

_log = logging.getLogger(__name__)

MAX_RESIDUAL_OVER_NOISE = 15.0
"""A twin that predicts held-out settings worse than this many times the noise is refused."""
GOOD_RESIDUAL_OVER_NOISE = 3.0
"""`verify` calls a record good up to this, and `calibrate` warns beyond it."""
TYPICAL_MZI_LOSS_DB = 0.15
TYPICAL_COUPLING_LOSS_DB = 1.0
SETTINGS_PER_HEATER = 10
SETTINGS_PER_SWEEP = 10
"""Random settings between two entries of the journal."""
_CALIBRATION_STREAM, _VERIFICATION_STREAM = 0, 1
"""First words of the two seeds: a verification never repeats settings of the calibration."""
TYPICAL_FIT_STEPS = 8
"""Steps that a fit is expected to take, for the display of progress."""


def calibrate(
    bench: Bench, *, settings: int | None = None, held_out: int = 200, seed: int = 0,
    data_file: str | Path | None = None, resume: str | Path | None = None, progress: Progress | None = None,
) -> CalibrationRecord:  # fmt: skip
    """Calibrate a chip from measured data only.

    Dark readings, heater resistances, phase curves, attenuators, input modulators, mesh lines and one complex matrix
    give a start; a global fit to random settings gives the twin; settings that the fit has not seen judge it.
    Every sweep is in the run's journal before the next one begins, so that a run that was killed can be resumed; the
    journal becomes part of the netCDF file at the end.  Leaves the chip dark and its heaters at zero.

    Parameters
    ----------
    bench
        An open bench.
    settings
        Random settings for the fit; None takes 10 a heater.  At least as many readings as offsets and efficiencies.
    held_out
        Random settings kept out of the fit.
    seed
        Seed of the random settings.
    data_file
        netCDF file for raw data and result; None names one by the time beside chip.yaml, or takes that of ``resume``.
    resume
        Journal (``.journal``) or netCDF file of a run to go on with: what it holds is not measured again.  All other
        arguments must be those of that run.
    progress
        Called with (stage, done, total).

    Returns
    -------
    CalibrationRecord
        Not yet in force: give it to ``bench.save_record``.

    Raises
    ------
    ConfigurationError
        If chip.yaml describes a mesh that is not rectangular and complete, or stuck phases; nothing is driven.
    CalibrationError
        If any stage does not support a result, or the numbers of settings are too small; the record in force stays
        as it is.
    InstrumentError
        If an instrument fails.
    """
    _require_complete_rectangle(bench)
    count = SETTINGS_PER_HEATER * len(bench.layout.heaters) if settings is None else settings
    least = -(-len(bench.layout.heaters) // bench.layout.ports)
    if resume is not None and data_file is not None:
        raise CalibrationError("a resumed run goes on in its own file; give data_file or resume, not both")
    if count < least or held_out < 1 or seed < 0:
        raise CalibrationError(
            f"settings = {count}, held_out = {held_out}, seed = {seed}: this chip needs at least {least} settings and "
            "1 held out, and a seed of at least 0"
        )
    created = datetime.now(UTC)
    default = bench.folder / f"calibration_{created:%Y%m%dT%H%M%S}.nc"
    header = run_header(bench, seed, {"settings": count, "held_out": held_out}, created)
    path, journal = open_journal(default if data_file is None else Path(data_file), header, resume)
    with journal:
        return _run(bench, journal, RunFile(path, journal), (count, held_out), progress or _silent)


def _run(
    bench: Bench, journal: Journal, run: RunFile, counts: tuple[int, int], progress: Progress
) -> CalibrationRecord:
    header, (count, held_out) = journal.header, counts
    session = Session(bench, np.random.default_rng((_CALIBRATION_STREAM, header.seed)), progress, journal.step)
    with kept_on_failure(run), _dark_afterwards(bench):
        noise, start = _start_up(session, run)
        train, judge = _measure(session, run, "train", count), _measure(session, run, "held_out", held_out)

    def on_step(step: int, _: float) -> None:
        session.progress("twin fit", step, max(step, TYPICAL_FIT_STEPS))

    fit = kept_fit(journal, train, start, noise, lambda: fit_twin(train, start, noise, on_step))
    residual = residual_over_noise(fit.parameters, judge, noise)
    digest = run.finish(fit.parameters, {
        "residual_over_noise": residual, "train_residual_over_noise": fit.chi, "readings": journal.readings,
        "noise_relative": noise.relative, "noise_floor_w": noise.floor_w,
    })  # fmt: skip
    _judge(residual, run.path)
    quality = Quality(
        residual_over_noise=residual, held_out_settings=held_out, readings=journal.readings,
        noise_relative=noise.relative, noise_floor_w=noise.floor_w,
    )  # fmt: skip
    laser = bench.description.chip.laser
    provenance = make_provenance(
        seed=header.seed, chip=header.chip, laser_power_w=dbm_to_watt(laser.power_dbm),
        laser_wavelength_m=nm_to_m(laser.wavelength_nm), created=datetime.fromisoformat(header.created_utc),
        data_file=run.path.name, data_sha256=digest,
    )  # fmt: skip
    return _record(session, fit, quality, provenance)


def _judge(residual: float, path: Path) -> None:
    """Refuse a twin that does not predict held-out settings, warn of one that predicts them badly."""
    if not residual <= MAX_RESIDUAL_OVER_NOISE:
        raise CalibrationError(
            f"the twin predicts held-out settings only to {residual:.3g} times the noise "
            f"({MAX_RESIDUAL_OVER_NOISE:g} allowed); the old record stays. Are two detectors or heaters swapped in "
            f"chip.yaml? The data are in {path}"
        )
    if residual > GOOD_RESIDUAL_OVER_NOISE:
        _log.warning(
            "the twin predicts held-out settings only to %.3g times the noise (good: up to %g); the chip has effects "
            "that the model lacks, or more settings are needed",
            residual,
            GOOD_RESIDUAL_OVER_NOISE,
        )


@dataclass(frozen=True)
class Verification:
    """How well a record still describes its chip.

    Parameters
    ----------
    residual_over_noise
        Rms prediction error of fresh random settings over the noise.
    recorded
        The same figure when the record was made.
    age_s
        Age of the record in s.
    settings
        Number of settings read.
    good
        Whether the residual is at most `GOOD_RESIDUAL_OVER_NOISE`.
    """

    residual_over_noise: float
    recorded: float
    age_s: float
    settings: int
    good: bool


def verify(
    bench: Bench, record: CalibrationRecord, *, settings: int = 40, seed: int = 1, progress: Progress | None = None
) -> Verification:
    """Compare fresh readings at random settings with a record's predictions; leaves the chip dark.

    Parameters
    ----------
    bench
        An open bench.
    record
        The record to check.
    settings
        Number of random settings.
    seed
        Seed of the settings; none of them are those of a calibration.
    progress
        Called with (stage, done, total).

    Raises
    ------
    CalibrationError
        If the record is of another layout, a detector is out of range, or settings or seed are too small.
    """
    if settings < 1 or seed < 0:
        raise CalibrationError(f"settings = {settings}, seed = {seed}: at least 1 setting and a seed of at least 0")
    if record.ports != bench.layout.ports:
        raise CalibrationError(f"the record is of a chip of {record.ports} ports, the bench has {bench.layout.ports}")
    if record.layout != bench.layout:
        raise CalibrationError("the record is of a chip with other MZIs or other stuck phases than chip.yaml describes")
    twin = record.twin()
    session = Session(bench, np.random.default_rng((_VERIFICATION_STREAM, seed)), progress or _silent)
    session.resistance_ohm, session.beta_per_w = record.resistance_ohm, record.resistance_beta_per_w
    session.efficiency = twin.efficiency.copy()
    with _dark_afterwards(bench):
        data = _random_settings(session, "verification", settings)
    noise = NoiseModel(record.quality.noise_relative, record.quality.noise_floor_w)
    residual = residual_over_noise(twin, data, noise)
    age = (datetime.now(UTC) - record.provenance.created_utc).total_seconds()
    return Verification(
        residual, record.quality.residual_over_noise, age, settings, residual <= GOOD_RESIDUAL_OVER_NOISE
    )


def _require_complete_rectangle(bench: Bench) -> None:
    """Refuse a mesh whose lines and columns the stages would not find."""
    chip, layout = bench.description.chip, bench.layout
    lacking = [f"{name} is missing" for name in chip.mesh.missing_mzis] + [f"{name} is stuck" for name in layout.stuck]
    if layout != ChipLayout(layout.ports):
        found = "; ".join([f"layout: {chip.layout}", *lacking])
        raise ConfigurationError(
            f"{bench.folder / CHIP_FILE} describes a mesh that cannot be calibrated yet ({found}): calibration needs "
            "layout: rectangular with every MZI present and every phase following its heater; nothing was driven"
        )


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


def _start_up(session: Session, run: RunFile) -> tuple[NoiseModel, TwinParameters]:
    dark = _stage(session, run, "dark readings", measure_dark)
    # Raw data are kept before they are judged: those of a stage that fails tell why.
    use_resistances(session, _stage(session, run, "heater resistances", measure_resistances))
    lit = _stage(session, run, "noise", measure_noise)
    noise = noise_model(dark["dark_readings"], lit["noise_readings"])
    use_fringes(session, _stage(session, run, "phase curves", measure_fringes))
    _stage(session, run, "attenuators", find_attenuators)
    _stage(session, run, "input modulators", find_generator)
    _stage(session, run, "mesh lines", find_lines)
    raw = _stage(session, run, "transfer matrix", find_columns)
    return noise, _first_twin(session, raw)


def _stage(
    session: Session, run: RunFile, name: str, measure: Callable[[Session], dict[str, Array]]
) -> dict[str, Array]:
    session.stage = name
    raw = measure(session)
    run.add(name, raw)
    return raw


def _first_twin(session: Session, raw: dict[str, Array]) -> TwinParameters:
    """Start of the fit: phases from the stages, amplitudes from the complex matrix, typical losses."""
    n = session.layout.ports
    lo = np.sqrt(np.maximum(raw["lo_readings"][:n] + raw["lo_readings"][n:], 1e-15))
    fields = np.hypot(raw["matrix"][..., 0], raw["matrix"][..., 1]) / lo[:, None]
    rows, columns = np.linalg.norm(fields, axis=1), np.linalg.norm(fields, axis=0)
    mzi, coupling = db_to_amplitude(TYPICAL_MZI_LOSS_DB), db_to_amplitude(TYPICAL_COUPLING_LOSS_DB)
    nominal = TwinParameters.nominal(n, input_amplitude=1.0, lo_amplitude=1.0)
    return replace(
        nominal, offset=session.offset, efficiency=session.efficiency, lo_amplitude=lo, dark_w=session.dark_w,
        mzi_transmission=np.full(len(session.layout.mesh.mzis), mzi),
        input_amplitude=columns / (mzi**n * coupling), output_transmission=coupling * rows / rows.mean(),
    )  # fmt: skip


def _measure(session: Session, run: RunFile, name: str, count: int) -> Settings:
    data = _random_settings(session, f"{name.replace('_', '-')} settings", count)
    run.add(name, {f"{name}_power": data.power_w, f"{name}_readings": data.readings_w})
    return data


def _random_settings(session: Session, stage: str, count: int) -> Settings:
    session.stage = stage
    powers, readings = [], []
    for first in range(0, count, SETTINGS_PER_SWEEP):
        last = min(first + SETTINGS_PER_SWEEP, count)
        powers.append(np.stack([random_powers(session) for _ in range(first, last)]))
        readings.append(session.measure(powers[-1]) + session.dark_w)
        session.progress(stage, last, count)
    return Settings(np.concatenate(powers), np.concatenate(readings))


@contextmanager
def _dark_afterwards(bench: Bench) -> Iterator[None]:
    """Leave the chip dark and its heaters at zero, also after an error; an error on the way out is added to it."""
    try:
        yield
    except BaseException as error:
        try:
            _darken(bench)
        except InstrumentError as failure:
            error.add_note(f"and the chip could not be left dark: {failure}")
        raise
    _darken(bench)


def _darken(bench: Bench) -> None:
    try:
        bench.light(on=False)
    finally:  # a laser that does not answer must not keep the heaters on
        bench.set_voltages(np.zeros(len(bench.layout.heaters)))


def _record(session: Session, fit: TwinFit, quality: Quality, provenance: Provenance) -> CalibrationRecord:
    return CalibrationRecord.from_twin(
        fit.parameters, session.resistance_ohm, session.beta_per_w, (fit.offset_sigma, fit.efficiency_sigma),
        quality, provenance,
    )  # fmt: skip
