"""Search for the curve of a sweep: every start, left-out readings, terms that the data ask for."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import fdtrc, stdtrit

from calibration._curves_model import (
    Array,
    Mask,
    Projection,
    Sweep,
    Terms,
    fit_shape,
    grid_costs,
    local_minima,
    second_costs,
)

TERM_CHANCE = 1e-4
"""A further term is taken up if noise alone would ask for it less often than this (F test)."""
SECOND_CHANCE = 1e-6
"""The same for a second fringe, which may have any period."""
OUTLIER_CHANCE = 1e-3
"""A reading is left out if noise alone would throw one of the sweep's so far less often than this (Student's t)."""
OUTLIER_SHARE = 8
"""Not more than one reading in so many may be left out as an outlier (one is always allowed)."""
PATTERN_SIGMA = 4.0
"""Correlation of neighbouring residuals, in standard deviations, that counts as a pattern."""
AMBIGUOUS_SIGMA = 5.0
"""Another efficiency is ruled out only if the sweep contradicts it by so many standard deviations."""
NEGLIGIBLE_CONTRAST = 1000.0
"""Residuals below one part in so many of the fringe are left as they are: nothing is taken up or left out for them."""
DIFFERENT = 0.03
"""Relative difference from which an efficiency is another one."""
_FENCE = 6.0
_CLEAR = 50.0
_SUSPICIOUS_CHANCE, _SUSPICIOUS_MAD = 0.05, 5.5
_GRID_STEP = np.pi / 16.0
_STARTS, _ROBUST_STARTS, _RIVALS = 2, 6, 4
_BENDS = (0.0, -0.07, 0.07, -0.14, 0.14)
_STRONGEST = 4
_ROUGH_STEPS, _ROUGH = 4, 4.0
_LEVELS = 4
_PROMISING, _HOPELESS = 0.01, 0.15
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
        Whether neighbouring residuals are alike: something bends the curve that no term describes.
    rival
        Half-sweep phase of another curve that the sweep does not rule out; NaN if there is none.
    """

    best: Projection
    clipped: int
    outliers: int
    pattern: bool
    rival: float


def search(sweep: Sweep, limits: tuple[float, float]) -> Found:
    """Find the curve with half-sweep phases within ``limits``."""
    fenced = _beyond_fence(sweep)
    tied = _tied_extremes(sweep)
    clean = sweep.without(fenced | tied)
    grid = np.linspace(*limits, int(np.ceil((limits[1] - limits[0]) / _GRID_STEP)) + 3)
    strong = _strongest(clean)
    costs = grid_costs(strong, grid, 0.0)
    starts = [Terms().start(grid[place]) for place in local_minima(costs)[:_STARTS]]
    best = _with_terms(_lowest(clean, starts, limits), grid, limits)
    if _is_suspicious(best):
        best = _robust(clean, grid, limits, best)
    elif _contrast(best) < _CLEAR:
        best = min(best, _with_terms(_lowest(clean, _all_starts(strong, grid), limits), grid, limits), key=_noise)
    best = _strongest_first(best, limits)
    beyond = tied & _goes_beyond(best, sweep)
    dropped = int((clean.used & ~best.sweep.used).sum() + fenced.sum())
    return Found(best, int(beyond.sum()), dropped, _has_pattern(best), _rival(best, grid, limits))


def _beyond_fence(sweep: Sweep) -> Mask:
    """Tell which readings are so far from the others of their detector that no fringe reaches them."""
    masked = np.where(sweep.used, sweep.readings, np.nan)
    with np.errstate(invalid="ignore"):
        low, middle, high = (_quantile(masked, share) for share in (0.1, 0.5, 0.9))
        far = np.abs(masked - middle) > _FENCE * (high - low)
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


def _goes_beyond(best: Projection, sweep: Sweep) -> Mask:
    """Where the curve leaves the range of a detector's readings."""
    curve, margin = best.curve(), 3.0 * best.rms
    top = np.where(sweep.used, sweep.readings, -np.inf).max(axis=0)
    bottom = np.where(sweep.used, sweep.readings, np.inf).min(axis=0)
    return np.asarray((curve > top + margin) | (curve < bottom - margin))


def _strongest(sweep: Sweep) -> Sweep:
    """Return the sweep of the detectors that move most; with the others the grid would only take longer."""
    spread = np.where(sweep.used, sweep.readings, 0.0).std(axis=0)
    return sweep.with_columns(np.sort(np.argsort(-spread, kind="stable")[:_STRONGEST]))


def _all_starts(strong: Sweep, grid: Array) -> list[Array]:
    """Return the most promising starts of all, also with phases that bend."""
    starts: list[tuple[float, Array]] = []
    for bend in _BENDS:
        costs = grid_costs(strong, grid, bend)
        starts += [(costs[p], Terms().start(grid[p], bend * grid[p])) for p in local_minima(costs)[:_ROBUST_STARTS]]
    unique: list[Array] = []
    for _, start in sorted(starts, key=lambda pair: pair[0]):
        if all(abs(start[0] - other[0]) > _GRID_STEP for other in unique):
            unique.append(start)
    return unique[:_ROBUST_STARTS]


