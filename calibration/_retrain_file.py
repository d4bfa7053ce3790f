"""Retrained tiles in a file: safetensors, which hold arrays and text and no code."""

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from calibration._retrain_twin import corrected_twin
from calibration._session import Array
from optinc_hw._files import replacing
from optinc_hw.errors import CalibrationError
from optinc_hw.onn import TilePlan
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.program import ProgrammedMatrix

_FORMAT = "optinc-retrained/1"
_ARRAYS = ("inputs", "static_power_w", "row_scale", "leak", "max_power_w")
_NUMBERS = ("reference", "residual")
_REPORTED = ("before", "after", "measured", "readings")


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


def save_tiles(path: Path, plan: TilePlan, twin: TwinParameters, tiles: list[RetrainedTile]) -> None:
    """Write finished tiles, at once or not at all."""
    arrays, numbers = {}, []
    for number, tile in enumerate(tiles):
        arrays[f"{number}.correction"] = tile.correction
        for name in _ARRAYS:
            arrays[f"{number}.{name}"] = np.ascontiguousarray(getattr(tile.programmed, name))
        about = {name: float(getattr(tile.programmed, name)) for name in _NUMBERS}
        numbers.append(about | {name: getattr(tile, name) for name in _REPORTED})
    text = {"format": _FORMAT, "made for": _digest(plan, twin), "tiles": json.dumps(numbers)}
    with replacing(path) as part:
        save_file(arrays, part, text)


def load_tiles(path: Path, plan: TilePlan, twin: TwinParameters) -> list[RetrainedTile]:
    """Read the tiles of `save_tiles`.

    Raises
    ------
    CalibrationError
        If the file cannot be read, or is of another network, plan or twin.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            if about.get("format") != _FORMAT:
                raise CalibrationError(f"{path} has format {about.get('format')!r}, expected {_FORMAT!r}")
            if about.get("made for") != _digest(plan, twin):
                raise CalibrationError(
                    f"{path} is of another network, plan or twin; resume with what it was begun with, or begin anew"
                )
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


def _digest(plan: TilePlan, twin: TwinParameters) -> str:
    """Short name of what tiles are for."""
    content = [part.matrix.tobytes() for part in plan.tiles]
    content += [np.ascontiguousarray(value).tobytes() for value in _numeric(twin)]
    return hashlib.sha256(b"".join(content)).hexdigest()[:16]


def _numeric(twin: TwinParameters) -> list[Array]:
    values = [getattr(twin, field.name) for field in fields(twin)]
    return [value for value in values if isinstance(value, np.ndarray)]
