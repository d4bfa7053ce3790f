"""Picture of programmed targets.  Matplotlib is imported when it is drawn."""

from typing import TYPE_CHECKING

import numpy as np

from calibration._programming import ProgrammedTarget, ProgramVerification
from calibration._session import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = ("target", "predicted by the twin", "measured", "measured less predicted")
_LEAST_DIFFERENCE = 1e-9


def plot_programming(verification: ProgramVerification, *, most: int = 4) -> "Figure":
    """Draw shares of light at each output for each lit port: asked for, predicted, measured, and the difference.

    Parameters
    ----------
    verification
        What `verify_programming` found.
    most
        Targets to draw; those whose shares are furthest from the twin's.

    Returns
    -------
    matplotlib.figure.Figure
        A row a target: ``figure.savefig(path)``.
    """
    from matplotlib.figure import Figure

    worst = sorted(verification.targets, key=lambda one: -one.tvd_from_twin)[:most]
    figure = Figure(figsize=(13.0, 3.5 * len(worst)), layout="constrained")
    rows = figure.subplots(len(worst), len(_COLUMNS), squeeze=False)
    for axes, one in zip(rows, worst, strict=True):
        _row(figure, axes.tolist(), one)
    return figure


def _row(figure: "Figure", axes: "list[Axes]", one: ProgrammedTarget) -> None:
    difference = one.measured - one.predicted
    largest = max(float(np.nanmax(np.abs(difference))), _LEAST_DIFFERENCE)
    for place, name, values in zip(axes, _COLUMNS, (one.asked, one.predicted, one.measured, difference), strict=True):
        if values is difference:
            _panel(figure, place, 100.0 * values, name, "RdBu_r", 100.0 * largest)
        else:
            _panel(figure, place, 100.0 * values, name, "viridis", 100.0)
    axes[0].set_ylabel(f"{one.name}\noutput")
    axes[1].set_title(f"{_COLUMNS[1]}\nfidelity {one.fidelity:.5f}\noff target by {one.predicted_tvd:.2%}", fontsize=9)
    axes[2].set_title(f"{_COLUMNS[2]}\noff target by {one.tvd:.2%}", fontsize=9)
    axes[3].set_title(
        f"{_COLUMNS[3]}\n{one.tvd_from_twin:.2%} of the light\n{one.rms_error_over_noise:.1f} times the noise",
        fontsize=9,
    )


def _panel(figure: "Figure", axes: "Axes", percent: Array, title: str, colours: str, limit: float) -> None:
    lowest = -limit if colours == "RdBu_r" else 0.0
    image = axes.imshow(percent, cmap=colours, vmin=lowest, vmax=limit, interpolation="nearest")
    axes.set_facecolor("0.7")
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("lit input")
    count = len(percent)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(0, count, max(1, count // 8)))
    figure.colorbar(image, ax=axes, shrink=0.85, label="share of light, %")
