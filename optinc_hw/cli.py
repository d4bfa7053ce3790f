"""The ``optinc`` command.  Results go to stdout, progress and messages to stderr.

Exit codes: 0 done; 1 failed, or a criterion was not met; 2 wrong usage; 130 interrupted (outputs are made safe first).
Only this module prints.  Everything heavy is imported inside the commands, so that ``optinc --help`` is quick.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import optinc_hw
from optinc_hw._shadow import check_packages_not_shadowed
from optinc_hw.errors import OptincError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from optinc_hw.bench import Bench

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
_PLAIN_WIDTH = 140
_LONGEST_WAIT_S = 1.0
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ChipKind(StrEnum):
    """Kinds of chips that ``optinc init`` writes benches for."""

    HOMODYNE = "homodyne"
    MESH = "mesh"


app = typer.Typer(
    name="optinc",
    help="Drive, calibrate and use OptINC: an optical in-network computer that averages gradients.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

BenchFolder = Annotated[Path, typer.Argument(metavar="BENCH", help="Folder with station.yaml and chip.yaml.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
SimulateFlag = Annotated[bool, typer.Option("--simulate", help="Use simulated instruments instead of real ones.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random numbers, and of the chip with --simulate.")]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before outputs of real instruments are raised.")]


def main() -> None:
    """Entry point of the ``optinc`` command."""
    # Matrices here are small: more threads than one only wait for one another.  Must be set before numpy is imported.
    for name in _THREAD_SETTINGS:
        os.environ.setdefault(name, "1")
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"optinc-hw {optinc_hw.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version  # its callback has shown it
    context.obj = debug


@app.command()
def demo(
    context: typer.Context,
    ports: Annotated[int, typer.Option(min=2, max=64, help="Ports of the simulated chip.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the chip and of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Report folder: new, empty, or of an earlier demo.")] = Path("demo_report"),
    elements: Annotated[
        int, typer.Option(min=1, help="Gradient elements that go through the instruments; 2000 are the least to pass.")
    ] = 2000,
    train_seeds: Annotated[int, typer.Option(min=1, help="Training runs with optical and with float averaging.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """Show the whole job on a simulated bench: calibrate a chip, map the network, average real gradients."""
    with _reported(context):
        from optinc_hw._tables import demo_tables
        from optinc_hw.demo import DemoSettings, run_demo

        settings = DemoSettings(ports=ports, seed=seed, elements=elements, train_seeds=train_seeds)
        with _progress() as progress:
            summary = run_demo(settings, out, progress)
        content = summary.to_json_dict()
        _show(as_json, content, *demo_tables(summary))
        _note(content["limits"])
        _note(f"report: {out / 'index.html'}")
        missed = [criterion for criterion in summary.criteria if not criterion.passed]
        for criterion in missed:
            _complain(f"not met: {criterion.name} is {criterion.value:.4g}, wanted: {criterion.requirement}")
        if missed:
            raise typer.Exit(EXIT_FAILURE)


@app.command()
def check(context: typer.Context, bench: BenchFolder, as_json: JsonFlag = False) -> None:
    """Validate a bench folder and show its wiring; no instrument is touched."""
    with _reported(context):
        from optinc_hw._tables import wiring_tables
        from optinc_hw.bench import check_bench

        report = check_bench(bench)
        _show(as_json, {**asdict(report), "folder": str(report.folder)}, *wiring_tables(report))
        _note(f"{report.folder} is valid: chip {report.chip_name!r}, {report.ports} ports")
        _note(
            f"total power at most {report.max_total_power_w:g} W, calibration in force: {report.calibration or 'none'}"
        )


@app.command()
def init(
    context: typer.Context,
    bench: BenchFolder,
    ports: Annotated[int, typer.Option(min=2, max=64, help="Ports of the chip.")] = 8,
    kind: Annotated[ChipKind, typer.Option(help="With homodyne receivers, or a bare mesh.")] = ChipKind.HOMODYNE,
    resistance_ohm: Annotated[float, typer.Option(help="Design resistance of a heater in ohm.")] = 1200.0,
    p_pi_w: Annotated[float, typer.Option(help="Design power of a heater in W for a phase of pi.")] = 0.020,
) -> None:
    """Write a bench folder with the default wiring, to be edited."""
    with _reported(context):
        from optinc_hw.bench import instrument_names, write_bench_folder

        addresses = _placeholder_addresses(instrument_names(ports, kind.value))
        write_bench_folder(bench, ports, addresses, kind=kind.value, resistance_ohm=resistance_ohm, p_pi_w=p_pi_w)
        typer.echo(str(bench))
        _note(
            "now put the addresses of your instruments into station.yaml, your wiring and limits into chip.yaml, and "
            f"run: optinc check {bench}"
        )


@app.command()
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
    with _reported(context):
        from optinc_hw._tables import record_table
        from optinc_hw.bench import Bench

        _require_answer(simulate, yes)
        _use_one_thread()
        with Bench.open(bench, simulate=simulate, seed=seed) as opened:
            _ask(opened, simulate, yes)
            from calibration import calibrate as run_calibration

            with _progress() as progress:
                record = run_calibration(opened, seed=seed, data_file=out, progress=progress, **options)
            saved = opened.save_record(record)
        data = out or resume or opened.folder / record.provenance.data_file
        content = {"record": str(saved), "data": str(data), "quality": record.quality.model_dump(mode="json")}
        _show(as_json, content, record_table(record))
        _note(f"record in force: {saved}")
        _note(f"raw data: {data}")


@app.command()
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
    with _reported(context):
        from optinc_hw.bench import Bench

        _require_answer(simulate, yes)
        _use_one_thread()
        if out is not None and out.exists():
            raise typer.BadParameter(f"{out} exists already and is not overwritten; choose another file")
        with Bench.open(bench, simulate=simulate, seed=seed) as opened:
            _ask(opened, simulate, yes)
            from calibration import discover as run_discovery
            from calibration import propose_chip_file

            with _progress() as progress:
                found = run_discovery(opened, seed=seed, progress=progress)
            proposal = propose_chip_file(opened.folder, found)
        if out is not None:
            proposal.save(out)
            _note(f"proposed chip.yaml: {out}")
        if as_json:
            typer.echo(json.dumps({**found.to_json_dict(), "diff": proposal.diff}, indent=2))
        else:
            typer.echo(f"{found.summary}\n{proposal.diff}", nl=False)


@app.command()
def verify(
    context: typer.Context,
    bench: BenchFolder,
    simulate: SimulateFlag = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated chip.")] = 0,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare the calibration in force with fresh readings; exit code 1 if the chip should be calibrated again."""
    with _reported(context):
        from optinc_hw._tables import verification_table
        from optinc_hw.bench import Bench

        _require_answer(simulate, yes)
        _use_one_thread()
        with Bench.open(bench, simulate=simulate, seed=seed) as opened:
            record = opened.require_record()
            _ask(opened, simulate, yes)
            from calibration import verify as run_verification

            with _progress() as progress:
                verification = run_verification(opened, record, progress=progress)
        _show(as_json, asdict(verification), verification_table(verification))
        if not verification.good:
            _complain("the record no longer describes this chip; run optinc calibrate")
            raise typer.Exit(EXIT_FAILURE)


