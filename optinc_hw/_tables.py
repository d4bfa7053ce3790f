"""Tables that the command line shows to people; made here, printed there."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from calibration import CalibrationRecord, Correction, Effect, ProgramVerification, RunReport, Verification
    from optinc_hw._doctor import Diagnosis
    from optinc_hw.bench import BenchReport, RecordRow, ServedBench
    from optinc_hw.demo import DemoSummary
    from optinc_hw.interconnect.comparison import Comparison, LinkBudget, MeshLoss, NetworkDesign
    from optinc_hw.onn import CellChain, Composition, Enumeration, OpticalNetwork

_MOST_LIMITING = 3
_MOST_ERRORS = 5


def _table(title: str, *columns: str, numbers: Iterable[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def wiring_tables(report: "BenchReport") -> tuple[Table, ...]:
    """Return mesh, instruments, heaters, detectors and single input ports of a checked bench folder."""
    mesh = _table("Mesh", "property", "value")
    mesh.add_row("layout", report.mesh.layout)
    mesh.add_row("MZIs", f"{report.mesh.mzis} in {report.mesh.columns} columns")
    mesh.add_row("missing MZIs", ", ".join(report.mesh.missing) or "none")
    stuck = ", ".join(f"{name} at {value:g} rad" for name, value in report.mesh.stuck_rad.items())
    mesh.add_row("stuck phases", stuck or "none")
    mesh.add_row("inputs", "one port at a time" if report.inputs else "modulators")
    mesh.add_row("receivers", report.receivers)
    instruments = _table("Instruments", "name", "role", "driver", "address", "size", "used", numbers=("size", "used"))
    for row in report.instruments:
        size = "" if row.size is None else str(row.size)
        texts = map(escape, (row.name, row.role or "not used", row.driver, row.address or ""))
        instruments.add_row(*texts, size, str(row.used))
    limits = ("max V", "max mA", "max mW")
    heaters = _table("Heaters", "heater", "instrument", "channel", *limits, numbers=("channel", *limits))
    for wire in report.heaters:
        shown = (
            "" if value is None else f"{scale * value:g}"
            for value, scale in ((wire.max_voltage_v, 1.0), (wire.max_current_a, 1e3), (wire.max_power_w, 1e3))
        )
        heaters.add_row(escape(wire.element), escape(wire.instrument), str(wire.channel), *shown)
    switched = any(wire.switch for wire in report.detectors)
    more = ("through",) if switched else ()
    detectors = _table("Photodiodes", "detector", "instrument", "port", *more, numbers=("port",))
    for wire in report.detectors:
        way = (escape(wire.switch or ""),) if switched else ()
        detectors.add_row(escape(wire.element), escape(wire.instrument), str(wire.channel), *way)
    if not report.inputs:
        return mesh, instruments, heaters, detectors
    inputs = _table("Input ports", "port", "lit through", numbers=("port",))
    for lit in report.inputs:
        inputs.add_row(str(lit.port), escape(lit.switch or "the laser is fixed to it"))
    return mesh, instruments, heaters, detectors, inputs


def served_table(served: "ServedBench") -> Table:
    """Return the addresses of simulated instruments."""
    table = _table("Simulated instruments", "name", "address", "pseudo-terminal")
    for name, address in served.addresses.items():
        table.add_row(escape(name), escape(address), escape(served.terminals.get(name, "")))
    return table


def demo_tables(summary: "DemoSummary") -> tuple[Table, ...]:
    """Return criteria, symbol error rates side by side, training and times of a demo."""
    criteria = _table("Criteria", "figure", "found", "wanted", "met", numbers=("found",))
    for criterion in summary.criteria:
        met = "[green]yes[/]" if criterion.passed else "[bold red]no[/]"
        criteria.add_row(criterion.name, f"{criterion.value:.4g}", criterion.requirement, met)
    rates = _table("Symbol error rate", "where", "rate", "elements", numbers=("rate", "elements"))
    for where, rate, count in (
        ("bench, calibrated", summary.bench_symbol_error_rate, summary.bench_elements),
        ("bench, not calibrated", summary.uncalibrated_symbol_error_rate, summary.uncalibrated_elements),
        ("twin, same elements", summary.twin_sample_symbol_error_rate, summary.bench_elements),
        ("twin, all inputs", summary.twin_symbol_error_rate, summary.twin_inputs),
    ):
        rates.add_row(where, f"{rate:.2g}", str(count))
    training = _table("Test accuracy", "averaging", "mean", "each seed", numbers=("mean",))
    for name, mean, runs in (
        ("optical", summary.accuracy_optical, summary.accuracy_optical_runs),
        ("float", summary.accuracy_float, summary.accuracy_float_runs),
    ):
        training.add_row(name, f"{100 * mean:.2f} %", "  ".join(f"{100 * run:.2f} %" for run in runs))
    times = _table("Time", "stage", "s", numbers=("s",))
    for stage, seconds in summary.seconds.items():
        times.add_row(stage, f"{seconds:.1f}")
    return criteria, rates, training, times


def record_table(record: "CalibrationRecord") -> Table:
    """Return the quality of a calibration."""
    quality = record.quality
    table = _table("Calibration", "figure", "value", numbers=("value",))
    kind = "bare mesh" if record.layout.bare else f"inputs: {record.inputs}, receivers: {record.receivers}"
    table.add_row("chip", f"{record.ports} ports, {kind}")
    table.add_row("kind", "full calibration" if record.provenance.kind == "full" else "correction for drift")
    table.add_row("readings (all detectors each)", str(quality.readings))
    if quality.fit_readings is not None:
        table.add_row("of these in the fit", str(quality.fit_readings))
    table.add_row("noise of a reading, relative", f"{100 * quality.noise_relative:.3f} %")
    table.add_row("noise of a reading, without light", f"{quality.noise_floor_w * 1e9:.2f} nW")
    table.add_row(f"residual over noise ({quality.held_out_settings} settings)", f"{quality.residual_over_noise:.2f}")
    if quality.expected_residual is not None:
        table.add_row("to be expected of so many readings", f"{quality.expected_residual:.2f}")
    if quality.held_out_tvd is not None:
        table.add_row("total variation distance of these", f"{100 * quality.held_out_tvd:.3f} %")
    return table


def report_tables(report: "RunReport") -> tuple[Table, ...]:
    """Return what a run found besides its record: readings by stage, effects, what is unknown, what moved."""
    stages = _table("Readings by stage", "stage", "readings", numbers=("readings",))
    for stage, count in report.readings.items():
        stages.add_row(stage, str(count))
    tables = [stages]
    if report.effects:
        tables.append(_effects_table(report.effects))
    if report.heaters or report.dark_detectors or report.doubt:
        doubts = _table("Not understood at the start", "what", "why")
        for heater, reason in report.heaters.items():
            doubts.add_row(heater, escape(reason))
        for detector in report.dark_detectors:
            doubts.add_row(detector, "shows no light")
        if report.doubt:
            doubts.add_row("the whole", escape(report.doubt))
        tables.append(doubts)
    if report.abilities:
        able = _table("What the chip can still do", "in words")
        for line in report.abilities:
            able.add_row(escape(line))
        tables.append(able)
    if report.correction is not None:
        tables.append(_correction_table(report.correction))
    if report.unseen:
        unseen = _table("What these data cannot tell", "in words")
        for line in report.unseen:
            unseen.add_row(escape(line))
        tables.append(unseen)
    return tuple(tables)


def _effects_table(effects: "Sequence[Effect]") -> Table:
    numbers = ("on the mean", "+-", "scatter")
    table = _table("Found in the chip", "effect", *numbers, numbers=numbers)
    for effect in effects:
        value, sigma, scatter = (
            "" if number is None else _with_unit(number, effect.unit)
            for number in (effect.value, effect.sigma, effect.scatter)
        )
        table.add_row(effect.name, value if effect.seen else f"not seen: {value}", sigma, scatter)
    return table


def _with_unit(value: float, unit: str) -> str:
    """Write a number of one of the report's units for people."""
    scale, shown = {"1": (1e2, "%"), "W": (1e3, "mW"), "1/rad": (1e2 * math.pi, "% per pi")}.get(unit, (1.0, unit))
    return f"{scale * value:.3g} {shown}"


