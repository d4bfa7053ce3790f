"""Retrained tiles in a file: safetensors, which hold arrays and text and no code."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from calibration._retrain_task import HeaterDac
from calibration._retrain_twin import corrected_twin
from calibration._session import Array
from optinc_hw._files import replacing
from optinc_hw.errors import CalibrationError
from optinc_hw.onn import TilePlan
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.program import ProgrammedMatrix

_FORMAT = "optinc-retrained/2"
_ARRAYS = ("inputs", "static_power_w", "row_scale", "leak", "max_power_w")
_NUMBERS = ("reference", "residual")
_REPORTED = ("before", "after", "measured", "readings")

Identity = Mapping[str, str | float]
"""What a retraining was begun with: numbers as they are, networks, twins and arrays as digests."""


@dataclass(frozen=True)
class RetrainedTile:
    """One tile as it was retrained.

    Parameters
    ----------
    programmed
        Powers, gains and offsets; its twin is the one that learned.
    correction
        What that twin had learned, see `LearningTwin`.
    before, after
        Rms error of the tile's outputs before, and the largest on inputs that it was not trained on after, as shares of
        what the network absorbs.
    measured, readings
        Settings that were measured, and vectors that were sent in all.
    """

    programmed: ProgrammedMatrix
    correction: Array
    before: float
    after: float
    measured: int
    readings: int


def identity(
    plan: TilePlan, twin: TwinParameters, dac: HeaterDac, max_power_w: Array, settings: Mapping[str, Any]
) -> Identity:
    """Return what tiles depend on, so that a file of theirs is resumed with nothing else.

    Parameters
    ----------
    plan
        The network and its tiles.
    twin
        What was known beforehand.
    dac
        Steps of the heaters.
    max_power_w
        Limits (H,) in W.
    settings
        Of the retraining, as a mapping.
    """
    found: dict[str, str | float] = {
        "network": _digest(plan.network),
        "cut into tiles": _digest((plan.ports, plan.tiles, plan.layers)),
        "twin": _digest(twin),
        "resistance law of the heaters": _digest((dac.resistance_ohm, dac.beta_per_w)),
        "step_v": float(dac.step_v),
        "whole": dac.whole,
        "max_power_w": _digest(max_power_w),
    }
    for name, value in settings.items():
        parts = {f"{name}.{part}": one for part, one in value.items()} if isinstance(value, Mapping) else {name: value}
        found |= {part: one.item() if isinstance(one, np.generic) else one for part, one in parts.items()}
    return found


def save_tiles(path: Path, begun: Identity, tiles: list[RetrainedTile]) -> None:
    """Write finished tiles of a retraining that was begun with ``begun`` (`identity`), at once or not at all."""
    arrays, numbers = {}, []
    for number, tile in enumerate(tiles):
        arrays[f"{number}.correction"] = tile.correction
        for name in _ARRAYS:
            arrays[f"{number}.{name}"] = np.ascontiguousarray(getattr(tile.programmed, name))
        about = {name: float(getattr(tile.programmed, name)) for name in _NUMBERS}
        numbers.append(about | {name: getattr(tile, name) for name in _REPORTED})
    text = {"format": _FORMAT, "begun with": json.dumps(begun), "tiles": json.dumps(numbers)}
    with replacing(path) as part:
        save_file(arrays, part, text)


def load_tiles(path: Path, plan: TilePlan, twin: TwinParameters, begun: Identity) -> list[RetrainedTile]:
    """Read the tiles of `save_tiles`.

    Raises
    ------
    CalibrationError
        If the file cannot be read, or the retraining was begun with something else.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            if about.get("format") != _FORMAT:
                raise CalibrationError(
                    f"{path} has format {about.get('format')!r}, expected {_FORMAT!r}; begin anew, without resume"
                )
            _require_same(path, dict(json.loads(about["begun with"])), begun)
            tiles = []
            for number, values in enumerate(json.loads(about["tiles"])):
                correction = file.get_tensor(f"{number}.correction")
                programmed = ProgrammedMatrix(
                    parameters=corrected_twin(twin, correction), matrix=plan.tiles[number].matrix,
                    **{name: file.get_tensor(f"{number}.{name}") for name in _ARRAYS},
                    **{name: values[name] for name in _NUMBERS},
                )  # fmt: skip
                tiles.append(RetrainedTile(programmed, correction, **{name: values[name] for name in _REPORTED}))
            return tiles
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CalibrationError(f"{path} is no readable file of retrained tiles: {error}") from error


def _require_same(path: Path, then: Identity, now: Identity) -> None:
    """Refuse to resume with something else; name what differs."""
    differs = []
    for name in [*now, *(name for name in then if name not in now)]:
        before, given = then.get(name), now.get(name)
        if before != given:
            texts = isinstance(before, str) or isinstance(given, str)
            differs.append(name if texts else f"{name} ({before!r}, now {given!r})")
    if differs:
        raise CalibrationError(
            f"{path} was begun with another {', '.join(differs)}; resume with what it was begun with, or begin anew"
        )


def _digest(value: object) -> str:
    """Short name of dataclasses, tuples, slices, arrays, numbers and text, whole contents included."""
    found = hashlib.sha256()
    _add(value, found.update)
    return found.hexdigest()[:16]


def _add(value: object, update: Callable[[bytes], object]) -> None:
    """Feed a value to a digest; types, lengths and shapes keep neighbours apart."""
    if isinstance(value, np.ndarray):
        update(f"array {value.dtype.str} {value.shape};".encode())
        update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        update(f"{type(value).__name__} {len(fields(value))};".encode())
        for field in fields(value):
            update(f"{field.name}=".encode())
            _add(getattr(value, field.name), update)
    elif isinstance(value, (tuple, list)):
        update(f"sequence {len(value)};".encode())
        for one in value:
            _add(one, update)
    else:
        update(f"{value!r};".encode())
