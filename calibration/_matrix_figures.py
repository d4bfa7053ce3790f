"""Picture of a matrix comparison; matplotlib is imported only when one is drawn."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from calibration._arrays import complexes
from calibration._matrix import Gauge
from calibration._matrix_compare import Normalise, compare_matrices, unit_columns
from calibration._session import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEADING = 110
_NO_ERROR = 1e-9
_DARK = 1e-3
"""Elements below this share of the largest have no phase to show."""


def matrix_figure(
    measured: ArrayLike,
    expected: ArrayLike,
    gauge: Gauge = "ports",
    normalise: Normalise = "columns",
    title: str = "",
) -> "Figure":
    """Draw moduli and phases of both matrices, and the error of every element, after matching the free phases.

    Parameters
    ----------
    measured, expected, gauge, normalise
        As in `compare_matrices`.
    title
        First line of the heading; the second one states the fidelity and what was free.

    Returns
    -------
    Figure
        Not shown and not saved: ``figure.savefig(path)``.
    """
    from matplotlib.figure import Figure

    result = compare_matrices(measured, expected, gauge, normalise)
    wanted = complexes("expected", expected)
    if normalise == "columns":
        wanted = unit_columns(wanted)
    found = wanted + result.error
    largest = float(max(np.abs(wanted).max(), np.abs(found).max()))
    figure = Figure(figsize=(11.0, 6.8), layout="constrained")
    axes = figure.subplots(2, 3)
    names = ("expected", "measured, free phases matched")
    for row, (matrix, name) in enumerate(zip((wanted, found), names, strict=True)):
        _panel(figure, axes[row, 0], np.abs(matrix), f"modulus, {name}", "viridis", (0.0, largest))
        phase = np.where(np.abs(matrix) > _DARK * largest, np.angle(matrix), np.nan)
        _panel(figure, axes[row, 1], phase, f"phase in rad, {name}", "twilight", (-np.pi, np.pi))
    size = np.abs(result.error)
    _panel(figure, axes[0, 2], size, "modulus of the error", "magma", (0.0, max(float(size.max()), _NO_ERROR)))
    _bars(axes[1, 2], result.tvd)
    heading = [title, *textwrap.wrap(result.statement, _HEADING)]
    figure.suptitle("\n".join(filter(None, heading)), fontsize=9.5)
    return figure


def _panel(
    figure: "Figure", axes: "Axes", values: Array, title: str, colours: str, limits: tuple[float, float]
) -> None:
    image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set_facecolor("0.7")
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("input")
    axes.set_ylabel("output")
    for axis, count in ((axes.xaxis, values.shape[1]), (axes.yaxis, values.shape[0])):
        axis.set_ticks(range(0, count, max(1, count // 8)))
    figure.colorbar(image, ax=axes, shrink=0.85)


def _bars(axes: "Axes", distances: Array) -> None:
    axes.bar(np.arange(len(distances)), 100.0 * distances, color="#1f5fa8")
    axes.set_title("total variation distance of output powers, %", fontsize=9)
    axes.set_xlabel("lit input")
    axes.set_xticks(range(0, len(distances), max(1, len(distances) // 8)))
    axes.set_ylim(0.0, 105.0 * max(float(distances.max()), _NO_ERROR))
