"""Search for the curve of a sweep: every start, left-out readings, terms that the data ask for."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import fdtrc, stdtrit

from calibration._curves_fit import TYPICAL, fit_curve, fit_shape, grid_costs, local_minima, second_costs
from calibration._curves_model import NOISE_WEIGHT, TERMS, Array, Mask, Projection, Sweep, Terms

TERM_CHANCE = 1e-3
"""A further term is taken up if noise alone would ask for it less often than this (F test)."""
SECOND_CHANCE = 1e-6
"""The same for a second fringe, which may have any period."""
OUTLIER_CHANCE = 1e-3
"""A reading is left out if noise alone would throw one of the sweep's so far less often than this (Student's t)."""
OUTLIER_SIZE = 0.01
"""No reading closer to the curve than this share of the largest fringe is left out."""
OUTLIER_SHARE = 8
"""Not more than one reading in so many may be left out as an outlier (one is always allowed)."""
RUN = 3
"""So many readings one after the other are no outliers: something moves them all, and they stay."""
FRINGE_CHANCE, FEW = 1e-3, 4.0
"""With fewer readings than this beyond the parameters, a plain fringe must explain the sweep so well that noise alone
would do it less often than the first number, at any of the periods that the points tell apart (F test)."""
PATTERN_SIGMA = 1.5
"""Correlation of neighbouring residuals, in standard deviations, above which they make values less certain."""
AMBIGUOUS_SIGMA = 5.0
"""Another efficiency is ruled out only if the sweep contradicts it by so many standard deviations."""
DIFFERENT = 0.03
"""Relative difference from which an efficiency is another one."""
_FENCE = 6.0
_CLEAR = 30.0
_SUSPICIOUS_CHANCE, _SUSPICIOUS_MAD = 0.05, 5.5
_GRID_STEP = np.pi / 16.0
_STARTS, _ALL_STARTS, _RIVALS = 2, 5, 4
_BENDS = (0.0, -0.07, 0.07, -0.14, 0.14)
_STRONGEST = 4
_ROUGH_STEPS, _ROUGH = 4, 4.0
_LEVELS = 4
_PROMISING, _HOPELESS = 0.05, 0.15
_TELLABLE = np.pi / 2.0  # half a period of difference over the sweep


@dataclass(frozen=True)
class Found:
    """The curve of a sweep and how it was found.

    Parameters
    ----------
    best
        The curve, fitted to what was used.
    clipped
        Readings left out because they stand at their detector's limit while the curve goes beyond it.
    outliers
        Readings left out because they lie too far from the curve.
    pattern
        By how much neighbouring residuals that are alike make values less certain (1 if they are not): as far as they
        are, something bends the curve that no term describes, and may move every value as far as its size allows.
    limits
        Half-sweep phases that were searched.
    """

    best: Projection
    clipped: int
    outliers: int
    pattern: float
    limits: tuple[float, float]

    def may_be_noise(self) -> bool:
        """Tell whether noise alone may have made the fringe (see `FRINGE_CHANCE`)."""
        return self.best.freedom < FEW and _plain_chance(self.best) > FRINGE_CHANCE

    def rival(self) -> float:
        """Half-sweep phase of another curve that the sweep does not rule out; NaN if there is none."""
        return _rival(self.best, _grid(self.limits), self.limits)


def search(sweep: Sweep, limits: tuple[float, float]) -> Found:
    """Find the curve with half-sweep phases within ``limits``."""
    fenced = _beyond_fence(sweep)
    tied = _tied_extremes(sweep) & ~fenced
    clean = sweep.without(fenced | tied)
    grid = _grid(limits)
    best = fit_curve(_lowest(clean, _starts(clean, grid, (0.0,), _STARTS), limits), limits)
    if _is_suspicious(best):
        best = _robust(clean, grid, limits, best)
    elif _contrast(best) < _CLEAR:
        other = _lowest(clean, _starts(clean, grid, _BENDS, _ALL_STARTS), limits)
        best = min(best, fit_curve(other, limits), key=_noise)
    best, clipped = _without_clipped(best, sweep, tied, limits)
    best = _strongest_first(_with_terms(best, grid, limits), limits)
    outliers = sweep.used & ~best.sweep.used & ~clipped
    structure = _runs(outliers)
    if structure.any():
        best = fit_curve(_refitted(best, replace(best.sweep, used=best.sweep.used | structure), limits), limits)
    return Found(best, int(clipped.sum()), int((outliers & ~structure).sum()), _pattern(best), limits)


def _grid(limits: tuple[float, float]) -> Array:
    return np.linspace(*limits, int(np.ceil((limits[1] - limits[0]) / _GRID_STEP)) + 3)


def _beyond_fence(sweep: Sweep) -> Mask:
    """Tell which readings are so far from the others of their detector that no fringe reaches them."""
    masked = np.where(sweep.used, sweep.readings, np.nan)
    with np.errstate(invalid="ignore"):
        low, middle, high = (_quantile(masked, share) for share in (0.1, 0.5, 0.9))
        far = np.abs(masked - middle) > np.maximum(_FENCE * (high - low), OUTLIER_SIZE)
    return np.asarray(far & (high > low) & sweep.used)


def _quantile(masked: Array, share: float) -> Array:
    ordered = np.sort(masked, axis=0)
    valid = np.isfinite(masked).sum(axis=0)
    place = np.clip(np.round(share * (valid - 1)).astype(int), 0, len(masked) - 1)
    return np.asarray(np.take_along_axis(ordered, place[None], axis=0)[0])


def _tied_extremes(sweep: Sweep) -> Mask:
    """Tell which readings repeat their detector's exact extreme, or are of a detector with only a few levels."""
    tied = np.zeros_like(sweep.used)
    for detector, used in enumerate(sweep.used.T):
        values = sweep.readings[used, detector]
        levels, counts = np.unique(values, return_counts=True)
        if len(levels) <= _LEVELS:
            tied[:, detector] = used
            continue
        for level, count in ((levels[0], counts[0]), (levels[-1], counts[-1])):
            if count > 1:
                tied[:, detector] |= used & (sweep.readings[:, detector] == level)
    return tied


