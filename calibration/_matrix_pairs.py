"""Which pairs of inputs to light together, so that every element's phase shows in a bright fringe."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._arrays import floats
from calibration._checks import require_whole
from calibration._matrix import MAX_ELEMENT_SIGMA, UNKNOWN_PHASE_RMS
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

_SIGNIFICANT = 3.0
_UNKNOWN = 1.0 / UNKNOWN_PHASE_RMS**2


def plan_pairs(single_w: ArrayLike, noise: NoiseModel, steps: int = 4, most: int | None = None) -> NDArray[np.intp]:
    """Choose the pairs of inputs for `matrix_from_two_port`.

    The n - 1 pairs of a tree connect all inputs. A reference input that is dark at some output would leave that
    output's phases unknown, so the tree is the one of n stars and one tree of brightest fringes that leaves phases
    least unsure; pairs beyond it follow while elements stay less sure than a good matrix needs and a pair helps.

    Parameters
    ----------
    single_w
        Output powers (n, m) in W with one input lit at a time; first axis is the input.
    noise
        Noise of a reading.
    steps
        Phase steps of each pair.
    most
        Largest number of pairs; None means 2 (n - 1).

    Returns
    -------
    NDArray
        (P, 2) inputs, P >= n - 1; the phase of the second one is stepped.

    Raises
    ------
    CalibrationError
        If powers are no finite numbers, ``steps`` or ``most`` no whole ones, or ``most`` is too small for a tree.
    """
    power = floats("single_w", single_w)
    require_whole("steps", steps, 1)
    if most is not None:
        require_whole("most", most, 0)
    if power.ndim != 2 or power.size == 0 or not np.isfinite(power).all():
        raise CalibrationError(f"powers of single inputs must be finite (inputs, outputs), got shape {power.shape}")
    n = len(power)
    limit = 2 * (n - 1) if most is None else most
    if limit < n - 1:
        raise CalibrationError(f"{n} inputs are connected by {n - 1} pairs at least; {limit} are allowed")
    power = np.maximum(power, 0.0)
    information = _information(power, noise, steps)
    trees = [[(a, b) for b in range(n) if b != a] for a in range(n)] + [_brightest_tree(information)]
    best = min(trees, key=lambda tree: float(_unsureness(power, information, [tree])[0].sum()))
    pairs = [(min(pair), max(pair)) for pair in best]
    wanted = (MAX_ELEMENT_SIGMA**2) * max(float(power.mean()), 1e-300)
    while n > 1 and len(pairs) < limit:
        now = _unsureness(power, information, [pairs])[0]
        others = [(a, b) for a in range(n) for b in range(a + 1, n) if (a, b) not in pairs]
        if now.max() <= wanted or not others:
            break
        later = _unsureness(power, information, [[*pairs, pair] for pair in others]).sum(axis=(1, 2))
        if later.min() > 0.99 * now.sum():
            break
        pairs.append(others[int(np.argmin(later))])
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def _information(power: Array, noise: NoiseModel, steps: int) -> Array:
    """Fisher information (n, n, m) in 1/rad^2 that a pair's fringe holds of the phase between two elements.

    A power that may be noise promises nothing.
    """
    sure = np.maximum(power - _SIGNIFICANT * noise.sigma(power), 0.0)
    contrast = 4.0 * sure[:, None] * sure[None]
    sigma = noise.sigma(power[:, None] + power[None])
    return np.asarray(0.5 * steps * contrast / sigma**2)


def _brightest_tree(information: Array) -> list[tuple[int, int]]:
    weight = np.log1p(information).sum(axis=-1)
    n, tree, inside = len(weight), [], [0]
    while len(inside) < n:
        outside = [i for i in range(n) if i not in inside]
        block = weight[np.ix_(inside, outside)]
        a, b = np.unravel_index(int(np.argmax(block)), block.shape)
        tree.append((inside[a], outside[b]))
        inside.append(outside[b])
    return tree


def _unsureness(power: Array, information: Array, choices: list[list[tuple[int, int]]]) -> Array:
    """Variances (choices, m, n) in W of the elements' phases times moduli, each output's best phase matched."""
    n, m = power.shape
    laplacian = np.zeros((len(choices), m, n, n))
    for c, pairs in enumerate(choices):
        for a, b in pairs:
            strength = information[a, b]
            laplacian[c, :, a, a] += strength
            laplacian[c, :, b, b] += strength
            laplacian[c, :, a, b] -= strength
            laplacian[c, :, b, a] -= strength
    covariance = np.linalg.inv(laplacian + _UNKNOWN * np.eye(n))
    weight = (power / np.maximum(power.sum(axis=0), 1e-300)).T  # (m, n)
    mean = np.einsum("cjik,jk->cji", covariance, weight)
    spread = np.einsum("cji,ji->cj", mean, weight)
    variance = np.einsum("cjii->cji", covariance) - 2.0 * mean + spread[:, :, None]
    return np.asarray(np.maximum(variance, 0.0) * power.T)
