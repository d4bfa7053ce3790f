"""External phases of a bare mesh, columns from the inputs on, all MZIs of a column at once.

Once the thetas are known, columns behind one can be in the bar state and columns before it send light in calculable
ways; each phi then acts on its own two detectors only.  Lit port and columns before are chosen, out of random ones, so
that both inputs of every MZI still in question get light.  After each column a fit takes in everything so far.
"""

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_dead import find_dead
from calibration._start_filter import StartFilter
from calibration._start_fringes import ANGLES, PairSweep, known_light_costs, minima
from calibration._start_pairs import rows_seen
from calibration._start_state import DEAD, TWO_PI, StartState, Sweep

Parts = list[tuple[Sweep, int]]

WINDOW = 6
"""Columns before one that mix light when its phis are measured; light comes to them in rows.

Errors of the columns so far add up along the light's way, so the way through random columns is kept short.
"""
DEEPEST = 8
"""Columns whose sweeps of thetas, behind random columns all the way from the inputs, take part in the fit."""
POINTS_EACH, LIT_AT_ONCE = 16, 5
"""Readings in which each MZI of a large mesh should have light at both inputs, and MZIs that one port's light has."""
SMOOTHED = 8
"""Columns of a large mesh after which all columns so far are fitted at once again."""
MORE_POINTS = 4
ROUNDS, DAMAGED_ROUNDS = 6, 2
"""Sweeps of one column at most; where something is dead, what stays open is left to all readings together."""
MAX_CHI = 4.0
"""Root of the reduced sum of squares above which neither phase of an MZI is trusted."""
LEAST_ADVANTAGE = 20.0
"""Cost, over the reduced sum of squares, by which offsets more than `_APART` away must be worse."""
WANTED_ADVANTAGE = 36.0
"""Readings are added until it is this: heat of neighbours, which the search leaves out, errs alike in few of them."""
_APART = 0.6
_CANDIDATES = 40
_MODEL_SHARE = 0.1


def find_phis(state: StartState, sweeps: dict[int, list[Sweep]]) -> tuple[StartFilter, Array, Parts]:
    """Measure and find the offsets of all phis.

    Parameters
    ----------
    state
        Thetas from `find_thetas`.
    sweeps
        Sweeps of each column from `find_thetas`.

    Returns
    -------
    tuple
        The filter with all columns taken in, the rms residual over the expected one of each column, and all readings
        with the column up to which their light goes through phases that matter.
    """
    mesh, filtered, residuals = state.probe.layout.mesh, StartFilter(state), []
    parts = Parts()
    for column in range(mesh.depth):
        state.progress("start_phi", column, mesh.depth)
        cells = np.array(mesh.columns[column], dtype=np.intp)
        if not len(cells):
            continue
        swept = list(sweeps.get(column, [])) if column <= DEEPEST else []
        # What stands still while thetas are swept has the same heat in all readings of a group.
        new = [(joined(swept, alike=len(swept[0].lit)), column)] if swept else []
        if taken := _measure_column(state, filtered, column, cells):
            new.append((joined(taken), column))
        if not new:
            continue
        parts += new
        residuals.append(filtered.take_in(new))
        if state.meeting and column % SMOOTHED == SMOOTHED - 1 and column < mesh.depth - 1:
            filtered.smooth(parts)
    state.progress("start_phi", mesh.depth, mesh.depth)
    last = mesh.depth - 1
    if not state.meeting:
        parts += [(joined(swept), column) for column, swept in sweeps.items() if column > DEEPEST]
    parts += [(aside, last) for aside in state.asides]
    return filtered, np.array(residuals), parts


def joined(sweeps: list[Sweep], alike: int = 1) -> Sweep:
    """Return all readings of some sweeps; of each sweep, ``alike`` share their heat."""
    return Sweep(
        np.concatenate([sweep.phase for sweep in sweeps]), np.concatenate([sweep.power_w for sweep in sweeps]),
        np.concatenate([sweep.lit for sweep in sweeps]), np.concatenate([sweep.readings_w for sweep in sweeps]),
        min(sweep.first for sweep in sweeps), alike,
    )  # fmt: skip


