"""Coherent light in all ports of a mesh that was calibrated with one lit port at a time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from _harness import Row, at_most, figure
from _judge import Case, Judge

from calibration import (
    CalibrationRecord,
    NoiseModel,
    coherent_readings,
    coherent_settings,
    find_input_phases,
    invisible_combinations,
)
from optinc_hw.photonics import power_from_voltage, voltage_from_power

NEW_READINGS = 200
GOAL = 1.5
_SHOWN = ("offset", "efficiency", "curvature")


@dataclass(frozen=True)
class Coherent:
    """Residuals over noise of predictions of new coherent readings, without and with input phases."""

    readings: int
    seconds: float
    before: float
    after: float
    verdict: str
    unseen: str

    def __str__(self) -> str:
        return (
            f"      coherent light: {self.readings} readings, {self.seconds:.1f} CPU s, residual over noise of new "
            f"ones {self.before:.0f} with the record, {self.after:.2f} with input phases ({self.verdict})"
        )


def coherent(case: Case, seed: int, record: CalibrationRecord) -> Coherent:
    """Find input phases from coherent readings and predict others; the light comes from outside, by no switch."""
    judge, twin, rng = Judge(case, seed), record.twin(), np.random.default_rng((7, seed))

    def measured(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        power, fields = coherent_settings(twin, count, rng)
        volts = voltage_from_power(power, record.resistance_ohm, record.resistance_beta_per_w)
        seen = np.array([judge.readings(*setting) for setting in zip(volts, fields, strict=True)])
        known = power_from_voltage(volts, record.resistance_ohm, record.resistance_beta_per_w)
        return known, fields, seen - twin.dark_w

    noise = NoiseModel(record.quality.noise_relative, record.quality.noise_floor_w)
    data = measured(case.coherent)
    begun = time.process_time()
    found = find_input_phases(twin, *data, noise)
    seconds = time.process_time() - begun
    power, fields, seen = measured(NEW_READINGS)
    sigma = np.hypot(judge.noise[0] * seen, judge.noise[1])
    told = [coherent_readings(one, power, fields) for one in (twin, found.twin)]
    before, after = (float(np.sqrt(np.mean(((one - seen) / sigma) ** 2))) for one in told)
    lit = np.arange(len(power)) % case.ports
    unseen = invisible_combinations(twin, power, lit, noise, _SHOWN).text()
    return Coherent(case.coherent, seconds, before, after, found.verdict, unseen)


def coherent_rows(name: str, found: list[Coherent]) -> Iterator[Row]:
    """Rows of all chips; prints what powers of single inputs do not show."""
    print(found[0].unseen)
    lead = f"{name}, coherent light"
    yield at_most(f"{lead}: worst residual over noise", max(one.after for one in found), "", GOAL)
    yield figure(f"{lead}: least residual over noise without input phases", min(one.before for one in found), "")
    yield figure(f"{lead}: readings", max(one.readings for one in found), "")
