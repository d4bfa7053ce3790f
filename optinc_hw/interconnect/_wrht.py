"""WRHT: all-reduce by groups of neighbours on a WDM ring, with an exchange of all survivors where it fits."""

from functools import lru_cache

import numpy as np

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Ints, WdmRing, require
from optinc_hw.interconnect._layout import Layout, integers
from optinc_hw.interconnect._schedule import Schedule


def wrht(nodes: int, wavelengths: int = 64, *, reach: int | None = None, group: int | None = None) -> Schedule:
    """Wavelength-reused hierarchical tree (WRHT; arXiv 2207.10982).

    The nodes that are active are cut into groups of m neighbours; all send their vectors to the middle one, which
    adds.  So again with the middle nodes, over the inactive ones between them, until at most m are left.  These
    exchange all to all in one step if that needs no more wavelengths than there are, or send to their middle one; then
    the sum goes back down.  A group needs floor(m / 2) wavelengths of each direction, the same in every group.

    Parameters
    ----------
    nodes
        Servers N, at least 2.
    wavelengths
        Of each direction, w.
    reach
        Segments that light passes before it is regenerated; longer ways are relayed in nodes between.
    group
        Nodes m of a group, in 2 .. 2 w + 1; ``None``: 2 w + 1, or 2 reach + 1 if that is less.

    Returns
    -------
    Schedule
        One chunk; 2 h - 1 steps for h levels with an exchange on top, 2 h without.

    Raises
    ------
    ScheduleError
        If the ring cannot carry such groups.
    """
    ring = WdmRing(wavelengths, reach)
    layout = Layout("WRHT", nodes, ring)
    most = 2 * ring.wavelengths + 1
    size = most if ring.reach is None else min(most, 2 * ring.reach + 1)
    if group is not None:
        size = require(group, 2, "nodes of a group of WRHT")
    if size > most:
        raise ScheduleError(
            f"a group of {size} nodes needs {size // 2} wavelengths of each direction, the ring has "
            f"{ring.wavelengths}; take groups of at most {most}"
        )
    active = np.arange(layout.nodes, dtype=np.int64)
    levels: list[_Gather] = []
    while active.size > size:
        levels.append(_Gather(active, size))
        active = levels[-1].middles
    exchanges = exchange_wavelengths(active.size) <= ring.wavelengths
    if not exchanges:
        levels.append(_Gather(active, active.size))
    for level in levels:
        layout.add(
            "collect", level.members, level.heads, 0, 1, add=True, wavelength=level.wavelength,
            direction=level.direction,
        )  # fmt: skip
    if exchanges:
        source, target, direction, wavelength = exchange_circuits(active.size)
        layout.add(
            "exchange", active[source], active[target], 0, 1, add=True, wavelength=wavelength, direction=direction
        )
    for level in reversed(levels):
        layout.add(
            "distribute", level.heads, level.members, 0, 1, add=False, wavelength=level.wavelength,
            direction=-level.direction,
        )  # fmt: skip
    return layout.schedule(chunks=1)


class _Gather:
    """Groups of ``size`` consecutive nodes of ``active``, whose members all send to the middle one."""

    def __init__(self, active: Ints, size: int) -> None:
        index = np.arange(active.size)
        start = index // size * size
        middle = start + (np.minimum(size, active.size - start) + 1) // 2 - 1
        members = np.flatnonzero(middle != index)
        offset = (middle - index)[members]
        self.middles = active[np.unique(middle)]
        self.members = active[members]
        self.heads = active[middle[members]]
        self.wavelength = np.abs(offset) - 1
        self.direction = np.sign(offset)


def exchange_wavelengths(nodes: int) -> int:
    """Wavelengths of each direction that an exchange of all with all needs: ceil(floor(k^2 / 4) / 2)."""
    return -(-(nodes**2 // 4) // 2)


@lru_cache(maxsize=16)
def exchange_circuits(nodes: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Source, target, direction and wavelength of every transfer of an exchange of k nodes on a ring.

    Two opposite nodes x, y are taken out at a time.  Of the others one half A lies between x and y, the other half B
    between y and x; a path x-a-y-b-x closes a circle on one wavelength for a pair (a, b), in each direction.  What is
    left over closes one circle more: in one direction for an even k, in turns, so that the bound of
    `exchange_wavelengths`, which counts segments, is met exactly.
    """
    rows: list[tuple[int, int, int, int]] = []
    used = {1: 0, -1: 0}

    def circle(direction: int, *stops: int) -> None:
        rows.extend(
            (one, two, direction, used[direction]) for one, two in zip(stops, stops[1:] + stops[:1], strict=True)
        )
        used[direction] += 1

    left = list(range(nodes))
    turn = 1
    while len(left) > 1:
        half = len(left) // 2
        x, y = left[0], left[half]
        near, far = left[1:half], left[half + 1 :]
        for a, b in zip(near, far, strict=False):
            circle(1, x, a, y, b)
            circle(-1, x, b, y, a)
        if len(far) > len(near):
            circle(1, x, y, far[-1])
            circle(-1, y, x, far[-1])
        else:
            circle(turn, x, y)
            turn = -turn
        left = near + far
    source, target, direction, wavelength = integers(rows).reshape(-1, 4).T
    return source, target, direction, wavelength
