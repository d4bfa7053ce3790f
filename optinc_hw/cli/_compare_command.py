"""The command that compares ways of all-reducing on a training job."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from optinc_hw.cli._options import JsonFlag
from optinc_hw.cli._terminal import note, reported, show

if TYPE_CHECKING:
    from optinc_hw.interconnect.comparison import Comparison, Network, NetworkDesign, Server, Training

Design = Literal["published", "chain"]
_NODES, _MOST_NODES = 16, 65536


def compare(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="Built-in model; default resnet50. A wrong name lists all.")] = None,
    module: Annotated[
        str | None,
        typer.Option(metavar="PACKAGE:FACTORY", help="Function that returns a torch module, or one and inputs for it."),
    ] = None,
    step_time: Annotated[
        float | None, typer.Option(min=1e-6, metavar="MS", help="Measured computing of one step, instead of FLOPs.")
    ] = None,
    nodes: Annotated[
        list[int] | None,
        typer.Option(min=2, max=_MOST_NODES, help="Servers, default 16; may be given several times."),
    ] = None,
    batch: Annotated[float, typer.Option(min=1e-3, help="Images or tokens a server and step.")] = 32.0,
    bandwidth: Annotated[float, typer.Option(min=1e-3, metavar="GBPS", help="Of a link, Gb/s.")] = 400.0,
    rated: Annotated[
        Literal["link", "server"], typer.Option(help="Bandwidth of a link, or of a server and shared by its links.")
    ] = "link",
    bits: Annotated[int, typer.Option(min=1, max=64, help="Of a gradient element on the way.")] = 16,
    overlap: Annotated[bool, typer.Option("--overlap", help="Send buckets during the backward pass.")] = False,
    peak: Annotated[float, typer.Option(min=1e-6, metavar="TFLOPS", help="Of a server, TFLOP/s.")] = 60.0,
    utilisation: Annotated[float, typer.Option(min=1e-3, max=1.0, help="Part of the peak that is reached.")] = 0.6,
    wavelengths: Annotated[int, typer.Option(min=1, help="Of each direction of a WDM ring.")] = 64,
    reach: Annotated[
        int | None, typer.Option(min=1, metavar="NODES", help="Nodes that light passes; default: no limit.")
    ] = None,
    reconfiguration: Annotated[float, typer.Option(min=0.0, metavar="US", help="Of a WDM ring's circuits, us.")] = 25.0,
    every_step: Annotated[
        bool, typer.Option("--every-step", help="Pay it in every step, as published, not when circuits change.")
    ] = False,
    message: Annotated[float, typer.Option(min=0.0, metavar="US", help="Software and card, each message, us.")] = 2.0,
    adding: Annotated[
        float, typer.Option(min=1e-3, metavar="GBPS", help="What a server adds, GB/s; inf: it takes no time.")
    ] = 1000.0,
    design: Annotated[Design, typer.Option(help="Optical network: the OptINC paper's, or our chain of cells.")] = (
        "published"
    ),
    schedule: Annotated[list[str] | None, typer.Option(help="Only this one; may be given several times.")] = None,
    plot: Annotated[Path | None, typer.Option(file_okay=False, metavar="FOLDER", help="Write pictures to it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare ring, trees, WRHT, ODDL, adding switches and OptINC on a training job.

    Times, energies and break-even points are those of models, whose assumptions are options.
    """
    with reported(context):
        from optinc_hw._tables import comparison_tables
        from optinc_hw.interconnect.comparison import LinkBudget, MeshLoss, Network, Server

        training = _training(model, module, step_time, batch, Server(1e12 * peak, utilisation), bits)
        network = Network(
            rate_bps=1e9 * bandwidth, rated=rated, wavelengths=wavelengths, reach=reach,
            reconfiguration_s=1e-6 * reconfiguration, setup="every_step" if every_step else "on_change",
            message_s=1e-6 * message, reduce_Bps=1e9 * adding,
        )  # fmt: skip
        names = schedule or None
        content: list[dict[str, Any]] = []
        for count in nodes or [_NODES]:
            optical = network_design(count, bits, design)
            suited = replace(network, fan_in=optical.servers)
            compared = _compared(training, count, suited, names, optical, overlap=overlap)
            content.append(_content(compared, optical))
            if not as_json:
                tables = comparison_tables(compared, optical, MeshLoss(), LinkBudget())
                show(False, {}, *tables)
                typer.echo(f"{compared.verdict}\n")
            if plot is not None:
                _draw(compared, suited, names, plot, first=len(content) == 1)
        if as_json:
            show(True, {"comparisons": content})
        note("times are those of models with stated assumptions: docs/explanation/worth_it.md")


