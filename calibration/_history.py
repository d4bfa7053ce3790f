"""How a chip's parameters moved from one calibration record to the next."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration._checks import expanded
from calibration._session import Array
from optinc_hw.bench import CalibrationRecord, RecordRow, record_history
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, TwinParameters


@dataclass(frozen=True)
class ParameterHistory:
    """Parameters of one chip over its R records, oldest first, for H heaters.

    What belongs to a heater is NaN in records that hold it for stuck: they say nothing about it.

    Parameters
    ----------
    records
        Age, kind, quality and readings of each record.
    heaters
        Names of the heaters.
    created_s
        When each record was made (R,), in s since 1970-01-01 UTC.
    phase_rad
        Phase of each heater (R, H) in rad with itself and every heater that no record holds for stuck at half a period
        of the oldest record that knows it; followed from record to record, so that no step is larger than pi.  Offsets
        at zero power would be extrapolations.  Records made from powers alone leave combinations of phases open: judge
        those by what twins predict.
    efficiency
        (R, H), rad/W.
    resistance_ohm
        At zero power (R, H), ohm.
    gain
        Of each detector (R, D).
    """

    records: tuple[RecordRow, ...]
    heaters: tuple[str, ...]
    created_s: Array
    phase_rad: Array
    efficiency: Array
    resistance_ohm: Array
    gain: Array

    def moved(self, heater: str) -> Array:
        """Phase of one heater relative to the oldest record that does not hold it for stuck (R,), rad.

        Raises
        ------
        CalibrationError
            If there is no such heater.
        """
        if heater not in self.heaters:
            raise CalibrationError(f"the chip has no heater {heater!r}; it has {', '.join(self.heaters)}")
        phase = self.phase_rad[:, self.heaters.index(heater)]
        known = phase[np.isfinite(phase)]
        return np.asarray(phase - known[0]) if len(known) else phase.copy()


def parameter_history(folder: str | Path, *, simulated: bool = False) -> ParameterHistory:
    """Collect the parameters of all records in a bench folder that are of the chip of the newest one.

    A chip stays the same one when heaters of it die, or come back.

    Parameters
    ----------
    folder
        Folder with ``chip.yaml`` and the records.
    simulated
        Take the records of simulated sessions, which are left out otherwise.

    Raises
    ------
    ConfigurationError
        If ``chip.yaml`` cannot be read.
    CalibrationError
        If there is no record that can be read, or ``folder`` is no path.
    """
    place = expanded("folder", folder, "give the folder of chip.yaml")
    rows = [
        row
        for row in record_history(place)
        if row.problem is None and row.file.startswith("calibration_simulated_") == simulated
    ]
    if not rows:
        raise CalibrationError(f"{place} holds no readable calibration record; run optinc calibrate")
    found = [(row, CalibrationRecord.load(place / row.file)) for row in rows]
    newest = found[-1][1]
    alike = [(row, record) for row, record in found if _chip(record) == _chip(newest)]
    twins = [record.twin() for _, record in alike]
    moves = np.stack([twin.layout.movable for twin in twins])
    efficiency = np.where(moves, np.stack([twin.efficiency for twin in twins]), np.nan)
    return ParameterHistory(
        records=tuple(row for row, _ in alike),
        heaters=newest.layout.heaters,
        created_s=np.array([record.provenance.created_utc.timestamp() for _, record in alike]),
        phase_rad=_followed(_phases(twins, moves, efficiency)),
        efficiency=efficiency,
        resistance_ohm=np.where(moves, np.stack([record.resistance_ohm for _, record in alike]), np.nan),
        gain=np.stack([twin.gain for twin in twins]),
    )


def _chip(record: CalibrationRecord) -> tuple[str, ChipLayout]:
    return record.provenance.chip, replace(record.layout, stuck=())


def _phases(twins: list[TwinParameters], moves: NDArray[np.bool_], efficiency: Array) -> Array:
    """Return phases (R, H) of heaters that move; their heat on each other is that of heaters that always do."""
    first = np.argmax(moves, axis=0)
    half_period = np.where(moves.any(axis=0), np.pi / efficiency[first, np.arange(len(first))], 0.0)
    always = np.asarray(moves.all(axis=0), dtype=np.bool_)
    phase = np.full(moves.shape, np.nan)
    for twin, moving, row in zip(twins, moves, phase, strict=True):
        row[always] = twin.phases(np.where(always, half_period, 0.0))[always]
        for heater in np.flatnonzero(moving & ~always).tolist():
            own = np.where(always | (np.arange(len(always)) == heater), half_period, 0.0)
            row[heater] = twin.phases(own)[heater]
    return phase


def _followed(phase: Array) -> Array:
    """Take turns out of the steps from one known phase of a heater to the next."""
    followed = phase.copy()
    for column in followed.T:
        known = np.isfinite(column)
        column[known] = np.unwrap(column[known])
    return followed
