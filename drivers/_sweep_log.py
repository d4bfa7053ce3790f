"""What a laser logs during a wavelength sweep, and whether it is the sweep that was asked for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_END_TOLERANCE_M = 10e-12


@dataclass(frozen=True)
class SweepLog:
    """Log of one wavelength sweep.

    Attributes
    ----------
    wavelength_m
        (points,) float64, wavelengths in m in the order in which they were passed.
    power_w
        (points,) float64, the laser's own power monitor in W; NaN where it has no reading.
    valid
        (points,) bool, whether the monitor has a reading.
    """

    wavelength_m: NDArray[np.float64]
    power_w: NDArray[np.float64]
    valid: NDArray[np.bool_]


def points_of(start_m: float, stop_m: float, step_m: float) -> int:
    """Count the points that a step in m gives between two wavelengths in m, both ends included."""
    return int(abs(stop_m - start_m) / step_m + 1e-6) + 1


def log_problem(wavelength_m: NDArray[np.float64], start_m: float, stop_m: float, step_m: float) -> str | None:
    """Say what is wrong with logged wavelengths (points,) in m of a sweep from start to stop; None if nothing is.

    One point more or less than expected is no fault: instruments differ in whether they log the last one.
    """
    expected = points_of(start_m, stop_m, step_m)
    if not max(1, expected - 1) <= len(wavelength_m) <= expected + 1:
        return f"its log has {len(wavelength_m)} points, but {expected} were expected"
    direction = np.sign(stop_m - start_m)
    back = np.flatnonzero(np.diff(wavelength_m) * direction < 0.0)
    if back.size:
        return f"its log runs backwards after point {back[0]} at {wavelength_m[back[0]]:.6e} m"
    tolerance = step_m + _END_TOLERANCE_M
    if abs(wavelength_m[0] - start_m) > tolerance:
        return f"its log begins at {wavelength_m[0]:.6e} m instead of {start_m:.6e} m"
    last = start_m + direction * (expected - 1) * step_m
    if abs(wavelength_m[-1] - last) > tolerance:
        return f"its log ends at {wavelength_m[-1]:.6e} m instead of {last:.6e} m"
    return None