def _without_clipped(
    best: Projection, sweep: Sweep, tied: Mask, limits: tuple[float, float]
) -> tuple[Projection, Mask]:
    """Take back the readings at an extreme that the curve does not go beyond; return which stay out."""
    curve, margin = best.curve(), 4.0 * best.noise
    above, below = tied & (curve > sweep.readings + margin), tied & (curve < sweep.readings - margin)
    top = tied & (sweep.readings > np.median(best.curve(), axis=0))
    clipped = (top & above.any(axis=0)) | (tied & ~top & below.any(axis=0))
    back = tied & ~clipped & (np.abs(sweep.readings - curve) <= margin)
    if back.any():
        best = fit_curve(_refitted(best, replace(best.sweep, used=best.sweep.used | back), limits), limits)
    return best, clipped


def _refitted(best: Projection, sweep: Sweep, limits: tuple[float, float], steps: int = _ROUGH_STEPS) -> Projection:
    return fit_shape(sweep, best.terms, best.shape, limits, best.scale, steps)


def _starts(sweep: Sweep, grid: Array, bends: tuple[float, ...], most: int, limit: float = np.inf) -> list[Array]:
    """Return the most promising starts whose cost is below a limit; detectors that hardly move take no part."""
    spread = np.where(sweep.used, sweep.readings, 0.0).std(axis=0)
    strong = sweep.with_columns(np.sort(np.argsort(-spread, kind="stable")[:_STRONGEST]))
    starts: list[tuple[float, Array]] = []
    for bend in bends:
        costs = grid_costs(strong, grid, bend)
        starts += [(costs[p], Terms().start(grid[p], bend * grid[p])) for p in local_minima(costs)[:most]]
    unique: list[Array] = []
    for cost, start in sorted(starts, key=lambda pair: pair[0]):
        if cost <= limit and all(abs(start[0] - other[0]) > _GRID_STEP for other in unique):
            unique.append(start)
    return unique[:most]


def _noise(best: Projection) -> float:
    return best.noise


def _lowest(sweep: Sweep, starts: list[Array], limits: tuple[float, float]) -> Projection:
    fits = [fit_shape(sweep, Terms(), start, limits, TYPICAL, _ROUGH_STEPS) for start in starts]
    return min(fits, key=lambda fit: fit.cost)


def _contrast(best: Projection) -> float:
    return best.size / best.noise


def _deleted(best: Projection) -> Array:
    """Residuals (points, detectors) over their standard deviations, each as if its reading had not been fitted.

    0 where a residual is too small to matter.
    """
    freedom = best.freedom + NOISE_WEIGHT
    inner = best.residual / (best.noise * np.sqrt(1.0 - best.leverage()))
    squared = np.minimum(inner**2, freedom - 1e-9)
    deleted = inner * np.sqrt((freedom - 1.0) / (freedom - squared))
    return np.where(np.abs(best.residual) > OUTLIER_SIZE * best.size * (1.0 - best.leverage()), deleted, 0.0)


def _outlier_limit(best: Projection, readings: int) -> float:
    return -float(stdtrit(max(best.freedom + NOISE_WEIGHT - 1.0, 1.0), OUTLIER_CHANCE / (2.0 * readings)))