@app.command()
def history(context: typer.Context, bench: BenchFolder, as_json: JsonFlag = False) -> None:
    """List the calibrations of a bench, and which one corrects which; no instrument is touched."""
    with _reported(context):
        from optinc_hw._tables import history_table
        from optinc_hw.bench import record_history

        rows = record_history(bench)
        listed = [asdict(row) | {"created_utc": row.created_utc and row.created_utc.isoformat()} for row in rows]
        _show(as_json, {"records": listed}, history_table(rows))
        for row in rows:
            if row.problem is not None:
                _complain(row.problem)


@app.command()
def simulate(
    context: typer.Context,
    bench: BenchFolder,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated chip.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder to write a bench folder to that uses the addresses.")] = None,
    trace: Annotated[Path | None, typer.Option(help="CSV file for every voltage that is set on a heater.")] = None,
    faults: Annotated[Path | None, typer.Option(help="YAML file with faults to play from the start.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve simulated instruments for a bench folder to other programs until Ctrl-C; prints a station file."""
    with _reported(context):
        from optinc_hw._tables import served_table
        from optinc_hw.bench import serve_bench

        with serve_bench(bench, seed=seed, trace=trace, faults=faults) as served:
            if out is not None:
                served.write_folder(out)
            if as_json:
                typer.echo(json.dumps(asdict(served), indent=2))
            else:
                typer.echo(served.station)
                _console(stderr=True).print(served_table(served))
            sys.stdout.flush()
            _note(f"serving on 127.0.0.1{'' if out is None else f', bench folder {out}'}; Ctrl-C ends it")
            _wait_for_interrupt()


@app.command()
def doctor(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show versions, optional packages, serial ports and VISA backends; exit code 1 if something is missing."""
    with _reported(context, check_packages=False):
        from optinc_hw._doctor import diagnose
        from optinc_hw._tables import doctor_tables

        diagnosis = diagnose()
        _show(as_json, asdict(diagnosis), *doctor_tables(diagnosis))
        for problem in diagnosis.problems:
            _complain(problem)
        if diagnosis.problems:
            raise typer.Exit(EXIT_FAILURE)


@contextmanager
def _reported(context: typer.Context, *, check_packages: bool = True) -> Iterator[None]:
    """Turn our errors into one message and exit code 1, and Ctrl-C into 130; benches have been left by then."""
    try:
        if check_packages:
            check_packages_not_shadowed()
        yield
    except OptincError as error:
        if context.obj:
            raise
        _complain(str(error), *_notes(error))
        raise typer.Exit(EXIT_FAILURE) from error
    except (KeyboardInterrupt, typer.Abort) as error:  # Abort: Ctrl-C at a question
        if context.obj:
            raise
        # A bench that could not be made safe has said so in a note on the exception.
        _complain("interrupted", *(_notes(error) or ["everything that this command drove is in its safe state"]))
        raise typer.Exit(EXIT_INTERRUPTED) from error


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def _require_answer(simulate: bool, yes: bool) -> None:
    """Refuse early to drive real hardware when nobody has agreed and nobody can be asked."""
    if not (simulate or yes or sys.stdin.isatty()):
        _complain("this raises heaters and laser of real instruments, and nobody is there to be asked")
        _note("add --yes, or --simulate for simulated instruments")
        raise typer.Exit(EXIT_USAGE)


def _ask(bench: "Bench", simulate: bool, yes: bool) -> None:
    """Tell what was found on the outputs, and ask before any is raised on real hardware."""
    for name, voltage in bench.found_at_start.items():
        _note(f"output {name} was at {voltage:.2f} V before this command")
    if simulate or yes:
        return
    heaters, total = len(bench.layout.heaters), bench.max_total_power
    question = f"This drives {heaters} heaters, up to {total:g} W in all, and switches the laser on. Continue?"
    if not typer.confirm(question, err=True):
        _complain("nothing was changed")
        raise typer.Exit(EXIT_FAILURE)


def _wait_for_interrupt() -> None:
    """Return when the user presses Ctrl-C or the process gets SIGTERM."""
    stop = threading.Event()
    former = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        while not stop.wait(_LONGEST_WAIT_S):  # a wait without end could not be interrupted on Windows
            pass
    except KeyboardInterrupt:
        _note("stopped")
    finally:
        signal.signal(signal.SIGTERM, former)


def _placeholder_addresses(names: tuple[str, ...]) -> dict[str, str]:
    """Addresses of the right form, each its own, for the owner to replace."""
    addresses = {}
    for index, name in enumerate(names):
        serial = name.startswith("heaters") or name == "input_switch"
        port = 5000 if name == "laser" else 5025
        addresses[name] = f"/dev/ttyUSB{index}" if serial else f"TCPIP0::192.168.1.{20 + index}::{port}::SOCKET"
    return addresses


def _use_one_thread() -> None:
    """Keep torch on one thread: on small tensors and busy cores two are far slower."""
    import torch

    torch.set_num_threads(1)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A file or pipe has no width; tables there must not be folded to 80 columns.
    return Console(file=stream, width=None if stream.isatty() else _PLAIN_WIDTH)


@contextmanager
def _progress() -> Iterator[Any]:  # Any: the display is imported only when it is needed
    from optinc_hw._progress import ProgressDisplay

    with ProgressDisplay(_console(stderr=True)) as display:
        yield display


def _show(as_json: bool, content: dict[str, Any], *tables: "Table") -> None:  # Any: JSON values
    """Print the result on stdout, for programs or for people."""
    if as_json:
        typer.echo(json.dumps(content, indent=2, allow_nan=False))
        return
    console = _console(stderr=False)
    for table in tables:
        console.print(table)


def _note(text: str) -> None:
    typer.echo(text, err=True)


def _complain(*lines: str) -> None:
    typer.secho(f"optinc: {lines[0]}", err=True, fg="red")
    for line in lines[1:]:
        _note(f"        {line}")
