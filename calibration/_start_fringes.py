"""Fringes of one MZI between unknown fields: pure analysis behind the start of a bare mesh's calibration.

An MZI with unknown fields a, b at its inputs shows, at outputs that are read one by one,
``P_upper - P_lower = -z cos(theta) + sin(theta) Re(w)`` with ``z = |a|^2 - |b|^2`` and ``w = 2 a b* exp(i phi)``.  Over
settings of theta and phi only z and w are unknown besides theta's offset, both enter linearly, and light that is one
mode obeys ``z^2 + |w|^2 = (|a|^2 + |b|^2)^2``.  The offset is what remains; light alone leaves it open by pi, because
crossing both inputs and both outputs changes nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array

ANGLES: Array = np.linspace(0.0, 2.0 * np.pi, 48, endpoint=False)
"""Offsets (G,) in rad at which fringes are compared."""
GAIN_SPREAD = 0.05
"""Relative differences of two neighbouring detectors and the losses before them."""
_PURE_SPREAD = 0.05
_UNKNOWNS = 5
_APART = 0.5


@dataclass(frozen=True)
class PairSweep:
    """What M MZIs of one column did while all before it stood still.

    Parameters
    ----------
    theta, phi
        Phases (R, M) in rad that heaters added.
    upper_w, lower_w
        Readings (R, M) in W of the detectors behind the upper and the lower outputs; NaN where there is none.
    sigma_w
        Uncertainty (M,) in W of a reading, light gone astray included.
    lit
        1 or -1 (M,) where light reaches only the upper or the lower input, else 0.
    """

    theta: Array
    phi: Array
    upper_w: Array
    lower_w: Array
    sigma_w: Array
    lit: NDArray[np.intp]


@dataclass(frozen=True)
class Couplers:
    """What two couplers of every MZI share.

    Parameters
    ----------
    excess
        Twice the mean angle beyond pi/4, rad.
    """

    excess: float = 0.0


def fringe_costs(sweep: PairSweep, couplers: Couplers, angles: Array = ANGLES) -> Array:
    """Sum of squares, over the noise, that no incoming light explains.

    Parameters
    ----------
    sweep
        Settings and readings of M MZIs.
    couplers
        Shared properties of couplers.
    angles
        Offsets (G,) of theta in rad to try.

    Returns
    -------
    NDArray
        (G, M).
    """
    upper, lower = _design(sweep, couplers, angles)
    weight = 1.0 / sweep.sigma_w**2
    seen = np.stack([np.isfinite(sweep.upper_w), np.isfinite(sweep.lower_w)])
    values = np.stack([np.nan_to_num(sweep.upper_w), np.nan_to_num(sweep.lower_w)])
    weights = seen * weight
    light = np.sum(values * seen, axis=(0, 1)) / np.maximum(seen.sum(axis=(0, 1)), 1) * 2.0
    light = np.maximum(light, 3.0 * sweep.sigma_w)
    normal, right = (
        np.zeros((len(angles), *light.shape, _UNKNOWNS, _UNKNOWNS)),
        np.zeros((len(angles), *light.shape, _UNKNOWNS)),
    )
    for rows, value, share in ((upper, values[0], weights[0]), (lower, values[1], weights[1])):
        weighted = rows * share.T[None, :, :, None]
        normal += np.swapaxes(rows, 2, 3) @ weighted
        right += np.einsum("gmri,rm->gmi", weighted, value)
    index = np.arange(_UNKNOWNS)
    # Widths far beyond the light keep directions without information solvable.
    loose = 1.0 / (30.0 * light) ** 2
    normal[:, :, index, index] += loose[None, :, None]
    normal[:, :, 1, 1] += 1.0 / (0.5 * GAIN_SPREAD * light) ** 2
    one = sweep.lit != 0
    normal[:, one, 3, 3] += 1e12 * loose[one]
    normal[:, one, 4, 4] += 1e12 * loose[one]
    covariance = np.linalg.inv(normal)
    found = np.einsum("gmij,gmj->gmi", covariance, right)
    cost = np.sum(values**2 * weights, axis=(0, 1)) - np.sum(found * right, axis=-1)
    return np.asarray(np.maximum(cost, 0.0) + _impurity(found, covariance, sweep.lit))


def _design(sweep: PairSweep, couplers: Couplers, angles: Array) -> tuple[Array, Array]:
    """Rows (G, M, R, 5) of both outputs: half the light, half the detectors' difference, z, Re and Im of w."""
    theta = sweep.theta.T[None] + angles[:, None, None]
    cosine, sine = np.cos(theta), np.sin(theta)
    turn_re, turn_im = np.cos(sweep.phi.T), np.sin(sweep.phi.T)
    # Couplers beyond 50:50 mix in the other quadrature of w.
    odd = -couplers.excess * (1.0 + cosine)
    fringe = 0.5 * np.stack([-cosine, sine * turn_re + odd * turn_im, -sine * turn_im + odd * turn_re], axis=-1)
    ones = np.ones((*cosine.shape, 1))
    return np.concatenate([ones, ones, fringe], axis=-1), np.concatenate([ones, -ones, -fringe], axis=-1)


