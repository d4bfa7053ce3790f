"""Checks of codes, widths and groups that codec, networks and executors share."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError

Rounding = Literal["half_up", "floor"]

MAX_BITS = 32
"""Largest code width; sums of many servers then still fit 64-bit integers."""


def whole_number(value: object, low: int) -> bool:
    """Tell whether ``value`` is an integer (no bool) of at least ``low``."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= low)


def check_bits(bits: int) -> int:
    """Return ``bits`` if it is a usable code width; raises NetworkError otherwise."""
    if not whole_number(bits, 1) or bits > MAX_BITS:
        raise NetworkError(f"bits must be an integer from 1 to {MAX_BITS}, got {bits!r}")
    return int(bits)


def check_rounding(rounding: str) -> None:
    """Raise NetworkError unless ``rounding`` is one of the two known rules."""
    if rounding not in ("half_up", "floor"):
        raise NetworkError(f"rounding must be 'half_up' or 'floor', got {rounding!r}")


def symbol_count(bits: int) -> int:
    """Return the number M = ceil(bits / 2) of PAM4 symbols of a code; raises NetworkError for a bad width."""
    return (check_bits(bits) + 1) // 2


def check_integers(values: ArrayLike, limit: int, what: str) -> NDArray[Any]:
    """Return ``values`` as an integer array (dtype kept) with all entries in 0 .. ``limit`` - 1.

    Raises
    ------
    NetworkError
        If the values are not integers or one lies outside; the message gives its place and value.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise NetworkError(f"{what} must be integers, got dtype {array.dtype}; quantise first")
    info = np.iinfo(array.dtype)
    if array.size == 0 or (info.min >= 0 and info.max < limit):
        return array
    if array.min() < 0 or array.max() >= limit:
        place = np.argwhere((array < 0) | (array >= limit))[0]
        value = array[tuple(place)]
        raise NetworkError(f"{what} at index {tuple(place.tolist())} is {value}; allowed are 0 to {limit - 1}")
    return array


def check_codes(codes: ArrayLike, servers: int, bits: int) -> NDArray[Any]:
    """Return ``codes`` as a (batch, servers) integer array in range; raises NetworkError otherwise."""
    array = check_integers(codes, 1 << check_bits(bits), "code")
    if array.ndim != 2 or array.shape[1] != servers:
        raise NetworkError(
            f"codes have shape {array.shape}; this network takes (batch, {servers}), one column a server"
        )
    return array


def group_length(symbols: int, inputs: int) -> int:
    """Return the number c = ceil(M / K) of neighbouring symbols that unit P joins for each network input.

    Raises
    ------
    NetworkError
        If ``inputs`` is outside 1..M, or K groups of c symbols would leave an input without a symbol.
    """
    if not 1 <= inputs <= symbols:
        raise NetworkError(f"unit P cannot feed {inputs} inputs from {symbols} symbols; choose 1 to {symbols}")
    length = -(-symbols // inputs)
    if length * (inputs - 1) >= symbols:
        raise NetworkError(
            f"{symbols} symbols in groups of {length} fill only {-(-symbols // length)} of {inputs} inputs; "
            f"choose {-(-symbols // length)} inputs"
        )
    return length
