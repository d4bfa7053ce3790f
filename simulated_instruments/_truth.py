"""What a description says about single elements of a hidden chip, in place of what was drawn."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._draw import stick
from simulated_instruments._parameters import FloatArray, HiddenParameters

_ByName = dict[str, float]
_Axis = Literal["heater", "MZI", "detector", "port"]


class Truth(BaseModel):
    """Section ``truth`` of ``hidden_chip.yaml``: nobody but the chip knows of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    dead_heaters: list[str] = Field(default=[], description="a list of heaters that take no current")
    stuck_heaters: _ByName = Field(
        default={}, description="a mapping from mesh heater to the phase in rad that it does not move"
    )
    dead_detectors: list[str] = Field(default=[], description="a list of detectors that see no light")
    wires: dict[str, str] = Field(
        default={}, description="a mapping from heater to the heater at which its wires end, each of them once"
    )
    offsets_rad: _ByName = Field(default={}, description="a mapping from mesh heater to its phase in rad without heat")
    pi_power_w: _ByName = Field(default={}, description="a mapping from heater to its power for pi in W")
    resistance_ohm: _ByName = Field(default={}, description="a mapping from heater to its cold resistance in ohm")
    resistance_growth_per_w: _ByName = Field(
        default={}, description="a mapping from heater to the growth of its resistance in 1/W"
    )
    couplers_rad: dict[str, list[float]] = Field(
        default={}, description="a mapping from MZI, such as mzi_0_2, to the angles [in, out] of its couplers in rad"
    )
    mzi_loss_db: _ByName = Field(default={}, description="a mapping from MZI to its loss in dB")
    input_loss_db: dict[int, float] = Field(default={}, description="a mapping from input to its loss in dB")
    output_loss_db: dict[int, float] = Field(default={}, description="a mapping from output to its loss in dB")
    detector_gain: _ByName = Field(default={}, description="a mapping from detector to its gain")


def mzi_names(layout: ChipLayout) -> tuple[str, ...]:
    """Return the names of all MZIs in the order of the hidden chip's MZI axes."""
    return (
        *(f"in_{i}" for i in range(layout.modulators)),
        *(f"mzi_{column}_{mode}" for column, mode in layout.mesh.mzis),
        *(f"att_{j}" for j in range(layout.homodynes)),
    )


def apply_truth(parameters: HiddenParameters, layout: ChipLayout, truth: Truth) -> HiddenParameters:
    """Return the parameters with what ``truth`` says about single elements.

    Raises
    ------
    ConfigurationError
        If the chip has no such element, or a value is out of its range.
    """
    mesh_heaters = [name for name in layout.heaters if name.startswith("mzi_")]
    _check("offsets_rad", truth.offsets_rad, mesh_heaters)
    _check("stuck_heaters", truth.stuck_heaters, mesh_heaters)
    result = stick(parameters, layout, {**truth.offsets_rad, **truth.stuck_heaters})
    names: dict[_Axis, Sequence[str | int]] = {
        "heater": layout.heaters,
        "MZI": mzi_names(layout),
        "detector": layout.detectors,
        "port": range(layout.ports),
    }
    for element in _elements(truth):
        values = _with(element, getattr(result, element.field), names[element.axis])
        result = replace(result, **{element.field: values})
    return rewire(result, layout, truth.wires)


@dataclass(frozen=True)
class _Element:
    """What the description says about elements of one kind: ``wanted`` by name, for one field of the parameters."""

    key: str
    field: str
    axis: _Axis
    wanted: Mapping[str, float] | Mapping[int, float]
    least: float = -math.inf
    more_than: float = -math.inf
    """Limits: the least value, or one that is already too little."""


def _elements(truth: Truth) -> list[_Element]:
    couplers = truth.couplers_rad
    if any(len(pair) != 2 for pair in couplers.values()):
        raise ConfigurationError("truth.couplers_rad: an MZI has two couplers; give [in, out] in rad")
    return [
        _Element("stuck_heaters", "heats", "heater", dict.fromkeys(truth.stuck_heaters, 0.0)),
        _Element("dead_heaters", "connected", "heater", dict.fromkeys(truth.dead_heaters, 0.0)),
        _Element("pi_power_w", "pi_power_w", "heater", truth.pi_power_w, more_than=0.0),
        _Element("resistance_ohm", "resistance_ohm", "heater", truth.resistance_ohm, more_than=0.0),
        _Element(
            "resistance_growth_per_w", "resistance_growth_per_w", "heater", truth.resistance_growth_per_w, least=0.0
        ),
        _Element("couplers_rad", "eta_in_rad", "MZI", {name: pair[0] for name, pair in couplers.items()}),
        _Element("couplers_rad", "eta_out_rad", "MZI", {name: pair[1] for name, pair in couplers.items()}),
        _Element("mzi_loss_db", "mzi_amplitude", "MZI", truth.mzi_loss_db, least=0.0),
        _Element("input_loss_db", "input_amplitude", "port", truth.input_loss_db, least=0.0),
        _Element("output_loss_db", "output_amplitude", "port", truth.output_loss_db, least=0.0),
        _Element("detector_gain", "gain", "detector", truth.detector_gain, least=0.0),
        _Element("dead_detectors", "gain", "detector", dict.fromkeys(truth.dead_detectors, 0.0)),
    ]


def _with(element: _Element, values: FloatArray, names: Sequence[str | int]) -> FloatArray:
    """Return ``values`` with those that are wanted by name."""
    _check(element.key, element.wanted, names)
    changed = values.copy()
    for name, value in element.wanted.items():
        if value < element.least or value <= element.more_than:
            limit = f"{element.least:g} or more" if element.least > element.more_than else "more than 0"
            raise ConfigurationError(f"truth.{element.key}: {name}: {value!r} is not possible; give {limit}")
        changed[names.index(name)] = 10.0 ** (-value / 20.0) if element.key.endswith("_db") else value
    return changed


def rewire(parameters: HiddenParameters, layout: ChipLayout, wires: Mapping[str, str]) -> HiddenParameters:
    """Return the parameters of a chip whose heaters' wires end elsewhere.

    Parameters
    ----------
    parameters
        The truth about the chip with wires as they should be.
    layout
        Names and order of heaters.
    wires
        The heater at which the wires of a heater end, by name; each of them has wires of its own.

    Raises
    ------
    ConfigurationError
        If there is no such heater, or two wires end at one heater.
    """
    _check("wires", [*wires, *wires.values()], layout.heaters)
    if sorted(wires) != sorted(wires.values()):
        raise ConfigurationError(
            "truth.wires: every heater that is named must be named once on each side; a swap is {a: b, b: a}"
        )
    place = np.arange(len(layout.heaters))
    for wire, end in wires.items():
        place[layout.heater_index[wire]] = layout.heater_index[end]
    p = parameters
    return replace(
        p,
        crosstalk=np.ascontiguousarray(p.crosstalk[:, place]) if wires else p.crosstalk,
        pi_power_w=p.pi_power_w[place],
        resistance_ohm=p.resistance_ohm[place],
        resistance_growth_per_w=p.resistance_growth_per_w[place],
        phase_curvature=p.phase_curvature[place],
        heats=p.heats[place],
        connected=p.connected[place],
        wiring=p.wiring[place],
    )


def _check(key: str, wanted: Iterable[str | int], names: Sequence[str | int]) -> None:
    for name in wanted:
        if name not in names:
            raise ConfigurationError(
                f"truth.{key}: the chip has no {name!r}; it has {', '.join(str(known) for known in names)}"
            )
