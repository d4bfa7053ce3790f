"""Phase curve of a single heater: sweep in, efficiency with a verdict out."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from calibration._arrays import floats
from calibration._curves_errors import standard_deviations
from calibration._curves_model import MAX_CURVATURE, Array, Sweep, Terms, design
from calibration._curves_search import OUTLIER_SHARE, Found, search
from optinc_hw.errors import CalibrationError

MIN_PERIODS = 0.5
"""Shortest sweep, in periods of the fringe, from which a phase curve is accepted."""
MIN_CONTRAST = 25.0
"""Smallest accepted ratio of fringe amplitude to noise."""
MAX_RELATIVE_SIGMA = 0.07
"""Largest accepted standard deviation of an efficiency, relative to it."""
MIN_POINTS = 8
"""Fewest valid points at different powers."""
MIN_PERIODS_WITH = {
    "background": 1.3, "curvature": 1.3, "drift": 1.3, "gain": 2.0, "harmonic": 2.0, "second": 2.0,
}  # fmt: skip
"""Shortest sweep, in periods, that is accepted where the data ask for a term beyond a plain fringe."""
MAX_BACKGROUND = 2.0
"""Largest accepted slope and bend of the readings together, at the end of a shorter sweep, relative to the fringe."""
MAX_DEVIATION = 17.0
"""Largest accepted sum of squares of slope, bend, harmonic, curvature and gain over their usual sizes, in sweeps of
less than two periods: chance exceeds it in one of a hundred sweeps of usual deviations (6 degrees of freedom)."""
MAX_SECOND = 0.5
"""Largest accepted strength of a second fringe, relative to the first."""
READ_BACK_SHARE = 0.01
"""Share of a sweep's largest power by which a power that was read back at 0 W may be negative."""
LONGEST_PERIOD = 0.1
"""Part of the longest searched period that lies inside the sweep, unless an efficiency range is given."""
_PERIODS_PER_POINT = 0.45  # stays below the sampling limit of half a period per point
_LEAST_LEVELS, _WHOLE = 4, 1e-3
_TWO_PI = 2.0 * np.pi
_COMFORTABLE, _MOST_PERIODS = 1.25, 2.0


@dataclass(frozen=True, eq=False)
class _Curve:
    """The fitted curve of one detector, in natural units, and the way back."""

    terms: Terms
    shape: Array
    coefficients: Array
    middle_w: float
    half_w: float
    level: float
    scale: float

    def readings(self, power: Array) -> Array:
        place = (power - self.middle_w) / self.half_w
        none = np.zeros((len(place), 0))
        flat = Sweep(place, none, none.astype(bool), np.zeros_like(place), 0.0)
        return np.asarray(self.level + self.scale * (design(flat, self.terms, self.shape) @ self.coefficients))


@dataclass(frozen=True)
class PhaseCurveFit:
    """Phase curve of one heater.

    Reading ``= mean + slope P + bend P**2 + amplitude cos(phase(P))`` with
    ``phase(P) = offset + efficiency P + curvature P (P - a - b)`` for a sweep from a to b.

    Parameters
    ----------
    efficiency
        Phase per power in rad/W, positive, on average over the sweep; what the sweep shows, so heat that turns
        neighbouring phases counts too.
    offset
        Phase at zero power of the first fringe in rad, in [0, 2 pi).
    amplitude, mean
        Fringe amplitude (> 0) and mean at zero power of the first fringe in the unit of the readings.
    slope, bend
        Linear and quadratic part of the first fringe, in the unit of the readings per W and per W^2.
    curvature
        Quadratic part of the phase in rad/W^2.
    efficiency_sigma
        Standard deviation of the efficiency in rad/W: noise as the residuals show it (more where neighbouring
        residuals are alike), usual deviations from a plain fringe that the sweep hides, and a third of what a second
        fringe of 5 % could do without being seen.
    offset_sigma
        Standard deviation of the offset in rad.
    curvature_sigma
        Standard deviation of the curvature in rad/W^2.
    contrast
        Root-sum-square fringe amplitude of all detectors over the noise of a reading.
    periods
        Periods inside the sweep.
    detector
        Which detector has the first fringe.
    sweep_w
        Smallest and largest power of the sweep in W.
    needed_w
        Span of powers in W that a sweep needs for a good verdict, as far as this one tells; NaN if it tells nothing.
    clipped, outliers
        Readings left out because their detector was at its limit, or because they lie too far from the curve.
    terms
        What the data asked for beyond a plain fringe and its usual deviations: ``"background"`` (slope and bend of the
        readings), ``"curvature"`` (of the phase), ``"gain"`` (the light changes along the sweep), ``"harmonic"`` (a
        detector is not linear), ``"drift"`` (readings drift in time), ``"second"`` (another fringe).
    second_efficiency, second_strength
        Efficiency in rad/W of the second fringe and its amplitude relative to the first; NaN and 0 without one.
    good
        The verdict; see `fit_phase_curve` for its criteria.
    reason
        Why not good, or an empty string.
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
    bend: float = float("nan")
    curvature: float = float("nan")
    curvature_sigma: float = float("nan")
    detector: int = -1
    sweep_w: tuple[float, float] = (float("nan"), float("nan"))
    needed_w: float = float("nan")
    clipped: int = 0
    outliers: int = 0
    terms: tuple[str, ...] = ()
    second_efficiency: float = float("nan")
    second_strength: float = 0.0
    _curve: _Curve | None = field(default=None, repr=False, compare=False)

    @classmethod
    def rejected(cls, reason: str) -> "PhaseCurveFit":
        """Return the verdict on a sweep that cannot be fitted at all; its numbers are NaN."""
        return cls(*(float("nan"),) * 7, 0.0, 0.0, False, reason)

    def phase(self, power_w: ArrayLike) -> Array:
        """Return the phase in rad at heater powers in W, continuous in power."""
        power = floats("power_w", power_w)
        return np.asarray(self.offset + self.efficiency * power + self.curvature * power * (power - sum(self.sweep_w)))

    def readings(self, power_w: ArrayLike) -> Array:
        """Return the fitted readings of the first fringe's detector, all terms but a drift in time included."""
        power = floats("power_w", power_w)
        if self._curve is None:
            return np.full_like(power, np.nan)
        return self._curve.readings(power.ravel()).reshape(power.shape)


