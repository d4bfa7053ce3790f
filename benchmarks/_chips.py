"""Cases of the benchmark of calibrations: chips, what is to be reached, and judges who know the truth."""

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from _harness import Row, at_most, figure
from _truth import true_twin

from calibration import CalibrationRecord, calibrate
from optinc_hw import Bench
from optinc_hw.errors import OptincError
from optinc_hw.photonics import (
    ChipModel,
    TwinParameters,
    fidelity,
    haar_unitary,
    power_from_voltage,
    program_unitary,
    voltage_from_power,
)
from simulated_instruments import HiddenChip, HiddenEffects

LASER_W = 0.010
WAVELENGTH_M = 1550e-9
TARGETS = 6
HELD_OUT = 100


@dataclass(frozen=True)
class Case:
    """A kind of chips, the budget of readings, and what is to be reached."""

    preset: str
    ports: int
    budget: int
    goals: Mapping[str, float]
    permutations: bool = False
    changes: Mapping[str, float] = field(default_factory=dict)


CASES = {
    "6 ports": Case("method_a", 6, 300, {"excess": 1.1, "slack": 1e-4}),
    "6 ports, 800 readings": Case("method_a", 6, 800, {"excess": 1.1, "slack": 1e-4, "chi": 1.5}),
    "12 ports, reflectivity 0.567": Case(
        "method_b", 12, 2000, {"excess": 1.1, "slack": 1e-4, "median": 0.999, "target_tvd": 0.002, "tvd": 0.002}
    ),
    "20 ports": Case("method_a", 20, 8000, {"excess": 1.2, "slack": 2e-4, "haar": 0.998}, permutations=True),
    "20 ports, reflectivity 0.567": Case(
        "method_b", 20, 8000, {"excess": 1.2, "slack": 2e-4, "haar": 0.998}, permutations=True
    ),
    "32 ports": Case("method_a", 32, 20000, {"excess": 2.0, "slack": 0.0}),
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


class Judge:
    """A twin brother of the hidden chip on the bench, whose truth is known."""

    def __init__(self, case: Case, seed: int) -> None:
        effects = HiddenEffects.preset(case.preset, **case.changes)
        self.chip = HiddenChip.from_seed(seed, case.ports, inputs="ports", receivers="power", effects=effects)
        self.chip.set_laser(LASER_W, WAVELENGTH_M)
        self.truth = true_twin(self.chip, LASER_W)
        self.law = self.chip.parameters.resistance_ohm, self.chip.parameters.resistance_growth_per_w
        self.noise = effects.noise_relative, effects.noise_floor_w
        self.max_power_w = 3.0 * effects.pi_power_w

    def matrix(self, volts: np.ndarray) -> np.ndarray:
        self._heat(volts)
        return self.chip.transfer_matrix()

    def readings(self, volts: np.ndarray, port: int) -> np.ndarray:
        self._heat(volts)
        self.chip.set_lit_port(port)
        return self.chip.measure(range(self.chip.layout.ports), self.chip.effects.noise_averaging_s)

    def _heat(self, volts: np.ndarray) -> None:
        self.chip.set_heater_voltages(dict(enumerate(volts)))
        self.chip.clock.sleep(1.0)

    def lost(self, twin: TwinParameters, law: tuple[np.ndarray, np.ndarray], target: np.ndarray) -> tuple[float, float]:
        """1 - F and the total variation distance of a target that is programmed with a twin."""
        programmed = program_unitary(twin, target, self.max_power_w)
        made = self.matrix(voltage_from_power(programmed.power_w, *law))
        made = made / np.linalg.norm(made, axis=0)
        away = 0.5 * np.abs(np.abs(made) ** 2 - np.abs(target) ** 2).sum(axis=0).mean()
        return 1.0 - fidelity(target, made, gauge="ports"), float(away)

    def held_out(self, record: CalibrationRecord) -> tuple[float, float]:
        """Total variation distance and residual over noise of predictions at random settings."""
        twin, rng = record.twin(), np.random.default_rng(99)
        model = ChipModel.from_parameters(twin)
        tvd, squares = [], []
        for k in range(HELD_OUT):
            power = rng.uniform(0.0, 2.0 * np.pi / self.truth.efficiency)
            volts, port = voltage_from_power(power, *self.law), k % twin.ports
            seen = self.readings(volts, port)
            known = power_from_voltage(volts, record.resistance_ohm, record.resistance_beta_per_w)
            told = model.readings(twin, known[None], np.array([port]))[0]
            tvd.append(0.5 * np.abs(told / told.sum() - seen / seen.sum()).sum())
            squares.append(np.mean(((told - seen) / np.hypot(self.noise[0] * seen, self.noise[1])) ** 2))
        return float(np.mean(tvd)), float(np.sqrt(np.mean(squares)))


def judged(case: Case, seed: int) -> Judged:
    """Calibrate one chip through a bench and judge the record."""
    judge = Judge(case, seed)
    chip = {"preset": case.preset, "ports": case.ports, "seed": seed, "effects": dict(case.changes)}
    nominal = HiddenEffects.preset(case.preset, **case.changes)
    design = {"p_pi_w": nominal.pi_power_w, "resistance_ohm": nominal.heater_resistance_ohm}
    with Bench.simulated(case.ports, seed, kind="mesh", chip=chip, **design) as bench:
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
    )  # fmt: skip


def case_rows(name: str, case: Case, chips: int) -> Iterator[Row]:
    print(f"{name}: {chips} chips, preset {case.preset}, at most {case.budget} readings")
    print(
        "chip  readings  CPU s  held-out TVD  chi    1-F median  worst     floor median  worst     target TVD (floor)"
    )
    found, failed = [], []
    for seed in range(chips):
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
    for key in ("median", "haar"):
        if key in goals:
            lost = max(float(np.median(one.lost)) for one in found)
            yield at_most(f"{name}: worst median 1 - F of a chip", lost, "", 1.0 - goals[key])
    if case.permutations:
        over = max(float(np.max(one.permutations - goals["excess"] * one.permutations_floor)) for one in found)
        yield at_most(f"{name}: worst 1 - F of permutations over {goals['excess']:g} floors", over, "", goals["slack"])
        worst = max(float(one.permutations.max()) for one in found)
        yield at_most(f"{name}: worst 1 - F of permutations", worst, "", 1e-3)
