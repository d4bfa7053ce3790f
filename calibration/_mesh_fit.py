"""Global fit of a bare mesh to powers: maximum a posteriori, from a rough start to the noise of the readings.

Stages: offsets and port transmissions alone; then what elements share, from several mean coupler angles; then all
parameters with a noise inflated by what the model does not yet explain; then all with the true noise, while the
widths of the priors are learned.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from calibration._checks import require_whole
from calibration._mesh_checks import checked_settings, require_data, require_one_of, require_valid
from calibration._mesh_descent import Descent, Effort, Readings, descend
from calibration._mesh_linear import MeshData, MeshPoint
from calibration._mesh_solve import NormalEquations
from calibration._mesh_space import BLOCKS, MeshSpace, PriorWidths
from calibration._mesh_widths import learn_widths
from calibration._session import Array
from calibration._twin_fit import NoiseModel, _one_thread
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

_OFFSETS = ("offset", "output", "input")
_SHARED = (*_OFFSETS, "efficiency", "common_efficiency", "common_eta", "common_loss")
_ETA_STARTS = (0.0, 0.06, -0.06)
_COARSE, _SHARED_EFFORT = Effort(5, False, 0.03), Effort(4, False, 0.03)
_ALL, _MORE, _EXACT = Effort(12, False, 0.2), Effort(4, False, 0.2), Effort(6, True, 0.06)
_ASTRAY = 0.03
"""Share of light at wrong outputs above which a fit has not found its way."""
_FEW_PER_PORT = 50
"""Readings per port that the coarse stages look at."""
_SPOILT = 12.0
"""A reading whose residual over noise is this much more than the median one's may be spoilt by a fault."""
_GROSS, _GROSS_SHARE = 10.0, 0.006
"""A grossly wrong reading misses this many times the median share of its power, and of this share."""
_LARGE, _LARGE_EXACT = 24, Effort(2, True, 0.06, 80)
"""Ports beyond which products are dear, and readings too few to resolve what further ones would."""
_SAMPLE, _LARGE_SAMPLE = (0.03, 150), (0.03, 60)


@dataclass(frozen=True)
class MeshFit:
    """Result of a fit.

    Parameters
    ----------
    parameters
        The fitted twin.
    chi
        Rms residual over noise on the readings of the fit that count; below 1 where the priors leave freedom.
    steps
        Gauss-Newton steps.
    spoilt
        Indices of readings that fit nothing and were left out.
    space, vector
        The fit's parameter space with the learned prior widths, and the best vector in it.
    """

    parameters: TwinParameters
    chi: float
    steps: int
    spoilt: NDArray[np.intp]
    space: MeshSpace
    vector: Array

    @property
    def widths(self) -> PriorWidths:
        """Prior widths learned."""
        return self.space.widths


