"""Cases of the benchmark of calibrations: chips, what is to be reached, and what was."""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from _coherent import Coherent, coherent, coherent_rows
from _drifting import Drifted, drift_rows, drifted
from _harness import Row, at_most, figure
from _judge import TARGETS, Case, Judge

from calibration import calibrate
from optinc_hw.errors import OptincError
from optinc_hw.photonics import haar_unitary

CASES = {
    "6 ports": Case("method_a", 6, 300, {"excess": 1.1, "slack": 1e-4}),
    "6 ports, 800 readings": Case("method_a", 6, 800, {"excess": 1.1, "slack": 1e-4, "chi": 1.5}),
    "8 ports": Case("method_a", 8, 800, {"excess": 1.1, "slack": 1e-4}, drift=True),
    "8 ports, coherent light": Case("method_a", 8, 1600, {"excess": 1.1, "slack": 1e-4}, coherent=400),
    "12 ports, reflectivity 0.567": Case(
        "method_b",
        12,
        2000,
        {"excess": 1.1, "slack": 1e-4, "median": 0.999, "target_tvd": 0.002, "tvd": 0.002},
        drift=True,
    ),
    "20 ports": Case("method_a", 20, 8000, {"excess": 1.2, "slack": 2e-4, "haar": 0.998}, permutations=True),
    "20 ports, reflectivity 0.567": Case(
        "method_b", 20, 8000, {"excess": 1.2, "slack": 2e-4, "haar": 0.998}, permutations=True
    ),
    "32 ports": Case("method_a", 32, 10000, {"excess": 2.0, "slack": 0.0}),
}
QUICK = ("6 ports", "6 ports, 800 readings")


@dataclass(frozen=True)
class Judged:
    """What a calibration reached on one chip, beside the floor."""

    readings: int
    seconds: float
    held_out_tvd: float
    held_out_chi: float
    lost: np.ndarray
    floor: np.ndarray
    target_tvd: np.ndarray
    floor_tvd: np.ndarray
    permutations: np.ndarray
    permutations_floor: np.ndarray
    drifted: Drifted | None
    coherent: Coherent | None


def judged(case: Case, seed: int) -> Judged:
    """Calibrate one chip through a bench and judge the record."""
    judge = Judge(case, seed)
    with case.bench(seed) as bench:
        begun = time.process_time()
        record = calibrate(bench, budget=case.budget, seed=seed)
        seconds = time.process_time() - begun
    rng = np.random.default_rng(seed)
    targets = [haar_unitary(case.ports, rng) for _ in range(TARGETS)]
    orders = [np.eye(case.ports)[rng.permutation(case.ports)] for _ in range(2 if case.permutations else 0)]
    law = record.resistance_ohm, record.resistance_beta_per_w
    ours = np.array([judge.lost(record.twin(), law, target) for target in [*targets, *orders]])
    best = np.array([judge.lost(judge.truth, judge.law, target) for target in [*targets, *orders]])
    tvd, chi = judge.held_out(record)
    return Judged(
        record.quality.readings, seconds, tvd, chi, ours[:TARGETS, 0], best[:TARGETS, 0], ours[:TARGETS, 1],
        best[:TARGETS, 1], ours[TARGETS:, 0], best[TARGETS:, 0],
        drifted(case, seed, record) if case.drift else None,
        coherent(case, seed, record) if case.coherent else None,
    )  # fmt: skip


def case_rows(name: str, case: Case, chips: range) -> Iterator[Row]:
    print(f"{name}: chips {chips.start} to {chips.stop - 1}, preset {case.preset}, at most {case.budget} readings")
    print(
        "chip  readings  CPU s  held-out TVD  chi    1-F median  worst     floor median  worst     target TVD (floor)"
    )
    found, failed = [], []
    for seed in chips:
        try:
            one = judged(case, seed)
        except OptincError as error:
            failed.append(f"chip {seed}: {error}")
            print(failed[-1])
            continue
        found.append(one)
        extra = ""
        if case.permutations:
            extra = f"  permutations {one.permutations.max():.2e} ({one.permutations_floor.max():.2e})"
        print(
            f"{seed:4}  {one.readings:8}  {one.seconds:5.1f}  {one.held_out_tvd:12.3%}  {one.held_out_chi:5.2f}  "
            f"{np.median(one.lost):10.2e}  {one.lost.max():8.2e}  {np.median(one.floor):12.2e}  {one.floor.max():8.2e}"
            f"  {one.target_tvd.mean():.2%} ({one.floor_tvd.mean():.2%})" + extra,
            flush=True,
        )
        for more in (one.drifted, one.coherent):
            if more is not None:
                print(more, flush=True)
    return rows_of(name, case, found, failed)


def rows_of(name: str, case: Case, found: list[Judged], failed: list[str]) -> Iterator[Row]:
    yield at_most(f"{name}: chips that failed", len(failed), "", 0)
    if not found:
        return
    goals = case.goals
    over = max(float(np.max(one.lost - goals["excess"] * one.floor)) for one in found)
    yield at_most(f"{name}: worst 1 - F over {goals['excess']:g} floors", over, "", goals["slack"])
    yield figure(f"{name}: median 1 - F", statistics.median(float(np.median(one.lost)) for one in found), "")
    yield figure(f"{name}: median floor", statistics.median(float(np.median(one.floor)) for one in found), "")
    yield at_most(f"{name}: most readings", max(one.readings for one in found), "", case.budget)
    yield figure(f"{name}: median CPU time", statistics.median(one.seconds for one in found), "s")
    worst_tvd, worst_chi = max(one.held_out_tvd for one in found), max(one.held_out_chi for one in found)
    if "tvd" in goals:
        yield at_most(f"{name}: worst held-out TVD", worst_tvd, "", goals["tvd"])
    else:
        yield figure(f"{name}: worst held-out TVD", worst_tvd, "")
    if "chi" in goals:
        yield at_most(f"{name}: worst held-out residual over noise", worst_chi, "", goals["chi"])
    else:
        yield figure(f"{name}: worst held-out residual over noise", worst_chi, "")
    if "target_tvd" in goals:
        beyond = max(float(np.max(one.target_tvd - one.floor_tvd)) for one in found)
        yield at_most(f"{name}: worst target TVD over floor", beyond, "", goals["target_tvd"])
    if "median" in goals:
        lost = float(np.median(np.concatenate([one.lost for one in found])))
        yield at_most(f"{name}: median 1 - F of all chips and targets", lost, "", 1.0 - goals["median"])
    if "haar" in goals:
        lost = max(float(np.median(one.lost)) for one in found)
        yield at_most(f"{name}: worst median 1 - F of a chip", lost, "", 1.0 - goals["haar"])
    if case.permutations:
        over = max(float(np.max(one.permutations - goals["excess"] * one.permutations_floor)) for one in found)
        yield at_most(f"{name}: worst 1 - F of permutations over {goals['excess']:g} floors", over, "", goals["slack"])
        worst = max(float(one.permutations.max()) for one in found)
        yield at_most(f"{name}: worst 1 - F of permutations", worst, "", 1e-3)
    corrected = [one.drifted for one in found if one.drifted is not None]
    if corrected:
        yield from drift_rows(name, case, corrected)
    lit = [one.coherent for one in found if one.coherent is not None]
    if lit:
        yield from coherent_rows(name, lit)
