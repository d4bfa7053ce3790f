"""Ways of light through a mesh of which some MZIs can be steered."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.mesh_layout import MeshLayout

_BAR_COST, _CROSS_COST = 1, 3
"""A bar state leaks only where an MZI's couplers differ, a cross state also where both are off 50:50."""


@dataclass(frozen=True)
class Route:
    """One way from an input to a mode before a column.

    Parameters
    ----------
    lit
        The input port.
    crossed
        Indices of the MZIs that must be in cross; all others on the way are in bar.
    passed
        Indices of all MZIs on the way.
    cost
        The lower the less light strays.
    """

    lit: int
    crossed: frozenset[int]
    passed: frozenset[int]
    cost: int


class RouteMap:
    """Ways through a mesh.

    Parameters
    ----------
    mesh
        The mesh.
    """

    def __init__(self, mesh: MeshLayout) -> None:
        self._mesh = mesh
        self._cell: dict[tuple[int, int], int] = {}
        for k, (column, upper) in enumerate(mesh.mzis):
            self._cell[column, upper] = self._cell[column, upper + 1] = k

    def cell(self, column: int, mode: int) -> int | None:
        """Index of the MZI that ``mode`` passes in ``column``; None where it passes beside all MZIs."""
        return self._cell.get((column, mode))

    def to_arm(self, column: int, mode: int, steerable: NDArray[np.bool_]) -> Route | None:
        """Find the way to ``mode`` before ``column`` that strays least; None if unknown MZIs block all."""
        nothing: frozenset[int] = frozenset()
        best: dict[int, Route] = {m: Route(m, nothing, nothing, 0) for m in range(self._mesh.ports)}
        for passing in range(column):
            reached: dict[int, Route] = {}
            for at, route in best.items():
                for onto, cell, crossed in self._exits(passing, at, steerable):
                    step = self._longer(route, cell, crossed)
                    if onto not in reached or step.cost < reached[onto].cost:
                        reached[onto] = step
            best = reached
        return best.get(mode)

    @staticmethod
    def _longer(route: Route, cell: int | None, crossed: bool) -> Route:
        if cell is None:
            return route
        cost = route.cost + (_CROSS_COST if crossed else _BAR_COST)
        return Route(
            route.lit, route.crossed | {cell} if crossed else route.crossed, route.passed | {cell}, cost
        )  # fmt: skip

    def _exits(
        self, column: int, mode: int, steerable: NDArray[np.bool_]
    ) -> Iterator[tuple[int, int | None, bool]]:  # fmt: skip
        """Modes that light on ``mode`` can be led to by ``column``, with the MZI and whether it is in cross.

        Bar and cross are their own reverse, so that this also tells where light on ``mode`` can come from.
        """
        cell = self.cell(column, mode)
        if cell is None:
            yield mode, None, False
        elif steerable[cell]:
            upper = self._mesh.mzis[cell][1]
            yield mode, cell, False
            yield 2 * upper + 1 - mode, cell, True

    def reached(self, column: int, mode: int) -> frozenset[int]:
        """Return the indices of the MZIs from ``column`` on that light on ``mode`` before it can reach."""
        modes, found = {mode}, set[int]()
        for passing in range(column, self._mesh.depth):
            cells = {cell for m in modes if (cell := self.cell(passing, m)) is not None}
            found |= cells
            for cell in cells:
                upper = self._mesh.mzis[cell][1]
                modes |= {upper, upper + 1}
        return frozenset(found)
