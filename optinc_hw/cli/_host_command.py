"""The command that shares a chip among training jobs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optinc_hw.cli._driving import driven
from optinc_hw.cli._options import JsonFlag, SeedOption, SimulateFlag, YesFlag
from optinc_hw.cli._terminal import note, reported, wait_for_interrupt
from optinc_hw.errors import ConfigurationError

if TYPE_CHECKING:
    from optinc_hw.aggregation import BenchExecutor, ServedRequest, TwinExecutor
    from optinc_hw.onn import CellChain, OpticalNetwork

_SERVERS, _BITS = 4, 8


def host(
    context: typer.Context,
    bench: Annotated[
        Path | None, typer.Argument(metavar="[BENCH]", help="Folder of a bench with a calibration in force.")
    ] = None,
    twin: Annotated[
        Path | None,
        typer.Option(metavar="RECORD", exists=True, dir_okay=False, help="Serve the twin of a record, not a bench."),
    ] = None,
    simulate: SimulateFlag = False,
    seed: SeedOption = 0,
    servers: Annotated[
        int | None, typer.Option(min=2, help=f"Servers of the exact network (default: {_SERVERS}).")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(min=1, max=16, help=f"Bits of a code of the exact network (default: {_BITS}).")
    ] = None,
    network: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Network file to use in place of the exact one.")
    ] = None,
    address: Annotated[str, typer.Option(help="Address to serve on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes a free one.")] = 0,
    token_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="File with the token that clients must have.")
    ] = None,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Share a chip among training jobs until Ctrl-C; prints the address for RemoteExecutor.  Raises heaters and laser.

    Requests run one after the other and are shown as they are done.  At the end the bench is left safe.
    """
    if (bench is None) == (twin is None):
        raise typer.BadParameter("give either a bench folder or --twin RECORD")
    if network is not None and (servers is not None or bits is not None):
        raise typer.BadParameter("a network file has its own servers and bits; give --servers and --bits without it")
    with reported(context):
        from optinc_hw.aggregation import ChipHost

        token = None if token_file is None else _token(token_file)
        chosen = _network(network, servers or _SERVERS, bits or _BITS)
        with (
            _executor(bench, twin, chosen, simulate, seed, yes) as executor,
            ChipHost(executor, address=address, port=port, token=token, served=_show_request) as serving,
        ):
            content = {
                "address": serving.address,
                "executor": type(executor).__name__,
                "servers": executor.servers,
                "bits": executor.bits,
                "inputs": executor.inputs,
            }
            typer.echo(json.dumps(content, indent=2) if as_json else serving.address)
            sys.stdout.flush()
            note(f"{content['executor']} for {executor.servers} servers and {executor.bits} bits; Ctrl-C ends it")
            wait_for_interrupt()


def _token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read a token from {file}: {error}") from error


def _network(file: Path | None, servers: int, bits: int) -> "OpticalNetwork | CellChain":
    from optinc_hw.onn import build_exact, load_network

    if file is None:
        return build_exact(servers, bits)
    loaded, _ = load_network(file)
    return loaded


@contextmanager
def _executor(
    bench: Path | None, twin: Path | None, network: "OpticalNetwork | CellChain", simulate: bool, seed: int, yes: bool
) -> "Iterator[BenchExecutor | TwinExecutor]":
    """Open what answers: the bench in a folder, or the twin of a record."""
    import numpy as np

    from optinc_hw.aggregation import BenchExecutor, TwinExecutor
    from optinc_hw.bench import BenchTileRunner, CalibrationRecord, TwinTileRunner

    if bench is not None:
        with driven(bench, simulate, seed, yes, calibrated=True) as opened:
            yield BenchExecutor(network, BenchTileRunner(opened))
    elif twin is not None:
        record = CalibrationRecord.load(twin)
        yield TwinExecutor(network, TwinTileRunner(record, np.random.default_rng(seed)))


def _show_request(served: "ServedRequest") -> None:
    end = f": {served.failure}" if served.failure else ""
    note(f"request {served.name}, {served.elements} elements, {served.duration_s:.3f} s{end}")
