"""What the hidden chip does, and how strongly: every departure from the ideal chip has a size of its own."""

import math
from dataclasses import dataclass, fields
from typing import Any, Self

from optinc_hw.errors import ConfigurationError
from simulated_instruments._presets import preset

_POSITIVE = (
    "heater_resistance_ohm",
    "pi_power_w",
    "noise_averaging_s",
    "crosstalk_length",
    "crosstalk_reach",
    "second_order_length",
    "ground_group",
    "design_wavelength_m",
)
_MAY_BE_NEGATIVE = (
    "coupler_mean_rad",
    "coupler_dispersion_rad_per_nm",
    "heated_arm_loss",
    "phase_curvature",
    "second_order_crosstalk",
    "temperature_k",
    "resistance_per_k",
    "efficiency_per_k",
)


@dataclass(frozen=True)
class HiddenEffects:
    """Sizes of the hidden chip's effects; SI units, "spread" is one standard deviation.

    Every imperfection vanishes at 0. Eight fields are properties of the nominal design and must be positive:
    ``heater_resistance_ohm``, ``pi_power_w``, ``noise_averaging_s``, ``crosstalk_length``, ``crosstalk_reach``,
    ``second_order_length``, ``ground_group``, ``design_wavelength_m``.

    Parameters
    ----------
    lo_fraction
        Share of the laser's power that the splitter gives to the local oscillator, 0..1; chips with power detectors
        have no local oscillator, and nothing is taken from their light.
    heater_resistance_ohm, heater_resistance_spread
        Cold resistance R0 of the heaters in ohm, and its relative spread.
    resistance_growth_per_w, resistance_growth_spread
        beta of R(P) = R0 (1 + beta P) in 1/W (0.8 is +4 % at 50 mW), and its relative spread.
    pi_power_w, pi_power_spread
        Heater power for a phase of pi at the design wavelength in W, and its relative spread.
    offset_range_rad
        Phase offsets of all arm sections, and the phases of the local oscillator at the receivers, are uniform over
        this range.
    coupler_mean_rad, coupler_spread_rad
        Mean departure of the MZIs' splitting angles from pi/4, and their spread, in rad; ``coupler_mean`` computes
        the former from a measured mean reflectivity.
    coupler_dispersion_rad_per_nm
        Change of all MZIs' splitting angles per nm that the laser is above the design wavelength.
    receiver_coupler_spread_rad
        Spread of the receivers' splitting angles around pi/4 in rad.
    mzi_loss_db, mzi_loss_spread_db
        Loss of an MZI, both arms alike, and its spread, in dB.
    arm_loss_rms
        Relative field loss of single arm sections (half-normal, this rms): it differs between the arms of an MZI.
    heated_arm_loss
        Relative field loss of each arm section with a heater over and above that of the bare ones; of the bare ones
        if negative.
    input_coupling_db, input_coupling_spread_db
        Loss between the splitter (or the fibre of an input port) and the first modulator or MZI in dB.
    output_coupling_db, output_coupling_spread_db
        Loss between each output of the mesh, or its attenuator, and its receiver in dB; the local oscillator does not
        suffer it.
    detector_gain_spread
        Relative spread of the detectors' gains around 1.
    dark_offset_w
        Dark offsets of the detectors are uniform within plus and minus this power in W.
    noise_relative, noise_floor_w, noise_averaging_s
        Reading noise ``sqrt((noise_relative P)^2 + noise_floor_w^2)`` at the averaging time ``noise_averaging_s``;
        it falls with the square root of the averaging time.
    crosstalk_strength, crosstalk_length, crosstalk_spread, bare_arm_factor
        A heater warms every other arm section by ``strength exp(-(d - 1) / length)`` of its own phase, d >= 1 its
        distance in pitches, times a log-normal factor of width ``crosstalk_spread``; arm sections without a heater
        get ``bare_arm_factor`` of that.
    crosstalk_rms
        Crosstalk of either sign on top of that: normal around 0, its width falls like the strength does.
    crosstalk_reach
        Distance in pitches beyond which there is no crosstalk.
    phase_curvature, phase_curvature_spread
        Relative growth of a heater's efficiency on its own section per pi of its own phase, and its spread.
    second_order_crosstalk, second_order_length
        Relative growth of a heater's efficiency on its own section per pi that a heater one pitch away gives, falling
        with the distance d in pitches like ``exp(-(d - 1) / length)``.
    thermal_time_constant_s
        First-order time constant of the heat in s.
    temperature_k
        Chip temperature in K above the one at which all parameters hold.
    temperature_phase_rad_per_k
        Phase of single arm sections per K of chip temperature (rms of a pattern that belongs to the chip), in rad/K.
    resistance_per_k, efficiency_per_k
        Relative change of all resistances, and of all heaters' efficiencies, per K of chip temperature.
    ground_resistance_ohm, ground_group
        Resistance in ohm of the ground return that each ``ground_group`` heaters (in the layout's order) share: their
        currents raise its potential and so lower the voltage across each of them.
    design_wavelength_m
        Wavelength at which ``pi_power_w`` holds; thermo-optic phases scale with its ratio to the laser's.

    Raises
    ------
    ConfigurationError
        If a value is not finite, or out of its range.
    """

    lo_fraction: float = 0.15
    heater_resistance_ohm: float = 1200.0
    heater_resistance_spread: float = 0.02
    resistance_growth_per_w: float = 0.8
    resistance_growth_spread: float = 0.2
    pi_power_w: float = 0.020
    pi_power_spread: float = 0.02
    offset_range_rad: float = 2.0 * math.pi
    coupler_mean_rad: float = 0.01
    coupler_spread_rad: float = 0.02
    coupler_dispersion_rad_per_nm: float = 0.0
    receiver_coupler_spread_rad: float = 0.01
    mzi_loss_db: float = 0.15
    mzi_loss_spread_db: float = 0.03
    arm_loss_rms: float = 0.0005
    heated_arm_loss: float = 0.0
    input_coupling_db: float = 1.0
    input_coupling_spread_db: float = 0.3
    output_coupling_db: float = 1.0
    output_coupling_spread_db: float = 0.3
    detector_gain_spread: float = 0.05
    dark_offset_w: float = 5e-9
    noise_relative: float = 0.001
    noise_floor_w: float = 5e-9
    noise_averaging_s: float = 0.010
    crosstalk_strength: float = 0.008
    crosstalk_length: float = 0.6
    crosstalk_spread: float = 0.3
    bare_arm_factor: float = 0.2
    crosstalk_rms: float = 0.0
    crosstalk_reach: float = 1000.0
    phase_curvature: float = 0.0
    phase_curvature_spread: float = 0.0
    second_order_crosstalk: float = 0.0
    second_order_length: float = 1.0
    thermal_time_constant_s: float = 50e-6
    temperature_k: float = 0.0
    temperature_phase_rad_per_k: float = 0.0
    resistance_per_k: float = 0.0
    efficiency_per_k: float = 0.0
    ground_resistance_ohm: float = 0.0
    ground_group: float = 8
    design_wavelength_m: float = 1550e-9

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigurationError(f"hidden effect {field.name} must be a finite number, got {value!r}")
            if field.name in _POSITIVE and value <= 0.0:
                raise ConfigurationError(f"hidden effect {field.name} must be positive, got {value!r}")
            if value < 0.0 and field.name not in _MAY_BE_NEGATIVE:
                raise ConfigurationError(f"hidden effect {field.name} must not be negative, got {value!r}")
        if self.lo_fraction > 1.0:
            raise ConfigurationError(f"hidden effect lo_fraction must be at most 1, got {self.lo_fraction!r}")
        if self.ground_group != int(self.ground_group):
            raise ConfigurationError(f"hidden effect ground_group must be a whole number, got {self.ground_group!r}")

    @classmethod
    def none(cls) -> "HiddenEffects":
        """Return the ideal chip: nominal heaters and splitter, no imperfection, no noise, no thermal lag."""
        nominal = (*_POSITIVE, "lo_fraction")
        return cls(**{field.name: 0.0 for field in fields(cls) if field.name not in nominal})

    @classmethod
    def preset(cls, name: str, **changes: float) -> Self:
        """Return the effects of a known kind of chip, with ``changes`` to single fields.

        The names and what they stand for are in ``PRESETS``.

        Raises
        ------
        ConfigurationError
            If there is no such preset or effect, or a value is out of its range.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(changes) - known):
            raise ConfigurationError(
                f"hidden effects: there is no effect {', '.join(unknown)}; effects are {', '.join(sorted(known))}"
            )
        values: dict[str, Any] = {**preset(name).effects, **changes}  # Any: checked on construction
        return cls(**values)
