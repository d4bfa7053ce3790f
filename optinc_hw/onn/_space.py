"""Every input that unit P can present to a network."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._checks import check_integers, group_length, symbol_count, whole_number


@dataclass(frozen=True)
class InputSpace:
    """Every input that unit P can present to a network: what exhaustive checks and tables run over.

    Parameters
    ----------
    servers
        Number N of servers.
    bits
        Width B of a code.
    inputs
        Number K of network inputs.

    Notes
    -----
    Input k takes ``levels[k]`` equidistant values, N (4**c - 1) + 1 for a full group of c symbols, so the
    space of N = 4, B = 8, K = 4 has 13**4 = 28 561 points.  A point's index counts the sums, most significant
    input first.
    """

    servers: int
    bits: int
    inputs: int

    def __post_init__(self) -> None:
        if not whole_number(self.servers, 1):
            raise NetworkError(f"servers must be an integer of at least 1, got {self.servers!r}")
        group_length(symbol_count(self.bits), self.inputs)

    @cached_property
    def group(self) -> int:
        """Number c of symbols of a full group."""
        return group_length(symbol_count(self.bits), self.inputs)

    @cached_property
    def maxima(self) -> tuple[int, ...]:
        """Largest value of each group of one server (K,)."""
        rest = self.inputs - 1
        first = self.bits - 2 * self.group * rest
        return ((1 << first) - 1, *((4**self.group - 1,) * rest))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Number of values of each network input (K,)."""
        return tuple(self.servers * maximum + 1 for maximum in self.maxima)

    @cached_property
    def size(self) -> int:
        """Number of points."""
        size = 1
        for level in self.levels:
            size *= level
        return size

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        strides = [1]
        for level in self.levels[:0:-1]:
            strides.append(strides[-1] * level)
        return tuple(reversed(strides))

    @cached_property
    def keys(self) -> NDArray[np.intp]:
        """Share (2**bits,) of each code in a point's index: the sum over the servers' keys is the index.

        Raises
        ------
        NetworkError
            If codes have more than 16 bits or the space is too large for 64-bit indices.
        """
        if self.bits > 16 or self.size > np.iinfo(np.intp).max:
            raise NetworkError(f"an input space of {self.size} points for {self.bits}-bit codes has no key table")
        codes = np.arange(1 << self.bits, dtype=np.intp)
        keys = np.zeros_like(codes)
        for k, stride in enumerate(self._strides):
            shift = 2 * self.group * (self.inputs - 1 - k)
            keys += ((codes >> shift) & self.maxima[k]) * stride
        return keys

    def sums(self, index: ArrayLike) -> NDArray[np.int64]:
        """Return the sums over the servers (batch, K) of the points with the indices (batch,)."""
        points = check_integers(index, self.size, "point index").astype(np.int64)
        columns = [points // stride % level for stride, level in zip(self._strides, self.levels, strict=True)]
        return np.stack(columns, axis=-1)

    def averages(self, index: ArrayLike) -> NDArray[np.float64]:
        """Return the network inputs A (batch, K) of the points with the indices (batch,)."""
        return np.asarray(self.sums(index) / self.servers, dtype=np.float64)

    def codes(self, index: ArrayLike) -> NDArray[np.int64]:
        """Return codes (batch, servers) of the servers that unit P maps to the points with the indices (batch,).

        Many code combinations share a point; this one fills the servers in order.
        """
        sums = self.sums(index)
        codes = np.zeros((*sums.shape[:-1], self.servers), dtype=np.int64)
        for k, maximum in enumerate(self.maxima):
            shift = 2 * self.group * (self.inputs - 1 - k)
            for server in range(self.servers):
                codes[..., server] += np.clip(sums[..., k] - server * maximum, 0, maximum) << shift
        return codes
