"""Pure tests of discovery: which readings show that a channel moves the phase it should."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array

EFFICIENCY_WINDOW = (0.7, 1.4)
"""Searched efficiencies of a heater relative to the expected one."""
OPEN_GATE = 0.06
"""Smallest part of the light that must pass an open gate to tell anything."""
CLEAR_EFFECT = 0.03
"""Smallest part of the light that moves between outputs when a phase turns: heat from a neighbour moves about 0.01."""
GATE_RATIO = 0.15
"""Largest accepted ratio of what passes a closed gate to what passes an open one; leaks of couplers are 0.03-0.1."""
FRINGE_RESIDUAL = 0.15
"""Largest accepted residual of a gate's fringe relative to its size."""
SAME_BAR = 0.7
"""Largest difference in rad of bar states that agree; stray light and heat move them by about 0.1."""
_ANGLES = 720
_TINY = 1e-12
_LEAK = 0.03  # ratio that couplers leave even a perfect gate


@dataclass(frozen=True)
class Gate:
    """Whether, and where, a heater closes an MZI's lower (or upper) output: an internal phase does so at bar.

    Parameters
    ----------
    informative
        Whether anything could be told: what lies behind the gate had an effect.
    good
        Whether the heater is the gate.
    bar_w
        Power in W at which the gate is closed, in the swept range; NaN where not informative.
    efficiency
        Phase per power in rad/W.
    ratio
        What passes the closed gate relative to the open one; below `GATE_RATIO` for a good one.
    residual
        Residual of the fringes relative to their size; below `FRINGE_RESIDUAL` for a good one.
    strength
        What passes the open gate, relative to all light.
    """

    informative: bool
    good: bool
    bar_w: float
    efficiency: float
    ratio: float
    residual: float
    strength: float

    @classmethod
    def without_effect(cls, expected: float) -> "Gate":
        """Return the verdict on a heater of an expected efficiency that no output responds to."""
        return cls(False, False, float("nan"), expected, 1.0, 0.0, 0.0)

    def shifted(self) -> "Gate":
        """Return the gate half a turn further, where the other output is closed."""
        turn = 2.0 * np.pi / self.efficiency
        return replace(self, bar_w=(self.bar_w + 0.5 * turn) % turn)


def effect(readings: Array) -> float:
    """Largest part of the light that moves between any two of the readings (B, n), 0 to 1.

    Outputs with NaN are left out.
    """
    used = readings[:, np.isfinite(readings).all(axis=0)]
    total = max(float(used.sum(axis=1).mean()), _TINY)
    distance = 0.5 * np.abs(used[:, None] - used[None]).sum(axis=-1) / total
    return float(distance.max(initial=0.0))


def find_gate(power_w: Array, before: Array, after: Array, expected: float) -> Gate:
    """Find the power at which a change behind a gate has no effect on any output.

    An internal phase sweeps in two states that differ only behind one output of its MZI.  In the bar state no light
    goes there, so that all outputs agree; the differences are ``a + b cos + c sin`` of the phase with a common zero.

    Parameters
    ----------
    power_w
        Swept powers (K,) in W.
    before, after
        Readings (K, n) in W in the two states; NaN marks outputs to leave out.
    expected
        Expected efficiency in rad/W.
    """
    live = np.isfinite(before).all(axis=0) & np.isfinite(after).all(axis=0)
    both = np.hstack([before[:, live], after[:, live]])
    half = int(live.sum())
    closing = np.vstack([-np.eye(half), np.eye(half)])
    return _closed(power_w, both / max(float(both.sum(axis=1).mean()) / 2.0, _TINY), closing, expected)


def agreeing(gates: Sequence[Gate], needed: int) -> Gate | None:
    """Return one verdict from gates of the same heater of which at least ``needed`` good ones agree; None if fewer do.

    Answers agree if their bar states differ by less than `SAME_BAR`.  A wrong heater passes by chance now and then,
    but hardly again in the same place.
    """
    good = [gate for gate in gates if gate.good]
    angles = np.array([gate.efficiency * gate.bar_w for gate in good])
    near = np.cos(angles[:, None] - angles) > np.cos(SAME_BAR)
    if not len(good) or near.sum(axis=1).max() < needed:
        return None
    chosen = np.flatnonzero(near[int(near.sum(axis=1).argmax())])
    efficiency = float(np.mean([good[k].efficiency for k in chosen]))
    weights = np.array([good[k].strength / (good[k].ratio + _LEAK) ** 2 for k in chosen])
    angle = float(np.angle((weights * np.exp(1j * angles[chosen])).sum())) % (2.0 * np.pi)
    best = min((good[k] for k in chosen), key=lambda gate: gate.ratio)
    return replace(best, bar_w=angle / efficiency, efficiency=efficiency)


def find_darkest(power_w: Array, readings: Array, output: int, expected: float) -> Gate:
    """As `find_gate`, for an MZI whose closed output is read directly: column ``output`` of the readings (K, n)."""
    live = np.flatnonzero(np.isfinite(readings).all(axis=0))
    used = readings[:, live]
    closing = (live == output).astype(np.float64)[:, None]
    return _closed(power_w, used / max(float(used.sum(axis=1).mean()), _TINY), closing, expected)


def _closed(power_w: Array, readings: Array, closing: Array, expected: float) -> Gate:
    """Find where ``fringes of the readings (K, m) @ closing (m, d)`` vanish together."""
    trials = expected * np.linspace(*EFFICIENCY_WINDOW, 71)
    costs = [_fit(power_w, readings, value)[1] for value in trials]
    efficiency = float(trials[int(np.argmin(costs))])
    coefficients, cost = _fit(power_w, readings, efficiency)
    size = float(np.sqrt((coefficients[1:] ** 2).sum()))
    residual = float(np.sqrt(cost)) / max(size, _TINY)
    angles = np.linspace(0.0, 2.0 * np.pi, _ANGLES, endpoint=False)
    passing = np.sqrt(((_design(angles) @ (coefficients @ closing)) ** 2).sum(axis=1))
    closed = int(np.argmin(passing))
    informative = bool(passing.max() > OPEN_GATE)
    ratio = float(passing[closed] / max(float(passing.max()), _TINY))
    good = informative and ratio < GATE_RATIO and residual < FRINGE_RESIDUAL
    return Gate(
        informative, good, float(angles[closed]) / efficiency, efficiency, ratio, residual, float(passing.max())
    )


def _design(angles: Array) -> Array:
    return np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles)], axis=-1)


def _fit(power_w: Array, readings: Array, efficiency: float) -> tuple[Array, float]:
    design = _design(efficiency * power_w)
    coefficients, *_ = np.linalg.lstsq(design, readings, rcond=None)
    cost = float(((readings - design @ coefficients) ** 2).sum())
    return np.asarray(coefficients), cost


def dead_outputs(readings: Array, share: float = 1e-2) -> NDArray[np.bool_]:
    """Which detectors (n,) see no light in any of many random settings with each input lit, (B, n) readings.

    A detector is dead if its largest reading is below ``share`` of the median detector's largest one, or if it never
    gives a valid reading.
    """
    largest = np.where(np.isfinite(readings), readings, -np.inf).max(axis=0)
    typical = float(np.median(largest))
    return np.asarray(~(largest > share * typical))
