"""Trees of chains of cells: sums of sums, for more servers than a cell's divisor.

A chain of the first level gives every digit of 4 times the mean of its numbers, plus 2; none is dropped, and receivers
decide each.  Chains of the next levels add such numbers up.  After L levels that makes 4**L means and half of 4**L, so
dropping the L lowest digits at the end rounds half up, once.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._area import Form
from optinc_hw.onn._cells import FIRST_CARRY, Cell, add_up
from optinc_hw.onn._checks import Rounding, check_codes, check_rounding, symbol_count, whole_number
from optinc_hw.onn._codec import decode_pam4, encode_pam4
from optinc_hw.onn._network import Multiply


@dataclass(frozen=True, eq=False)
class CellTree:
    """Chains of one cell in levels; exact for any numbers, if the cell is (`prove_composition`).

    Parameters
    ----------
    cell
        Cell of divisor 4.
    servers
        Servers of one chain of the first level, chains of the first level on one of the second, and so on; each 2 or 4.
    bits
        Width B of a code.
    rounding
        Rule of the mean.

    Raises
    ------
    NetworkError
        If the cell has another divisor, or a parameter is out of range.
    """

    cell: Cell
    servers: tuple[int, ...]
    bits: int
    rounding: Rounding = "half_up"

    def __post_init__(self) -> None:
        check_rounding(self.rounding)
        symbol_count(self.bits)
        if self.cell.divisor != 4:
            raise NetworkError(f"a tree is made of cells of divisor 4, not {self.cell.divisor}")
        if not self.servers or not all(whole_number(count, 2) and count in (2, 4) for count in self.servers):
            raise NetworkError(f"a chain of a tree adds up 2 or 4 numbers, got {self.servers!r}")

    @property
    def total(self) -> int:
        """Number of servers."""
        return math.prod(self.servers)

    @property
    def chains(self) -> tuple[int, ...]:
        """Number of chains on each level."""
        return tuple(math.prod(self.servers[level + 1 :]) for level in range(len(self.servers)))

    @property
    def cells(self) -> tuple[int, ...]:
        """Number of cells in one chain of each level."""
        symbols = symbol_count(self.bits)
        return tuple(-(-(symbols + level) // self.cell.digits) for level in range(len(self.servers)))

    @property
    def margin(self) -> float:
        """See `Cell`."""
        return self.cell.margin

    def mzis(self, form: Form = "svd") -> int:
        """Count the MZIs of all cells, see `Cell.mzis`."""
        return self.cell.mzis(form) * sum(a * b for a, b in zip(self.chains, self.cells, strict=True))

    def run(self, codes: ArrayLike, multiply: Multiply | None = None) -> NDArray[np.int64]:
        """Return the means (batch,) of codes (batch, servers in all), neighbouring servers on one chain.

        Parameters
        ----------
        codes
            Codes of the servers.
        multiply
            Replaces the exact product of each layer of a chain, by its index there, see `CellChain.forward`.

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server.
        """
        array = check_codes(codes, self.total, self.bits)
        symbols: NDArray[np.int64] = encode_pam4(array, self.bits)
        carry = FIRST_CARRY if self.rounding == "half_up" else 0.0
        for count, cells in zip(self.servers, self.cells, strict=True):
            averages = symbols.reshape(len(array), -1, count, symbols.shape[-1]).mean(axis=2)
            outputs = add_up(self.cell, cells, averages.reshape(-1, averages.shape[-1]), carry, multiply)
            decided = np.clip(np.floor(outputs + 0.5), 0.0, 3.0).astype(np.int64)
            symbols = decided.reshape(len(array), -1, decided.shape[-1])
            carry = 0.0
        kept, stop = symbol_count(self.bits), symbols.shape[-1] - len(self.servers)
        return decode_pam4(symbols[:, 0, max(0, stop - kept) : stop])
