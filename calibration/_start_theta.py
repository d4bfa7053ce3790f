"""Internal phases of a bare mesh from nothing: columns from the outputs back, all MZIs of a column at once.

With every column behind one in the bar state, each output of that column has a detector of its own.  Whatever light
comes from before it stands still while all thetas and phis of the column go through random phases; each pair of
detectors then tells theta's offset but for pi (see `_start_fringes`).  Pi away, bar is cross, and the outputs of the
column before come out swapped: which output answers to which MZI settles it one column later, at the first column
which port was lit.  Nothing is ever dark, and the phases of columns before need not be known.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_dead import find_dead
from calibration._start_entry import bars, find_first_thetas
from calibration._start_fringes import ANGLES, PairSweep, chain_states, fringe_costs, minima, rivals
from calibration._start_pairs import MODEL_SHARE, outputs_of, pair_of, phases_of, usable
from calibration._start_state import DEAD, DEAD_PHI, KEPT, SWAPPED, StartState, Sweep, finite_mean

POINTS = 6
"""Readings of one group: one lit port, one state of all columns before."""
FIRST_POINTS = 10
SINGLE_POINTS = 4
"""Readings a lit port in the first column, where light and its way are known."""
MEETING_POINTS = 6
"""The same where both ways meet."""
WANTED_SIGMA = 0.08
"""Groups are added until every theta is known to this, rad."""
MAX_SIGMA = 0.3
"""Thetas less well known are not used."""
MAX_CHI = 3.0
"""Root of the reduced sum of squares above which a fringe is not that of an MZI with two working heaters."""
LEAST_MARGIN = 16.0
"""Cost, over the reduced sum of squares, by which other offsets and the other of bar and cross must be worse."""
ASTRAY = 0.25
"""Share of light let into one MZI alone that may leave elsewhere."""
DARK_GROUPS = 6
"""Groups added at most while a detector shows no light."""
DAMAGED_GROUPS = 2
"""Groups added at most to a column where something is dead: what stays open is left to all readings together."""
WANTED_MARGIN = 60.0
"""Groups are added until bar and cross of the MZIs behind differ by this: a wrong choice spoils all columns before."""
PROOF = 30.0
"""Cost by which fringes must be worse without theta's heater to prove that it does something."""
_SCALES = np.linspace(0.76, 1.26, 26)
_EXCESSES = np.linspace(-0.24, 0.24, 13)
_SUSPICIOUS_CHI, _SOUND_CHI = 1.5, 2.0
_SWAP_ADVANTAGE, _SWAP_MARGIN = 3.0, 30.0


@dataclass
class _Column:
    """One column; tables are (4, G, M), states of the MZIs behind: left bar or cross, right; why MZIs are left out."""

    cells: NDArray[np.intp]
    reason: list[str]
    sweeps: list[Sweep] = field(default_factory=list)
    table: Array = field(default_factory=lambda: np.zeros(0))
    outputs: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    chosen: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    chi: Array = field(default_factory=lambda: np.zeros(0))
    rival: Array = field(default_factory=lambda: np.zeros(0))


def find_thetas(state: StartState) -> dict[int, list[Sweep]]:
    """Measure and find the offsets of all thetas; returns the sweeps of the columns found from the outputs."""
    mesh, columns = state.probe.layout.mesh, dict[int, list[Sweep]]()
    total = mesh.depth + (state.meeting > 0)
    for done, column in enumerate(reversed(range(state.meeting, mesh.depth))):
        cells = np.array(mesh.columns[column], dtype=np.intp)
        state.progress("start_theta", done, total)
        if not len(cells):
            continue
        if column == state.meeting and column:
            find_first_thetas(state)
        known = state.theta[cells], state.theta_sigma[cells]
        work = _Column(cells, [reason if (reason := state.theta_reason[k]) in KEPT else "" for k in cells])
        _first_groups(state, column, work)
        _settle(state, column, work)
        _judge(state, column, work)
        if column == state.meeting and column:
            _join(state, work, *known)
        columns[column] = work.sweeps
    state.progress("start_theta", total, total)
    return columns


