"""The rough twin of discovery, column by column: settings that show one column more, and fits from many starts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_twin import RoughTwin
from calibration._mesh_linear import MeshData
from calibration._session import Array

READINGS_PER_COLUMN, RANDOM_READINGS, HELD_OUT_READINGS = 2, 3, 1
"""Per port: settings with random phases up to one column, then in all columns; and those that judge the twin."""
POOL, STARTS, MANY_STARTS = 4, 4, 12
"""Twins that are followed from column to column, and new starts from each of them, at first and after bad fits."""
REPEATS = 1
"""How often more readings are taken and more starts made where a column fits badly."""
HOPS = 40
"""Local random changes tried where a twin does not explain its own readings."""
NEAR_COLUMNS, NEAR_MODES = 2, 2
"""Such a change draws still phases anew that are so near to one MZI."""
GOOD = 0.045
"""Mean total variation distance of a twin that needs no more tries; crosstalk alone makes about 0.04."""
ASTRAY = 0.1
"""The same of the readings of one more column above which a channel that was relied on moves something else."""
BAR_SIGMA = 0.15
"""Errors in rad of the bar states that gates find: stray light and heat."""

Measure = Callable[[int, int], MeshData]
"""Takes settings with random phases up to a column, the others in bar where they can be: (column, count)."""


def hop(
    twin: RoughTwin, data: MeshData, free: NDArray[np.bool_], prior: Array, sigma: Array, rng: np.random.Generator
) -> RoughTwin:  # fmt: skip
    """Draw free phases (H,) around one MZI after the other anew, fit all, and keep what explains the readings better.

    Parameters
    ----------
    twin
        Where to begin.
    data
        Readings.
    free
        Phases that may be drawn anew.
    prior, sigma
        Of `RoughTwin.descended`.
    rng
        Source of changes.
    """
    misfit, every = twin.misfit(data), np.ones(len(free), dtype=bool)
    places = np.repeat(np.array(twin.layout.mesh.mzis), 2, axis=0)
    for _ in range(HOPS):
        if twin.distance(data) < GOOD:
            break
        away = np.abs(places - places[rng.choice(np.flatnonzero(free))])
        drawn = free & (away[:, 0] <= NEAR_COLUMNS) & (away[:, 1] <= NEAR_MODES) & (rng.uniform(size=len(free)) < 0.7)
        other = replace(twin, offset=np.where(drawn, rng.uniform(-np.pi, np.pi, len(free)), twin.offset))
        other = other.descended(data, every, prior, sigma, 3)
        if (found := other.misfit(data)) < misfit:
            twin, misfit = other, found
    return twin


@dataclass
class TwinSearch:
    """Finds a twin of a mesh of which some internal phases can be moved.

    Parameters
    ----------
    begin
        A twin with those phases right to `BAR_SIGMA` and their channels; all else does not matter.
    measure
        Takes readings.
    unsure
        Phases whose channels are known and whose offsets are not.
    rng
        Source of random starts.
    """

    begin: RoughTwin
    measure: Measure
    unsure: NDArray[np.intp]
    rng: np.random.Generator
    data: MeshData = field(init=False)
    held_out: MeshData = field(init=False)

    def __post_init__(self) -> None:
        layout = self.begin.layout
        self._column = np.array([column for column, _ in layout.mesh.mzis])
        known = self.begin.channel >= 0
        known[self.unsure] = False
        self._lost = ~known[layout.mesh_theta]
        self._sigma = np.where(known, BAR_SIGMA, np.inf)

    def run(self) -> RoughTwin:
        """Measure and fit."""
        ports, depth = self.begin.layout.ports, self.begin.layout.mesh.depth
        self._astray: int | None = None
        pool, last = [self.begin], None
        for column in range(depth):
            new = self.measure(column, READINGS_PER_COLUMN * ports)
            near = new if last is None else new.joined(last)
            self.data = new if last is None else self.data.joined(new)
            last, before = new, pool
            pool = self._followed(before, column, near, STARTS)
            for _ in range(REPEATS):
                if pool[0].distance(last) < ASTRAY:
                    break
                more = self.measure(column, READINGS_PER_COLUMN * ports)
                near, self.data, last = near.joined(more), self.data.joined(more), last.joined(more)
                pool = self._followed(before, column, near, MANY_STARTS)
            if self._astray is None and pool[0].distance(last) > ASTRAY:
                self._astray = column
        self.held_out = self.measure(depth, HELD_OUT_READINGS * ports)
        self.data = self.data.joined(self.measure(depth, RANDOM_READINGS * ports))
        every = np.ones(len(self._sigma), dtype=bool)
        best = self._best(pool, every, 4, self.data)[0]
        hopped = hop(best, self.data, np.isinf(self._sigma), self.begin.offset, self._sigma, self.rng)
        return hopped.descended(self.data, every, self.begin.offset, self._sigma, 3)

    def without_astray(self) -> RoughTwin:
        """Return the twin to begin with, without the internal phases of the first column that fitted badly.

        Only channels that are meant for this column and those before moved there, and the latter had fitted.
        """
        column = self.begin.layout.mesh.depth if self._astray is None else self._astray
        doubted = self._phases(self._column == column, self._column < 0)
        return replace(self.begin, channel=np.where(doubted, -1, self.begin.channel))

    def _followed(self, pool: list[RoughTwin], column: int, near: MeshData, starts: int) -> list[RoughTwin]:
        """Follow twins to one column more: starts judged by the newest readings, then by all."""
        behind = self._lost & (self._column >= column)
        here = (self._column == column) | (self._column == column - 1)
        fresh = self._phases((self._column >= column) & self._lost, (self._column == column) | behind)
        begun: list[RoughTwin] = []
        for twin in pool:
            count = starts if len(pool) > 1 else starts * POOL
            begun += [twin, *(self._shaken(twin, fresh, 1.0 if k % 2 else 0.5) for k in range(1, count))]
        bars = self._column > column
        found = self._best(begun, self._phases(here | behind | bars, here | behind), 4, near)[: 2 * POOL]
        before = self._column <= column
        everywhere = self._phases(before | self._lost | bars, before | self._lost)
        best = self._best(found, everywhere, 2, self.data)[:POOL]
        return [replace(twin, eta=best[0].with_couplers(self.data).eta) for twin in best] if column else best

    def _best(
        self, twins: list[RoughTwin], free: NDArray[np.bool_], passes: int, data: MeshData
    ) -> list[RoughTwin]:  # fmt: skip
        fitted = [twin.descended(data, free, self.begin.offset, self._sigma, passes) for twin in twins]
        return sorted(fitted, key=lambda twin: twin.misfit(data))

    def _phases(self, internal: NDArray[np.bool_], external: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mark internal and external phases of MZIs (K,) among all (H,)."""
        layout, marked = self.begin.layout, np.zeros(len(self._sigma), dtype=np.bool_)
        marked[layout.mesh_theta], marked[layout.mesh_phi] = internal, external
        return marked

    def _shaken(self, twin: RoughTwin, free: NDArray[np.bool_], share: float) -> RoughTwin:
        """Draw a share of the free phases that nothing is known of anew."""
        drawn = free & np.isinf(self._sigma) & (self.rng.uniform(size=len(free)) < share)
        return replace(twin, offset=np.where(drawn, self._circle(len(free)), twin.offset))

    def _circle(self, count: int) -> Array:
        return self.rng.uniform(-np.pi, np.pi, count)
