"""PAM4 codec, integer mean and preprocessing unit P: the arithmetic around the optical network.

Source: OptINC (arXiv 2603.28290), equations 2 to 4; signed values as offset binary are our choice.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._checks import (
    MAX_BITS,
    Rounding,
    check_bits,
    check_integers,
    check_rounding,
    group_length,
    symbol_count,
)


def encode_pam4(codes: ArrayLike, bits: int) -> NDArray[np.int64]:
    """Split codes into base-4 symbols, most significant first.

    Parameters
    ----------
    codes
        Integers in 0 .. 2**bits - 1, any shape.
    bits
        Width B of a code, 1 to 32; an odd width leaves the upper half of the first symbol unused.

    Returns
    -------
    NDArray[np.int64]
        Symbols 0..3 in a new last axis of length M = ceil(B / 2).

    Raises
    ------
    NetworkError
        If a code is not an integer or does not fit ``bits``.
    """
    array = check_integers(codes, 1 << check_bits(bits), "code").astype(np.int64)
    shifts = 2 * np.arange(symbol_count(bits) - 1, -1, -1, dtype=np.int64)
    symbols: NDArray[np.int64] = (array[..., None] >> shifts) & 3
    return symbols


def decode_pam4(symbols: ArrayLike) -> NDArray[np.int64]:
    """Join base-4 symbols (..., M), most significant first, to codes (...); inverse of `encode_pam4`.

    Raises
    ------
    NetworkError
        If a symbol is not an integer in 0..3 or there are none, or too many for 32 bits.
    """
    array = check_integers(symbols, 4, "symbol").astype(np.int64)
    if array.ndim == 0 or not 1 <= array.shape[-1] <= MAX_BITS // 2:
        raise NetworkError(
            f"symbols have shape {array.shape}; the last axis must hold 1 to {MAX_BITS // 2} symbols of a code"
        )
    weights = 4 ** np.arange(array.shape[-1] - 1, -1, -1, dtype=np.int64)
    codes: NDArray[np.int64] = array @ weights
    return codes


def quantised_mean(codes: ArrayLike, rounding: Rounding = "half_up") -> NDArray[np.int64]:
    """Integer mean over the servers, the reference for every network.

    Parameters
    ----------
    codes
        Non-negative integers (..., servers).
    rounding
        ``"half_up"``: floor(T / N + 1/2); its bias over uniformly spread remainders is +1/(2N) LSB for even N.
        ``"floor"``: floor(T / N), which discards the decimal part as the paper's cascade text says; its bias
        is -(N - 1)/(2N) LSB (-0.375 for N = 4), which accumulates over training steps.

    Returns
    -------
    NDArray[np.int64]
        Means (...).

    Raises
    ------
    NetworkError
        If codes are not integers in 0 .. 2**32 - 1, the server axis is missing or empty, or ``rounding`` is unknown.
    """
    check_rounding(rounding)
    array = check_integers(codes, 1 << MAX_BITS, "code")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise NetworkError(f"codes have shape {array.shape}; the last axis must be the servers, at least one")
    servers = array.shape[-1]
    total: NDArray[np.int64] = array.sum(axis=-1, dtype=np.int64)
    if rounding == "half_up":
        total = 2 * total + servers
        servers *= 2
    means: NDArray[np.int64] = total // servers
    return means


def preprocess(symbols: ArrayLike, inputs: int) -> NDArray[np.float64]:
    """Join neighbouring symbols and average over the servers, as unit P does.

    A_k = (1/N) sum_n sum_j 4**(c - j) I_n,(c (k - 1) + j) with c = ceil(M / K); where K does not divide M
    the first group is the shorter one, so that sum_k A_k 4**(c (K - k)) is the mean of the codes exactly.

    Parameters
    ----------
    symbols
        PAM4 symbols (..., servers, M), most significant first.
    inputs
        Number K of network inputs, 1 to M.

    Returns
    -------
    NDArray[np.float64]
        Averages (..., K) in 0 .. 4**c - 1, in steps of 1 / servers.

    Raises
    ------
    NetworkError
        If symbols are outside 0..3, an axis is missing, or ``inputs`` does not fit.
    """
    array = check_integers(symbols, 4, "symbol").astype(np.int64)
    if array.ndim < 2 or 0 in array.shape[-2:]:
        raise NetworkError(f"symbols have shape {array.shape}; unit P takes (..., servers, symbols)")
    servers, count = array.shape[-2:]
    length = group_length(count, inputs)
    total = array.sum(axis=-2)
    padded = np.zeros((*total.shape[:-1], length * inputs), dtype=np.int64)
    padded[..., length * inputs - count :] = total
    weights = 4 ** np.arange(length - 1, -1, -1, dtype=np.int64)
    sums = padded.reshape(*total.shape[:-1], inputs, length) @ weights
    return np.asarray(sums / servers, dtype=np.float64)


def symbol_error_rate(received: ArrayLike, expected: ArrayLike, bits: int) -> float:
    """Share of PAM4 symbols that differ between two arrays of codes.

    Parameters
    ----------
    received, expected
        Codes of equal shape in 0 .. 2**bits - 1, at least one.
    bits
        Width of a code.

    Raises
    ------
    NetworkError
        If shapes differ, are empty, or a code does not fit ``bits``.
    """
    left, right = encode_pam4(received, bits), encode_pam4(expected, bits)
    if left.shape != right.shape or left.size == 0:
        raise NetworkError(
            f"received codes {left.shape[:-1]} and expected codes {right.shape[:-1]} must have one shape, not empty"
        )
    return float(np.mean(left != right))
