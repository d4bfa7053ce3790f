"""Gauss-Newton descent of the mesh fit: one stage, from a vector to the best one nearby."""

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

_SHARES = (1.0, 1.0, 0.4)
"""Shares of the present rms residual added to the noise in the first steps of a stage, then the last of them."""
_EXACT_BELOW = 15.0
"""Chi below which the noise is no longer inflated."""
_HALVINGS = 6
_ROUGH, _FINE = (1e-2, 60), (1e-3, 600)
"""Tolerance and most steps of the inner solver, with inflated and with true noise."""


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
    """

    max_steps: int
    exact: bool
    gain: float


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
        self.sigma = noise.sigma(np.nan_to_num(data.readings_w))
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
        """One over sigma (B, n), the noise inflated by a share of the rms residual."""
        unexplained = share * np.sqrt(np.sum(residual**2) / self.count)
        return np.asarray(self.valid / np.hypot(self.sigma, unexplained))


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
    exact, steps, before = False, 0, np.inf
    point = readings.point(space, vector)
    while True:
        residual = readings.residual(point)
        chi = readings.chi(residual)
        if not np.isfinite(chi):
            raise CalibrationError("the fit diverges: predicted powers are not finite; check the start and the units")
        on_step(chi)
        ended = before - chi < effort.gain * chi or steps == effort.max_steps
        if ended and (exact or not effort.exact or steps == effort.max_steps):
            return Descent(vector, chi, steps)
        exact = exact or (effort.exact and (ended or chi < _EXACT_BELOW))
        before = chi
        share = 0.0 if exact else _SHARES[min(steps, len(_SHARES) - 1)]
        moved = _step(space, readings, point, residual, readings.weight(residual, share), exact)
        if moved is None:
            if exact or not effort.exact:
                return Descent(vector, chi, steps)
            exact = True
            continue
        point, vector, steps = moved, moved.vector, steps + 1


def _step(
    space: MeshSpace, readings: Readings, point: MeshPoint, residual: Array, weight: Array, exact: bool
) -> MeshPoint | None:
    """Return a point with a lower cost, or None if the step, however short, finds none."""
    equations = NormalEquations(space, point, weight)
    shift = point.vector - space.centre
    tolerance, most = _FINE if exact else _ROUGH
    step, _ = conjugate_gradients(
        equations.multiply, equations.preconditioner(), equations.right_side(residual, shift), tolerance, most
    )
    cost = _cost(space, residual * weight, shift)
    for halving in range(_HALVINGS):
        trial = readings.point(space, point.vector - 0.5**halving * step)
        if _cost(space, readings.residual(trial) * weight, trial.vector - space.centre) < cost:
            return trial
    return None


def _cost(space: MeshSpace, weighted: Array, shift: Array) -> float:
    return float(np.sum(weighted**2) + np.sum(space.precision * shift**2))
