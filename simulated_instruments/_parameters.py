"""The truth about one hidden chip: drawn from a seed, or read back from a file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._geometry import BARE, ArmSections

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class HiddenParameters:
    """Parameters of one hidden chip of n ports, S arm sections, H heaters and M = n + K + n MZIs, K in the mesh.

    The MZIs come in the order input modulators, mesh (in the layout's order), attenuators. Arrays are float64 and
    read-only.

    Parameters
    ----------
    offset_rad
        (S,) phase of each arm section without heat, in rad.
    crosstalk
        (S, H) phase of a section per phase that the heater gives to its own section; 1 at the own section.
    section_amplitude
        (S,) field transmission of each arm section.
    pi_power_w, resistance_ohm, resistance_growth_per_w
        (H,) power for pi, cold resistance, and growth beta of each heater.
    eta_in_rad, eta_out_rad, mzi_amplitude
        (M,) splitting angles of both couplers, and field transmission, of each MZI.
    input_amplitude
        (n,) field transmission between splitter and each input modulator.
    receiver_eta_rad, lo_phase_rad
        (n,) splitting angle of each receiver, and phase of the local oscillator there.
    output_amplitude
        (n,) field transmission between each attenuator and its receiver.
    gain, dark_w
        (2n,) gain, and dark offset in W, of each detector.
    """

    offset_rad: FloatArray
    crosstalk: FloatArray
    section_amplitude: FloatArray
    pi_power_w: FloatArray
    resistance_ohm: FloatArray
    resistance_growth_per_w: FloatArray
    eta_in_rad: FloatArray
    eta_out_rad: FloatArray
    mzi_amplitude: FloatArray
    input_amplitude: FloatArray
    receiver_eta_rad: FloatArray
    lo_phase_rad: FloatArray
    output_amplitude: FloatArray
    gain: FloatArray
    dark_w: FloatArray

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).flags.writeable = False

    def to_lists(self) -> dict[str, object]:
        """Return the arrays as nested lists of floats, for JSON."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    @classmethod
    def from_lists(cls, values: Mapping[str, object], layout: ChipLayout) -> "HiddenParameters":
        """Rebuild the parameters from ``to_lists``.

        Raises
        ------
        ConfigurationError
            If a parameter is missing, unknown, not finite, or does not have the shape that ``layout`` asks for.
        """
        shapes = parameter_shapes(layout)
        if set(values) != set(shapes):
            odd = ", ".join(sorted(set(values) ^ set(shapes)))
            raise ConfigurationError(f"parameters missing or unknown: {odd}")
        return cls(**{name: _checked(name, values[name], shape) for name, shape in shapes.items()})


def parameter_shapes(layout: ChipLayout) -> dict[str, tuple[int, ...]]:
    """Return the shape of every field of ``HiddenParameters`` for a chip."""
    n, heaters, sections = layout.ports, len(layout.heaters), ArmSections(layout).count
    mzis = 2 * n + len(layout.mesh.mzis)
    return {
        "offset_rad": (sections,),
        "crosstalk": (sections, heaters),
        "section_amplitude": (sections,),
        "pi_power_w": (heaters,),
        "resistance_ohm": (heaters,),
        "resistance_growth_per_w": (heaters,),
        "eta_in_rad": (mzis,),
        "eta_out_rad": (mzis,),
        "mzi_amplitude": (mzis,),
        "input_amplitude": (n,),
        "receiver_eta_rad": (n,),
        "lo_phase_rad": (n,),
        "output_amplitude": (n,),
        "gain": (2 * n,),
        "dark_w": (2 * n,),
    }


def _checked(name: str, value: object, shape: tuple[int, ...]) -> FloatArray:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"parameter {name} is not an array of numbers") from error
    if array.shape != shape:
        raise ConfigurationError(f"parameter {name} has shape {array.shape}, the chip needs {shape}")
    if not np.isfinite(array).all():
        raise ConfigurationError(f"parameter {name} holds values that are not finite")
    return array


