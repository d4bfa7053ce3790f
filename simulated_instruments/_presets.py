"""Kinds of hidden chips by name, after chips and simulations in the literature."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from optinc_hw.errors import ConfigurationError


@dataclass(frozen=True)
class Preset:
    """A kind of bare mesh: its number of ports, and the effects that depart from the defaults of ``HiddenEffects``."""

    about: str
    ports: int
    effects: Mapping[str, float]


def coupler_mean(reflectivity: float) -> float:
    """Return the mean departure in rad of splitting angles from pi/4 that gives a mean reflectivity.

    Parameters
    ----------
    reflectivity
        Share of the power that crosses over in one coupler, ``sin(eta)^2``; 0.5 is ideal.

    Raises
    ------
    ConfigurationError
        If it is not between 0 and 1.
    """
    if not 0.0 <= reflectivity <= 1.0:
        raise ConfigurationError(f"a coupler's mean reflectivity of {reflectivity!r} is not in 0..1; ideal is 0.5")
    return math.asin(math.sqrt(reflectivity)) - math.pi / 4.0


# Noise floors belong to 10 mW in the fibre of the lit port; -50 dB of that is 100 nW.
_INPUT_W = 0.010
_FLOOR = 1e-5 * _INPUT_W

_METHOD = {
    "lo_fraction": 0.0,
    "coupler_mean_rad": 0.0,
    "mzi_loss_db": 0.15,
    "mzi_loss_spread_db": 0.05,
    "arm_loss_rms": 0.0,
    "input_coupling_db": 1.0,
    "input_coupling_spread_db": 0.3,
    "output_coupling_db": 0.0,
    "output_coupling_spread_db": 0.0,
    "detector_gain_spread": 0.05,
    "dark_offset_w": 0.0,
    "noise_relative": 0.001,
    "noise_floor_w": _FLOOR,
    "crosstalk_length": 1.5,
    "crosstalk_reach": 15.0,  # what lies beyond is 1e-6 and less
    "crosstalk_spread": 0.3,
    "bare_arm_factor": 1.0,
    "phase_curvature_spread": 0.001,
}
_BENCH = {"lo_fraction": 0.0, "crosstalk_length": 1.5, "crosstalk_reach": 15.0, "bare_arm_factor": 1.0}

PRESETS: Mapping[str, Preset] = {
    "method_a": Preset(
        "even couplers with a spread of 0.02 rad, crosstalk of 1.5 % that always warms; noise 0.1 % and -50 dB",
        8,
        {**_METHOD, "coupler_spread_rad": 0.02, "crosstalk_strength": 0.015},
    ),
    "method_b": Preset(
        "mean reflectivity 0.567 with a spread of 0.006 rad, crosstalk of 1.5 % of both signs; noise as method_a",
        12,
        {
            **_METHOD,
            "coupler_mean_rad": coupler_mean(0.567),
            "coupler_spread_rad": 0.006,
            "crosstalk_strength": 0.0,
            "crosstalk_rms": 0.015,
        },
    ),
    "silicon_6": Preset(
        "six ports in silicon: 25 mW for pi, 2.5 us, couplers 0.02 rad, crosstalk 1.5 %",
        6,
        {
            **_BENCH,
            "pi_power_w": 0.025,
            "thermal_time_constant_s": 2.5e-6,
            "coupler_mean_rad": 0.0,
            "coupler_spread_rad": 0.02,
            "crosstalk_strength": 0.015,
        },
    ),
    "silicon_8": Preset(
        "eight ports in silicon: 12.4 mW for pi, 1.05 kOhm that grows by 12 % over two pi",
        8,
        {
            **_BENCH,
            "pi_power_w": 0.0124,
            "heater_resistance_ohm": 1050.0,
            "resistance_growth_per_w": 0.12 / 0.0248,
            "coupler_spread_rad": 0.03,
            "crosstalk_strength": 0.015,
        },
    ),
    "nitride_12": Preset(
        "twelve ports in silicon nitride: mean reflectivity 0.567, crosstalk 1.5 % of both signs, 1.23 mW for pi",
        12,
        {
            **_BENCH,
            "pi_power_w": 0.00123,
            "pi_power_spread": 0.005,
            "heater_resistance_ohm": 1540.0,
            "heater_resistance_spread": 0.008,
            "resistance_growth_per_w": 0.014 / 0.00246,
            "coupler_mean_rad": coupler_mean(0.567),
            "coupler_spread_rad": 0.006,
            "crosstalk_strength": 0.0,
            "crosstalk_rms": 0.015,
            "thermal_time_constant_s": 140e-6,
        },
    ),
    "nitride_20": Preset(
        "twenty ports in silicon nitride: 2.9 dB of loss per mode in all",
        20,
        {
            **_BENCH,
            "mzi_loss_db": 0.045,
            "mzi_loss_spread_db": 0.015,
            "input_coupling_spread_db": 0.1,
            "output_coupling_spread_db": 0.1,
            "crosstalk_strength": 0.015,
        },
    ),
    "silicon_64": Preset(
        "sixty-four ports: low-loss MZIs, detectors with a floor of -70 dB",
        64,
        {
            **_BENCH,
            "mzi_loss_db": 0.05,
            "mzi_loss_spread_db": 0.01,
            "noise_floor_w": 1e-7 * _INPUT_W,
            "dark_offset_w": 1e-7 * _INPUT_W,
            "crosstalk_strength": 0.010,
        },
    ),
}
"""Known kinds of chips by name."""


def preset(name: str) -> Preset:
    """Return a preset; raises ConfigurationError if there is none of that name."""
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigurationError(
            f"hidden chip: there is no preset {name!r}; presets are {', '.join(sorted(PRESETS))}"
        ) from None
