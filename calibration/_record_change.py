"""How a chip moved between two of its records."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from calibration._checks import require_record
from calibration._session import Array
from optinc_hw.bench import CalibrationRecord
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters


@dataclass(frozen=True)
class RecordChange:
    """What is different in a later record of a chip.

    Parameters
    ----------
    heaters
        Names of the heaters that move phases in both.
    resistance
        Median relative change of their resistances.
    efficiency
        Median relative change of their efficiencies.
    phase_rad
        Changes of their phases at half a period of the older record, less what the median change of efficiency does;
        turned to within pi.
    """

    heaters: tuple[str, ...]
    resistance: float
    efficiency: float
    phase_rad: Array

    @property
    def phase_rms_rad(self) -> float:
        """Rms change of phases in rad."""
        return float(np.sqrt(np.mean(self.phase_rad**2)))

    def largest(self, count: int) -> dict[str, float]:
        """Return the largest changes of phases in rad by heater, the largest first."""
        order = np.argsort(-np.abs(self.phase_rad), kind="stable")[:count]
        return {self.heaters[k]: float(self.phase_rad[k]) for k in order.tolist()}

    def __str__(self) -> str:
        """Summarise for people."""
        most = ", ".join(f"{name} {rad:+.2f}" for name, rad in self.largest(3).items())
        return (
            f"resistances {self.resistance:+.2%}, efficiencies {self.efficiency:+.2%}, phases {self.phase_rms_rad:.2f} "
            f"rad rms, most: {most}"
        )


def compare_records(old: CalibrationRecord, new: CalibrationRecord) -> RecordChange:
    """Compare a record with a later one of the same chip, heater by heater.

    Records made from powers alone leave combinations of phases open, so what is different is not always what moved:
    judge records by what their twins predict.

    Parameters
    ----------
    old, new
        The records.

    Raises
    ------
    CalibrationError
        If one is no record, they are of chips with different MZIs, inputs or receivers, or no heater moves its phase in
        both.
    """
    require_record("old", old)
    require_record("new", new)
    if replace(old.layout, stuck=()) != replace(new.layout, stuck=()):
        raise CalibrationError("the records are of chips with different layouts; compare records of one chip")
    return compare_twins(old.twin(), new.twin(), new.resistance_ohm / old.resistance_ohm)


def compare_twins(old: TwinParameters, new: TwinParameters, resistance_ratio: ArrayLike) -> RecordChange:
    """As `compare_records`, of two twins; resistances (H,) as the ratio of new to old."""
    moved = old.layout.movable & new.layout.movable
    if not moved.any():
        raise CalibrationError("no heater moves its phase in both records, so nothing of them can be compared")
    growth = float(np.median((new.efficiency / old.efficiency)[moved]))
    half_period = np.where(moved, np.pi / old.efficiency, 0.0)
    change = new.phases(half_period) - old.phases(half_period * growth)
    turned = np.mod(change + np.pi, 2.0 * np.pi) - np.pi
    ratio = np.broadcast_to(np.asarray(resistance_ratio, float), moved.shape)
    names = tuple(name for name, is_moved in zip(old.layout.heaters, moved.tolist(), strict=True) if is_moved)
    return RecordChange(names, float(np.median(ratio[moved])) - 1.0, growth - 1.0, np.asarray(turned[moved]))
