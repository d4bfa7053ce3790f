"""What detectors see of one column of a bare mesh while columns behind are in the bar or the cross state."""

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_fringes import PairSweep
from calibration._start_state import StartState, Sweep, finite_mean

MODEL_SHARE = 0.06
"""Share of an MZI's light by which readings differ from fringes of equal couplers without crosstalk."""
_LEAK = 0.05


def rows_seen(state: StartState, column: int) -> NDArray[np.intp]:
    """Detector (n,) that sees light which leaves ``column`` on each mode, -1 where none does."""
    mesh = state.probe.layout.mesh
    seen = np.where(state.blind, -1, np.arange(state.ports))
    for behind in reversed(range(column + 1, mesh.depth)):
        for k in mesh.columns[behind]:
            m = mesh.mzis[k][1]
            if not state.good[k]:
                seen[m : m + 2] = -1
            elif state.crossed[k]:
                seen[m : m + 2] = seen[[m + 1, m]]
    return seen


def outputs_of(state: StartState, column: int, cells: NDArray[np.intp]) -> NDArray[np.intp]:
    """Detectors (4, 2, M) of both outputs, by whether the MZIs behind are turned by pi; -2: no such case."""
    mesh, seen = state.probe.layout.mesh, rows_seen(state, column + 1)
    result = np.full((4, 2, len(cells)), -2, dtype=np.intp)
    for i, k in enumerate(cells):
        for number in range(4):
            for side, row, turned in ((-1, mesh.mzis[k][1], number // 2), (1, mesh.mzis[k][1] + 1, number % 2)):
                behind = state.index.get((column + 1, mesh.mzis[k][1] + side))
                works = behind is not None and state.good[behind]
                if turned and not works:
                    result[number, :, i] = -2
                    break
                crossed = works and bool(turned) != bool(state.crossed[behind])
                found = seen[row + side * crossed] if works or behind is None else -1
                result[number, (side + 1) // 2, i] = found
    return result


def usable(state: StartState, column: int, mode: int) -> bool:
    """Whether an MZI stands there and can be put into a wanted state."""
    k = state.index.get((column, mode))
    return k is not None and bool(state.good[k])


def pair_of(
    state: StartState, column: int, cells: NDArray[np.intp], outputs: NDArray[np.intp], sweep: Sweep,
    columns: tuple[Array, Array],
) -> PairSweep:  # fmt: skip
    """Pick the readings of MZIs at their detectors (2, M); ``columns`` are their phases theta and phi (R, M)."""
    mesh = state.probe.layout.mesh
    readings = np.concatenate([sweep.readings_w, np.full((len(sweep.lit), 1), np.nan)], axis=1)
    upper, lower = (readings[:, np.where(which < 0, -1, which)] for which in outputs)
    mean = np.maximum(finite_mean(readings[:, :-1]), 0.0)
    padded = np.pad(mean, 2)
    around = 0.25 * (padded[:-4] + padded[1:-3] + padded[3:-1] + padded[4:])
    own = np.stack([np.where(which < 0, np.nan, mean[which]) for which in outputs])
    light = 2.0 * finite_mean(own)
    stray = np.max([np.where(which < 0, 0.0, around[which]) for which in outputs], axis=0)
    passed = _LEAK**2 * (mesh.depth - 1 - column * (column != state.meeting))
    variance = (MODEL_SHARE * light / 2.0) ** 2 + passed * light * stray + (passed * stray) ** 2
    lit = np.zeros(len(cells), dtype=np.intp)
    if column == state.meeting:
        lit = np.where(sweep.lit[0] == mesh.modes[cells], 1, np.where(sweep.lit[0] == mesh.modes[cells] + 1, -1, 0))
    return PairSweep(*columns, upper, lower, np.sqrt(variance + state.noise.floor_w**2), lit)


def phases_of(state: StartState, cells: NDArray[np.intp], sweep: Sweep) -> tuple[Array, Array]:
    """Phases theta and phi (R, M) of MZIs in rad that a sweep meant to add."""
    layout = state.probe.layout
    return sweep.phase[:, layout.mesh_theta[cells]], sweep.phase[:, layout.mesh_phi[cells]]
