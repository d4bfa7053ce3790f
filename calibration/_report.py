"""What a run found besides its record: kept in the run's file, printed by the command line."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from calibration._abilities import abilities
from calibration._effects import Effect, effects_found
from calibration._identifiability import identifiability
from calibration._journal_run import READINGS, Step
from calibration._mesh_calibrate import MeshCalibration
from calibration._posterior import HeldOut
from calibration._record_change import compare_twins
from calibration._session import Array
from optinc_hw.bench import CalibrationRecord
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

ATTRIBUTE = "report"
"""Attribute of a run's netCDF file that holds its report as JSON."""
MOST_PORTS_NAMED = 32
"""Parameters of larger meshes are too many for the dense matrices of the identifiability report."""
_MOST_MOVED = 5


@dataclass(frozen=True)
class Correction:
    """How a record was corrected for drift.

    Parameters
    ----------
    resistance, efficiency
        Median relative change of the heaters.
    phase_rms_rad
        Rms change of phases at half a period, in rad.
    most_rad
        The largest of them by heater.
    residual_before, tvd_before, residual_after, tvd_after
        Residual over noise and total variation distance of the readings kept out of the fit, of the old record and of
        the new one.
    """

    resistance: float
    efficiency: float
    phase_rms_rad: float
    most_rad: dict[str, float]
    residual_before: float
    tvd_before: float
    residual_after: float
    tvd_after: float


@dataclass(frozen=True)
class RunReport:
    """What a run found besides its record.

    Parameters
    ----------
    readings
        Readings of all detectors by stage, in the order of the stages.
    effects
        What the fit of a bare mesh learned without being told.
    unseen
        What the data cannot tell and priors hold, in words, a line each.
    heaters
        Heaters whose phases the start did not know, with the reason.
    dark_detectors
        Detectors that showed no light.
    doubt
        What the start could not explain; empty if nothing.
    correction
        What moved since the record that this run corrects; None for a calibration from scratch.
    abilities
        What the chip can still do, in words, a line each; empty if every heater moves its phase and every detector
        sees light.
    """

    readings: dict[str, int]
    effects: tuple[Effect, ...] = ()
    unseen: tuple[str, ...] = ()
    heaters: dict[str, str] = field(default_factory=dict)
    dark_detectors: tuple[str, ...] = ()
    doubt: str = ""
    correction: Correction | None = None
    abilities: tuple[str, ...] = ()

    def to_json_dict(self) -> dict[str, Any]:  # Any: JSON content
        """Return it as JSON content."""
        return asdict(self)

    @classmethod
    def from_json_dict(cls, content: dict[str, Any]) -> "RunReport":  # Any: JSON content
        """Read what `to_json_dict` made."""
        plain = dict(content)
        correction = plain.pop("correction")
        return cls(
            effects=tuple(Effect(**effect) for effect in plain.pop("effects")),
            unseen=tuple(plain.pop("unseen")), dark_detectors=tuple(plain.pop("dark_detectors")),
            abilities=tuple(plain.pop("abilities", ())),
            correction=None if correction is None else Correction(**correction), **plain,
        )  # fmt: skip


def read_report(path: str | Path) -> RunReport:
    """Read what a finished run found besides its record.

    Parameters
    ----------
    path
        netCDF file of the run.

    Raises
    ------
    CalibrationError
        If the file cannot be read, or holds no report: the run did not come to its end, or an earlier version made it.
    """
    try:
        with xr.open_dataset(path, engine="h5netcdf") as dataset:
            text = dataset.attrs.get(ATTRIBUTE)
        if text is not None:
            return RunReport.from_json_dict(json.loads(text))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CalibrationError(f"cannot read the report of the run {path}: {error}") from error
    raise CalibrationError(
        f"{path} holds no report: the run did not come to its end, or an earlier version made it; its data can be read "
        "with read_run"
    )


def readings_by_stage(steps: Iterable[Step]) -> dict[str, int]:
    """Count readings of the detectors by stage."""
    counts: dict[str, int] = {}
    for step in steps:
        if READINGS in step.answered:
            counts[step.stage] = counts.get(step.stage, 0) + step.rows
    return counts


def mesh_report(steps: Iterable[Step], found: MeshCalibration) -> RunReport:
    """Report on the calibration of a bare mesh.

    Parameters
    ----------
    steps
        Sweeps of the run.
    found
        What it found.
    """
    start, fit = found.start, found.fit
    layout = fit.parameters.layout
    if fit.parameters.ports <= MOST_PORTS_NAMED:
        unseen = str(identifiability(fit, found.data, found.noise)).splitlines()
    else:
        unseen = ["output phases and phases of all inputs against one of them are not seen in powers"]
    return RunReport(
        readings=readings_by_stage(steps),
        effects=effects_found(fit, found.data, found.noise),
        unseen=tuple(unseen),
        heaters={verdict.heater: verdict.reason for verdict in start.verdicts if not verdict.good},
        dark_detectors=start.dead_detectors,
        doubt=start.doubt,
        abilities=abilities(layout, ~layout.movable, start.dead_detectors)
        if layout.stuck or start.dead_detectors
        else (),
    )


def drift_report(
    steps: Iterable[Step], old: CalibrationRecord, twin: TwinParameters, resistance_ohm: Array, before: HeldOut,
    after: tuple[float, float],
) -> RunReport:  # fmt: skip
    """Report on a correction of drift.

    Parameters
    ----------
    steps
        Sweeps of the run.
    old
        The record that is corrected.
    twin, resistance_ohm
        What was found.
    before
        How well the old record predicts the readings kept out of the fit.
    after
        Residual over noise and total variation distance with which a twin from the others predicted them.
    """
    change = compare_twins(old.twin(), twin, resistance_ohm / old.resistance_ohm)
    return RunReport(
        readings_by_stage(steps),
        correction=Correction(
            change.resistance, change.efficiency, change.phase_rms_rad, change.largest(_MOST_MOVED),
            before.chi, before.tvd, *after,
        ),
    )  # fmt: skip
