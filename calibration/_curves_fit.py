"""Least-squares fit of a heater's curve from a start, and costs of plain fringes of many periods."""

import numpy as np
from numpy.typing import NDArray

from calibration._curves_model import (
    EXPECTED_BEND,
    EXPECTED_SLOPE,
    Array,
    Projection,
    Scale,
    Sweep,
    Terms,
    bounded,
)

TYPICAL = Scale(noise=0.01, size=0.5)
"""Before anything is known: a fringe whose 10 % and 90 % levels are one unit apart, with noise of 2 %."""
_STEPS = 40
_SMALL_STEP, _SMALL_GAIN = 1e-9, 1e-3
_NOISE_ROUNDS, _NOISE_SETTLED = 5, 0.05


def fit_curve(best: Projection, limits: tuple[float, float]) -> Projection:
    """Fit with the noise and the fringe's size that the fit itself shows."""
    for _ in range(_NOISE_ROUNDS):
        before = best.noise
        scale = Scale(before, max(best.size, 1e-6))
        best = fit_shape(best.sweep, best.terms, best.shape, limits, scale)
        if abs(best.noise - before) < _NOISE_SETTLED * before:
            break
    return best


def fit_shape(
    sweep: Sweep, terms: Terms, start: Array, limits: tuple[float, float], scale: Scale, steps: int = _STEPS
) -> Projection:
    """Move the non-linear parameters to the lowest cost (Levenberg-Marquardt), with the phases within ``limits``."""
    best = Projection(sweep, terms, bounded(start, terms, limits), scale)
    damping = 1e-4
    for _ in range(steps):
        lever = np.maximum(np.linalg.norm(best.jacobian, axis=1), 1e-30)
        jacobian = best.jacobian / lever[:, None]
        normal, slope = jacobian @ jacobian.T, jacobian @ best.deviation()
        while True:
            step = np.linalg.solve(normal + damping * np.eye(len(start)), slope) / lever
            tried = Projection(sweep, terms, bounded(best.shape + step, terms, limits), scale)
            move = float(np.abs(tried.shape - best.shape).max()) / max(1.0, abs(best.shape[0]))
            if tried.cost <= best.cost or move < _SMALL_STEP:
                break
            damping = max(8.0 * damping, 1e-3)
        gain = best.cost - tried.cost
        if gain >= 0.0:
            best, damping = tried, damping * 0.1
        if gain < _SMALL_GAIN * scale.noise**2 or move < _SMALL_STEP:
            break
    return best


def grid_costs(sweep: Sweep, turns: Array, bend: float) -> Array:
    """Costs of fringes of each half-sweep phase ``turns``, whose phase bends by ``bend`` of it."""
    u = sweep.place
    held = TYPICAL.noise / (TYPICAL.size * np.array([1e3, EXPECTED_SLOPE, EXPECTED_BEND]))
    base = np.stack([np.ones_like(u), u, u**2], axis=1)
    angle = (u + bend * (u**2 - 1.0))[:, None] * turns
    cosine, sine = np.cos(angle), np.sin(angle)
    costs = np.zeros(len(turns))
    common = bool((sweep.used == sweep.used[:, :1]).all())
    for columns in [np.arange(sweep.used.shape[1])] if common else np.arange(sweep.used.shape[1])[:, None]:
        weight = sweep.used[:, columns[:1]].astype(np.float64)
        basis = np.linalg.qr(np.concatenate([weight * base, np.diag(held)]))[0][: len(u)]
        data = weight * sweep.readings[:, columns]
        free = data - basis @ (basis.T @ data)
        costs += np.sum(data * free) - _explained(weight * cosine, weight * sine, basis, free)
    return np.maximum(costs, 0.0)


def second_costs(best: Projection, turns: Array) -> Array:
    """Costs of the curve ``best`` with a second fringe of each half-sweep phase, its own shape unchanged."""
    angle = best.sweep.place[:, None] * turns
    cosine, sine = np.cos(angle), np.sin(angle)
    costs = np.full(len(turns), best.cost)
    rest = best.residual
    groups = [np.arange(rest.shape[1])] if len(best.basis) == 1 else np.arange(rest.shape[1])[:, None]
    for basis, columns in zip(best.basis, groups, strict=True):
        weight = best.sweep.used[:, columns[:1]].astype(np.float64)
        costs -= _explained(weight * cosine, weight * sine, basis, rest[:, columns])
    return costs


def _explained(cosine: Array, sine: Array, basis: Array, free: Array) -> Array:
    """Return by how much each pair of columns (points, turns) lowers the cost of what ``basis`` leaves."""
    inside_cosine, inside_sine = basis.T @ cosine, basis.T @ sine
    cc = np.sum(cosine**2, axis=0) - np.sum(inside_cosine**2, axis=0)
    ss = np.sum(sine**2, axis=0) - np.sum(inside_sine**2, axis=0)
    cs = np.sum(cosine * sine, axis=0) - np.sum(inside_cosine * inside_sine, axis=0)
    determinant = np.maximum(cc * ss - cs**2, 1e-9 * (cc + ss) ** 2 + 1e-30)
    by_cosine, by_sine = free.T @ cosine, free.T @ sine
    gains = ss * by_cosine**2 - 2.0 * cs * by_cosine * by_sine + cc * by_sine**2
    return np.asarray(np.sum(gains, axis=0) / determinant)


def local_minima(costs: Array) -> NDArray[np.intp]:
    """Places of local minima, the lowest first; the ends count."""
    padded = np.concatenate([[np.inf], costs, [np.inf]])
    found = np.flatnonzero((costs <= padded[:-2]) & (costs <= padded[2:]))
    return np.asarray(found[np.argsort(costs[found], kind="stable")])
