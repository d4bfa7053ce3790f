"""OptINC's own chip on a bench: stages that give a start, random settings, and the fit of the twin."""

from collections.abc import Callable
from dataclasses import replace

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
from calibration._field_mesh import MeshPorts, find_mesh
from calibration._journal import Journal
from calibration._journal_results import kept_fit
from calibration._optical import find_attenuators, find_generator
from calibration._outcome import Outcome
from calibration._run_file import RunFile
from calibration._session import Array, Progress, Session
from calibration._twin_fit import NoiseModel, Settings, fit_twin, residual_over_noise
from optinc_hw.bench import Bench, CalibrationRecord
from optinc_hw.photonics import TwinParameters
from optinc_hw.units import db_to_amplitude

TYPICAL_MZI_LOSS_DB = 0.15
TYPICAL_COUPLING_LOSS_DB = 1.0
SETTINGS_PER_SWEEP = 10
"""Random settings between two entries of the journal."""
TYPICAL_FIT_STEPS = 8
"""Steps that a fit is expected to take, for the display of progress."""


def run_homodyne(
    bench: Bench, journal: Journal, run: RunFile, counts: tuple[int, int], rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Calibrate the chip on a bench from measured data.

    Parameters
    ----------
    bench
        An open bench.
    journal
        Keeps and gives back what was measured.
    run
        Receives raw data.
    counts
        Random settings of the fit, and those that are held out.
    rng
        Source of the random settings.
    progress
        Told about every stage.
    """
    count, held_out = counts
    session = Session(bench, rng, progress, journal.step)
    noise, start = _start_up(session, run)
    train, judge = _measure(session, run, "train", count), _measure(session, run, "held_out", held_out)

    def on_step(step: int, _: float) -> None:
        session.progress("twin fit", step, max(step, TYPICAL_FIT_STEPS))

    fit = kept_fit(journal, train, start, noise, lambda: fit_twin(train, start, noise, on_step))
    residual = residual_over_noise(fit.parameters, judge, noise)
    return Outcome(
        fit.parameters, (session.resistance_ohm, session.beta_per_w), (fit.offset_sigma, fit.efficiency_sigma), noise,
        residual, fit.chi, held_out,
    )  # fmt: skip


def verify_homodyne(
    bench: Bench, record: CalibrationRecord, settings: int, rng: np.random.Generator, progress: Progress
) -> float:
    """Residual over noise of a record's predictions of fresh random settings."""
    twin = record.twin()
    session = Session(bench, rng, progress)
    session.resistance_ohm, session.beta_per_w = record.resistance_ohm, record.resistance_beta_per_w
    session.efficiency = twin.efficiency.copy()
    data = _random_settings(session, "verification", settings)
    return residual_over_noise(twin, data, NoiseModel(record.quality.noise_relative, record.quality.noise_floor_w))


def _start_up(session: Session, run: RunFile) -> tuple[NoiseModel, TwinParameters]:
    dark = _stage(session, run, "dark readings", measure_dark)
    # Raw data are kept before they are judged: those of a stage that fails tell why.
    use_resistances(session, _stage(session, run, "heater resistances", measure_resistances))
    lit = _stage(session, run, "noise", measure_noise)
    noise = noise_model(dark["dark_readings"], lit["noise_readings"])
    use_fringes(session, _stage(session, run, "phase curves", measure_fringes))
    _stage(session, run, "attenuators", find_attenuators)
    _stage(session, run, "input modulators", find_generator)
    found, raw = find_mesh(session, noise)
    run.add("mesh start", raw)
    return noise, _first_twin(session, found)


def _stage(
    session: Session, run: RunFile, name: str, measure: Callable[[Session], dict[str, Array]]
) -> dict[str, Array]:
    session.stage = name
    raw = measure(session)
    run.add(name, raw)
    return raw


def _first_twin(session: Session, mesh: MeshPorts) -> TwinParameters:
    """Start of the fit: phases from the stages, amplitudes from the start of the mesh, typical losses."""
    n, layout, known = session.layout.ports, session.layout, mesh.start.parameters
    lo = np.sqrt(np.maximum(mesh.lo_w[:n] + mesh.lo_w[n:], 1e-15))
    rows = np.sqrt(known.gain) / lo
    mzi, coupling = db_to_amplitude(TYPICAL_MZI_LOSS_DB), db_to_amplitude(TYPICAL_COUPLING_LOSS_DB)
    offset, efficiency = session.offset.copy(), session.efficiency.copy()
    offset[mesh.heaters], efficiency[mesh.heaters] = known.offset, known.efficiency
    # An open modulator or attenuator has the phase of exp(i pi) - 1, that is pi.
    drive = session.efficiency * session.power
    offset[layout.input_phi] = mesh.input_phase - np.pi
    offset[layout.output_phase] = mesh.output_phase - np.pi - drive[layout.output_phase]
    offset[layout.lo] = 0.0
    nominal = TwinParameters.nominal(n, input_amplitude=1.0, lo_amplitude=1.0)
    return replace(
        nominal, offset=offset, efficiency=efficiency, lo_amplitude=lo, dark_w=session.dark_w,
        mesh_eta=known.mesh_eta, mzi_transmission=np.full(len(layout.mesh.mzis), mzi),
        input_amplitude=known.input_amplitude * rows.mean() / (mzi**n * coupling),
        output_transmission=coupling * rows / rows.mean(),
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
