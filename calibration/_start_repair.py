"""Phases that a start got wrong: the other values of both phases of an MZI, judged by all readings at once."""

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_dead import find_dead
from calibration._start_filter import StartFilter
from calibration._start_fringes import ANGLES
from calibration._start_rough import explain
from calibration._start_state import DEAD, DEAD_PHI, KEPT, TWO_PI, StartState, Sweep

Parts = list[tuple[Sweep, int]]
GRID: Array = ANGLES[::3]
"""Values of both phases that are compared, beyond the present ones."""
ROUNDS = 8
LEAST_GAIN = 12.0
"""Cost by which other phases of an MZI must be better to be tried."""
LEAST_ADVANTAGE = 20.0
"""Cost by which phases more than `_APART` away must be worse for an MZI's phases to be good."""
MAX_CHI = 4.0
"""Residual over the expected one, typical of a column's readings, above which they make nothing good."""
ALL_MZIS = 66
"""Up to so many MZIs all are looked at; of more, those in question and those that touch them."""
MOST_READINGS = 1200
"""About so many readings at most make the tables of costs, evenly taken (time)."""
MOST_MZIS = 24
"""Where more are to be looked at in a large mesh, none is: more is wrong than phases of single MZIs, and time."""
LEAST_CLOSER = 0.003
"""By how much less phases must be away from the readings to be taken over."""
_APART = 0.6
_TAIL = 3.0


def repair(state: StartState, filtered: StartFilter, parts: Parts) -> StartFilter:
    """Look for better phases where some are not good; fit again, and judge anew.

    Parameters
    ----------
    state, filtered
        What is known; phases and reasons are updated.
    parts
        Readings, and the column up to which their light goes through known phases.

    Returns
    -------
    StartFilter
        What is known now.
    """
    cells = _looked_at(state)
    small = len(state.column) <= ALL_MZIS
    if not _in_question(state).any() or not (small or len(cells) <= MOST_MZIS):
        return filtered
    if small:
        filtered = _explained(state, filtered, parts)
        costs = Costs(state, filtered, parts)
        tables = {int(k): costs.of_mzi(int(k)) for k in cells}
    else:
        costs, tables = _moved(state, filtered, parts, cells)
    for k, table in tables.items():
        _judge(state, costs, k, table)
    return filtered


def _explained(state: StartState, filtered: StartFilter, parts: Parts) -> StartFilter:
    """Take over phases that explain all readings better, if there are any."""
    found = explain(state)
    if _more_dead(state, np.flatnonzero(found.unproven)):
        found = explain(state)
    if found.distance > found.before - LEAST_CLOSER:
        return filtered
    state.theta, state.phi = found.theta, found.phi
    state.efficiency = state.efficiency * found.scale
    for sweep in {id(sweep): sweep for sweep in (*state.sweeps, *(part for part, _ in parts))}.values():
        sweep.phase = sweep.phase * found.scale
    filtered = _filter_around(state)
    known, before = filtered.kept(), Costs(state, filtered, parts)
    at_first = before.total()
    filtered.smooth(parts)
    if before.total() > at_first:
        filtered.restore(known)
    return filtered


def _filter_around(state: StartState) -> StartFilter:
    """Return a filter that begins at the present phases and trusts none of them."""
    reasons, state.theta_reason = state.theta_reason, ["rough"] * len(state.theta)
    filtered = StartFilter(state)
    state.theta_reason = reasons
    return filtered


def _more_dead(state: StartState, heaters: NDArray[np.intp]) -> bool:
    """Ask heaters that have not shown that they do something; whether there are dead ones."""
    dead = heaters[find_dead(state, heaters)] if len(heaters) else heaters
    for heater in dead:
        k = state.mzi_of[heater]
        if state.is_theta[heater]:
            state.moves_theta[k], state.theta_reason[k] = False, DEAD
        else:
            state.moves_phi[k], state.phi_reason[k] = False, DEAD
    return bool(len(dead))


def _moved(
    state: StartState, filtered: StartFilter, parts: Parts, cells: NDArray[np.intp]
) -> tuple["Costs", dict[int, Array]]:
    """Move single MZIs of a large mesh to better phases; returns costs and their tables."""
    for _ in range(ROUNDS):
        costs = Costs(state, filtered, parts)
        tables = {int(k): costs.of_mzi(int(k)) for k in cells}
        moves = _moves(state, tables)
        if not moves:
            break
        before, known = costs.total(), filtered.kept()
        for k, theta, phi in moves:
            state.theta[k] += theta
            state.phi[k] += phi
        filtered.smooth(parts)
        if costs.total() > before - LEAST_GAIN:
            filtered.restore(known)
            break
    return costs, tables


def _in_question(state: StartState) -> NDArray[np.bool_]:
    return np.array([
        bool(state.theta_reason[k] or state.phi_reason[k] or state.misfit[k]) for k in range(len(state.column))
    ])  # fmt: skip


def _looked_at(state: StartState) -> NDArray[np.intp]:
    asked = _in_question(state)
    if len(asked) <= ALL_MZIS:
        return np.arange(len(asked))
    mzis = state.probe.layout.mesh.mzis
    for k in np.flatnonzero(asked):
        column, mode = mzis[k]
        for beside in ((column + a, mode + b) for a in (-1, 1) for b in (-1, 1)):
            if beside in state.index:
                asked[state.index[beside]] = True
    return np.flatnonzero(asked)


