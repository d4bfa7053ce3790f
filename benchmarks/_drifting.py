"""Drift between two sessions: the record of a bare mesh is corrected from few readings, and judged again."""

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from _harness import Row, at_most, figure
from _judge import TARGETS, Case, Judge

from calibration import CalibrationRecord, recalibrate
from optinc_hw.errors import CalibrationError

PER_PORT, FEW_PER_PORT = 6, 2
"""Readings per port of a correction, and of one that is to be refused, or as good."""
GOAL = 1e-4
"""Largest excess of 1 - F over the floor."""


@dataclass(frozen=True)
class Drifted:
    """What a correction reached on one chip, beside the floor of the drifted chip, and one with too few readings.

    A refused correction counts as a fidelity of nothing.
    """

    readings: int
    seconds: float
    before_tvd: float
    tvd: float
    lost: np.ndarray
    floor: np.ndarray
    few_refused: bool
    few_over: float
    refusal: str = ""

    def __str__(self) -> str:
        if self.refusal:
            return f"      {self.refusal}"
        few = "refused" if self.few_refused else f"taken, 1 - F {self.few_over:.1e} over the floor"
        return (
            f"      drift: {self.readings} readings, {self.seconds:.1f} CPU s, held-out TVD {self.before_tvd:.1%} "
            f"before, {self.tvd:.3%} after; worst 1 - F {self.lost.max():.2e}, at most {self.over:.1e} over the floor; "
            f"{FEW_PER_PORT} readings a port: {few}"
        )

    @property
    def over(self) -> float:
        """Largest excess of 1 - F over the floor."""
        return float(np.max(self.lost - self.floor))


def drift_of(seed: int) -> Mapping[str, Any]:
    """Resistances 2 % lower, efficiencies 0.1 % higher with a scatter of 0.3 %, and 0.3 rad rms on every arm."""
    return {
        "resistance_change": -0.02, "efficiency_change": 0.001, "efficiency_spread": 0.003, "offset_rms_rad": 0.3,
        "seed": 1000 + seed,
    }  # fmt: skip


def drifted(case: Case, seed: int, record: CalibrationRecord) -> Drifted:
    """Let a chip drift, correct its record on the bench and judge it."""
    judge, drift = Judge(case, seed), drift_of(seed)
    judge.drift(drift)
    before_tvd, _ = judge.held_out(record)
    floor = judge.haar(judge.truth, judge.law, seed)[:, 0]

    def corrected(per_port: int) -> CalibrationRecord:
        with case.bench(seed, drift) as bench:
            return recalibrate(bench, record, readings=per_port * case.ports, seed=seed)

    def lost(found: CalibrationRecord) -> np.ndarray:
        return judge.haar(found.twin(), (found.resistance_ohm, found.resistance_beta_per_w), seed)[:, 0]

    begun = time.process_time()
    try:
        found = corrected(PER_PORT)
    except CalibrationError as error:
        return Drifted(0, np.nan, before_tvd, before_tvd, np.ones(TARGETS), floor, True, np.nan, str(error))
    seconds = time.process_time() - begun
    tvd, _ = judge.held_out(found)
    try:
        few = float(np.max(lost(corrected(FEW_PER_PORT)) - floor))
    except CalibrationError:
        few = np.nan
    return Drifted(found.quality.readings, seconds, before_tvd, tvd, lost(found), floor, bool(np.isnan(few)), few)


def drift_rows(name: str, case: Case, found: list[Drifted]) -> Iterator[Row]:
    """Rows of all chips whose records were corrected."""
    lead = f"{name}, drift"
    yield at_most(f"{lead}: worst 1 - F over the floor", max(one.over for one in found), "", GOAL)
    yield at_most(f"{lead}: most readings", max(one.readings for one in found), "", PER_PORT * case.ports)
    yield at_most(f"{lead}: corrections refused", sum(bool(one.refusal) for one in found), "", 0)
    yield figure(f"{lead}: worst held-out TVD before", max(one.before_tvd for one in found), "")
    yield figure(f"{lead}: worst held-out TVD", max(one.tvd for one in found), "")
    yield figure(f"{lead}: median CPU time", statistics.median(one.seconds for one in found), "s")
    few = f"{lead}, {FEW_PER_PORT} readings a port"
    yield figure(f"{few}: refused", sum(one.few_refused for one in found), "")
    taken = max((one.few_over for one in found if not one.few_refused), default=0.0)
    yield at_most(f"{few}: worst 1 - F over the floor where not refused", taken, "", GOAL)
