"""In-network aggregation: electrical switches that add, and OptINC."""

from dataclasses import replace

import numpy as np

from optinc_hw.interconnect._fabrics import SwitchTree, require
from optinc_hw.interconnect._layout import integers
from optinc_hw.interconnect._schedule import Circuits, Phase, Schedule


def in_switch(nodes: int, ports: int | None = None) -> Schedule:
    """All-reduce in electrical switches that add integers, in the manner of SwitchML.

    Parameters
    ----------
    nodes
        Servers N, at least 2.
    ports
        Children of a switch; levels of switches if there are more servers.  ``None``: one switch for all.

    Returns
    -------
    Schedule
        One chunk; two streamed steps a level.  Switches serve several jobs at a time.
    """
    return _tree("in-switch", nodes, ports, exclusive=False)


def optinc(nodes: int, fan_in: int | None = None) -> Schedule:
    """All-reduce through OptINC: optical networks average while light passes.

    The network sends the mean down; N times the mean is the sum, so that as data it adds like a switch.  What the
    quantisation costs is the business of `optinc_hw.aggregation`.

    Parameters
    ----------
    nodes
        Servers N, at least 2.
    fan_in
        Inputs of one network; cascaded levels if there are more servers (OptINC, section on cascades: 4 inputs, 16
        servers).  ``None``: one network of N inputs.

    Returns
    -------
    Schedule
        One chunk; two streamed steps a level.  A network serves one job at a time.
    """
    made = _tree("OptINC", nodes, fan_in, exclusive=True)
    return made if made.switches == 1 else replace(made, name="OptINC cascade")


def _tree(name: str, nodes: int, fan_in: int | None, *, exclusive: bool) -> Schedule:
    nodes = require(nodes, 2, f"servers of {name}")
    width = nodes if fan_in is None else require(fan_in, 2, f"inputs of a switch of {name}")
    level = np.arange(nodes, dtype=np.int64)
    levels: list[Circuits] = []
    parents: list[int] = []
    while level.size > 1:
        above = level[-1] + 1 + np.arange(level.size) // width
        zeros, ones = np.zeros_like(level), np.ones_like(level)
        levels.append(Circuits(level, above, zeros, zeros, ones, zeros))
        parents.extend(above)
        level = np.unique(above)
    up = [
        Phase("up", one, np.zeros_like(one.source), np.ones_like(one.source), add=True, streamed=index > 0)
        for index, one in enumerate(levels)
    ]
    down = [
        Phase("down", Circuits(one.target, one.source, *one.columns[2:]), up[0].first[: one.source.size],
              up[0].count[: one.source.size], add=False, streamed=True)
        for one in reversed(levels)
    ]  # fmt: skip
    fabric = SwitchTree(integers([*parents, -1]), exclusive)
    return Schedule(name, nodes, 1, fabric, (*up, *down))
