"""The bench: description files, interlock, instruments and chip as one object with a safe state.

``PhotonicChip`` is a QCoDeS instrument and is resolved on first use, so that importing this package loads no QCoDeS.
"""

from typing import TYPE_CHECKING, Any

from optinc_hw._shadow import check_packages_not_shadowed

check_packages_not_shadowed()

from optinc_hw.bench.bench import Bench  # noqa: E402 - nothing of ours may be imported before the check
from optinc_hw.bench.check import BenchReport, InputRow, InstrumentRow, MeshRow, WiringRow, check_bench  # noqa: E402
from optinc_hw.bench.chip_file import ChipFile  # noqa: E402
from optinc_hw.bench.description import BenchDescription, read_description  # noqa: E402
from optinc_hw.bench.history import RecordRow, record_history  # noqa: E402
from optinc_hw.bench.interlock import Interlock  # noqa: E402
from optinc_hw.bench.phases import PhaseDrive, measure_transfer_matrix  # noqa: E402
from optinc_hw.bench.readings import DetectorReading, HeaterReading  # noqa: E402
from optinc_hw.bench.record import CalibrationRecord  # noqa: E402
from optinc_hw.bench.serve import ServedBench, serve_bench  # noqa: E402
from optinc_hw.bench.station_file import StationFile  # noqa: E402
from optinc_hw.bench.tile_runner import BenchTileRunner, TwinTileRunner  # noqa: E402
from optinc_hw.bench.write import instrument_names, write_bench_folder  # noqa: E402
from optinc_hw.onn import TileRunner  # noqa: E402

if TYPE_CHECKING:
    from optinc_hw.bench.photonic_chip import PhotonicChip

__all__ = [
    "Bench",
    "BenchDescription",
    "BenchReport",
    "BenchTileRunner",
    "CalibrationRecord",
    "ChipFile",
    "DetectorReading",
    "HeaterReading",
    "InputRow",
    "InstrumentRow",
    "Interlock",
    "MeshRow",
    "PhaseDrive",
    "PhotonicChip",
    "RecordRow",
    "ServedBench",
    "StationFile",
    "TileRunner",
    "TwinTileRunner",
    "WiringRow",
    "check_bench",
    "instrument_names",
    "measure_transfer_matrix",
    "read_description",
    "record_history",
    "serve_bench",
    "write_bench_folder",
]


def __getattr__(name: str) -> Any:  # Any: PEP 562 hooks return whatever the module exports
    if name == "PhotonicChip":
        from optinc_hw.bench.photonic_chip import PhotonicChip

        return PhotonicChip
    raise AttributeError(f"module 'optinc_hw.bench' has no attribute {name!r}")
