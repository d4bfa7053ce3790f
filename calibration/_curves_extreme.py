"""Search for a null or a maximum in one setting: attenuators, modulators, a local oscillator's phase."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from calibration._arrays import floats, number
from calibration._checks import require_whole
from optinc_hw.errors import CalibrationError

MAX_EVALUATIONS = 40
"""Readings that a search may take unless told otherwise."""
_GOLDEN = (3.0 - np.sqrt(5.0)) / 2.0
_FIRST_STEP = 0.05
_LOPSIDED = 50.0
_FLAT_TRIES = 4
_CLEAR_RISE = 8.0
_FEWEST = 5
_BESIDE = 1e-6


@dataclass(frozen=True)
class Extreme:
    """What a search for an extreme found.

    Parameters
    ----------
    setting, reading
        The best setting and its reading; the mean of them if it was read more than once.
    uncertainty
        Half the interval, in units of the setting, that still holds the extreme.
    kind
        "minimum" or "maximum".
    converged
        Whether the interval is as small as asked for, or noise hides the rest.
    at_limit
        Whether the best setting is a limit: the extreme may lie beyond it.
    reason
        How the search ended.
    settings, readings
        All settings tried, in order, and their readings.
    """

    setting: float
    reading: float
    uncertainty: float
    kind: Literal["minimum", "maximum"]
    converged: bool
    at_limit: bool
    reason: str
    settings: tuple[float, ...] = field(repr=False)
    readings: tuple[float, ...] = field(repr=False)


def find_extreme(
    measure: Callable[[float], float], start: float, limits: tuple[float, float], *, tolerance: float,
    kind: Literal["minimum", "maximum"] = "minimum", noise: float = 0.0, max_evaluations: int = MAX_EVALUATIONS,
) -> Extreme:  # fmt: skip
    """Find the nearest minimum or maximum of a reading by moving one setting inside its limits.

    Walks downhill (uphill) from the start in growing steps until three settings enclose an extreme, then narrows the
    interval with parabolas and golden sections.  No setting outside the limits is ever asked for.  The search ends

    * converged, when the extreme is enclosed within ``tolerance``,
    * converged, when noise hides it in a smaller interval: a parabola through readings that rise out of the noise then
      places it, with the uncertainty that is stated,
    * converged and ``at_limit``, when the reading still improves at a limit,
    * not converged, when the evaluations are used up, those that are left do not tell it from noise, or the reading
      nowhere differs by more than the noise.

    Parameters
    ----------
    measure
        Sets the setting and returns a reading.
    start
        First setting.
    limits
        Smallest and largest setting.
    tolerance
        Half-width of the interval to reach, in units of the setting.
    kind
        What to look for.
    noise
        Standard deviation of a reading.
    max_evaluations
        Largest number of readings, at least 5.

    Raises
    ------
    CalibrationError
        If start, limits, tolerance, noise, kind or the number of evaluations make no search, or a reading is no finite
        number.
    """
    start, low, high, tolerance, noise = _checked(start, limits, tolerance, noise, kind)
    require_whole("max_evaluations", max_evaluations, _FEWEST)
    search = _Search(measure, (low, high), tolerance, 1.0 if kind == "minimum" else -1.0, noise, max_evaluations)
    converged, reason = search.run(start)
    setting = search.best()
    below, above = search.enclosure(setting)
    uncertainty = max(above - setting, setting - below)
    if converged and search.answer is not None:
        setting, uncertainty = search.answer
    return Extreme(
        setting, search.sign * search.known()[setting], uncertainty, kind, converged, setting in (low, high), reason,
        tuple(search.settings), tuple(search.sign * cost for cost in search.costs),
    )  # fmt: skip


def _checked(
    start: float, limits: tuple[float, float], tolerance: float, noise: float, kind: str
) -> tuple[float, float, float, float, float]:
    """Return start, both limits, tolerance and noise as plain floats."""
    ends = floats("limits", limits)
    if ends.shape != (2,):
        raise CalibrationError(f"limits must be the smallest and the largest setting, got shape {ends.shape}")
    begin, width, sigma = (number(*pair) for pair in (("start", start), ("tolerance", tolerance), ("noise", noise)))
    low, high = (float(end) for end in ends)
    if not (np.isfinite([low, high]).all() and low < high and low <= begin <= high):
        raise CalibrationError(f"a search from {begin!r} between {low!r} and {high!r} is none; start inside the limits")
    if not 0.0 < width < np.inf or not 0.0 <= sigma < np.inf:
        raise CalibrationError(
            f"tolerance = {width!r}, noise = {sigma!r}: a tolerance above 0 and a noise of at least 0 are needed"
        )
    if kind not in ("minimum", "maximum"):
        raise CalibrationError(f"unknown kind {kind!r} of an extreme; choose minimum or maximum")
    return begin, low, high, width, sigma


@dataclass(eq=False)
class _Search:
    measure: Callable[[float], float]
    limits: tuple[float, float]
    tolerance: float
    sign: float
    noise: float
    evaluations: int
    settings: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    answer: tuple[float, float] | None = None

    def run(self, start: float) -> tuple[bool, str]:
        self._try(start)
        width = self.limits[1] - self.limits[0]
        step = max(_FIRST_STEP * width, self.tolerance)
        first = min(start + step, self.limits[1])
        if first - start < 0.5 * step:
            first = max(start - step, self.limits[0])
        self._try(first)
        if not self._enclose():
            return self._unenclosed()
        return self._narrow()

    def enclosure(self, setting: float) -> tuple[float, float]:
        """Return the tried settings next to one, or the limits."""
        below = [s for s in self.settings if s < setting]
        above = [s for s in self.settings if s > setting]
        return max(below, default=self.limits[0]), min(above, default=self.limits[1])

    def _inside(self, setting: float) -> float:
        """Return the nearest setting between the limits; a limit just beside it, as only rounding tells them apart."""
        inside = float(min(max(setting, self.limits[0]), self.limits[1]))
        limit = min(self.limits, key=lambda limit: abs(limit - inside))
        return limit if abs(limit - inside) < _BESIDE * self.tolerance else inside

    def _try(self, setting: float) -> None:
        inside = self._inside(setting)
        cost = self.sign * number(f"the reading at {inside:.6g}", self.measure(inside))
        if not np.isfinite(cost):
            raise CalibrationError(f"the reading at {inside:.6g} is {cost!r}; check the detector's range")
        self.settings.append(inside)
        self.costs.append(cost)

    def known(self) -> dict[float, float]:
        """Return the mean cost of every setting tried; one that was read again has one cost like all others."""
        read: dict[float, list[float]] = {}
        for setting, cost in zip(self.settings, self.costs, strict=True):
            read.setdefault(setting, []).append(cost)
        return {setting: sum(costs) / len(costs) for setting, costs in read.items()}

    def best(self) -> float:
        """Return the setting with the lowest cost, a limit if others read alike."""
        known = self.known()
        return min(known, key=lambda setting: (known[setting], setting not in self.limits))

    def _enclose(self) -> bool:
        """Step from the best setting, further each time, until it has worse ones on both sides."""
        factor = 1.0
        while len(self.settings) < self.evaluations:
            best = self.best()
            below, above = min(self.settings) < best, max(self.settings) > best
            if (below or best == self.limits[0]) and (above or best == self.limits[1]):
                if self._flat() and len(self.settings) < 2 * _FLAT_TRIES:
                    self._widen()
                    continue
                return not self._flat()
            factor *= 1.6
            length = factor * max(_FIRST_STEP * (self.limits[1] - self.limits[0]), self.tolerance)
            self._try(best + length if not above else best - length)
        return False

    def _widen(self) -> None:
        """Try where no setting has been: the middle of the widest gap between settings and limits."""
        known = np.sort(np.array([*self.limits, *self.settings]))
        gap = int(np.argmax(np.diff(known)))
        self._try(float(known[gap] + known[gap + 1]) / 2.0)

    def _flat(self) -> bool:
        return max(self.costs) - min(self.costs) <= 4.0 * self.noise

    def _unenclosed(self) -> tuple[bool, str]:
        if self._flat():
            return False, f"the reading does not change by more than its noise of {self.noise:.3g} over the range"
        return False, f"no extreme was enclosed with {len(self.settings)} readings"

    def _narrow(self) -> tuple[bool, str]:
        while len(self.settings) < self.evaluations:
            best = self.best()
            low, high = self.enclosure(best)
            if self.noise > 0.0 and self._rise(low, high) < _CLEAR_RISE * self.noise:
                read = len(self.settings)
                if self._out_of_noise(best):
                    return True, f"placed by readings that rise out of the noise of {self.noise:.3g}"
                if len(self.settings) == read:
                    break
                continue
            if max(high - best, best - low) <= self.tolerance:
                if best in self.limits:
                    return True, f"the best setting is the limit {best:.6g}: the extreme may lie beyond it"
                return True, f"enclosed within {self.tolerance:.3g}"
            self._try(self._next(low, best, high))
        low, high = self.enclosure(self.best())
        where = f"it lies between {low:.6g} and {high:.6g}"
        if len(self.settings) < self.evaluations:
            return False, f"{len(self.settings)} readings do not tell it from noise of {self.noise:.3g}; about {where}"
        return False, f"{len(self.settings)} readings used up; {where}"

    def _rise(self, low: float, high: float) -> float:
        """Return the smaller rise of the readings from the best one to either side; infinite where none was taken."""
        known = self.known()
        return min(known.get(low, np.inf), known.get(high, np.inf)) - min(known.values())

    def _out_of_noise(self, best: float) -> bool:
        """Read ever further from the best setting until both sides rise out of the noise; then place the extreme.

        False if a clearly better setting turned up on the way, all between the limits was tried in vain, or the
        evaluations are used up.
        """
        length = 2.0 * self.tolerance
        lowest = min(self.known().values())
        while len(self.settings) + 3 <= self.evaluations:
            low, high = self._inside(best - length), self._inside(best + length)
            for side in (low, high):
                if side not in self.settings:
                    self._try(side)
            known = self.known()
            rises = {side: known[side] - lowest for side in (low, high)}
            if min(rises.values()) < -_CLEAR_RISE * self.noise:
                return False
            clear = {side: rise > _CLEAR_RISE * self.noise for side, rise in rises.items()}
            if all(clear[side] or side in self.limits for side in clear) and self._place(best, low, high):
                return True
            if best in self.limits and all(clear[side] for side in clear if side != best):
                self.answer = best, max(high - best, best - low)
                return True
            if (low, high) == self.limits:
                return False
            length *= 2.0
        return False

    def _place(self, best: float, low: float, high: float) -> bool:
        """Fit a parabola to all readings in an interval and read its lowest point there; False if noise may bend it."""
        inside = [(s, c) for s, c in zip(self.settings, self.costs, strict=True) if low <= s <= high]
        place, cost = np.array(inside).T
        scale = max(high - best, best - low)
        design = np.stack([np.ones_like(place), (place - best) / scale, ((place - best) / scale) ** 2], axis=1)
        parabola, *_ = np.linalg.lstsq(design, cost, rcond=None)
        covariance = np.linalg.pinv(design.T @ design) * self.noise**2
        if parabola[2] <= 3.0 * np.sqrt(covariance[2, 2]):
            return False
        vertex = best - 0.5 * scale * parabola[1] / parabola[2]
        setting = self._inside(min(max(vertex, low), high))
        if not low <= vertex <= high and setting not in self.limits:
            return False
        gradient = np.array([0.0, -0.5 / parabola[2], 0.5 * parabola[1] / parabola[2] ** 2])
        sigma = float(np.sqrt(max(gradient @ covariance @ gradient, 0.0)))
        self._try(setting)
        self.answer = setting, float(max(self.tolerance, 3.0 * scale * sigma))
        return True

    def _next(self, low: float, best: float, high: float) -> float:
        """Return the lowest point of the parabola through three settings, or a golden section of the larger part."""
        larger = (low, best) if best - low > high - best else (best, high)
        section = best + _GOLDEN * (larger[0] + larger[1] - 2.0 * best)
        if low not in self.settings or high not in self.settings or low == best or high == best:
            return float(section)
        cost = self.known()
        left, right = best - low, high - best
        rise_left, rise_right = cost[low] - cost[best], cost[high] - cost[best]
        denominator = left * rise_right + right * rise_left
        if denominator <= 0.0 or max(left, right) > _LOPSIDED * min(left, right):
            return float(section)
        vertex = best + 0.5 * (left**2 * rise_right - right**2 * rise_left) / -denominator
        # A vertex on top of the best setting tells nothing; half a tolerance beside it closes the larger side.
        nudge = 0.9 * self.tolerance
        if abs(vertex - best) < nudge:
            vertex = best + nudge if right > left else best - nudge
        return float(vertex if low < vertex < high else section)
