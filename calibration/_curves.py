"""Pure fits of single heaters: resistance law and phase curve.  Numbers in, result with verdict out."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import CalibrationError

MIN_PERIODS = 0.8
"""Shortest sweep, in periods of the fringe, from which a phase curve is accepted."""
MIN_CONTRAST = 25.0
"""Smallest ratio of fringe amplitude to residual rms that is accepted: below it, what bends the curve (a clipped or
disturbed reading, a second fringe) moves the efficiency by more than a few per cent."""
MAX_RELATIVE_SIGMA = 0.03
"""Largest accepted standard deviation of an efficiency, relative to it."""
MIN_POINTS = 8
"""Fewest valid points at different powers (a phase curve has five parameters)."""
CLIPPED_PERIODS = 0.05
"""Part of a period that a fringe may stand still at its highest or lowest reading before it counts as clipped."""
CLIPPED_SHIFT = 0.01
"""Relative change of an efficiency without the readings at its fringes' exact extremes that counts as clipping."""
MIN_POWER_SPAN = 0.1
"""Smallest span of the powers of a resistance fit, relative to the largest."""
_PERIODS_PER_POINT = 0.45  # stays below the sampling limit of half a period per point
_GRID_PER_PERIOD = 16
_GRID_ELEMENTS = 1_000_000
_TWO_PI = 2.0 * np.pi


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


@dataclass(frozen=True)
class PhaseCurveFit:
    """Phase curve of one heater: reading ``= mean + slope P + amplitude cos(efficiency P + offset)``.

    Parameters
    ----------
    efficiency
        Phase per power in rad/W, positive; what the sweep shows, so heat that turns neighbouring phases counts too.
    offset
        Phase at zero power of the first fringe in rad, in [0, 2 pi).
    amplitude, mean
        Fringe amplitude (> 0) and mean at zero power of the first fringe in the unit of the readings.
    slope
        Linear part of the first fringe, in the unit of the readings per W.
    efficiency_sigma
        Standard deviation of the efficiency in rad/W, from the residuals.
    offset_sigma
        Standard deviation of the offset in rad.
    contrast
        Root-sum-square fringe amplitude over residual rms of all fringes.
    periods
        Periods inside the sweep.
    good
        Verdict: at least `MIN_PERIODS` periods and `MIN_POINTS` points, contrast at least `MIN_CONTRAST`, efficiency
        known to `MAX_RELATIVE_SIGMA` and not at the edge of the searched range, no fringe clipped.
    reason
        Why not, or an empty string.
    """

    efficiency: float
    offset: float
    amplitude: float
    mean: float
    slope: float
    efficiency_sigma: float
    offset_sigma: float
    contrast: float
    periods: float
    good: bool
    reason: str

    @classmethod
    def rejected(cls, reason: str) -> "PhaseCurveFit":
        """Return the verdict on a sweep that cannot be fitted at all; its numbers are NaN."""
        return cls(*(float("nan"),) * 7, 0.0, 0.0, False, reason)

    def readings(self, power_w: ArrayLike) -> NDArray[np.float64]:
        """Return the fitted first fringe at heater powers in W."""
        power = np.asarray(power_w, float)
        fringe = self.amplitude * np.cos(self.efficiency * power + self.offset)
        return np.asarray(self.mean + self.slope * power + fringe)


def fit_phase_curve(
    power_w: ArrayLike, detected_w: ArrayLike, *, efficiency_range: tuple[float, float] | None = None
) -> PhaseCurveFit:
    """Fit the phase curve of one heater to one or several fringes with a common period.

    A single phase enters every detector's power as one exact sinusoid, so all detectors share the efficiency. Heat
    that reaches neighbours changes the readings slowly; a straight line in power takes that up.  Everything but the
    efficiency is linear and is projected out (variable projection); the efficiency is searched on a grid and polished.

    Points at even steps cannot tell a fringe from its alias with more than half a period a point: sweep finely
    enough for the shortest period that is possible, or state ``efficiency_range``.

    Parameters
    ----------
    power_w
        Heater powers (points,) in W, in any order.
    detected_w
        Readings (points,) or (points, detectors) in W; NaN or Inf marks an invalid reading, which drops that point.
    efficiency_range
        Smallest and largest efficiency in rad/W to consider; None derives it from the sweep: 0.3 periods up to
        what the points resolve.

    Returns
    -------
    PhaseCurveFit
        Offset, amplitude, mean and slope belong to the detector with the largest fringe.  A sweep that does not
        support a result gives ``good = False`` and the reason.

    Raises
    ------
    CalibrationError
        If shapes do not agree, or the range does not hold 0 < smallest < largest.
    """
    power, readings = _checked_sweep(power_w, detected_w)
    distinct = len(np.unique(power))
    if distinct < MIN_POINTS:
        return PhaseCurveFit.rejected(f"only {distinct} valid points at different powers; {MIN_POINTS} are needed")
    span = float(np.ptp(power))
    low, high = efficiency_range or (
        _TWO_PI * 0.3 / span, _TWO_PI * _PERIODS_PER_POINT * (len(power) - 1) / span
    )  # fmt: skip
    if not 0.0 < low < high < np.inf:
        raise CalibrationError(f"efficiencies from {low!r} to {high!r} rad/W are no range; give 0 < smallest < largest")
    count = int(np.ceil((high - low) * span / _TWO_PI * _GRID_PER_PERIOD)) + 3
    grid = np.linspace(low, high, count)
    efficiency = _polish(power, readings, grid, int(np.argmax(_explained(power, readings, grid))))
    return _describe(_Projection(power, readings, efficiency), (low, high))


