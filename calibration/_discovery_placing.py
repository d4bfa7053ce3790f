"""Which channel gets which phase, once steps have told what single channels do."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from calibration._discovery_state import UNKNOWN
from calibration._discovery_steps import LOG_LIKELIHOOD, Verdicts
from calibration._session import Array

HEAT_LIKELIHOOD = 5.0
"""Difference of log likelihoods by which a channel's place must be the likeliest where chip.yaml has it elsewhere."""
FARTHEST = 2.0 * LOG_LIKELIHOOD
"""The same by which a channel's place may be less likely than one that is another's."""
_NEVER = -1e12


@dataclass(frozen=True)
class Placed:
    """Channel (H,) of each phase, whether (H,) that is undecided, and whether (H,) each channel does nothing."""

    channel: NDArray[np.intp]
    undecided: NDArray[np.bool_]
    silent: NDArray[np.bool_]


def half_told(verdicts: Verdicts, silent: NDArray[np.bool_], likely: dict[int, Array]) -> NDArray[np.bool_]:
    """Accused channels (H,) of which it is open what the channel does whose phase they would move.

    Wires are exchanged, so one that hangs elsewhere leaves another to be found; half an exchange may be a wrong twin.
    """
    every = np.arange(len(silent))
    told = verdicts.decided | silent | np.isin(every, list(likely))
    half = np.zeros(len(silent), dtype=bool)
    while True:
        more = verdicts.decided & ~half & (verdicts.best != every) & ~(told & ~half)[verdicts.best]
        if not more.any():
            return half
        half |= more


def place_unseen(channel: NDArray[np.intp], places: NDArray[np.intp], likely: dict[int, Array]) -> None:
    """Give phases that powers do not show to the channels that only warm others, all together the likeliest way.

    chip.yaml is believed unless what is measured of all of them is likelier otherwise by `LOG_LIKELIHOOD` for each
    exchange of two; what is then found elsewhere must be the likeliest there by `HEAT_LIKELIHOOD`.

    Parameters
    ----------
    channel
        Channel (H,) of each phase; filled in.
    places
        Phases that powers do not show.
    likely
        Log likelihoods (places,) of each such channel at each place.
    """
    free = np.flatnonzero(channel[places] == UNKNOWN)
    if not len(free) or not likely:
        return
    channels, half = np.array(sorted(likely)), 0.5 * LOG_LIKELIHOOD
    heat = np.stack([likely[one] - likely[one].max() for one in channels.tolist()])[:, free]
    own = channels[:, None] == places[free]
    deserted = ~np.isin(places[free], channels)
    total = heat + half * own - half * deserted
    rows, columns = linear_sum_assignment(total, maximize=True)
    best = total[rows, columns].sum()
    for row, column in zip(rows, columns, strict=True):
        other = total.copy()
        other[row, column] = _NEVER
        second = other[linear_sum_assignment(other, maximize=True)].sum()
        sure = own[row, column] or best - second > HEAT_LIKELIHOOD
        if sure and heat[row, column] > -FARTHEST:
            channel[places[free[column]]] = channels[row]