def _first_groups(state: StartState, column: int, work: _Column) -> None:
    mesh, ports = state.probe.layout.mesh, state.ports
    if column == state.meeting:
        lit, points = mesh.modes[work.cells], MEETING_POINTS if column else SINGLE_POINTS
    else:
        # Light from one port spreads like a random walk.
        count = max(2, int(np.ceil(ports / (2.0 + 2.5 * np.sqrt(column)))))
        places = (np.arange(count) + state.rng.uniform(0.3, 0.7, count)) * ports / count
        lit, points = np.minimum(places.astype(np.intp), ports - 1), POINTS
    first = not state.sweeps
    for port in lit:
        work.sweeps.append(_measure_group(state, column, int(port), FIRST_POINTS if first and column else points))
    if first:
        _look_for_dark(state, column, work)
        state.find_blind(work.sweeps)
    work.outputs = outputs_of(state, column, work.cells)
    if first:
        _learn_common(state, work)
    work.table = np.sum([_table(state, column, work, sweep) for sweep in work.sweeps], axis=0)


def _look_for_dark(state: StartState, column: int, work: _Column) -> None:
    """Add groups while detectors stay dark, which may be the light's chance."""
    for _ in range(DARK_GROUPS):
        dark = np.flatnonzero(state.dark(work.sweeps))
        if not len(dark) or not column:
            break
        work.sweeps.append(_measure_group(state, column, int(state.rng.choice(dark)), POINTS))


def _measure_group(state: StartState, column: int, port: int, points: int) -> Sweep:
    layout = state.probe.layout
    phase = np.tile(state.random_phase(1, np.arange(len(layout.heaters))), (points, 1))
    here, behind = np.flatnonzero(state.column == column), np.flatnonzero(state.column > column)
    phase[:, layout.mesh_theta[behind]] = state.still(behind)
    before = np.flatnonzero(state.column < column)
    moved_phis, kept = [layout.mesh_phi[behind]], layout.mesh_theta[behind]
    if column == state.meeting:
        phase[:, layout.mesh_theta[before]] = bars(state, before)
        moved_phis.append(layout.mesh_phi[before])
        kept = np.append(kept, layout.mesh_theta[before])
    for moved in (*moved_phis, layout.mesh_theta[here], layout.mesh_phi[here]):
        phase[:, moved] = state.random_phase(points, moved)
    return state.measure("start_theta", phase, np.full(points, port, dtype=np.intp), kept)


def _table(state: StartState, column: int, work: _Column, sweep: Sweep) -> Array:
    tables = []
    for outputs in work.outputs:
        possible = outputs[0] != -2
        pair = pair_of(
            state, column, work.cells, np.where(possible, outputs, -1), sweep, phases_of(state, work.cells, sweep)
        )
        cost = fringe_costs(pair, state.couplers)
        if column == state.meeting:
            cost = (cost + _astray(sweep, pair)) * (pair.lit != 0)
        tables.append(np.where(possible, cost + _still(state, column, work, outputs, sweep), np.inf))
    return np.stack(tables)


def _still(state: StartState, column: int, work: _Column, outputs: NDArray[np.intp], sweep: Sweep) -> Array:
    """Cost (M,) of what detectors at the mesh's edges see change though no MZI's light gets there."""
    mesh, cost = state.probe.layout.mesh, np.zeros(len(work.cells))
    seen = work.outputs.max(axis=0)
    for i, k in enumerate(work.cells):
        for side in (0, 1):
            if outputs[side, i] != -1 or seen[side, i] < 0 or (column, mesh.mzis[k][1] + 4 * side - 2) in state.index:
                continue
            at_edge = sweep.readings_w[:, seen[side, i]]
            mean = float(finite_mean(at_edge))
            cost[i] += np.nansum((at_edge - mean) ** 2) / ((MODEL_SHARE * mean) ** 2 + state.noise.floor_w**2)
    return cost


