"""The ``optinc`` command.  Results go to stdout, progress and messages to stderr.

Exit codes: 0 done; 1 failed, or a criterion was not met; 2 wrong usage; 130 interrupted (outputs are made safe first).
Only this package prints.  Everything heavy is imported inside the commands, so that ``optinc --help`` is quick.
"""

import os
from typing import Annotated

import typer

import optinc_hw
from optinc_hw.cli._chip_commands import calibrate, discover, recalibrate, verify
from optinc_hw.cli._compare_command import compare
from optinc_hw.cli._folder_commands import check, history, init, simulate
from optinc_hw.cli._host_command import host
from optinc_hw.cli._network_commands import onn
from optinc_hw.cli._product_commands import demo, doctor

__all__ = ["app", "main"]

_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

app = typer.Typer(
    name="optinc",
    help="Drive, calibrate and use OptINC: an optical in-network computer that averages gradients.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _command in (demo, check, init, calibrate, recalibrate, discover, verify, history, simulate, host, compare, doctor):
    app.command()(_command)
app.add_typer(onn)


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
