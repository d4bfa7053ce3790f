"""Phases of a bare mesh where columns alone do not tell them: a rough twin that all readings of a start descend to.

A dead heater leaves a phase that is as unknown as offsets are, and it may hide what lies behind it from stages that go
column by column.  All readings together tell most of it.  One phase after the other is set to where the sum of squares
is lowest on the whole circle; where that ends in a wrong place, phases around one MZI are drawn anew.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_twin import RoughTwin
from calibration._mesh_linear import MeshData
from calibration._session import Array
from calibration._start_state import StartState

PASSES, HOP_PASSES = 6, 3
"""Passes over all phases from the columns' result, and after each change."""
HOPS, IDLE = 250, 60
"""Changes tried at most, and how many in a row that gain less than `LEAST_GAIN`."""
LEAST_GAIN = 0.01
"""Relative to the sum of squares."""
GOOD = (0.03, 0.004)
"""Total variation distance, and more for each port, of a twin that needs no more changes."""
SCALED, SCALE_SPREAD = 0.25, 0.07
"""Share of the changes that are of the common efficiency, if no sound MZI has told it, and their size."""
PROOF = 1.2
"""Sum of squares without a heater, over that with it, that proves that it does something."""
_REACHES = (1, 2, 3)
_DRAWN = 0.7


@dataclass(frozen=True)
class Explained:
    """Phases that explain the readings of a start.

    Parameters
    ----------
    theta, phi
        Offsets (K,) in rad.
    scale
        Common efficiency over that of the start.
    distance
        Mean total variation distance to the readings.
    before
        The same of the phases it began with.
    unproven
        Heaters (H,) without which the readings are explained nearly as well: they may do nothing.
    """

    theta: Array
    phi: Array
    scale: float
    distance: float
    before: float
    unproven: NDArray[np.bool_]


def explain(state: StartState) -> Explained:
    """Look for phases that explain all readings of a start, from those known so far."""
    layout, data = state.probe.layout, state.data()
    begun = _begun(state, data)
    free = np.ones(len(layout.heaters), dtype=np.bool_)
    # Phases of inputs, which no power shows.
    free[layout.mesh_phi[state.column < 2]] = False
    twin = _descended(begun, data, free, PASSES)
    twin = _hopped(twin, data, free, state)
    return Explained(
        twin.offset[layout.mesh_theta], twin.offset[layout.mesh_phi],
        float(twin.efficiency[0] / state.efficiency[0]), twin.distance(data), begun.distance(data),
        _unproven(twin, data, free),
    )  # fmt: skip


def _unproven(twin: RoughTwin, data: MeshData, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    most, every = PROOF * twin.misfit(data), np.arange(len(free))
    found = np.zeros(len(free), dtype=np.bool_)
    for heater in np.flatnonzero(free & (twin.channel >= 0)):
        still = replace(twin, channel=np.where(every == heater, -1, twin.channel))
        found[heater] = _descended(still, data, every == heater, 1).misfit(data) < most
    return found


def _begun(state: StartState, data: MeshData) -> RoughTwin:
    layout = state.probe.layout
    offset, channel = np.zeros(len(layout.heaters)), np.arange(len(layout.heaters))
    offset[layout.mesh_theta], offset[layout.mesh_phi] = state.theta, state.phi
    channel[layout.mesh_theta[~state.moves_theta]] = channel[layout.mesh_phi[~state.moves_phi]] = -1
    ones = np.ones(layout.ports)
    eta = np.pi / 4 + 0.5 * state.couplers.excess
    return RoughTwin(layout, channel, state.efficiency.copy(), offset, ones, ones, eta).with_scales(data)


def _descended(twin: RoughTwin, data: MeshData, free: NDArray[np.bool_], passes: int) -> RoughTwin:
    return twin.descended(data, free, twin.offset, np.full(len(free), np.inf), passes)


def _hopped(twin: RoughTwin, data: MeshData, free: NDArray[np.bool_], state: StartState) -> RoughTwin:
    """Change phases around one MZI after the other, and keep what explains the readings better."""
    misfit, idle = twin.misfit(data), 0
    good = GOOD[0] + GOOD[1] * twin.layout.ports
    for _ in range(HOPS):
        if idle >= IDLE or twin.distance(data) < good:
            break
        if not state.scale_known and state.rng.uniform() < SCALED:
            changed = replace(twin, efficiency=twin.efficiency * np.exp(SCALE_SPREAD * state.rng.standard_normal()))
        else:
            changed = _drawn(twin, free, state.rng)
        other = _descended(changed, data, free, HOP_PASSES)
        found = other.misfit(data)
        idle = 0 if found < (1.0 - LEAST_GAIN) * misfit else idle + 1
        if found < misfit:
            twin, misfit = other, found
    return twin


def _drawn(twin: RoughTwin, free: NDArray[np.bool_], rng: np.random.Generator) -> RoughTwin:
    """Draw free phases around one MZI anew."""
    places = np.repeat(np.array(twin.layout.mesh.mzis), 2, axis=0)
    away = np.abs(places - places[rng.integers(len(free))])
    near = (away <= rng.choice(_REACHES)).all(axis=1) & (rng.uniform(size=len(free)) < _DRAWN)
    return replace(twin, offset=np.where(free & near, rng.uniform(-np.pi, np.pi, len(free)), twin.offset))
