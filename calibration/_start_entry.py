"""Internal phases of the first columns of a large bare mesh: columns from the inputs on, all MZIs of a column at once.

With every column before one in the bar state, a lit port reaches one MZI of that column alone.  What the columns behind
make of its two outputs is not known, but stands still: at every detector the power is ``|T_u A + T_l B|^2`` with
unknown A and B, linear in ``|A|^2``, ``|B|^2`` and ``A B*``.  The phi behind the lower output turns the latter by known
phases, so theta's offset is what remains, but for pi: crossing this MZI swaps A and B.  Which port reaches which MZI
settles it one column later.  Errors add up over the columns before only, as behind in `_start_theta`.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_dead import find_dead
from calibration._start_fringes import ANGLES, chain_states, minima, rivals
from calibration._start_state import DEAD, TWO_PI, StartState, Sweep, finite_mean

POINTS = 5
"""Readings a lit port."""
LAST_POINTS = 8
"""Readings of the last port where no phi stands behind the lower output of the MZI it reaches."""
ROUNDS = 3
"""How often MZIs may be measured, each time with other phases behind."""
WANTED_SIGMA, MAX_SIGMA = 0.08, 0.3
"""Offsets less well known than the first, rad, are measured again; less well known than the second, not used."""
MAX_CHI = 2.5
"""Root of the reduced sum of squares above which an MZI is not understood."""
LEAST_MARGIN = 16.0
"""Cost, over the reduced sum of squares, by which other offsets and the other of bar and cross must be worse."""
_MODEL_SHARE = 0.06
_LEAK = 0.05
_LOOSE = 10.0
_SUSPICIOUS_CHI = 1.5


@dataclass
class _Entry:
    """One column; ``table`` (4, G, M) by states of the MZIs before: left bar or cross, right."""

    column: int
    cells: NDArray[np.intp]
    table: Array
    freedom: Array
    stuck: Array
    states: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    margin: Array = field(default_factory=lambda: np.zeros(0))
    sweeps: list[dict[int, Sweep]] = field(default_factory=list)
    turned: list[dict[int, Array]] = field(default_factory=list)


def find_first_thetas(state: StartState) -> None:
    """Measure and find the offsets of thetas up to column ``state.meeting``, those of that column but for pi."""
    mesh = state.probe.layout.mesh
    for column in range(state.meeting + 1):
        state.progress("start_theta", mesh.depth - 1 - state.meeting + column, mesh.depth + 1)
        cells = np.array(mesh.columns[column], dtype=np.intp)
        shape = (4, len(ANGLES), len(cells))
        work = _Entry(column, cells, np.zeros(shape), np.zeros((4, len(cells))), np.zeros((4, len(cells))))
        ports = np.arange(state.ports)
        for _ in range(ROUNDS):
            _measure(state, work, ports)
            _add_costs(state, work)
            poor = _settle(state, work)
            if not poor.any():
                break
            wanted = (mesh.modes[cells[poor]][:, None] + np.arange(-1, 3)).ravel()
            ports = np.unique(wanted[(wanted >= 0) & (wanted < state.ports)])
        _turn(state, work)
    for k in np.flatnonzero((state.column < state.meeting) & ~state.good):
        state.go_around(int(k))


def arriving(state: StartState, column: int) -> NDArray[np.intp]:
    """Port (n,) whose light alone arrives at each mode before ``column``, -1 where none does."""
    mesh, ports = state.probe.layout.mesh, np.arange(state.ports)
    for before in range(column):
        for k in mesh.columns[before]:
            if not state.good[k]:
                ports[mesh.mzis[k][1] : mesh.mzis[k][1] + 2] = -1
    return ports


def bars(state: StartState, cells: NDArray[np.intp]) -> Array:
    """Phases (h,) in rad that put MZIs into the bar state."""
    return np.where(state.good[cells], (np.pi - state.theta[cells]) % TWO_PI, 0.0)


def _measure(state: StartState, work: _Entry, ports: NDArray[np.intp]) -> None:
    """Light one port after the other; phases behind stay, but those of the phis of the next column."""
    layout, column = state.probe.layout, work.column
    # What is behind is unknown anyway; mid-range phases heat this column as readings do on average.
    still = np.full(len(layout.heaters), np.pi)
    behind = np.flatnonzero(state.column > column)
    if work.sweeps:
        still[layout.mesh_theta[behind]] = state.random_phase(1, layout.mesh_theta[behind])[0]
    before = np.flatnonzero(state.column < column)
    still[layout.mesh_theta[before]] = bars(state, before)
    mixed = np.flatnonzero(state.column <= column + 1)
    last = state.index.get((column + 1, state.ports - 3))
    sweeps, turned = dict[int, Sweep](), dict[int, Array]()
    for port in ports:
        edge = port == state.ports - 1 and last is not None and (column, state.ports - 2) in state.index
        points = LAST_POINTS if edge else POINTS
        phase = np.tile(still, (points, 1))
        phase[:, layout.mesh_phi[mixed]] = state.random_phase(points, layout.mesh_phi[mixed])
        phase[:, layout.mesh_theta[work.cells]] = state.random_phase(points, layout.mesh_theta[work.cells])
        turned[int(port)] = np.zeros(points)
        kept = layout.mesh_theta[before]
        if edge:
            # Without a phi behind, what becomes of the upper output is changed instead.
            turned[int(port)][points // 2 :] = 1.0
            heater = layout.mesh_theta[last]
            phase[points // 2 :, heater] = (phase[0, heater] + np.pi) % TWO_PI
            kept = np.append(kept, heater)
        sweeps[int(port)] = state.measure("start_theta", phase, np.full(points, port, dtype=np.intp), kept)
    work.sweeps.append(sweeps)
    work.turned.append(turned)


def _add_costs(state: StartState, work: _Entry) -> None:
    """Add the costs of the last readings to the table."""
    mesh, reached = state.probe.layout.mesh, arriving(state, work.column)
    for i, k in enumerate(work.cells):
        m = int(mesh.mzis[k][1])
        for number in range(4):
            entries = []
            for side, mode, turned in ((-1, m, number // 2), (1, m + 1, number % 2)):
                before = state.index.get((work.column - 1, m + side))
                if turned and (before is None or not state.good[before]):
                    work.table[number, :, i] = np.inf
                    break
                port = int(reached[mode + side if turned else mode])
                if port >= 0 and port in work.sweeps[-1]:
                    entries.append((port, (side + 1) // 2))
            if np.isfinite(work.table[number, 0, i]) and entries:
                costs, stuck, freedom = _costs(state, work, int(k), entries)
                work.table[number, :, i] += costs
                work.stuck[number, i] += stuck
                work.freedom[number, i] += freedom


def _costs(state: StartState, work: _Entry, k: int, entries: list[tuple[int, int]]) -> tuple[Array, float, float]:
    """Return sums of squares (G,) that no A and B explain, the same where theta stands still, and freedom."""
    layout = state.probe.layout
    sweeps, turns = work.sweeps[-1], work.turned[-1]
    theta = np.concatenate([sweeps[port].phase[:, layout.mesh_theta[k]] for port, _ in entries])
    side = np.concatenate([np.full(len(sweeps[port].lit), lower) for port, lower in entries])
    other = np.concatenate([turns[port] for port, _ in entries])
    after = state.index.get((work.column + 1, layout.mesh.mzis[k][1] + 1))
    delta = np.zeros(len(theta))
    if after is not None:
        delta = np.concatenate([sweeps[port].phase[:, layout.mesh_phi[after]] for port, _ in entries])
    share, variance = _shares(state, work.column, [sweeps[port] for port, _ in entries])
    eta = np.pi / 4 + state.couplers.excess / 2.0
    loose = np.maximum(finite_mean(share), 1e-6) * _LOOSE
    costs = []
    for moved in (theta[None] + ANGLES[:, None], 0.0 * theta[None] + ANGLES[:, None]):
        rows = _design(moved, side, delta, other, eta)
        costs.append(_unexplained(rows, share, variance, loose))
    unknowns = 4 if after is not None else 5
    freedom = float(np.sum(np.maximum(np.isfinite(share).sum(axis=0) - unknowns, 0)))
    return costs[0], float(costs[1].min()), freedom


def _shares(state: StartState, column: int, sweeps: list[Sweep]) -> tuple[Array, Array]:
    """Shares (R, n) of the outputs in all light seen, and their variances (n,), light gone astray included."""
    readings = np.concatenate([sweep.readings_w for sweep in sweeps])
    total = np.maximum(np.nansum(readings, axis=1, keepdims=True), state.noise.floor_w)
    share = readings / total
    mean = np.maximum(finite_mean(share), 0.0)
    stray = _LEAK**2 * column / state.ports
    floor = state.noise.floor_w / float(np.median(total))
    variance = (_MODEL_SHARE * mean) ** 2 + stray * mean + stray**2 + (0.1 * _MODEL_SHARE / state.ports) ** 2 + floor**2
    return share, variance


def _design(theta: Array, side: Array, delta: Array, other: Array, eta: float) -> Array:
    """Rows (G, R, 7): |A|^2, |A'|^2, |B|^2, Re and Im of A B* and of A' B*, where A' replaces A at ``other``."""
    inner, c, s = np.exp(1j * theta), np.cos(eta), np.sin(eta)
    cross = 1j * c * s * (inner + 1.0)
    upper = np.where(side == 0, c * c * inner - s * s, cross)
    lower = np.where(side == 0, cross, c * c - s * s * inner)
    product = 2.0 * upper * np.conj(lower) * np.exp(-1j * delta)
    first = np.abs(upper) ** 2
    return np.stack([
        first * (1.0 - other), first * other, np.abs(lower) ** 2, product.real * (1.0 - other),
        product.imag * (1.0 - other), product.real * other, product.imag * other,
    ], axis=-1)  # fmt: skip