def _is_suspicious(best: Projection) -> bool:
    """Whether some residuals are too large among the others (several outliers hide each other from a strict test)."""
    used = best.residual[best.sweep.used]
    if best.freedom < 1.0 or not used.size:
        return False
    typical = 1.4826 * float(np.median(np.abs(used))) * np.sqrt(used.size / best.freedom)
    largest = float(np.abs(used).max())
    limit = -float(stdtrit(best.freedom + NOISE_WEIGHT - 1.0, _SUSPICIOUS_CHANCE / (2.0 * used.size)))
    far = largest > _SUSPICIOUS_MAD * max(typical, 0.2 * best.noise)
    return bool(np.abs(_deleted(best)).max() > limit) or far


def _robust(sweep: Sweep, grid: Array, limits: tuple[float, float], plain: Projection) -> Projection:
    """Fit from many starts, each without the readings that fit it worst; then take back those that do fit."""
    spare = max(1, len(sweep.place) // OUTLIER_SHARE)
    fits = []
    for start in _starts(sweep, grid, _BENDS, _ALL_STARTS):
        trimmed = _trimmed(fit_shape(sweep, Terms(), start, limits, TYPICAL, _ROUGH_STEPS), limits, spare)
        fits.append(trimmed)
    best = min(fits, key=lambda fit: fit.cost)
    restored = _restored(fit_curve(best, limits), sweep, limits)
    if restored.noise**2 * restored.sweep.used.sum() > plain.noise**2 * plain.sweep.used.sum():
        return _restored(_trimmed_only_outliers(plain, limits, spare), sweep, limits)
    return restored


def _trimmed(best: Projection, limits: tuple[float, float], spare: int) -> Projection:
    """Leave out, one after the other and from every detector, the readings that fit worst."""
    for _ in range(spare):
        size = np.abs(best.residual) / np.sqrt(1.0 - best.leverage())
        worst = np.zeros_like(best.sweep.used)
        worst[np.argmax(size, axis=0), np.arange(size.shape[1])] = size.max(axis=0) > 3.0 * best.noise
        worst[np.unravel_index(np.argmax(size), size.shape)] = True
        left = best.sweep.without(worst)
        if (left.used.sum(axis=0) < _LEVELS + 2).all():
            break
        best = _refitted(best, left, limits, 2)
    return best


def _trimmed_only_outliers(best: Projection, limits: tuple[float, float], spare: int) -> Projection:
    """Leave out readings one after the other while the worst is an outlier by itself."""
    for _ in range(spare):
        size = np.abs(_deleted(best))
        if size.max() <= _outlier_limit(best, int(best.sweep.used.sum())):
            break
        worst = np.zeros_like(best.sweep.used)
        worst[np.unravel_index(np.argmax(size), size.shape)] = True
        best = fit_curve(_refitted(best, best.sweep.without(worst), limits), limits)
    return best


def _restored(best: Projection, sweep: Sweep, limits: tuple[float, float]) -> Projection:
    """Take back the readings that the curve found without them does not call outliers."""
    for _ in range(3):
        limit = _outlier_limit(best, int(sweep.used.sum()))
        away = np.abs(np.where(sweep.used, sweep.readings - best.curve(), 0.0))
        near = max(limit * best.noise, OUTLIER_SIZE * best.size)
        kept = sweep.used & (best.sweep.used | (away <= near))
        if (kept == best.sweep.used).all():
            break
        best = fit_curve(_refitted(best, replace(sweep, used=kept), limits), limits)
    return best


def _with_terms(best: Projection, grid: Array, limits: tuple[float, float]) -> Projection:
    """Take up further terms, the most significant first, as long as the data ask for them."""
    while True:
        offers = [offer for offer in _offers(best, grid, limits) if offer[0] < 1.0]
        if not offers:
            return best
        best = fit_curve(min(offers, key=lambda offer: offer[0])[1], limits)


def _offers(best: Projection, grid: Array, limits: tuple[float, float]) -> list[tuple[float, Projection]]:
    """Return curves with one more term, and the chance of each relative to what is allowed."""
    offers = []
    terms, unordered = best.terms, abs(np.corrcoef(best.sweep.place, best.sweep.turn)[0, 1]) < 0.999
    for name in TERMS:
        if getattr(terms, name) or (name == "drift" and not unordered):
            continue
        wider, start = replace(terms, **{name: True}), best.shape
        if name == "second":
            seconds = np.concatenate([limits[0] * np.array([0.3, 0.6]), grid])
            start = np.append(best.shape, seconds[int(np.argmin(second_costs(best, seconds)))])
        fit = fit_shape(best.sweep, wider, start, limits, best.scale, 1)
        if _chance(best, fit) < _PROMISING:
            fit = _refitted(fit, fit.sweep, limits, 20)
        if wider.second and abs(fit.shape[-1] - fit.shape[0]) < _TELLABLE:
            continue
        offers.append((_chance(best, fit) / (SECOND_CHANCE if name == "second" else TERM_CHANCE), fit))
    return offers


def _chance(best: Projection, wider: Projection) -> float:
    """Chance that noise alone makes the wider curve so much better (F test)."""
    detectors = best.sweep.used.shape[1]
    a, b = best.terms, wider.terms
    more = 2 * detectors * ((b.background - a.background) + (b.harmonic - a.harmonic) + (b.second - a.second))
    more += (b.curvature - a.curvature) + (b.gain - a.gain) + detectors * (b.drift - a.drift) + (b.second - a.second)
    if wider.freedom < 1.0:
        return 1.0
    ratio = max(best.cost - wider.cost, 0.0) / more / wider.noise**2
    return float(fdtrc(more, wider.freedom + NOISE_WEIGHT, ratio))


def _plain_chance(best: Projection) -> float:
    """Chance that a plain fringe of any period explains noise as well as it explains the sweep."""
    sweep, free = best.sweep, -1
    angle = best.shape[0] * sweep.place
    columns = np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=1)
    moved, left = 0.0, 0.0
    for readings, used in zip(sweep.readings.T, sweep.used.T, strict=True):
        if used.sum() <= columns.shape[1]:
            continue
        solved, *_ = np.linalg.lstsq(columns[used], readings[used], rcond=None)
        left += float(np.sum((readings[used] - columns[used] @ solved) ** 2))
        moved += float(np.sum((readings[used] - readings[used].mean()) ** 2))
        free += int(used.sum()) - columns.shape[1]
    more = 2 * sweep.used.shape[1] + 1
    if free < 1:
        return 1.0
    ratio = (moved - left) / more / (left / free + sweep.rounding**2)
    return float(fdtrc(more, free, ratio)) * len(sweep.place) / 2.0


