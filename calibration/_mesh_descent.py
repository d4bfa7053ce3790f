"""Gauss-Newton descent of the mesh fit: one stage, from a vector to the best one nearby.

The noise of a reading is nearly a share of its power, so dark outputs count far more per change of the model than
bright ones, and conjugate gradients resolve such a system slowly.  What the model does not yet explain is an error of
field amplitudes, alike at all outputs: noise inflated by it evens the system out, and little of it makes the last
steps few.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._mesh_linear import MeshData, MeshPoint
from calibration._mesh_solve import NormalEquations, conjugate_gradients
from calibration._mesh_space import MeshSpace
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

_ROUGH_SHARES = (1.0, 1.0, 0.4)
"""Shares of the present rms error of amplitudes added to the noise in the first steps, then the last of them."""
_EXACT_SHARES = (0.7, 0.5, 0.3, 0.0)
"""The same on the way to the true noise."""
_SKIPPED_BELOW = (2.0, 1.5, 1.2)
"""Chi below which the first of these steps are not needed."""
_EXACT_BELOW = 15.0
"""Chi below which the noise is no longer inflated."""
_HALVINGS = 6
_PASSES = 3
_DARK = np.finfo(float).tiny
_ROUGH, _FINE = (0.07, 60), 0.03
"""Tolerance and most steps of the inner solver far from the true noise, and its tolerance near that."""
_ENOUGH = 1e-3
"""What the inner solver may leave of the cost, per reading."""


@dataclass(frozen=True)
class Effort:
    """How far a stage goes.

    Parameters
    ----------
    max_steps
        Most Gauss-Newton steps.
    exact
        Whether the stage ends with the true noise instead of one inflated by what the model does not yet explain.
    gain
        Relative fall of chi below which the stage has ended.
    products
        Most products with the matrix that a step near the true noise takes.
    """

    max_steps: int
    exact: bool
    gain: float
    products: int = 120


class Readings:
    """Data with noise, and which of them count.

    Parameters
    ----------
    data
        Readings; NaN do not count.
    noise
        Noise of a reading.
    counted
        Readings (B,) that count; None for all.
    """

    def __init__(self, data: MeshData, noise: NoiseModel, counted: NDArray[np.bool_] | None = None) -> None:
        self.data, self.noise = data, noise
        self.valid = np.isfinite(data.readings_w)
        if counted is not None:
            self.valid &= counted[:, None]
        self._readings = np.where(self.valid, data.readings_w, 0.0)
        self.sigma = noise.sigma(np.where(np.isfinite(data.readings_w), data.readings_w, 0.0))
        self.count = int(self.valid.sum())

    def point(self, space: MeshSpace, vector: Array) -> MeshPoint:
        """Return the model at a vector."""
        return MeshPoint(space, vector, self.data.power_w, self.data.lit)

    def residual(self, point: MeshPoint) -> Array:
        """Prediction less reading (B, n) in W; zero where a reading does not count."""
        return np.where(self.valid, point.predicted - self._readings, 0.0)

    def chi(self, residual: Array) -> float:
        """Rms residual over noise."""
        return float(np.sqrt(np.sum((residual / self.sigma) ** 2) / self.count))

    def weight(self, residual: Array, share: float) -> Array:
        """One over sigma (B, n), the noise inflated by a share of the rms error of field amplitudes."""
        if share == 0.0:
            return np.asarray(self.valid / self.sigma)
        power = np.maximum(self._readings, 0.0)
        square = np.sqrt(np.sum(residual**2) / self.count)
        for _ in range(_PASSES):
            square = np.sum(residual**2 / np.maximum(power + square, _DARK)) / self.count
        return np.asarray(self.valid / np.hypot(self.sigma, share * np.sqrt(square * (power + square))))


@dataclass(frozen=True)
class Descent:
    """End of a stage: best vector, its residual over noise, and accepted steps."""

    vector: Array
    chi: float
    steps: int


def descend(
    space: MeshSpace, readings: Readings, vector: Array, effort: Effort, on_step: Callable[[float], None]
) -> Descent:
    """Descend from a vector until chi stops falling.

    Parameters
    ----------
    space
        Meaning of the vector and the priors.
    readings
        What to fit.
    vector
        Start.
    effort
        How far to go.
    on_step
        Told chi before each step.

    Raises
    ------
    CalibrationError
        If the numbers overflow or the normal equations cannot be solved.
    """
    exact, steps, before, level = False, 0, np.inf, 0
    last = len(_EXACT_SHARES) - 1
    point = readings.point(space, vector)
    while True:
        residual = readings.residual(point)
        chi = readings.chi(residual)
        if not np.isfinite(chi):
            raise CalibrationError("the fit diverges: predicted powers are not finite; check the start and the units")
        on_step(chi)
        ended = before - chi < effort.gain * chi
        if steps == effort.max_steps or (ended and (level > last if exact else not effort.exact)):
            return Descent(vector, chi, steps)
        if effort.exact and not exact and (ended or chi < _EXACT_BELOW):
            exact, level = True, sum(chi < limit for limit in _SKIPPED_BELOW)
        before = chi
        share = _EXACT_SHARES[min(level, last)] if exact else _ROUGH_SHARES[min(steps, len(_ROUGH_SHARES) - 1)]
        inner = (_FINE, effort.products) if exact else _ROUGH
        moved = _step(space, readings, point, residual, readings.weight(residual, share), inner)
        if moved is None:
            if level >= last if exact else not effort.exact:
                return Descent(vector, chi, steps)
            before = np.inf
            level, exact = level + exact, True
            continue
        point, vector, steps, level = moved, moved.vector, steps + 1, level + exact


def _step(
    space: MeshSpace,
    readings: Readings,
    point: MeshPoint,
    residual: Array,
    weight: Array,
    inner: tuple[float, int],
) -> MeshPoint | None:
    """Return a point with a lower cost, or None if the step, however short, finds none."""
    equations = NormalEquations(space, point, weight, single=True)
    shift = point.vector - space.centre
    step, _ = conjugate_gradients(
        equations.multiply,
        equations.preconditioner(),
        equations.right_side(residual, shift),
        *inner,
        _ENOUGH * readings.count,
    )
    cost = _cost(space, residual * weight, shift)
    for halving in range(_HALVINGS):
        trial = readings.point(space, point.vector - 0.5**halving * step)
        if _cost(space, readings.residual(trial) * weight, trial.vector - space.centre) < cost:
            return trial
    return None


def _cost(space: MeshSpace, weighted: Array, shift: Array) -> float:
    return float(np.sum(weighted**2) + np.sum(space.precision * shift**2))
