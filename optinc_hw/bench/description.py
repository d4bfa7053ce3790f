"""Both files of a bench folder together: consistent, complete, and as arrays in the layout's order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optinc_hw.bench._inputs_section import SwitchEntry, check_inputs
from optinc_hw.bench._problems import Problems, suggest
from optinc_hw.bench._switching import ReadingPass, plan_passes
from optinc_hw.bench.chip_file import CHIP_FILE, ChipFile, DetectorEntry, HeaterEntry, read_chip_file
from optinc_hw.bench.interlock import Interlock
from optinc_hw.bench.station_file import (
    STATION_FILE,
    InstrumentEntry,
    Need,
    Role,
    StationFile,
    check_addresses,
    driver_size,
    is_qcodes_instrument,
    missing_methods,
    read_station_file,
    resolve_driver,
    simulated_as,
)
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout

LIMIT_KEYS = ("max_voltage_v", "max_current_a", "max_power_w")


@dataclass(frozen=True)
class Attachment:
    """Channels of one instrument and the chip's elements on them.

    Parameters
    ----------
    channels
        Channels (or ports) of the instrument, intp (k,).
    elements
        Positions of the heaters (or detectors) in the layout's order, intp (k,).
    """

    channels: NDArray[np.intp]
    elements: NDArray[np.intp]


@dataclass(frozen=True)
class BenchDescription:
    """A checked bench folder.

    Parameters
    ----------
    folder
        Where the files are.
    chip, station
        Their content.
    sizes
        Channels or ports of each instrument in use, where the station file tells.
    """

    folder: Path
    chip: ChipFile
    station: StationFile
    sizes: Mapping[str, int]

    @cached_property
    def layout(self) -> ChipLayout:
        """Names and order of heaters and detectors."""
        return self.chip.chip_layout

    @cached_property
    def roles(self) -> dict[str, Role]:
        """Role of each instrument in use, in the order of connecting: meters, switches, laser, heater drivers."""
        return roles(self.chip)

    @cached_property
    def heater_attachments(self) -> dict[str, Attachment]:
        """Heaters of each heater driver; heaters of stuck phases may hang on none."""
        entries = self.chip.heaters.entries
        places = {k: entries[name] for k, name in enumerate(self.layout.heaters) if name in entries}
        return _attachments({k: (entry.instrument, entry.channel) for k, entry in places.items()})

    @cached_property
    def detector_attachments(self) -> dict[str, Attachment]:
        """Detectors of each power meter."""
        entries = [self.chip.detectors[name] for name in self.layout.detectors]
        return _attachments({k: (entry.instrument, entry.port) for k, entry in enumerate(entries)})

    @cached_property
    def reading_passes(self) -> tuple[ReadingPass, ...]:
        """Readings that see every detector once; one unless there are optical switches."""
        return plan_passes([self.chip.detectors[name] for name in self.layout.detectors])

    @cached_property
    def input_ways(self) -> dict[int, SwitchEntry | None]:
        """Way to each input port that can be lit, None for a port that the laser is fixed to; empty with modulators."""
        return {port: entry.switch for port, entry in (self.chip.inputs or {}).items()}

    @cached_property
    def interlock(self) -> Interlock:
        """Interlock with the limits of the file and the nominal resistance; 0 for heaters of stuck phases."""
        names, stuck = self.layout.heaters, self.layout.stuck
        voltage, current, power = (
            np.array([0.0 if name in stuck else self.chip.heaters.limit(name, key) for name in names], dtype=np.float64)
            for key in LIMIT_KEYS
        )
        return Interlock(
            names=names,
            max_voltage=voltage,
            max_current=current,
            max_power=power,
            max_total_power=self.chip.limits.total_power_w,
            resistance_ohm=np.full(len(names), self.chip.nominal.resistance_ohm),
            resistance_beta_per_w=np.zeros(len(names)),
        )


def roles(chip: ChipFile) -> dict[str, Role]:
    """Return the role of each instrument that ``chip`` names, in the order of connecting: as `Role` lists them."""
    found: dict[str, Role] = {entry.instrument: "meter" for entry in chip.detectors.values()}
    ways = [entry.switch for entry in chip.detectors.values()]
    ways += [entry.switch for entry in (chip.inputs or {}).values()]
    found.update({way.instrument: "switch" for way in ways if way is not None})
    found[chip.laser.instrument] = "laser"
    found.update({entry.instrument: "heaters" for entry in chip.heaters.entries.values()})
    return found


def _attachments(places: Mapping[int, tuple[str, int]]) -> dict[str, Attachment]:
    found: dict[str, list[tuple[int, int]]] = {}
    for element, (instrument, channel) in places.items():
        found.setdefault(instrument, []).append((channel, element))
    return {
        name: Attachment(np.array([c for c, _ in pairs], dtype=np.intp), np.array([e for _, e in pairs], dtype=np.intp))
        for name, pairs in found.items()
    }


def read_description(folder: str | Path) -> BenchDescription:
    """Read and check both files of a bench folder; touches no instrument and changes nothing.

    Parameters
    ----------
    folder
        Folder with ``station.yaml`` and ``chip.yaml``.

    Raises
    ------
    ConfigurationError
        If anything is missing, malformed or inconsistent: unknown keys, drivers that do not resolve, addresses
        or channels used twice, heaters or detectors without a place or without limits.  The message lists all
        faults, each with file, key path, value and remedy.
    """
    place = Path(folder).expanduser().absolute()
    if not place.is_dir():
        raise ConfigurationError(f"{place}: no such folder; give the folder that holds station.yaml and chip.yaml")
    station, chip = read_station_file(place), read_chip_file(place)
    problems = Problems()
    check_addresses(station, place / STATION_FILE, problems)
    _check_names(chip, place / CHIP_FILE, problems)
    _check_limits(chip, place / CHIP_FILE, problems)
    if chip.inputs is not None:
        behind = {name: entry.switch for name, entry in chip.detectors.items() if entry.switch is not None}
        check_inputs(chip.inputs, behind, chip.ports, place / CHIP_FILE, problems)
    sizes = _check_instruments(chip, station, place, problems)
    _check_channels(chip, sizes, place / CHIP_FILE, problems)
    if chip.calibration is not None and not (place / chip.calibration).is_file():
        problems.add(
            place / CHIP_FILE,
            "calibration",
            f"the record {chip.calibration!r} does not exist in {place}",
            "put the file back, or write `calibration: null` and calibrate",
        )
    problems.raise_if_any()
    return BenchDescription(place, chip, station, sizes)


def _check_names(chip: ChipFile, path: Path, problems: Problems) -> None:
    layout = chip.chip_layout
    for section, wired, expected in (
        ("heaters", chip.heaters.entries, layout.heaters),
        ("detectors", chip.detectors, layout.detectors),
    ):
        for name in wired:
            if name not in expected:
                what, remedy = _unknown_name(chip, section.removesuffix("s"), name, expected)
                problems.add(path, f"{section}.{name}", what, remedy)
        absent = [name for name in expected if name not in wired and name not in layout.stuck]
        if absent:
            shown = ", ".join(absent[:6]) + (f" and {len(absent) - 6} more" if len(absent) > 6 else "")
            problems.add(path, section, f"not wired: {shown}", "add an entry for each of them")


def _unknown_name(chip: ChipFile, element: str, name: str, expected: Sequence[str]) -> tuple[str, str]:
    """Say what is wrong with a name that the layout does not have, and the remedy."""
    missing = chip.mesh.of_missing_mzi(name) if element == "heater" else None
    if missing is not None:
        return f"{missing} is missing (mesh.missing), so it has no heaters", "remove one of the two entries"
    kinds = {"layout": chip.layout, "inputs": chip.chip_layout.inputs, "receivers": chip.receivers}
    usual = {"layout": "rectangular", "inputs": "modulators", "receivers": "homodyne"}
    other = ", ".join(f"{key}: {value}" for key, value in kinds.items() if value != usual[key])
    return f"a chip of {chip.ports} ports{' with ' if other else ''}{other} has no {element} of this name", suggest(
        name, expected
    )


def _check_limits(chip: ChipFile, path: Path, problems: Problems) -> None:
    for key in LIMIT_KEYS:
        lacking = [name for name in chip.heaters.entries if chip.heaters.limit(name, key) is None]
        if lacking:
            shown = lacking[0] if len(lacking) == 1 else f"{lacking[0]} and {len(lacking) - 1} more"
            problems.add(
                path,
                f"heaters.{lacking[0]}.{key}",
                f"no limit for {shown}",
                f"add it there or in heaters.defaults.{key}",
            )


def _check_instruments(chip: ChipFile, station: StationFile, folder: Path, problems: Problems) -> dict[str, int]:
    """Check that each instrument in use exists and can play its role; return the sizes that the file tells."""
    users: dict[tuple[str, Need], str] = {(chip.laser.instrument, "laser"): "laser.instrument"}
    for name, heater in chip.heaters.entries.items():
        users.setdefault((heater.instrument, "heaters"), f"heaters.{name}.instrument")
    for name, detector in chip.detectors.items():
        users.setdefault((detector.instrument, "meter"), f"detectors.{name}.instrument")
        if detector.switch is not None:
            users.setdefault((detector.switch.instrument, "switch"), f"detectors.{name}.switch.instrument")
    for port, entry in (chip.inputs or {}).items():
        if entry.switch is not None:
            users.setdefault((entry.switch.instrument, "input switch"), f"inputs.{port}.switch.instrument")
    sizes: dict[str, int] = {}
    for (instrument, need), key in users.items():
        found = station.instruments.get(instrument)
        if found is None:
            problems.add(
                folder / CHIP_FILE,
                key,
                f"{STATION_FILE} has no instrument {instrument!r}",
                suggest(instrument, station.instruments),
            )
            continue
        size = _check_driver(instrument, found, need, folder / STATION_FILE, problems)
        if size is not None:
            sizes[instrument] = size
    for name in chip.serial_numbers:
        if name not in station.instruments:
            problems.add(
                folder / CHIP_FILE,
                f"serial_numbers.{name}",
                f"{STATION_FILE} has no instrument {name!r}",
                suggest(name, station.instruments),
            )
    return sizes


def _check_driver(name: str, entry: InstrumentEntry, need: Need, path: Path, problems: Problems) -> int | None:
    key = f"instruments.{name}"
    if not (entry.where or "").strip():
        problems.add(path, f"{key}.address", "this key is missing or empty", "add the instrument's address, as text")
    try:
        driver = resolve_driver(entry.type)
    except ConfigurationError as error:
        problems.add(
            path, f"{key}.type", str(error), "give the dotted path of a driver class, e.g. drivers.QontrolQ8iv"
        )
        return None
    if not is_qcodes_instrument(driver):
        problems.add(
            path,
            f"{key}.type",
            f"{entry.type!r} is no QCoDeS instrument, so that a session could not be sure to leave it safe",
            "derive the driver from qcodes.instrument.Instrument",
        )
        return None
    lacking = missing_methods(driver, need)
    if lacking:
        problems.add(
            path,
            f"{key}.type",
            f"{entry.type!r} cannot serve as {need}: it has no {', '.join(lacking)}",
            "name a driver of that kind, or wire chip.yaml to another instrument",
        )
        return None
    known = simulated_as(driver)
    if known is None:
        return None
    size = driver_size(entry, known)
    if size is None:
        problems.add(
            path,
            f"{key}.init.{known.size_key}",
            f"{(entry.init or {}).get(known.size_key or '')!r} is not a number of {known.size_key}",
            "give a positive integer",
        )
        return None
    return size * known.channels_per_unit


def _check_channels(chip: ChipFile, sizes: Mapping[str, int], path: Path, problems: Problems) -> None:
    taken: dict[tuple[str, int], list[tuple[str, HeaterEntry | DetectorEntry]]] = {}
    entries: list[tuple[str, HeaterEntry | DetectorEntry]] = [
        *((f"heaters.{name}", heater) for name, heater in chip.heaters.entries.items()),
        *((f"detectors.{name}", detector) for name, detector in chip.detectors.items()),
    ]
    for key, entry in entries:
        label, channel = ("channel", entry.channel) if isinstance(entry, HeaterEntry) else ("port", entry.port)
        size = sizes.get(entry.instrument)
        if size is not None and channel >= size:
            problems.add(
                path,
                f"{key}.{label}",
                f"{entry.instrument!r} has no {label} {channel}; it has {size}, counted from 0",
                f"give a {label} from 0 to {size - 1}",
            )
        sharing = taken.setdefault((entry.instrument, channel), [])
        for other_key, other in sharing:
            if not _take_turns(entry, other):
                problems.add(
                    path,
                    f"{key}.{label}",
                    f"{label} {channel} of {entry.instrument!r} is already used by {other_key}",
                    f"give each its own {label}",
                )
                break
        sharing.append((key, entry))


def _take_turns(one: HeaterEntry | DetectorEntry, other: HeaterEntry | DetectorEntry) -> bool:
    """Tell whether two detectors reach one port by different ways through one switch."""
    if isinstance(one, HeaterEntry) or isinstance(other, HeaterEntry) or one.switch is None or other.switch is None:
        return False
    return one.switch.output == other.switch.output and one.switch.collides(other.switch) and one.switch != other.switch
