"""Commands about bench folders, which drive no instrument of a lab."""

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from optinc_hw.cli._options import BenchFolder, JsonFlag
from optinc_hw.cli._terminal import complain, console, note, reported, show, wait_for_interrupt


class ChipKind(StrEnum):
    """Kinds of chips that ``optinc init`` writes benches for."""

    HOMODYNE = "homodyne"
    MESH = "mesh"


def check(context: typer.Context, bench: BenchFolder, as_json: JsonFlag = False) -> None:
    """Validate a bench folder and show its wiring; no instrument is touched."""
    with reported(context):
        from optinc_hw._tables import wiring_tables
        from optinc_hw.bench import check_bench

        report = check_bench(bench)
        show(as_json, {**asdict(report), "folder": str(report.folder)}, *wiring_tables(report))
        note(f"{report.folder} is valid: chip {report.chip_name!r}, {report.ports} ports")
        note(
            f"total power at most {report.max_total_power_w:g} W, calibration in force: {report.calibration or 'none'}"
        )


def init(
    context: typer.Context,
    bench: BenchFolder,
    ports: Annotated[int, typer.Option(min=2, max=64, help="Ports of the chip.")] = 8,
    kind: Annotated[ChipKind, typer.Option(help="With homodyne receivers, or a bare mesh.")] = ChipKind.HOMODYNE,
    resistance_ohm: Annotated[float, typer.Option(help="Design resistance of a heater in ohm.")] = 1200.0,
    p_pi_w: Annotated[float, typer.Option(help="Design power of a heater in W for a phase of pi.")] = 0.020,
) -> None:
    """Write a bench folder with the default wiring, to be edited."""
    with reported(context):
        from optinc_hw.bench import instrument_names, write_bench_folder

        addresses = _placeholder_addresses(instrument_names(ports, kind.value))
        write_bench_folder(bench, ports, addresses, kind=kind.value, resistance_ohm=resistance_ohm, p_pi_w=p_pi_w)
        typer.echo(str(bench))
        note(
            "now put the addresses of your instruments into station.yaml, your wiring and limits into chip.yaml, and "
            f"run: optinc check {bench}"
        )


def history(context: typer.Context, bench: BenchFolder, as_json: JsonFlag = False) -> None:
    """List the calibrations of a bench, and which one corrects which; no instrument is touched."""
    with reported(context):
        from optinc_hw._tables import history_table
        from optinc_hw.bench import record_history

        rows = record_history(bench)
        listed = [asdict(row) | {"created_utc": row.created_utc and row.created_utc.isoformat()} for row in rows]
        show(as_json, {"records": listed}, history_table(rows))
        for row in rows:
            if row.problem is not None:
                complain(row.problem)


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
    with reported(context):
        from optinc_hw._tables import served_table
        from optinc_hw.bench import serve_bench

        with serve_bench(bench, seed=seed, trace=trace, faults=faults) as served:
            if out is not None:
                served.write_folder(out)
            if as_json:
                typer.echo(json.dumps(asdict(served), indent=2))
            else:
                typer.echo(served.station)
                console(stderr=True).print(served_table(served))
            sys.stdout.flush()
            note(f"serving on 127.0.0.1{'' if out is None else f', bench folder {out}'}; Ctrl-C ends it")
            wait_for_interrupt()


def _placeholder_addresses(names: tuple[str, ...]) -> dict[str, str]:
    """Addresses of the right form, each its own, for the owner to replace."""
    addresses = {}
    for index, name in enumerate(names):
        serial = name.startswith("heaters") or name == "input_switch"
        port = 5000 if name == "laser" else 5025
        addresses[name] = f"/dev/ttyUSB{index}" if serial else f"TCPIP0::192.168.1.{20 + index}::{port}::SOCKET"
    return addresses
