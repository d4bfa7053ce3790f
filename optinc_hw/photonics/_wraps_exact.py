"""Whole turns of least power that bounds do not prove: an integer programme (HiGHS), and what stands in the way."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from optinc_hw.photonics._wraps import FAR, ZERO, Array, Box, Heating, alone, enclose, repaired, settle, within

_SCALE = 1e4
"""Rows and costs are multiplied by this: HiGHS's absolute tolerances of 1e-6 then are 1e-10 turns."""
_ROW_SLACK = 0.9 * ZERO
_OPTIMAL, _STOPPED, _INFEASIBLE = 0, 1, 2
_MOST_OPEN = 100
"""With more open turns than this no search is started: 89 took up to 5 s, some 180 more than 100 s."""


@dataclass(frozen=True)
class Answer:
    """Whole turns (h,) of least total power in W, a proven lower bound of it, and whether the two meet."""

    turns: Array
    bound_w: float
    proven: bool


@dataclass(frozen=True)
class Obstacle:
    """Why no whole turns are known that keep all ceilings.

    Parameters
    ----------
    heater
        Index of the heater that stands in the way most.
    own
        Own phase in turns that it would need.
    others
        Number of further heaters beyond their ceilings in the same attempt.
    least
        Whether the heater needs at least ``own`` with any whole turns that keep the other ceilings.
    proven
        Whether it is proven that no whole turns keep all ceilings.
    """

    heater: int
    own: float
    others: int
    least: bool
    proven: bool

    def needs(self, price: float) -> str:
        """Say what the heater would need; ``price`` is its power per turn in W."""
        power = f"would need {self.own * price * 1e3:.2f} mW"
        least = " at the least" if self.least else ""
        more = f" (and {self.others} more heaters more than they may)" if self.others else ""
        doubt = "" if self.proven else " in the best attempt found; that none fits is not proven"
        return f"{power}{least} for the asked phases{more}{doubt}"


def search(heating: Heating, fraction: Array, ceiling: Array, effort: int) -> Answer | Obstacle:
    """Whole turns of least power for phases (h,), searched for where bounds do not prove them.

    Parameters
    ----------
    heating
        Crosstalk and prices of the h heaters.
    fraction, ceiling
        Missing phases and largest own phases (h,) in turns, as in `settle`.
    effort
        Branches that each of at most two integer programmes may take.
    """
    start = settle(heating, fraction[None], ceiling[None])
    guess, bound = start.turns[0], float(start.bound_w[0])
    fits = bool(start.fits[0])
    if start.proven[0]:
        return Answer(guess, bound, proven=True)
    if not fits:
        need = alone(heating, fraction, ceiling)
        worst = int(np.argmax((need - ceiling) * heating.price))
        if need[worst] > ceiling[worst] + 2.0 * ZERO:
            return Obstacle(worst, float(need[worst]), others=0, least=True, proven=True)
        if start.box.empty[0]:
            return _least_excess(heating, fraction, ceiling, guess, effort, proven=True)
        mended = repaired(heating, fraction, guess, ceiling)
        if mended is not None:
            fits, guess = True, mended
    box = Box(start.box.lower[0], start.box.upper[0], start.box.ceiling[0])
    status, turns, searched = _least_power(heating, fraction, ceiling, box, effort)
    bound = max(bound, searched)
    if turns is not None:
        fits, guess = True, _cheaper(heating, fraction, turns, guess if fits else turns)
    if not fits:
        return _least_excess(heating, fraction, ceiling, guess, effort, proven=status == _INFEASIBLE)
    power = float(heating.power(heating.own(fraction + guess)))
    # Nothing left below the cap of the box means that the guess itself is the least.
    proven = status == _INFEASIBLE or (status == _OPTIMAL and turns is not None)
    return Answer(guess, power if proven else min(bound, power), proven)


def _cheaper(heating: Heating, fraction: Array, one: Array, other: Array) -> Array:
    powers = [float(heating.power(heating.own(fraction + turns))) for turns in (one, other)]
    return one if powers[0] <= powers[1] else other


