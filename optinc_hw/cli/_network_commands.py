"""Commands about optical networks: training, and checking on every input."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from optinc_hw.cli._options import EXIT_FAILURE, JsonFlag
from optinc_hw.cli._terminal import complain, note, reported, show, shown_progress
from optinc_hw.errors import NetworkError

if TYPE_CHECKING:
    from optinc_hw.onn import CellChain, Composition, Enumeration, OpticalNetwork, Scenario
    from optinc_hw.onn.training import TrainedCell, TrainedNetwork, TrainingSettings

    Network = OpticalNetwork | CellChain

_MOST_INPUTS = 100_000_000

onn = typer.Typer(name="onn", help="Train optical networks, and check them on every input.", no_args_is_help=True)


@onn.command()
def train(
    context: typer.Context,
    scenario: Annotated[int, typer.Option(min=1, max=4, help="Published setting: servers, bits and layer sizes.")] = 1,
    out: Annotated[Path, typer.Option(help="Network file; FILE.checkpoint beside it keeps the state.")] = Path(
        "network.safetensors"
    ),
    cell: Annotated[
        int | None, typer.Option(min=1, metavar="DIGITS", help="Train a cell of so many digits, for a chain of them.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Other sizes than the scenario's or the cell's, such as 4-32-32-32-32-32-4.")
    ] = None,
    start: Annotated[
        Literal["random", "exact"], typer.Option(help="Random matrices, or the exact network laid out in blocks.")
    ] = "random",
    method: Annotated[
        Literal["manifold", "projection", "free"],
        typer.Option(help="Blocks Sigma U at every step, projected onto them now and then, or any matrices."),
    ] = "manifold",
    loss: Annotated[
        Literal["margin", "two_stage"], typer.Option(help="Distance of levels from thresholds, or the paper's loss.")
    ] = "margin",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the inputs, 1000, or 3000 of a cell.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="First learning rate.")] = None,
    noise: Annotated[float, typer.Option(min=0.0, max=1.0, help="Relative noise on what each layer is given.")] = 0.0,
    spectral: Annotated[float, typer.Option(min=0.0, max=1.0, help="Weight of the matrices' spectral norms.")] = 0.0,
    jitter: Annotated[float, typer.Option(min=0.0, max=0.5, help="Error of the carry that a cell is given.")] = 0.2,
    margin: Annotated[float, typer.Option(min=0.0, max=0.5, help="Margin at which training ends.")] = 0.42,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and noise.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, bit for bit.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a network, or a cell for a chain of them, and check it on every input.  Exit code 1 if one is wrong."""
    with reported(context):
        import torch

        from optinc_hw.onn import SCENARIOS, save_network
        from optinc_hw.onn.training import CELL_SETTINGS, TrainingSettings, provenance

        torch.set_num_threads(1)
        setting = SCENARIOS[scenario - 1]
        usual = TrainingSettings(setting.sizes) if cell is None else CELL_SETTINGS
        settings = replace(
            usual, sizes=usual.sizes if sizes is None else _sizes(sizes), epochs=epochs or usual.epochs,
            rate=usual.rate if rate is None else rate, noise=noise, enough=None if noise else margin, seed=seed,
            method=method, loss=loss, spectral=spectral, jitter=jitter,
        )  # fmt: skip
        with shown_progress() as progress:
            state = {"checkpoint": out.with_name(out.name + ".checkpoint"), "resume": resume, "progress": progress}
            trained, made = _trained(setting, cell, settings, start, state)
            checked = _checked(made, progress)
        save_network(made, out, provenance(settings, trained, start))
        _show(made, checked, as_json)
        if not trained.epochs:
            note(f"nothing was trained: the start has the margin of {margin:g} that is enough; see --noise")
        note(f"network: {out}")
        _judge(checked)


