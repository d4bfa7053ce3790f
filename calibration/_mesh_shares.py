"""How far shares of the outputs that a twin predicts are from measured ones, and which readings have shares at all."""

import numpy as np

from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

LIGHT_SIGMAS = 5.0
"""A reading has light if all outputs together show more than this many standard deviations of their noise without any;
shares of less, as behind a port whose fibre is dark, would be those of the noise."""
LEAST_WITH_LIGHT = 0.5
"""Share of the readings that must have light to judge a twin: one of two ports may be dark."""

_TINY = np.finfo(float).tiny


def share_distances(predicted: Array, readings_w: Array, noise: NoiseModel) -> Array:
    """Total variation distances of the readings that have light.

    Parameters
    ----------
    predicted
        Predicted powers (B, n) in W.
    readings_w
        Measured ones; outputs that are NaN are left out of both.
    noise
        Noise of a reading.

    Returns
    -------
    NDArray
        A distance for each reading with light, at most as many as there are readings.

    Raises
    ------
    CalibrationError
        If fewer than `LEAST_WITH_LIGHT` of the readings have light.
    """
    valid = np.isfinite(readings_w)
    told, seen = np.where(valid, predicted, 0.0), np.where(valid, readings_w, 0.0)
    light, least = seen.sum(axis=1), LIGHT_SIGMAS * noise.floor_w * np.sqrt(valid.sum(axis=1))
    lit = light > least
    if not lit.sum() >= LEAST_WITH_LIGHT * max(len(lit), 1):
        raise CalibrationError(
            f"{int(lit.sum())} of {len(lit)} readings have light (more than {LIGHT_SIGMAS:g} times the noise of all "
            f"outputs without any, {least.max(initial=0.0):.3g} W), {LEAST_WITH_LIGHT:.0%} are needed to judge a twin "
            "by shares of outputs; check the laser, its shutter, the input switch and fibres"
        )
    told, seen = (values[lit] / np.maximum(values[lit].sum(axis=1, keepdims=True), _TINY) for values in (told, seen))
    return np.asarray(0.5 * np.abs(told - seen).sum(axis=1))
