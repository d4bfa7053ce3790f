"""The truth about one hidden chip: drawn from a seed, or read back from a file."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._geometry import ArmSections

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class HiddenParameters:
    """Parameters of one hidden chip of n ports, S arm sections, H heaters, D detectors and M MZIs.

    The MZIs come in the order input modulators, mesh (in the layout's order), attenuators; chips without modulators
    or attenuators lack theirs. Of receivers there are R = n, or none on a chip with power detectors. Arrays are
    float64 and read-only.

    Parameters
    ----------
    offset_rad, phase_per_kelvin_rad
        (S,) phase of each arm section without heat in rad, and its growth with the chip's temperature in rad/K.
    crosstalk
        (S, H) phase of a section per phase that the heater gives to its own section; 1 at the own section.
    section_amplitude
        (S,) field transmission of each arm section.
    pi_power_w, resistance_ohm, resistance_growth_per_w
        (H,) power for pi, cold resistance, and growth beta of each heater.
    phase_curvature
        (H,) relative growth of each heater's efficiency on its own section per pi of its own phase.
    heats, connected
        (H,) 1 for a heater that moves phases and one that takes current; 0 for one that does not.
    wiring
        (H,) index of the place on the chip where the wires of each heater end: all other heater axes are those of
        the wires, so swapped wires have swapped resistances, efficiencies and crosstalk.
    eta_in_rad, eta_out_rad, mzi_amplitude
        (M,) splitting angles of both couplers, and field transmission, of each MZI.
    input_amplitude
        (n,) field transmission between splitter, or fibre, and each input.
    receiver_eta_rad, lo_phase_rad
        (R,) splitting angle of each receiver, and phase of the local oscillator there.
    output_amplitude
        (n,) field transmission between each output, or attenuator, and its receiver.
    gain, dark_w
        (D,) gain, 0 for a dead detector, and dark offset in W, of each detector.
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
    phase_per_kelvin_rad: FloatArray
    phase_curvature: FloatArray
    heats: FloatArray
    connected: FloatArray
    wiring: FloatArray

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).flags.writeable = False

    def to_lists(self) -> dict[str, object]:
        """Return the arrays as nested lists of floats, for JSON."""
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    @classmethod
    def from_lists(cls, values: Mapping[str, object], layout: ChipLayout) -> "HiddenParameters":
        """Rebuild the parameters from ``to_lists``, or from that of an earlier version.

        Raises
        ------
        ConfigurationError
            If a parameter is missing, unknown, not finite, or does not have the shape that ``layout`` asks for.
        """
        shapes, known = parameter_shapes(layout), neutral(layout)
        if odd := set(values) - set(shapes) | set(shapes) - set(values) - set(known):
            raise ConfigurationError(f"parameters missing or unknown: {', '.join(sorted(odd))}")
        checked = {name: _checked(name, values[name], shapes[name]) for name in values}
        parameters = cls(**{**known, **checked})
        if not np.array_equal(np.sort(parameters.wiring), known["wiring"]):
            raise ConfigurationError("parameter wiring must hold every heater's index once")
        return parameters


def parameter_shapes(layout: ChipLayout) -> dict[str, tuple[int, ...]]:
    """Return the shape of every field of ``HiddenParameters`` for a chip."""
    n, heaters, sections = layout.ports, len(layout.heaters), ArmSections(layout).count
    receivers, detectors = layout.homodynes, len(layout.detectors)
    mzis = layout.modulators + len(layout.mesh.mzis) + receivers
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
        "receiver_eta_rad": (receivers,),
        "lo_phase_rad": (receivers,),
        "output_amplitude": (n,),
        "gain": (detectors,),
        "dark_w": (detectors,),
        "phase_per_kelvin_rad": (sections,),
        "phase_curvature": (heaters,),
        "heats": (heaters,),
        "connected": (heaters,),
        "wiring": (heaters,),
    }


def neutral(layout: ChipLayout) -> dict[str, FloatArray]:
    """Return the parameters that earlier versions did not have, as they were without being stated."""
    shapes, heaters = parameter_shapes(layout), len(layout.heaters)
    return {
        "phase_per_kelvin_rad": np.zeros(shapes["phase_per_kelvin_rad"]),
        "phase_curvature": np.zeros(heaters),
        "heats": np.ones(heaters),
        "connected": np.ones(heaters),
        "wiring": np.arange(heaters, dtype=np.float64),
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
