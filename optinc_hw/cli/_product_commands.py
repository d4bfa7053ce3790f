"""Commands about the product as a whole: its demonstration, and what is installed."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from optinc_hw.cli._options import EXIT_FAILURE, JsonFlag
from optinc_hw.cli._terminal import complain, note, reported, show, shown_progress


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
    with reported(context):
        from optinc_hw._tables import demo_tables
        from optinc_hw.demo import DemoSettings, run_demo

        settings = DemoSettings(ports=ports, seed=seed, elements=elements, train_seeds=train_seeds)
        with shown_progress() as progress:
            summary = run_demo(settings, out, progress)
        content = summary.to_json_dict()
        show(as_json, content, *demo_tables(summary))
        note(content["limits"])
        note(f"report: {out / 'index.html'}")
        missed = [criterion for criterion in summary.criteria if not criterion.passed]
        for criterion in missed:
            complain(f"not met: {criterion.name} is {criterion.value:.4g}, wanted: {criterion.requirement}")
        if missed:
            raise typer.Exit(EXIT_FAILURE)


def doctor(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show versions, optional packages, serial ports and VISA backends; exit code 1 if something is missing."""
    with reported(context, check_packages=False):
        from optinc_hw._doctor import diagnose
        from optinc_hw._tables import doctor_tables

        diagnosis = diagnose()
        show(as_json, asdict(diagnosis), *doctor_tables(diagnosis))
        for problem in diagnosis.problems:
            complain(problem)
        if diagnosis.problems:
            raise typer.Exit(EXIT_FAILURE)
