"""Fit of drifted phases from few readings: Gauss-Newton with the drift of single arms as prior.

Every arm drifts by itself, and arms without a heater are pushed along the light to heated ones: drifts of the twin's
phases are not independent.  With that in the prior half the readings suffice.  The descent is over a handful of
readings, so its normal equations are solved directly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from calibration._mesh_descent import Readings
from calibration._mesh_linear import MeshData, MeshPoint
from calibration._mesh_space import MeshSpace, PriorWidths
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, TwinParameters
from optinc_hw.photonics.arms import bare_arms

_FREE = ("offset", "efficiency", "common_efficiency", "output", "input")
_ARM_SIGMA = 0.3
"""Prior width in rad of the drift of an arm."""
_WIDTHS = PriorWidths(offset=2.0 * _ARM_SIGMA, efficiency=3e-3, common_efficiency=0.05, output=0.02, input=0.02)
_SHARES = (1.0, 0.5, 0.2, 0.0)
"""Shares of the present rms error of amplitudes added to the noise, one after the other."""
ROUGH_BELOW, _EXACT_BELOW = 15.0, 4.0
"""Chi below which the last share but one, and then the true noise, is taken at once."""
_SETTLED = 0.05
"""Relative fall of chi below which the next share is taken."""
_MOST_STEPS = 60
_DAMPING = (1e-2, 1e-4, 1e6)
"""Levenberg-Marquardt: first, least when it must grow, and largest."""
_STARTS = 12
_FOUND = 5.0
"""Chi of a fit that has found the phases; in wrong minima it is far larger, or the readings are too few to tell."""


@dataclass(frozen=True)
class DriftEnd:
    """Best vector of a drift fit in its space, its residual over noise, and the steps of all starts."""

    space: MeshSpace
    vector: Array
    chi: float
    steps: int

    @property
    def twin(self) -> TwinParameters:
        """The corrected twin."""
        return self.space.twin(self.vector)


def arm_effects(layout: ChipLayout) -> Array:
    """Phases (H, arms) that stand for a unit of phase on each arm, heated ones first."""
    return np.concatenate([np.eye(len(layout.heaters)), bare_arms(layout).effect], axis=1)


def fit_drift(
    record: TwinParameters, data: MeshData, noise: NoiseModel, on_step: Callable[[int, float], None]
) -> DriftEnd:
    """Find what has drifted, from up to `_STARTS` starts: half of the readings in another order, then all of them.

    Parameters
    ----------
    record
        The old twin.
    data
        Readings at random settings.
    noise
        Noise of a reading.
    on_step
        Told the number of the step and the present residual over noise.
    """
    count, rng = _Count(on_step), np.random.default_rng(0)
    whole, ends = _Problem(record, data, noise), []
    for start in range(_STARTS):
        order = rng.permutation(len(data)) if start else np.arange(len(data))
        half = _Problem(record, data.take(order[: max(1, len(data) // 2)]), noise)
        first = half.descend(np.zeros(half.size), count)
        ends.append(whole.descend(whole.of(half.space.twin(half.vector(first.unknowns))), count))
        if ends[-1].chi < _FOUND:
            break
    best = min(ends, key=lambda end: end.cost)
    return DriftEnd(whole.space, whole.vector(best.unknowns), best.chi, count.steps)


def refit_drift(end: DriftEnd, data: MeshData, noise: NoiseModel, on_step: Callable[[int, float], None]) -> DriftEnd:
    """Go on from the end of a fit with more readings."""
    problem, count = _Problem(end.space.start, data, noise), _Count(on_step, end.steps)
    best = problem.descend(problem.of(end.twin), count)
    return DriftEnd(problem.space, problem.vector(best.unknowns), best.chi, count.steps)


class _Count:
    """Counts steps and tells about them."""

    def __init__(self, on_step: Callable[[int, float], None], steps: int = 0) -> None:
        self._on_step, self.steps = on_step, steps

    def __call__(self, chi: float) -> None:
        self._on_step(self.steps, chi)
        self.steps += 1


@dataclass(frozen=True)
class _End:
    """End of a descent: unknowns, their residual over noise, and their cost at the true noise."""

    unknowns: Array
    chi: float
    cost: float


class _Problem:
    """Readings and unknowns; those are standard normal beforehand.

    Parameters
    ----------
    record
        The old twin.
    data, noise
        Readings and their noise.
    """

    def __init__(self, record: TwinParameters, data: MeshData, noise: NoiseModel) -> None:
        self.space = MeshSpace(record, data.power_w.mean(axis=0), _WIDTHS, _FREE, reach=0.0)
        self._readings = Readings(data, noise)
        places = [np.arange(self.space.size)[self.space.slices[block]] for block in _FREE]
        self._columns = np.concatenate(places)
        self.size, self._heaters = len(self._columns), len(record.offset)
        effects = arm_effects(record.layout)
        self._arms = _ARM_SIGMA * np.linalg.cholesky(effects @ effects.T)
        self._others = self.space.sigma[self._columns][self._heaters :]

    def vector(self, unknowns: Array) -> Array:
        """Return the flat vector (size of the space)."""
        vector = self.space.centre.copy()
        changes = [self._arms @ unknowns[: self._heaters], self._others * unknowns[self._heaters :]]
        vector[self._columns] += np.concatenate(changes)
        return vector

    def of(self, twin: TwinParameters) -> Array:
        """Return the unknowns of a twin that differs from the record in nothing else."""
        vector, place = self.space.vector(twin) - self.space.centre, self.space.slices
        common = vector[place["efficiency"]].mean()
        vector[place["efficiency"]] -= common
        vector[place["common_efficiency"]] = common
        change = vector[self._columns]
        offsets = np.linalg.solve(self._arms, change[: self._heaters])
        return np.concatenate([offsets, change[self._heaters :] / self._others])

    def descend(self, unknowns: Array, report: Callable[[float], None]) -> _End:
        """Return the best unknowns near a start."""
        readings, level, before, damping = self._readings, 0, np.inf, _DAMPING[0]
        point = readings.point(self.space, self.vector(unknowns))
        for _ in range(_MOST_STEPS):
            residual = readings.residual(point)
            chi = readings.chi(residual)
            if not np.isfinite(chi):
                raise CalibrationError("the drift fit diverges: predicted powers are not finite; check the record")
            report(chi)
            level += before - chi < _SETTLED * chi
            if chi < _EXACT_BELOW:
                level = max(level, len(_SHARES) - 1)
            elif chi < ROUGH_BELOW:
                level = max(level, len(_SHARES) - 2)
            if level == len(_SHARES):
                break
            before = chi
            moved = self._step(unknowns, point, readings.weight(residual, _SHARES[level]), damping)
            if moved is None:
                before, damping = -np.inf, _DAMPING[0]
                continue
            unknowns, point, damping = moved
        residual = readings.residual(point)
        cost = float(np.sum((residual / readings.sigma) ** 2) + unknowns @ unknowns)
        return _End(unknowns, readings.chi(residual), cost)

    def _step(
        self, unknowns: Array, point: MeshPoint, weight: Array, damping: float
    ) -> tuple[Array, MeshPoint, float] | None:
        """Return better unknowns, their point and the next damping, or None if there are none nearby."""
        rows = (point.dense_rows()[1][..., self._columns] * weight[..., None]).reshape(-1, self.size)
        rows[:, : self._heaters] = rows[:, : self._heaters] @ self._arms
        rows[:, self._heaters :] *= self._others
        residual = (self._readings.residual(point) * weight).ravel()
        gradient, normal = rows.T @ residual + unknowns, rows.T @ rows
        cost = residual @ residual + unknowns @ unknowns
        scale = np.diagonal(normal) + 1.0
        while damping < _DAMPING[2]:
            lifted = normal + np.diag(1.0 + damping * scale)
            trial = unknowns - cho_solve(cho_factor(lifted), gradient)
            there = self._readings.point(self.space, self.vector(trial))
            left = (self._readings.residual(there) * weight).ravel()
            if left @ left + trial @ trial < cost:
                return trial, there, 0.2 * damping
            damping = 4.0 * max(damping, _DAMPING[1])
        return None
