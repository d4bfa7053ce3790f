"""Room for a sweep below the limit of a chip's total power: what is free is lowered, what must be as it is stays."""

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from optinc_hw.errors import CalibrationError

TOTAL_SHARE = 0.95
"""Part of the chip's total power limit that a sweep uses: limits are judged by voltages and nominal resistances."""


def room_for(power_w: Array, kept: NDArray[np.bool_], max_total_power_w: float, stage: str) -> float:
    """Return the factor, 1 at most, for all powers that are free, with which every row keeps the limit.

    Parameters
    ----------
    power_w
        Powers (B, H) in W.
    kept
        Heaters, (H,) or (B, H), whose powers must stay as they are, such as those of bar states.
    max_total_power_w
        The chip's limit in W.
    stage
        What it is for.

    Raises
    ------
    CalibrationError
        If what must stay exceeds the limit by itself.
    """
    if not len(power_w):
        return 1.0
    allowed = TOTAL_SHARE * max_total_power_w
    fixed = np.where(kept, power_w, 0.0).sum(axis=1)
    free = np.where(kept, 0.0, power_w).sum(axis=1)
    if fixed.max() > allowed:
        raise CalibrationError(
            f"{stage}: the states that MZIs must be in take {fixed.max():.4g} W, more than {allowed:.4g} W, which are "
            f"{TOTAL_SHARE:g} of the chip's power limit; raise limits.total_power_w in chip.yaml if chip and cooling "
            "allow it"
        )
    return float(np.min(np.divide(allowed - fixed, free, out=np.ones_like(free), where=fixed + free > allowed)))