def network_design(nodes: int, bits: int, design: Design) -> "NetworkDesign":
    """Return the optical network that serves N servers, or that a cascade for them is made of."""
    from optinc_hw.interconnect.comparison import NetworkDesign
    from optinc_hw.onn import SCENARIOS, CellChain, build_cell

    if design == "chain":
        divisor, servers = (4, 4) if nodes <= 4 else (16, 16)
        chain = CellChain(build_cell(divisor), servers, bits)
        return NetworkDesign("chain of cells", servers, bits, chain.sizes, frozenset(), chain.mzis("svd"), chain.count)
    fitting = [one for one in SCENARIOS if one.bits >= min(bits, 16)]
    scenario = next((one for one in fitting if one.bits == fitting[0].bits and one.servers >= nodes), None)
    scenario = scenario or max((one for one in fitting if one.bits == fitting[0].bits), key=lambda one: one.servers)
    layers = scenario.approximated[0]
    mzis = scenario.mzis(layers) + scenario.surrounding_mzis
    return NetworkDesign("published", scenario.servers, scenario.bits, scenario.sizes, frozenset(layers), mzis)


def _training(
    model: str | None, module: str | None, step_time_ms: float | None, batch: float, server: "Server", bits: int
) -> "Training":
    from optinc_hw.interconnect.comparison import (
        Training,
        count_parameters,
        find_workload,
        load_module,
        measure_workload,
    )

    if model is not None and module is not None:
        raise typer.BadParameter("give --model or --module, not both")
    if module is None:
        workload = find_workload(model or "resnet50")
    else:
        sys.path.insert(0, str(Path.cwd()))  # an installed command does not look where it is called
        try:
            made, inputs = load_module(module)
        finally:
            sys.path.pop(0)
        if inputs is None and step_time_ms is None:
            raise typer.BadParameter(
                f"{module} returns no inputs to count FLOPs with; return some, or give --step-time"
            )
        if step_time_ms is not None:
            return Training(module, count_parameters(made), batch, 1e-3 * step_time_ms / batch, bits)
        workload = measure_workload(module, made, inputs)
    training = Training.of(workload, batch, server, bits)
    return training if step_time_ms is None else replace(training, sample_s=1e-3 * step_time_ms / batch)


def _compared(
    training: "Training", nodes: int, network: "Network", names: Sequence[str] | None, design: "NetworkDesign", *,
    overlap: bool,
) -> "Comparison":  # fmt: skip
    from optinc_hw.interconnect.comparison import compare as compare_schedules

    return compare_schedules(training, nodes, network, names=names, overlap=overlap, design=design)


def _content(compared: "Comparison", design: "NetworkDesign") -> dict[str, Any]:
    rows = [
        {
            "schedule": row.name, "network": row.kind, "steps": row.steps, "links": row.lanes, "traffic": row.traffic,
            "all_reduce_s": row.all_reduce_s, "compute_s": row.step.compute_s, "waiting_s": row.step.exposed_s,
            "step_s": row.step.total_s, "waiting_share": row.step.share, "speed_up": row.speed_up,
            "all_reduce_J": row.all_reduce_J, "step_J": row.step_J, "batch_of_small_share": row.batch_of_small_share,
            "batch_of_small_gain": row.batch_of_small_gain,
            "optics": None if row.optics is None else {**asdict(row.optics), "total_W": row.optics.total_W},
        }
        for row in compared.rows
    ]  # fmt: skip
    return {
        "nodes": compared.nodes,
        "training": {**asdict(compared.training), "payload_bytes": compared.training.payload_bytes},
        "overlap": compared.overlap,
        "rows": rows,
        "fastest": {group: [asdict(one) for one in ranges] for group, ranges in compared.ranges.items()},
        "optical_network": {
            "name": design.name, "servers": design.servers, "mzis": design.mzis, "columns": design.columns,
        },
        "best": compared.best.name,
        "gain": compared.gain,
        "verdict": compared.verdict,
    }  # fmt: skip


def _draw(
    compared: "Comparison", network: "Network", names: Sequence[str] | None, folder: Path, *, first: bool
) -> None:
    from optinc_hw.interconnect.comparison import (
        build_systems,
        plot_energy,
        plot_shares,
        plot_times,
        plot_winners,
    )

    folder.mkdir(parents=True, exist_ok=True)
    systems = build_systems(compared.nodes, network, names)
    payload, count = compared.training.payload_bytes, compared.nodes
    pictures = {
        f"times_{count}": plot_times(systems, payload),
        f"shares_{count}": plot_shares(compared, systems),
        f"energy_{count}": plot_energy(compared),
    }
    if first:
        pictures["fastest"] = plot_winners(network, payload, names)
    for name, figure in pictures.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=120)
        note(f"picture: {path}")
