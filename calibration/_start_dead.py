"""Heaters that do nothing: readings that differ by one heater alone tell, whatever else is known of the mesh."""

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_state import TWO_PI, StartState, finite_mean

SETTINGS = 5
"""Settings of all others at which a heater must show nothing to be called dead; a working one mostly shows at once."""
LEAST_RESPONSE = 8.0
"""Changes of an output's share in the light, over the noise, that a working heater exceeds."""
_STEADY = 1e-3
"""Relative changes of a share between readings that no heater explains: steps of a source, drift."""
_REACH = 3


def find_dead(state: StartState, heaters: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Measure which heaters (h,) do nothing, heat on neighbours included; each is measured once in a start.

    Phis of the first column turn only the phase of the light let in; heaters that no power shows are not called dead.
    """
    shown = state.is_theta[heaters] | (state.column[state.mzi_of[heaters]] > 0)
    left = {int(heater): 0 for heater in heaters[shown] if int(heater) not in state.responds}
    while left:
        # Light from one port may reach several of them: they share the reading with which theirs are compared.
        near = _ports(state, next(iter(left)))
        lit = int(near[state.rng.integers(len(near))])
        together = [heater for heater in left if lit in _ports(state, heater)]
        for heater, responds in zip(together, _respond(state, np.array(together), lit), strict=True):
            left[heater] += 1
            if responds or left[heater] == SETTINGS:
                state.responds[heater] = responds
                del left[heater]
    return np.array([not state.responds.get(int(heater), True) for heater in heaters], dtype=np.bool_)


def _ports(state: StartState, heater: int) -> NDArray[np.intp]:
    """Ports whose light comes to the heater's MZI; far ones send little."""
    column, mode = state.probe.layout.mesh.mzis[state.mzi_of[heater]]
    near = min(int(column), _REACH)
    return np.arange(max(mode - near, 0), min(mode + 2 + near, state.ports))


def _respond(state: StartState, heaters: NDArray[np.intp], lit: int) -> list[bool]:
    """Whether readings change with each of some heaters at one random setting of all others."""
    phase = np.tile(state.random_phase(1, np.arange(len(state.mzi_of))), (len(heaters) + 1, 1))
    reach = np.minimum(TWO_PI, (state.efficiency * state.probe.max_power_w)[heaters])
    changed = np.arange(len(heaters))
    phase[changed + 1, heaters] = (phase[0, heaters] + reach / 2.0) % reach
    none = np.zeros(0, dtype=np.intp)
    state.asides.append(state.measure("start_heater", phase, np.full(len(phase), lit, dtype=np.intp), none))
    readings = state.asides[-1].readings_w
    return [_change(state, readings[np.array([0, row])]) > LEAST_RESPONSE for row in changed + 1]


def _change(state: StartState, readings_w: Array) -> float:
    """Largest change of an output's share over the noise; infinite where too little light would hide it."""
    total = np.nansum(readings_w, axis=1, keepdims=True)
    seen = np.isfinite(readings_w).all(axis=0)
    if not np.all(total > LEAST_RESPONSE * state.noise.floor_w) or not seen.any():
        return np.inf
    share = readings_w[:, seen] / total
    relative, floor = np.hypot(state.noise.relative, _STEADY), state.noise.floor_w / float(total.min())
    sigma = np.sqrt(2.0 * (relative * np.maximum(finite_mean(share), 0.0)) ** 2 + 2.0 * floor**2)
    return float(np.max(np.ptp(share, axis=0) / sigma))
