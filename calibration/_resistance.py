"""Resistance law of a single heater."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import CalibrationError

MIN_POWER_SPAN = 0.1
"""Smallest span of the powers of a resistance fit, relative to the largest."""


@dataclass(frozen=True)
class ResistanceFit:
    """Resistance law ``R(P) = R0 (1 + beta P)`` of one heater.

    Parameters
    ----------
    resistance_ohm, beta_per_w
        R0 in ohm and beta in 1/W (NaN where the readings are no heater's).
    covariance
        Covariance (2, 2) of (R0, beta), likewise.
    residual_ohm
        Rms deviation of the measured resistances in ohm.
    good
        Whether the law holds: R0 positive, residual below 2 % of R0, resistance within a factor of 2 over the sweep.
    reason
        Why not, or an empty string.
    """

    resistance_ohm: float
    beta_per_w: float
    covariance: NDArray[np.float64]
    residual_ohm: float
    good: bool
    reason: str


def fit_resistance(current_a: ArrayLike, voltage_v: ArrayLike) -> ResistanceFit:
    """Fit the resistance law of a heater to measured currents and voltages.

    Parameters
    ----------
    current_a, voltage_v
        Readings (points,) in A and V; at least three above zero, at different powers.

    Returns
    -------
    ResistanceFit
        Least squares of ``V / I`` against ``V I``, weighted with the current (readings of the current limit it).

    Raises
    ------
    CalibrationError
        If shapes differ, values are not finite, or fewer than three points at different powers carry current.
    """
    current, voltage = np.asarray(current_a, float), np.asarray(voltage_v, float)
    if current.shape != voltage.shape or current.ndim != 1:
        raise CalibrationError(
            f"current and voltage must be vectors of one length, got {current.shape} and {voltage.shape}"
        )
    if not (np.isfinite(current).all() and np.isfinite(voltage).all()):
        raise CalibrationError("current or voltage holds NaN or Inf; leave invalid readings out of the fit")
    used = (current > 0.0) & (voltage > 0.0)
    if used.sum() < 3:
        raise CalibrationError(
            f"only {int(used.sum())} of {current.size} points carry current; three are needed (is the heater open?)"
        )
    current, voltage = current[used], voltage[used]
    ratio, power = voltage / current, voltage * current
    if np.ptp(power) < MIN_POWER_SPAN * power.max():
        raise CalibrationError(
            f"all points are at {power.max():.3g} W within {MIN_POWER_SPAN:.0%}; a growing resistance shows only over "
            "different powers"
        )
    design = np.stack([np.ones_like(power), power], axis=1) * current[:, None]
    (r0, slope), *_ = np.linalg.lstsq(design, ratio * current, rcond=None)
    residual = ratio - (r0 + slope * power)
    rms = float(np.sqrt(np.mean(residual**2)))
    top = r0 + slope * power.max()
    if not (r0 > 0.0 and 0.5 * r0 < top < 2.0 * r0):
        reason = f"the resistance goes from {r0:.3g} to {top:.3g} ohm over the sweep: the heater is open or damaged"
        return ResistanceFit(float(r0), np.nan, np.full((2, 2), np.nan), rms, False, reason)
    noise = float(np.sum((residual * current) ** 2) / max(len(power) - 2, 1))
    jacobian = np.array([[1.0, 0.0], [-slope / r0**2, 1.0 / r0]])
    covariance = jacobian @ (noise * np.linalg.pinv(design.T @ design)) @ jacobian.T
    reason = f"residual {rms:.3g} ohm exceeds 2 % of {r0:.4g} ohm" if rms > 0.02 * r0 else ""
    return ResistanceFit(float(r0), float(slope / r0), covariance, rms, not reason, reason)
