"""Commands that drive the chip of a bench."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optinc_hw.cli._driving import driven
from optinc_hw.cli._options import (
    EXIT_FAILURE,
    BenchFolder,
    DataOption,
    JsonFlag,
    ResumeOption,
    SeedOption,
    SimulateFlag,
    YesFlag,
)
from optinc_hw.cli._terminal import complain, note, reported, show, shown_progress
from optinc_hw.errors import CalibrationError, ConfigurationError

if TYPE_CHECKING:
    from calibration import CalibrationRecord, ProgramVerification
    from optinc_hw.bench import Bench

_TARGETS_SEED = 0
_PICTURES = (".png", ".svg", ".pdf")


def calibrate(
    context: typer.Context,
    bench: BenchFolder,
    simulate: SimulateFlag = False,
    seed: SeedOption = 0,
    out: DataOption = None,
    budget: Annotated[
        int | None,
        typer.Option(min=1, help="Readings that it may take, of a bare mesh (default: 15 a heater, at least 300)."),
    ] = None,
    resume: ResumeOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Calibrate the chip of a bench and put the result in force.  Raises heaters and laser."""
    options: dict[str, Any] = {"budget": budget, "resume": resume}  # Any: as calibrate() takes them
    options = {name: value for name, value in options.items() if value is not None}
    with reported(context):
        with driven(bench, simulate, seed, yes) as opened:
            from calibration import calibrate as run_calibration

            with shown_progress() as progress:
                record = run_calibration(opened, seed=seed, data_file=out, progress=progress, **options)
            saved = opened.save_record(record)
        _show_run(record, saved, out or resume, as_json)


def recalibrate(
    context: typer.Context,
    bench: BenchFolder,
    simulate: SimulateFlag = False,
    seed: SeedOption = 0,
    readings: Annotated[int | None, typer.Option(min=1, help="Readings that it takes; default: 6 a port.")] = None,
    out: DataOption = None,
    resume: ResumeOption = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Correct the calibration in force of a bare mesh for drift, from few readings.  Raises heaters and laser.

    Readings kept out of the fit judge the correction: one that they do not bear out is refused, and the old
    calibration stays in force.
    """
    with reported(context):
        with driven(bench, simulate, seed, yes, calibrated=True) as opened:
            former = opened.require_record()
            from calibration import recalibrate as run_correction

            with shown_progress() as progress:
                record = run_correction(
                    opened, former, readings=readings, seed=seed, data_file=out, resume=resume, progress=progress
                )
            saved = opened.save_record(record)
        _show_run(record, saved, out or resume, as_json)


def _show_run(record: "CalibrationRecord", saved: Path, data: Path | None, as_json: bool) -> None:
    """Show the record of a run, and what else its file says."""
    from calibration import read_report
    from optinc_hw._tables import record_table, report_tables

    file = saved.parent / record.provenance.data_file if data is None else data.with_name(record.provenance.data_file)
    content = {"record": str(saved), "data": str(file), "quality": record.quality.model_dump(mode="json")}
    try:
        report = read_report(file)
    except CalibrationError as error:  # a file that an earlier version finished; the record is in force all the same
        note(str(error))
        show(as_json, content, record_table(record))
    else:
        show(as_json, {**content, "report": report.to_json_dict()}, record_table(record), *report_tables(report))
    note(f"record in force: {saved}")
    note(f"raw data: {file}")


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
        if out is not None and out.exists():
            raise typer.BadParameter(f"{out} exists already and is not overwritten; choose another file")
        with driven(bench, simulate, seed, yes) as opened:
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
    targets: Annotated[
        int,
        typer.Option(min=0, help="Also program so many Haar-random unitaries and permutations each, on a bare mesh."),
    ] = 0,
    picture: Annotated[Path | None, typer.Option(help="Image file for the targets: .png, .svg or .pdf.")] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare the calibration in force with fresh readings; exit code 1 if the chip should be calibrated again."""
    if picture is not None and not targets:
        raise typer.BadParameter("a picture shows targets; give --targets as well")
    if picture is not None and picture.suffix.lower() not in _PICTURES:
        raise typer.BadParameter(
            f"{picture} is no picture that can be drawn; its name must end in {', '.join(_PICTURES)}"
        )
    with reported(context):
        from optinc_hw._tables import programming_tables, verification_table

        with driven(bench, simulate, seed, yes, calibrated=True) as opened:
            record = opened.require_record()
            from calibration import verify as run_verification

            with shown_progress() as progress:
                verification = run_verification(opened, record, progress=progress)
                programming = _programmed(opened, record, targets, progress) if targets else None
        content, tables = asdict(verification), [verification_table(verification)]
        if programming is not None:
            content["programming"] = programming.to_json_dict()
            tables += programming_tables(programming)
        show(as_json, content, *tables)
        if programming is not None and picture is not None:
            _draw(programming, picture)
        if not verification.good:
            complain("the record no longer describes this chip", verification.reason or "run optinc calibrate")
            raise typer.Exit(EXIT_FAILURE)


def _programmed(
    bench: "Bench", record: "CalibrationRecord", count: int, progress: Any
) -> "ProgramVerification":  # Any: the display of progress
    """Program random targets, the same ones every time."""
    import numpy as np

    from calibration import random_targets, verify_programming

    drawn = random_targets(record.ports, count, np.random.default_rng(_TARGETS_SEED))
    return verify_programming(bench, record, drawn, progress=progress)


def _draw(programming: "ProgramVerification", picture: Path) -> None:
    from calibration import plot_programming

    try:
        plot_programming(programming).savefig(picture)
    except OSError as error:
        raise ConfigurationError(f"cannot write the picture {picture}: {error}") from error
    note(f"picture: {picture}")
