"""Chains of like cells: each makes one or a few symbols of the mean and hands its carry on.

With D = 4**p, D a multiple of N, the mean of N servers is ``floor((sum_j D x_j 4**j + D / 2) / D)`` with unit P's
averages x_j (position j, least significant 0), and pencil-and-paper addition does it position by position:

    v = D x_j + carry,   digit = v mod 4,   carry' = v div 4;   the lowest p digits are dropped.

The carry lies in 0 .. D - 1.  Rounding half up is a first carry of D / 2.  So one cell, repeated, serves any number of
bits, and any N that D is a multiple of.  Averages that wait and digits that are done do not pass through optics.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._area import Form, count_mzis
from optinc_hw.onn._checks import Rounding, check_codes, check_rounding, symbol_count, whole_number
from optinc_hw.onn._circuit import Circuit, UnitKind, Value, unit_margin
from optinc_hw.onn._codec import decode_pam4, encode_pam4, preprocess
from optinc_hw.onn._network import Layer, Multiply

FIRST_CARRY = 2.0
"""Carry signal that rounds half up, whatever the divisor."""


@dataclass(frozen=True, eq=False)
class Cell:
    """Network of a few positions of a mean.

    Parameters
    ----------
    divisor
        D, a power of 4: averages are multiples of 1 / D, carries go up to D - 1.
    digits
        Number g of positions.
    layers
        The layers. Inputs (g + 1,): averages, most significant first, and the carry in. Outputs (g + 1,): the carry
        out, and digits 0..3, most significant first. Carry signals are ``4 / D`` times the carry, below 4 as all are.
    margin
        Of a trained cell, what is left of half a level, or of half a carry, at the worst output in a chain of any
        length, 0 where that is not proved (`prove_composition`); of a constructed one as for `OpticalNetwork`.

    Raises
    ------
    NetworkError
        If the divisor is no power of 4, or the layers do not fit together or to the positions.
    """

    divisor: int
    digits: int
    layers: tuple[Layer, ...]
    margin: float = 0.0

    def __post_init__(self) -> None:
        check_divisor(self.divisor)
        if not whole_number(self.digits, 1) or not self.layers:
            raise NetworkError(f"a cell needs a digit and a layer, got {self.digits!r} and {len(self.layers)}")
        for k, (layer, following) in enumerate(pairwise(self.layers)):
            if layer.weight.shape[0] != following.weight.shape[1]:
                raise NetworkError(
                    f"layer {k} of the cell gives {layer.weight.shape[0]} signals, layer {k + 1} takes "
                    f"{following.weight.shape[1]}"
                )
        ends = self.sizes[0], self.sizes[-1]
        if ends != (self.digits + 1,) * 2:
            raise NetworkError(f"a cell of {self.digits} digits has {self.digits + 1} inputs and outputs, not {ends}")

    @property
    def inputs(self) -> int:
        """Number g + 1 of inputs and of outputs."""
        return int(self.layers[0].weight.shape[1])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Signals before the first and after each layer, such as (2, 32, 32, 2)."""
        return (self.inputs, *(int(layer.weight.shape[0]) for layer in self.layers))

    @property
    def carry_step(self) -> float:
        """Distance of the levels of a carry signal."""
        return 4.0 / self.divisor

    @property
    def steps(self) -> NDArray[np.float64]:
        """Distances (g + 1,) of the levels of the outputs."""
        return np.array([self.carry_step, *([1.0] * self.digits)])

    def mzis(self, form: Form = "svd") -> int:
        """Count the MZIs of all layers in the given form (`count_mzis`)."""
        return sum(count_mzis((rows, columns), form) for columns, rows in pairwise(self.sizes))

    def forward(self, inputs: ArrayLike, multiply: Multiply | None = None) -> NDArray[np.float64]:
        """Return outputs (batch, g + 1) for inputs (batch, g + 1).

        Parameters
        ----------
        inputs
            Averages, most significant first, and the carry signal in.
        multiply
            Replaces the exact product of each layer, see `OpticalNetwork.forward`.

        Raises
        ------
        NetworkError
            If inputs or a product have the wrong shape.
        """
        signals = np.asarray(inputs, dtype=np.float64)
        if signals.ndim != 2 or signals.shape[1] != self.inputs:
            raise NetworkError(f"cell inputs have shape {signals.shape}; expected (batch, {self.inputs})")
        for index, layer in enumerate(self.layers):
            product = signals @ layer.weight.T if multiply is None else multiply(index, signals)
            if product.shape != (len(signals), len(layer.bias)):
                raise NetworkError(
                    f"the product of layer {index} of the cell has shape {product.shape}; expected "
                    f"{(len(signals), len(layer.bias))}"
                )
            signals = layer.activate(product + layer.bias)
        return signals


