"""Pure fits of single heaters: resistance law and phase curve.  Numbers in, result with verdict out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import CalibrationError

MIN_PERIODS = 0.8
"""Shortest sweep, in periods of the fringe, from which a phase curve is accepted."""
MIN_CONTRAST = 8.0
"""Smallest ratio of fringe amplitude to residual rms that is accepted."""
MIN_POINTS = 6
"""Fewest valid points of a sweep (a phase curve has four parameters)."""
_PERIODS_PER_POINT = 0.45  # stays below the sampling limit of half a period per point
_GRID_PER_PERIOD = 16


@dataclass(frozen=True)
class ResistanceFit:
    """Resistance law ``R(P) = R0 (1 + beta P)`` of one heater.

    Parameters
    ----------
    resistance_ohm, beta_per_w
        R0 in ohm and beta in 1/W.
    covariance
        Covariance (2, 2) of (R0, beta).
    residual_ohm
        Rms deviation of the measured resistances in ohm.
    good
        Whether the law holds: finite, positive, residual below 2 % of R0.
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
        If shapes differ, values are not finite, or fewer than three points carry current (an open heater).
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
    design = np.stack([np.ones_like(power), power], axis=1) * current[:, None]
    (r0, slope), *_ = np.linalg.lstsq(design, ratio * current, rcond=None)
    residual = ratio - (r0 + slope * power)
    rms = float(np.sqrt(np.mean(residual**2)))
    noise = float(np.sum((residual * current) ** 2) / max(len(power) - 2, 1))
    cov_linear = noise * np.linalg.pinv(design.T @ design)
    jacobian = np.array([[1.0, 0.0], [-slope / r0**2, 1.0 / r0]])
    reason = ""
    if not r0 > 0.0:
        reason = f"resistance {r0:.3g} ohm is not positive"
    elif rms > 0.02 * r0:
        reason = f"residual {rms:.3g} ohm exceeds 2 % of {r0:.4g} ohm"
    return ResistanceFit(float(r0), float(slope / r0), jacobian @ cov_linear @ jacobian.T, rms, not reason, reason)


@dataclass(frozen=True)
class PhaseCurveFit:
    """Phase curve of one heater: reading ``= mean + amplitude cos(efficiency * P + offset)``.

    Parameters
    ----------
    efficiency
        Phase per power in rad/W, positive.
    offset
        Phase at zero power of the first fringe in rad, in [0, 2 pi).
    amplitude, mean
        Fringe amplitude (> 0) and mean of the first fringe in the unit of the readings.
    efficiency_sigma
        Standard deviation of the efficiency in rad/W, from the residuals.
    offset_sigma
        Standard deviation of the offset in rad.
    contrast
        Root-sum-square fringe amplitude over residual rms of all fringes.
    periods
        Periods inside the sweep.
    good
        Verdict: at least `MIN_PERIODS` periods, contrast at least `MIN_CONTRAST`, `MIN_POINTS` points, and not so
        many periods that the points alias.
    reason
        Why not, or an empty string.
    """

    efficiency: float
    offset: float
    amplitude: float
    mean: float
    efficiency_sigma: float
    offset_sigma: float
    contrast: float
    periods: float
    good: bool
    reason: str


def fit_phase_curve(
    power_w: ArrayLike, detected_w: ArrayLike, *, efficiency_range: tuple[float, float] | None = None
) -> PhaseCurveFit:
    """Fit the phase curve of one heater to one or several fringes with a common period.

    A single phase enters every detector's power as one exact sinusoid, so all detectors share the efficiency;
    means and both quadratures are linear and are projected out (variable projection), the efficiency is searched
    on a grid and polished.

    Parameters
    ----------
    power_w
        Heater powers (points,) in W.
    detected_w
        Readings (points,) or (points, detectors) in W; NaN marks an invalid reading, which drops that point.
    efficiency_range
        Smallest and largest efficiency in rad/W to consider; None derives it from the sweep: 0.3 periods up to
        what the points resolve.

    Returns
    -------
    PhaseCurveFit
        Offset, amplitude and mean belong to the detector with the largest fringe.

    Raises
    ------
    CalibrationError
        If shapes do not agree or the powers do not span an interval.
    """
    power, readings = _checked_sweep(power_w, detected_w)
    span = float(np.ptp(power)) if power.size else 0.0
    if len(power) < MIN_POINTS or span <= 0.0:
        return _rejected(
            f"only {len(power)} valid points over {span:.3g} W; {MIN_POINTS} at different powers are needed"
        )
    low, high = efficiency_range or (
        2 * np.pi * 0.3 / span, 2 * np.pi * _PERIODS_PER_POINT * (len(power) - 1) / span
    )  # fmt: skip
    count = int(np.ceil((high - low) * span / (2 * np.pi) * _GRID_PER_PERIOD)) + 3
    grid = np.linspace(low, high, count)
    costs = np.array([_projected(power, readings, value)[0] for value in grid])
    efficiency = _polish(power, readings, grid, int(np.argmin(costs)))
    return _describe(power, readings, efficiency, (low, high))


