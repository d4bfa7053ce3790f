"""What the currents of single heaters tell of the others': fits behind `calibration.fit_common_ground`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from calibration._resistance import Array, current_and_slopes

FOUND_SIGMA = 6.0
"""A ground resistance counts as found from so many standard deviations."""
PARAMETERS = 5
"""Parameters of a heater in a group: its law R0 (1 + beta P), offset of its current, ground return, others' heat."""
Groups = NDArray[np.intp]
_ALONE = 3
_STEPS, _CONVERGED = 60, 0.01
_SURE = 0.99865
_RESOLVED = 1e-3
"""Least part of a parameter's effect that no other parameter has: with less, the fit need not end at the truth."""
_ROUNDING, _UNRESOLVED, _UNKNOWN = 1e-14, 1e-12, 1e15
_LEAST_VARIANCE = 1e-24


@dataclass(frozen=True)
class HeaterFit:
    """Fit of one heater: R0, beta, offset, ground resistance, heating; their variances; weights of its readings."""

    values: Array
    variance: Array
    slope: Array
    residual: Array
    basis: Array


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def fit_heater(voltage: Array, current: Array, others: tuple[Array, Array] | None) -> HeaterFit | None:
    """Gauss-Newton fit of one heater's currents (settings,); None if they follow no law at all.

    ``others`` are the sums (settings,) of the currents and powers of its group's other heaters; without them only its
    own law and the offset are fitted.
    """
    driven = (voltage > 0.2 * voltage.max()) & (current > 0.0)
    start = float(np.median(voltage[driven] / current[driven])) if driven.any() else np.nan
    values = np.array([start, 0.0, 0.0, 0.0, 0.0])
    count = PARAMETERS if others is not None else _ALONE
    sums = others if others is not None else (np.zeros_like(voltage),) * 2
    step, sigma = np.full(PARAMETERS, np.inf), np.zeros(PARAMETERS)
    for _ in range(_STEPS):
        predicted, jacobian, slope = _predicted(values, voltage, current, *sums)
        if not (np.isfinite(jacobian).all() and np.isfinite(predicted).all()):
            return None
        residual = current - predicted
        size = np.linalg.norm(jacobian[:, :count], axis=0)
        inverse, root, basis = _least_squares(jacobian[:, :count], size)
        spread = np.linalg.norm(root, axis=1)
        sigma[:count] = np.sqrt(_noise(residual, current, count)) * spread
        if (np.abs(step) <= _CONVERGED * sigma).all():
            break
        step = np.append(inverse @ residual, np.zeros(PARAMETERS - count))
        step *= min(1.0, 0.5 * values[0] / max(abs(float(step[0])), 1e-300))
        values = values + step
    # A last step that is not small says how far the fit may be from its end.
    variance = sigma**2 + step**2 + _LEAST_VARIANCE
    variance[:count][size * spread * _RESOLVED > 1.0] = np.inf
    return HeaterFit(values, variance, slope, residual, basis)


def _noise(residual: Array, current: Array, parameters: int) -> float:
    """Variance of a reading in A^2 as residuals show it; not below rounding."""
    variance = float(residual @ residual) / max(len(residual) - parameters, 1)
    return variance + (_ROUNDING * float(np.abs(current).max())) ** 2


def _least_squares(columns: Array, scale: Array) -> tuple[Array, Array, Array]:
    """Return the pseudoinverse (n, points), a root (n, n) of the covariance for unit noise, and a basis (points, k).

    What the columns do not resolve, measured by ``scale`` (n,), is left at 0 and stands in the covariance as unknown.
    """
    size = np.where(scale > 0.0, scale, 1.0)
    basis, values, turned = np.linalg.svd(columns / size, full_matrices=False)
    strong = values > _UNRESOLVED
    inverse = 1.0 / np.where(strong, values, 1.0)
    turned = turned.T / size[:, None]
    return (
        (turned * np.where(strong, inverse, 0.0)) @ basis.T,
        turned * np.where(strong, inverse, _UNKNOWN),
        basis[:, strong],
    )