def _least_power(
    heating: Heating, fraction: Array, ceiling: Array, box: Box, effort: int
) -> tuple[int, Array | None, float]:
    """Solve for the turns that a box leaves open: HiGHS's status, turns (h,) or None, and a lower bound in W."""
    part = _OpenPart.of(heating, fraction, box)
    if not len(part.free):
        return _INFEASIBLE, None, np.inf  # the one candidate does not fit, or the bounds would have settled it
    if len(part.free) > _MOST_OPEN:
        return _STOPPED, None, -np.inf
    rows = (part.low < -_ROW_SLACK) | (part.high > ceiling + _ROW_SLACK)
    unit = float(heating.price.max()) / _SCALE
    found = milp(
        heating.weight[part.free] / unit,
        integrality=np.ones(len(part.free)),
        bounds=Bounds(0.0, _open(part.spare)),
        constraints=LinearConstraint(
            _SCALE * part.slope[rows],
            _SCALE * (-part.base[rows] - _ROW_SLACK),
            _SCALE * _open(ceiling[rows] - part.base[rows] + _ROW_SLACK),
        ),
        options={"mip_rel_gap": 0.0, "node_limit": effort},
    )
    power = float(heating.power(part.base))
    bound = -np.inf if found.mip_dual_bound is None else power + float(found.mip_dual_bound) * unit
    if found.x is None:
        return found.status, None, bound
    turns = part.turns(found.x)
    return found.status, turns if within(heating.own(fraction + turns), ceiling) else None, bound


@dataclass(frozen=True)
class _OpenPart:
    """What a box leaves open: ``base`` are own phases at its lower corner, ``low`` and ``high`` their bounds in it."""

    corner: Array
    free: NDArray[np.intp]
    spare: Array
    base: Array
    slope: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, heating: Heating, fraction: Array, box: Box) -> "_OpenPart":
        free = np.flatnonzero(box.upper > box.lower)
        spare = box.upper[free] - box.lower[free]
        base, slope = heating.own(fraction + box.lower), heating.inverse[:, free]
        low, high = base + np.minimum(slope, 0.0) @ spare, base + np.maximum(slope, 0.0) @ spare
        return cls(box.lower, free, spare, base, slope, low, high)

    def turns(self, more: Array) -> Array:
        """Whole turns (h,) that are ``more`` (free,) than the lower corner's."""
        turns = self.corner.copy()
        turns[self.free] += np.round(more)
        return turns


def _open(limits: Array) -> Array:
    """Limits with `FAR` ones, less what was subtracted from them, replaced by infinity."""
    return np.where(limits > 0.5 * FAR, np.inf, limits)


def _least_excess(
    heating: Heating, fraction: Array, ceiling: Array, guess: Array, effort: int, *, proven: bool
) -> Obstacle:
    """Find the heater that stands in the way most when ceilings are exceeded by the least power in total.

    ``guess`` are whole turns (h,) that keep all own phases at least zero.
    """
    own = heating.own(fraction + guess)
    total = float(np.maximum(own - ceiling, 0.0) @ heating.price)
    raised = np.minimum(ceiling + total / heating.price, FAR)
    boxes = enclose(heating, fraction[None], raised[None], np.array([FAR * heating.price.sum()]))
    part = _OpenPart.of(heating, fraction, Box(boxes.lower[0], boxes.upper[0], boxes.ceiling[0]))
    done = False
    if len(part.free) <= _MOST_OPEN:
        turns, done = _exceed_least(heating, ceiling, part, effort)
        own = own if turns is None else heating.own(fraction + turns)
    over = (own - ceiling) * heating.price
    worst, others = int(np.argmax(over)), int((over > ZERO * heating.price).sum()) - 1
    least = done and others == 0
    return Obstacle(worst, float(own[worst]), others, least, proven)


def _exceed_least(heating: Heating, ceiling: Array, part: _OpenPart, effort: int) -> tuple[Array | None, bool]:
    """Find turns (h,) that exceed the ceilings by the least power in total, and whether that is proven."""
    cold, hot = np.flatnonzero(part.low < -ZERO), np.flatnonzero(part.high > ceiling)
    size = len(part.free)
    matrix = np.zeros((len(cold) + len(hot), size + len(hot)))
    matrix[: len(cold), :size], matrix[len(cold) :, :size] = part.slope[cold], part.slope[hot]
    matrix[len(cold) :, size:] = -np.eye(len(hot))
    found = milp(
        np.concatenate([np.zeros(size), heating.price[hot] / heating.price.max()]),
        integrality=np.concatenate([np.ones(size), np.zeros(len(hot))]),
        bounds=Bounds(0.0, np.concatenate([_open(part.spare), np.full(len(hot), np.inf)])),
        constraints=LinearConstraint(
            matrix,
            np.concatenate([-part.base[cold], np.full(len(hot), -np.inf)]),
            np.concatenate([np.full(len(cold), np.inf), ceiling[hot] - part.base[hot]]),
        ),
        options={"mip_rel_gap": 0.0, "node_limit": effort},
    )
    turns = None if found.x is None else part.turns(found.x[:size])
    return turns, found.status == _OPTIMAL
