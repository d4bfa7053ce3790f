"""The calibration of a bare mesh: a start, settings where the twin is least sure, global fits, and a judgement."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from calibration._active import choose_settings, random_candidates
from calibration._mesh_checks import checked_answer
from calibration._mesh_fit import MeshFit, fit_mesh, predict, refit, residual_over_noise_of
from calibration._mesh_linear import MeshData
from calibration._mesh_shares import share_distances
from calibration._mesh_space import BLOCKS, MeshSpace, PriorWidths
from calibration._posterior import MeshPosterior
from calibration._probe import Ports, Probe
from calibration._session import Array, Progress
from calibration._start import Start, find_start
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

_log = logging.getLogger(__name__)

READINGS_PER_HEATER, LEAST_BUDGET = 15, 300
"""Default budget: by heaters, and at least what another try of a small mesh's start and a search for damage take."""
STARTS = 3
"""Most tries of a start."""
POOR_START = 0.28
"""Total variation distance of a start's own check above which it is tried again; fits mend smaller errors."""
NEAR = 0.2
"""Total variation distance of a start's own check up to which fits need no coarse stages."""
BATCHES = (0.25, 0.6, 1.0)
"""Share of the random settings that is measured by each fit: later batches are chosen with a better twin."""
SMALL, MANY_SAMPLES, FEW_SAMPLES = 8, 12, 3
"""Posterior samples of meshes up to a small number of ports, and of larger ones."""
LARGE, LARGE_PRODUCTS = 24, 60
"""Ports beyond which one posterior sample has to do, and products that it may take."""
CANDIDATES, SAMPLES_PER_PORT = 3, 2
"""Random settings from which each one is chosen, and posterior samples that say how unsure the twin is of them."""
MOST_PORTS_IN_BATCHES = 8
"""Larger meshes are fitted once all readings are there: choosing settings gains them less than the fits take."""
POWER_SHARE = 0.8
"""Part of the chip's total power limit that random settings may use."""
TYPICAL_STEPS = 40
"""Steps that a fit is expected to take, for the display of progress."""

Arrays = Mapping[str, Any]  # Any: what numpy makes an array of
Keep = Callable[[str, Arrays, Callable[[], Arrays]], Mapping[str, Any]]
"""Returns the stored outcome of a long computation (stage, inputs), or computes and stores it: `Journal.result`."""


@dataclass(frozen=True)
class MeshCalibration:
    """What a calibration of a bare mesh found.

    Parameters
    ----------
    fit
        The twin, from all readings.
    start
        Where the fits began, with a verdict on every heater.
    noise
        Noise of a reading.
    data
        All readings of the fit, the held-out ones included.
    residual_over_noise, tvd
        How well a twin from all but the held-out readings predicted those: rms over noise, and mean total variation
        distance of the outputs' shares.
    expected_residual
        What ``residual_over_noise`` would be on a chip that does nothing but what the model knows.
    sigmas
        Standard deviations (H,) of the phases at mean power in rad, and of the efficiencies in rad/W.
    """

    fit: MeshFit
    start: Start
    noise: NoiseModel
    data: MeshData
    residual_over_noise: float
    tvd: float
    expected_residual: float
    sigmas: tuple[Array, Array]