def _strongest_first(best: Projection, limits: tuple[float, float]) -> Projection:
    """Let the stronger of two fringes be the first."""
    if not best.terms.second:
        return best
    first, second = np.linalg.norm(best.coefficients[3:5]), np.linalg.norm(best.coefficients[-2:])
    if first >= second or not limits[0] < best.shape[-1] < limits[1]:
        return best
    swapped = best.shape.copy()
    swapped[[0, -1]], swapped[1] = best.shape[[-1, 0]], 0.0
    return fit_curve(fit_shape(best.sweep, best.terms, swapped, limits, best.scale), limits)


def _runs(marked: Mask) -> Mask:
    """Tell which marked readings of a detector follow each other, `RUN` or more in the order of acquisition."""
    found = np.zeros_like(marked)
    for place in range(len(marked) - RUN + 1):
        found[place : place + RUN] |= marked[place : place + RUN].all(axis=0)
    return found


def _pattern(best: Projection) -> float:
    """Return by how much the likeness of neighbours, in power or in time, makes values less certain."""
    used, factor = best.sweep.used, 1.0
    for order in (np.argsort(best.sweep.place, kind="stable"), np.arange(len(used))):
        pairs, total = 0, 0.0
        for detector in range(used.shape[1]):
            row = order[used[order, detector]]
            residual = best.residual[row, detector] / best.noise
            total += float(residual[1:] @ residual[:-1])
            pairs += max(len(row) - 1, 0)
        alike = total / np.sqrt(max(pairs, 1))
        factor = max(factor, 1.0 + (alike - PATTERN_SIGMA) * np.sqrt(pairs))
    return float(np.sqrt(factor))


def _rival(best: Projection, grid: Array, limits: tuple[float, float]) -> float:
    """Half-sweep phase of another curve that explains the sweep nearly as well; NaN if there is none."""
    energy = float(np.sum((best.design[:, 3:5] @ best.coefficients[3:5]) ** 2))
    hopeless = _HOPELESS * energy + (_ROUGH * AMBIGUOUS_SIGMA * best.noise) ** 2
    starts = _starts(best.sweep, grid, (0.0,), _RIVALS + 1, hopeless)
    known = best.shape[[0, -1]] if best.terms.second else best.shape[:1]
    for start in starts:
        if (np.abs(start[0] - known) < np.maximum(DIFFERENT * known, _GRID_STEP)).any():
            continue
        moved = np.append(start, best.shape[len(start) :])
        other = fit_shape(best.sweep, best.terms, moved, limits, best.scale, _ROUGH_STEPS)
        if other.cost - best.cost < (_ROUGH * AMBIGUOUS_SIGMA * best.noise) ** 2:
            other = _refitted(other, other.sweep, limits, 20)
        apart = np.abs(other.shape[0] - known) > DIFFERENT * known
        if apart.all() and other.cost - best.cost < (AMBIGUOUS_SIGMA * best.noise) ** 2:
            return float(other.shape[0])
    return float("nan")
