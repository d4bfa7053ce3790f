"""What happened to the heaters of a hidden chip, for everybody who must prove that nothing jumped."""

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

from simulated_instruments.hidden_chip import HiddenChip

_COLUMNS = ("time_s", "heater", "voltage_v")


@dataclass(frozen=True)
class HeaterEvent:
    """One voltage set on one heater: time in s on the bench's clock, name of the heater, voltage in V."""

    time_s: float
    heater: str
    voltage_v: float


class HeaterTrace:
    """A CSV file with every voltage that is set on a chip's heaters, written through at once.

    Parameters
    ----------
    chip
        The chip to watch.
    path
        File to write; an old one is replaced.

    Raises
    ------
    OSError
        If the file cannot be written.
    """

    def __init__(self, chip: HiddenChip, path: str | os.PathLike[str]) -> None:
        self._names = chip.layout.heaters
        self._file: TextIO = Path(path).open("w", encoding="utf-8", newline="", buffering=1)  # noqa: SIM115 - kept open
        self._writer = csv.writer(self._file)
        self._writer.writerow(_COLUMNS)
        chip.watch_heaters(self._note)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; later changes are not noted."""
        self._file.close()

    def _note(self, time_s: float, values: Mapping[int, float]) -> None:
        if not self._file.closed:
            rows = [(f"{time_s:.6f}", self._names[heater], f"{voltage:.6f}") for heater, voltage in values.items()]
            self._writer.writerows(rows)


def read_heater_trace(path: str | os.PathLike[str]) -> list[HeaterEvent]:
    """Read the events of a trace file, in the order in which they happened.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read or is no trace.
    """
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        if tuple(next(rows, ())) != _COLUMNS:
            raise ValueError(f"{path} is no heater trace: its first line must be {','.join(_COLUMNS)}")
        return [HeaterEvent(float(time), heater, float(voltage)) for time, heater, voltage in rows]
