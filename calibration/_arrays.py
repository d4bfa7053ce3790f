"""What callers give as arrays: checked numbers, or an error that names the argument, what it is and what to do."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import CalibrationError, OptincError

_KINDS = {
    "b": "truth values", "i": "whole numbers", "u": "whole numbers", "f": "real numbers", "c": "complex numbers",
    "S": "text", "U": "text", "M": "dates", "m": "times", "O": "objects, or rows of different lengths", "V": "records",
}  # fmt: skip


def floats(name: str, values: ArrayLike, error: type[OptincError] = CalibrationError) -> NDArray[np.float64]:
    """Return real numbers as an array of float64; masked entries become NaN.

    Parameters
    ----------
    name
        What the caller calls them.
    values
        Whatever numpy makes an array of.
    error
        The error to raise.

    Raises
    ------
    OptincError
        Of the type asked for, if they are complex, text, truth values, objects or of ragged shape.
    """
    array = _numbers(name, values, "iuf", "real numbers", error)
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float64)


def complexes(name: str, values: ArrayLike, error: type[OptincError] = CalibrationError) -> NDArray[np.complex128]:
    """Return real or complex numbers as an array of complex128; the rest is as in `floats`."""
    array = _numbers(name, values, "iufc", "numbers", error)
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.complex128)


def integers(name: str, values: ArrayLike) -> NDArray[np.intp]:
    """Return whole numbers as an array of integers; nothing may be masked.

    Raises
    ------
    CalibrationError
        If they are of another type, or an entry is masked.
    """
    array = _numbers(name, values, "iuf", "whole numbers", CalibrationError)
    if array.dtype.kind == "f" and array.size:
        raise CalibrationError(
            f"{name} must be integers, none masked, got {array.dtype} of shape {array.shape}; give whole numbers"
        )
    return np.asarray(array, dtype=np.intp)


def number(name: str, value: float) -> float:
    """Return one real number as a float; NaN if it is masked.

    Raises
    ------
    CalibrationError
        If it is of another type, or an array of several.
    """
    array = floats(name, value)
    if array.ndim:
        raise CalibrationError(f"{name} must be one number, got shape {array.shape}; give a single one")
    return float(array)


def flags(name: str, values: ArrayLike, length: int) -> NDArray[np.bool_]:
    """Return truth values (length,).

    Raises
    ------
    CalibrationError
        If they are of another type or shape, or one is masked.
    """
    array = _numbers(name, values, "b", "truth values", CalibrationError)
    hidden = isinstance(values, np.ma.MaskedArray) and bool(np.ma.getmaskarray(values).any())
    if array.shape != (length,) or hidden:
        raise CalibrationError(f"{name} must be {length} truth values, none masked, got shape {array.shape}")
    return np.asarray(array, dtype=np.bool_)


def heater_powers(name: str, values: ArrayLike, shape: tuple[int | str, ...]) -> NDArray[np.float64]:
    """Return electrical powers that heaters are set to: finite, none negative, of a shape like ``("B", 12)``.

    Raises
    ------
    CalibrationError
        If they are no numbers, of another shape, or a value is not finite or negative.
    """
    power = floats(name, values)
    if not fits(power, shape):
        raise CalibrationError(f"{name} must have the shape {text_of(shape)}, got {power.shape}")
    wrong = ~(np.isfinite(power) & (power >= 0.0))
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise CalibrationError(
            f"{name} holds {float(power[place])!r} W at {place}; heaters take finite powers of at least 0 W: leave "
            "invalid or masked settings out"
        )
    return power


def fits(array: NDArray[Any], shape: tuple[int | str, ...]) -> bool:
    """Tell whether an array has a shape in which text stands for any length."""
    return array.ndim == len(shape) and all(
        isinstance(wanted, str) or wanted == length for wanted, length in zip(shape, array.shape, strict=True)
    )


def text_of(shape: tuple[int | str, ...]) -> str:
    """Return a shape as text, such as (B, 12)."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _numbers(name: str, values: ArrayLike, kinds: str, wanted: str, error: type[OptincError]) -> NDArray[Any]:
    try:
        array = np.asarray(_unmasked(values))
    except (TypeError, ValueError, RuntimeError) as cause:
        raise error(f"{name} must be an array of {wanted}: {cause}") from cause
    if array.dtype.kind in kinds:
        return array
    found = _KINDS.get(array.dtype.kind, str(array.dtype))
    remedy = "take the part or the power that is meant" if array.dtype.kind == "c" else "convert them to numbers"
    raise error(f"{name} must be an array of {wanted}, got {found} (shape {array.shape}, {array.dtype}); {remedy}")


def _unmasked(values: Any) -> Any:  # Any: whatever a caller gives
    """Put NaN where an entry is masked, also in masked arrays inside of lists, whose masks numpy drops."""
    if isinstance(values, np.ma.MaskedArray):
        mask, plain = np.ma.getmaskarray(values), np.array(values.data)
        return np.where(mask, np.nan, plain) if values.dtype.kind in "iufc" and mask.any() else plain
    if isinstance(values, list | tuple) and any(
        isinstance(entry, list | tuple | np.ma.MaskedArray) for entry in values
    ):  # fmt: skip
        return [_unmasked(entry) for entry in values]
    return values