@onn.command(name="check")
def check_network(
    context: typer.Context,
    network: Annotated[Path, typer.Argument(help="Network file.", exists=True, dir_okay=False)],
    as_json: JsonFlag = False,
) -> None:
    """Run a network file on every input and compare with integer arithmetic.  Exit code 1 if one is wrong.

    Of a chain of cells it is also proved whether chains of any length are right.
    """
    with reported(context):
        from optinc_hw.onn import load_network

        loaded, _ = load_network(network)
        with shown_progress() as progress:
            checked = _checked(loaded, progress)
        _show(loaded, checked, as_json)
        _judge(checked)


def _trained(
    setting: "Scenario", digits: int | None, settings: "TrainingSettings", start: str, state: dict[str, Any]
) -> "tuple[TrainedNetwork | TrainedCell, Network]":
    """Train a network or, of so many digits, a cell; returns it as a network too."""
    from optinc_hw.onn import CellChain, build_cell, build_exact, widen_to_sigma_u
    from optinc_hw.onn.training import train_cell, train_network

    if digits is None:
        first = None
        if start == "exact":
            exact = build_exact(setting.servers, setting.bits, inputs=setting.inputs, unit="relu")
            first = widen_to_sigma_u(exact, settings.sizes)
        network = train_network(setting.space, settings, start=first, **state)
        return network, network.network
    divisor = 4 ** (setting.servers.bit_length() // 2)
    began = widen_to_sigma_u(build_cell(divisor, digits, unit="relu"), settings.sizes) if start == "exact" else None
    cell = train_cell(divisor, settings, digits=digits, start=began, **state)
    return cell, CellChain(cell.cell, setting.servers, setting.bits)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("-"))
    except ValueError as error:
        raise typer.BadParameter(f"sizes are numbers joined by '-', such as 4-32-32-4, got {text!r}") from error


@dataclass(frozen=True)
class _Checked:
    """What is known of a network: every input, where there are not too many, and a proof, where it is a chain."""

    found: "Enumeration | None"
    proof: "Composition | None"


def _checked(network: "Network", progress: Callable[[str, int, int], None]) -> _Checked:
    from optinc_hw.onn import CellChain, InputSpace, enumerate_inputs, prove_composition

    found = proof = None
    if InputSpace(network.servers, network.bits, network.inputs).size <= _MOST_INPUTS:
        found = enumerate_inputs(network, progress=lambda done, total: progress("all inputs", done, total))
    if isinstance(network, CellChain):
        proof = prove_composition(network.cell, progress=lambda done, total: progress("proof", done, total))
    elif found is None:
        raise NetworkError(f"a network of more than {_MOST_INPUTS:,} inputs cannot be checked on every one")
    return _Checked(found, proof)


def _show(network: "Network", checked: _Checked, as_json: bool) -> None:
    from optinc_hw._tables import network_table
    from optinc_hw.onn import CellChain

    content: dict[str, Any] = {
        "sizes": list(network.sizes),
        "cells": network.count if isinstance(network, CellChain) else None,
        "servers": network.servers,
        "bits": network.bits,
        "mzis": {form: network.mzis(form) for form in ("svd", "sigma_u", "re_u")},
    }
    if checked.found is not None:
        content |= {
            "margin": checked.found.margin,
            **{name: value for name, value in asdict(checked.found).items() if name != "errors"},
            "errors": {str(value): count for value, count in checked.found.errors.items()},
        }
    if checked.proof is not None:
        proof = checked.proof
        content["chains_of_any_length"] = {
            "proved": proof.proved,
            "margin": proof.margin,
            "largest_carry_error": proof.largest if proof.proved else None,
            "limit": proof.limit,
        }
    show(as_json, content, network_table(network, checked.found, checked.proof))


def _judge(checked: _Checked) -> None:
    if checked.found is not None and checked.found.wrong:
        complain(f"not exact: {checked.found}")
        raise typer.Exit(EXIT_FAILURE)
    if checked.found is None and checked.proof is not None and not checked.proof.proved:
        complain(str(checked.proof))
        raise typer.Exit(EXIT_FAILURE)
