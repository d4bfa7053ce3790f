"""Checks of arguments that runs and retraining share."""

from numbers import Real
from pathlib import Path

import numpy as np

from calibration._session import Array
from optinc_hw.errors import CalibrationError
from optinc_hw.onn._checks import whole_number


def require_whole(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number of at least ``least``."""
    if not whole_number(value, least):
        raise CalibrationError(f"{name} must be a whole number of at least {least}, got {value!r}; give an int")


def require_within(name: str, value: object, low: float, high: float, *, remedy: str) -> None:
    """Refuse what is no real number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) <= high:
        raise CalibrationError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}; {remedy}")


def require_file_name(name: str, value: object, remedy: str) -> None:
    """Refuse what is no path, or that of a folder."""
    if not isinstance(value, (str, Path)) or not Path(value).name or Path(value).is_dir():
        raise CalibrationError(f"{name} = {value!r} names no file; {remedy}")


def require_each(name: str, values: Array, length: int, *, zero: bool, remedy: str) -> None:
    """Refuse arrays of another shape than (length,), or with an entry that is NaN, Inf, negative, or 0 without zero."""
    array = np.asarray(values)
    if array.shape != (length,):
        raise CalibrationError(f"{name} has shape {array.shape}, and {length} heaters need ({length},); {remedy}")
    if array.dtype.kind not in "iuf":
        raise CalibrationError(f"{name} has dtype {array.dtype}; it must hold real numbers; {remedy}")
    bad = np.flatnonzero(~np.isfinite(array) | (array < 0.0) | ((array == 0.0) & (not zero)))
    if len(bad):
        least = "at least 0" if zero else "above 0"
        raise CalibrationError(
            f"{name} of heater {bad[0]} must be finite and {least}, got {float(array[bad[0]])!r} "
            f"({len(bad)} of {length} heaters are wrong); {remedy}"
        )