def _astray(sweep: Sweep, pair: PairSweep) -> Array:
    """Cost (M,) of light that entered one MZI alone and comes out elsewhere than at its two detectors."""
    share = np.sum(pair.upper_w + pair.lower_w, axis=0) / max(float(np.nansum(sweep.readings_w)), 1e-300)
    return np.asarray(np.nan_to_num(2.0 * len(sweep.lit) * ((1.0 - share) / ASTRAY) ** 2))


def _learn_common(state: StartState, work: _Column) -> None:
    """Scale of all efficiencies and mean coupler angle from the last column, where nothing else disturbs."""
    outputs = work.outputs[0]
    column = int(state.column[work.cells[0]])

    def costs(scale: float, excess: float) -> Array:
        total = np.zeros((len(ANGLES[::2]), len(work.cells)))
        for sweep in work.sweeps:
            theta, phi = phases_of(state, work.cells, sweep)
            pair = pair_of(state, column, work.cells, outputs, sweep, (theta * scale, phi * scale))
            total += fringe_costs(pair, replace(state.couplers, excess=excess), ANGLES[::2])
        return np.asarray(total.min(axis=0))

    whole = np.array([not reason for reason in work.reason])
    if len(work.cells) < 2 or not whole.any():
        return
    by_scale = np.array([costs(float(scale), 0.0) for scale in _SCALES])
    # MZIs that fit at no scale have broken heaters.
    freedom = np.sum([_freedom(state, column, work.cells, sweep) for sweep in work.sweeps], axis=0)
    sound = by_scale.min(axis=0) < _SOUND_CHI**2 * np.maximum(freedom, 1.0)
    sound &= whole
    if not sound.any():
        return
    state.scale_known = True
    scale = _parabola_minimum(_SCALES, np.minimum(by_scale, 1e3)[:, sound].sum(axis=1))
    by_excess = np.array([costs(scale, float(excess)) for excess in _EXCESSES])
    excess = _parabola_minimum(_EXCESSES, np.minimum(by_excess, 1e3)[:, sound].sum(axis=1))
    state.couplers = replace(state.couplers, excess=excess)
    state.efficiency = state.efficiency * scale
    for sweep in work.sweeps:
        sweep.phase = sweep.phase * scale


def _parabola_minimum(places: Array, values: Array) -> float:
    i = int(np.clip(np.argmin(values), 1, len(values) - 2))
    before, at, after = values[i - 1 : i + 2]
    curvature = before + after - 2.0 * at
    shift = 0.5 * (before - after) / curvature if curvature > 0.0 else 0.0
    return float(places[i] + np.clip(shift, -1.0, 1.0) * (places[1] - places[0]))


def _settle(state: StartState, column: int, work: _Column) -> None:
    """Choose states and offsets; add groups until all is known well, or no more helps."""
    mesh, groups = state.probe.layout.mesh, 2 * len(work.sweeps) + 6
    for _ in range(min(groups, DAMAGED_GROUPS) if state.damaged else groups):
        margin = _solve(state, column, work)
        if _find_broken(state, column, work, MAX_CHI):
            margin = _solve(state, column, work)
        poor = (state.theta_sigma[work.cells] > WANTED_SIGMA) | (work.rival < LEAST_MARGIN)
        poor |= margin < WANTED_MARGIN
        hopeless = (work.chi > MAX_CHI) & (len(work.sweeps) > 4) | np.array([bool(reason) for reason in work.reason])
        poor &= ~hopeless & (work.outputs[0].max(axis=0) >= 0)
        if not poor.any() or column == state.meeting:
            break
        k = work.cells[state.rng.choice(np.flatnonzero(poor))]
        port = int(mesh.mzis[k][1]) + int(state.rng.integers(2))
        work.sweeps.append(_measure_group(state, column, port, POINTS))
        work.table = work.table + _table(state, column, work, work.sweeps[-1])


