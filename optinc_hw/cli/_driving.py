"""What commands that raise heaters and laser do first."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from optinc_hw.cli._options import EXIT_FAILURE, EXIT_USAGE
from optinc_hw.cli._terminal import complain, note

if TYPE_CHECKING:
    from optinc_hw.bench import Bench


@contextmanager
def driven(folder: Path, simulate: bool, seed: int, yes: bool, *, calibrated: bool = False) -> "Iterator[Bench]":
    """Open a bench whose outputs will be raised, once somebody has agreed; ``calibrated`` ones need a record."""
    from optinc_hw.bench import Bench

    _require_answer(simulate, yes)
    _use_one_thread()
    with Bench.open(folder, simulate=simulate, seed=seed) as bench:
        if calibrated:
            bench.require_record()
        _ask(bench, simulate, yes)
        yield bench


def _require_answer(simulate: bool, yes: bool) -> None:
    """Refuse early to drive real hardware when nobody has agreed and nobody can be asked."""
    if not (simulate or yes or sys.stdin.isatty()):
        complain("this raises heaters and laser of real instruments, and nobody is there to be asked")
        note("add --yes, or --simulate for simulated instruments")
        raise typer.Exit(EXIT_USAGE)


def _ask(bench: "Bench", simulate: bool, yes: bool) -> None:
    """Tell what was found on the outputs, and ask before any is raised on real hardware."""
    for name, voltage in bench.found_at_start.items():
        note(f"output {name} was at {voltage:.2f} V before this command")
    if simulate or yes:
        return
    heaters, total = len(bench.layout.heaters), bench.max_total_power
    question = f"This drives {heaters} heaters, up to {total:g} W in all, and switches the laser on. Continue?"
    if not typer.confirm(question, err=True):
        complain("nothing was changed")
        raise typer.Exit(EXIT_FAILURE)


def _use_one_thread() -> None:
    """Keep torch on one thread: on small tensors and busy cores two are far slower."""
    import torch

    torch.set_num_threads(1)
