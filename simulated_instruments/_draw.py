"""Draw the truth about one hidden chip from a seed."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._geometry import BARE, ArmSections
from simulated_instruments._parameters import FloatArray, HiddenParameters, neutral, parameter_shapes

_ROWS = 128
_BASE_STREAM, _EXTRA_STREAM = 0, 2  # 1 is that of the noise
_BASE = (
    "offset_rad",
    "crosstalk",
    "section_amplitude",
    "pi_power_w",
    "resistance_ohm",
    "resistance_growth_per_w",
    "eta_in_rad",
    "eta_out_rad",
    "mzi_amplitude",
    "input_amplitude",
    "receiver_eta_rad",
    "lo_phase_rad",
    "output_amplitude",
    "gain",
    "dark_w",
)
"""Parameters whose variates come from one stream, in this order: it must never change."""
_EXTRA = ("signed_crosstalk", "phase_curvature", "phase_per_kelvin_rad")
"""Variates with streams of their own, by position: new ones go to the end."""


def draw_parameters(layout: ChipLayout, effects: HiddenEffects, seed: int) -> HiddenParameters:
    """Draw the truth about one chip.

    Unit variates do not depend on the effects, so switching one effect off leaves all other parameters of the seed as
    they were.
    """
    shapes, rng = parameter_shapes(layout), np.random.default_rng([seed, _BASE_STREAM])
    normal = {name: rng.standard_normal(shapes[name]) for name in _BASE}
    uniform = {name: rng.random(shapes[name]) for name in ("offset_rad", "lo_phase_rad", "dark_w")}
    e = effects
    mzi_loss_db = np.maximum(e.mzi_loss_db + e.mzi_loss_spread_db * normal["mzi_amplitude"], 0.0)
    input_db = np.maximum(e.input_coupling_db + e.input_coupling_spread_db * normal["input_amplitude"], 0.0)
    output_db = np.maximum(e.output_coupling_db + e.output_coupling_spread_db * normal["output_amplitude"], 0.0)
    eta = math.pi / 4.0 + e.coupler_mean_rad
    base = {
        "offset_rad": e.offset_range_rad * uniform["offset_rad"],
        "crosstalk": _crosstalk(layout, e, normal.pop("crosstalk"), seed),
        "section_amplitude": _section_amplitude(layout, e, normal["section_amplitude"]),
        "pi_power_w": e.pi_power_w * positive(1.0 + e.pi_power_spread * normal["pi_power_w"]),
        "resistance_ohm": e.heater_resistance_ohm
        * positive(1.0 + e.heater_resistance_spread * normal["resistance_ohm"]),
        "resistance_growth_per_w": e.resistance_growth_per_w
        * np.maximum(1.0 + e.resistance_growth_spread * normal["resistance_growth_per_w"], 0.0),
        "eta_in_rad": eta + e.coupler_spread_rad * normal["eta_in_rad"],
        "eta_out_rad": eta + e.coupler_spread_rad * normal["eta_out_rad"],
        "mzi_amplitude": 10.0 ** (-mzi_loss_db / 20.0),
        "input_amplitude": 10.0 ** (-input_db / 20.0),
        "receiver_eta_rad": math.pi / 4.0 + e.receiver_coupler_spread_rad * normal["receiver_eta_rad"],
        "lo_phase_rad": e.offset_range_rad * uniform["lo_phase_rad"],
        "output_amplitude": 10.0 ** (-output_db / 20.0),
        "gain": positive(1.0 + e.detector_gain_spread * normal["gain"]),
        "dark_w": e.dark_offset_w * (2.0 * uniform["dark_w"] - 1.0),
    }
    return HiddenParameters(**{**neutral(layout), **base, **_further(layout, e, seed)})


def _further(layout: ChipLayout, effects: HiddenEffects, seed: int) -> dict[str, FloatArray]:
    """Draw what later versions added to the chip."""
    shapes, further = parameter_shapes(layout), dict[str, FloatArray]()
    if effects.phase_curvature != 0.0 or effects.phase_curvature_spread != 0.0:
        normal = extra_stream(seed, "phase_curvature").standard_normal(shapes["phase_curvature"])
        further["phase_curvature"] = effects.phase_curvature + effects.phase_curvature_spread * normal
    if effects.temperature_phase_rad_per_k != 0.0:
        normal = extra_stream(seed, "phase_per_kelvin_rad").standard_normal(shapes["phase_per_kelvin_rad"])
        further["phase_per_kelvin_rad"] = effects.temperature_phase_rad_per_k * normal
    return further


def extra_stream(seed: int, name: str) -> np.random.Generator:
    """Return the Generator for one of the later variates."""
    return np.random.default_rng([seed, _EXTRA_STREAM, _EXTRA.index(name)])


def positive(factors: FloatArray) -> FloatArray:
    """Keep factors of devices that must exist away from zero, however wide a spread was asked for."""
    return np.maximum(factors, 0.05)


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
    offset, own = parameters.offset_rad.copy(), ArmSections(layout).own
    for name, phase in stuck_rad.items():
        upper = own[layout.heater_index[name]]
        offset[upper] = offset[upper + 1] + phase
    return replace(parameters, offset_rad=offset)


def _section_amplitude(layout: ChipLayout, effects: HiddenEffects, normal: FloatArray) -> FloatArray:
    amplitude = np.exp(-effects.arm_loss_rms * np.abs(normal))
    if effects.heated_arm_loss != 0.0:
        lossy = (ArmSections(layout).heater != BARE) == (effects.heated_arm_loss > 0.0)
        amplitude = amplitude * np.exp(-abs(effects.heated_arm_loss) * lossy)
    return np.asarray(amplitude, dtype=np.float64)


def _crosstalk(layout: ChipLayout, effects: HiddenEffects, normal: FloatArray, seed: int) -> FloatArray:
    """Return the (S, H) crosstalk in place of ``normal``: unit on own sections, falling with distance elsewhere."""
    sections = ArmSections(layout)
    bare = np.where(sections.heater == BARE, effects.bare_arm_factor, 1.0)
    signed = None if effects.crosstalk_rms == 0.0 else extra_stream(seed, "signed_crosstalk")
    # By rows, because arrays of this size are slow to make and large chips have few heaters within reach.
    for start in range(0, len(normal), _ROWS):
        rows = slice(start, start + _ROWS)
        distance = _distances(sections.sites[rows], layout.heater_sites)
        within = distance <= effects.crosstalk_reach
        near = np.exp(-(distance[within] - 1.0) / effects.crosstalk_length)
        factor = np.broadcast_to(bare[rows, None], distance.shape)[within]
        values = effects.crosstalk_strength * near * factor
        values *= np.exp(effects.crosstalk_spread * normal[rows][within])
        if signed is not None:
            width = effects.crosstalk_rms * near * factor
            values += width * signed.standard_normal(distance.shape)[within]
        normal[rows] = 0.0
        normal[rows][within] = values
    normal[sections.own, np.arange(len(layout.heaters))] = 1.0
    return normal


def _distances(sites: NDArray[np.float64], heaters: NDArray[np.float64]) -> FloatArray:
    """Distances (S, H) in pitches, at least 1."""
    x = sites[:, None, 0] - heaters[None, :, 0]
    y = sites[:, None, 1] - heaters[None, :, 1]
    return np.maximum(np.hypot(x, y), 1.0)