def draw_parameters(layout: ChipLayout, effects: HiddenEffects, rng: np.random.Generator) -> HiddenParameters:
    """Draw the truth about one chip.

    Unit variates are drawn in a fixed order whatever the effects are, so switching one effect off leaves all other
    parameters of the seed as they were.
    """
    shapes = parameter_shapes(layout)
    normal = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    uniform = {name: rng.random(shapes[name]) for name in ("offset_rad", "lo_phase_rad", "dark_w")}
    e = effects
    mzi_loss_db = np.maximum(e.mzi_loss_db + e.mzi_loss_spread_db * normal["mzi_amplitude"], 0.0)
    input_db = np.maximum(e.input_coupling_db + e.input_coupling_spread_db * normal["input_amplitude"], 0.0)
    output_db = np.maximum(e.output_coupling_db + e.output_coupling_spread_db * normal["output_amplitude"], 0.0)
    eta = math.pi / 4.0 + e.coupler_mean_rad
    return HiddenParameters(
        offset_rad=e.offset_range_rad * uniform["offset_rad"],
        crosstalk=_crosstalk(layout, e, normal["crosstalk"]),
        section_amplitude=np.exp(-e.arm_loss_rms * np.abs(normal["section_amplitude"])),
        pi_power_w=e.pi_power_w * _positive(1.0 + e.pi_power_spread * normal["pi_power_w"]),
        resistance_ohm=e.heater_resistance_ohm * _positive(1.0 + e.heater_resistance_spread * normal["resistance_ohm"]),
        resistance_growth_per_w=e.resistance_growth_per_w
        * np.maximum(1.0 + e.resistance_growth_spread * normal["resistance_growth_per_w"], 0.0),
        eta_in_rad=eta + e.coupler_spread_rad * normal["eta_in_rad"],
        eta_out_rad=eta + e.coupler_spread_rad * normal["eta_out_rad"],
        mzi_amplitude=10.0 ** (-mzi_loss_db / 20.0),
        input_amplitude=10.0 ** (-input_db / 20.0),
        receiver_eta_rad=math.pi / 4.0 + e.receiver_coupler_spread_rad * normal["receiver_eta_rad"],
        lo_phase_rad=e.offset_range_rad * uniform["lo_phase_rad"],
        output_amplitude=10.0 ** (-output_db / 20.0),
        gain=_positive(1.0 + e.detector_gain_spread * normal["gain"]),
        dark_w=e.dark_offset_w * (2.0 * uniform["dark_w"] - 1.0),
    )


def stick(parameters: HiddenParameters, layout: ChipLayout, stuck_rad: Mapping[str, float]) -> HiddenParameters:
    """Return the parameters with stuck phases: of the upper arm against the lower one beside it, without heat.

    Parameters
    ----------
    parameters
        The truth about the chip.
    layout
        Names and order of heaters.
    stuck_rad
        Phase in rad by the name of the heater that does not move it.
    """
    offset, heater = parameters.offset_rad.copy(), ArmSections(layout).heater
    for name, phase in stuck_rad.items():
        (upper,) = np.flatnonzero(heater == layout.heater_index[name])
        offset[upper] = offset[upper + 1] + phase
    return replace(parameters, offset_rad=offset)


def _positive(factors: FloatArray) -> FloatArray:
    """Keep factors of devices that must exist away from zero, however wide a spread was asked for."""
    return np.maximum(factors, 0.05)


def _crosstalk(layout: ChipLayout, effects: HiddenEffects, normal: FloatArray) -> FloatArray:
    """Return the (S, H) crosstalk: unit on own sections, falling with distance elsewhere."""
    sections = ArmSections(layout)
    difference = sections.sites[:, None, :] - layout.heater_sites[None, :, :]
    distance = np.maximum(np.hypot(difference[..., 0], difference[..., 1]), 1.0)
    bare = np.where(sections.heater == BARE, effects.bare_arm_factor, 1.0)[:, None]
    crosstalk = effects.crosstalk_strength * np.exp(-(distance - 1.0) / effects.crosstalk_length) * bare
    crosstalk *= np.exp(effects.crosstalk_spread * normal)
    heated = np.flatnonzero(sections.heater != BARE)
    crosstalk[heated, sections.heater[heated]] = 1.0
    return np.asarray(crosstalk, dtype=np.float64)
