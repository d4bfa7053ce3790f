"""Simulated instruments for a bench folder: the same two files, only the addresses differ."""

from collections.abc import Mapping
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from optinc_hw._files import write_text
from optinc_hw.bench._problems import read_yaml_list
from optinc_hw.bench.chip_file import CHIP_FILE
from optinc_hw.bench.description import BenchDescription
from optinc_hw.bench.station_file import STATION_FILE, driver_options, driver_size, resolve_driver, simulated_as
from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout

if TYPE_CHECKING:
    from simulated_instruments import HiddenChip, SimulatedBench

HIDDEN_CHIP_FILE = "hidden_chip.yaml"
"""Beside chip.yaml: what the chip of a simulated session is like; real sessions ignore it."""


def start_simulation(
    description: BenchDescription,
    seed: int,
    stack: ExitStack,
    clock: Clock,
    trace: Path | None = None,
    faults: Path | None = None,
    *,
    in_process: bool = False,
) -> "SimulatedBench":
    """Start simulated instruments around one hidden chip; ``stack`` stops them.

    Who drives the bench gets nothing of the result but addresses: it learns about the chip only by measuring.

    Parameters
    ----------
    description
        Checked bench folder; instruments and wiring are taken from it.
    seed
        Seed of the hidden chip, unless ``hidden_chip.yaml`` in the folder states one.
    stack
        Gets the callback that stops the servers.
    clock
        Clock on which the instruments' time passes.
    trace
        CSV file to which every voltage of a heater is written.
    faults
        YAML file with a script of faults that is played from the start.
    in_process
        Whether instruments with serial ports are reached without sockets, for this process only.

    Raises
    ------
    ConfigurationError
        If a driver has no simulated counterpart, the seed is negative, the trace cannot be written, or the script of
        faults is not possible.
    """
    if seed < 0:
        raise ConfigurationError(f"seed = {seed}: seeds of simulated chips are integers of at least 0")
    counterparts = _counterparts(description)
    from simulated_instruments import (
        BenchWiring,
        HeaterTrace,
        InstrumentSpec,
        SimulatedBench,
        SwitchPath,
    )

    specs = [InstrumentSpec(name, kind, size, options) for name, (kind, size, options) in counterparts.items()]
    chip = description.chip
    wiring = BenchWiring(
        heaters={name: (entry.instrument, entry.channel) for name, entry in chip.heaters.entries.items()},
        detectors={name: (entry.instrument, entry.port) for name, entry in chip.detectors.items()},
        laser=chip.laser.instrument,
        switched={
            name: SwitchPath(way.instrument, way.input, way.output)
            for name, entry in chip.detectors.items()
            if (way := entry.switch) is not None
        },
        inputs={
            port: None if way is None else SwitchPath(way.instrument, way.input, way.output)
            for port, way in description.input_ways.items()
        },
    )
    hidden = _hidden_chip(description, seed, clock)
    if trace is not None:
        try:
            stack.enter_context(HeaterTrace(hidden, trace))
        except OSError as error:
            raise ConfigurationError(f"{trace}: the heater trace cannot be written ({error})") from error
    bench = stack.enter_context(SimulatedBench(hidden, specs, wiring, clock, in_process=in_process))
    if faults is not None:
        _play(bench, faults)
    return bench


def _play(bench: "SimulatedBench", path: Path) -> None:
    from simulated_instruments.faults import FaultScript

    try:
        bench.faults.play(FaultScript.from_dicts(read_yaml_list(path)))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _counterparts(description: BenchDescription) -> dict[str, tuple[str, int, dict[str, str]]]:
    """Return kind, size and options of the simulated counterpart of each instrument in use."""
    found = {}
    for name in description.roles:
        entry = description.station.instruments[name]
        known = simulated_as(resolve_driver(entry.type))
        size = driver_size(entry, known) if known is not None else None
        if known is None or size is None:
            raise ConfigurationError(
                f"{description.folder / STATION_FILE}: instruments.{name}.type: there is no simulated instrument for "
                f"driver {entry.type!r}; open the bench without simulate, or use one of the drivers of optinc-hw"
            )
        found[name] = (known.kind, size, driver_options(entry, known))
    return found


def write_hidden_chip(folder: Path, layout: ChipLayout, chip: Mapping[str, object] | str) -> None:
    """Write ``hidden_chip.yaml`` into a bench folder.

    Parameters
    ----------
    folder
        Bench folder.
    layout
        Its chip, for what ``chip`` leaves open.
    chip
        Content of the file, or the name of a preset.
    """
    given = {"preset": chip} if isinstance(chip, str) else dict(chip)
    content = {"ports": layout.ports, "inputs": layout.inputs, "receivers": layout.receivers} | given
    stream = StringIO()
    YAML(typ="safe", pure=True).dump(content, stream)
    write_text(folder / HIDDEN_CHIP_FILE, stream.getvalue())


def _hidden_chip(description: BenchDescription, seed: int, clock: Clock) -> "HiddenChip":
    """Return the chip of ``hidden_chip.yaml`` if there is one, else one drawn from the seed."""
    from simulated_instruments import HiddenChip

    chip, layout = description.chip, description.layout
    path = description.folder / HIDDEN_CHIP_FILE
    if not path.exists():
        return HiddenChip.from_seed(
            seed, ports=chip.ports, mesh=layout.mesh, stuck_rad=chip.mesh.stuck_rad,
            inputs=layout.inputs, receivers=layout.receivers, clock=clock,
        )  # fmt: skip
    hidden = HiddenChip.from_file(path, clock=clock, seed=seed)
    if hidden.layout != layout:
        raise ConfigurationError(
            f"{path}: describes a chip of {hidden.layout.ports} ports with {len(hidden.layout.heaters)} heaters "
            f"({hidden.layout.inputs}, {hidden.layout.receivers}), {CHIP_FILE} one of {layout.ports} ports with "
            f"{len(layout.heaters)} heaters ({layout.inputs}, {layout.receivers}); let both describe the same chip"
        )
    return hidden
