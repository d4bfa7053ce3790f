"""Whole turns added to phases so that heaters behind crosstalk dissipate least; bounds that mostly prove the answer.

Everything here is in turns (2 pi).  With the missing phases ``f``, whole turns ``m`` and the crosstalk matrix ``X``,
the heaters' own phases are ``q = B (f + m)``, ``B = X^-1``; wanted is the integer ``m`` with ``0 <= q <= ceiling``
and the least total power ``price @ q``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError

Array = NDArray[np.float64]

ZERO = 1e-9
"""Own phases this little below zero, or above their ceiling, are round-off; in turns (6e-9 rad)."""
FAR = 1e9
"""Stands for no limit; finite, so that zero times it is zero; in turns."""
_SAME_POWER = 1e-9
"""Relative difference of total powers that is no difference."""
_ROUNDS = 60


@dataclass(frozen=True)
class Heating:
    """How own phases, total phases and power hang together.

    Parameters
    ----------
    crosstalk
        X (h, h), row = heated phase.
    price
        Power per turn of own phase (h,) in W, > 0.
    """

    crosstalk: Array
    price: Array

    @classmethod
    def of(cls, crosstalk: Array, efficiency: Array) -> "Heating":
        """Return the heating of a chip with this crosstalk and these efficiencies in rad/W."""
        return cls(crosstalk, 2.0 * np.pi / efficiency)

    @cached_property
    def inverse(self) -> Array:
        """The matrix B (h, h) from total to own phases."""
        try:
            return np.asarray(np.linalg.inv(self.crosstalk), dtype=np.float64)
        except np.linalg.LinAlgError:
            raise MatrixError(
                "the crosstalk matrix is singular: its heaters cannot set their phases independently"
            ) from None

    @cached_property
    def diagonal(self) -> Array:
        """Diagonal (h,) of B."""
        return np.diagonal(self.inverse).copy()

    @cached_property
    def helping(self) -> Array:
        """Positive part (h, h) of B beside its diagonal: turns elsewhere that raise a heater's own phase."""
        positive = np.maximum(self.inverse, 0.0)
        np.fill_diagonal(positive, 0.0)
        return positive

    @cached_property
    def help_per_watt(self) -> Array:
        """Largest rise (h,) of each own phase per W that turns elsewhere cost; `FAR` where they cost nothing."""
        rising = self.weight > 0.0
        per_turn = np.where(rising, 1.0 / np.where(rising, self.weight, 1.0), FAR)
        return np.asarray((self.helping * per_turn).max(axis=1))

    @cached_property
    def cooling(self) -> Array | None:
        """Negative part (h, h) of X; None if heat raises every phase."""
        return np.minimum(self.crosstalk, 0.0) if (self.crosstalk < 0.0).any() else None

    @cached_property
    def weight(self) -> Array:
        """Total power per turn of each total phase (h,) in W."""
        return np.asarray(self.price @ self.inverse)

    def own(self, turns: Array) -> Array:
        """Own phases (..., h) of total phases (..., h)."""
        return np.asarray(turns @ self.inverse.T)

    def power(self, own: Array) -> Array:
        """Total power (...,) in W of own phases (..., h)."""
        return np.asarray(own @ self.price)

    def reach(self, ceiling: Array) -> tuple[Array, Array]:
        """Smallest and largest total phases (..., h) while own phases are within 0 and ``ceiling`` (..., h)."""
        whole = ceiling @ self.crosstalk.T
        below = np.zeros_like(whole) if self.cooling is None else ceiling @ self.cooling.T
        return below, whole - below