def calibrate_mesh(
    probe: Probe, noise: NoiseModel, rng: np.random.Generator, *, budget: int, held_out: int, keep: Keep,
    progress: Progress,
) -> MeshCalibration:  # fmt: skip
    """Calibrate a bare mesh from output powers.

    Parameters
    ----------
    probe
        The chip.
    noise
        Noise of a reading.
    rng
        Source of all random settings.
    budget
        Readings that may be taken, counted from ``probe.readings`` = 0.
    held_out
        Readings of these that judge the fit before they join it.
    keep
        Stores what fits find.
    progress
        Told about every stage.

    Raises
    ------
    CalibrationError
        If the start fails, the budget does not leave room for random settings, or a fit diverges.
    """
    start = find_good_start(probe, rng, noise, budget - held_out, progress)
    _mention(start)
    room = budget - probe.readings - held_out
    heaters = len(probe.layout.heaters)
    if room < heaters // probe.layout.ports:
        raise CalibrationError(
            f"the start took {probe.readings} readings and {held_out} are held out; a budget of {budget} leaves {room} "
            f"random settings for the fit. Allow at least {budget - room + heaters // probe.layout.ports}, better "
            f"{budget - room + READINGS_PER_HEATER * heaters}"
            + (f"; and the start is in doubt: {start.doubt}" if start.doubt else "")
        )
    judges = measure(probe, *_random(probe, start.parameters, rng, held_out), "held-out settings", progress)
    batches = BATCHES if probe.layout.ports <= MOST_PORTS_IN_BATCHES else (1.0,)
    first, *more = np.diff(np.round(np.array([0.0, *batches]) * room).astype(int)).tolist()
    data = start.data.joined(measure_random(probe, start.parameters, rng, "random settings", first, progress))
    fit = _kept(keep, data, start, noise, None, 1, progress)
    for count in filter(None, more):
        settings = _telling(probe, fit, data, noise, rng, count)
        data = data.joined(measure(probe, *settings, "random settings", progress))
        fit = _kept(keep, data, start, noise, fit, 1, progress)
    residual = residual_over_noise_of(fit.parameters, judges, noise)
    tvd = total_variation_of(fit.parameters, judges, noise)
    posterior = MeshPosterior(fit, data, noise)
    samples = _samples(posterior, probe.layout.ports, rng)
    expected = posterior.expected_residual(samples, judges.power_w, judges.lit)
    data = data.joined(judges)
    fit = _kept(keep, data, start, noise, fit, 0, progress)
    return MeshCalibration(fit, start, noise, data, residual, tvd, expected, posterior.heater_sigmas(samples))


def find_good_start(
    probe: Probe, rng: np.random.Generator, noise: NoiseModel, most: int, progress: Progress
) -> Start:  # fmt: skip
    """Find a start; one that fails or predicts poorly is tried again with other settings while readings last.

    Raises
    ------
    CalibrationError
        If no try ends well enough to go on from.
    """
    found: list[Start] = []
    for tried in range(1, STARTS + 1):
        before = probe.readings
        try:
            found.append(find_start(probe, rng, noise, progress))
            why = found[-1].doubt if found[-1].check_tvd > POOR_START else ""
        except CalibrationError as error:
            why = str(error)
            if not found and (tried == STARTS or not _room_again(probe, before, most)):
                raise
        if not why or tried == STARTS or not _room_again(probe, before, most):
            break
        _log.warning("the start is tried again with other settings: %s", why)
    best = min(found, key=lambda start: (bool(start.doubt), start.check_tvd))
    others = [start.data for start in found if start is not best]
    return replace(best, data=reduce(MeshData.joined, others, best.data))


def _room_again(probe: Probe, before: int, most: int) -> bool:
    """Whether readings last for another start like that since ``before``, and some random settings."""
    random = len(probe.layout.heaters) // probe.layout.ports
    return 2 * probe.readings - before + random <= most


def _mention(start: Start) -> None:
    """Say in the log what the start does not know."""
    unknown = [f"{verdict.heater} ({verdict.reason})" for verdict in start.verdicts if not verdict.good]
    for what, found in (
        ("heaters whose phases are not known yet", unknown),
        ("detectors that show no light", list(start.dead_detectors)),
        ("the start as a whole", [start.doubt] if start.doubt else []),
    ):
        if found:
            _log.warning("%s: %s; the fit goes on with all other readings", what, "; ".join(found))


def measure_random(
    probe: Probe, known: TwinParameters, rng: np.random.Generator, stage: str, count: int, progress: Progress
) -> MeshData:
    """Measure random settings: every phase over one period, all ports lit equally often."""
    return measure(probe, *_random(probe, known, rng, count), stage, progress)