def _predicted(
    values: Array, voltage: Array, current: Array, others_a: Array, others_w: Array
) -> tuple[Array, Array, Array]:
    """Return currents, derivatives (settings, 5) by the parameters, and the slope of current against voltage."""
    r0, beta, offset, ground, heating = values
    across = voltage - ground * (others_a + current - offset)
    own, by_law, slope = current_and_slopes(np.array([r0, beta]), across)
    warm = 1.0 - heating * others_w
    lifted = -slope * warm * (others_a + current - offset)
    jacobian = np.stack([by_law[:, 0] * warm, by_law[:, 1] * warm, np.ones_like(own), lifted, -own * others_w], axis=1)
    return own * warm + offset, jacobian, slope * warm


@dataclass(frozen=True)
class Mutual:
    """What all currents tell of returns that any two heaters share.

    Parameters
    ----------
    groups
        Group (H,) of each heater.
    lifts
        Share (H,) of each heater's largest voltage by which returns that it shares can lift its ground at most.
    objection
        What no shared return explains, or an empty string.
    """

    groups: Groups
    lifts: Array
    objection: str


def mutual_grounds(voltage: Array, current: Array) -> Mutual:
    """Join heaters whose currents fall with each other's, beyond what their own voltages and their heat explain."""
    heaters = voltage.shape[1]
    ground, variance = np.zeros((heaters, heaters)), np.full((heaters, heaters), np.inf)
    lifts = np.full(heaters, np.inf)
    for heater in range(heaters):
        others = np.delete(np.arange(heaters), heater)
        alone = fit_heater(voltage[:, heater], current[:, heater], None)
        if alone is None:
            continue
        lifted = -alone.slope[:, None] * current[:, others]
        known = _with_heat(alone.basis, current[:, heater], (voltage * current)[:, others].sum(axis=1))
        free, residual = (left - known @ (known.T @ left) for left in (lifted, alone.residual))
        inverse, root, _ = _least_squares(free, np.linalg.norm(lifted, axis=0))
        solved = inverse @ residual
        count = PARAMETERS + len(others)
        root = root * np.sqrt(_noise(residual - free @ solved, current[:, heater], count))
        ground[heater, others] = solved
        variance[heater, others] = np.sum(root**2, axis=1) + _LEAST_VARIANCE
        spread = student_bound(len(voltage) - count) * np.linalg.norm(current[:, others] @ root, axis=1)
        lift = np.maximum(current[:, others] @ solved, 0.0) + spread
        lifts[heater] = lift.max() / np.abs(voltage[:, heater]).max()
    weight = 1.0 / variance
    both = weight + weight.T
    mean = (ground * weight + ground.T * weight.T) / np.where(both > 0.0, both, 1.0)
    joined = mean * np.sqrt(both) > FOUND_SIGMA
    return Mutual(
        _components(joined & joined.T),
        lifts,
        _objection(mean, mean * np.sqrt(both), len(voltage) - PARAMETERS - heaters + 1),
    )


def _with_heat(basis: Array, current: Array, others_w: Array) -> Array:
    """Add to what a heater's own law explains (points, k) what the others' heat does to its current."""
    heat = current * others_w
    left = heat - basis @ (basis.T @ heat)
    size = float(np.linalg.norm(left))
    return np.column_stack([basis, left / size]) if size > _RESOLVED * float(np.linalg.norm(heat)) else basis


def _objection(mean: Array, sigmas: Array, freedom: int) -> str:
    first, second = np.unravel_index(int(np.argmin(sigmas)), sigmas.shape)
    if sigmas[first, second] < -impossible_sigma(freedom):
        return (
            f"the current of heater {first} grows with that of heater {second} as if they shared a return of "
            f"{mean[first, second]:.3g} ohm: check the signs of currents, and leaks between channels"
        )
    return ""


def student_bound(freedom: int) -> float:
    """Return how many standard deviations, known from residuals, are exceeded in 0.13 % of cases: 3 or more."""
    return float(stdtrit(max(freedom, 1), _SURE))


def impossible_sigma(freedom: int) -> float:
    """Return by how many standard deviations a resistance must be negative to be one: more with few settings."""
    return FOUND_SIGMA * student_bound(freedom) / 3.0


def _components(joined: NDArray[np.bool_]) -> Groups:
    group = np.full(len(joined), -1, dtype=np.intp)
    for heater in range(len(joined)):
        if group[heater] >= 0:
            continue
        group[heater] = label = group.max() + 1
        waiting = [heater]
        while waiting:
            new = np.flatnonzero(joined[waiting.pop()] & (group < 0))
            group[new] = label
            waiting += new.tolist()
    return group
