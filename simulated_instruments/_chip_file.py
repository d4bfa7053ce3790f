"""The file of a hidden chip: JSON with its layout, effects, parameters and noise seed."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optinc_hw._files import write_text
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout
from simulated_instruments._chip_content import ChipContent
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._parameters import HiddenParameters

_FORMAT = "optinc hidden chip"
_VERSION = 1


def read_chip(path: Path) -> ChipContent:
    """Read a hidden chip.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, is not a hidden chip of this version, or its content does not fit together.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read hidden chip {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"hidden chip {path} is not JSON: {error}") from error
    try:
        if content["format"] != _FORMAT or content["version"] != _VERSION:
            raise ConfigurationError(f"format must be {_FORMAT!r}, version {_VERSION}")
        layout = _layout(content)
        effects = HiddenEffects(**content["effects"])
        parameters = HiddenParameters.from_lists(content["parameters"], layout)
        entropy = content["noise_entropy"]
        if not isinstance(entropy, int) or entropy < 0:
            raise ConfigurationError("noise_entropy must be an integer >= 0")
    except (KeyError, TypeError, AttributeError, ValueError, ConfigurationError) as error:
        raise ConfigurationError(f"hidden chip {path} does not hold together: {error}") from error
    return ChipContent(layout, effects, parameters, entropy)


def write_chip(path: Path, chip: ChipContent) -> None:
    """Write a hidden chip, all or nothing; raises ConfigurationError if the file cannot be written."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        **_described(chip.layout),
        "noise_entropy": chip.noise_entropy,
        "effects": dataclasses.asdict(chip.effects),
        "parameters": chip.parameters.to_lists(),
    }
    try:
        write_text(path, json.dumps(content))
    except OSError as error:
        raise ConfigurationError(f"cannot write hidden chip {path}: {error.strerror}") from error


def _described(layout: ChipLayout) -> dict[str, object]:
    """Keys of the file that describe a layout; a rectangular mesh and working heaters go without saying."""
    described: dict[str, object] = {"ports": layout.ports}
    if layout.mesh != RectangularLayout(layout.ports):
        described["mesh"] = [list(mzi) for mzi in layout.mesh.mzis]
    if layout.stuck:
        described["stuck"] = list(layout.stuck)
    if layout.inputs != "modulators":
        described["inputs"] = layout.inputs
    if layout.receivers != "homodyne":
        described["receivers"] = layout.receivers
    return described


def _layout(content: Mapping[str, Any]) -> ChipLayout:  # Any: whatever JSON can hold
    mzis = content.get("mesh")
    mesh = None if mzis is None else MeshLayout(content["ports"], tuple(mzis))
    return ChipLayout(
        content["ports"],
        mesh,
        content.get("stuck", ()),
        inputs=content.get("inputs", "modulators"),
        receivers=content.get("receivers", "homodyne"),
    )
