"""What the bench reads: plain frozen arrays in the layout's order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class DetectorReading:
    """One reading of all photodiodes.

    Parameters
    ----------
    power_w
        Optical power, float64 (2n,), in W, in the order of ``ChipLayout.detectors``.
    valid
        bool (2n,); False where the meter reported over-range, under-range or an open sensor.  Such a value
        must not enter a fit.
    """

    power_w: NDArray[np.float64]
    valid: NDArray[np.bool_]


@dataclass(frozen=True)
class HeaterReading:
    """One measurement of all heaters.

    Parameters
    ----------
    voltage_v, current_a
        Measured voltage in V and current in A, float64 (H,), in the order of ``ChipLayout.heaters``.
    """

    voltage_v: NDArray[np.float64]
    current_a: NDArray[np.float64]
