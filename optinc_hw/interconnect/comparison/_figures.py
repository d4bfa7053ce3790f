"""Pictures of a comparison.  Functions return figures; matplotlib is loaded when one is drawn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect.comparison._compare import SMALL_SHARE, Comparison, remembered
from optinc_hw.interconnect.comparison._payloads import fastest_ranges
from optinc_hw.interconnect.comparison._systems import (
    Network,
    System,
    known_systems,
    log_payloads,
    system_kinds,
    system_names,
)
from optinc_hw.interconnect.comparison._training import training_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOW, _HIGH = 1e4, 1e11
_HUES = {  # a family of colours for each network
    "packet": ("#1b1d20", "#a08c78", "#868d98", "#5c4a3a", "#b3b9c2"),
    "WDM ring": ("#0b2f66", "#1f7fb8", "#4f94e0", "#9ccbf5", "#5a3fa0", "#9a80d8", "#c0357a"),
    "circuits": ("#1e6b45", "#63b98a"),
    "OptINC": ("#d9660c", "#f6b26b"),
}
_DASHES = ("-", "--", "-.", ":")
_LABEL = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
_MOST_NODES = 4096


def plot_times(systems: Sequence[System], payload_bytes: float) -> "Figure":
    """Draw the time of an all-reduce against the payload, and beside it over the shortest one that is no ideal.

    Parameters
    ----------
    systems
        Of one number of servers.
    payload_bytes
        Marked: that of the job.
    """
    from matplotlib.figure import Figure

    from optinc_hw._style import GREY, style

    payloads = np.array(log_payloads(_LOW, _HIGH, a_decade=8))
    times = np.array([[system.time(payload) for payload in payloads] for system in systems])
    built = times[[system.known for system in systems]]
    ratios = times / (built if built.size else times).min(axis=0)
    with style():
        figure = Figure(figsize=(13.0, 5.6))
        absolute, relative = figure.subplots(1, 2)
        for system, line, ratio, look in zip(systems, times, ratios, _looks(systems), strict=True):
            absolute.loglog(payloads / 1e6, 1e3 * line, label=_label(system), **look)
            relative.loglog(payloads / 1e6, ratio, **look)
        for axes in (absolute, relative):
            axes.axvline(payload_bytes / 1e6, color=GREY, lw=1, ls="--")
            axes.set_xlabel("payload of a server (MB); dashed: this job")
            axes.set_xlim(payloads[0] / 1e6, payloads[-1] / 1e6)
        absolute.set(ylabel="time of an all-reduce (ms)", title="Time")
        relative.set(ylabel="time over that of the fastest", title="Over the fastest")
        relative.set_ylim(0.9 * ratios.min(), 1.2 * ratios.max())
        figure.legend(loc="outside right center", title="hue: network")
        figure.suptitle(f"{systems[0].schedule.nodes} servers")
        return figure


def plot_shares(comparison: Comparison, systems: Sequence[System]) -> "Figure":
    """Draw how much of a step computing waits, against the batch.

    Parameters
    ----------
    comparison
        Whose job and overlap count.
    systems
        The same servers.
    """
    from matplotlib.figure import Figure

    from optinc_hw._style import GREY, style

    job = comparison.training
    batches = job.batch * np.geomspace(1e-3, 1e4, 71)
    batches = batches[batches >= min(1.0, job.batch)]
    with style():
        figure = Figure(figsize=(9.6, 5.2))
        axes = figure.subplots()
        for system, look in zip(systems, _looks(systems), strict=True):
            time = remembered(system.time)
            shares = [
                training_step(replace(job, batch=float(batch)), time, overlap=comparison.overlap).share
                for batch in batches
            ]
            axes.semilogx(batches, 100.0 * np.array(shares), label=_label(system), **look)
        axes.axhline(100.0 * SMALL_SHARE, color=GREY, lw=1)
        axes.annotate(
            "5 %: little to gain below", (1.0, 100.0 * SMALL_SHARE), (-4, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", fontsize=8,
        )  # fmt: skip
        axes.axvline(job.batch, color=GREY, lw=1, ls="--")
        axes.set(
            xlabel=f"{job.sample}s a server and step; dashed: this job", ylabel="of the step, computing waits (%)",
            ylim=(0.0, 100.0), xlim=(batches[0], batches[-1]),
        )  # fmt: skip
        figure.legend(loc="outside right center")
        overlap = "buckets sent during the backward pass" if comparison.overlap else "no overlap"
        axes.set_title(f"{job.name}, {comparison.nodes} servers, {overlap}")
        return figure


def plot_winners(network: Network, payload_bytes: float, names: Sequence[str] | None = None) -> "Figure":
    """Draw which schedule is the fastest, over servers and payload: of all, and of those in which servers add.

    Ideals do not take part (`System.known`); numbers of servers for which nothing is left are not shown.

    Parameters
    ----------
    network
        Rates and delays.
    payload_bytes
        Marked: that of the job.
    names
        As in `build_systems`.

    Raises
    ------
    ComparisonError
        If nothing is left for any number of servers.
    """
    from matplotlib.figure import Figure

    from optinc_hw._style import GREY, style

    sizes = [1 << power for power in range(1, _MOST_NODES.bit_length())]
    left = {nodes: known_systems(nodes, network, names) for nodes in sizes}
    counts = [nodes for nodes, systems in left.items() if systems]
    if not counts:
        raise ComparisonError(
            f"no schedule of {', '.join(names or ())} can be built for up to {_MOST_NODES} servers; name others"
        )
    built = [left[nodes] for nodes in counts]
    picks: dict[str, Callable[[System], bool]] = {
        "all schedules": lambda _: True,
        "servers add: nothing is summed on the way": lambda one: not one.adds_on_the_way,
        "WDM ring": lambda one: one.kind == "WDM ring",
    }
    groups = {title: [tuple(filter(pick, systems)) for systems in built] for title, pick in picks.items()}
    groups = {title: group for title, group in groups.items() if all(group)}
    with style(grid=False):
        figure = Figure(figsize=(5.2 * len(groups), 4.8))
        panels = figure.subplots(1, len(groups), squeeze=False)[0]
        for axes, (title, group) in zip(panels, groups.items(), strict=True):
            _winner_map(axes, counts, group)
            axes.axvline(payload_bytes / 1e6, color=GREY, lw=1, ls="--")
            axes.set(title=title, xlabel="payload of a server (MB); dashed: this job", ylabel="servers")
        figure.suptitle("Fastest all-reduce")
        return figure


def plot_energy(comparison: Comparison) -> "Figure":
    """Draw the energy of one all-reduce of all servers by what takes it.

    Parameters
    ----------
    comparison
        Rows without a known energy are left out, and named below.

    Raises
    ------
    ComparisonError
        If no row has one.
    """
    from matplotlib.figure import Figure

    from optinc_hw._style import BLUE, GREEN, ORANGE, style

    rows = [row for row in comparison.rows if row.energy is not None]
    if not rows:
        raise ComparisonError("no schedule has a known energy; add one whose network can be built")
    unknown = ", ".join(row.name for row in comparison.rows if row.energy is None)
    parts = (
        ("transceivers", BLUE, 0.27), ("packet switches", GREEN, 0.0),
        ("heaters, carriers, gain, circuits", ORANGE, -0.27),
    )  # fmt: skip
    with style():
        figure = Figure(figsize=(9.6, 1.6 + 0.36 * len(rows)))
        axes = figure.subplots()
        places = np.arange(len(rows))[::-1]
        values = np.array([
            (row.energy.transceivers_J, row.energy.switches_J, row.energy.standing_W * row.all_reduce_s)
            for row in rows if row.energy is not None
        ])  # fmt: skip
        for column, (label, colour, offset) in enumerate(parts):
            axes.barh(places + offset, values[:, column], 0.26, color=colour, label=label)
        least = values[values > 0.0].min(initial=1.0)
        left_out = f"\nnot known: {unknown}" if unknown else ""
        axes.set(xscale="log", xlim=(least / 3.0, None), xlabel=f"J of one all-reduce, all servers together{left_out}")
        axes.set_yticks(places, [row.name for row in rows])
        axes.grid(visible=False, axis="y")
        axes.margins(y=0.01)
        figure.legend(loc="outside right upper")
        job = comparison.training
        axes.set_title(f"{job.name}, {job.payload_bytes / 1e6:,.1f} MB, {comparison.nodes} servers")
        return figure


def _label(system: System) -> str:
    return system.name if system.known else f"{system.name} (ideal)"


def _looks(systems: Sequence[System]) -> list[dict[str, Any]]:  # Any: matplotlib's properties
    """Colour and dashes of each system, the same in every picture."""
    kinds = dict(zip(system_names(), system_kinds(), strict=True))
    looks = []
    for system in systems:
        hues = _HUES[system.kind]
        number = [name for name, kind in kinds.items() if kind == system.kind].index(system.name)
        dashes = _DASHES[number % len(_DASHES)]
        looks.append({"color": hues[number % len(hues)], "ls": dashes, "lw": 1.7})
    return looks


def _winner_map(axes: "Axes", counts: Sequence[int], group: Sequence[Sequence[System]]) -> None:
    looks = {
        system.name: look["color"] for systems in group for system, look in zip(systems, _looks(systems), strict=True)
    }
    spans: dict[str, list[tuple[int, float]]] = {}
    for number, systems in enumerate(group):
        for one in fastest_ranges(systems, _LOW, _HIGH):
            low, high = one.low_bytes / 1e6, one.high_bytes / 1e6
            axes.fill_between([low, high], number - 0.5, number + 0.5, color=looks[one.name], lw=0)
            spans.setdefault(one.name, []).append((number, math.sqrt(low * high)))
    for name, places in spans.items():
        number, payload = places[len(places) // 2]
        at_edge = payload < 30.0 * _LOW / 1e6
        axes.text(payload, number, name, ha="left" if at_edge else "center", va="center", fontsize=8.5, bbox=_LABEL)
    axes.set(xscale="log", xlim=(_LOW / 1e6, _HIGH / 1e6), ylim=(-0.5, len(counts) - 0.5))
    axes.set_yticks(range(len(counts)), [str(count) for count in counts])
