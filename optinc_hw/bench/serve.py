"""A bench folder's simulated instruments, served to other programs in real time."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from optinc_hw._files import write_text
from optinc_hw.bench._simulate import start_simulation
from optinc_hw.bench.chip_file import CHIP_FILE
from optinc_hw.bench.description import BenchDescription, read_description
from optinc_hw.bench.station_file import STATION_FILE
from optinc_hw.clock import WallClock
from optinc_hw.errors import ConfigurationError


@dataclass(frozen=True)
class ServedBench:
    """Simulated instruments that are being served on 127.0.0.1.

    Parameters
    ----------
    addresses
        Address of each instrument, as its driver takes it.
    terminals
        Pseudo-terminal of each instrument with a serial port; empty on Windows.
    station
        Text of a station file with these addresses, and with no instrument that is not simulated.
    chip
        Text of a chip file to go beside it: without serial numbers and calibration, which are those of real things.
    """

    addresses: Mapping[str, str]
    terminals: Mapping[str, str]
    station: str
    chip: str

    def write_folder(self, folder: str | Path) -> None:
        """Write both texts as the files of a bench folder, which other programs can open while the bench is served.

        Raises
        ------
        ConfigurationError
            If one of the files exists already or cannot be written.
        """
        place = Path(folder)
        for name in (STATION_FILE, CHIP_FILE):
            if (place / name).exists():
                raise ConfigurationError(f"{place / name} exists already and is not overwritten; choose another folder")
        try:
            place.mkdir(parents=True, exist_ok=True)
            write_text(place / STATION_FILE, self.station)
            write_text(place / CHIP_FILE, self.chip)
        except OSError as error:
            raise ConfigurationError(f"{place}: cannot be written ({error}); choose another folder") from error


@contextmanager
def serve_bench(
    folder: str | Path, *, seed: int = 0, trace: str | Path | None = None, faults: str | Path | None = None
) -> Iterator[ServedBench]:
    """Serve simulated instruments for the bench in ``folder`` on 127.0.0.1 while the context is open.

    Time passes as on a clock on the wall: heat, tuning and averaging take as long as they do on real instruments.

    Parameters
    ----------
    folder
        Folder with ``station.yaml`` and ``chip.yaml``; it is only read.
    seed
        Seed of the hidden chip.
    trace
        CSV file (time_s, heater, voltage_v) to which every voltage of a heater is written; an old one is replaced.
    faults
        YAML file with a script of faults that is played from the start.

    Raises
    ------
    ConfigurationError
        If the files are wrong (see `read_description`), a driver has no simulated counterpart, the seed is negative,
        the trace cannot be written, or the script of faults is not possible.
    """
    description = read_description(folder)
    with ExitStack() as stack:
        trace_path, faults_path = (None if path is None else Path(path) for path in (trace, faults))
        bench = start_simulation(description, seed, stack, WallClock(), trace_path, faults_path)
        serial = [name for name, address in bench.addresses.items() if address.startswith("socket://")]
        terminals = {name: bench.open_pty(name) for name in serial} if os.name == "posix" else {}
        yield ServedBench(
            bench.addresses,
            terminals,
            _station_text(description, bench.addresses),
            _chip_text(description),
        )


def _station_text(description: BenchDescription, addresses: Mapping[str, str]) -> str:
    """Text of station.yaml with other addresses; comments stay."""
    yaml, data = _load(description.folder / STATION_FILE)
    instruments = data["instruments"]
    for name in list(instruments):
        if name not in addresses:
            del instruments[name]  # its address is that of a real instrument
            continue
        init = instruments[name].get("init") or {}
        init.pop("address", None)
        instruments[name]["address"] = addresses[name]
    return _dump(yaml, data)


def _chip_text(description: BenchDescription) -> str:
    yaml, data = _load(description.folder / CHIP_FILE)
    data["calibration"] = None
    data.pop("serial_numbers", None)
    return _dump(yaml, data)


def _load(path: Path) -> tuple[YAML, Any]:  # Any: whatever YAML can hold
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    return yaml, yaml.load(path.read_text(encoding="utf-8"))


def _dump(yaml: YAML, data: object) -> str:
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()
