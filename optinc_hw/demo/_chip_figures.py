"""Pictures of the chip: phase curves, heaters, twin and matrices.  Functions return figures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import ScalarFormatter

from calibration import fit_phase_curve
from optinc_hw._style import BLUE, GREEN, GREY, ORANGE, Array, style
from optinc_hw.bench.record import CalibrationRecord
from optinc_hw.demo._chip import MatrixMeasurement
from optinc_hw.photonics import ChipLayout


@dataclass(frozen=True, eq=False)
class PhaseCurve:
    """A single heater's sweep.

    Parameters
    ----------
    heater
        Name of the heater.
    power_w
        Heater powers (points,) in W.
    detected_w
        Readings (points,) in W of the detector with the largest fringe, dark reading subtracted.
    detector
        Name of that detector.
    """

    heater: str
    power_w: Array
    detected_w: Array
    detector: str


def phase_curves(curves: Sequence[PhaseCurve]) -> Figure:
    """Draw measured points and fitted fringes of some heaters."""
    rows = -(-len(curves) // 3)
    with style():
        figure = Figure(figsize=(9.6, 0.6 + 2.5 * rows))
        panels = figure.subplots(rows, 3, sharex=True, squeeze=False).ravel()
        for axes, curve in zip(panels, curves, strict=False):
            _phase_curve(axes, curve)
        for axes in panels[len(curves) :]:
            axes.set_visible(False)
        for axes in panels[max(len(curves) - 3, 0) : len(curves)]:
            axes.set_xlabel("heater power (mW)")
        figure.suptitle("Phase curves: one heater swept, all others at a random setting")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        return figure


def _phase_curve(axes: Axes, curve: PhaseCurve) -> None:
    fit = fit_phase_curve(curve.power_w, curve.detected_w)
    fine = np.linspace(curve.power_w.min(), curve.power_w.max(), 300)
    axes.plot(fine * 1e3, fit.readings(fine) * 1e6, color=ORANGE, lw=1.5, label="fitted fringe")
    axes.plot(curve.power_w * 1e3, curve.detected_w * 1e6, "o", color=BLUE, ms=4, label="measured")
    axes.set_ylabel(f"power on {curve.detector} (µW)")
    p_pi, sigma = np.pi / fit.efficiency, np.pi / fit.efficiency**2 * fit.efficiency_sigma
    axes.set_title(f"{curve.heater}:  $P_\\pi$ = {p_pi * 1e3:.3f} ± {sigma * 1e3:.3f} mW")


def heaters(record: CalibrationRecord, nominal_resistance_ohm: float, nominal_p_pi_w: float) -> Figure:
    """Draw resistance, power for pi and offset phase of every heater, as calibrated."""
    layout = ChipLayout(record.ports)
    entries = [record.heaters[name] for name in layout.heaters]
    panels = (
        ("resistance at zero power (Ω)", [e.resistance_ohm for e in entries], [0.0 for _ in entries]),
        ("power for a phase of π (mW)", [e.p_pi_w * 1e3 for e in entries], [e.p_pi_sigma_w * 1e3 for e in entries]),
        ("phase at zero power (rad)", [np.angle(np.exp(1j * e.offset_rad)) for e in entries],
         [e.offset_sigma_rad for e in entries]),
    )  # fmt: skip
    groups = (
        ("input modulators", np.concatenate([layout.input_theta, layout.input_phi]), GREEN),
        ("mesh", np.concatenate([layout.mesh_theta, layout.mesh_phi]), BLUE),
        ("outputs and LO", np.concatenate([layout.output_phase, layout.attenuator, [layout.lo]]), ORANGE),
    )
    with style():
        figure = Figure(figsize=(9.6, 7.4))
        for axes, (label, values, sigmas) in zip(figure.subplots(3, 1, sharex=True), panels, strict=True):
            for group, members, colour in groups:
                shown, bars = np.array(values)[members], np.array(sigmas)[members]
                axes.errorbar(members, shown, bars, fmt="o", ms=3.5, lw=0.8, color=colour, label=group)
            axes.set_ylabel(label)
        resistance, power, phase = figure.axes
        resistance.axhline(nominal_resistance_ohm, color=GREY, lw=1, ls="--", label="design value")
        power.axhline(nominal_p_pi_w * 1e3, color=GREY, lw=1, ls="--")
        phase.set_yticks(np.arange(-2, 3) * np.pi / 2, ["-π", "-π/2", "0", "π/2", "π"])
        phase.set_xlabel("heater (index in the order of the layout)")
        handles, labels = resistance.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.suptitle(f"Calibration of {len(entries)} heaters (bars: one standard deviation of the fit)")
        return figure


def held_out(measured_w: Array, predicted_w: Array, sigma_w: Array) -> Figure:
    """Draw the twin's predictions of held-out settings against the readings and the noise.

    Parameters
    ----------
    measured_w, predicted_w, sigma_w
        Readings, predictions and noise (settings, detectors) in W.
    """
    with style():
        figure = Figure(figsize=(12.0, 4.2))
        scatter, residual, histogram = figure.subplots(1, 3)
        measured, predicted = measured_w.ravel() * 1e6, predicted_w.ravel() * 1e6
        span = np.array([max(float(measured.min()), 1e-3), float(measured.max())])
        scatter.loglog(span, span, color=GREY, lw=1, label="equal")
        scatter.loglog(measured, predicted, ".", color=BLUE, ms=3, alpha=0.5, mew=0)
        scatter.set(xlabel="measured power (µW)", ylabel="predicted power (µW)")
        scatter.set_title(f"{len(measured_w)} settings, {measured_w.shape[1]} detectors")
        scatter.legend()
        order = np.argsort(measured)
        noise = sigma_w.ravel()[order] * 1e9
        residual.plot(measured, (predicted - measured) * 1e3, ".", color=BLUE, ms=3, alpha=0.4, mew=0)
        residual.fill_between(measured[order], -noise, noise, color=ORANGE, alpha=0.5, lw=0, label="noise (±1 σ)")
        residual.set_xscale("log")
        residual.set(xlabel="measured power (µW)", ylabel="predicted - measured (nW)", title="Residuals")
        residual.legend(loc="upper left")
        _histogram(histogram, ((predicted_w - measured_w) / sigma_w).ravel())
        figure.suptitle("Twin against chip, at random settings that the fit has not seen")
        return figure


def _histogram(axes: Axes, score: Array) -> None:
    rms = float(np.sqrt(np.mean(score**2)))
    reach = float(np.ceil(max(4.0, np.quantile(np.abs(score), 0.99))))
    bins = np.linspace(-reach, reach, 61)
    density, _ = np.histogram(np.clip(score, -reach, reach), bins, density=True)
    axes.stairs(density, bins, fill=True, color=BLUE, alpha=0.75, label=f"twin, rms {rms:.2f}")
    fine = np.linspace(-reach, reach, 400)
    gauss = np.exp(-(fine**2) / 2) / np.sqrt(2 * np.pi)
    axes.plot(fine, gauss, color=ORANGE, lw=1.5, label="noise alone, rms 1")
    axes.set(xlabel="(predicted - measured) / noise", ylabel="probability density")
    axes.set_title("Residuals over the noise (outliers in the last bins)")
    axes.legend(loc="upper left")


def full_matrix(measurement: MatrixMeasurement) -> Figure:
    """Draw one matrix that fills the chip: target, measured, difference, and without calibration."""
    limit = float(np.abs(measurement.target).max())
    error = float(np.abs(measurement.calibrated - measurement.target).max())
    panels = (
        ("target", measurement.target, limit),
        ("measured", measurement.calibrated, limit),
        (f"measured - target (rms {measurement.rms_error:.1e})", measurement.calibrated - measurement.target, error),
        ("measured without calibration", measurement.uncalibrated, limit),
    )
    with style(grid=False):
        figure = Figure(figsize=(12.0, 3.6))
        for axes, (title, value, reach) in zip(figure.subplots(1, 4), panels, strict=True):
            image = _matrix(axes, value, reach)
            bar = figure.colorbar(image, ax=axes, location="bottom", aspect=25, pad=0.03, format=_tick_format())
            bar.set_label("field amplitude out / in")
            axes.set(title=title, xlabel="input", ylabel="output")
        figure.suptitle(f"A {measurement.name} matrix on the chip (1 = full scale)")
        return figure


def tiles(measurements: Sequence[MatrixMeasurement]) -> Figure:
    """Draw the tiles of the network, one a column: target, measured, difference, and without calibration."""
    names = ("target", "measured", "measured - target", "measured without\ncalibration")
    error = max(float(np.abs(m.calibrated - m.target).max()) for m in measurements)
    widths = [m.target.shape[1] for m in measurements]
    height = max(m.target.shape[0] for m in measurements)
    with style(grid=False):
        figure = Figure(figsize=(max(8.0, 2.2 + 0.37 * sum(widths)), 1.2 + 4 * (0.45 + 0.31 * height)))
        grid = figure.subplots(len(names), len(measurements), squeeze=False, width_ratios=widths)
        for column, m in enumerate(measurements):
            values = (m.target, m.calibrated, m.calibrated - m.target, m.uncalibrated)
            for row, value in enumerate(values):
                image = _matrix(grid[row, column], value, error if row == 2 else 1.0)
                if column == len(measurements) - 1:
                    bar = figure.colorbar(
                        image, ax=grid[row, :], format=_tick_format(), pad=0.01, aspect=12, shrink=0.9, panchor=False
                    )
                    bar.set_label("difference" if row == 2 else "amplitude\nout / in")
            grid[0, column].set_title(f"{m.name}\nrms {m.rms_error:.1e}")
            grid[-1, column].set_xlabel("input")
        for row, name in enumerate(names):
            grid[row, 0].set_ylabel(f"{name}\n\noutput")
        figure.suptitle("Tiles of the optical network on the chip (field amplitude, 1 = full scale)")
        return figure


def _tick_format() -> ScalarFormatter:
    tick_format = ScalarFormatter(useMathText=True)
    tick_format.set_powerlimits((-2, 3))
    return tick_format


def _matrix(axes: Axes, value: Array, limit: float) -> AxesImage:
    image = axes.imshow(value, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set_xticks(range(value.shape[1]), [str(k) for k in range(value.shape[1])], fontsize=6.5)
    axes.set_yticks(range(value.shape[0]), [str(k) for k in range(value.shape[0])], fontsize=6.5)
    axes.tick_params(length=0)
    axes.set_anchor("N")
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color("#c5cad1")
    return image