def fit_phase_curve(
    power_w: ArrayLike, detected_w: ArrayLike, *, efficiency_range: tuple[float, float] | None = None
) -> PhaseCurveFit:
    """Fit the phase curve of one heater to one or several fringes with a common period.

    A single phase enters every detector's power as one exact sinusoid, so all detectors share the efficiency.  What a
    real sweep adds to it (slope and bend of the readings, a bent phase, light that changes, a second harmonic) is
    always fitted, but held to its usual size, which the constants of `calibration._curves_model` state: a short sweep
    that could not tell it from the fringe then gives a larger standard deviation.  Terms are released, a drift or a
    second fringe taken up, only if an F test asks for it (chance 1e-3 by noise alone, 1e-6 for a second fringe).  The
    efficiency is searched on a grid, so no start value is needed.  Readings at a detector's limit and outliers are
    left out.

    Points at even steps cannot tell a fringe from its alias with more than half a period a point: sweep finely
    enough for the shortest period that is possible, or state ``efficiency_range``.

    The verdict is good if all of these hold:

    * `MIN_POINTS` valid points at different powers,
    * a contrast of at least `MIN_CONTRAST`; with few readings also a plain fringe that noise makes in less than 1e-3
      of sweeps,
    * at least `MIN_PERIODS` periods in the sweep, and `MIN_PERIODS_WITH` where a term was released or taken up; two
      where slope and bend together exceed the fringe by `MAX_BACKGROUND`, or all deviations from a plain fringe
      together their usual size by `MAX_DEVIATION`,
    * a standard deviation of the efficiency of at most `MAX_RELATIVE_SIGMA` of it,
    * an efficiency inside the searched range, a phase that bends by less than `MAX_CURVATURE` of half the sweep's,
    * no other efficiency, more than 3 % away, within 5 standard deviations of the data,
    * points that resolve a second harmonic, where the data ask for one,
    * at most one reading in 8 left out as an outlier (one is always allowed),
    * a second fringe, if any, of at most `MAX_SECOND` of the first.

    Parameters
    ----------
    power_w
        Heater powers (points,) in W, in the order of acquisition, which may be any; none negative by more than
        `READ_BACK_SHARE` of the largest. NaN, Inf or a mask marks an invalid point, which is left out.
    detected_w
        Readings (points,) or (points, detectors) in W; NaN, Inf or a mask marks an invalid one, which is left out.
    efficiency_range
        Smallest and largest efficiency in rad/W to consider; None derives it from the sweep: 0.1 periods up to
        what the points resolve.

    Returns
    -------
    PhaseCurveFit
        Offset, amplitude, mean, slope and bend belong to the detector with the largest fringe.  A sweep that does not
        support a result gives ``good = False`` and the reason.

    Raises
    ------
    CalibrationError
        If arguments are no real numbers, shapes do not agree, a power is negative, or the range does not hold
        0 < smallest < largest.
    """
    searched = None if efficiency_range is None else _checked_range(efficiency_range)
    power, readings = _checked_sweep(power_w, detected_w)
    distinct = len(np.unique(power))
    if distinct < MIN_POINTS:
        return PhaseCurveFit.rejected(f"only {distinct} valid points at different powers; {MIN_POINTS} are needed")
    span = float(np.ptp(power))
    low, high = searched or (
        _TWO_PI * LONGEST_PERIOD / span, _TWO_PI * _PERIODS_PER_POINT * (len(power) - 1) / span
    )  # fmt: skip
    level, scale = _unit(readings)
    if scale == 0.0:
        return PhaseCurveFit.rejected("no clear fringe: the readings do not move")
    found = search(_natural(power, readings, level, scale), (low * span / 2.0, high * span / 2.0))
    fit = _describe(found, power, level, scale)
    reason = _complaint(fit, found, (low, high))
    if not reason:
        return replace(fit, good=True)
    wanted = MIN_PERIODS if fit.periods < MIN_PERIODS else _COMFORTABLE
    return replace(fit, reason=reason, needed_w=span * wanted / fit.periods if fit.periods < wanted else np.nan)


