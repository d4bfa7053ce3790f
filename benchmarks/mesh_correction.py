"""Fidelity of meshes with coupler errors: uncorrected, corrected MZI by MZI, and refined, beside published results.

``python benchmarks/mesh_correction.py`` prints a table and what others reached, ``--json FILE`` writes every figure,
``--quick`` takes 10 chips instead of 100. Every chip has its own Haar-random target and independent normal errors of
both splitting angles of every MZI; sigma is in rad (0.02 rad is 2 % of amplitude), seeds are those of the table.
"""

import argparse
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STAGES = ("uncorrected", "locally corrected", "refined")
AGREES = 1.15  # samples of 100 chips scatter by a few per cent, the published ones were smaller


@dataclass(frozen=True)
class Setup:
    """Chips of one kind; ``published`` has (E, F) uncorrected and locally corrected (simulated, QPG-MIT/meshes)."""

    ports: int
    sigma: float
    chips: int
    seed: int
    published: tuple[tuple[float, float], tuple[float, float]]

    @property
    def name(self) -> str:
        return f"{self.ports} ports, coupler errors of {self.sigma:g} rad"


FULL = (
    Setup(64, 0.02, 100, 64, ((0.223, 0.975), (0.0197, 0.9998))),
    Setup(64, 0.05, 20, 65, ((0.538, 0.855), (0.125, 0.992))),
    Setup(32, 0.02, 100, 32, ((0.157, 0.988), (0.0094, 0.99996))),
)
QUICK = (Setup(64, 0.02, 10, 64, ((0.223, 0.975), (0.0197, 0.9998))),)

ELSEWHERE = """
Published, for comparison
| what | result |
| --- | --- |
| Bandyopadhyay, Hamerly, Englund 2021: local correction, couplers known | exact where every MZI reaches its split |
| Hamerly et al. 2022: errors of random couplers, large N | uncorrected sqrt(2 N) sigma, corrected sqrt(2/3) N sigma^2 |
| MIT 6-mode chip, 500 Haar matrices, uncorrected | F = 0.900 +- 0.031 measured |
| the same with crosstalk and coupler correction (FICONN, 2024) | F = 0.987 +- 0.007 measured |
| 12-mode chip, couplers at 56.7 %, fitted model | F = 0.997 +- 0.0008 measured |
F is |Tr(U^dagger S)| / N everywhere, 1 - E^2 / 2 for a lossless mesh.
""".strip()


@dataclass(frozen=True)
class Outcome:
    """Distances E (chips,) by stage, CPU seconds a chip, and how many chips a stage made worse."""

    setup: Setup
    distances: tuple[Sequence[float], ...]
    seconds: tuple[float, float, float]
    worse: int


def run(setup: Setup) -> Outcome:
    import numpy as np

    from optinc_hw.photonics import MeshImperfections, RectangularLayout, haar_unitary, program_mesh

    rng, layout = np.random.default_rng(setup.seed), RectangularLayout(setup.ports)
    program_mesh(np.eye(setup.ports), layout)  # compiles the kernels
    found, local_s, refined_s, worse = [], 0.0, 0.0, 0
    for _ in range(setup.chips):
        target = haar_unitary(setup.ports, rng)
        eta = math.pi / 4 + setup.sigma * rng.standard_normal((2, len(layout.mzis)))
        flaws = MeshImperfections(eta[0], eta[1], np.ones(len(layout.mzis)))
        begin = time.process_time()
        local = program_mesh(target, layout, flaws, refine=False)
        middle = time.process_time()
        refined = program_mesh(target, layout, flaws)
        local_s, refined_s = local_s + middle - begin, refined_s + time.process_time() - middle
        stages = (refined.uncorrected_residual, local.corrected_residual, refined.residual)
        found.append([distance(residual) for residual in stages])
        worse += local.residual > local.uncorrected_residual or refined.residual > local.residual
    chips = setup.chips
    return Outcome(setup, tuple(zip(*found, strict=True)), (0.0, local_s / chips, refined_s / chips), worse)