@dataclass(frozen=True)
class Box:
    """Bounds (rows, h) of the whole turns, as floats, and of the own phases; empty where lower > upper."""

    lower: Array
    upper: Array
    ceiling: Array

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Rows (rows,) without any whole turns in the box."""
        return np.asarray((self.lower > self.upper).any(axis=-1))


@dataclass(frozen=True)
class Settled:
    """Whole turns (rows, h) of batches of phases, and what is known of them.

    ``fits`` (rows,) tells whether they keep all ceilings, ``bound_w`` is a proven lower bound of the total power
    of all turns that do, and ``box`` holds all turns that would take less power than these or, where these do not fit,
    all turns that fit.
    """

    turns: Array
    fits: NDArray[np.bool_]
    bound_w: Array
    proven: NDArray[np.bool_]
    box: Box


def settle(heating: Heating, fraction: Array, ceiling: Array) -> Settled:
    """Find whole turns (rows, h) of least power by bounds alone; a search must settle the rows not proven.

    Parameters
    ----------
    heating
        Crosstalk and prices of the h heaters.
    fraction
        Missing phases f (rows, h) in turns, 0 <= f <= 1.
    ceiling
        Largest own phases (rows, h) in turns; `FAR` where there is no limit.
    """
    turns = _guess(heating, fraction)
    own = heating.own(fraction + turns)
    fits = within(own, ceiling)
    power = heating.power(own)
    cap = np.where(fits, power, FAR * heating.price.sum())
    box = enclose(heating, fraction, ceiling, cap)
    base = heating.own(fraction + box.lower)
    falling = np.minimum(heating.weight, 0.0)
    spare = np.maximum(box.upper - box.lower, 0.0)
    bound = heating.power(base) + spare @ falling
    empty = box.empty
    corner = within(base, ceiling) & ~empty & (spare @ falling == 0.0)
    turns = np.where(corner[:, None], box.lower, turns)
    fits = fits | corner
    power = np.where(corner, heating.power(base), power)
    # An empty box behind turns that fit says that no others take less.
    bound = np.where(corner | (fits & empty), power, np.minimum(bound, np.where(fits, power, np.inf)))
    proven = fits & (bound >= power * (1.0 - _SAME_POWER))
    return Settled(turns, fits, bound, proven, box)


def within(own: Array, ceiling: Array) -> NDArray[np.bool_]:
    """Whether own phases (..., h) are all within 0 and their ceilings, round-off aside."""
    return np.asarray(((own >= -ZERO) & (own <= ceiling + ZERO)).all(axis=-1))


def _guess(heating: Heating, fraction: Array) -> Array:
    """Whole turns (rows, h) with own phases of at least zero, nearly or exactly the least ones.

    Starts below what any heater could need and raises the turns of heaters that would have to cool.  Without positive
    entries of B beside its diagonal no other answer has fewer turns anywhere.
    """
    below, _ = heating.reach(np.ones_like(fraction))
    turns = np.ceil(below - fraction - ZERO)
    step = np.where(heating.diagonal > 0.0, heating.diagonal, 1.0)
    for _ in range(_ROUNDS):
        own = heating.own(fraction + turns)
        short = own < -ZERO
        if not short.any():
            return turns
        turns = turns + np.where(short, np.maximum(np.ceil((-own - ZERO) / step), 1.0), 0.0)
    # Own phases so high that rounding the total phases to whole turns cannot make one negative always exist.
    high = 0.5 * np.abs(heating.inverse).sum(axis=1)
    safe = np.round(heating.crosstalk @ high - fraction)
    return np.where(short.any(axis=-1, keepdims=True), safe, turns)


def repaired(heating: Heating, fraction: Array, turns: Array, ceiling: Array) -> Array | None:
    """Whole turns (h,) near the given ones that keep all ceilings, found heater by heater; None if none were found.

    The heater furthest outside gets a turn more or less.  Where ceilings leave more than a turn, it lands inside, and
    crosstalk moves the others by little.
    """
    turns, own = turns.copy(), heating.own(fraction + turns)
    for _ in range(_ROUNDS * len(turns)):
        beyond = np.maximum(own - ceiling, -own)
        worst = int(np.argmax(beyond))
        if beyond[worst] <= ZERO:
            return turns if bool(within(heating.own(fraction + turns), ceiling)) else None
        step = 1.0 if own[worst] < 0.0 else -1.0
        turns[worst] += step
        own = own + step * heating.inverse[:, worst]
    return None


def enclose(heating: Heating, fraction: Array, ceiling: Array, cap: Array) -> Box:
    """Bounds that hold for all whole turns with ``0 <= q <= ceiling`` and a total power of at most ``cap`` (rows,).

    Each round asks of every heater what the others can contribute within the present bounds, and removes whole turns
    with which its own phase would be negative, above its ceiling, or the total power above the cap.
    """
    cap = cap * (1.0 + _SAME_POWER)
    ceiling = np.minimum(ceiling, cap[:, None] / heating.price)
    per_watt = heating.crosstalk / heating.price
    below, above = heating.reach(ceiling)
    below = np.maximum(below, cap[:, None] * np.minimum(per_watt.min(axis=1), 0.0))
    above = np.minimum(above, cap[:, None] * np.maximum(per_watt.max(axis=1), 0.0))
    lower, upper = np.ceil(below - fraction - ZERO), np.floor(above - fraction + ZERO)
    for _ in range(_ROUNDS):
        before = lower, upper
        lower, upper, ceiling = _tighten(heating, fraction, Box(lower, upper, ceiling), cap)
        if np.array_equal(lower, before[0]) and np.array_equal(upper, before[1]):
            break
    return Box(lower, upper, ceiling)


def _tighten(heating: Heating, fraction: Array, box: Box, cap: Array) -> tuple[Array, Array, Array]:
    """One round of `enclose`."""
    spare = np.maximum(box.upper - box.lower, 0.0)
    base = heating.own(fraction + box.lower)
    least = heating.power(base) + spare @ np.minimum(heating.weight, 0.0)
    more = spare @ heating.helping.T
    less = heating.own(spare) - heating.diagonal * spare - more
    # What the others can contribute is also bounded by the power that is left for it.
    more = np.minimum(more, np.maximum(cap - least, 0.0)[:, None] * heating.help_per_watt)
    positive = heating.diagonal > 0.0
    step = np.where(positive, heating.diagonal, 1.0)
    needed = np.where(positive, np.ceil((-ZERO - base - more) / step), 0.0)
    allowed = np.where(positive, np.floor((box.ceiling + ZERO - base - less) / step), spare)
    rising = heating.weight > 0.0
    affordable = np.floor((cap - least)[:, None] / np.where(rising, heating.weight, 1.0) + ZERO)
    allowed = np.minimum(allowed, np.where(rising, affordable, spare))
    largest = base + more + np.maximum(heating.diagonal, 0.0) * spare
    ceiling = np.clip(largest + ZERO, 0.0, box.ceiling)
    below, above = heating.reach(ceiling)
    lower = np.maximum(box.lower + np.maximum(needed, 0.0), np.ceil(below - fraction - ZERO))
    upper = np.minimum(np.minimum(box.upper, box.lower + allowed), np.floor(above - fraction + ZERO))
    return lower, upper, ceiling


def alone(heating: Heating, fraction: Array, ceiling: Array) -> Array:
    """Least own phases (h,) that each heater needs whatever the others do within their ceilings (h,)."""
    others = ceiling * np.diagonal(heating.crosstalk)
    below, above = heating.reach(ceiling)
    below, above = below - np.minimum(others, 0.0), above - np.maximum(others, 0.0)
    least = fraction - above
    to_next = np.ceil(least - ZERO)
    # The own phase may be anything in [f - above, f - below] plus whole turns; zero if a whole number lies within.
    return np.where(fraction - below >= to_next - ZERO, 0.0, least - to_next + 1.0) / np.diagonal(heating.crosstalk)
