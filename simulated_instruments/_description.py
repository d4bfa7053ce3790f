"""``hidden_chip.yaml``: a hidden chip that a person describes."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from optinc_hw.errors import ConfigurationError, OptincError
from optinc_hw.photonics.layout import ChipLayout, Inputs, Receivers
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout, TriangularLayout
from simulated_instruments._chip_content import ChipContent, drawn_chip
from simulated_instruments._drift import Drift
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._presets import PRESETS, Preset, coupler_mean, preset
from simulated_instruments._truth import Truth, apply_truth

_REFLECTIVITY = "mean_reflectivity"
_Place = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class Ageing(BaseModel):
    """Section ``drift`` of ``hidden_chip.yaml``: how the chip has aged since it was drawn, see `HiddenChip.drift`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    resistance_change: float = Field(default=0.0, description="the common relative change of all resistances")
    resistance_spread: float = Field(default=0.0, ge=0.0, description="its standard deviation from heater to heater")
    efficiency_change: float = Field(default=0.0, description="the common relative change of phase per heater power")
    efficiency_spread: float = Field(default=0.0, ge=0.0, description="its standard deviation from heater to heater")
    offset_rms_rad: float = Field(default=0.0, ge=0.0, description="the rms change of phases of arms in rad")
    gain_spread: float = Field(default=0.0, ge=0.0, description="the rms relative change of detectors' gains")
    seed: int = Field(default=0, ge=0, description="an integer of at least 0")

    def of(self, content: ChipContent) -> ChipContent:
        """Return what the chip is like after it."""
        change = Drift(**self.model_dump(exclude={"seed"}))
        return replace(content, parameters=change.of(content.parameters, self.seed))


class ChipDescription(BaseModel):
    """Content of ``hidden_chip.yaml``, version 1; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    version: Literal[1] = Field(default=1, description="1, the only version of this file format")
    preset: str | None = Field(default=None, description="the name of a preset")
    seed: Annotated[int, Field(ge=0)] | None = Field(default=None, description="an integer of at least 0")
    ports: Annotated[int, Field(ge=2)] | None = Field(default=None, description="the number of ports, at least 2")
    inputs: Inputs | None = Field(default=None, description="ports or modulators")
    receivers: Receivers | None = Field(default=None, description="power or homodyne")
    layout: Literal["rectangular", "triangular", "custom"] = Field(
        default="rectangular", description="rectangular, triangular or custom"
    )
    mzis: list[_Place] | None = Field(default=None, description="a list of [column, upper mode], for layout: custom")
    missing: list[_Place] = Field(default=[], description="a list of [column, upper mode] that the chip lacks")
    stuck_rad: dict[str, float] = Field(
        default={}, description="a mapping from heaters that are known to be stuck to their phases in rad"
    )
    effects: dict[str, float] = Field(default={}, description="a mapping from effect to its size")
    truth: Truth = Field(default=Truth(), description="a mapping of what is true of single elements")
    drift: Ageing | None = Field(default=None, description="a mapping of what has changed since the chip was made")

    def chip_layout(self) -> ChipLayout:
        """Return the names and order of heaters and detectors; raises OptincError if it is not possible."""
        known = self._known
        ports = self.ports if self.ports is not None else (known.ports if known is not None else None)
        if ports is None:
            raise ConfigurationError("ports: this key is missing; add the number of ports, or a preset")
        if (self.layout == "custom") is (self.mzis is None):
            raise ConfigurationError("mzis: layout: custom needs a list of [column, upper mode], others have their own")
        mesh = _designed(self.layout, ports, self.mzis)
        mesh = mesh.without(_pairs(self.missing)) if self.missing else mesh
        bare = known is not None
        return ChipLayout(
            ports,
            mesh,
            self.stuck_rad,
            inputs=self.inputs or ("ports" if bare else "modulators"),
            receivers=self.receivers or ("power" if bare else "homodyne"),
        )

    def hidden_effects(self) -> HiddenEffects:
        """Return the sizes of all effects; raises ConfigurationError if one is unknown or out of its range."""
        values = dict(self.effects)
        if _REFLECTIVITY in values:
            if "coupler_mean_rad" in values:
                raise ConfigurationError(f"effects: {_REFLECTIVITY} and coupler_mean_rad say the same; remove one")
            values["coupler_mean_rad"] = coupler_mean(values.pop(_REFLECTIVITY))
        names = [field.name for field in fields(HiddenEffects)]
        for name in values:
            if name not in names:
                raise ConfigurationError(f"effects.{name}: unknown effect; {_suggest(name, [*names, _REFLECTIVITY])}")
        base = HiddenEffects() if self.preset is None else HiddenEffects.preset(self.preset)
        return replace(base, **values)

    @property
    def _known(self) -> Preset | None:
        return None if self.preset is None else preset(self.preset)


def read_description(path: Path, seed: int) -> ChipContent:
    """Read ``hidden_chip.yaml`` and draw the chip that it describes.

    Parameters
    ----------
    path
        The file.
    seed
        Seed for a file that states none.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, has unknown keys, or its content does not fit together; the message names the file,
        each key and what to do.
    """
    try:
        described = ChipDescription.model_validate(_load(path))
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explained(path, error))) from error
    try:
        layout, effects = described.chip_layout(), described.hidden_effects()
        drawn = drawn_chip(seed if described.seed is None else described.seed, layout, effects, described.stuck_rad)
        made = replace(drawn, parameters=apply_truth(drawn.parameters, layout, described.truth))
        return made if described.drift is None else described.drift.of(made)
    except OptincError as error:
        raise ConfigurationError(f"{path}: {error}") from error


_SECTIONS: Mapping[str, type[BaseModel]] = {"truth": Truth, "drift": Ageing}


def _load(path: Path) -> Mapping[str, Any]:  # Any: whatever YAML can hold
    try:
        data = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"hidden chip {path}: cannot be read ({error}); check the path") from error
    except YAMLError as error:
        raise ConfigurationError(
            f"hidden chip {path}: not valid YAML; correct it at the place named here: {error}"
        ) from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"hidden chip {path}: holds no mapping of keys; write `preset: {next(iter(PRESETS))}`")
    return data


def _explained(path: Path, error: ValidationError) -> Iterable[str]:
    for fault in error.errors():
        place = [str(part) for part in fault["loc"]]
        model = _SECTIONS.get(place[0], ChipDescription) if len(place) > 1 else ChipDescription
        key = "" if not place else place[0] if model is ChipDescription else place[1]
        field = model.model_fields.get(key)
        if fault["type"] == "extra_forbidden":
            yield f"{path}: {'.'.join(place)}: unknown key; {_suggest(place[-1], model.model_fields)}"
        else:
            remedy = f"give {field.description}" if field is not None else "correct it"
            yield f"{path}: {'.'.join(place)}: {fault.get('input')!r} is not allowed: {fault['msg']}; {remedy}"


def _suggest(word: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown word: the closest known one, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"


def _designed(layout: str, ports: int, mzis: Sequence[Sequence[int]] | None) -> MeshLayout:
    if mzis is not None:
        return MeshLayout(ports, _pairs(mzis))
    return TriangularLayout(ports) if layout == "triangular" else RectangularLayout(ports)


def _pairs(places: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((place[0], place[1]) for place in places)