def check_divisor(divisor: int) -> None:
    """Raise NetworkError unless ``divisor`` is a power of 4, from 4."""
    exponent = int(divisor).bit_length() - 1 if whole_number(divisor, 4) else 1
    if exponent % 2 or divisor != 1 << exponent:
        raise NetworkError(f"the divisor of a cell must be a power of 4, from 4, got {divisor!r}")


@dataclass(frozen=True)
class CellSpace:
    """Every (sums, carry) that a cell can be given, and what it should answer.

    Parameters
    ----------
    divisor, digits
        See `Cell`.
    """

    divisor: int
    digits: int

    @property
    def size(self) -> int:
        """Number of points; the carry varies fastest."""
        return int((3 * self.divisor + 1) ** self.digits * self.divisor)

    def states(self, index: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return sums (batch, g), most significant first, and carries (batch,) of the points (batch,)."""
        shape = (*((3 * self.divisor + 1,) * self.digits), self.divisor)
        columns = np.stack(np.unravel_index(np.asarray(index), shape), axis=-1).astype(np.int64)
        return columns[..., :-1], columns[..., -1]

    def signals(self, index: ArrayLike) -> NDArray[np.float64]:
        """Return the inputs (batch, g + 1) of the points with the indices (batch,)."""
        sums, carry = self.states(index)
        return np.column_stack([sums, 4 * carry]) / float(self.divisor)

    def answers(self, index: ArrayLike) -> NDArray[np.float64]:
        """Return the right outputs (batch, g + 1) of the points with the indices (batch,)."""
        sums, carry = self.states(index)
        total = sums @ 4 ** np.arange(self.digits - 1, -1, -1, dtype=np.int64) + carry
        upper, lower = np.divmod(total, 4**self.digits)
        return np.column_stack([4.0 * upper / self.divisor, encode_pam4(lower, 2 * self.digits)])


@dataclass(frozen=True, eq=False)
class CellChain:
    """Copies of a cell in a row, from the least significant symbols up: a network for any number of bits.

    Parameters
    ----------
    cell
        The cell.
    servers
        Number N of servers; the cell's divisor is a multiple of it.
    bits
        Width B of a code.
    rounding
        Rule of the mean.

    Raises
    ------
    NetworkError
        If the divisor is no multiple of the servers, or bits or rounding are out of range.
    """

    cell: Cell
    servers: int
    bits: int
    rounding: Rounding = "half_up"

    def __post_init__(self) -> None:
        check_rounding(self.rounding)
        symbol_count(self.bits)
        if not whole_number(self.servers, 1) or self.cell.divisor % self.servers:
            raise NetworkError(
                f"a cell of divisor {self.cell.divisor} serves numbers of servers that divide it, not {self.servers!r}"
            )

    @property
    def inputs(self) -> int:
        """Number M of averages that the chain takes, one a symbol."""
        return symbol_count(self.bits)

    @property
    def dropped(self) -> int:
        """Number p of lowest digits that are no part of the mean."""
        return (self.cell.divisor.bit_length() - 1) // 2

    @property
    def count(self) -> int:
        """Number of cells. The carry of the last one is the top digit, if there is no digit left for it."""
        return -(-(self.inputs + self.dropped - 1) // self.cell.digits)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Signals before the first and after each layer of a cell."""
        return self.cell.sizes

    @property
    def margin(self) -> float:
        """See `Cell`."""
        return self.cell.margin

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Layers of all cells, the least significant first."""
        return self.cell.layers * self.count

    def mzis(self, form: Form = "svd") -> int:
        """Count the MZIs of all cells, see `Cell.mzis`."""
        return self.count * self.cell.mzis(form)

    def prepare(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Encode servers' codes (batch, servers) and average them in unit P: inputs (batch, M).

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server.
        """
        return preprocess(encode_pam4(check_codes(codes, self.servers, self.bits), self.bits), self.inputs)

    def forward(self, inputs: ArrayLike, multiply: Multiply | None = None) -> NDArray[np.float64]:
        """Return analogue symbols (batch, M) for unit P's averages (batch, M).

        Parameters
        ----------
        inputs
            Averages, most significant first.
        multiply
            Replaces the exact product of each layer, by its index in ``layers``: every cell can be a chip of its own.

        Raises
        ------
        NetworkError
            If inputs or a product have the wrong shape.
        """
        averages = np.asarray(inputs, dtype=np.float64)
        if averages.ndim != 2 or averages.shape[1] != self.inputs:
            raise NetworkError(f"chain inputs have shape {averages.shape}; expected (batch, {self.inputs})")
        first = FIRST_CARRY if self.rounding == "half_up" else 0.0
        symbols = add_up(self.cell, self.count, averages, first, multiply)
        stop = symbols.shape[1] - self.dropped
        return np.ascontiguousarray(symbols[:, stop - self.inputs : stop])

    def decode(self, outputs: ArrayLike) -> NDArray[np.int64]:
        """Decide analogue symbols (batch, M) for the nearest levels 0..3, as the receivers do: codes (batch,).

        Raises
        ------
        NetworkError
            If outputs have the wrong shape or are not finite.
        """
        values = np.asarray(outputs, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != self.inputs or not np.isfinite(values).all():
            raise NetworkError(f"chain outputs must be finite, of shape (batch, {self.inputs}), got {values.shape}")
        top = np.full(self.inputs, 3.0)
        top[0] = 1.0 if self.bits % 2 else 3.0
        return decode_pam4(np.clip(np.floor(values + 0.5), 0.0, top).astype(np.int64))

    def run(self, codes: ArrayLike) -> NDArray[np.int64]:
        """Return the means (batch,) of the servers' codes (batch, servers) by the noise-free chain.

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server.
        """
        return self.decode(self.forward(self.prepare(codes)))


def add_up(
    cell: Cell, count: int, averages: NDArray[np.float64], first: float, multiply: Multiply | None = None
) -> NDArray[np.float64]:
    """Return all digits (batch, count g + 1) of D times the sum of averages (batch, M), by cells in a row.

    Parameters
    ----------
    cell, count
        The cell, and how many of it; the last one's carry is the top digit, exact where no more is left than a digit.
    averages
        Averages, most significant first; those that the cells have no positions for are 0.
    first
        First carry signal.
    multiply
        See `CellChain.forward`.
    """
    group, depth = cell.digits, len(cell.layers)
    padded = np.zeros((len(averages), group * count))
    kept = min(averages.shape[1], padded.shape[1])
    padded[:, padded.shape[1] - kept :] = averages[:, averages.shape[1] - kept :]
    carry = np.full((len(averages), 1), first)
    digits: list[NDArray[np.float64]] = []
    for place in range(count):
        stop = padded.shape[1] - group * place
        outputs = cell.forward(
            np.hstack([padded[:, stop - group : stop], carry]),
            None if multiply is None else _shifted(multiply, depth * place),
        )
        carry, here = outputs[:, :1], outputs[:, 1:]
        digits.insert(0, here)
    return np.hstack([carry / cell.carry_step, *digits])


def _shifted(multiply: Multiply, first: int) -> Multiply:
    return lambda index, signals: multiply(first + index, signals)


def build_cell(divisor: int = 4, digits: int = 1, *, slope: float = 4.0, unit: UnitKind = "clip01") -> Cell:
    """Build a cell that is exact by construction.

    Parameters
    ----------
    divisor, digits
        See `Cell`.
    slope, unit
        See `build_exact`; ``"relu"`` to lay it out in blocks ``Sigma U`` (`widen_to_sigma_u`) and to train it.

    Raises
    ------
    NetworkError
        If a parameter is out of range.
    """
    check_divisor(divisor)
    if not whole_number(digits, 1):
        raise NetworkError(f"a cell needs at least one digit, got {digits!r}")
    carry_step = 4.0 / divisor
    high = [3.0] * digits + [(divisor - 1) * carry_step]
    circuit = Circuit(high, [1.0 / divisor] * digits + [carry_step], slope, unit)
    values = [circuit.input(k, float(divisor)) for k in range(digits - 1, -1, -1)]
    values[0] += circuit.input(digits, 1.0 / carry_step)
    found: list[Value] = []
    carry = Value()
    for value in values:
        carry, rest = circuit.divide(value + carry, 4)
        found.append(rest)
    layers = circuit.layers([carry.scaled(carry_step), *found[::-1]])
    slack = np.array([0.5 * carry_step, *([0.5] * digits)])
    return Cell(divisor, digits, (*layers[:-1], replace(layers[-1], slack=slack)), unit_margin(unit, slope))


def check_cell_sizes(sizes: Sequence[int], digits: int) -> None:
    """Raise NetworkError unless layers of these sizes are a cell of so many digits."""
    if (sizes[0], sizes[-1]) != (digits + 1,) * 2:
        raise NetworkError(f"sizes {tuple(sizes)} must begin and end with {digits + 1}: {digits} digits and the carry")