def _checked_sweep(power_w: ArrayLike, detected_w: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    power, readings = np.asarray(power_w, float), np.asarray(detected_w, float)
    if readings.ndim == 1:
        readings = readings[:, None]
    if power.ndim != 1 or readings.ndim != 2 or len(readings) != len(power):
        raise CalibrationError(
            f"a sweep needs powers (points,) and readings (points, detectors), got {power.shape}, {readings.shape}"
        )
    valid = np.isfinite(power) & np.isfinite(readings).all(axis=1)
    return power[valid], readings[valid]


def _rejected(reason: str) -> PhaseCurveFit:
    nan = float("nan")
    return PhaseCurveFit(nan, nan, nan, nan, nan, nan, 0.0, 0.0, False, reason)


def _projected(
    power: NDArray[np.float64], readings: NDArray[np.float64], efficiency: float
) -> tuple[float, NDArray[np.float64]]:
    """Residual sum of squares and coefficients (3, detectors) of mean, cosine and sine."""
    design = np.stack([np.ones_like(power), np.cos(efficiency * power), np.sin(efficiency * power)], axis=1)
    coefficients, *_ = np.linalg.lstsq(design, readings, rcond=None)
    return float(np.sum((readings - design @ coefficients) ** 2)), coefficients


def _polish(power: NDArray[np.float64], readings: NDArray[np.float64], grid: NDArray[np.float64], best: int) -> float:
    """Golden-section search between the grid neighbours of the best point."""
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    cost_left, cost_right = (_projected(power, readings, x)[0] for x in (left, right))
    for _ in range(40):
        if cost_left < cost_right:
            high, right, cost_right = right, left, cost_left
            left = high - ratio * (high - low)
            cost_left = _projected(power, readings, left)[0]
        else:
            low, left, cost_left = left, right, cost_right
            right = low + ratio * (high - low)
            cost_right = _projected(power, readings, right)[0]
    return float((low + high) / 2.0)


def _describe(
    power: NDArray[np.float64], readings: NDArray[np.float64], efficiency: float, searched: tuple[float, float]
) -> PhaseCurveFit:
    cost, coefficients = _projected(power, readings, efficiency)
    amplitudes = np.hypot(coefficients[1], coefficients[2])
    freedom = max(readings.size - 3 * readings.shape[1] - 1, 1)
    rms = float(np.sqrt(cost / freedom))
    first = int(np.argmax(amplitudes))
    offset = float(np.arctan2(-coefficients[2, first], coefficients[1, first]) % (2 * np.pi))
    strength = float(np.sqrt(np.sum(amplitudes**2)))
    contrast = strength / rms if rms > 0.0 else float("inf")
    spread = float(np.sqrt(np.sum((power - power.mean()) ** 2)))
    sigma = rms * np.sqrt(2.0) / (strength * spread) if strength > 0.0 else float("inf")
    offset_sigma = float(np.hypot(
        rms * np.sqrt(2.0 / len(power)) / max(amplitudes[first], 1e-300), sigma * power.mean()
    ))  # fmt: skip
    periods = efficiency * float(np.ptp(power)) / (2 * np.pi)
    reason = _complaint(contrast, periods, efficiency, searched, float(np.ptp(power)))
    return PhaseCurveFit(
        efficiency, offset, float(amplitudes[first]), float(coefficients[0, first]), float(sigma), offset_sigma,
        contrast, periods, not reason, reason,
    )  # fmt: skip


def _complaint(contrast: float, periods: float, efficiency: float, searched: tuple[float, float], span: float) -> str:
    if not contrast >= MIN_CONTRAST:
        return f"contrast {contrast:.2g} is below {MIN_CONTRAST:g}: no clear fringe"
    if periods < MIN_PERIODS:
        needed = span * MIN_PERIODS / periods
        return f"range too short: {periods:.2f} periods, {MIN_PERIODS:g} are needed (sweep at least {needed:.3g} W)"
    margin = 1e-3 * (searched[1] - searched[0])
    if efficiency > searched[1] - margin or efficiency < searched[0] + margin:
        return f"efficiency {efficiency:.4g} rad/W lies at the edge of the searched range; widen it or add points"
    return ""
