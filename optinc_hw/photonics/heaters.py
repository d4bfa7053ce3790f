"""The heaters' electrical law both ways, and the powers of a twin's heaters for wanted phases."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import LimitError, MatrixError
from optinc_hw.photonics._wraps import FAR, Heating, settle
from optinc_hw.photonics.twin import TwinParameters

_TWO_PI = 2.0 * np.pi
EFFORT = 1000
"""Branches that the search for the least power may take where bounds do not prove it; never a wall time."""
_CURVED_ROUNDS = 30
_CURVED_TOLERANCE = 1e-9
"""Second-order heating is found by iteration, until phases move by less than this, in rad."""


def power_from_voltage(voltage_v: ArrayLike, resistance_ohm: ArrayLike, beta_per_w: ArrayLike) -> NDArray[np.float64]:
    """Electrical power of heaters with ``R(P) = R0 (1 + beta P)`` at a voltage.

    Parameters
    ----------
    voltage_v
        Voltage in V; shapes broadcast.
    resistance_ohm
        Resistance R0 at zero power in ohm.
    beta_per_w
        Relative growth beta of the resistance in 1/W, >= 0.

    Returns
    -------
    NDArray
        Power in W: the positive root of ``R0 P (1 + beta P) = V^2``.
    """
    voltage, resistance, beta = np.broadcast_arrays(
        np.asarray(voltage_v, float), np.asarray(resistance_ohm, float), np.asarray(beta_per_w, float)
    )
    cold = voltage**2 / resistance
    return np.asarray(2.0 * cold / (1.0 + np.sqrt(1.0 + 4.0 * beta * cold)), dtype=np.float64)


def voltage_from_power(power_w: ArrayLike, resistance_ohm: ArrayLike, beta_per_w: ArrayLike) -> NDArray[np.float64]:
    """Voltage in V that dissipates ``power_w`` (W, >= 0) in heaters with ``R(P) = R0 (1 + beta P)``."""
    power = np.asarray(power_w, float)
    resistance = np.asarray(resistance_ohm, float) * (1.0 + np.asarray(beta_per_w, float) * power)
    return np.asarray(np.sqrt(power * resistance), dtype=np.float64)


def solve_powers(
    parameters: TwinParameters,
    phases: ArrayLike,
    *,
    chosen: NDArray[np.intp] | None = None,
    background: ArrayLike = 0.0,
    max_power_w: ArrayLike = np.inf,
    near: ArrayLike = np.nan,
) -> NDArray[np.float64]:
    """Heater powers that give the asked phases modulo 2 pi at the least total power, crosstalk included.

    As `solve_heaters`, for batches: bounds settle nearly all phases at once, a search settles each of the others. Where
    `EFFORT` branches are not enough, the best powers found are returned. With second-order heating the multiples of
    2 pi are those of least power without it, unless it forbids them.

    Parameters
    ----------
    parameters
        The calibrated (or nominal) chip.
    phases
        Wanted phases ``(..., h)`` in rad of the chosen heaters.
    chosen
        Indices (h,) of the heaters to solve for; None means all.
    background
        Phases (h,) in rad that the other heaters' heat adds to the chosen ones.
    max_power_w
        Limit per chosen heater in W.
    near
        Phases ``(..., h)`` in rad that heat, the background's included, is to add: where the multiples of 2 pi nearest
        to these are possible, they are taken, and not those of least power. NaN asks for least power.

    Returns
    -------
    NDArray
        Powers ``(..., h)`` in W, all >= 0.

    Raises
    ------
    LimitError
        If no multiples of 2 pi keep all heaters within 0 and their limits.
    MatrixError
        If a phase is not finite, or the crosstalk matrix is singular.
    """
    indices = np.arange(len(parameters.offset)) if chosen is None else chosen
    efficiency = parameters.efficiency[indices]
    heating = Heating.of(parameters.crosstalk[np.ix_(indices, indices)], efficiency)
    missing = np.asarray(phases, float) - parameters.offset[indices] - np.asarray(background, float)
    rows = missing.reshape(-1, len(indices))
    limit = np.broadcast_to(np.asarray(max_power_w, float), missing.shape).reshape(rows.shape)
    ceiling = np.minimum(limit / heating.price, FAR)
    curved = np.zeros_like(rows)
    total = np.broadcast_to(np.asarray(near, float) / _TWO_PI, missing.shape).reshape(rows.shape)
    for _ in range(_CURVED_ROUNDS):
        turns, _ = reduced(rows - curved)
        total = _kept_or_settled(parameters, indices, heating, turns, total, ceiling)
        power = np.clip(heating.own(total) * heating.price, 0.0, limit)
        before, curved = curved, _curvature(parameters, indices, power)
        if np.abs(curved - before).max(initial=0.0) < _CURVED_TOLERANCE:
            break
    return np.asarray(power.reshape(missing.shape), dtype=np.float64)


def _kept_or_settled(
    parameters: TwinParameters,
    indices: NDArray[np.intp],
    heating: Heating,
    turns: NDArray[np.float64],
    before: NDArray[np.float64],
    ceiling: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Total phases (rows, h) in turns: near those of the round before where these are possible, else of least power."""
    known = np.isfinite(before)
    total = turns + np.where(known, np.rint(np.where(known, before, 0.0) - turns), 0.0)
    own = heating.own(total)
    search = np.flatnonzero(~(known & (own >= 0.0) & (own <= ceiling)).all(axis=1))
    if len(search):
        settled = settle(heating, turns[search], ceiling[search])
        total[search] = turns[search] + settled.turns
        for row in search[~settled.proven]:
            total[row] = turns[row] + _searched(parameters, indices, heating, turns[row], ceiling[row])
    return np.asarray(total)


def _curvature(
    parameters: TwinParameters, indices: NDArray[np.intp], power_w: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Phases (rows, h) in rad that second-order heating adds at powers (rows, h) of the chosen heaters."""
    if not (parameters.second_order.any() or parameters.curvature.any()):
        return np.zeros_like(power_w)
    every = np.zeros((len(power_w), len(parameters.offset)))
    every[:, indices] = power_w
    return np.asarray(parameters.curved_phases(every))[:, indices]


def reduced(missing: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Split phases in rad that heat must add into a fraction of a turn and whole turns.

    Raises
    ------
    MatrixError
        If a phase is not finite.
    """
    if not np.isfinite(missing).all():
        raise MatrixError("the wanted phases hold NaN or Inf; every phase must be finite")
    turns = missing / _TWO_PI
    whole = np.floor(turns)
    return turns - whole, whole


def _searched(
    parameters: TwinParameters,
    indices: NDArray[np.intp],
    heating: Heating,
    turns: NDArray[np.float64],
    ceiling: NDArray[np.float64],
) -> NDArray[np.float64]:
    from optinc_hw.photonics._wraps_exact import Obstacle, search  # scipy's optimisers are slow to import

    answer = search(heating, turns, ceiling, EFFORT)
    if not isinstance(answer, Obstacle):
        return answer.turns
    k = answer.heater
    raise LimitError(
        f"heater {parameters.layout.heaters[int(indices[k])]} {answer.needs(heating.price[k])}; its limit is "
        f"0 to {ceiling[k] * heating.price[k] * 1e3:.2f} mW. Raise max_power_w in chip.yaml or choose other phases"
    )
