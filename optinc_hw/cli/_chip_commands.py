"""Commands that drive the chip of a bench."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from optinc_hw.cli._driving import ask, require_answer, use_one_thread
from optinc_hw.cli._options import EXIT_FAILURE, BenchFolder, JsonFlag, SeedOption, SimulateFlag, YesFlag
from optinc_hw.cli._terminal import complain, note, reported, show, shown_progress


def calibrate(
    context: typer.Context,
    bench: BenchFolder,
    simulate: SimulateFlag = False,
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option(help="netCDF file for raw data; default: beside chip.yaml.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Readings that it may take, of a bare mesh.")] = None,
    resume: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="File of an interrupted run, to go on with.")
    ] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Calibrate the chip of a bench and put the result in force.  Raises heaters and laser."""
    options: dict[str, Any] = {"budget": budget, "resume": resume}  # Any: as calibrate() takes them
    options = {name: value for name, value in options.items() if value is not None}
    with reported(context):
        from optinc_hw._tables import record_table
        from optinc_hw.bench import Bench

        require_answer(simulate, yes)
        use_one_thread()
        with Bench.open(bench, simulate=simulate, seed=seed) as opened:
            ask(opened, simulate, yes)
            from calibration import calibrate as run_calibration

            with shown_progress() as progress:
                record = run_calibration(opened, seed=seed, data_file=out, progress=progress, **options)
            saved = opened.save_record(record)
        data = out or resume or opened.folder / record.provenance.data_file
        content = {"record": str(saved), "data": str(data), "quality": record.quality.model_dump(mode="json")}
        show(as_json, content, record_table(record))
        note(f"record in force: {saved}")
        note(f"raw data: {data}")


def discover(
    context: typer.Context,
    bench: BenchFolder,
    simulate: SimulateFlag = False,
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option(help="File for the corrected chip.yaml; must not exist yet.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Find which heater is which phase on a bare mesh, and what is dead.  Raises heaters and laser; changes no file."""
    with reported(context):
        from optinc_hw.bench import Bench

        require_answer(simulate, yes)
        use_one_thread()
        if out is not None and out.exists():
            raise typer.BadParameter(f"{out} exists already and is not overwritten; choose another file")
        with Bench.open(bench, simulate=simulate, seed=seed) as opened:
            ask(opened, simulate, yes)
            from calibration import discover as run_discovery
            from calibration import propose_chip_file

            with shown_progress() as progress:
                found = run_discovery(opened, seed=seed, progress=progress)
            proposal = propose_chip_file(opened.folder, found)
        if out is not None:
            proposal.save(out)
            note(f"proposed chip.yaml: {out}")
        if as_json:
            typer.echo(json.dumps({**found.to_json_dict(), "diff": proposal.diff}, indent=2))
        else:
            typer.echo(f"{found.summary}\n{proposal.diff}", nl=False)


def verify(
    context: typer.Context,
    bench: BenchFolder,
    simulate: SimulateFlag = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated chip.")] = 0,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare the calibration in force with fresh readings; exit code 1 if the chip should be calibrated again."""
    with reported(context):
        from optinc_hw._tables import verification_table
        from optinc_hw.bench import Bench

        require_answer(simulate, yes)
        use_one_thread()
        with Bench.open(bench, simulate=simulate, seed=seed) as opened:
            record = opened.require_record()
            ask(opened, simulate, yes)
            from calibration import verify as run_verification

            with shown_progress() as progress:
                verification = run_verification(opened, record, progress=progress)
        show(as_json, asdict(verification), verification_table(verification))
        if not verification.good:
            complain("the record no longer describes this chip; run optinc calibrate")
            raise typer.Exit(EXIT_FAILURE)
