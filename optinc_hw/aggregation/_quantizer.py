"""Block quantiser: floating-point gradients to offset-binary codes with block scales shared by all servers.

In the manner of SwitchML: the servers agree on each block's largest absolute value before the data are sent.  Since
the network returns a mean, not a sum, no headroom for the number of servers is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import GradientError

MAX_CODE_BITS = 16
_CHUNK = 1 << 16  # elements worked on at a time, so that temporaries stay in the cache

_SAFE_EXPONENT = {"f": 80, "d": 960}  # 2**x and 2**-x times any mantissa of 16 bits are normal numbers of the type

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.unsignedinteger[Any]]


def _whole_number(value: object, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _floats(values: NDArray[Any], what: str) -> Floats:
    """``values`` as float32 (from float16 too) or float64 with at least one axis; raises GradientError otherwise."""
    array = np.asarray(values)
    if array.ndim < 1 or array.dtype not in (np.float16, np.float32, np.float64):
        raise GradientError(
            f"{what} must be an array of float16, float32 or float64, got shape {array.shape}, dtype {array.dtype}"
        )
    return array.astype(np.float32) if array.dtype == np.float16 else array


@dataclass(frozen=True)
class _Scale:
    """Block maxima m 2**e split so that every product below is finite and exact up to one rounding."""

    mantissa: Floats
    exponent: NDArray[np.int32]

    @classmethod
    def of(cls, maxima: Floats) -> "_Scale":
        mantissa, exponent = np.frexp(maxima)
        return cls(mantissa, exponent)

    def step_mantissa(self, top: int) -> Floats:
        """Return m / top, rounded so that top steps never exceed the maximum (it may be the type's largest)."""
        step = self.mantissa / self.mantissa.dtype.type(top)
        excess = step * self.mantissa.dtype.type(top) > self.mantissa
        return np.where(excess, np.nextafter(step, step.dtype.type(0)), step)

    def inverse_mantissa(self, top: int) -> Floats:
        """Return top / m, and 0 for blocks of zeros."""
        lit = self.mantissa > 0
        inverse = np.zeros_like(self.mantissa)
        np.divide(top, self.mantissa, out=inverse, where=lit)
        return inverse


def _times_power(values: Floats, mantissa: Floats, exponent: NDArray[np.int32], *, mantissa_first: bool) -> Floats:
    """Return blocks of ``values`` (..., blocks, size) times mantissa * 2**exponent without under- or overflow.

    Ordinary blocks take one product.  If a block's factor lies near the end of the exponent range, the power is
    applied in two halves; other blocks' results are the same bits either way, as powers of two multiply exactly.
    """
    if np.abs(exponent).max(initial=0) <= _SAFE_EXPONENT[values.dtype.char]:
        return np.multiply(values, np.ldexp(mantissa, exponent)[:, None])
    half = exponent // 2
    one = values.dtype.type(1)
    powers = (np.ldexp(one, half), np.ldexp(one, exponent - half))
    for factor in (mantissa, *powers) if mantissa_first else (*powers, mantissa):
        values = np.multiply(values, factor[:, None])
    return values


@dataclass(frozen=True)
class BlockQuantizer:
    """Quantiser with one scale a block, shared by all servers.

    With L = 2**(bits - 1) - 1 and a block's shared maximum ``max``, a value g has the code
    rint(g * L / max) + 2**(bits - 1): offset binary, since the mean of offset codes is the offset of the mean.  The
    code 0 is never sent.  Blocks of zeros decode to exact zeros whatever the chip answers.

    Parameters
    ----------
    bits
        Width of a code, 2 to 16.
    block_size
        Elements that share a scale, at least 1.

    Raises
    ------
    GradientError
        If a parameter is out of range.

    Notes
    -----
    Largest error: with ``step = max / L`` each server's value is off by at most step / 2, and the network's rounding
    adds at most step / 2 (half up) or a full step (floor), so the decoded mean is within one step (floor: 1.5 steps)
    of the true mean, plus the rounding of the floating-point type.  Values, maxima and results may lie anywhere in
    the type's range, subnormal numbers and the largest finite number included; decoded values never exceed ``max``.
    All is deterministic, and a block's codes depend on nothing outside it.

    The scale's traffic is one number a block: 32 / (8 * 256) = 1.6 % for the defaults.
    """

    bits: int = 8
    block_size: int = 256

    def __post_init__(self) -> None:
        if not _whole_number(self.bits, 2) or self.bits > MAX_CODE_BITS:
            raise GradientError(f"quantiser bits must be an integer from 2 to {MAX_CODE_BITS}, got {self.bits!r}")
        if not _whole_number(self.block_size, 1):
            raise GradientError(f"block_size must be an integer of at least 1, got {self.block_size!r}")

    @property
    def code_dtype(self) -> type[np.uint8] | type[np.uint16]:
        """Smallest unsigned type that holds a code."""
        return np.uint8 if self.bits <= 8 else np.uint16

    @property
    def top(self) -> int:
        """Number L of steps from zero to the block's maximum."""
        return (1 << (self.bits - 1)) - 1

    def block_count(self, size: int) -> int:
        """Return the number of blocks of ``size`` elements; the last may be short."""
        return -(-size // self.block_size)

    def block_maxima(self, values: NDArray[Any]) -> Floats:
        """Find the largest absolute value of each block.

        Parameters
        ----------
        values
            Floating-point values (..., size); blocks lie along the last axis.

        Returns
        -------
        NDArray
            (..., blocks), float64 for float64 values, else float32; NaN or inf where a block holds one.
        """
        array = _floats(values, "values")
        maxima = np.empty((*array.shape[:-1], self.block_count(array.shape[-1])), dtype=array.dtype)
        for places, blocks in self._pieces(array.shape[-1]):
            maxima[..., blocks] = np.abs(self._blocks(array, places, blocks)).max(axis=-1)
        return maxima

    def step(self, maxima: Floats) -> Floats:
        """Return the size (blocks,) of one code step for shared block maxima."""
        scale = _Scale.of(self._checked_maxima(maxima, len(maxima)))
        steps = np.ones((len(scale.mantissa), 1), dtype=scale.mantissa.dtype)
        return _times_power(steps, scale.step_mantissa(self.top), scale.exponent, mantissa_first=True)[:, 0]

    def quantise(self, values: NDArray[Any], maxima: Floats) -> Codes:
        """Return the codes (..., size) of ``values`` (..., size) on the shared scale ``maxima`` (blocks,).

        Values beyond the shared maximum, which a correct maximum excludes, saturate.

        Raises
        ------
        GradientError
            If the maxima do not fit the values in number or type, are negative or not finite, or a value is NaN.
        """
        array = _floats(values, "values")
        shared = self._checked_maxima(maxima, self.block_count(array.shape[-1]))
        if shared.dtype != array.dtype:
            raise GradientError(f"block maxima of {shared.dtype} do not fit values of {array.dtype}; use block_maxima")
        scale = _Scale.of(shared)
        inverse = scale.inverse_mantissa(self.top)
        codes = np.empty(array.shape, dtype=self.code_dtype)
        for places, blocks in self._pieces(array.shape[-1]):
            part = self._blocks(array, places, blocks)
            work = _times_power(part, inverse[blocks], -scale.exponent[blocks], mantissa_first=False)
            np.rint(work, out=work)
            np.minimum(work, self.top, out=work)
            np.maximum(work, -self.top, out=work)
            work += self.top + 1
            try:
                with np.errstate(invalid="raise"):
                    codes[..., places] = work.reshape(*array.shape[:-1], -1)
            except FloatingPointError as error:
                raise GradientError("a value is NaN although the block maxima are finite; use block_maxima") from error
        return codes

    def dequantise(self, codes: NDArray[Any], maxima: Floats) -> Floats:
        """Return the values (..., size) of ``codes`` (..., size) on the shared scale ``maxima`` (blocks,), in its type.

        Raises
        ------
        GradientError
            If the maxima do not fit the codes in number, are negative or not finite, or codes are not integers.
        """
        if codes.ndim < 1 or codes.dtype.kind not in "iu":
            raise GradientError(f"codes must be an array of integers, got shape {codes.shape}, dtype {codes.dtype}")
        shared = self._checked_maxima(maxima, self.block_count(codes.shape[-1]))
        scale = _Scale.of(shared)
        step = scale.step_mantissa(self.top)
        values = np.empty(codes.shape, dtype=shared.dtype)
        for places, blocks in self._pieces(codes.shape[-1]):
            work = self._blocks(codes, places, blocks).astype(shared.dtype)
            work -= self.top + 1
            np.maximum(work, -self.top, out=work)  # code 0 means no more than code 1
            work = _times_power(work, step[blocks], scale.exponent[blocks], mantissa_first=True)
            values[..., places] = work.reshape(*codes.shape[:-1], -1)
        return values

    def _blocks(self, array: NDArray[Any], places: slice, blocks: slice) -> NDArray[Any]:
        """Elements ``places`` of the last axis as (..., blocks, elements of a block)."""
        return array[..., places].reshape(*array.shape[:-1], blocks.stop - blocks.start, -1)

    def _pieces(self, size: int) -> Iterator[tuple[slice, slice]]:
        """(elements, blocks) slices of a few full blocks each; the last short block comes alone."""
        full = size // self.block_size
        stride = max(1, _CHUNK // self.block_size)
        for start in range(0, full, stride):
            stop = min(start + stride, full)
            yield slice(start * self.block_size, stop * self.block_size), slice(start, stop)
        if size % self.block_size:
            yield slice(full * self.block_size, size), slice(full, full + 1)

    def _checked_maxima(self, maxima: Floats, blocks: int) -> Floats:
        vector = _floats(maxima, "block maxima")
        if vector.shape != (blocks,):
            raise GradientError(
                f"block maxima of shape {vector.shape} given for {blocks} blocks of {self.block_size} elements"
            )
        if not np.isfinite(vector).all() or (vector < 0).any():
            raise GradientError("block maxima must be finite and not negative; a gradient holds NaN or inf")
        return vector
