"""Commands about optical networks: training, and checking on every input."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from optinc_hw.cli._options import EXIT_FAILURE, JsonFlag
from optinc_hw.cli._terminal import complain, note, reported, show, shown_progress

if TYPE_CHECKING:
    from optinc_hw.onn import Enumeration, OpticalNetwork

onn = typer.Typer(name="onn", help="Train optical networks, and check them on every input.", no_args_is_help=True)


@onn.command()
def train(
    context: typer.Context,
    scenario: Annotated[int, typer.Option(min=1, max=4, help="Published setting: servers, bits and layer sizes.")] = 1,
    out: Annotated[Path, typer.Option(help="Network file; FILE.checkpoint beside it keeps the state.")] = Path(
        "network.safetensors"
    ),
    sizes: Annotated[
        str | None, typer.Option(help="Other sizes than the scenario's, such as 4-32-32-32-32-32-4.")
    ] = None,
    start: Annotated[
        Literal["random", "exact"], typer.Option(help="Random blocks, or the exact network laid out in blocks.")
    ] = "random",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the inputs.")] = 600,
    rate: Annotated[float, typer.Option(min=0.0, max=1.0, help="First learning rate.")] = 5e-3,
    noise: Annotated[float, typer.Option(min=0.0, max=1.0, help="Relative noise on what each layer is given.")] = 0.0,
    margin: Annotated[float, typer.Option(min=0.0, max=0.5, help="Margin at which training ends.")] = 0.42,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and noise.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, bit for bit.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a network, every layer in blocks Sigma U, and check it on every input.  Exit code 1 if one is wrong."""
    with reported(context):
        import torch

        from optinc_hw.onn import SCENARIOS, build_exact, enumerate_inputs, save_network, widen_to_sigma_u
        from optinc_hw.onn.training import TrainingSettings, provenance, train_network

        torch.set_num_threads(1)
        setting = SCENARIOS[scenario - 1]
        chosen = setting.sizes if sizes is None else _sizes(sizes)
        settings = TrainingSettings(
            chosen, epochs=epochs, rate=rate, noise=noise, enough=None if noise else margin, seed=seed
        )
        first = None
        if start == "exact":
            exact = build_exact(setting.servers, setting.bits, inputs=setting.inputs, unit="relu")
            first = widen_to_sigma_u(exact, chosen)
        with shown_progress() as progress:
            trained = train_network(
                setting.space,
                settings,
                start=first,
                checkpoint=out.with_name(out.name + ".checkpoint"),
                resume=resume,
                progress=progress,
            )
            found = enumerate_inputs(trained.network, progress=lambda done, total: progress("all inputs", done, total))
        save_network(trained.network, out, provenance(settings, trained, start))
        _show(trained.network, found, as_json)
        if not trained.epochs:
            note(f"nothing was trained: the start has the margin of {margin:g} that is enough; see --noise")
        note(f"network: {out}")
        _judge(found)


@onn.command(name="check")
def check_network(
    context: typer.Context,
    network: Annotated[Path, typer.Argument(help="Network file.", exists=True, dir_okay=False)],
    as_json: JsonFlag = False,
) -> None:
    """Run a network file on every input and compare with integer arithmetic.  Exit code 1 if one is wrong."""
    with reported(context):
        from optinc_hw.onn import enumerate_inputs, load_network

        loaded, _ = load_network(network)
        with shown_progress() as progress:
            found = enumerate_inputs(loaded, progress=lambda done, total: progress("all inputs", done, total))
        _show(loaded, found, as_json)
        _judge(found)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("-"))
    except ValueError as error:
        raise typer.BadParameter(f"sizes are numbers joined by '-', such as 4-32-32-4, got {text!r}") from error


def _show(network: "OpticalNetwork", found: "Enumeration", as_json: bool) -> None:
    from optinc_hw._tables import network_table

    content = {
        "sizes": list(network.sizes),
        "servers": network.servers,
        "bits": network.bits,
        "mzis": {form: network.mzis(form) for form in ("svd", "sigma_u", "re_u")},
        "margin": found.margin,
        **{name: value for name, value in asdict(found).items() if name != "errors"},
        "errors": {str(value): count for value, count in found.errors.items()},
    }
    show(as_json, content, network_table(network, found))


def _judge(found: "Enumeration") -> None:
    if found.wrong:
        complain(f"not exact: {found}")
        raise typer.Exit(EXIT_FAILURE)
