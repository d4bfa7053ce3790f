"""How well a record still describes its chip, and if it does not, why."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from calibration._calibrate import GOOD_RESIDUAL_OVER_NOISE, good_residual, silent
from calibration._checks import require_record, require_whole
from calibration._explanation import explain
from calibration._homodyne_run import verify_homodyne
from calibration._leaving import dark_afterwards
from calibration._mesh_calibrate import measure_random, total_variation_of
from calibration._mesh_fit import residual_over_noise_of
from calibration._probe import BenchProbe
from calibration._session import Progress
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench, CalibrationRecord
from optinc_hw.errors import CalibrationError

_LEAST_TO_EXPLAIN = 8
"""Fewer settings cannot tell one reason from another."""
_VERIFICATION_STREAM = 1
"""First word of the seed: a verification never repeats settings of the calibration."""


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
        Whether the residual is at most 3, or at most twice what the record's readings let expect.
    tvd
        Mean total variation distance between predicted and measured shares of a bare mesh's outputs; None otherwise.
    reason
        What has changed, in words, if the record of a bare mesh is no longer good; empty otherwise.
    """

    residual_over_noise: float
    recorded: float
    age_s: float
    settings: int
    good: bool
    tvd: float | None = None
    reason: str = ""


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
    require_record("record", record)
    require_whole("settings", settings, 1)
    require_whole("seed", seed, 0)
    if record.ports != bench.layout.ports:
        raise CalibrationError(f"the record is of a chip of {record.ports} ports, the bench has {bench.layout.ports}")
    if not bench.layout.admits(record.layout):
        raise CalibrationError("the record is of a chip with other MZIs or other stuck phases than chip.yaml describes")
    rng = np.random.default_rng((_VERIFICATION_STREAM, seed))
    age = (datetime.now(UTC) - record.provenance.created_utc).total_seconds()
    if bench.layout.bare:
        return _verify_mesh(bench, record, settings, rng, age, progress or silent)
    with dark_afterwards(bench):
        residual = verify_homodyne(bench, record, settings, rng, progress or silent)
    good = residual <= GOOD_RESIDUAL_OVER_NOISE
    return Verification(residual, record.quality.residual_over_noise, age, settings, good)


def _verify_mesh(
    bench: Bench, record: CalibrationRecord, settings: int, rng: np.random.Generator, age_s: float, progress: Progress
) -> Verification:
    twin = record.twin()
    with dark_afterwards(bench):
        probe = BenchProbe(bench, record.resistance_ohm, record.resistance_beta_per_w, twin.dark_w, progress)
        data = measure_random(probe, twin, rng, "verification", settings, progress)
    noise = NoiseModel(record.quality.noise_relative, record.quality.noise_floor_w)
    residual = residual_over_noise_of(twin, data, noise)
    limit = good_residual(record.quality.expected_residual)
    good = residual <= limit
    reason = ""
    if not good and settings >= _LEAST_TO_EXPLAIN:
        wavelength_m = record.provenance.laser_wavelength_m
        reason = explain(twin, data, noise, wavelength_m, limit)
    recorded, tvd = record.quality.residual_over_noise, total_variation_of(twin, data, noise)
    return Verification(residual, recorded, age_s, settings, good, tvd, reason)