def _solve(state: StartState, column: int, work: _Column) -> Array:
    """States of the MZIs behind, then offsets of this column; returns the smaller margin of each cell's states."""
    mesh, cells = state.probe.layout.mesh, work.cells
    best = work.table.min(axis=1)
    broken = np.array([bool(reason) for reason in work.reason])
    best = np.where(np.isfinite(best), np.where(broken, 0.0, np.minimum(best, 1e4)), np.inf)
    states, margin = chain_states(best.T.reshape(-1, 2, 2))
    # Neighbouring cells share the MZI between them only where one stands there.
    margin = np.where(np.isfinite(margin), margin, np.inf)
    work.chosen = states
    number = 2 * states[:-1] + states[1:]
    every = np.arange(len(cells))
    costs = work.table[number, :, every].T
    angle, sigma, cost = minima(costs)
    seen = np.sum(np.take_along_axis(work.outputs, number[None, None, :], axis=0)[0] >= 0, axis=0)
    counts = [_freedom(state, column, cells, sweep) for sweep in work.sweeps]
    freedom = np.maximum(np.sum(counts, axis=0) * np.maximum(seen, 1) / 2.0 - 1.0, 1.0)
    work.chi = np.sqrt(cost / freedom)
    work.rival = rivals(costs, angle) / np.maximum(work.chi, 1.0) ** 2
    state.theta[cells] = angle
    state.theta_sigma[cells] = np.where((seen > 0) & ~broken, sigma * np.maximum(work.chi, 1.0), np.inf)
    exists = [[usable(state, column + 1, mesh.mzis[k][1] + side) for side in (-1, 1)] for k in cells]
    sides = np.where(np.array(exists), np.stack([margin[:-1], margin[1:]], axis=1), np.inf)
    return np.asarray(sides.min(axis=1))


def _freedom(state: StartState, column: int, cells: NDArray[np.intp], sweep: Sweep) -> Array:
    """Numbers a sweep tells beyond the unknown light (M,): two detectors, purity and equal detectors known."""
    count = np.full(len(cells), 2.0 * len(sweep.lit) - 3.0)
    if column == state.meeting:
        modes = state.probe.layout.mesh.modes[cells]
        count *= (sweep.lit[0] == modes) | (sweep.lit[0] == modes + 1)
    return count


def _judge(state: StartState, column: int, work: _Column) -> None:
    """Turn MZIs behind that are crossed by pi, and name those of this column that do not work."""
    mesh, cells = state.probe.layout.mesh, work.cells
    margin = _solve(state, column, work)
    if _find_broken(state, column, work, _SUSPICIOUS_CHI, PROOF):
        margin = _solve(state, column, work)
    for i, k in enumerate(cells):
        for side, crossed in ((-1, work.chosen[i]), (1, work.chosen[i + 1])):
            behind = state.index.get((column + 1, mesh.mzis[k][1] + side))
            if behind is not None and crossed and (side == 1 or i == 0):
                state.theta[behind] += np.pi
    for i, k in enumerate(cells):
        state.theta_reason[k] = _complaint(state, work, i)
        if margin[i] < LEAST_MARGIN:
            for side in (-1, 1):
                behind = state.index.get((column + 1, mesh.mzis[k][1] + side))
                if behind is not None and not state.theta_reason[behind]:
                    state.theta_reason[behind] = (
                        f"bar and cross differ in cost by {margin[i]:.0f} only ({LEAST_MARGIN:.0f} needed)"
                    )


def _join(state: StartState, work: _Column, theta: Array, sigma: Array) -> None:
    """Keep offsets found from the inputs where known; light that arrives alone tells bar from cross."""
    cells, number = work.cells, 2 * work.chosen[:-1] + work.chosen[1:]
    step = ANGLES[1] - ANGLES[0]
    for i, k in enumerate(cells):
        if not np.isfinite(sigma[i]):
            continue
        here, there = (work.table[number[i], round((theta[i] + turn) / step) % len(ANGLES), i] for turn in (0.0, np.pi))
        state.theta[k] = theta[i] + np.pi * (there < here)
        state.theta_sigma[k] = sigma[i] if np.isfinite(state.theta_sigma[k]) else np.inf
        margin = abs(there - here) / max(work.chi[i], 1.0) ** 2
        if margin < LEAST_MARGIN:
            state.theta_reason[k] = f"bar and cross differ in cost by {margin:.0f} only ({LEAST_MARGIN:.0f} needed)"
        elif state.good[k] and work.chi[i] <= MAX_CHI:
            state.theta_reason[k] = ""


