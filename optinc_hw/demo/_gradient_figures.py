"""Pictures of the gradients: symbols at the receivers and training curves.  Functions return figures."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from optinc_hw._style import BLUE, GREEN, GREY, ORANGE, RED, Array, style
from optinc_hw.demo._chip import SampleRun
from optinc_hw.demo._training import TrainingComparison, TrainingRun

_LEVEL_COLOURS = (BLUE, GREEN, ORANGE, RED)
_LOWEST, _HIGHEST, _BINS = -0.6, 3.6, 211


def symbols(calibrated: SampleRun, uncalibrated: SampleRun) -> Figure:
    """Draw the receivers' analogue symbols of the sample against the PAM4 levels, by the symbol that is right."""
    runs = (
        (calibrated, f"calibrated: symbol error rate {calibrated.symbol_error_rate:.2g}"),
        (uncalibrated, f"without calibration: symbol error rate {uncalibrated.symbol_error_rate:.2f}"),
    )
    with style():
        figure = Figure(figsize=(9.6, 6.0))
        grid = figure.subplots(len(_LEVEL_COLOURS), 2, sharex=True, sharey="col")
        for column, (run, title) in enumerate(runs):
            for row, level in enumerate(reversed(range(len(_LEVEL_COLOURS)))):
                _level(grid[row, column], run.analogue[run.wanted_symbols == level], level)
            grid[0, column].set_ylim(0.0, 25.0 * grid[0, column].get_ylim()[1])  # room for the text
            grid[0, column].set_title(f"{title} ({run.analogue.size} symbols)")
            grid[-1, column].set_xlabel("output before the decision (PAM4 levels)")
        figure.supylabel("symbols per 0.02 levels", fontsize=9)
        figure.suptitle("Averaged gradients at the receivers, by the right symbol (dashed: decision thresholds)")
        return figure


def _level(axes: Axes, values: Array, level: int) -> None:
    counts, edges = np.histogram(np.clip(values, _LOWEST, _HIGHEST), np.linspace(_LOWEST, _HIGHEST, _BINS))
    axes.axvspan(level - 0.5, level + 0.5, color=_LEVEL_COLOURS[level], alpha=0.08, lw=0)
    axes.stairs(counts, edges, fill=True, color=_LEVEL_COLOURS[level])
    for threshold in (0.5, 1.5, 2.5):
        axes.axvline(threshold, color=GREY, lw=1, ls="--")
    wrong = int(np.sum(np.clip(np.floor(values + 0.5), 0, 3) != level))
    text = f"symbol {level}: {wrong} of {values.size} wrong"
    axes.text(0.01, 0.94, text, transform=axes.transAxes, va="top", fontsize=8.5)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_xlim(_LOWEST, _HIGHEST)
    axes.set_xticks(range(4))


def training(comparison: TrainingComparison) -> Figure:
    """Draw loss and test accuracy with optical and with float averaging, with the spread of the seeds."""
    optical, reference = _curves(comparison.optical), _curves(comparison.float_)
    epochs = np.arange(optical[1].shape[1])
    with style():
        figure = Figure(figsize=(12.0, 4.2))
        loss, accuracy, difference = figure.subplots(1, 3)
        for index, axes in enumerate((loss, accuracy)):
            x = epochs[1:] if index == 0 else epochs
            _band(axes, x, reference[index], (ORANGE, "float averaging", 4.0))
            _band(axes, x, optical[index], (BLUE, "optical averaging", 1.4))
            axes.set_xlabel("epoch")
        loss.set_yscale("log")
        loss.set(ylabel="training loss (nat), mean of each epoch", title="Training loss")
        accuracy.set(ylabel="test accuracy (%)", ylim=(_lowest(optical[1], reference[1]), 100.0))
        last = [curves[1][:, -1].mean() for curves in (optical, reference)]
        accuracy.set_title(f"Accuracy: optical {last[0]:.2f} %, float {last[1]:.2f} %")
        loss.legend(loc="upper right")
        _band(difference, epochs, optical[1] - reference[1], (BLUE, "optical - float", 1.4))
        for limit in (-1.0, 1.0):
            difference.axhline(limit, color=GREY, lw=1, ls="--")
        difference.set(xlabel="epoch", ylabel="difference in accuracy (percentage points)", title="Optical less float")
        figure.suptitle(f"Digits, 4 workers: mean and range of {len(comparison.optical)} seeds")
        return figure


def _curves(runs: tuple[TrainingRun, ...]) -> tuple[Array, Array]:
    """Loss (runs, epochs), averaged over each epoch, and accuracy (runs, epochs + 1) in per cent."""
    loss = np.stack([run.loss for run in runs]).reshape(len(runs), len(runs[0].accuracy) - 1, -1).mean(axis=2)
    return loss, 100.0 * np.stack([run.accuracy for run in runs])


def _lowest(*accuracies: Array) -> float:
    """Start of the accuracy axis: the first epochs' climb is shown, the untrained network's is not."""
    return 10.0 * float(np.floor(min(values[:, 2:].min() for values in accuracies) / 10.0))


def _band(axes: Axes, x: NDArray[np.intp], values: Array, look: tuple[str, str, float]) -> None:
    colour, label, width = look
    alpha = 0.45 if width > 2.0 else 1.0
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)
    axes.plot(x, values.mean(axis=0), color=colour, lw=width, alpha=alpha, label=label)