def measure(probe: Probe, power_w: Array, lit: Ports, stage: str, progress: Progress) -> MeshData:
    """Measure settings in sweeps of as many as there are ports."""
    ports, rows = probe.layout.ports, []
    for first in range(0, len(lit), ports):
        part = slice(first, first + ports)
        answer = probe.measure(stage, power_w[part], lit[part])
        rows.append(checked_answer(answer, len(lit[part]), ports, stage))
        progress(stage, min(first + ports, len(lit)), len(lit))
    return MeshData(power_w, lit, np.concatenate([np.empty((0, ports)), *rows]))


def _random(probe: Probe, known: TwinParameters, rng: np.random.Generator, count: int) -> tuple[Array, Ports]:
    period = np.minimum(2.0 * np.pi / known.efficiency, probe.max_power_w) * known.layout.movable
    return random_candidates(count, known.ports, period, POWER_SHARE * probe.max_total_power_w, rng)


def _telling(
    probe: Probe, fit: MeshFit, data: MeshData, noise: NoiseModel, rng: np.random.Generator, count: int
) -> tuple[Array, Ports]:
    """Choose the settings that will tell most among several times as many."""
    posterior = MeshPosterior(fit, data, noise)
    samples = posterior.samples(SAMPLES_PER_PORT * fit.parameters.ports, rng)
    power_w, lit = _random(probe, fit.parameters, rng, CANDIDATES * count)
    chosen = choose_settings(posterior, noise, power_w, lit, count, samples).chosen
    return power_w[chosen], lit[chosen]


def total_variation_of(parameters: TwinParameters, data: MeshData, noise: NoiseModel) -> float:
    """Mean total variation distance between predicted and measured shares of the outputs.

    NaN readings are left out, and so are settings whose lit port brings no light.

    Raises
    ------
    CalibrationError
        As `share_distances`.
    """
    predicted = predict(parameters, data.power_w, data.lit)
    return float(share_distances(predicted, np.maximum(data.readings_w, 0.0), noise).mean())


def _samples(posterior: MeshPosterior, ports: int, rng: np.random.Generator) -> Array:
    if ports > LARGE:
        return posterior.samples(1, rng, LARGE_PRODUCTS)
    return posterior.samples(MANY_SAMPLES if ports <= SMALL else FEW_SAMPLES, rng)


def _kept(
    keep: Keep, data: MeshData, start: Start, noise: NoiseModel, before: MeshFit | None, rounds: int,
    progress: Progress,
) -> MeshFit:  # fmt: skip
    """Fit all readings so far, from the start or on from the fit before; learn the prior widths in so many rounds."""
    begin = start.warmed if start.check_tvd <= NEAR else None

    def on_step(step: int, chi: float) -> None:
        del chi
        progress("twin fit", step, max(step, TYPICAL_STEPS))

    def compute() -> Arrays:
        if before is None:
            found = fit_mesh(data, start.parameters, noise, on_step, rounds=rounds, begin=begin)
        else:
            found = refit(before, data, noise, on_step, rounds)
        return {
            "vector": found.vector, "reference_power_w": found.space.reference_power_w, "spoilt": found.spoilt,
            "widths": np.array(astuple(found.space.widths)), "chi": np.array(found.chi),
            "steps": np.array(found.steps), "reach": np.array(found.space.reach),
        }  # fmt: skip

    inputs = {
        "power_w": data.power_w, "lit": data.lit, "readings_w": data.readings_w, "offset": start.parameters.offset,
        "noise": np.array([noise.relative, noise.floor_w]), "rounds": np.array(rounds),
        "vector": np.empty(0) if before is None else before.vector,
        "begin": np.empty(0) if begin is None else begin.offset,
    }  # fmt: skip
    found = keep("mesh fit", inputs, compute)
    widths = PriorWidths(*(float(value) for value in found["widths"]))
    space = MeshSpace(start.parameters, found["reference_power_w"], widths, BLOCKS, float(found["reach"]))
    return MeshFit(
        space.twin(found["vector"]), float(found["chi"]), int(found["steps"]), found["spoilt"], space,
        found["vector"],
    )  # fmt: skip
