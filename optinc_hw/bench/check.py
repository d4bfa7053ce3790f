"""What ``optinc check`` shows: a bench folder validated, its wiring as rows."""

from dataclasses import dataclass
from pathlib import Path

from optinc_hw.bench.chip_file import DetectorEntry
from optinc_hw.bench.description import BenchDescription, read_description
from optinc_hw.bench.station_file import Role
from optinc_hw.photonics.layout import Receivers


@dataclass(frozen=True)
class InstrumentRow:
    """One instrument of the station."""

    name: str
    role: Role | None
    """None: in station.yaml, but not used by chip.yaml."""
    driver: str
    address: str | None
    size: int | None
    """Channels or ports, where the station file tells."""
    used: int
    """Channels or ports that chip.yaml uses."""


@dataclass(frozen=True)
class WiringRow:
    """One element of the chip and its place; limits only for heaters."""

    element: str
    instrument: str
    channel: int
    max_voltage_v: float | None = None
    max_current_a: float | None = None
    max_power_w: float | None = None
    switch: str | None = None
    """Way of a detector through a switch, such as ``switch[3 -> 0]``."""


@dataclass(frozen=True)
class MeshRow:
    """The mesh of the chip."""

    layout: str
    mzis: int
    columns: int
    missing: tuple[str, ...]
    """Names of the MZIs that the chip lacks."""
    stuck_rad: dict[str, float]
    """Phase of each heater that does not move its phase, by the heater's name."""


@dataclass(frozen=True)
class InputRow:
    """One input port that can be lit."""

    port: int
    switch: str | None
    """Way of the laser's light through a switch, such as ``switch[3 -> 0]``; None if the laser is fixed to the port."""


@dataclass(frozen=True)
class BenchReport:
    """A valid bench folder, as tables."""

    folder: Path
    chip_name: str
    ports: int
    mesh: MeshRow
    receivers: Receivers
    max_total_power_w: float
    calibration: str | None
    instruments: tuple[InstrumentRow, ...]
    heaters: tuple[WiringRow, ...]
    detectors: tuple[WiringRow, ...]
    inputs: tuple[InputRow, ...]
    """Ports that can be lit one at a time; empty for a chip with input modulators."""


def check_bench(folder: str | Path) -> BenchReport:
    """Validate ``station.yaml`` and ``chip.yaml`` in ``folder`` without touching any instrument.

    Returns
    -------
    BenchReport
        Instruments and wiring as rows, in the order of station file and chip layout. Heaters that are not wired,
        because their phases are stuck, have no row.

    Raises
    ------
    ConfigurationError
        As `read_description`.
    """
    description = read_description(folder)
    heaters, detectors = description.chip.heaters, description.chip.detectors
    return BenchReport(
        folder=description.folder,
        chip_name=description.chip.name,
        ports=description.chip.ports,
        mesh=_mesh_row(description),
        receivers=description.layout.receivers,
        max_total_power_w=description.chip.limits.total_power_w,
        calibration=description.chip.calibration,
        instruments=tuple(_instrument_row(description, name) for name in description.station.instruments),
        heaters=tuple(
            WiringRow(
                name,
                heaters.entries[name].instrument,
                heaters.entries[name].channel,
                heaters.limit(name, "max_voltage_v"),
                heaters.limit(name, "max_current_a"),
                heaters.limit(name, "max_power_w"),
            )
            for name in description.layout.heaters
            if name in heaters.entries
        ),
        detectors=tuple(
            WiringRow(name, detectors[name].instrument, detectors[name].port, switch=_way(detectors[name]))
            for name in description.layout.detectors
        ),
        inputs=tuple(InputRow(port, None if way is None else str(way)) for port, way in description.input_ways.items()),
    )


def _way(entry: DetectorEntry) -> str | None:
    return None if entry.switch is None else str(entry.switch)


def _mesh_row(description: BenchDescription) -> MeshRow:
    chip, mesh = description.chip, description.layout.mesh
    return MeshRow(chip.layout, len(mesh.mzis), mesh.depth, chip.mesh.missing_mzis, chip.mesh.stuck_rad)


def _instrument_row(description: BenchDescription, name: str) -> InstrumentRow:
    entry = description.station.instruments[name]
    role = description.roles.get(name)
    attachment = description.heater_attachments.get(name) or description.detector_attachments.get(name)
    ways = {entry.switch for entry in description.chip.detectors.values()} | set(description.input_ways.values())
    own = [way for way in ways if way is not None and way.instrument == name]
    switched = max(len({way.input for way in own}), len({way.output for way in own}))
    used = len(set(attachment.channels.tolist())) if attachment is not None else switched or int(role == "laser")
    return InstrumentRow(name, role, entry.type, entry.where, description.sizes.get(name), used)
