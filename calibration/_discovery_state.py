"""What discovery knows so far, and how it looks at one gate."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_routes import Route
from calibration._session import Array
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout

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


def require_bare(layout: ChipLayout) -> None:
    """Refuse chips that are no bare meshes.

    Raises
    ------
    CalibrationError
        If the chip has modulators or homodyne receivers.
    """
    if not layout.bare:
        raise CalibrationError(
            f"which heater is which phase is found on bare meshes only, and this chip has inputs = {layout.inputs!r}, "
            f"receivers = {layout.receivers!r}; nothing was driven; use calibrate"
        )