def _unexplained(rows: Array, share: Array, variance: Array, loose: Array) -> Array:
    """Sum of squares (G,) over all detectors, seen in every reading, that the rows do not explain."""
    seen = np.isfinite(share).all(axis=0)
    # All detectors share the rows; what differs is the prior's width over the noise.
    values, ratio = share[:, seen] / np.sqrt(variance[seen]), variance[seen] / loose[seen] ** 2
    normal = np.swapaxes(rows, 1, 2) @ rows
    eigen, vectors = np.linalg.eigh(normal)
    right = np.swapaxes(vectors, 1, 2) @ (np.swapaxes(rows, 1, 2) @ values)
    explained = right**2 / (np.maximum(eigen, 0.0)[:, :, None] + ratio)
    return np.asarray(np.sum(values**2) - explained.sum(axis=(1, 2)))


def _settle(state: StartState, work: _Entry) -> NDArray[np.bool_]:
    """Choose states of the MZIs before and offsets of this column; returns which should be measured again (M,)."""
    cells = work.cells
    every, lit = np.arange(len(cells)), work.freedom[0] > 0.0
    best = work.table.min(axis=1)
    best = np.where(np.isfinite(best), np.minimum(best, 1e4), np.inf)
    work.states, margin = chain_states(best.T.reshape(-1, 2, 2))
    work.margin = np.where(np.isfinite(margin), margin, np.inf)
    number = 2 * work.states[:-1] + work.states[1:]
    costs = work.table[number, :, every].T
    angle, sigma, cost = minima(costs)
    chi = np.sqrt(cost / np.maximum(work.freedom[number, every], 1.0))
    rival = rivals(costs, angle) / np.maximum(chi, 1.0) ** 2
    state.theta[cells] = angle
    state.theta_sigma[cells] = np.where(lit, sigma * np.maximum(chi, 1.0), np.inf)
    weakest = np.minimum(np.minimum(work.margin[:-1], work.margin[1:]), rival)
    poor = lit & ((state.theta_sigma[cells] > WANTED_SIGMA) | (weakest < LEAST_MARGIN) | (chi > MAX_CHI))
    for i, k in enumerate(cells):
        stuck = max(float(work.stuck[number[i], i]), 1e-9)
        reason = ""
        if not lit[i]:
            reason = "no port's light arrives at it alone"
        elif _unproven(chi[i], stuck, cost[i]) and find_dead(state, state.probe.layout.mesh_theta[[k]])[0]:
            reason = DEAD
            state.moves_theta[k] = False
        elif chi[i] > MAX_CHI:
            reason = f"its fringes do not fit an MZI's: residual {chi[i]:.1f} times the expected ({MAX_CHI:g} allowed)"
        elif state.theta_sigma[k] > MAX_SIGMA:
            reason = f"offset uncertain by {state.theta_sigma[k]:.2g} rad ({MAX_SIGMA:g} allowed): too little light"
        elif rival[i] < LEAST_MARGIN / 2.0:
            reason = f"another offset is worse in cost by {rival[i]:.0f} only ({LEAST_MARGIN / 2.0:.0f} needed)"
        state.theta_reason[k] = reason
        if reason:
            state.theta_sigma[k] = np.inf
    return np.asarray(poor)


def _unproven(chi: float, still: float, moving: float) -> bool:
    """Whether fringes leave it open that theta's heater does something."""
    return chi > _SUSPICIOUS_CHI or (still - moving) / max(chi, 1.0) ** 2 < LEAST_MARGIN


def _turn(state: StartState, work: _Entry) -> None:
    """Turn MZIs of the column before that are crossed by pi."""
    mesh = state.probe.layout.mesh
    turned = dict[int, tuple[bool, float]]()
    for i, k in enumerate(work.cells):
        for side, at in ((-1, i), (1, i + 1)):
            before = state.index.get((work.column - 1, mesh.mzis[k][1] + side))
            if before is not None and state.good[before]:
                turned[before] = bool(work.states[at]), float(work.margin[at])
    for before, (crossed, margin) in turned.items():
        state.theta[before] += np.pi * crossed
        if margin < LEAST_MARGIN:
            state.theta_reason[before] = (
                f"bar and cross differ in cost by {margin:.0f} only ({LEAST_MARGIN:.0f} needed)"
            )