def _noise(best: Projection) -> float:
    return best.rms


def _lowest(sweep: Sweep, starts: list[Array], limits: tuple[float, float]) -> Projection:
    fits = [fit_shape(sweep, Terms(), start, limits) for start in starts]
    return min(fits, key=lambda fit: fit.cost)


def _contrast(best: Projection) -> float:
    return float(np.linalg.norm(best.coefficients[3:5])) / best.rms


def _deleted(best: Projection) -> Array:
    """Residuals (points, detectors) over their standard deviations, each as if its reading had not been fitted."""
    freedom = best.freedom
    if freedom < 2:
        return np.zeros_like(best.residual)
    inner = best.residual / (best.rms * np.sqrt(1.0 - best.leverage()))
    squared = np.minimum(inner**2, freedom - 1e-9)
    return np.asarray(inner * np.sqrt((freedom - 1.0) / (freedom - squared)))


def _outlier_limit(freedom: int, readings: int) -> float:
    return -float(stdtrit(max(freedom - 1, 1), OUTLIER_CHANCE / (2.0 * readings)))


def _is_suspicious(best: Projection) -> bool:
    """Whether some residuals are too large among the others (several outliers hide each other from a strict test)."""
    used = best.residual[best.sweep.used]
    if best.freedom < 2 or not used.size or _contrast(best) > NEGLIGIBLE_CONTRAST:
        return False
    typical = 1.4826 * float(np.median(np.abs(used))) * np.sqrt(used.size / best.freedom)
    largest = float(np.abs(used).max())
    limit = -float(stdtrit(best.freedom - 1, _SUSPICIOUS_CHANCE / (2.0 * used.size)))
    return bool(np.abs(_deleted(best)).max() > limit) or largest > _SUSPICIOUS_MAD * typical > 0.0


