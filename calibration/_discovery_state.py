"""What discovery knows so far, and how it looks at one gate."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_routes import Route
from calibration._session import Array

UNKNOWN = -1


@dataclass
class Wiring:
    """What is known so far: which channel moves which phase, H of each in the layout's order.

    Parameters
    ----------
    channel
        Channel (H,) of each phase; `UNKNOWN` before it passed its test.
    bar_w
        Power (K,) in W at which each known internal phase is in bar.
    efficiency
        Efficiency (H,) of each channel in rad/W, nominal until measured.
    """

    channel: NDArray[np.intp]
    bar_w: Array
    efficiency: Array

    @property
    def steerable(self) -> NDArray[np.bool_]:
        """MZIs (K,) whose internal phase can be set."""
        return np.isfinite(self.bar_w)


@dataclass(frozen=True)
class Side:
    """One way to look at a gate: which arm is lit, and what shows that an output is dark."""

    crossed: bool
    cost: int
    route: Route
    behind: list[NDArray[np.intp]]
    output: int
