"""How a chip's parameters moved from one calibration record to the next."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration._session import Array
from optinc_hw.bench import CalibrationRecord, RecordRow, record_history
from optinc_hw.errors import CalibrationError


@dataclass(frozen=True)
class ParameterHistory:
    """Parameters of one chip over its R records, oldest first, for H heaters.

    Parameters
    ----------
    records
        Age, kind, quality and readings of each record.
    heaters
        Names of the heaters.
    created_s
        When each record was made (R,), in s since 1970-01-01 UTC.
    phase_rad
        Phase of each heater (R, H) with every heater at half a period of the oldest record, in rad; followed from
        record to record, so that no step is larger than pi.  Offsets at zero power would be extrapolations.  Records
        made from powers alone leave combinations of phases open: judge those by what twins predict.
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
        """Phase of one heater relative to the oldest record (R,), rad.

        Raises
        ------
        CalibrationError
            If there is no such heater.
        """
        if heater not in self.heaters:
            raise CalibrationError(f"the chip has no heater {heater!r}; it has {', '.join(self.heaters)}")
        phase = self.phase_rad[:, self.heaters.index(heater)]
        return np.asarray(phase - phase[0])


def parameter_history(folder: str | Path, *, simulated: bool = False) -> ParameterHistory:
    """Collect the parameters of all records in a bench folder that are of the chip of the newest one.

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
        If there is no record that can be read.
    """
    place = Path(folder).expanduser().absolute()
    rows = [
        row
        for row in record_history(place)
        if row.problem is None and row.file.startswith("calibration_simulated_") == simulated
    ]
    if not rows:
        raise CalibrationError(f"{place} holds no readable calibration record; run optinc calibrate")
    found = [(row, CalibrationRecord.load(place / row.file)) for row in rows]
    newest = found[-1][1]
    alike = [
        (row, record)
        for row, record in found
        if (record.provenance.chip, record.layout) == (newest.provenance.chip, newest.layout)
    ]
    twins = [record.twin() for _, record in alike]
    half_period = np.pi / twins[0].efficiency
    return ParameterHistory(
        records=tuple(row for row, _ in alike),
        heaters=newest.layout.heaters,
        created_s=np.array([record.provenance.created_utc.timestamp() for _, record in alike]),
        phase_rad=np.unwrap(np.stack([twin.phases(half_period) for twin in twins]), axis=0),
        efficiency=np.stack([twin.efficiency for twin in twins]),
        resistance_ohm=np.stack([record.resistance_ohm for _, record in alike]),
        gain=np.stack([twin.gain for twin in twins]),
    )
