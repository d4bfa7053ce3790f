"""Binary tree, recursive doubling, and halving-doubling, for any number of nodes."""

import numpy as np

from optinc_hw.interconnect._fabrics import Crossbar, Ints, WdmRing
from optinc_hw.interconnect._layout import Layout
from optinc_hw.interconnect._schedule import Schedule


def binary_tree(nodes: int, fabric: WdmRing | Crossbar = WdmRing()) -> Schedule:  # noqa: B008 - frozen
    """Binary tree (BT): ceil(log2 N) steps towards node 0, then as many back, each of the whole vector.

    Parameters
    ----------
    nodes
        Servers N, at least 2.
    fabric
        A WDM ring, of which it uses one wavelength, or a crossbar.
    """
    layout = Layout("binary tree", nodes, fabric)
    nodes = layout.nodes
    spans = [1 << level for level in range((nodes - 1).bit_length())]
    for span in spans:
        target = np.arange(0, nodes - span, 2 * span, dtype=np.int64)
        layout.add("reduce", target + span, target, 0, 1, add=True, direction=-1)
    for span in reversed(spans):
        source = np.arange(0, nodes - span, 2 * span, dtype=np.int64)
        layout.add("broadcast", source, source + span, 0, 1, add=False)
    return layout.schedule(chunks=1)


def recursive_doubling(nodes: int, fabric: WdmRing | Crossbar = WdmRing()) -> Schedule:  # noqa: B008 - frozen
    """Recursive doubling (RD): pairs at distance 1, 2, 4, ... exchange the whole vector.

    Parameters
    ----------
    nodes
        Servers N, at least 2.  N - P servers beyond the largest power of two P send their vector to a neighbour
        first and receive the sum last: two steps more than log2 P.
    fabric
        A WDM ring or a crossbar.  Pairs at distance d need d wavelengths of a ring (P / 4 at d = P / 2, where they
        use both ways round); what exceeds `WdmRing.wavelengths` goes in rounds, which are steps of their own.
    """
    layout = Layout("recursive doubling", nodes, fabric)
    core = _Core(layout)
    core.fold(1)
    for level in range(core.levels):
        core.exchange("exchange", 1 << level, 0, 0, 1, add=True)
    core.unfold(1)
    return layout.schedule(chunks=1)


def halving_doubling(nodes: int, fabric: WdmRing | Crossbar = WdmRing()) -> Schedule:  # noqa: B008 - frozen
    """Halving-doubling (Rabenseifner): reduce-scatter by halves at distance 1, 2, 4, ..., all-gather on the way back.

    Parameters
    ----------
    nodes
        Servers N, at least 2; more than a power of two P as in `recursive_doubling`.
    fabric
        A WDM ring or a crossbar; wavelengths and rounds as in `recursive_doubling`.

    Returns
    -------
    Schedule
        P chunks, 2 log2 P steps (two more if P < N; rounds apart) that send 2 (P - 1) / P of the vector.
    """
    layout = Layout("halving-doubling", nodes, fabric)
    return layout.schedule(lay_halving_doubling(layout, lanes=1))


def lay_halving_doubling(layout: Layout, lanes: int) -> int:
    """Lay halving-doubling; successive exchanges take the lanes 0, 1, ..., lanes - 1, 0, ...; return the chunks."""
    core = _Core(layout)
    chunks = core.ranks.size
    number = core.fold(chunks)
    halves = []
    lower = np.zeros_like(core.ranks)  # the range that each rank still works on begins here
    for level in range(core.levels):
        count = chunks >> (level + 1)
        upper = (core.ranks >> level) & 1
        halves.append((1 << level, lower + (1 - upper) * count, lower + upper * count, count))
        lower = lower + upper * count
    for span, given, _, count in halves:
        core.exchange("reduce-scatter", span, given, number % lanes, count, add=True)
        number += 1
    number -= 1  # the first all-gather takes the circuits of the last reduce-scatter
    for span, _, kept, count in reversed(halves):
        core.exchange("all-gather", span, kept, number % lanes, count, add=False)
        number += 1
    core.unfold(chunks, number % lanes)
    return chunks


class _Core:
    """The largest power of two of nodes; each node beyond is folded into the one before it."""

    def __init__(self, layout: Layout) -> None:
        nodes = layout.nodes
        self._layout = layout
        self.levels = nodes.bit_length() - 1
        self.ranks: Ints = np.arange(1 << self.levels, dtype=np.int64)
        self._surplus = nodes - self.ranks.size
        self.nodes = np.where(self.ranks < self._surplus, 2 * self.ranks, self.ranks + self._surplus)

    def fold(self, chunks: int) -> int:
        """Lay the step in which surplus nodes give their vectors away; return how many steps that is."""
        kept = self.nodes[: self._surplus]
        self._layout.add("fold in", kept + 1, kept, 0, chunks, add=True, direction=-1)
        return int(self._surplus > 0)

    def unfold(self, chunks: int, lane: int = 0) -> None:
        """Lay the step in which surplus nodes receive the sum."""
        kept = self.nodes[: self._surplus]
        self._layout.add("fold out", kept, kept + 1, 0, chunks, add=False, lane=lane)

    def exchange(self, kind: str, span: int, first: Ints | int, lane: int, count: int, *, add: bool) -> None:
        """Lay an exchange of all pairs at distance ``span``.

        The ``span`` pairs of a block cross in its middle, so pair v needs wavelength v mod span.  Pairs half the
        ring apart close a full circle in one direction instead: half of them in each.
        """
        ranks = self.ranks
        low = ranks & ~span
        if 2 * span == ranks.size:
            wavelength, direction = low // 2, 1 - 2 * (low & 1)
        else:
            wavelength, direction = ranks % span, np.where(ranks & span, -1, 1)
        self._layout.add(
            kind, self.nodes, self.nodes[ranks ^ span], first, count, add=add,
            wavelength=wavelength, direction=direction, lane=lane,
        )  # fmt: skip
