"""Checks of arguments that runs and retraining share."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path

import numpy as np

from calibration._session import Array
from optinc_hw.bench import CalibrationRecord
from optinc_hw.errors import CalibrationError
from optinc_hw.onn._checks import whole_number

_TEMPORARY = 10
"""Characters that a temporary name has more than the file's own."""


def require_whole(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number of at least ``least``."""
    if not whole_number(value, least):
        raise CalibrationError(f"{name} must be a whole number of at least {least}, got {value!r}; give an int")


def require_within(name: str, value: object, low: float, high: float, *, remedy: str) -> None:
    """Refuse what is no real number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) <= high:
        raise CalibrationError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}; {remedy}")


def require_text(name: str, value: object, remedy: str) -> None:
    """Refuse what is no text, an empty one, or one with a NUL, which ends texts in files."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise CalibrationError(f"{name} must be a text of at least one character, without NUL, got {value!r}; {remedy}")


def require_record(name: str, value: object) -> None:
    """Refuse what is no calibration record."""
    if not isinstance(value, CalibrationRecord):
        raise CalibrationError(
            f"{name} is a {type(value).__name__} and no calibration record; give a CalibrationRecord, such as "
            "CalibrationRecord.load reads"
        )


def expanded(name: str, value: object, remedy: str) -> Path:
    """Return an absolute path, ``~`` replaced by the home folder; refuse what is no path."""
    try:
        if isinstance(value, (str, Path)) and "\0" not in str(value):
            return Path(value).expanduser().absolute()
        cause = "it is no path"
    except RuntimeError as error:  # a user that is not known
        cause = str(error)
    raise CalibrationError(f"{name} = {value!r} names no place ({cause}); {remedy}")


def require_file_name(name: str, value: object, remedy: str) -> None:
    """Refuse what is no path, that of a folder, and what the file system cannot give a file as name."""
    if not isinstance(value, (str, Path)) or not Path(value).name:
        raise CalibrationError(f"{name} = {value!r} names no file; {remedy}")
    path = Path(value)
    if len(path.parts) > 1 and path.parts[0].startswith("~"):
        raise CalibrationError(
            f"{name} = {str(value)!r} begins with ~, which stands for no folder here; {remedy} with the home folder "
            "written out, such as pathlib.Path(...).expanduser()"
        )
    try:
        # As long as the temporary name under which a file is written before it gets its own.
        found = [_mode(path), _mode(path.with_name(path.name + "." * _TEMPORARY))]
    except (OSError, ValueError) as error:  # ValueError: a NUL, or characters that the file system cannot encode
        raise CalibrationError(f"{name} = {str(value)!r} cannot name a file ({error}); {remedy}") from error
    if stat.S_ISDIR(found[0]):
        raise CalibrationError(f"{name} = {value!r} names no file, but a folder; {remedy}")


def _mode(path: Path) -> int:
    """Return the mode of what is at a path, 0 if nothing is."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@contextmanager
def readable(what: str, path: object) -> Iterator[None]:
    """Make one error of all that reading a damaged netCDF file, or one that is none, can raise."""
    try:
        yield
    except CalibrationError:
        raise
    except (
        OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, MemoryError,
    ) as error:  # fmt: skip
        # RuntimeError: HDF5's own, and JSON nested without end.  MemoryError: a damaged length.
        cause = str(error) or type(error).__name__
        raise CalibrationError(f"cannot read {what} {path}: {cause}; give a run's netCDF file, or a copy") from error


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
