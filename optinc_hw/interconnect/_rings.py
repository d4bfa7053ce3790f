"""Ring all-reduce, and rings of rings."""

from math import lcm
from typing import Literal

import numpy as np

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Crossbar, Ints, WdmRing, require
from optinc_hw.interconnect._layout import Layout, integers
from optinc_hw.interconnect._schedule import Cycle, Schedule

Inter = Literal["leaders", "slices"]


def ring(nodes: int, fabric: WdmRing | Crossbar = WdmRing()) -> Schedule:  # noqa: B008 - frozen
    """Ring all-reduce: N - 1 steps of reduce-scatter, N - 1 of all-gather, each of D / N to the next node.

    Parameters
    ----------
    nodes
        Servers N, at least 2.
    fabric
        A WDM ring, of which it uses one wavelength of one direction, or a crossbar.
    """
    layout = Layout("ring", nodes, fabric)
    _Rings([np.arange(layout.nodes)], [0], [layout.nodes]).run(layout, ("reduce-scatter", "all-gather"))
    return layout.schedule(chunks=layout.nodes)


def hierarchical_ring(
    nodes: int,
    group: int | None = None,
    fabric: WdmRing | Crossbar = WdmRing(),  # noqa: B008 - frozen
    *,
    inter: Inter = "leaders",
) -> Schedule:
    """Rings within groups, then between groups (H-Ring).

    Parameters
    ----------
    nodes
        Servers N, at least 2.
    group
        Servers m of a group; where m does not divide N, groups have m or m - 1.  ``None``: the root of N, which needs
        about the fewest steps.
    fabric
        A WDM ring or a crossbar.
    inter
        ``"leaders"``: a ring all-reduce in each group, one among the middle nodes of the groups, and one step in which
        these send the result to their groups: 2 (m - 1) + 2 (G - 1) + 1 steps for G groups, the published count
        2 (m^2 + N) / m - 3.  ``"slices"``: reduce-scatter in each group, a ring between groups for every slice of
        D / m at the same time, all-gather: one step fewer, and as little traffic as a ring.

    Raises
    ------
    ScheduleError
        If `group` is not in 1 .. N, or `inter` is unknown.
    """
    layout = Layout("H-ring", nodes, fabric)
    nodes = layout.nodes
    size = min(max(2, round(nodes**0.5)), nodes) if group is None else require(group, 1, "servers of an H-ring's group")
    if size > nodes:
        raise ScheduleError(f"a group of {size} servers is larger than the H-ring of {nodes}; take at most {nodes}")
    if inter not in ("leaders", "slices"):
        raise ScheduleError(f"inter must be 'leaders' or 'slices', got {inter!r}")
    groups = np.array_split(np.arange(nodes, dtype=np.int64), -(-nodes // size))
    sizes = {len(one) for one in groups}
    if inter == "leaders":
        chunks = lcm(len(groups), *sizes)
        _by_leaders(layout, groups, chunks)
    else:
        chunks = lcm(*sizes) * len(groups)
        _by_slices(layout, groups, chunks)
    return layout.schedule(chunks)


class _Rings:
    """Rings that run side by side, each round a part of the vector of its own (all of it, or a slice).

    ``members`` in the order in which they pass chunks on; part r begins at chunk ``bases[r]`` and has
    ``periods[r]`` chunks, a multiple of the members.
    """

    def __init__(
        self, members: list[Ints], bases: list[int], periods: list[int], channels: list[int] | None = None,
        directions: list[int] | None = None, lanes: list[int] | None = None,
    ) -> None:  # fmt: skip
        lengths = [len(one) for one in members]
        self.size = np.repeat(lengths, lengths)
        self.position = np.concatenate([np.arange(length) for length in lengths])
        self.source = np.concatenate(members)
        self.target = np.concatenate([np.roll(one, -1) for one in members])
        self.base = np.repeat(bases, lengths)
        self.period = np.repeat(periods, lengths)
        self.channel = np.repeat(channels or [0] * len(members), lengths)
        self.lane = np.repeat(lanes or [0] * len(members), lengths)
        # In a group's ring the last member sends back over the others, against the direction.
        self.direction = (
            np.where((self.target > self.source) | (len(members) == 1), 1, -1)
            if directions is None
            else np.repeat(directions, lengths)
        )

    def run(self, layout: Layout, kinds: tuple[str, ...]) -> None:
        """Lay reduce-scatter and all-gather, or one of them; smaller rings end earlier."""
        share = self.period // self.size
        for kind in kinds:
            adds = "reduce-scatter" in kind
            offset = self.position if adds else self.position + 1
            done = 0
            for size in np.unique(self.size):
                live = np.flatnonzero(self.size >= size)
                first = (offset - done) * share % self.period + self.base
                cycle = Cycle(self.base[live], self.period[live], -share[live])
                layout.add(
                    kind, self.source[live], self.target[live], first[live], share[live], add=adds,
                    steps=int(size) - 1 - done, cycle=cycle, wavelength=self.channel[live],
                    direction=self.direction[live], lane=self.lane[live],
                )  # fmt: skip
                done = int(size) - 1


def _by_leaders(layout: Layout, groups: list[Ints], chunks: int) -> None:
    whole = [chunks] * len(groups)
    _Rings(groups, [0] * len(groups), whole).run(layout, ("reduce-scatter in groups", "all-gather in groups"))
    leaders = integers([one[(len(one) - 1) // 2] for one in groups])
    if len(groups) > 1:
        ring_of_leaders = _Rings([leaders], [0], [chunks], directions=[1])
        ring_of_leaders.run(layout, ("reduce-scatter between groups", "all-gather between groups"))
        target = np.concatenate([one[one != leader] for one, leader in zip(groups, leaders, strict=True)])
        source = np.repeat(leaders, [len(one) - 1 for one in groups])
        lane = np.concatenate([np.arange(len(one) - 1) for one in groups])
        layout.add(
            "broadcast in groups", source, target, 0, chunks, add=False,
            wavelength=np.abs(target - source) - 1, direction=np.sign(target - source), lane=lane,
        )  # fmt: skip


def _by_slices(layout: Layout, groups: list[Ints], chunks: int) -> None:
    within = _Rings(groups, [0] * len(groups), [chunks] * len(groups))
    within.run(layout, ("reduce-scatter in groups",))
    if len(groups) > 1:
        borders = sorted({chunks // len(one) * part for one in groups for part in range(len(one) + 1)})
        members, directions = [], []
        for number, first in enumerate(borders[:-1]):
            # After the reduce-scatter member p holds part p + 1 of its group.
            owners = integers([one[(first * len(one) // chunks - 1) % len(one)] for one in groups])
            members.append(owners[::-1] if number % 2 else owners)
            directions.append(-1 if number % 2 else 1)
        numbers = list(range(len(members)))
        between = _Rings(
            members, borders[:-1], np.diff(borders).tolist(), [number // 2 for number in numbers], directions,
            # Where groups differ in size, a node may own two slices, which are neighbours.
            [number % 2 * (len({len(one) for one in groups}) > 1) for number in numbers],
        )  # fmt: skip
        between.run(layout, ("reduce-scatter between groups", "all-gather between groups"))
    within.run(layout, ("all-gather in groups",))
