"""Pictures of single-heater fits show the data, the fit and the verdict, with units."""

import numpy as np
import pytest
from test_calibration_ground import circuit

from calibration import (
    fit_common_ground,
    fit_phase_curve,
    fit_resistance,
    plot_common_ground,
    plot_phase_curve,
    plot_resistance,
)


def texts(figure):
    return [axes.get_title() + axes.get_xlabel() + axes.get_ylabel() for axes in figure.axes]


@pytest.mark.parametrize("periods", [0.4, 1.8])
def test_phase_curve(periods):
    rng = np.random.default_rng(0)
    power = np.linspace(0.0, 0.04, 40)
    readings = 1e-6 * (1.2 + np.cos(2 * np.pi * periods * power / 0.04 + 1.0) + 0.003 * rng.standard_normal(40))
    readings[7] += 4e-4
    fit = fit_phase_curve(power, readings)
    figure = plot_phase_curve(fit, power, readings, heater="mzi_0_0_theta", detector="rx_0")
    curve, rest = texts(figure)
    assert ("1 outlier" in curve) is fit.good is (periods > 1.0)
    assert ("range too short" in curve) is not fit.good
    assert "power on rx_0 (µW)" in curve
    assert rest == "power of mzi_0_0_theta (mW)residual (µW)"
    low, high = figure.axes[0].get_ylim()
    assert low < 0.3
    assert 2.0 < high < 5.0  # the outlier, a hundred times higher, does not hide the fringe


def test_a_sweep_that_cannot_be_fitted_is_drawn_with_its_reason():
    fit = fit_phase_curve(np.arange(5.0), np.arange(5.0))
    assert "not accepted: only 5 valid points" in texts(plot_phase_curve(fit, np.arange(5.0), np.arange(5.0)))[0]


def test_resistance():
    power = 0.025 * np.arange(1, 13) / 12
    voltage = np.sqrt(power * 1050.0 * (1.0 + 4.8 * power))
    current = power / voltage + 2e-6
    law, rest = texts(plot_resistance(fit_resistance(current, voltage), current, voltage, heater="a"))
    assert "R0 = 1050" in law
    assert "0.48 % per mW" in law
    assert "resistance of a (Ω)" in law
    assert rest == "power of a (mW)residual (Ω)"


def test_common_ground():
    ground = fit_common_ground(*circuit(np.random.default_rng(0), [0, 1, 0, 1], 2.0, 40), groups=[0, 1, 0, 1])
    bars, members = texts(plot_common_ground(ground))
    assert "2 shared returns" in bars
    assert "(Ω)" in bars
    assert members == "heatergroup"
