"""The command that compares ways of all-reducing on a training job."""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from optinc_hw.cli._options import JsonFlag
from optinc_hw.cli._terminal import note, reported, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        int | None,
        typer.Option(min=1, metavar="SEGMENTS", help="Segments until light is regenerated; default: no limit."),
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

        if plot is not None:
            _make_folder(plot)
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
            suited = _suited(network, optical)
            compared = _compared(training, count, suited, names, optical, overlap=overlap)
            content.append(_content(compared, optical))
            if not as_json:
                tables = comparison_tables(compared, optical, MeshLoss(), LinkBudget())
                show(False, {}, *tables)
                typer.echo(f"{compared.verdict}\n")
            if plot is not None:
                _draw(compared, suited, names, plot)
        if plot is not None:
            largest = network_design(_MOST_NODES, bits, design)
            _draw_winners(_suited(network, largest), training.payload_bytes, names, plot)
        if as_json:
            show(True, {"comparisons": content})
        note("times are those of models with stated assumptions: docs/explanation/worth_it.md")


def network_design(nodes: int, bits: int, design: Design) -> "NetworkDesign | None":
    """Return the network that serves N servers, or that cascades are made of; None if none has so many bits."""
    from optinc_hw.interconnect.comparison import NetworkDesign
    from optinc_hw.onn import SCENARIOS, CellChain, build_cell

    if design == "chain":
        divisor, servers = (4, 4) if nodes <= 4 else (16, 16)
        chain = CellChain(build_cell(divisor), servers, bits)
        return NetworkDesign("chain of cells", servers, bits, chain.sizes, frozenset(), chain.mzis("svd"), chain.count)
    fitting = [one for one in SCENARIOS if one.bits >= bits]
    if not fitting:
        return None
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
        workload = find_workload("resnet50" if model is None else model)
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
    training: "Training", nodes: int, network: "Network", names: Sequence[str] | None, design: "NetworkDesign | None",
    *, overlap: bool,
) -> "Comparison":  # fmt: skip
    from optinc_hw.interconnect.comparison import compare as compare_schedules

    return compare_schedules(training, nodes, network, names=names, overlap=overlap, design=design)


def _suited(network: "Network", design: "NetworkDesign | None") -> "Network":
    return replace(network, fan_in=None if design is None else design.servers)


def _content(compared: "Comparison", design: "NetworkDesign | None") -> dict[str, Any]:
    rows = [
        {
            "schedule": row.name, "network": row.kind, "known": row.known, "steps": row.steps,
            "links": row.lanes, "traffic": row.traffic,
            "all_reduce_s": row.all_reduce_s, "compute_s": row.step.compute_s, "waiting_s": row.step.exposed_s,
            "step_s": row.step.total_s, "waiting_share": row.step.share, "speed_up": row.speed_up,
            "all_reduce_J": row.all_reduce_J, "step_J": row.step_J,
            "batch_of_small_share": _finite(row.batch_of_small_share),
            "batch_of_small_gain": _finite(row.batch_of_small_gain),
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
        "optical_network": None if design is None else {
            "name": design.name, "servers": design.servers, "bits": design.bits, "mzis": design.mzis,
            "columns": design.columns,
        },
        "best": compared.best.name,
        "gain": compared.gain,
        "verdict": compared.verdict,
    }  # fmt: skip


def _finite(batch: float) -> float | None:
    """Return a batch for JSON, which has no infinity: null stands for it."""
    return batch if batch < math.inf else None


def _make_folder(folder: Path) -> None:
    from optinc_hw.errors import ComparisonError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ComparisonError(f"folder {folder} for pictures cannot be made ({error}); name another") from error


def _draw(compared: "Comparison", network: "Network", names: Sequence[str] | None, folder: Path) -> None:
    from optinc_hw.interconnect.comparison import build_systems, plot_energy, plot_shares, plot_times

    systems = build_systems(compared.nodes, network, names)
    count = compared.nodes
    _save(plot_times(systems, compared.training.payload_bytes), folder / f"times_{count}.png")
    _save(plot_shares(compared, systems), folder / f"shares_{count}.png")
    if any(row.energy is not None for row in compared.rows):
        _save(plot_energy(compared), folder / f"energy_{count}.png")
    else:
        without = ", ".join(row.name for row in compared.rows)
        note(f"no picture of energies: that of {without} is not known for {count} servers")


def _draw_winners(network: "Network", payload: float, names: Sequence[str] | None, folder: Path) -> None:
    from optinc_hw.errors import ComparisonError
    from optinc_hw.interconnect.comparison import plot_winners

    try:
        figure = plot_winners(network, payload, names)
    except ComparisonError as error:
        note(f"no picture of the fastest: {error}")
    else:
        _save(figure, folder / "fastest.png")


def _save(figure: "Figure", path: Path) -> None:
    from optinc_hw.errors import ComparisonError

    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ComparisonError(f"picture {path} cannot be written ({error}); name another folder") from error
    note(f"picture: {path}")
