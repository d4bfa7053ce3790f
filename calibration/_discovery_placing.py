"""Which channel gets which phase, once steps have told what single channels do."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_state import UNKNOWN
from calibration._discovery_steps import LOG_LIKELIHOOD, Verdicts
from calibration._session import Array

HEAT_LIKELIHOOD = 5.0
"""Difference of log likelihoods by which one of the places that are left must be the likeliest."""


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
    """Give phases that powers do not show to the channels that only warm others.

    chip.yaml's own stays if its heat is not seen elsewhere beyond doubt; others get the place that is left where their
    heat most likely comes from.
    """
    for one in sorted(likely, key=lambda one: one not in places):
        free = np.flatnonzero(channel[places] == UNKNOWN)
        best = likely[one][free].max(initial=-np.inf)
        own = [k for k in free if places[k] == one and likely[one][k] > likely[one].max() - LOG_LIKELIHOOD]
        fit = own or free[likely[one][free] > best - HEAT_LIKELIHOOD].tolist()
        if len(fit) == 1 and likely[one][fit[0]] > likely[one].max() - LOG_LIKELIHOOD:
            channel[places[fit[0]]] = one
