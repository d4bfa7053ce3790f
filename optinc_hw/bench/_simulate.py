"""Simulated instruments for a bench folder: the same two files, only the addresses differ."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from optinc_hw.bench._problems import read_yaml_list
from optinc_hw.bench.description import BenchDescription
from optinc_hw.bench.station_file import STATION_FILE, driver_options, driver_size, resolve_driver, simulated_as
from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError

if TYPE_CHECKING:
    from simulated_instruments import SimulatedBench


def start_simulation(
    description: BenchDescription,
    seed: int,
    stack: ExitStack,
    clock: Clock,
    trace: Path | None = None,
    faults: Path | None = None,
) -> "SimulatedBench":
    """Start simulated instruments around one hidden chip; ``stack`` stops them.

    Who drives the bench gets nothing of the result but addresses: it learns about the chip only by measuring.

    Parameters
    ----------
    description
        Checked bench folder; instruments and wiring are taken from it.
    seed
        Seed of the hidden chip.
    stack
        Gets the callback that stops the servers.
    clock
        Clock on which the instruments' time passes.
    trace
        CSV file to which every voltage of a heater is written.
    faults
        YAML file with a script of faults that is played from the start.

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
        HiddenChip,
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
    )
    hidden = HiddenChip.from_seed(
        seed, ports=chip.ports, mesh=description.layout.mesh, stuck_rad=chip.mesh.stuck_rad, clock=clock
    )
    if trace is not None:
        try:
            stack.enter_context(HeaterTrace(hidden, trace))
        except OSError as error:
            raise ConfigurationError(f"{trace}: the heater trace cannot be written ({error})") from error
    bench = stack.enter_context(SimulatedBench(hidden, specs, wiring, clock))
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