def _complaint(state: StartState, work: _Column, i: int) -> str:
    k = work.cells[i]
    if work.reason[i]:
        return work.reason[i]
    if not np.isfinite(state.theta_sigma[k]):
        return "no detector sees its light"
    if work.chi[i] > MAX_CHI:
        return f"its fringes do not fit an MZI's: residual {work.chi[i]:.1f} times the expected ({MAX_CHI:g} allowed)"
    if state.theta_sigma[k] > MAX_SIGMA:
        return f"offset uncertain by {state.theta_sigma[k]:.2g} rad ({MAX_SIGMA:g} allowed): too little light"
    if work.rival[i] < LEAST_MARGIN / 2.0:
        return f"another offset is worse in cost by {work.rival[i]:.0f} only ({LEAST_MARGIN / 2.0:.0f} needed)"
    return ""


def _find_broken(state: StartState, column: int, work: _Column, least_chi: float, proof: float = -np.inf) -> bool:
    """Look for heaters that do nothing, or are swapped, where fringes fit badly or do not prove that theta's works.

    ``proof`` is the cost by which they must be worse without it.  Returns whether a broken one was found.
    """
    layout, every = state.probe.layout, np.arange(len(work.cells))
    number = 2 * work.chosen[:-1] + work.chosen[1:]
    alive = work.table[number, :, every].min(axis=1)
    seen = np.isfinite(state.theta_sigma[work.cells])
    suspicious = seen & (work.chi > least_chi)
    still = np.minimum(*(_costs_with(state, column, work, number, uses) for uses in ((0, 0), (0, 2))))
    before = list(work.reason)
    for heaters, moves, asked in (
        (layout.mesh_theta, state.moves_theta, seen & (suspicious | (still < alive + proof))),
        (layout.mesh_phi, state.moves_phi, suspicious),
    ):
        asked &= [not reason for reason in before]
        dead = find_dead(state, heaters[work.cells[asked]])
        for i in np.flatnonzero(asked)[dead]:
            moves[work.cells[i]] = False
            # Without a moving phi nothing tells theta's offset apart from the light's phases.
            work.reason[i] = DEAD if heaters is layout.mesh_theta else DEAD_PHI
    swapped = _costs_with(state, column, work, number, (2, 1))
    suspicious &= np.all(work.outputs[number, :, every] >= 0, axis=1)
    for i in np.flatnonzero(suspicious & (swapped < np.minimum(alive / _SWAP_ADVANTAGE, alive - _SWAP_MARGIN))):
        work.reason[i] = work.reason[i] or SWAPPED
    new = [i for i in every if work.reason[i] and not before[i]]
    for i in new:
        state.go_around(int(work.cells[i]))
    return bool(new)


def _costs_with(
    state: StartState, column: int, work: _Column, number: NDArray[np.intp], uses: tuple[int, int]
) -> Array:
    """Costs (M,) if theta and phi followed other phases: 0 none, 1 theta's, 2 phi's."""
    outputs = work.outputs[number, :, np.arange(len(number))].T
    total = np.zeros((len(ANGLES[::2]), len(number)))
    for sweep in work.sweeps:
        phases = phases_of(state, work.cells, sweep)
        options = (np.zeros_like(phases[0]), *phases)
        pair = pair_of(state, column, work.cells, outputs, sweep, (options[uses[0]], options[uses[1]]))
        total += fringe_costs(pair, state.couplers, ANGLES[::2])
    return np.asarray(total.min(axis=0))
