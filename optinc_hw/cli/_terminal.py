"""What commands print, and how errors end them."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from optinc_hw._shadow import check_packages_not_shadowed
from optinc_hw.cli._options import EXIT_FAILURE, EXIT_INTERRUPTED
from optinc_hw.errors import OptincError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PLAIN_WIDTH = 140
_LONGEST_WAIT_S = 1.0


@contextmanager
def reported(context: typer.Context, *, check_packages: bool = True) -> Iterator[None]:
    """Turn our errors into one message and exit code 1, and Ctrl-C into 130; benches have been left by then."""
    try:
        if check_packages:
            check_packages_not_shadowed()
        yield
    except OptincError as error:
        if context.obj:
            raise
        complain(str(error), *_notes(error))
        raise typer.Exit(EXIT_FAILURE) from error
    except (KeyboardInterrupt, typer.Abort) as error:  # Abort: Ctrl-C at a question
        if context.obj:
            raise
        # A bench that could not be made safe has said so in a note on the exception.
        complain("interrupted", *(_notes(error) or ["everything that this command drove is in its safe state"]))
        raise typer.Exit(EXIT_INTERRUPTED) from error


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def console(*, stderr: bool) -> "Console":
    """Return the terminal, for tables and progress."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A file or pipe has no width; tables there must not be folded to 80 columns.
    return Console(file=stream, width=None if stream.isatty() else _PLAIN_WIDTH)


@contextmanager
def shown_progress() -> Iterator[Any]:  # Any: the display is imported only when it is needed
    """Show the progress of what runs meanwhile on stderr; yields what to tell it."""
    from optinc_hw._progress import ProgressDisplay

    with ProgressDisplay(console(stderr=True)) as display:
        yield display


def show(as_json: bool, content: dict[str, Any], *tables: "Table") -> None:  # Any: JSON values
    """Print the result on stdout, for programs or for people."""
    if as_json:
        typer.echo(json.dumps(content, indent=2, allow_nan=False))
        return
    screen = console(stderr=False)
    for table in tables:
        screen.print(table)


def note(text: str) -> None:
    """Print a message on stderr."""
    typer.echo(text, err=True)


def complain(*lines: str) -> None:
    """Print what went wrong on stderr."""
    typer.secho(f"optinc: {lines[0]}", err=True, fg="red")
    for line in lines[1:]:
        note(f"        {line}")


def wait_for_interrupt() -> None:
    """Return when the user presses Ctrl-C or the process gets SIGTERM."""
    stop = threading.Event()
    former = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        while not stop.wait(_LONGEST_WAIT_S):  # a wait without end could not be interrupted on Windows
            pass
    except KeyboardInterrupt:
        note("stopped")
    finally:
        signal.signal(signal.SIGTERM, former)