def distance(residual: float) -> float:
    """Distance ``|S - U|_F / sqrt(N)`` of a lossless mesh at the best common phase, from that at the best scale."""
    return math.sqrt(2.0 * residual**2 / (1.0 + residual**2 + math.sqrt(1.0 + residual**2)))


def overlap(distance: float) -> float:
    """``F = |Tr(U^dagger S)| / N``: the square root of `optinc_hw.photonics.fidelity`."""
    return 1.0 - distance**2 / 2.0


def outcome_rows(outcome: Outcome) -> list[dict[str, object]]:
    from _harness import at_most, figure

    setup, rows = outcome.setup, []
    for stage, distances in zip(STAGES, outcome.distances, strict=True):
        fidelities = [overlap(distance) for distance in distances]
        case = f"{setup.name}, {setup.chips} chips, {stage}"
        mean = sum(distances) / len(distances)
        goals = {STAGES[1]: AGREES * setup.published[1][0], STAGES[2]: sum(outcome.distances[1]) / setup.chips}
        case_mean = f"{case}: distance E, mean"
        goal = goals.get(stage)
        rows.append(figure(case_mean, mean, "") if goal is None else at_most(case_mean, mean, "", goal))
        rows.append(figure(f"{case}: distance E, worst", max(distances), ""))
        rows.append(figure(f"{case}: fidelity |Tr|/N, mean", sum(fidelities) / len(fidelities), ""))
        rows.append(figure(f"{case}: fidelity |Tr|/N, worst", min(fidelities), ""))
    rows.append(at_most(f"{setup.name}: chips that a stage made worse", outcome.worse, "chips", 0))
    rows.append(
        figure(f"{setup.name}: local correction, decomposition included", outcome.seconds[1], "s of CPU a chip")
    )
    rows.append(figure(f"{setup.name}: refinement, all included", outcome.seconds[2], "s of CPU a chip"))
    return rows


def correction_rows(quick: bool) -> list[dict[str, object]]:
    """Run every setup, print the tables and return the figures."""
    outcomes = [run(setup) for setup in (QUICK if quick else FULL)]
    print_table(outcomes)
    return [row for outcome in outcomes for row in outcome_rows(outcome)]


def print_table(outcomes: Sequence[Outcome]) -> None:
    head = (
        "N",
        "sigma",
        "chips",
        "seed",
        "stage",
        "E mean",
        "E worst",
        "F mean",
        "F worst",
        "published E -> F",
        "CPU s",
    )
    print("Imperfect meshes: E = |S - U|_F / sqrt(N) at the best common phase, F = |Tr(U^dagger S)| / N")
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for outcome in outcomes:
        setup = outcome.setup
        for stage, distances, seconds in zip(STAGES, outcome.distances, outcome.seconds, strict=True):
            fidelities = [overlap(distance) for distance in distances]
            published = dict(zip(STAGES, setup.published, strict=False)).get(stage)
            beside = "–" if published is None else f"{published[0]:g} -> {published[1]:g}"
            cells = (
                *(setup.ports, setup.sigma, setup.chips, setup.seed, stage),
                *(f"{sum(distances) / len(distances):.5f}", f"{max(distances):.5f}"),
                *(f"{sum(fidelities) / len(fidelities):.6f}", f"{min(fidelities):.6f}", beside, f"{seconds:.3f}"),
            )
            print("| " + " | ".join(str(cell) for cell in cells) + " |")
    print(f"\n{ELSEWHERE}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fidelity of meshes with coupler errors, corrected and refined.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="10 chips of 64 ports only")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    import torch
    from _harness import row_table, write_rows

    torch.set_num_threads(1)
    rows = correction_rows(arguments.quick)
    print(row_table([row for row in rows if row["goal"] is not None]))
    if arguments.json is not None:
        write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
