"""Multiples of 2 pi of the input modulators' phases that are the same for all inputs.

Least power for each vector of inputs would let a heater whose phase comes near zero jump by a turn, and with it the
heat that spreads into the mesh: some inputs would see another matrix than their neighbours.
"""

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics._wraps import FAR, ZERO, Heating

_TWO_PI = 2.0 * np.pi
_ROUNDS = 20


def common_branches(
    heating: Heating, missing: NDArray[np.float64], max_power_w: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Phases that heat is to add, about which multiples of 2 pi are chosen.

    Each curve of phases begins as low as it can without any combination of inputs asking a heater for less than no
    power.  A curve that would end beyond its heater's limit is cut where it would begin.

    Parameters
    ----------
    heating
        Heating (h, h) of the heaters among one another.
    missing
        Phases (k, m, h) in rad that heat is to add, up to multiples of 2 pi: k curves for each heater, each of m phases
        over the range of its input.  Inputs are independent of one another.
    max_power_w
        Limit (h,) of each heater in W.

    Returns
    -------
    NDArray[np.float64]
        Middle (k, h) of each curve's branch in rad, which spans 2 pi.
    """
    ceiling = np.minimum(max_power_w / heating.price, FAR)
    turns = np.unwrap(missing / _TWO_PI, period=1.0, axis=1)
    low, high = turns.min(axis=1), turns.max(axis=1)
    raising, lowering = np.maximum(heating.inverse, 0.0), np.minimum(heating.inverse, 0.0)
    reserve = np.zeros(len(ceiling))
    for _ in range(_ROUNDS):
        whole = np.ceil(reserve - low - ZERO)
        fits = heating.diagonal * (high + whole) <= ceiling
        first, last = np.where(fits, low + whole, reserve), np.where(fits, high + whole, reserve + 1.0)
        least = raising @ first.min(axis=0) + lowering @ last.max(axis=0)
        if (least >= -ZERO).all():
            break
        reserve += np.maximum(-least, 0.0) / heating.diagonal
    return np.asarray(_TWO_PI * np.where(fits, (low + high) / 2.0 + whole, reserve + 0.5))
