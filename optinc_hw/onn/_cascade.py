"""Trees of networks for N1 x N2 (x N3 ...) servers (OptINC, section on the cascade, equations 8 to 10).

A network of each level averages what N networks of the level below send.  Rounding at every level (equation 9) is wrong
for more than a fifth of all inputs.  Instead a level sends its remainder along, merged into its last symbol, which then
has finer levels: with D servers below a network in all, the last symbol is a multiple of 1 / D, and

    mean = sum_{j >= 1} A_j 4**j + A_0

stays exact up to the last level, where it is rounded once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._area import Form
from optinc_hw.onn._checks import Rounding, check_bits, check_codes, check_rounding, symbol_count, whole_number
from optinc_hw.onn._circuit import Circuit, UnitKind, Value, unit_margin
from optinc_hw.onn._codec import encode_pam4
from optinc_hw.onn._exact import base4_digits, build_exact
from optinc_hw.onn._network import OpticalNetwork

_CHUNK = 1 << 15


@dataclass(frozen=True)
class LevelCheck:
    """What the networks of one level do on all the inputs that the level below can send.

    Parameters
    ----------
    inputs
        Number of inputs.
    worst
        Largest distance of an output from its level.
    spacing
        Distance of the levels of the last output: 1 where symbols are decided, finer where it carries a remainder.
    """

    inputs: int
    worst: float
    spacing: float

    @property
    def exact(self) -> bool:
        """Whether every output is nearer to its level than to any other."""
        return self.worst < self.spacing / 2.0


@dataclass(frozen=True, eq=False)
class Cascade:
    """Networks in levels; all networks of a level are alike.  Made by `build_cascade`.

    Parameters
    ----------
    servers
        Networks or servers (N1, N2, ...) that one network of each level averages, the servers' own level first.
    bits
        Width B of a code.
    rounding
        Rule of the mean.
    residual
        Whether remainders go up with the last symbol; otherwise every level rounds.
    levels
        One network of each level. With remainders, ``levels[i]`` takes averages of symbols whose last one is a multiple
        of 1 / (N1 ... Ni).
    """

    servers: tuple[int, ...]
    bits: int
    rounding: Rounding
    residual: bool
    levels: tuple[OpticalNetwork, ...]

    @property
    def total(self) -> int:
        """Number of servers."""
        return math.prod(self.servers)

    @property
    def networks(self) -> tuple[int, ...]:
        """Number of networks on each level."""
        return tuple(math.prod(self.servers[level + 1 :]) for level in range(len(self.servers)))

    def mzis(self, form: Form = "svd") -> int:
        """Count the MZIs of all networks of all levels, see `OpticalNetwork.mzis`."""
        return sum(count * network.mzis(form) for count, network in zip(self.networks, self.levels, strict=True))

    def run(self, codes: ArrayLike) -> NDArray[np.int64]:
        """Return the means (batch,) of codes (batch, servers in all), neighbouring servers on one network.

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server.
        """
        array = check_codes(codes, self.total, self.bits)
        symbols: NDArray[np.float64] = encode_pam4(array, self.bits).astype(np.float64)
        for level, (count, network) in enumerate(zip(self.servers, self.levels, strict=True)):
            averages = symbols.reshape(len(array), -1, count, symbols.shape[-1]).mean(axis=2)
            outputs = network.forward(averages.reshape(-1, averages.shape[-1]))
            if not self.residual or level == len(self.levels) - 1:
                outputs = encode_pam4(network.decode(outputs), self.bits).astype(np.float64)
            symbols = outputs.reshape(len(array), -1, outputs.shape[-1])
        weights = 4.0 ** np.arange(symbols.shape[-1] - 1, -1, -1)
        return np.asarray((symbols[:, 0] @ weights).astype(np.int64))

    def check(self, progress: Callable[[int, int, int], None] | None = None) -> tuple[LevelCheck, ...]:
        """Run each level on every input that the level below can send, against integer arithmetic.

        If every level is right on all of its inputs, so is the cascade on all of its own: far more than could be run.

        Parameters
        ----------
        progress
            Called with the level and the numbers of inputs done and in all.

        Raises
        ------
        NetworkError
            If the cascade rounds at every level: then no level has inputs of its own.
        """
        if not self.residual:
            raise NetworkError("a cascade that rounds at every level is built of networks to be enumerated each")
        found, below = [], 1
        for level, (count, network) in enumerate(zip(self.servers, self.levels, strict=True)):
            last = level == len(self.servers) - 1
            space = _LevelSpace(self.bits, count, below)
            worst, inputs = 0.0, 0
            for start in range(0, space.size, _CHUNK):
                sums = space.sums(np.arange(start, min(start + _CHUNK, space.size)))
                outputs = network.forward(space.averages(sums))
                expected = space.expected(sums, self.rounding if last else None)
                worst = max(worst, float(np.abs(outputs - expected).max(initial=0.0)))
                inputs += len(sums)
                if progress is not None:
                    progress(level, min(start + _CHUNK, space.size), space.size)
            below *= count
            found.append(LevelCheck(inputs, worst, 1.0 if last else 1.0 / below))
        return tuple(found)


@dataclass(frozen=True)
class _LevelSpace:
    """Inputs of a network of ``count`` inputs whose last symbols are multiples of 1 / ``below``."""

    bits: int
    count: int
    below: int

    @property
    def tops(self) -> tuple[int, ...]:
        """Largest sums of the symbols, the last one in units of 1 / below."""
        first = 1 if self.bits % 2 else 3
        symbols = [first, *([3] * (symbol_count(self.bits) - 1))]
        symbols[-1] = (symbols[-1] + 1) * self.below - 1
        return tuple(self.count * symbol for symbol in symbols)

    @property
    def size(self) -> int:
        return math.prod(top + 1 for top in self.tops)

    def sums(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums (batch, M) of the points without those whose mean exceeds the largest code."""
        sums = np.stack(np.unravel_index(index, [top + 1 for top in self.tops]), axis=-1).astype(np.int64)
        return sums[self._total(sums) <= ((1 << self.bits) - 1) * self.below * self.count]

    def averages(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        units = np.ones(len(self.tops))
        units[-1] = self.below
        return np.asarray(sums / (self.count * units))

    def expected(self, sums: NDArray[np.int64], rounding: Rounding | None) -> NDArray[np.float64]:
        """Symbols (batch, M) of the mean; without a rounding rule with the remainder in the last one."""
        parts = 2 * self.below * self.count
        total = 2 * self._total(sums) + (parts // 2 if rounding == "half_up" else 0)
        symbols = encode_pam4(total // parts, self.bits).astype(np.float64)
        if rounding is None:
            symbols[:, -1] += total % parts / parts
        return symbols

    def _total(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Mean times all servers below (batch,)."""
        weights = 4 ** np.arange(len(self.tops) - 1, -1, -1, dtype=np.int64)
        return np.asarray(self.below * (sums[:, :-1] @ weights[:-1]) + sums[:, -1])


def build_cascade(
    servers: Sequence[int],
    bits: int,
    rounding: Rounding = "half_up",
    *,
    residual: bool = True,
    slope: float = 4.0,
    unit: UnitKind = "clip01",
) -> Cascade:
    """Build a tree of exact networks for ``prod(servers)`` servers.

    Parameters
    ----------
    servers
        (N1, N2, ...): servers of one network of the first level, networks of the first level on one of the second, and
        so on; each at least 2.
    bits
        Width B of a code.
    rounding
        Rule of the mean.
    residual
        Send remainders up (exact). False rounds at every level, as in equation 9 of the paper, for comparison.
    slope, unit
        See `build_exact`.

    Raises
    ------
    NetworkError
        If a parameter is out of range.
    """
    counts = tuple(servers)
    check_rounding(rounding)
    if not counts or not all(whole_number(count, 2) for count in counts):
        raise NetworkError(f"servers must be integers of at least 2, one a level, got {servers!r}")
    if not residual:
        levels = tuple(build_exact(count, bits, rounding, slope=slope, unit=unit) for count in counts)
        return Cascade(counts, levels[0].bits, rounding, False, levels)
    bits = check_bits(bits)
    levels, below = (), 1
    for level, count in enumerate(counts):
        last = level == len(counts) - 1
        levels += (_level(_LevelSpace(bits, int(count), below), rounding if last else None, slope, unit),)
        below *= int(count)
    return Cascade(counts, bits, rounding, True, levels)


def _level(space: _LevelSpace, rounding: Rounding | None, slope: float, unit: UnitKind) -> OpticalNetwork:
    """Network of one level; without a rounding rule its last output has the remainder added."""
    count, below, tops = space.count, space.below, space.tops
    units = [1.0] * (len(tops) - 1) + [float(below)]
    high = [top / (count * part) for top, part in zip(tops, units, strict=True)]
    circuit = Circuit(high, [1.0 / (count * part) for part in units], slope, unit)
    sums = [circuit.input(k, count * part) for k, part in enumerate(units)]
    lowest, parts = sums.pop(), below * count
    half = Value.constant(parts / 2.0) if rounding == "half_up" else Value()
    if count == 4:
        quotient, remainder = circuit.divide(lowest + half, parts)
        values = [quotient, *([Value()] * (len(tops) - 1))]
        for position, value in enumerate(reversed(sums)):
            values[position] += value
    else:
        rest, quotients = Value(), []
        for value in sums:
            quotient, remainder = circuit.divide(rest.scaled(4.0) + value, count)
            quotients.append(quotient)
            rest, _ = circuit.divide(remainder, 1)
        quotient, remainder = circuit.divide(rest.scaled(4.0 * below) + lowest + half, parts)
        values = [quotient, *reversed(quotients)]
    digits = base4_digits(circuit, values, 1, len(tops))
    if rounding is None:
        digits[0] += circuit.divide(remainder, 1)[0].scaled(1.0 / parts)
    layers = circuit.layers(digits[::-1])
    return OpticalNetwork(count, space.bits, rounding or "floor", layers, margin=unit_margin(unit, slope))