def predict(parameters: TwinParameters, power_w: Array, lit: NDArray[np.intp]) -> Array:
    """Predict the readings (B, n) in W, without dark readings, at heater powers (B, H) in W and lit ports (B,).

    Raises
    ------
    CalibrationError
        If the twin is of no bare mesh, powers or lit ports are none of its chip's, or the prediction is not finite.
    """
    power_w, lit = checked_settings(power_w, lit, parameters.layout)
    if not len(lit):
        return np.empty((0, parameters.ports))
    space = MeshSpace(parameters, np.zeros(len(parameters.offset)), PriorWidths(), reach=0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = MeshPoint(space, space.centre, power_w, lit).predicted
    bad = np.flatnonzero(~np.isfinite(predicted).all(axis=1))
    if len(bad):
        raise CalibrationError(
            f"the twin predicts powers that are not finite in row {bad[0]} ({len(bad)} of {len(lit)} rows); check its "
            f"parameters, and the powers there, up to {power_w[bad[0]].max():.3g} W"
        )
    return predicted


def residual_over_noise_of(parameters: TwinParameters, data: MeshData, noise: NoiseModel) -> float:
    """Rms of (prediction - reading) / sigma over all valid readings; 1 is perfect.

    Raises
    ------
    CalibrationError
        As `predict`, or if the readings are none of the chip's, or none is valid.
    """
    require_data(data, parameters.layout)
    require_valid(data.readings_w, 1, "judge a twin")
    readings = Readings(data, noise)
    residual = np.where(readings.valid, predict(parameters, data.power_w, data.lit) - data.readings_w, 0.0)
    return readings.chi(residual)


def fit_mesh(
    data: MeshData,
    start: TwinParameters,
    noise: NoiseModel,
    on_step: Callable[[int, float], None],
    *,
    free: Collection[str] = BLOCKS,
    widths: PriorWidths | None = None,
    rounds: int = 2,
    reach: float = 10.0,
    seed: int = 0,
    begin: TwinParameters | None = None,
) -> MeshFit:
    """Fit the twin of a bare mesh to output powers, one lit port a reading.

    Parameters
    ----------
    data
        All readings: sweeps and random settings.  Dark readings are subtracted.
    start
        Where to begin and the centre of the priors; internal phases right to about 0.3 rad.
    noise
        Noise of a reading.
    on_step
        Told the number of the step and the present residual over noise.
    free
        Blocks of parameters that are fitted (see `BLOCKS`).
    widths
        Prior widths to begin with; None means `PriorWidths`' own.
    rounds
        How often prior widths are learned, each time followed by a fit; 0 keeps those to begin with.
    reach
        Distance in pitches up to which single heat paths are fitted.
    seed
        Of the posterior samples from which widths are learned.
    begin
        A twin that knows phases and mean crosstalk so well that all parameters may be fitted at once. If that does not
        explain the readings, or without it, the fit begins with coarse stages.

    Returns
    -------
    MeshFit
        The twin and how well it explains the readings.

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, the data are none of its, the readings are fewer than the phases, another argument
        is none of those above, or the fit diverges.
    """
    _check(data, start)
    blocks = require_one_of(free, BLOCKS, "free")
    _check_numbers(rounds, reach, seed)
    if begin is not None and begin.layout != start.layout:
        raise CalibrationError(
            f"begin is a twin of a chip of {begin.ports} ports and start one of {start.ports}, with other MZIs or "
            "other stuck heaters; give two twins of the chip that was measured"
        )
    with _one_thread():
        return _Fitter(data, start, noise, on_step, blocks).run(widths or PriorWidths(), rounds, reach, seed, begin)


def refit(
    fit: MeshFit, data: MeshData, noise: NoiseModel, on_step: Callable[[int, float], None], rounds: int = 1
) -> MeshFit:
    """Continue a fit with more readings: no coarse stages, learned widths kept and learned on.

    Parameters
    ----------
    fit
        The fit so far.
    data
        All readings, old and new.
    noise, on_step, rounds
        As for `fit_mesh`.

    Raises
    ------
    CalibrationError
        As `fit_mesh`.
    """
    _check(data, fit.space.start)
    require_whole("rounds", rounds, 0)
    with _one_thread():
        fitter = _Fitter(data, fit.space.start, noise, on_step, fit.space.free)
        return fitter.resume(fit, rounds)


def readings_of(fit: MeshFit, data: MeshData, noise: NoiseModel) -> Readings:
    """Return the readings of a fit, those that it left out as spoilt not counted.

    Raises
    ------
    CalibrationError
        If the data are of another chip, none is valid, or they are fewer than the fit has seen.
    """
    require_data(data, fit.space.start.layout)
    require_valid(data.readings_w, 1, "say anything of a fit")
    if fit.spoilt.size and fit.spoilt.max() >= len(data):
        raise CalibrationError(
            f"the fit left out reading {fit.spoilt.max()}, and the data have {len(data)} rows; give the data of that "
            "fit"
        )
    counted = np.ones(len(data), dtype=np.bool_)
    counted[fit.spoilt] = False
    return Readings(data, noise, counted)


def _check(data: MeshData, start: TwinParameters) -> None:
    require_data(data, start.layout)
    phases = len(start.layout.heaters)
    require_valid(data.readings_w, phases, f"determine {phases} phases")


def _check_numbers(rounds: int, reach: float, seed: int) -> None:
    require_whole("rounds", rounds, 0)
    require_whole("seed", seed, 0)
    if isinstance(reach, bool) or not isinstance(reach, Real) or not 0.0 <= float(reach) < np.inf:
        raise CalibrationError(f"reach must be a finite distance of 0 pitches or more, got {reach!r}; 10 is usual")


class _Fitter:
    """One fit: data, start and the count of steps."""

    def __init__(
        self,
        data: MeshData,
        start: TwinParameters,
        noise: NoiseModel,
        on_step: Callable[[int, float], None],
        free: frozenset[str],
    ) -> None:
        self._data, self._start, self._noise, self._free = data, start, noise, free
        self._on_step, self._steps = on_step, 0
        self._readings = Readings(data, noise)
        self._spoilt = np.zeros(len(data), dtype=np.bool_)
        self._large = start.ports > _LARGE

    def run(self, widths: PriorWidths, rounds: int, reach: float, seed: int, begin: TwinParameters | None) -> MeshFit:
        """Fit from the rough start, or from a twin that is near."""
        space = MeshSpace(self._start, self._data.power_w.mean(axis=0), widths, self._free, reach)
        rng, ends = np.random.default_rng(seed), list[Descent]()
        if begin is not None:
            ends.append(self._descend(space, space.vector(begin), _ALL))
        if not ends or self._astray(space, ends[0].vector) > _ASTRAY:
            ends.append(self._descend(space, self._coarse(space, rng), _ALL))
        vector = min(ends, key=lambda end: end.chi).vector
        self._leave_out(space, vector)
        return self.finish(space, vector, rounds, rng)

    def _astray(self, space: MeshSpace, vector: Array) -> float:
        """Return the share of all light that is predicted at wrong outputs."""
        residual = self._readings.residual(self._readings.point(space, vector))
        return float(0.5 * np.abs(residual).sum() / np.nansum(self._data.readings_w))

    def finish(self, space: MeshSpace, vector: Array, rounds: int, rng: np.random.Generator) -> MeshFit:
        """Fit with the true noise and learn the widths."""
        effort = _LARGE_EXACT if self._large else _EXACT
        for _ in range(rounds):
            space = space.with_widths(learn_widths(space, vector, self._deviations(space, vector, rng)))
            end = self._descend(space, vector, effort)
            vector = end.vector
        if not rounds or self._leave_out(space, vector, exact=True):
            end = self._descend(space, vector, effort)
        return MeshFit(space.twin(end.vector), end.chi, self._steps, np.flatnonzero(self._spoilt), space, end.vector)

    def resume(self, fit: MeshFit, rounds: int) -> MeshFit:
        """Fit from the end of another fit."""
        vector = self._descend(fit.space, fit.vector, _MORE).vector if rounds else fit.vector
        self._leave_out(fit.space, vector)
        return self.finish(fit.space, vector, rounds, np.random.default_rng(0))

    def _coarse(self, space: MeshSpace, rng: np.random.Generator) -> Array:
        """Offsets, then what elements share, on part of the readings."""
        few = min(len(self._data), _FEW_PER_PORT * space.start.ports)
        part = np.sort(rng.permutation(len(self._data))[:few])
        readings = Readings(self._data.take(part), self._noise)
        vector = self._descend(space.with_free(self._free & {*_OFFSETS}), space.centre, _COARSE, readings).vector
        shared = space.with_free(self._free & {*_SHARED})
        ends = []
        for mean in _ETA_STARTS if "common_eta" in self._free else (0.0,):
            begin = vector.copy()
            begin[space.slices["common_eta"]] = mean
            ends.append(self._descend(shared, begin, _SHARED_EFFORT, readings))
        return min(ends, key=lambda end: end.chi).vector

    def _descend(self, space: MeshSpace, vector: Array, effort: Effort, readings: Readings | None = None) -> Descent:
        def report(chi: float) -> None:
            self._on_step(self._steps, chi)
            self._steps += 1

        return descend(space, self._readings if readings is None else readings, vector, effort, report)

    def _deviations(self, space: MeshSpace, vector: Array, rng: np.random.Generator) -> Array:
        """One posterior sample less its mean (1, size), from perturbed data and priors."""
        readings = self._readings
        point = readings.point(space, vector)
        weight = readings.weight(readings.residual(point), 0.0)
        equations = NormalEquations(space, point, weight, single=True)
        return equations.sample(equations.preconditioner(), rng, *(_LARGE_SAMPLE if self._large else _SAMPLE))[None]

    def _leave_out(self, space: MeshSpace, vector: Array, *, exact: bool = False) -> bool:
        """Leave out readings that a fault has spoilt and say whether these are others than before.

        As long as the model is still poor, only gross faults can be told from it; what does not fit in although it
        counts with its true noise is a fault too.
        """
        every = Readings(self._data, self._noise)
        residual = every.residual(every.point(space, vector))
        chi = np.sqrt(np.sum((residual / every.sigma) ** 2, axis=1) / np.maximum(every.valid.sum(axis=1), 1))
        total = np.maximum(np.sum(np.nan_to_num(self._data.readings_w), axis=1), np.finfo(float).tiny)
        share = np.abs(residual).sum(axis=1) / total
        far = chi > _SPOILT * max(1.0, float(np.median(chi)))
        gross = share > _GROSS * max(_GROSS_SHARE, float(np.median(share)))
        spoilt = far if exact else far & gross
        changed = bool(np.any(spoilt != self._spoilt))
        self._spoilt = spoilt
        self._readings = Readings(self._data, self._noise, ~spoilt)
        return changed
