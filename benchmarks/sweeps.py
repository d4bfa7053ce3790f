"""Sweeps and readings that the start of a bare mesh's calibration takes, against the number of ports.

``python benchmarks/sweeps.py`` prints a table, ``--figure FILE`` draws it; ``--ports 4 8 12`` and ``--chips N`` choose
the meshes. A sweep is one list of settings, measured without a look at its readings; a reading is one setting with one
lit port and all outputs. Beside are what one heater at a time would take: a sweep of ``POINTS`` readings for each.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PORTS = (4, 6, 8, 12, 16, 20)
POINTS = 8


@dataclass(frozen=True)
class Taken:
    """Medians over chips of sweeps and readings."""

    ports: int
    theta_sweeps: float
    phi_sweeps: float
    theta_readings: float
    phi_readings: float
    unknown: int

    @property
    def heaters(self) -> int:
        return self.ports * (self.ports - 1)


def taken(preset: str, ports: int, chips: int) -> Taken:
    """Run starts on hidden chips and count."""
    import numpy as np
    from _direct import DirectProbe

    from calibration._start import find_start
    from calibration._twin_fit import NoiseModel

    counts, unknown = [], 0
    for seed in range(chips):
        probe = DirectProbe(preset, ports, seed)
        noise = NoiseModel(probe.effects.noise_relative, probe.effects.noise_floor_w)
        start = find_start(probe, np.random.default_rng(seed), noise, lambda *_: None)
        unknown += sum(not verdict.good for verdict in start.verdicts)
        outputs = [size for stage, size in probe.sweeps if stage == "start_theta"]
        others = [size for stage, size in probe.sweeps if stage != "start_theta"]
        counts.append((len(outputs), len(others), sum(outputs), sum(others)))
    return Taken(ports, *(statistics.median(column) for column in zip(*counts, strict=True)), unknown)


def draw(preset: str, rows: Sequence[Taken]) -> "Figure":
    """Draw sweeps (left) and readings (right) against ports, logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    sweeps, readings = figure.subplots(1, 2)
    ports = [row.ports for row in rows]
    for axes, kind, alone in ((sweeps, "sweeps", 1), (readings, "readings", POINTS)):
        for phase, label in (("theta", "internal phases"), ("phi", "external phases, check")):
            axes.plot(ports, [getattr(row, f"{phase}_{kind}") for row in rows], "o-", label=label)
        axes.plot(ports, [alone * row.heaters for row in rows], "k--", label="one heater at a time")
        axes.set(xlabel="ports n", ylabel=f"{kind} of the start", xscale="log", yscale="log", xticks=ports)
        axes.set_xticks(ports, labels=[str(n) for n in ports], minor=False)
        axes.set_xticks([], minor=True)
        axes.grid(visible=True, which="major", alpha=0.3)
    sweeps.legend()
    figure.suptitle(f"Start of a bare mesh's calibration, hidden chips of {preset}, medians")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Sweeps and readings of starts on hidden bare meshes.")
    parser.add_argument("--preset", default="method_a", help="preset of the hidden chips (default method_a)")
    parser.add_argument("--ports", type=int, nargs="+", default=PORTS, help="sizes of the meshes")
    parser.add_argument("--chips", type=int, default=3, help="chips of each size (default 3)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the table to FILE")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, or its calibration.py would be the package of that name
    arguments = parser.parse_args()
    print("ports  heaters  sweeps theta  phi  readings theta   phi  heaters unknown (all chips)")
    rows = []
    for ports in arguments.ports:
        rows.append(row := taken(arguments.preset, ports, arguments.chips))
        print(
            f"{ports:5}  {row.heaters:7}  {row.theta_sweeps:12g}  {row.phi_sweeps:3g}  {row.theta_readings:14g}  "
            f"{row.phi_readings:4g}  {row.unknown:7}",
            flush=True,
        )
    if arguments.figure:
        draw(arguments.preset, rows).savefig(arguments.figure)


if __name__ == "__main__":
    main()
