"""How uncertain the fitted curve of a sweep is: noise, usual deviations that it hides, a second fringe nobody sees."""

import numpy as np
from scipy.special import stdtrit

from calibration._curves_model import EXPECTED_BEND, NOISE_WEIGHT, Array, Projection

UNSEEN_SECOND = 0.05
"""Second fringe, relative to the first, that may be there without being seen."""
UNSEEN_SIGMAS = 5.0
"""A second fringe is seen if it stands out of the noise by so many standard deviations."""
_UNUSUAL = 2.0
"""Bend over the usual one, above which slope and bend may stand for something else."""
_ALIKE = np.pi  # half-sweep phases of two fringes that differ by less, a period over the sweep, count as one fringe
_STEP, _FASTEST, _MOST = np.pi / 4.0, 2.2, 120
_COVERED = 3.0
_TAIL, _NORMAL_TAIL = 0.9995, 3.29


def standard_deviations(best: Projection, detector: int, pattern: float, middle: float) -> tuple[float, float, float]:
    """Return those of the half-sweep phase, of its sagitta, and of the phase at zero power.

    Parameters
    ----------
    best
        The fitted curve.
    detector
        Whose phase at zero power is meant.
    pattern
        Factor on what noise does.
    middle
        Middle of the sweep over half of it.
    """
    by_noise, hidden = best.shape_covariances()
    noisy = pattern * student_factor(best.freedom + NOISE_WEIGHT)
    covariance = noisy**2 * by_noise + hidden
    linear, gradient, by_shape = _offset_gradients(best, detector, middle)
    offset = noisy**2 * gradient @ linear @ gradient + by_shape @ covariance @ by_shape
    unseen = _unseen_second(best, detector, gradient, by_shape)
    if best.terms.gain:
        # Another fringe of nearly the same period swells the first one, and turns its phase, by as much.
        unseen = np.hypot(unseen, abs(float(best.shape[2])))
    unseen /= _COVERED
    return (
        float(np.hypot(np.sqrt(covariance[0, 0]), unseen[0])),
        float(np.hypot(np.sqrt(covariance[1, 1]), unseen[1])),
        float(np.hypot(np.sqrt(offset), unseen[2])),
    )


def student_factor(freedom: float) -> float:
    """Return by how much wider than normal the 99.9 % interval is with few degrees of freedom."""
    return float(stdtrit(freedom, _TAIL)) / _NORMAL_TAIL


def _offset_gradients(best: Projection, detector: int, middle: float) -> tuple[Array, Array, Array]:
    """Covariance of linear parameters, and gradients by them and by ``shape`` of the phase at zero power."""
    linear, turned = best.linear_covariance(detector)
    cosine, sine = best.coefficients[3:5, detector]
    gradient = np.zeros(best.terms.columns)
    gradient[3:5] = np.array([sine, -cosine]) / (cosine**2 + sine**2)
    by_shape = gradient @ turned
    by_shape[0] -= middle
    by_shape[1] += middle**2 - 1.0
    return linear, gradient, by_shape


def _unseen_second(best: Projection, detector: int, gradient: Array, by_shape: Array) -> Array:
    """Return how far a second fringe of any period may move phase, sagitta and offset (3,) without being seen.

    In every detector it has the worst phase and `UNSEEN_SECOND` of the largest fringe, or as much as an unusual slope
    and bend, in whose place it may stand; or what would stand out by `UNSEEN_SIGMAS` if that is less.
    """
    first = float(best.shape[0])
    turns = np.arange(_STEP, _FASTEST * first + 2.0 * _ALIKE, max(_STEP, _FASTEST * first / _MOST))
    turns = turns[np.abs(turns - first) >= _ALIKE]
    angle = turns[:, None] * best.sweep.place
    waves = np.stack([np.cos(angle), np.sin(angle)], axis=2)  # (turns, points, 2)
    moved = np.zeros((len(turns), 3))
    for one in range(best.sweep.used.shape[1]):
        seen = best.sweep.used[:, one, None] * waves
        basis, lever = best.basis[min(one, len(best.basis) - 1)], best.lever(one)
        inside, shifts = basis.T @ seen, lever @ seen
        pull = shifts[:, :2]
        offset = by_shape @ shifts
        if one == detector:
            offset = offset + (gradient @ best.linear_response(one)) @ seen
        pull = np.concatenate([pull, offset[:, None]], axis=1)  # (turns, 3, 2)
        visible = seen.swapaxes(1, 2) @ seen - inside.swapaxes(1, 2) @ inside
        visible -= shifts.swapaxes(1, 2) @ best.stiffness() @ shifts
        most = max(UNSEEN_SECOND * best.size, _odd(best)) * np.linalg.norm(pull, axis=2)
        inverse = np.linalg.inv(visible + 1e-9 * len(best.sweep.place) * np.eye(2))
        hidden = np.sqrt(np.maximum(np.einsum("tia,tab,tib->ti", pull, inverse, pull), 0.0))
        moved += np.minimum(most, UNSEEN_SIGMAS * best.noise * hidden) ** 2
    return np.asarray(np.sqrt(moved.max(axis=0, initial=0.0)))


def _odd(best: Projection) -> float:
    """Return the largest slope and bend of a detector together, where they are unusual."""
    slope, bend = np.abs(best.coefficients[1:3])
    unusual = best.terms.background | (bend > _UNUSUAL * EXPECTED_BEND * best.size)
    return float(np.max((slope + bend) * unusual))