def _checked_sweep(power_w: ArrayLike, detected_w: ArrayLike) -> tuple[Array, Array]:
    power, readings = floats("power_w", power_w), floats("detected_w", detected_w)
    if readings.ndim == 1:
        readings = readings[:, None]
    if power.ndim != 1 or readings.ndim != 2 or len(readings) != len(power) or readings.shape[1] == 0:
        raise CalibrationError(
            f"a sweep needs powers (points,) and readings (points, detectors), got {power.shape}, {readings.shape}"
        )
    known = power[np.isfinite(power)]
    if known.size and known.min() < -READ_BACK_SHARE * np.abs(known).max():
        raise CalibrationError(
            f"power_w holds {known.min():.4g} W; a heater's electrical power is not negative: give V I, no difference"
        )
    valid = np.isfinite(power) & np.isfinite(readings).any(axis=1)
    return power[valid], readings[valid]


def _checked_range(efficiency_range: tuple[float, float]) -> tuple[float, float]:
    ends = floats("efficiency_range", efficiency_range)
    if ends.shape != (2,) or not 0.0 < ends[0] < ends[1] < np.inf:
        raise CalibrationError(
            f"efficiency_range: efficiencies {ends.tolist()!r} rad/W are no range; give 0 < smallest < largest"
        )
    return float(ends[0]), float(ends[1])


def _unit(readings: Array) -> tuple[Array, float]:
    """Return a level for each detector, and the largest spread of one, that outliers do not move."""
    with np.errstate(invalid="ignore"):
        masked = np.where(np.isfinite(readings), readings, np.nan)
    alive = np.isfinite(masked).any(axis=0)
    level, spread = np.zeros(masked.shape[1]), np.zeros(masked.shape[1])
    low, level[alive], high = np.nanpercentile(masked[:, alive], [10.0, 50.0, 90.0], axis=0)
    spread[alive] = high - low
    return level, float(spread.max())


def _natural(power: Array, readings: Array, level: Array, scale: float) -> Sweep:
    middle, half = (power.max() + power.min()) / 2.0, np.ptp(power) / 2.0
    used = np.isfinite(readings)
    relative = np.where(used, (np.where(used, readings, 0.0) - level) / scale, 0.0)
    rounding = max(1e-14 * float(np.abs(level).max() + scale), _converter_step(readings) / np.sqrt(12.0)) / scale
    turn = np.linspace(-1.0, 1.0, len(power))
    return Sweep((power - middle) / half, relative, used, turn, rounding)


def _converter_step(readings: Array) -> float:
    """Return the largest step of a detector whose readings are multiples of one, repeated ones among them; else 0."""
    largest = 0.0
    for values in readings.T:
        known = values[np.isfinite(values)]
        levels = np.unique(known)
        if not _LEAST_LEVELS <= len(levels) < len(known):
            continue
        steps = np.diff(levels)
        multiples = steps / steps.min()
        if np.abs(multiples - np.rint(multiples)).max() < _WHOLE:
            largest = max(largest, float(steps.min()))
    return largest