def _impurity(found: Array, covariance: Array, lit: NDArray[np.intp]) -> Array:
    """Cost of light that is not one mode, or comes from the dark input."""
    light, z = 2.0 * found[..., 0], found[..., 2]
    length = np.where(lit == 0, np.linalg.norm(found[..., 2:], axis=-1), lit * z)
    gradient = np.zeros_like(found)
    gradient[..., 0] = -2.0
    gradient[..., 2:] = found[..., 2:] / np.maximum(np.abs(length), 1e-300)[..., None]
    gradient[..., 2] = np.where(lit == 0, gradient[..., 2], lit)
    gradient[..., 3:] *= (lit == 0)[:, None]
    variance = np.einsum("gmi,gmij,gmj->gm", gradient, covariance, gradient)
    return np.asarray((length - light) ** 2 / (variance + (_PURE_SPREAD * light) ** 2))


def known_light_costs(
    fields: tuple[NDArray[np.complex128], NDArray[np.complex128]], sweep: PairSweep, couplers: Couplers,
    thetas: Array, phis: Array,
) -> Array:  # fmt: skip
    """Return sums of squares of both offsets where the incoming fields are known up to a common factor.

    Parameters
    ----------
    fields
        Fields (R, M) at the upper and lower inputs, before phi.
    sweep
        Settings and readings of M MZIs.
    couplers
        Shared properties of couplers.
    thetas
        Offsets of theta in rad to try, (T, M).
    phis
        Offsets of phi in rad to try, (F,).

    Returns
    -------
    NDArray
        (T, F, M).
    """
    first, second = fields
    light, z = np.abs(first) ** 2 + np.abs(second) ** 2, np.abs(first) ** 2 - np.abs(second) ** 2
    w = 2.0 * first * np.conj(second) * np.exp(1j * sweep.phi)
    cost = np.zeros((len(thetas), len(phis), first.shape[1]))
    for t, offsets in enumerate(thetas):
        theta = sweep.theta + offsets
        turned = w[None] * np.exp(1j * phis)[:, None, None]
        odd = -couplers.excess * (1.0 + np.cos(theta))
        fringe = 0.5 * (-z * np.cos(theta) + np.sin(theta) * turned.real + odd * turned.imag)
        for reading, sign in ((sweep.upper_w, 1.0), (sweep.lower_w, -1.0)):
            left = (reading - 0.5 * light - sign * fringe) / sweep.sigma_w
            cost[t] += np.nansum(left**2, axis=1)
    return cost


def minima(costs: Array, angles: Array = ANGLES) -> tuple[Array, Array, Array]:
    """Find the smallest cost along the first axis (G, M), angles equally spaced over the circle.

    Returns
    -------
    tuple
        Angle (M,) in rad, its standard deviation (M,) in rad from the curvature, smallest cost (M,).
    """
    step, which, best = angles[1] - angles[0], np.arange(costs.shape[1]), np.argmin(costs, axis=0)
    before, at, after = (costs[(best + shift) % len(angles), which] for shift in (-1, 0, 1))
    curvature = np.maximum(before + after - 2.0 * at, 1e-9)
    shift = np.clip(0.5 * (before - after) / curvature, -0.5, 0.5)
    return angles[best] + shift * step, np.sqrt(2.0 * step**2 / curvature), at


def rivals(costs: Array, angle: Array, angles: Array = ANGLES) -> Array:
    """By how much (M,) the best offset that differs from ``angle`` (M,), pi aside, costs more (G, M)."""
    away = np.abs((angles[:, None] - angle + 0.5 * np.pi) % np.pi - 0.5 * np.pi) > _APART
    return np.asarray(np.where(away, costs, np.inf).min(axis=0) - costs.min(axis=0))


def chain_states(costs: Array) -> tuple[NDArray[np.intp], Array]:
    """Choose the states of the MZIs between neighbouring pairs that explain all pairs best.

    Parameters
    ----------
    costs
        (M, 2, 2): cost of pair i when the MZI before it in the row of MZIs is in state l and the one behind it in
        state r; infinite where an MZI has no such state.

    Returns
    -------
    tuple
        States (M + 1,) and how much more the best solution with the opposite state costs, (M + 1,).
    """
    count = len(costs)
    forward, backward = np.zeros((count + 1, 2)), np.zeros((count + 1, 2))
    for i in range(count):
        forward[i + 1] = np.min(forward[i][:, None] + costs[i], axis=0)
        back = count - 1 - i
        backward[back] = np.min(costs[back] + backward[back + 1][None, :], axis=1)
    total = forward + backward
    states = np.argmin(total, axis=1)
    return states, np.abs(total[:, 1] - total[:, 0])
