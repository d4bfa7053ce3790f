"""Arguments that several commands share, and exit codes."""

from pathlib import Path
from typing import Annotated

import typer

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

BenchFolder = Annotated[Path, typer.Argument(metavar="BENCH", help="Folder with station.yaml and chip.yaml.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
SimulateFlag = Annotated[bool, typer.Option("--simulate", help="Use simulated instruments instead of real ones.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random numbers, and of the chip with --simulate.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before outputs of real instruments are raised.")]
DataOption = Annotated[Path | None, typer.Option("--out", help="netCDF file for raw data; default: beside chip.yaml.")]
ResumeOption = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="File of an interrupted run, to go on with.")
]
