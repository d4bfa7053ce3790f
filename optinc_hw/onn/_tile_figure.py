"""Picture of a tile plan."""

from typing import TYPE_CHECKING

import numpy as np

from optinc_hw.onn._tiling import TilePlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES_PER_SIGNAL, _LEAST_INCHES, _MOST_INCHES = 0.3, 2.2, 12.0


def plot_tiles(plan: TilePlan) -> "Figure":
    """Draw the optical matrix of every layer and the tiles that it is cut into.

    Parameters
    ----------
    plan
        The plan.

    Returns
    -------
    matplotlib.figure.Figure
        A panel a layer, weights in units of the layer's largest, frames and numbers of the tiles:
        ``figure.savefig(path)``.
    """
    from matplotlib.figure import Figure

    widths = [max(layer.base.shape[1], 4) for layer in plan.layers]
    heights = [max(layer.base.shape[0], 4) for layer in plan.layers]
    wide, high = (
        float(np.clip(_INCHES_PER_SIGNAL * count, _LEAST_INCHES, 3.0 * _MOST_INCHES))
        for count in (sum(widths), max(heights))
    )
    figure = Figure(figsize=(wide + len(widths) + 1.0, min(high, _MOST_INCHES) + 1.2), layout="constrained")
    panels = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    for number, axes in enumerate(panels):
        _panel(axes, plan, number)
    figure.suptitle(
        f"{len(plan.tiles)} tiles for a chip of {plan.ports} ports; colours: weight over the layer's largest, "
        "blue negative, red positive"
    )
    return figure


def _panel(axes: "Axes", plan: TilePlan, number: int) -> None:
    from matplotlib.patches import Rectangle

    layer = plan.layers[number]
    largest = float(np.abs(layer.base).max()) or 1.0
    axes.imshow(layer.base / largest, cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="equal")
    for index in layer.tiles:
        part = plan.tiles[index]
        rows, columns = part.shape
        corner = part.cols.start - 0.5, part.rows.start - 0.5
        axes.add_patch(Rectangle(corner, columns, rows, fill=False, linewidth=1.5, edgecolor="black"))
        axes.text(corner[0] + 0.15, corner[1] + 0.6, str(index), fontsize=8, bbox={"facecolor": "white", "pad": 1.0})
    axes.set_title(f"layer {number}")
    axes.set_xlabel("input")
    axes.set_xticks(range(0, layer.base.shape[1], max(1, layer.base.shape[1] // 8)))
    axes.set_yticks(range(0, layer.base.shape[0], max(1, layer.base.shape[0] // 8)))
    if number == 0:
        axes.set_ylabel("optical row")