def _moves(state: StartState, tables: dict[int, Array]) -> list[tuple[int, float, float]]:
    """MZIs that would be much better elsewhere, best first, none near another: their gains would not add up."""
    mzis, moves = state.probe.layout.mesh.mzis, list[tuple[int, float, float]]()
    for k in sorted(tables, key=lambda k: tables[k].min() - tables[k][0, 0]):
        at = np.unravel_index(int(np.argmin(tables[k])), tables[k].shape)
        near = any(max(abs(mzis[k][0] - mzis[other][0]), abs(mzis[k][1] - mzis[other][1])) < 3 for other, _, _ in moves)
        if tables[k][0, 0] - tables[k][at] > LEAST_GAIN and not near:
            moves.append((k, float(GRID[at[0]]), float(GRID[at[1]])))
    return moves


def _judge(state: StartState, costs: "Costs", k: int, table: Array) -> None:
    far = np.abs((GRID + np.pi) % TWO_PI - np.pi) > _APART
    theta, phi = (float(part.min() - table[0, 0]) for part in (table[far], table[:, far]))
    chi = costs.chi(int(state.column[k]))
    for reasons, advantage in ((state.theta_reason, theta), (state.phi_reason, phi)):
        if advantage < LEAST_ADVANTAGE:
            reasons[k] = (
                reasons[k] or f"phases far away are worse in cost by {advantage:.0f} only ({LEAST_ADVANTAGE:g} needed)"
            )
        elif chi <= MAX_CHI and (reasons[k] not in KEPT or reasons[k] == DEAD_PHI):
            reasons[k] = ""
    if chi <= MAX_CHI and min(theta, phi) >= LEAST_ADVANTAGE:
        state.misfit[k] = ""


class Costs:
    """Costs of all readings, far residuals weighing less than their squares.

    Parameters
    ----------
    state, filtered
        What is known.
    parts
        Readings, and the column up to which their light goes through known phases.
    """

    def __init__(self, state: StartState, filtered: StartFilter, parts: Parts) -> None:
        self._state, self._filtered, self._parts = state, filtered, parts
        self._every = -(-sum(len(sweep.lit) for sweep, _ in parts) // MOST_READINGS)
        self._spread = []
        for sweep, column in parts:
            left = self._left(sweep, filtered.predict(sweep), column)
            self._spread.append(max(1.0, 1.5 * float(np.nanmedian(np.abs(left)))))

    def _left(self, sweep: Sweep, predicted_w: Array, column: int) -> Array:
        return (sweep.readings_w - predicted_w) / np.sqrt(self._filtered.variance(predicted_w, column))

    def chi(self, column: int) -> float:
        """Typical residual over the expected one of the readings that end at a column, 1 if there are none."""
        return max(
            (spread for (_, end), spread in zip(self._parts, self._spread, strict=True) if end == column), default=1.0
        )

    def total(self) -> float:
        """Cost of the present phases."""
        return sum(
            float(np.nansum(_loss(self._left(sweep, self._filtered.predict(sweep), column) / spread)))
            for (sweep, column), spread in zip(self._parts, self._spread, strict=True)
        )

    def of_mzi(self, k: int) -> Array:
        """Costs (G, G) of adding `GRID` to theta and to phi of one MZI."""
        state, costs = self._state, np.zeros((len(GRID), len(GRID)))
        turns = np.exp(1j * GRID)
        for (whole, column), spread in zip(self._parts, self._spread, strict=True):
            if state.column[k] > column:
                continue
            sweep = whole.take(np.arange(0, len(whole.lit), self._every))
            theta, phi = self._filtered.phases(sweep)
            fields = {}
            for a in (0, 1):
                for b in (0, 1):
                    moved_theta, moved_phi = theta.copy(), phi.copy()
                    moved_theta[:, k] += np.pi * a
                    moved_phi[:, k] += np.pi * b
                    fields[a, b] = self._filtered.model.fields(moved_theta, moved_phi, sweep.lit)
            still = sum(fields.values()) / 4.0
            by_theta = (fields[0, 0] + fields[0, 1] - fields[1, 0] - fields[1, 1]) / 4.0
            by_phi = (fields[0, 0] - fields[0, 1] + fields[1, 0] - fields[1, 1]) / 4.0
            by_both = (fields[0, 0] - fields[0, 1] - fields[1, 0] + fields[1, 1]) / 4.0
            scale = self._filtered.scale(sweep.lit)
            sigma = np.sqrt(self._filtered.variance(scale * np.abs(fields[0, 0]) ** 2, column)) * spread
            for g, turn in enumerate(turns):
                moved = (still + by_theta * turn)[None] + turns[:, None, None] * (by_phi + by_both * turn)[None]
                left = (sweep.readings_w - scale * np.abs(moved) ** 2) / sigma
                costs[g] += np.nansum(_loss(left), axis=(1, 2))
        if state.column[k] < 2:
            # Phases of inputs, which no power shows.
            costs[:, 1:] = np.inf
        return costs


def _loss(left: Array) -> Array:
    return np.asarray(_TAIL**2 * np.log1p((left / _TAIL) ** 2))
