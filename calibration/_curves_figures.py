"""Pictures of the fits of single heaters.  Matplotlib is imported when the first one is drawn."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from calibration._curves import PhaseCurveFit
from calibration._electrical_ground import CommonGround
from calibration._resistance import ResistanceFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MEASURED, _FITTED, _BAD = "#1f4e79", "#d1651a", "#b00020"
_UNITS = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))


def plot_phase_curve(
    fit: PhaseCurveFit, power_w: ArrayLike, detected_w: ArrayLike, *, heater: str = "heater", detector: str = "detector"
) -> "Figure":
    """Draw a sweep, its fitted curve and the residuals.

    Parameters
    ----------
    fit
        What `fit_phase_curve` made of the sweep.
    power_w, detected_w
        The sweep as it was given to it.
    heater, detector
        Names for the labels.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels; the title states the power for pi, or why there is none.
    """
    power, readings = np.asarray(power_w, float), np.asarray(detected_w, float)
    readings = readings.reshape(len(power), -1)[:, max(fit.detector, 0)]
    figure, (curve, rest) = _two_panels()
    scale, unit = _unit(power, "W")
    reading_scale, reading_unit = _unit(readings[np.isfinite(readings)], "W", share=0.9)
    curve.plot(power / scale, readings / reading_scale, "o", ms=4, color=_MEASURED, label="measured")
    if np.isfinite(fit.efficiency):
        fine = np.linspace(*fit.sweep_w, 400)
        curve.plot(fine / scale, fit.readings(fine) / reading_scale, color=_FITTED, lw=1.5, label="fitted", zorder=0)
        residual = readings - fit.readings(power)
        rest.plot(power / scale, residual / reading_scale, "o", ms=3, color=_MEASURED)
        _bound(curve, fit.readings(fine) / reading_scale)
        _bound(rest, residual / reading_scale, of=0.8)
    rest.axhline(0.0, color=_FITTED, lw=1.0)
    curve.set_ylabel(f"power on {detector} ({reading_unit})")
    rest.set_ylabel(f"residual ({reading_unit})")
    rest.set_xlabel(f"power of {heater} ({unit})")
    curve.legend(loc="best", frameon=True)
    _title(curve, fit.good, _phase_title(fit), fit.reason)
    return figure


def plot_resistance(
    fit: ResistanceFit, current_a: ArrayLike, voltage_v: ArrayLike, *, heater: str = "heater"
) -> "Figure":  # fmt: skip
    """Draw measured resistances against power, the fitted law and the residuals.

    Parameters
    ----------
    fit
        What `fit_resistance` made of the readings.
    current_a, voltage_v
        The readings as they were given to it.
    heater
        Name for the labels.
    """
    current, voltage = np.asarray(current_a, float) - fit.offset_a, np.asarray(voltage_v, float)
    carrying = (current > 0.0) & (voltage > 0.0)
    power, measured = (current * voltage)[carrying], (voltage / np.where(carrying, current, 1.0))[carrying]
    figure, (law, rest) = _two_panels()
    scale, unit = _unit(power, "W")
    law.plot(power / scale, measured, "o", ms=4, color=_MEASURED, label="measured")
    if np.isfinite(fit.beta_per_w):
        fine = np.linspace(0.0, float(power.max(initial=0.0)), 100)
        law.plot(
            fine / scale, fit.resistance_ohm * (1.0 + fit.beta_per_w * fine), color=_FITTED, lw=1.5, label="fitted"
        )
        rest.plot(
            power / scale, measured - fit.resistance_ohm * (1.0 + fit.beta_per_w * power), "o", ms=3, color=_MEASURED
        )
    rest.axhline(0.0, color=_FITTED, lw=1.0)
    law.set_ylabel(f"resistance of {heater} (Ω)")
    rest.set_ylabel("residual (Ω)")
    rest.set_xlabel(f"power of {heater} ({unit})")
    law.legend(loc="upper left", frameon=True)
    sigma = float(np.sqrt(fit.covariance[0, 0]))
    good = f"R0 = {fit.resistance_ohm:.5g} ± {sigma:.2g} Ω, growing by {100.0 * fit.beta_per_w * 1e-3:.3g} % per mW"
    counts = ((fit.outliers, "outliers"), (fit.limited, "at the source's limit"))
    left_out = [f"{count} {what}" for count, what in counts if count]
    _title(law, fit.good, good + ("\n" + ", ".join(left_out) if left_out else ""), fit.reason)
    return figure


def plot_common_ground(ground: CommonGround) -> "Figure":
    """Draw the resistance of each group's shared ground return, and which heaters are in which group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    bars, members = figure.subplots(2, 1, height_ratios=[3, 2])
    shared = np.flatnonzero(np.isfinite(ground.resistance_ohm))
    bars.errorbar(
        shared, ground.resistance_ohm[shared], yerr=ground.sigma_ohm[shared], fmt="o", color=_MEASURED, capsize=4
    )
    bars.axhline(0.0, color=_FITTED, lw=1.0)
    bars.set_xticks(shared)
    bars.set_xlabel("group")
    bars.set_ylabel("resistance of the ground return (Ω)")
    members.plot(np.arange(len(ground.groups)), ground.groups, "s", ms=4, color=_MEASURED)
    members.set_yticks(np.unique(ground.groups))
    members.set_xlabel("heater")
    members.set_ylabel("group")
    _title(bars, ground.verdict != "poor", ground.reason, ground.reason)
    return figure


def _two_panels() -> "tuple[Figure, tuple[Axes, Axes]]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    return figure, (upper, lower)


def _unit(values: ArrayLike, symbol: str, share: float = 1.0) -> tuple[float, str]:
    """Return a scale that puts the largest values between 1 and 1000, and its unit; ``share`` leaves outliers out."""
    size = np.abs(np.asarray(values, float))
    largest = float(np.quantile(size, share)) if size.size else 0.0
    for scale, prefix in _UNITS:
        if largest >= scale:
            return scale, prefix + symbol
    return _UNITS[-1][0] if largest > 0.0 else 1.0, (_UNITS[-1][1] if largest > 0.0 else "") + symbol


def _bound(axes: "Axes", values: ArrayLike, of: float = 1.0) -> None:
    """Limit an axis to values, a fifth more on either side, so that outliers do not hide them; ``of`` all of them."""
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return
    low, high = np.quantile(finite, [(1.0 - of) / 2.0, (1.0 + of) / 2.0])
    room = (0.2 if of == 1.0 else 1.0) * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)


def _phase_title(fit: PhaseCurveFit) -> str:
    p_pi, sigma = np.pi / fit.efficiency, np.pi / fit.efficiency**2 * fit.efficiency_sigma
    text = f"$P_\\pi$ = {p_pi * 1e3:.4g} ± {sigma * 1e3:.2g} mW, {fit.periods:.3g} periods, contrast {fit.contrast:.3g}"
    counts = ((fit.outliers, "outlier" if fit.outliers == 1 else "outliers"), (fit.clipped, "clipped"))
    extra = [f"{count} {what}" for count, what in counts if count]
    extra += [f"with {', '.join(fit.terms)}"] * bool(fit.terms)
    return text + ("\n" + ", ".join(extra) if extra else "")


def _title(axes: "Axes", good: bool, text: str, reason: str) -> None:
    import textwrap

    axes.set_title(text if good else "not accepted: " + "\n".join(textwrap.wrap(reason, 75)), fontsize=10,
                   color="black" if good else _BAD)  # fmt: skip
