"""Resistance laws of a re-calibration: what was measured now and what the old record says, put together."""

import numpy as np

from calibration._session import Array

AGREES = 4.0
"""Standard deviations of their difference up to which an old and a new resistance are taken for the same one."""
_OLD_WEIGHT = 0.5
"""Weight of an old law beside a new one: the same procedure made both, so their variances are taken for equal, and the
inverse-variance mean is the plain one.  An old law that is a mean itself is better than that; its weight falls by half
with every re-calibration, so that changes too small to be seen at once are followed too."""
_MEDIAN = 1.2533
"""Standard deviation of the median of many normal numbers over that of their mean."""

Law = tuple[Array, Array]
"""Resistances (H,) in ohm at zero power, and their relative growth (H,) in 1/W."""


def combined_law(old: Law, new: Law, covariance: Array, top_power_w: Array) -> Law:
    """Average old and new laws heater by heater where they agree, and take the new one where they do not.

    What all resistances have changed by together is found first, and taken out of the comparison where it is beyond
    its noise: a chip that is warmer has drifted as a whole, and no heater is pulled back for that.

    Parameters
    ----------
    old
        Laws of the record; their variances are taken for those of the new ones.
    new
        Laws that were measured now.
    covariance
        Covariances (H, 2, 2) of (R0, beta) of the new laws; NaN for heaters that were not measured.
    top_power_w
        Powers (H,) in W up to which the new laws were measured; laws agree if they do without power and there.

    Returns
    -------
    tuple
        Resistances (H,) in ohm and growth (H,) in 1/W.
    """
    (old_ohm, old_beta), (new_ohm, new_beta) = old, new
    old_ohm = old_ohm * _common_change(old_ohm, new_ohm, covariance)
    agree = np.isfinite(covariance).all(axis=(1, 2))
    for power in (np.zeros_like(top_power_w), top_power_w):
        slope = np.stack([1.0 + new_beta * power, new_ohm * power], axis=1)
        variance = np.einsum("hi,hij,hj->h", slope, covariance, slope)
        difference = new_ohm * (1.0 + new_beta * power) - old_ohm * (1.0 + old_beta * power)
        agree &= difference**2 <= AGREES**2 * 2.0 * variance
    weight = np.where(agree, _OLD_WEIGHT, 0.0)
    return (
        np.asarray(weight * old_ohm + (1.0 - weight) * new_ohm),
        np.asarray(weight * old_beta + (1.0 - weight) * new_beta),
    )


def _common_change(old_ohm: Array, new_ohm: Array, covariance: Array) -> float:
    """Return the factor by which most resistances have changed together; 1 if that is within its noise."""
    measured = np.isfinite(covariance).all(axis=(1, 2))
    if not measured.any():
        return 1.0
    factor = float(np.median(new_ohm[measured] / old_ohm[measured]))
    relative = np.median(np.sqrt(covariance[measured, 0, 0]) / new_ohm[measured])
    sigma = float(_MEDIAN * np.sqrt(2.0 / measured.sum()) * relative)
    return factor if abs(factor - 1.0) > AGREES * sigma else 1.0