def _describe(found: Found, power: Array, level: Array, scale: float) -> PhaseCurveFit:
    best = found.best
    middle, half = float(power.max() + power.min()) / 2.0, float(np.ptp(power)) / 2.0
    fringes = best.coefficients[3:5]
    amplitudes = np.hypot(*fringes)
    first, strength = int(np.argmax(amplitudes)), float(np.linalg.norm(amplitudes))
    turns_sigma, sagitta_sigma, offset_sigma = standard_deviations(best, first, found.pattern, middle / half)
    turns, sagitta = float(best.shape[0]), float(best.shape[1])
    curvature = sagitta / half**2
    cosine, sine = fringes[:, first]
    offset = np.arctan2(-sine, cosine) - turns * middle / half + curvature * float(power.min() * power.max())
    mean, slope, bend = scale * best.coefficients[:3, first] / half ** np.arange(3.0)
    second = float(np.linalg.norm(best.coefficients[-2:])) if best.terms.second else 0.0
    return PhaseCurveFit(
        efficiency=turns / half, offset=float(offset % _TWO_PI % _TWO_PI), amplitude=scale * float(amplitudes[first]),
        mean=float(level[first] + mean - slope * middle + bend * middle**2), slope=float(slope - 2.0 * bend * middle),
        efficiency_sigma=turns_sigma / half,
        offset_sigma=offset_sigma,
        contrast=strength / best.noise if strength > 0.0 else 0.0, periods=turns / np.pi, good=False, reason="",
        bend=float(bend), curvature=curvature, curvature_sigma=sagitta_sigma / half**2,
        detector=first, sweep_w=(float(power.min()), float(power.max())), clipped=found.clipped,
        outliers=found.outliers, terms=best.terms.names,
        second_efficiency=float(best.shape[-1]) / half if best.terms.second else float("nan"),
        second_strength=second / strength if strength > 0.0 else 0.0,
        _curve=_Curve(best.terms, best.shape, best.coefficients[:, first], middle, half, float(level[first]), scale),
    )  # fmt: skip


def _complaint(fit: PhaseCurveFit, found: Found, searched: tuple[float, float]) -> str:
    best, half = found.best, np.ptp(fit.sweep_w) / 2.0
    if not fit.contrast >= MIN_CONTRAST:
        return f"contrast {fit.contrast:.2g} is below {MIN_CONTRAST:g}: no clear fringe"
    if found.may_be_noise():
        return "no clear fringe: noise alone may look like this at so few points; take more"
    if fit.periods < MIN_PERIODS:
        needed = 2.0 * half * MIN_PERIODS / fit.periods
        return f"range too short: {fit.periods:.2f} periods, {MIN_PERIODS:g} are needed (sweep at least {needed:.3g} W)"
    relative = fit.efficiency_sigma / fit.efficiency
    if not relative <= MAX_RELATIVE_SIGMA:
        return (
            f"efficiency {fit.efficiency:.4g} rad/W is uncertain by {relative:.1%} ({MAX_RELATIVE_SIGMA:.0%} allowed); "
            "take more points or a longer sweep"
        )
    periods = max((MIN_PERIODS_WITH[name] for name in fit.terms), default=MIN_PERIODS)
    if float(np.abs(best.coefficients[1:3, fit.detector]).sum()) > MAX_BACKGROUND * best.size:
        periods = _MOST_PERIODS
    if best.oddity > MAX_DEVIATION:
        periods = max(periods, _MOST_PERIODS)
    if fit.periods < periods:
        what = ", ".join(fit.terms) or "several deviations at once"
        return (
            f"the sweep shows more than a plain fringe ({what}); {periods:g} periods tell them apart, "
            f"it has {fit.periods:.2f}"
        )
    if "harmonic" in fit.terms and fit.periods > _PERIODS_PER_POINT * len(np.unique(best.sweep.place)) / 2.0:
        return (
            f"the points do not resolve the second harmonic that the sweep shows; take {4.5 * fit.periods:.0f} or more"
        )
    if found.outliers > max(1, best.sweep.used.size // OUTLIER_SHARE):
        return f"{found.outliers} of {best.sweep.used.size} readings lie too far from the curve"
    margin = 1e-3 * (searched[1] - searched[0])
    if fit.efficiency > searched[1] - margin or fit.efficiency < searched[0] + margin:
        return f"efficiency {fit.efficiency:.4g} rad/W lies at the edge of the searched range; widen it or add points"
    if abs(best.shape[1]) > 0.99 * MAX_CURVATURE * best.shape[0]:
        return "the phase is far from proportional to the power; check the powers and the heater"
    if fit.second_strength > MAX_SECOND:
        return (
            f"two fringes, of {fit.efficiency:.4g} and {fit.second_efficiency:.4g} rad/W, the second with "
            f"{fit.second_strength:.0%} of the first: which is the heater's? State efficiency_range, or move the others"
        )
    if np.isfinite(rival := found.rival()):
        return (
            f"efficiencies of {fit.efficiency:.4g} and {rival / half:.4g} rad/W both explain the sweep; take "
            "more points or a longer sweep"
        )
    return ""
