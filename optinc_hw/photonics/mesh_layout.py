"""Where the MZIs of a mesh stand: rectangular, triangular and any other placement."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError

_CONE_STEP = 16
"""Light cones are widened to multiples of this many inputs, so that kernels run over whole vectors."""
_STRIP_COLUMNS = 8
"""Columns of a strip: as many rows of 128 inputs lie in the nearest cache."""


@dataclass(frozen=True, repr=False, eq=False)
class MeshLayout:
    """MZIs on ``ports`` modes, each between two neighbouring modes in a column of its own choice.

    Parameters
    ----------
    ports
        Number of modes n, at least 1.
    mzis
        (column, upper mode) of each of the K MZIs; kept in the order of the light, then from the top.

    Raises
    ------
    MatrixError
        If ``ports`` is not an integer of at least 1, an MZI is no pair of integers, lies outside the modes or before
        column 0, or two MZIs of a column share a mode.
    """

    ports: int
    mzis: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ports", whole("the number of ports", self.ports, 1))
        try:
            placed = sorted(self._checked(mzi) for mzi in iter(self.mzis))
        except TypeError as error:
            raise MatrixError(f"MZIs are a list of pairs (column, upper mode), got {self.mzis!r}") from error
        for (column, mode), (other_column, other_mode) in pairwise(placed):
            if column == other_column and other_mode - mode < 2:
                raise MatrixError(
                    f"MZIs ({column}, {mode}) and ({other_column}, {other_mode}) share a mode; "
                    "move one to another column"
                )
        object.__setattr__(self, "mzis", tuple(placed))

    def _checked(self, mzi: Any) -> tuple[int, int]:  # what a file or a user gave
        try:
            column, mode = mzi
        except (TypeError, ValueError) as error:
            raise MatrixError(f"an MZI is a pair (column, upper mode), got {mzi!r}") from error
        column, mode = whole("the column of an MZI", column, 0), whole("the upper mode of an MZI", mode, 0)
        if mode > self.ports - 2:
            raise MatrixError(
                f"MZI ({column}, {mode}) needs modes {mode} and {mode + 1}; the mesh has 0 to {self.ports - 1}"
            )
        return column, mode

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MeshLayout):
            return NotImplemented
        return self is other or (self.ports == other.ports and self.mzis == other.mzis)

    def __hash__(self) -> int:
        return hash((self.ports, self.mzis))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ports={self.ports}, {len(self.mzis)} MZIs)"

    @property
    def depth(self) -> int:
        """Number of columns that light passes, at least 1."""
        return 1 + max((column for column, _ in self.mzis), default=0)

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """Indices into ``mzis`` of the MZIs of each column; a column may be empty."""
        members: list[list[int]] = [[] for _ in range(self.depth)]
        for k, (column, _) in enumerate(self.mzis):
            members[column].append(k)
        return tuple(map(tuple, members))

    @cached_property
    def modes(self) -> NDArray[np.int64]:
        """Upper mode (K,) of each MZI."""
        return np.array([mode for _, mode in self.mzis], dtype=np.int64)

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """What kernels walk through, (K, 3): upper mode, and the range of inputs whose light can be at the MZI."""
        lowest, highest = list(range(self.ports)), list(range(1, self.ports + 1))
        rows = np.empty((len(self.mzis), 3), dtype=np.int64)
        for k, (_, mode) in enumerate(self.mzis):
            low, high = min(lowest[mode : mode + 2]), max(highest[mode : mode + 2])
            lowest[mode : mode + 2] = low, low
            highest[mode : mode + 2] = high, high
            rows[k] = mode, low // _CONE_STEP * _CONE_STEP, min(-(-high // _CONE_STEP) * _CONE_STEP, self.ports)
        return rows

    @cached_property
    def before_upper(self) -> NDArray[np.int64]:
        """What is before the upper input of each MZI, (K,): output 2 k (upper) or 2 k + 1 of MZI k, or 2 K + input."""
        last = [2 * len(self.mzis) + mode for mode in range(self.ports)]
        before = np.empty(len(self.mzis), dtype=np.int64)
        for k, (_, mode) in enumerate(self.mzis):
            before[k] = last[mode]
            last[mode : mode + 2] = 2 * k, 2 * k + 1
        return before

    @cached_property
    def layers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices (K,) of the MZIs in an order of layers, each from the top, and where layers start, (L + 1,).

        MZIs of a layer share no mode, and their upper modes are all even or all odd.
        """
        free, level = [0] * self.ports, np.empty(len(self.mzis), dtype=np.int64)
        for k, (_, mode) in enumerate(self.mzis):
            soonest = max(free[mode], free[mode + 1])
            level[k] = soonest + (soonest + mode) % 2
            free[mode : mode + 2] = level[k] + 1, level[k] + 1
        order = np.lexsort((self.modes, level))
        starts = np.flatnonzero(np.diff(level[order], prepend=-1, append=self.depth * 2))
        return order, starts

    @cached_property
    def strips(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of ``table`` (K, 3) in an order of diagonals, a few columns of each at a time, and places (K,) in it.

        Every MZI comes behind those that its light has passed, and where it can, right behind the one at whose lower
        mode it begins.
        """
        columns = np.array([column for column, _ in self.mzis], dtype=np.int64)
        order = np.lexsort((columns, columns - self.modes, columns // _STRIP_COLUMNS))
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        return self.table[order], places

    def index(self, column: int, mode: int) -> int:
        """Position in ``mzis`` of the MZI at (column, upper mode).

        Raises
        ------
        MatrixError
            If there is none.
        """
        try:
            return self._positions[column, mode]
        except KeyError:
            raise MatrixError(f"the mesh has no MZI at column {column}, upper mode {mode}") from None

    @cached_property
    def _positions(self) -> dict[tuple[int, int], int]:
        return {mzi: k for k, mzi in enumerate(self.mzis)}

    def without(self, missing: Iterable[tuple[int, int]]) -> "MeshLayout":
        """Return the mesh with bare waveguides in place of some MZIs.

        Parameters
        ----------
        missing
            (column, upper mode) of the MZIs that the chip lacks.

        Raises
        ------
        MatrixError
            If the mesh has no such MZI.
        """
        gone = {self.index(*self._checked(mzi)) for mzi in missing}
        return MeshLayout(self.ports, tuple(mzi for k, mzi in enumerate(self.mzis) if k not in gone))


class RectangularLayout(MeshLayout):
    """Rectangular (Clements) mesh of ``ports`` modes, ``ports`` columns and n(n-1)/2 MZIs.

    Parameters
    ----------
    ports
        Number of modes n, at least 1.

    Raises
    ------
    MatrixError
        If ``ports`` is not an integer of at least 1.
    """

    def __init__(self, ports: int) -> None:
        n = whole("the number of ports", ports, 1)
        super().__init__(n, tuple((column, mode) for column in range(n) for mode in range(column % 2, n - 1, 2)))

    @property
    def depth(self) -> int:
        """Number of columns, n; the second one of a mesh of two ports is empty."""
        return self.ports


class TriangularLayout(MeshLayout):
    """Triangular (Reck) mesh of ``ports`` modes, 2n - 3 columns and n(n-1)/2 MZIs, n - 1 of them on modes 0 and 1.

    Parameters
    ----------
    ports
        Number of modes n, at least 1.

    Raises
    ------
    MatrixError
        If ``ports`` is not an integer of at least 1.
    """

    def __init__(self, ports: int) -> None:
        n = whole("the number of ports", ports, 1)
        super().__init__(n, tuple((mode + 2 * turn, mode) for turn in range(n - 1) for mode in range(n - 1 - turn)))


def whole(what: str, value: Any, least: int) -> int:  # what a file or a user gave
    """Return ``value`` as an integer.

    Raises
    ------
    MatrixError
        If it is not an integer or is less than ``least``.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise MatrixError(f"{what} must be an integer of at least {least}, got {value!r}")
    return number