def _robust(sweep: Sweep, grid: Array, limits: tuple[float, float], plain: Projection) -> Projection:
    """Fit from many starts, each without the readings that fit it worst; then take back those that do fit."""
    spare = max(1, len(sweep.place) // OUTLIER_SHARE)
    fits = []
    for start in _all_starts(_strongest(sweep), grid):
        trimmed = _trimmed(fit_shape(sweep, Terms(), start, limits, _ROUGH_STEPS), limits, spare)
        fits.append(fit_shape(trimmed.sweep, Terms(), trimmed.shape, limits))
    best = min(fits, key=lambda fit: fit.cost)
    restored = _restored(_with_terms(best, grid, limits), sweep, limits)
    if restored.rms**2 * restored.sweep.used.sum() > plain.rms**2 * plain.sweep.used.sum():
        return _restored(_trimmed_only_outliers(plain, limits, spare), sweep, limits)
    return restored


def _trimmed(best: Projection, limits: tuple[float, float], spare: int) -> Projection:
    """Leave out, one after the other and from every detector, the readings that fit worst."""
    for _ in range(spare):
        size = np.abs(best.residual) / np.sqrt(1.0 - best.leverage())
        worst = np.zeros_like(best.sweep.used)
        worst[np.argmax(size, axis=0), np.arange(size.shape[1])] = size.max(axis=0) > 3.0 * best.rms
        worst[np.unravel_index(np.argmax(size), size.shape)] = True
        left = best.sweep.without(worst)
        if (left.used.sum(axis=0) < best.terms.columns + 2).all():
            break
        best = fit_shape(left, best.terms, best.shape, limits, _ROUGH_STEPS)
    return best


def _trimmed_only_outliers(best: Projection, limits: tuple[float, float], spare: int) -> Projection:
    """Leave out readings one after the other while the worst is an outlier by itself."""
    for _ in range(spare):
        size = np.abs(_deleted(best))
        if size.max() <= _outlier_limit(best.freedom, int(best.sweep.used.sum())):
            break
        worst = np.zeros_like(best.sweep.used)
        worst[np.unravel_index(np.argmax(size), size.shape)] = True
        best = fit_shape(best.sweep.without(worst), best.terms, best.shape, limits)
    return best


def _restored(best: Projection, sweep: Sweep, limits: tuple[float, float]) -> Projection:
    """Take back the readings that the curve found without them does not call outliers."""
    for _ in range(3):
        limit = _outlier_limit(best.freedom, int(sweep.used.sum()))
        away = np.abs(np.where(sweep.used, sweep.readings - best.curve(), 0.0))
        kept = sweep.used & (best.sweep.used | (away <= limit * best.rms))
        if (kept == best.sweep.used).all():
            break
        best = fit_shape(replace(sweep, used=kept), best.terms, best.shape, limits)
    return best


def _with_terms(best: Projection, grid: Array, limits: tuple[float, float]) -> Projection:
    """Take up further terms, the most significant first, as long as the data ask for them."""
    while True:
        if _contrast(best) > NEGLIGIBLE_CONTRAST:
            return best
        offers = [offer for offer in _offers(best, grid, limits) if offer[0] < 1.0]
        if not offers:
            return best
        best = min(offers, key=lambda offer: offer[0])[1]


def _offers(best: Projection, grid: Array, limits: tuple[float, float]) -> list[tuple[float, Projection]]:
    """Return curves with one more term, and the chance of each relative to what is allowed."""
    offers = []
    terms, unordered = best.terms, abs(np.corrcoef(best.sweep.place, best.sweep.turn)[0, 1]) < 0.999
    for name in ("gain", "harmonic", "drift", "second"):
        if getattr(terms, name) or (name == "drift" and not unordered):
            continue
        wider = replace(terms, **{name: True})
        rest, tail = best.shape[: 2 + terms.gain], best.shape[2 + terms.gain :]
        if name == "second":
            seconds = np.concatenate([limits[0] * np.array([0.3, 0.6]), grid])
            start = np.append(best.shape, seconds[int(np.argmin(second_costs(best, seconds)))])
        else:
            start = np.concatenate([rest, [0.0], tail]) if name == "gain" else best.shape
        fit = fit_shape(best.sweep, wider, start, limits, _ROUGH_STEPS)
        allowed = SECOND_CHANCE if name == "second" else TERM_CHANCE
        if _chance(best, fit) < _PROMISING:
            fit = fit_shape(best.sweep, wider, fit.shape, limits)
        if wider.second and abs(fit.shape[-1] - fit.shape[0]) < _TELLABLE:
            continue
        offers.append((_chance(best, fit) / allowed, fit))
    return offers


def _chance(best: Projection, wider: Projection) -> float:
    """Chance that noise alone makes the wider curve so much better (F test)."""
    more, freedom = best.freedom - wider.freedom, wider.freedom
    if more <= 0 or freedom < 1:
        return 1.0
    noise = wider.cost + freedom * best.sweep.rounding**2
    return float(fdtrc(more, freedom, max((best.cost - wider.cost) / more / (noise / freedom), 0.0)))


def _strongest_first(best: Projection, limits: tuple[float, float]) -> Projection:
    """Let the stronger of two fringes be the first."""
    if not best.terms.second:
        return best
    first, second = np.linalg.norm(best.coefficients[3:5]), np.linalg.norm(best.coefficients[-2:])
    if first >= second or not limits[0] < best.shape[-1] < limits[1]:
        return best
    swapped = best.shape.copy()
    swapped[[0, -1]], swapped[1] = best.shape[[-1, 0]], 0.0
    return fit_shape(best.sweep, best.terms, swapped, limits)


def _has_pattern(best: Projection) -> bool:
    order = np.argsort(best.sweep.place, kind="stable")
    pairs, total = 0, 0.0
    for detector, used in enumerate(best.sweep.used.T):
        row = order[used[order]]
        residual = best.residual[row, detector] / best.rms
        total += float(residual[1:] @ residual[:-1])
        pairs += max(len(row) - 1, 0)
    return total > PATTERN_SIGMA * np.sqrt(max(pairs, 1)) and best.rms > 3.0 * best.sweep.rounding


def _rival(best: Projection, grid: Array, limits: tuple[float, float]) -> float:
    """Half-sweep phase of another curve that explains the sweep nearly as well; NaN if there is none."""
    costs = grid_costs(_strongest(best.sweep), grid, 0.0)
    tried = 0
    energy = float(np.sum((best.design[:, 3:5] @ best.coefficients[3:5]) ** 2))
    hopeless = _HOPELESS * energy + (_ROUGH * AMBIGUOUS_SIGMA * best.rms) ** 2
    for place in local_minima(costs):
        if costs[place] > hopeless:
            break
        known = best.shape[[0, -1]] if best.terms.second else best.shape[:1]
        if (np.abs(grid[place] - known) < np.maximum(DIFFERENT * known, _GRID_STEP)).any():
            continue
        start = best.shape.copy()
        start[0], start[1] = grid[place], 0.0
        other = fit_shape(best.sweep, best.terms, start, limits, _ROUGH_STEPS)
        if other.cost - best.cost < (_ROUGH * AMBIGUOUS_SIGMA * best.rms) ** 2:
            other = fit_shape(best.sweep, best.terms, other.shape, limits)
        apart = np.abs(other.shape[0] - known) > DIFFERENT * known
        if apart.all() and other.cost - best.cost < (AMBIGUOUS_SIGMA * best.rms) ** 2:
            return float(other.shape[0])
        tried += 1
        if tried == _RIVALS:
            break
    return float("nan")