def _measure_column(state: StartState, filtered: StartFilter, column: int, cells: NDArray[np.intp]) -> list[Sweep]:
    seen = rows_seen(state, column)
    modes = state.probe.layout.mesh.modes
    visible = (seen[modes[cells]] >= 0) | (seen[modes[cells] + 1] >= 0)
    light, taken, advantage = np.zeros(len(state.column)), list[Sweep](), np.full(len(cells), np.inf)
    first = 4 + -(-state.ports // 5)
    if state.meeting:
        # One port's light interferes at few MZIs only, in the first columns above all.
        first = max(first, -(-POINTS_EACH * len(cells) // min(len(cells), max(column - 1, 1), LIT_AT_ONCE)))
    wanted = cells[visible & ((column >= 2) | _open_thetas(state, cells))]
    for round_ in range(DAMAGED_ROUNDS if state.damaged else ROUNDS):
        if not len(wanted):
            break
        points = MORE_POINTS if round_ else first
        phase, lit = _design(state, filtered, column, wanted, light, points)
        steered = np.flatnonzero((state.column >= column) | (state.column < column - WINDOW))
        taken.append(state.measure("start_phi", phase, lit, state.probe.layout.mesh_theta[steered]))
        taken[-1].first = max(column - WINDOW, 0)
        advantage = _search(state, filtered, column, cells, seen, taken)
        wanted = cells[visible & (advantage < WANTED_ADVANTAGE)]
        if (round_ or not len(wanted)) and _find_dead_phis(state, filtered, column, cells[visible], seen, taken):
            advantage = _search(state, filtered, column, cells, seen, taken)
            wanted = cells[visible & (advantage < WANTED_ADVANTAGE)]
    for k in cells[visible & (advantage < LEAST_ADVANTAGE)] if column >= 2 else ():
        state.phi_reason[k] = state.phi_reason[k] or (
            "offsets far apart fit equally well: too little light at both inputs, or its heater is dead"
        )
    for k in cells[~visible] if column >= 2 else ():
        state.phi_reason[k] = "no detector sees its light"
    return taken


def _design(
    state: StartState, filtered: StartFilter, column: int, wanted: NDArray[np.intp], light: Array, points: int
) -> tuple[Array, NDArray[np.intp]]:
    """Choose settings whose light interferes at MZIs that had least of it; ``light`` (K,) counts and is updated."""
    layout = state.probe.layout
    here = np.flatnonzero(state.column == column)
    still = np.flatnonzero((state.column > column) | (state.column < column - WINDOW))
    rows, lit = [], []
    for _ in range(points):
        phase = state.random_phase(_CANDIDATES, np.arange(len(layout.heaters)))
        phase[:, layout.mesh_theta[still]] = state.still(still)
        ports = state.rng.integers(0, state.ports, _CANDIDATES)
        candidates = Sweep(phase, phase, ports, phase)
        fields = filtered.model.fields(*filtered.phases(candidates), ports, before=column)
        powers = np.abs(fields) ** 2
        upper = layout.mesh.modes[wanted]
        padded = np.pad(powers, ((0, 0), (1, 1)))
        around = 0.5 * (padded[:, upper] + padded[:, upper + 1] + padded[:, upper + 2] + padded[:, upper + 3])
        seen = 2.0 * np.sqrt(powers[:, upper] * powers[:, upper + 1]) if column >= 2 else around
        contrast = seen / (around + 0.2 / state.ports)
        best = int(np.argmax(np.log(light[wanted] + contrast**2 + 0.05).sum(axis=1)))
        light[wanted] += contrast[best] ** 2
        rows.append(phase[best])
        lit.append(ports[best])
    chosen = np.array(rows)
    chosen[:, layout.mesh_phi[here]] = state.random_phase(points, layout.mesh_phi[here])
    halves = np.where(state.rng.random((points, len(here))) < 0.5, 0.5, 1.5) * np.pi
    chosen[:, layout.mesh_theta[here]] = (halves - state.theta[here]) % TWO_PI
    loose = layout.mesh_theta[here[_open_thetas(state, here)]]
    chosen[:, loose] = state.random_phase(points, loose)
    return chosen, np.array(lit, dtype=np.intp)


def _open_thetas(state: StartState, cells: NDArray[np.intp]) -> NDArray[np.bool_]:
    return np.array([bool(state.theta_reason[k]) for k in cells], dtype=np.bool_)


def _find_dead_phis(
    state: StartState, filtered: StartFilter, column: int, cells: NDArray[np.intp], seen: NDArray[np.intp],
    taken: list[Sweep],
) -> bool:  # fmt: skip
    """Look for heaters of phis that do nothing where readings do not prove the contrary; whether one is new.

    Phis of the second column show behind it only.
    """
    sweep, new = joined(taken), False
    turning = np.flatnonzero(state.column == 1) if column == 2 else np.empty(0, dtype=np.intp)
    turning = np.concatenate([turning, cells]) if column >= 2 else turning
    moving = _known_light(state, filtered, column, cells, seen, sweep).min(axis=(0, 1))
    chi_squared = np.maximum(moving / _freedom(sweep), 1.0)
    for k in turning[state.moves_phi[turning]]:
        state.moves_phi[k] = False
        still = _known_light(state, filtered, column, cells, seen, sweep).min(axis=(0, 1))
        proven = float(np.sum((still - moving) / chi_squared)) > LEAST_ADVANTAGE
        state.moves_phi[k] = proven or not find_dead(state, state.probe.layout.mesh_phi[[k]])[0]
        if not state.moves_phi[k]:
            new = True
            state.phi_reason[k] = DEAD
    return new


def _known_light(
    state: StartState, filtered: StartFilter, column: int, cells: NDArray[np.intp], seen: NDArray[np.intp],
    sweep: Sweep,
) -> Array:  # fmt: skip
    """Costs (T, F, M) of thetas, where left open, and phis of a column's MZIs whose incoming light is known."""
    theta, phi = filtered.phases(sweep)
    fields = filtered.model.fields(theta, phi, sweep.lit, before=column)
    modes, scale = state.probe.layout.mesh.modes[cells], filtered.scale(sweep.lit)
    outputs = np.stack([seen[modes], seen[modes + 1]])
    readings = np.concatenate([sweep.readings_w / scale, np.full((len(sweep.lit), 1), np.nan)], axis=1)
    powers = np.abs(fields) ** 2
    variance = filtered.variance(powers * filtered.norm_w, column) / filtered.norm_w**2
    variance = variance.mean(axis=0) + (_MODEL_SHARE * powers.mean(axis=0)) ** 2
    pair = PairSweep(
        (theta - state.theta)[:, cells], (phi - state.phi)[:, cells], readings[:, outputs[0]], readings[:, outputs[1]],
        np.sqrt(0.5 * (variance[modes] + variance[modes + 1])), np.zeros(len(cells), dtype=np.intp),
    )  # fmt: skip
    light = fields[:, modes], fields[:, modes + 1]
    thetas = _thetas(state, cells)
    return known_light_costs(light, pair, state.couplers, thetas, ANGLES if column >= 2 else np.zeros(1))


def _thetas(state: StartState, cells: NDArray[np.intp]) -> Array:
    """Offsets (T, M) of theta to try."""
    unknown = _open_thetas(state, cells)
    return np.where(unknown, ANGLES[:, None], state.theta[cells]) if unknown.any() else state.theta[cells][None]


def _freedom(sweep: Sweep) -> int:
    return max(2 * len(sweep.lit) - 1, 1)


def _search(
    state: StartState, filtered: StartFilter, column: int, cells: NDArray[np.intp], seen: NDArray[np.intp],
    taken: list[Sweep],
) -> Array:  # fmt: skip
    """Set the phis of a column, and thetas left open; returns by how much offsets far away are worse (M,)."""
    sweep, unknown, thetas = joined(taken), _open_thetas(state, cells), _thetas(state, cells)
    costs = _known_light(state, filtered, column, cells, seen, sweep)
    state.theta[cells] = thetas[np.argmin(costs.min(axis=1), axis=0), np.arange(len(cells))]
    best, freedom = costs.min(axis=(0, 1)), _freedom(sweep)
    chi_squared = np.maximum(best / freedom, 1.0)
    advantage = np.full(len(cells), np.inf)
    if column >= 2:
        state.phi[cells], sigma, _ = minima(costs.min(axis=0))
        state.phi_sigma[cells] = sigma * np.sqrt(chi_squared)
        advantage = _advantage(costs.min(axis=0), state.phi[cells]) / chi_squared
    if unknown.any():
        by_theta = _advantage(costs.min(axis=1), state.theta[cells]) / chi_squared
        advantage = np.where(unknown, np.minimum(advantage, by_theta), advantage)
    for k, chi, settled in zip(cells, np.sqrt(best / freedom), advantage >= LEAST_ADVANTAGE, strict=True):
        reason = f"readings with known light do not fit: residual {chi:.1f} times the expected ({MAX_CHI:g} allowed)"
        state.misfit[k] = reason if chi > MAX_CHI else ""
        if settled and chi <= MAX_CHI:
            state.theta_reason[k] = ""
    return np.asarray(advantage)


def _advantage(costs: Array, angle: Array) -> Array:
    """By how much (M,) the best angle far from ``angle`` (M,) costs more (G, M)."""
    away = np.abs((ANGLES[:, None] - angle + np.pi) % TWO_PI - np.pi) > _APART
    return np.asarray(np.where(away, costs, np.inf).min(axis=0) - costs.min(axis=0))