def _checked_sweep(power_w: ArrayLike, detected_w: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    power, readings = np.asarray(power_w, float), np.asarray(detected_w, float)
    if readings.ndim == 1:
        readings = readings[:, None]
    if power.ndim != 1 or readings.ndim != 2 or len(readings) != len(power) or readings.shape[1] == 0:
        raise CalibrationError(
            f"a sweep needs powers (points,) and readings (points, detectors), got {power.shape}, {readings.shape}"
        )
    valid = np.isfinite(power) & np.isfinite(readings).all(axis=1)
    return power[valid], readings[valid]


def _explained(
    power: NDArray[np.float64], readings: NDArray[np.float64], grid: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum of squares that fringes of each efficiency of a grid explain."""
    centred = readings - readings.mean(axis=0)
    parts = []
    for some in np.array_split(grid, 1 + grid.size * power.size // _GRID_ELEMENTS):
        basis = np.linalg.qr(_design(power, some))[0]
        parts.append(np.sum((basis.swapaxes(1, 2) @ centred) ** 2, axis=(1, 2)))
    return np.concatenate(parts)


def _design(power: NDArray[np.float64], efficiency: ArrayLike) -> NDArray[np.float64]:
    """Mean, slope (per largest power), cosine and sine at each power: ``(*efficiency.shape, points, 4)``."""
    angle = np.asarray(efficiency)[..., None] * power
    columns = (np.ones_like(power), power / np.abs(power).max(), np.cos(angle), np.sin(angle))
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


class _Projection:
    """Least-squares fringes of a fixed efficiency: coefficients (4, detectors) of mean, slope, cosine and sine."""

    def __init__(self, power: NDArray[np.float64], readings: NDArray[np.float64], efficiency: float) -> None:
        self.power, self.readings, self.efficiency = power, readings, efficiency
        self.scale, self.design = float(np.abs(power).max()), _design(power, efficiency)
        self.coefficients, *_ = np.linalg.lstsq(self.design, readings, rcond=None)
        self.cost = float(np.sum((readings - self.design @ self.coefficients) ** 2))

    @property
    def rms(self) -> float:
        """Residual rms per degree of freedom, at least the rounding of the readings."""
        points, detectors = self.readings.shape
        freedom = max((points - 4) * detectors - 1, 1)
        return float(np.hypot(np.sqrt(self.cost / freedom), 1e-14 * np.abs(self.readings).max()))

    def derivative(self) -> NDArray[np.float64]:
        """Differentiate the fringes by the efficiency: (points, detectors)."""
        cosine, sine = self.design[:, 2], self.design[:, 3]
        turned = np.stack([-self.power * sine, self.power * cosine], axis=1)
        return np.asarray(turned @ self.coefficients[2:])


def _polish(power: NDArray[np.float64], readings: NDArray[np.float64], grid: NDArray[np.float64], best: int) -> float:
    """Golden-section search between the grid neighbours of the best point."""
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ratio = (np.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    cost_left, cost_right = (_Projection(power, readings, x).cost for x in (left, right))
    for _ in range(40):
        if cost_left < cost_right:
            high, right, cost_right = right, left, cost_left
            left = high - ratio * (high - low)
            cost_left = _Projection(power, readings, left).cost
        else:
            low, left, cost_left = left, right, cost_right
            right = low + ratio * (high - low)
            cost_right = _Projection(power, readings, right).cost
    return float((low + high) / 2.0)


def _describe(best: _Projection, searched: tuple[float, float]) -> PhaseCurveFit:
    amplitudes = np.hypot(best.coefficients[2], best.coefficients[3])
    first, strength = int(np.argmax(amplitudes)), float(np.linalg.norm(amplitudes))
    contrast = strength / best.rms if strength > 0.0 else 0.0
    sigma, offset_sigma = _sigmas(best, first)
    mean, slope, cosine, sine = (float(value) for value in best.coefficients[:, first])
    span = float(np.ptp(best.power))
    fit = PhaseCurveFit(
        best.efficiency, float(np.arctan2(-sine, cosine) % _TWO_PI % _TWO_PI), float(amplitudes[first]), mean,
        slope / best.scale, sigma, offset_sigma, contrast, best.efficiency * span / _TWO_PI, False, "",
    )  # fmt: skip
    reason = _complaint(fit, searched, span)
    in_order = best.readings[np.argsort(best.power)]
    if not reason and _is_clipped(in_order[:, amplitudes > 0.1 * amplitudes[first]], fit.periods):
        reason = "a reading stands still at the top or bottom of its fringe: the detector is clipped"
    if not reason and _moves_without_extremes(best, amplitudes > 0.1 * amplitudes[first], sigma):
        reason = "the efficiency hangs on readings that repeat their fringe's exact extreme: is the detector clipped?"
    return replace(fit, good=not reason, reason=reason)


def _sigmas(best: _Projection, first: int) -> tuple[float, float]:
    """Return the standard deviations of the efficiency and of the first fringe's offset."""
    pulls, *_ = np.linalg.lstsq(best.design, best.derivative(), rcond=None)
    information = float(np.sum((best.derivative() - best.design @ pulls) ** 2))
    if information <= 0.0:
        return float("inf"), float("inf")
    sigma = best.rms / np.sqrt(information)
    _, _, cosine, sine = best.coefficients[:, first]
    gradient = np.array([0.0, 0.0, sine, -cosine]) / (cosine**2 + sine**2)
    linear = best.rms**2 * np.linalg.pinv(best.design.T @ best.design)
    variance = gradient @ linear @ gradient + (sigma * float(gradient @ pulls[:, first])) ** 2
    return float(sigma), float(np.sqrt(variance))


def _complaint(fit: PhaseCurveFit, searched: tuple[float, float], span: float) -> str:
    if not fit.contrast >= MIN_CONTRAST:
        return f"contrast {fit.contrast:.2g} is below {MIN_CONTRAST:g}: no clear fringe"
    if fit.periods < MIN_PERIODS:
        needed = span * MIN_PERIODS / fit.periods
        return f"range too short: {fit.periods:.2f} periods, {MIN_PERIODS:g} are needed (sweep at least {needed:.3g} W)"
    if fit.efficiency_sigma > MAX_RELATIVE_SIGMA * fit.efficiency:
        return (
            f"efficiency {fit.efficiency:.4g} rad/W is uncertain by {fit.efficiency_sigma / fit.efficiency:.1%} "
            f"({MAX_RELATIVE_SIGMA:.0%} allowed); take more points or a longer sweep"
        )
    margin = 1e-3 * (searched[1] - searched[0])
    if fit.efficiency > searched[1] - margin or fit.efficiency < searched[0] + margin:
        return f"efficiency {fit.efficiency:.4g} rad/W lies at the edge of the searched range; widen it or add points"
    return ""


def _is_clipped(readings: NDArray[np.float64], periods: float) -> bool:
    """Whether any fringe (points in order of power, fringes) stands still at its extreme for longer than it turns."""
    allowed = max(2.0, CLIPPED_PERIODS * len(readings) / periods)
    longest = max(_longest_run(readings == readings.max(axis=0)), _longest_run(readings == readings.min(axis=0)))
    return longest > allowed


def _moves_without_extremes(best: _Projection, fringes: NDArray[np.bool_], sigma: float) -> bool:
    """Whether the efficiency changes when readings that share their fringe's exact extreme are left out.

    Clipping at both ends of a short sweep leaves no long plateau, but still bends the fit.
    """
    readings = best.readings[:, fringes]
    tied = np.zeros(len(readings), dtype=bool)
    for extreme in (readings.max(axis=0), readings.min(axis=0)):
        at_extreme = readings == extreme
        tied |= (at_extreme & (at_extreme.sum(axis=0) > 1)).any(axis=1)
    if not tied.any():
        return False
    power, kept = best.power[~tied], best.readings[~tied]
    if len(np.unique(power)) < MIN_POINTS:
        return True
    grid = best.efficiency * np.linspace(0.8, 1.2, 41)
    costs = [_Projection(power, kept, float(value)).cost for value in grid]
    efficiency = _polish(power, kept, grid, int(np.argmin(costs)))
    return abs(efficiency - best.efficiency) > max(CLIPPED_SHIFT * best.efficiency, 3.0 * sigma)


def _longest_run(flags: NDArray[np.bool_]) -> int:
    longest, run = 0, np.zeros(flags.shape[1], dtype=np.int64)
    for row in flags:
        run = (run + 1) * row
        longest = max(longest, int(run.max()))
    return longest