def _correction_table(correction: "Correction") -> Table:
    table = _table("Drift since the record", "figure", "value", numbers=("value",))
    table.add_row("resistances, common", f"{100 * correction.resistance:+.2f} %")
    table.add_row("efficiencies, common", f"{100 * correction.efficiency:+.2f} %")
    table.add_row("phases, rms", f"{correction.phase_rms_rad:.3f} rad")
    for heater, change in correction.most_rad.items():
        table.add_row(f"  {heater}", f"{change:+.3f} rad")
    table.add_row("residual over noise, before", f"{correction.residual_before:.2f}")
    table.add_row("residual over noise, after", f"{correction.residual_after:.2f}")
    table.add_row("total variation distance, before", f"{100 * correction.tvd_before:.3f} %")
    table.add_row("total variation distance, after", f"{100 * correction.tvd_after:.3f} %")
    return table


def history_table(rows: "Sequence[RecordRow]") -> Table:
    """Return the calibrations of a bench."""
    numbers = ("readings", "residual", "TVD")
    table = _table("Calibrations", "made (UTC)", "file", "in force", "kind", "corrects", *numbers, numbers=numbers)
    files = {row.content_hash: row.file for row in rows if row.content_hash is not None}
    for row in rows:
        if row.problem is not None:
            table.add_row("", escape(row.file), "yes" if row.in_force else "", "[bold red]no record[/]", *[""] * 4)
            continue
        parent = "" if row.parent_hash is None else files.get(row.parent_hash, row.parent_hash[-8:])
        tvd = "" if row.held_out_tvd is None else f"{100 * row.held_out_tvd:.3f} %"
        table.add_row(
            f"{row.created_utc:%Y-%m-%d %H:%M:%S}", escape(row.file), "yes" if row.in_force else "", row.kind,
            escape(parent), str(row.readings), f"{row.residual_over_noise:.2f}", tvd,
        )  # fmt: skip
    return table


