"""Block quantiser: floating-point gradients to offset-binary codes with block scales shared by all servers.

In the manner of SwitchML: the servers agree on each block's largest absolute value before the data are sent.  Since
the network returns a mean, not a sum, no headroom for the number of servers is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from optinc_hw.aggregation import _kernels
from optinc_hw.errors import GradientError

MAX_CODE_BITS = 16

_SAFE_EXPONENT = {"f": 80, "d": 960}  # 2**x and 2**-x times any mantissa of 16 bits are normal numbers of the type

Floats = NDArray[np.floating[Any]]
Codes = NDArray[np.unsignedinteger[Any]]
Borders = NDArray[np.int64]
CodeRounding = Literal["nearest", "half_up", "floor", "stochastic"]

_RULES = {
    "nearest": _kernels.NEAREST,
    "half_up": _kernels.HALF_UP,
    "floor": _kernels.FLOOR,
    "stochastic": _kernels.STOCHASTIC,
}


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


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array (..., size) as contiguous rows (rows, size)."""
    return np.ascontiguousarray(array).reshape(-1, array.shape[-1])


def _result(out: NDArray[Any] | None, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:  # numpy's dtype
    """``out`` if it can take the result, or a new array."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        raise GradientError(
            f"out has shape {out.shape} and dtype {out.dtype}; the result needs a contiguous array of shape {shape} "
            f"and dtype {np.dtype(dtype)}"
        )
    return out


@dataclass(frozen=True)
class _Scale:
    """Block maxima m 2**e split so that every product below is finite and exact up to one rounding."""

    mantissa: Floats
    exponent: NDArray[np.int32]

    @classmethod
    def of(cls, maxima: Floats) -> "_Scale":
        mantissa, exponent = np.frexp(maxima)
        return cls(mantissa, exponent)

    def steps(self, top: int) -> Floats:
        """Return factors (3, blocks) from codes to values: m / top first, then the power in halves.

        m / top is rounded so that top steps never exceed the maximum (it may be the type's largest).
        """
        step = self.mantissa / self.mantissa.dtype.type(top)
        excess = step * self.mantissa.dtype.type(top) > self.mantissa
        mantissa, *powers = self._split(np.where(excess, np.nextafter(step, step.dtype.type(0)), step), self.exponent)
        return np.stack([mantissa, *powers])

    def inverse_steps(self, top: int) -> Floats:
        """Return factors (3, blocks) from values to codes: the power in halves, then top / m; 0 for blocks of zeros."""
        inverse = np.zeros_like(self.mantissa)
        np.divide(top, self.mantissa, out=inverse, where=self.mantissa > 0)
        mantissa, *powers = self._split(inverse, -self.exponent)
        return np.stack([*powers, mantissa])

    @staticmethod
    def _split(mantissa: Floats, exponent: NDArray[np.int32]) -> tuple[Floats, Floats, Floats]:
        """Return a factor and two powers of two whose product is mantissa 2**exponent.

        Only where the exponent is near the end of the type's range are the powers other than 1.  Results are the same
        bits either way, as powers of two multiply exactly.
        """
        one = mantissa.dtype.type(1)
        far = np.abs(exponent) > _SAFE_EXPONENT[mantissa.dtype.char]
        half = np.where(far, exponent // 2, 0)
        rest = np.where(far, exponent - half, 0)
        return np.ldexp(mantissa, np.where(far, 0, exponent)), np.ldexp(one, half), np.ldexp(one, rest)


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
    rounding
        How a value between two codes is rounded: ``"nearest"`` (halves to the even code), ``"half_up"``, ``"floor"``
        (towards minus infinity; biased by half a step), or ``"stochastic"`` (up with the probability of the remainder,
        unbiased; `quantise` tells where its random numbers come from).

    Raises
    ------
    GradientError
        If a parameter is out of range.

    Notes
    -----
    Largest error: with ``step = max / L`` each server's value is off by at most step / 2 (floor and stochastic: a
    step), and the network's rounding adds at most step / 2 (half up) or a full step (floor), so the decoded mean is
    within one step (floor: 1.5 steps) of the true mean, plus the rounding of the floating-point type.  Values, maxima
    and results may lie anywhere in the type's range, subnormal numbers and the largest finite number included; decoded
    values never exceed ``max``.  All is deterministic, and a block's codes depend on nothing outside it.

    The scale's traffic is one number a block: 32 / (8 * 256) = 1.6 % for the defaults.
    """

    bits: int = 8
    block_size: int = 256
    rounding: CodeRounding = "nearest"

    def __post_init__(self) -> None:
        if not _whole_number(self.bits, 2) or self.bits > MAX_CODE_BITS:
            raise GradientError(f"quantiser bits must be an integer from 2 to {MAX_CODE_BITS}, got {self.bits!r}")
        if not _whole_number(self.block_size, 1):
            raise GradientError(f"block_size must be an integer of at least 1, got {self.block_size!r}")
        if self.rounding not in get_args(CodeRounding):
            raise GradientError(f"rounding must be one of {get_args(CodeRounding)}, got {self.rounding!r}")

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

    def borders(self, sizes: Sequence[int]) -> Borders:
        """Return where blocks begin and the last one ends (blocks + 1,), for vectors of ``sizes`` one behind the other.

        No block holds elements of two vectors, so that a vector's codes do not depend on its neighbours.
        """
        parts, start = [], 0
        for size in sizes:
            parts.append(np.arange(start, start + size, self.block_size, dtype=np.int64))
            start += size
        return np.concatenate([*parts, np.array([start], dtype=np.int64)])

    def block_maxima(self, values: NDArray[Any], borders: Borders | None = None) -> Floats:
        """Find the largest absolute value of each block.

        Parameters
        ----------
        values
            Floating-point values (..., size); blocks lie along the last axis.
        borders
            Borders of the blocks, see `borders`; default equal blocks from the first element on.

        Returns
        -------
        NDArray
            (..., blocks), float64 for float64 values, else float32; NaN or inf where a block holds one.
        """
        array = _floats(values, "values")
        places = self._checked_borders(borders, array.shape[-1])
        patterns: type[np.int64] | type[np.int32] = np.int64 if array.dtype == np.float64 else np.int32
        found = np.empty((*array.shape[:-1], len(places) - 1), dtype=array.dtype)
        if found.size:
            mask = np.iinfo(patterns).max
            _kernels.maxima(_rows(array).view(patterns), places, patterns(mask), _rows(found).view(patterns))
        return found

    def step(self, maxima: Floats) -> Floats:
        """Return the size (blocks,) of one code step for shared block maxima."""
        factors = _Scale.of(self._checked_maxima(maxima, len(maxima))).steps(self.top)
        return np.asarray(factors[0] * factors[1] * factors[2])

    def quantise(
        self,
        values: NDArray[Any],
        maxima: Floats,
        borders: Borders | None = None,
        *,
        seed: int | Sequence[int] = 0,
        out: Codes | None = None,
    ) -> Codes:
        """Return the codes (..., size) of ``values`` (..., size) on the shared scale ``maxima`` (blocks,).

        Values beyond the shared maximum, which a correct maximum excludes, saturate.

        Parameters
        ----------
        values
            Floating-point values (..., size).
        maxima
            Shared maxima (blocks,).
        borders
            As in `block_maxima`.
        seed
            Of stochastic rounding: one number, or one for each row; an element's draw depends on the number and the
            element's place alone.  Servers must differ in it.
        out
            Contiguous array of `code_dtype` (..., size) for the codes.

        Raises
        ------
        GradientError
            If the maxima do not fit the values in number or type, are negative or not finite, a value is NaN, or
            ``seed`` or ``out`` do not fit.
        """
        array = _floats(values, "values")
        places = self._checked_borders(borders, array.shape[-1])
        shared = self._checked_maxima(maxima, len(places) - 1)
        if shared.dtype != array.dtype:
            raise GradientError(f"block maxima of {shared.dtype} do not fit values of {array.dtype}; use block_maxima")
        codes = _result(out, array.shape, self.code_dtype)
        if not array.size:
            return codes
        rows = _rows(array)
        factors, top = _Scale.of(shared).inverse_steps(self.top), array.dtype.type(self.top)
        keys = self._keys(seed, len(rows))
        if _kernels.quantise(rows, places, factors, top, _RULES[self.rounding], keys, _rows(codes)):
            raise GradientError("a value is NaN although the block maxima are finite; use block_maxima")
        return codes

    def dequantise(
        self, codes: NDArray[Any], maxima: Floats, borders: Borders | None = None, *, out: Floats | None = None
    ) -> Floats:
        """Return the values (..., size) of ``codes`` (..., size) on the shared scale ``maxima`` (blocks,), in its type.

        Raises
        ------
        GradientError
            If the maxima do not fit the codes in number, are negative or not finite, codes are not integers, or ``out``
            does not fit.
        """
        if codes.ndim < 1 or codes.dtype.kind not in "iu":
            raise GradientError(f"codes must be an array of integers, got shape {codes.shape}, dtype {codes.dtype}")
        places = self._checked_borders(borders, codes.shape[-1])
        shared = self._checked_maxima(maxima, len(places) - 1)
        values = _result(out, codes.shape, shared.dtype)
        if codes.size:
            factors = _Scale.of(shared).steps(self.top)
            _kernels.dequantise(_rows(codes), places, factors, np.int32(self.top), _rows(values))
        return values

    def _checked_borders(self, borders: Borders | None, size: int) -> Borders:
        if borders is None:
            return self.borders([size])
        places = np.asarray(borders, dtype=np.int64)
        if places.ndim != 1 or len(places) < 1 or places[0] != 0 or places[-1] != size or (np.diff(places) < 0).any():
            raise GradientError(f"borders of blocks must rise from 0 to {size}, the number of values")
        return places

    def _keys(self, seed: int | Sequence[int], rows: int) -> NDArray[np.uint64]:
        seeds = [seed] * rows if isinstance(seed, int) else list(seed)
        if len(seeds) != rows:
            raise GradientError(f"{len(seeds)} seeds given for {rows} rows of values; give one number or one a row")
        return np.array([one % (1 << 64) for one in seeds], dtype=np.uint64)

    def _checked_maxima(self, maxima: Floats, blocks: int) -> Floats:
        vector = _floats(maxima, "block maxima")
        if vector.shape != (blocks,):
            raise GradientError(
                f"block maxima of shape {vector.shape} given for {blocks} blocks of at most {self.block_size} elements"
            )
        if not np.isfinite(vector).all() or (vector < 0).any():
            raise GradientError("block maxima must be finite and not negative; a gradient holds NaN or inf")
        return vector
