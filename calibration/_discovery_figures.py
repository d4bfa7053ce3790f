"""Picture of a discovery: the mesh with its heaters' verdicts, resistances and detectors."""

from typing import TYPE_CHECKING

import numpy as np

from calibration._discovery import Discovery

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    "ok": "#2a7f3f", "swapped": "#e08a00", "permuted": "#e08a00", "open": "#b00020", "short": "#7b1fa2",
    "no effect": "#b00020", "dead": "#b00020", "not found": "#d65a9c", "undecided": "#9a9a9a", "untested": "#9a9a9a",
    "stuck": "#404040",
}  # fmt: skip
_EDGE, _THETA_AT, _PHI_AT = 0.6, 0.62, 0.12


def plot_discovery(discovery: Discovery) -> "Figure":
    """Draw the mesh with a mark for each heater and detector, and what was measured electrically.

    Parameters
    ----------
    discovery
        What was found.

    Returns
    -------
    Figure
        A matplotlib figure, made without pyplot: save it with ``figure.savefig``.
    """
    from matplotlib.figure import Figure

    electrical = discovery.electrical
    layout = discovery.layout
    rows = 1 if electrical is None else 2
    height = 1.2 + 0.5 * layout.ports + (0.0 if electrical is None else 2.8)
    figure = Figure(figsize=(max(7.0, 1.1 * layout.mesh.depth + 2.0), height), layout="constrained")
    grid = figure.add_gridspec(rows, 2, height_ratios=[0.5 * layout.ports + 1.2, 2.8][:rows])
    _draw_mesh(figure.add_subplot(grid[0, :]), discovery)
    if electrical is not None:
        _draw_resistances(figure.add_subplot(grid[1, 0]), discovery)
        _draw_noise(figure.add_subplot(grid[1, 1]), discovery)
    return figure


def _draw_mesh(axes: "Axes", discovery: Discovery) -> None:
    layout, depth = discovery.layout, discovery.layout.mesh.depth
    for mode in range(layout.ports):
        axes.plot([-_EDGE, depth + _EDGE], [mode, mode], color="0.75", lw=1, zorder=1)
    used: dict[str, None] = {}
    for k, (column, mode) in enumerate(layout.mesh.mzis):
        axes.plot([column + 0.38, column + 0.38], [mode, mode + 1], color="0.75", lw=1, zorder=1)
        axes.plot([column + 0.86, column + 0.86], [mode, mode + 1], color="0.75", lw=1, zorder=1)
        places = ((int(layout.mesh_theta[k]), _THETA_AT, "s"), (int(layout.mesh_phi[k]), _PHI_AT, "o"))
        for heater, at, marker in places:
            verdict = discovery.heaters[heater]
            used.setdefault(verdict.state)
            axes.plot(column + at, mode, marker, color=_COLOURS[verdict.state], ms=7, zorder=3)
            if verdict.state == "swapped" and verdict.driven_by is not None:
                text = verdict.driven_by.removeprefix("mzi_").replace("_theta", "θ").replace("_phi", "φ")
                axes.annotate(text, (column + at, mode), (0, 7), textcoords="offset points", ha="center", fontsize=7)
    for output, detector in enumerate(discovery.detectors):
        used.setdefault(detector.state)
        axes.plot(depth + _EDGE, output, "D", color=_COLOURS[detector.state], ms=8, zorder=3)
        if detector.state == "permuted" and detector.seen_by is not None:
            axes.annotate(
                detector.seen_by, (depth + _EDGE, output), (8, -3), textcoords="offset points", fontsize=7
            )  # fmt: skip
    for state in used:
        axes.plot([], [], "s", color=_COLOURS[state], label=state)
    axes.set(
        xlabel="column", ylabel="mode", xlim=(-_EDGE - 0.1, depth + 1.4), ylim=(layout.ports - 0.4, -0.7),
        title="squares: internal, circles: external phases, diamonds: detectors; beside swapped ones their channel",
    )  # fmt: skip
    axes.title.set_fontsize(8)
    axes.set_xticks(np.arange(depth) + 0.5, [str(c) for c in range(depth)])
    axes.set_yticks(np.arange(layout.ports))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def _draw_resistances(axes: "Axes", discovery: Discovery) -> None:
    ohm = np.array([verdict.resistance_ohm for verdict in discovery.heaters])
    finite = np.isfinite(ohm)
    typical = float(np.median(ohm[finite])) if finite.any() else 1.0
    state = [] if discovery.electrical is None else list(discovery.electrical.state)
    axes.plot(np.flatnonzero(finite), ohm[finite], ".", color=_COLOURS["ok"])
    for k, one in enumerate(state):
        if one not in ("ok", "stuck"):
            shown = min(max(ohm[k], 0.5 * typical), 1.5 * typical)
            axes.plot(k, shown, "v" if one == "short" else "^", color=_COLOURS[one], ms=7)
            axes.annotate(discovery.layout.heaters[k], (k, shown), fontsize=6, ha="center", va="bottom")
    axes.set(xlabel="heater", ylabel="resistance (ohm)", ylim=(0.45 * typical, 1.65 * typical))


def _draw_noise(axes: "Axes", discovery: Discovery) -> None:
    electrical = discovery.electrical
    assert electrical is not None
    where = np.arange(len(electrical.dark_noise_w))
    axes.semilogy(where, np.maximum(electrical.dark_noise_w, 1e-15), "v", color="0.4")
    axes.set(xlabel="detector", ylabel="triangles: noise without light (W)")
    other = axes.twinx()
    other.plot(where, 100.0 * electrical.relative_noise, "o", color=_COLOURS["ok"])
    other.set(ylabel="circles: noise with light (%)", ylim=(0.0, None))
    axes.set_xticks(where)