def verification_table(verification: "Verification") -> Table:
    """Return how a record compares with fresh readings."""
    table = _table("Verification", "figure", "value", numbers=("value",))
    table.add_row("settings read", str(verification.settings))
    table.add_row("residual over noise, now", f"{verification.residual_over_noise:.2f}")
    table.add_row("residual over noise, when calibrated", f"{verification.recorded:.2f}")
    if verification.tvd is not None:
        table.add_row("total variation distance, now", f"{100 * verification.tvd:.3f} %")
    table.add_row("age of the record", f"{verification.age_s / 3600.0:.1f} h")
    table.add_row("verdict", "[green]good[/]" if verification.good else "[bold red]no longer good[/]")
    return table


def programming_tables(programming: "ProgramVerification") -> tuple[Table, ...]:
    """Return how well targets come out of the chip, and what limits them."""
    numbers = ("fidelity (twin)", "off target, twin", "off target, chip", "off the twin", "over noise")
    table = _table("Programmed targets", "target", *numbers, "limiting MZIs", numbers=numbers)
    for one in programming.targets:
        distances = (f"{100 * tvd:.3f} %" for tvd in (one.predicted_tvd, one.tvd, one.tvd_from_twin))
        limiting = dict.fromkeys(f"{mzi.column}, {mzi.mode} ({mzi.cause})" for mzi in one.limiting[:_MOST_LIMITING])
        table.add_row(
            escape(one.name), f"{one.fidelity:.5f}", *distances, f"{one.rms_error_over_noise:.2f}", "; ".join(limiting)
        )
    return (table,)


def network_table(
    network: "OpticalNetwork | CellChain", found: "Enumeration | None", proof: "Composition | None"
) -> Table:
    """Return what an optical network is made of, what it did on every input, and what is proved of a chain."""
    from optinc_hw.onn import OpticalNetwork

    table = _table("Network", "property", "value")
    cells = "" if isinstance(network, OpticalNetwork) else f", {network.count} cells"
    table.add_row("sizes", "-".join(map(str, network.sizes)) + cells)
    table.add_row("mean of", f"{network.servers} servers, {network.bits} bits, {network.rounding}")
    counts = (f"{network.mzis(form):,} ({form})" for form in ("svd", "sigma_u", "re_u"))
    table.add_row("MZIs", ", ".join(counts))
    if found is not None:
        table.add_row("inputs", f"{found.inputs:,}")
        table.add_row("wrong", f"{found.wrong:,}")
        table.add_row("margin", f"{found.margin:.3f} of a level")
        for error, count in list(found.errors.items())[:_MOST_ERRORS]:
            table.add_row(f"error {error:+d} LSB", f"{count:,} times")
    if proof is not None:
        table.add_row("any length", escape(str(proof)))
    return table


