"""Which calibrations a bench folder holds, from the first to the last, and which one corrects which."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from optinc_hw.bench.chip_file import read_chip_file
from optinc_hw.bench.record import CalibrationRecord
from optinc_hw.errors import CalibrationError

RECORD_FILES = "calibration_*.json"
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class RecordRow:
    """One calibration record in a bench folder.

    Parameters
    ----------
    file
        Name of its file.
    in_force
        Whether chip.yaml names it.
    content_hash
        Hash of the record; None if the file is no record that can be read.
    created_utc
        When it was made.
    kind
        ``"full"``, or ``"drift"`` for a correction of an earlier record.
    parent_hash
        Hash of the record that it corrects.
    readings
        Readings that it took.
    residual_over_noise, held_out_tvd
        How well it predicted settings that the fit had not seen.
    problem
        What is wrong with the file, None if nothing is.
    """

    file: str
    in_force: bool
    content_hash: str | None = None
    created_utc: datetime | None = None
    kind: Literal["full", "drift"] | None = None
    parent_hash: str | None = None
    readings: int | None = None
    residual_over_noise: float | None = None
    held_out_tvd: float | None = None
    problem: str | None = None


def record_history(folder: str | Path) -> tuple[RecordRow, ...]:
    """List the calibration records in a bench folder, those of simulated sessions included; touches no instrument.

    Parameters
    ----------
    folder
        Folder with ``chip.yaml``.

    Returns
    -------
    tuple
        From the oldest to the newest; files that cannot be read come first, with their problem.

    Raises
    ------
    ConfigurationError
        If ``chip.yaml`` cannot be read.
    """
    place = Path(folder).expanduser().absolute()
    in_force = read_chip_file(place).calibration
    names = {path.name for path in place.glob(RECORD_FILES)} | ({in_force} if in_force is not None else set())
    rows = [_row(place / name, name == in_force) for name in sorted(names)]
    return tuple(sorted(rows, key=lambda row: row.created_utc or _NEVER))


def _row(path: Path, in_force: bool) -> RecordRow:
    try:
        record = CalibrationRecord.load(path)
    except CalibrationError as error:
        return RecordRow(path.name, in_force, problem=str(error))
    made, quality = record.provenance, record.quality
    return RecordRow(
        path.name,
        in_force,
        record.content_hash,
        made.created_utc,
        made.kind,
        made.parent_hash,
        quality.readings,
        quality.residual_over_noise,
        quality.held_out_tvd,
    )
