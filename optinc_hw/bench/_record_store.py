"""Where the calibration record in force lives: beside chip.yaml, which points to it."""

import logging
import re
from dataclasses import dataclass
from datetime import UTC
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from optinc_hw._files import write_text
from optinc_hw.bench.chip_file import CHIP_FILE, ChipFile
from optinc_hw.errors import CalibrationError, ConfigurationError
from optinc_hw.units import dbm_to_watt, nm_to_m

if TYPE_CHECKING:
    from optinc_hw.bench.record import CalibrationRecord

_log = logging.getLogger(__name__)

_SAME_LIGHT = 1e-6
"""Relative difference of laser power or wavelength that is only rounding."""
_POINTER = re.compile(r"^(calibration[ \t]*:[^\n#]*)(#[^\n]*)?$", flags=re.MULTILINE)


@dataclass(frozen=True)
class RecordStore:
    """Loads and saves the calibration record of one bench.

    Parameters
    ----------
    folder
        Bench folder.
    chip
        Content of its chip.yaml.
    private_name
        File name for a simulated session in a user's folder.  Its record belongs to a simulated chip, so it gets a
        file of its own and chip.yaml, from which the real bench is driven, is left alone.  None for the normal rule.
    """

    folder: Path
    chip: ChipFile
    private_name: str | None = None

    def load(self) -> "CalibrationRecord | None":
        """Return the record in force, or None if there is none.

        Raises
        ------
        ConfigurationError, CalibrationError
            If the file is unreadable, or is the record of a chip with another layout.
        """
        from optinc_hw.bench.record import CalibrationRecord

        name = self.private_name or self.chip.calibration
        if name is None or (self.private_name and not (self.folder / name).is_file()):
            return None
        path = self.folder / name
        record = CalibrationRecord.load(path)
        self.check(record, f"{path}: ")
        return record

    def check(self, record: "CalibrationRecord", origin: str = "") -> None:
        """Raise CalibrationError unless ``record`` is of a chip with this layout."""
        if record.ports != self.chip.ports:
            raise CalibrationError(
                f"{origin}the calibration record is of a chip with {record.ports} ports, but chip.yaml in "
                f"{self.folder} describes {self.chip.ports} ports; calibrate this chip"
            )
        own = self.chip.chip_layout
        if (record.inputs, record.receivers) != (own.inputs, own.receivers):
            raise CalibrationError(
                f"{origin}the calibration record is of a chip with inputs: {record.inputs}, receivers: "
                f"{record.receivers}, but chip.yaml in {self.folder} describes inputs: {own.inputs}, receivers: "
                f"{own.receivers}; calibrate this chip"
            )
        if not own.admits(record.layout):
            raise CalibrationError(
                f"{origin}the calibration record is of a chip with other MZIs or other stuck phases than chip.yaml in "
                f"{self.folder} describes (layout, mesh); correct them there, or calibrate this chip"
            )

    def require(self, record: "CalibrationRecord | None") -> "CalibrationRecord":
        """Return ``record`` if this chip, lit as chip.yaml asks for, can be driven with it.

        Raises
        ------
        CalibrationError
            If there is none, or it was made with another laser power or wavelength.
        """
        if record is None:
            raise CalibrationError(
                f"the bench in {self.folder} has no calibration in force; run `optinc calibrate` or "
                f"calibration.calibrate(bench) and save its record with bench.save_record"
            )
        laser, made = self.chip.laser, record.provenance
        for quantity, wanted, found, unit in (
            ("power", dbm_to_watt(laser.power_dbm), made.laser_power_w, "W"),
            ("wavelength", nm_to_m(laser.wavelength_nm), made.laser_wavelength_m, "m"),
        ):
            if abs(found - wanted) > _SAME_LIGHT * wanted:
                raise CalibrationError(
                    f"the calibration in force in {self.folder} was made with a laser {quantity} of {found:g} {unit}, "
                    f"chip.yaml now asks for {wanted:g} {unit}; calibrate again (optinc calibrate) or undo that change"
                )
        return record

    def save(self, record: "CalibrationRecord") -> Path:
        """Write ``record`` beside chip.yaml and make it the record in force; each file changes at once or not at all.

        Former records stay: every record has a file of its own, named by its time and hash. Where the name is given
        (``private_name``), the record that had it before gets such a name.

        Raises
        ------
        CalibrationError
            If the record is of another layout.
        ConfigurationError
            If a file cannot be written.
        """
        self.check(record)
        name = self.private_name or _name_of(record)
        path = self.folder / name
        try:
            if self.private_name is not None and path.is_file():
                self._put_aside(path, record)
            record.save(path)
            if self.private_name is None:
                _point_to(self.folder / CHIP_FILE, name)
        except (OSError, CalibrationError) as error:
            raise ConfigurationError(
                f"{path}: the calibration record cannot be written ({error}); chip.yaml still names the former record; "
                f"make room or the folder writable"
            ) from error
        return path

    def _put_aside(self, path: Path, successor: "CalibrationRecord") -> None:
        """Give the record at ``path`` a name of its own; one that cannot be read is no part of the history."""
        try:
            former = type(successor).load(path)
        except CalibrationError as error:
            _log.warning("%s is replaced: %s", path, error)
            return
        if former != successor:
            path.replace(path.with_name(_name_of(former, stem=path.stem)))


def _name_of(record: "CalibrationRecord", stem: str = "calibration") -> str:
    made = record.provenance.created_utc.astimezone(UTC)
    return f"{stem}_{made:%Y%m%dT%H%M%S}_{record.content_hash[-8:]}.json"


def _point_to(chip_file: Path, name: str) -> None:
    """Set ``calibration: name`` in ``chip_file`` and keep everything else of its text, comments included."""
    text = chip_file.read_text(encoding="utf-8")
    plain = YAML(typ="safe", pure=True)
    wanted = dict(plain.load(text))
    wanted["calibration"] = name
    edited, count = _POINTER.subn(lambda found: _line(name, found[1], found[2]), text)
    if count != 1 or plain.load(edited) != wanted:
        edited = _round_trip(text, name)  # an unusual way of writing the key: let ruamel find it
    write_text(chip_file, edited)


def _line(name: str, former: str, comment: str | None) -> str:
    value = f"calibration: {name}"
    return value if comment is None else f"{value.ljust(len(former) - 1)} {comment}"


def _round_trip(text: str, name: str) -> str:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    data = yaml.load(text)
    data["calibration"] = name
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()
