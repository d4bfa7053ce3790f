"""Ways of light through a mesh of which some MZIs can be steered: to one arm, or around a loop to two arms."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True)
class Loop:
    """Two ways from one MZI, which splits light, to both arms of another one.

    Parameters
    ----------
    source
        Way of the light to one arm of the splitter.
    splitter, closing
        Indices of the MZI where the ways part and of the one where they meet.
    crossed
        Indices of the MZIs between them that must be in cross; all others are in bar.
    phis
        Indices of the MZIs whose external phase acts on exactly one of the two ways.
    leaky
        Whether a way passes MZIs that cannot be steered, which let only part of the light follow it.
    straight
        Whether light takes the better of the two ways with the splitter in bar; else in cross.
    """

    source: Route
    splitter: int
    closing: int
    crossed: frozenset[int]
    phis: frozenset[int]
    leaky: bool
    straight: bool

    @property
    def all_crossed(self) -> frozenset[int]:
        """MZIs in cross on the way to the splitter and behind it."""
        return self.source.crossed | self.crossed


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

    def loop(self, closing: int, steerable: NDArray[np.bool_]) -> Loop | None:
        """Find the loop that closes at MZI ``closing`` and strays least; None if there is none.

        Between the MZIs where the ways part and meet, those that cannot be steered let part of the light pass.
        """
        return self._loop(closing, steerable, steerable) or self._loop(closing, steerable, np.ones_like(steerable))

    def _loop(
        self, closing: int, steerable: NDArray[np.bool_], passable: NDArray[np.bool_]
    ) -> Loop | None:  # fmt: skip
        column, upper = self._mesh.mzis[closing]
        nothing: frozenset[int] = frozenset()
        queue: list[_Pair] = []
        heapq.heappush(queue, _Pair(0, 0, column, upper, upper + 1, nothing, frozenset({closing}), 0, 0))
        best: Loop | None = None
        cheapest, serial = np.inf, 0
        seen: set[tuple[int, int, int]] = set()
        while queue:
            pair = heapq.heappop(queue)
            place = (pair.column, pair.first, pair.second)
            if pair.cost >= cheapest or pair.column == 0 or place in seen:
                continue
            seen.add(place)
            met = self.cell(pair.column - 1, pair.first)
            if met is not None and met == self.cell(pair.column - 1, pair.second):
                found = self._closed(met, closing, pair, steerable)
                if found is not None and pair.cost + found.source.cost < cheapest:
                    best, cheapest = found, pair.cost + found.source.cost
                continue
            for one in self._exits(pair.column - 1, pair.first, passable):
                for other in self._exits(pair.column - 1, pair.second, passable):
                    serial += 1
                    heapq.heappush(queue, self._step(pair, serial, (one, other), steerable))
        return best

    def _step(
        self, pair: "_Pair", serial: int, exits: tuple[tuple[int, int | None, bool], ...], steerable: NDArray[np.bool_]
    ) -> "_Pair":
        cost, crossed, phis, leaks = pair.cost, pair.crossed, pair.phis, [pair.first_leaks, pair.second_leaks]
        for arm, (mode, cell, is_crossed) in enumerate(exits):
            if cell is None:
                continue
            cost += _CROSS_COST if is_crossed else _BAR_COST
            leaks[arm] += not steerable[cell]
            if is_crossed:
                crossed = crossed | {cell}
            if mode == self._mesh.mzis[cell][1]:
                phis = phis | {cell}
        return _Pair(cost, serial, pair.column - 1, exits[0][0], exits[1][0], crossed, phis, leaks[0], leaks[1])

    def _closed(
        self, splitter: int, closing: int, pair: "_Pair", steerable: NDArray[np.bool_]
    ) -> Loop | None:  # fmt: skip
        if not steerable[splitter]:
            return None
        column, upper = self._mesh.mzis[splitter]
        sources = [(r, arm) for arm in (0, 1) if (r := self.to_arm(column, upper + arm, steerable)) is not None]
        if not sources:
            return None
        source, arm = min(sources, key=lambda found: found[0].cost)
        better = pair.first if pair.first_leaks <= pair.second_leaks else pair.second
        if pair.first_leaks == pair.second_leaks:
            better = upper + arm
        leaky = pair.first_leaks + pair.second_leaks > 0
        return Loop(source, splitter, closing, pair.crossed, pair.phis, leaky, better == upper + arm)

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


class _Pair(NamedTuple):
    """Two ways on their way back from where they meet, in the order of search."""

    cost: int
    serial: int
    column: int
    first: int
    second: int
    crossed: frozenset[int]
    phis: frozenset[int]
    first_leaks: int
    second_leaks: int
