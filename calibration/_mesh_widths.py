"""Widths of the hierarchical priors, learned from the data with the help of posterior samples."""

from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar

from calibration._mesh_space import MeshSpace, PriorWidths
from calibration._session import Array

_LEARNED = ("efficiency", "curvature", "eta", "loss", "arm_loss")
_LEAST = {"efficiency": 1e-4, "curvature": 1e-5, "eta": 2e-4, "loss": 2e-4, "arm_loss": 1e-5, "crosstalk": 1e-5}
_SHORTEST, _LONGEST = 0.3, 6.0
_LARGEST_CHANGE = 3.0


def learn_widths(space: MeshSpace, vector: Array, deviations: Array) -> PriorWidths:
    """Return the widths that make the data likeliest, by one step of MacKay's fixed point.

    Parameters
    ----------
    space
        The space with the present widths.
    vector
        The best vector for them.
    deviations
        Posterior samples (S, size) less their mean.

    Returns
    -------
    PriorWidths
        With new scatters of efficiencies, curvatures, couplers, losses, arms and crosstalk, each at most three times
        or a third of the present one.
    """
    variance = np.mean(deviations**2, axis=0)
    widths = space.widths
    for name in _LEARNED:
        if name in space.free:
            place = space.slices[name]
            present: float = getattr(widths, name)
            new = _scatter(vector[place] - space.centre[place], variance[place], np.full(vector[place].shape, present))
            widths = replace(widths, **{name: max(new * present, _LEAST[name])})
    if "crosstalk" in space.free and len(space.paths.arm):
        widths = _learn_crosstalk(space, widths, vector, variance)
    return widths


def _scatter(value: Array, variance: Array, sigma: Array) -> float:
    """Factor on the widths ``sigma`` of values with the posterior variances given."""
    known = np.sum(np.maximum(1.0 - variance / sigma**2, 0.0))
    if known < 1.0:
        return 1.0
    factor = float(np.sqrt(np.sum((value / sigma) ** 2) / known))
    return float(np.clip(factor, 1.0 / _LARGEST_CHANGE, _LARGEST_CHANGE))


def _learn_crosstalk(space: MeshSpace, widths: PriorWidths, vector: Array, variance: Array) -> PriorWidths:
    """Learn amplitude and decay length of the scatter of single heat paths."""
    place = space.slices["crosstalk"]
    value, distance = vector[place], space.paths.distance - 1.0
    second = value**2 + variance[place]

    def cost(length: float) -> float:
        fall = np.exp(-2.0 * distance / length)
        return float(0.5 * len(fall) * np.log(np.mean(second / fall)) + 0.5 * np.sum(np.log(fall)))

    best = minimize_scalar(cost, bounds=(_SHORTEST, _LONGEST), method="bounded", options={"xatol": 1e-2})
    length = float(best.x)
    fall = np.exp(-distance / length)
    present = np.sqrt(np.mean((space.sigma[place] / fall) ** 2))
    new = _scatter(value, variance[place], present * fall) * present
    return replace(widths, crosstalk=max(float(new), _LEAST["crosstalk"]), length=length)
