"""A bare mesh on a bench, from dark readings to the twin."""

from dataclasses import dataclass, replace

import numpy as np

from calibration._electrical import measure_resistances, noise_model, use_resistances
from calibration._journal import Journal
from calibration._journal_probe import JournaledProbe
from calibration._mesh_calibrate import calibrate_mesh
from calibration._mesh_law import Law
from calibration._outcome import Outcome
from calibration._probe import BenchProbe
from calibration._run_file import RunFile
from calibration._session import Array, Progress, Session
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench

DARK_READINGS = 10
NOISE_READINGS = 8
TYPICAL_DRIFT_STEPS = 30
"""Steps that a fit of drift is expected to take, for the display of progress."""


@dataclass(frozen=True)
class ElectricalStart:
    """What a run knows before the first light: resistance laws (H,), dark readings (repeats, n) in W, and a probe."""

    law: Law
    dark: Array
    probe: JournaledProbe

    @property
    def dark_w(self) -> Array:
        """Mean dark readings (n,) in W."""
        return np.asarray(self.dark.mean(axis=0))


def electrical_start(
    bench: Bench, journal: Journal, run: RunFile, rng: np.random.Generator, progress: Progress,
    dark_readings: int = DARK_READINGS, known: Law | None = None,
) -> ElectricalStart:  # fmt: skip
    """Measure dark readings and resistances, combined with known laws if there are any; leaves the light off."""
    session = Session(bench, rng, progress, journal.step)
    session.stage = "dark readings"
    dark = session.measure_dark(dark_readings)
    run.add("dark readings", {"dark_readings": dark})
    session.stage = "heater resistances"
    steps = measure_resistances(session)
    run.add("heater resistances", steps)
    use_resistances(session, steps, known)
    law = session.resistance_ohm, session.beta_per_w
    probe = JournaledProbe(BenchProbe(bench, *law, dark.mean(axis=0), progress), journal)
    return ElectricalStart(law, dark, probe)


def held_out_by_default(ports: int) -> int:
    """Say how many settings judge the fit of a mesh."""
    return 5 * ports


def run_mesh(
    bench: Bench, journal: Journal, run: RunFile, counts: tuple[int, int], rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Calibrate the bare mesh on a bench.

    Arguments are those of `run_homodyne`, but ``counts`` are the budget of readings and how many of them judge the fit.
    """
    budget, held_out = counts
    began = electrical_start(bench, journal, run, rng, progress)
    noise = _noise(began.probe, began.dark, rng)
    found = calibrate_mesh(
        began.probe, noise, rng, budget=budget - len(began.dark), held_out=held_out, keep=journal.result,
        progress=progress,
    )  # fmt: skip
    return Outcome(
        replace(found.fit.parameters, dark_w=began.dark_w), began.law, found.sigmas, noise, found.residual_over_noise,
        found.fit.chi, held_out, found.tvd, len(found.data),
        expected_residual=found.expected_residual, mesh=found,
    )  # fmt: skip


def _noise(probe: JournaledProbe, dark: Array, rng: np.random.Generator) -> NoiseModel:
    """Noise of a reading, from repeats at one random setting."""
    period = np.minimum(2.0 * np.pi / probe.nominal_efficiency, probe.max_power_w)
    power = rng.uniform(size=len(period)) * period
    power = power * min(1.0, 0.5 * probe.max_total_power_w / power.sum())
    lit = np.zeros(NOISE_READINGS, dtype=np.intp)
    readings = probe.measure("noise", np.tile(power, (NOISE_READINGS, 1)), lit)
    return noise_model(dark, readings)