def comparison_tables(
    compared: "Comparison", design: "NetworkDesign | None", loss: "MeshLoss", budget: "LinkBudget"
) -> tuple[Table, ...]:
    """Return schedules side by side, which one is the fastest at which payload, and what optics it takes."""
    job = compared.training
    numbers = (
        "steps", "links", "traffic", "all-reduce", "step", "waiting", "speed-up", "energy", "a step", "5 %", "1 %"
    )  # fmt: skip
    title = (
        f"{job.name}, {compared.nodes} servers, {job.batch:g} {job.sample}s a server: "
        f"{with_prefix(job.payload_bytes, 'B')} of gradients, {with_prefix(job.compute_s, 's')} of computing"
    )
    rows = _table(title, "schedule", "network", *numbers, numbers=numbers)
    for row in compared.rows:
        joules = ("–" if value is None else with_prefix(value, "J") for value in (row.all_reduce_J, row.step_J))
        rows.add_row(
            row.name, row.kind if row.known else f"{row.kind}, ideal",
            str(row.steps), str(row.lanes), f"{row.traffic:.3f}",
            with_prefix(row.all_reduce_s, "s"), with_prefix(row.step.total_s, "s"), f"{100 * row.step.share:.1f} %",
            f"{row.speed_up:.2f}", *joules, _batch(row.batch_of_small_share), _batch(row.batch_of_small_gain),
        )  # fmt: skip
    rows.caption = (
        "links: most that a server uses at a time; traffic: most that one sends, in payloads; waiting: of computing, "
        "of the step; energy: of all servers, for an all-reduce and for a step; 5 %, 1 %: batch above which waiting or "
        "the gain over the ring is less"
    )
    if not all(row.known for row in compared.rows):
        what = f"of more than {design.servers} inputs of {design.bits} bits" if design else f"of {job.bits} bits"
        rows.caption += f"; ideal: no optical network {what} is known, so that it has no energy (–) and is not chosen"
    rows.caption_justify = "left"
    fastest = _table("Fastest by payload", "of", "schedule", "from", "to", numbers=("from", "to"))
    for group, ranges in compared.ranges.items():
        for number, one in enumerate(ranges):
            ends = (with_prefix(value, "B") for value in (one.low_bytes, one.high_bytes))
            fastest.add_row("" if number else group, one.name, *ends)
    optics = _table("Optics", "property", "value")
    optics.add_row(
        "segments that a wavelength passes", f"{budget.reach} ({budget.available_db:g} dB, {budget.node_db:g} each)"
    )
    if design is None:
        optics.add_row("optical network", f"none is known for {job.bits} bits")
        return (rows, fastest, optics) if compared.ranges else (rows, optics)
    optics.add_row(
        f"optical network ({design.name})", f"{design.servers} servers, {design.bits} bits, {design.mzis:,} MZIs"
    )
    optics.add_row(
        "light crosses", f"{design.columns} columns: {loss.loss_db(design):.1f} dB with averaging and copying, "
        f"{loss.gain_stages(design)} gain stages",
    )  # fmt: skip
    for row in compared.rows:
        if row.optics is not None:
            watts = {"heaters": row.optics.heaters_W, "gain": row.optics.gain_W, "carriers": row.optics.carriers_W}
            power = ", ".join(f"{with_prefix(value, 'W')} of {part}" for part, value in watts.items())
            optics.add_row(row.name, f"{row.optics.networks} networks, {power}")
    return (rows, fastest, optics) if compared.ranges else (rows, optics)


def with_prefix(value: float, unit: str) -> str:
    """Write a positive number with three digits and a prefix from nano to tera."""
    if value <= 0.0:
        return f"0 {unit}"
    power = min(max(math.floor(math.log10(value * (1 + 5e-4)) / 3), -3), 4)
    number = value / 1000.0**power
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {'nµm kMGT'[power + 3].strip()}{unit}"


def _batch(samples: float) -> str:
    """Write a batch; 0 means that it never comes to that, inf that it always does."""
    if samples in (0.0, math.inf):
        return "always" if samples else "never"
    return f"{samples:,.0f}" if samples >= 1 else "below 1"


def doctor_tables(diagnosis: "Diagnosis") -> tuple[Table, ...]:
    """Return packages, serial ports and VISA backends."""
    title = f"optinc-hw {diagnosis.version}, Python {diagnosis.python}, {diagnosis.system}"
    packages = _table(escape(title), "package", "version", "needed for")
    for package in diagnosis.packages:
        missing = "[bold red]missing[/]" if package.missing else "not installed"
        packages.add_row(package.name, package.version or missing, escape(package.needed_for or ""))
    ports = _table("Serial ports", "port", "description", "access")
    for port in diagnosis.serial_ports:
        access = "[green]yes[/]" if port.accessible else "[bold red]no: ask for the group of this device[/]"
        ports.add_row(escape(port.device), escape(port.description), access)
    backends = _table("VISA backends", "name", "usable", "detail")
    for backend in diagnosis.visa_backends:
        backends.add_row(escape(backend.name), "yes" if backend.usable else "no", escape(backend.detail))
    return packages, ports, backends
