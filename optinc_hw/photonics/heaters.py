"""The heater law: resistance that grows with power, and phases through thermal crosstalk, both ways."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import LimitError, MatrixError
from optinc_hw.photonics.twin import TwinParameters

_TWO_PI = 2.0 * np.pi
_WRAP_ROUNDS = 8


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
) -> NDArray[np.float64]:
    """Heater powers that give the asked phases modulo 2 pi, crosstalk included.

    The inverse of the crosstalk matrix is applied to the wanted phases plus multiples of 2 pi, which are raised
    or lowered until every heater dissipates between nothing and one period.

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

    Returns
    -------
    NDArray
        Powers ``(..., h)`` in W, all >= 0.

    Raises
    ------
    LimitError
        If no multiple of 2 pi keeps a heater within 0 and its limit.
    MatrixError
        If a phase is not finite.
    """
    indices = np.arange(len(parameters.offset)) if chosen is None else chosen
    inverse = np.linalg.inv(parameters.crosstalk[np.ix_(indices, indices)])
    missing = np.asarray(phases, float) - parameters.offset[indices] - np.asarray(background, float)
    if not np.isfinite(missing).all():
        raise MatrixError("the wanted phases hold NaN or Inf; every phase must be finite")
    wanted = np.mod(missing, _TWO_PI)
    own = wanted @ inverse.T
    for _ in range(_WRAP_ROUNDS):
        shift = np.where(own < 0.0, _TWO_PI, np.where(own >= 1.05 * _TWO_PI, -_TWO_PI, 0.0))
        if not shift.any():
            break
        wanted = wanted + shift
        own = wanted @ inverse.T
    power = own / parameters.efficiency[indices]
    limit = np.broadcast_to(np.asarray(max_power_w, float), power.shape)
    bad = (power < 0.0) | (power > limit)
    if bad.any():
        where = np.unravel_index(int(np.argmax(bad)), bad.shape)
        name = parameters.layout.heaters[int(indices[where[-1]])]
        raise LimitError(
            f"heater {name} would need {power[where] * 1e3:.2f} mW for the asked phase; the limit is "
            f"0 to {limit[where] * 1e3:.2f} mW. Raise max_power_w in chip.yaml or choose another phase"
        )
    return np.asarray(power, dtype=np.float64)
