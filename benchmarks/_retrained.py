"""Hidden chips for the benchmark of retraining: products without a bench, and twins that are wrong."""

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from _truth import true_homodyne_twin

from calibration import HeaterDac, NetworkJudgement, ProgrammedRunner, RetrainingSettings, judge, retrain
from optinc_hw import Bench
from optinc_hw.bench import BenchTileRunner
from optinc_hw.onn import TilePlan
from optinc_hw.photonics import ChipModel, TwinParameters, voltage_from_power
from optinc_hw.photonics.program import ProgrammedMatrix
from simulated_instruments import HiddenChip, HiddenEffects

LASER_W, WAVELENGTH_M, AVERAGING_S = 0.010, 1550e-9, 0.010
PHASE_RAD, COUPLER_RAD, UNKNOWN_HEAT = 0.05, 0.05, 0.3
LEAST_CROSSTALK, MOST_CROSSTALK = 0.01, 0.05
MAX_POWER_W, DRIVER_BITS, GENERATOR_BITS = 0.055, 8, 16
JUDGED, BENCH_JUDGED = 7_500, 7_500
"""Inputs that a retrained network is judged by, on chips and on benches: four symbols each."""
JUDGED_SEED = 1_000


@dataclass(frozen=True)
class Retrained:
    """What retraining reached on one chip.

    ``twin`` is the symbol error rate on the chip after retraining on the twin alone, NaN where that was not done.
    """

    before: NetworkJudgement
    twin: float
    after: NetworkJudgement
    readings: int
    seconds: float


class HiddenRunner:
    """Runs tiles on a hidden chip whose heaters are all set in steps of their drivers."""

    def __init__(self, chip: HiddenChip, step_v: float, generator_step_v: float) -> None:
        self._chip = chip
        chip.set_laser(LASER_W, WAVELENGTH_M)
        self._law = chip.parameters.resistance_ohm, chip.parameters.resistance_growth_per_w
        self._step_v = np.full(len(chip.layout.heaters), step_v)
        self._step_v[: 2 * chip.layout.modulators] = generator_step_v
        self._programmed: ProgrammedMatrix | None = None
        self.readings = 0

    @property
    def ports(self) -> int:
        return self._chip.layout.ports

    def load(self, programmed: ProgrammedMatrix) -> None:
        self._programmed = programmed

    def forward(self, amplitudes: np.ndarray) -> np.ndarray:
        assert self._programmed is not None
        voltages = voltage_from_power(self._programmed.drive(amplitudes), *self._law)
        voltages = np.rint(voltages / self._step_v) * self._step_v
        rows = []
        for volts in voltages:
            self._chip.set_heater_voltages(dict(enumerate(volts)))
            self._chip.clock.sleep(1.0)
            rows.append(self._chip.measure(range(len(self._chip.layout.detectors)), AVERAGING_S))
        self.readings += len(rows)
        return self._programmed.decode(np.array(rows))


class TwinRunner:
    """Runs tiles on a twin."""

    def __init__(self, twin: TwinParameters) -> None:
        self._twin, self._model = twin, ChipModel.from_parameters(twin)
        self._programmed: ProgrammedMatrix | None = None
        self.ports = twin.ports

    def load(self, programmed: ProgrammedMatrix) -> None:
        self._programmed = programmed

    def forward(self, amplitudes: np.ndarray) -> np.ndarray:
        assert self._programmed is not None
        readings = self._model.readings(self._twin, self._programmed.drive(amplitudes))
        return self._programmed.decode(readings)


def wrong_twin(truth: TwinParameters, rng: np.random.Generator) -> TwinParameters:
    """A twin that knows light and detectors; of the mesh roughly the offsets, and of heat the mean."""
    layout, offset, own = truth.layout, truth.offset.copy(), np.eye(len(truth.offset))
    mesh = np.concatenate([layout.mesh_theta, layout.mesh_phi, layout.output_phase])
    offset[mesh] += PHASE_RAD * rng.standard_normal(len(mesh))
    heat = (truth.crosstalk - own) * (1.0 + UNKNOWN_HEAT * rng.standard_normal(own.shape))
    return replace(
        truth, offset=offset, crosstalk=own + heat, mesh_eta=np.full_like(truth.mesh_eta, np.pi / 4),
        attenuator_eta=np.full_like(truth.attenuator_eta, np.pi / 4),
    )  # fmt: skip


def effects(seed: int) -> HiddenEffects:
    strength = np.random.default_rng(seed).uniform(LEAST_CROSSTALK, MOST_CROSSTALK)
    return HiddenEffects(coupler_spread_rad=COUPLER_RAD, crosstalk_strength=strength, crosstalk_length=1.0)


def step_v(resistance_ohm: float, beta_per_w: float, bits: int) -> float:
    return float(voltage_from_power(MAX_POWER_W, resistance_ohm, beta_per_w)) / 2**bits


def on_chip(plan: TilePlan, ports: int, seed: int, *, twin_alone: bool) -> Retrained:
    """Retrain on a hidden chip, without a bench."""
    chip = HiddenChip.from_seed(seed, ports, effects=effects(seed))
    twin = wrong_twin(true_homodyne_twin(chip, LASER_W), np.random.default_rng(seed))
    nominal = chip.effects.heater_resistance_ohm, chip.effects.resistance_growth_per_w
    step = step_v(*nominal, DRIVER_BITS)
    law = chip.parameters.resistance_ohm, chip.parameters.resistance_growth_per_w
    runner = HiddenRunner(chip, step, step_v(*nominal, GENERATOR_BITS))
    return compared(plan, runner, twin, HeaterDac(step, *law), JUDGED, twin_alone=twin_alone)


def on_bench(plan: TilePlan, ports: int, seed: int, *, twin_alone: bool) -> Retrained:
    """Retrain on a simulated bench, through its instruments."""
    twin_brother = HiddenChip.from_seed(seed, ports, effects=effects(seed))
    truth = true_homodyne_twin(twin_brother, LASER_W)
    names = "coupler_spread_rad", "crosstalk_strength", "crosstalk_length"
    changes = {name: getattr(effects(seed), name) for name in names}
    with Bench.simulated(ports, seed, chip={"ports": ports, "seed": seed, "effects": changes}) as bench:
        twin = wrong_twin(truth, np.random.default_rng(seed))
        interlock = bench.interlock
        step = step_v(float(interlock.resistance_ohm[0]), float(interlock.resistance_beta_per_w[0]), DRIVER_BITS)
        dac = HeaterDac.of_bench(bench, step)
        return compared(plan, BenchTileRunner(bench, twin), twin, dac, BENCH_JUDGED, twin_alone=twin_alone)


def compared(
    plan: TilePlan, runner: ProgrammedRunner, twin: TwinParameters, dac: HeaterDac, judged: int, *, twin_alone: bool
) -> Retrained:
    on_twin = float("nan")
    if twin_alone:
        alone = retrain(plan, TwinRunner(twin), twin, dac, RetrainingSettings(rounds=1), max_power_w=MAX_POWER_W)
        on_twin = judge(plan, [tile.programmed for tile in alone.tiles], runner, seed=JUDGED_SEED).rate
    begun = time.process_time()
    found = retrain(plan, runner, twin, dac, max_power_w=MAX_POWER_W)
    seconds = time.process_time() - begun
    after = judge(plan, [tile.programmed for tile in found.tiles], runner, inputs=judged, seed=JUDGED_SEED)
    taken = sum(tile.readings for tile in found.tiles)
    print(f"{found.before.rate:.3f} -> {on_twin:.4f} (twin alone), {after}, {seconds:.1f} s", flush=True)
    return Retrained(found.before, on_twin, after, taken, seconds)


def in_processes(
    retrained: Callable[..., Retrained], plan: TilePlan, ports: int, first: int, number: int, alone: int
) -> list[Retrained]:
    """Retrain chips ``first`` to ``first + number - 1``, one process a core; the first ones on the twin alone, too."""
    one = partial(_one, retrained, plan, ports, first, alone)
    workers = min(number, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(one, range(number)))


def _one(
    retrained: Callable[..., Retrained], plan: TilePlan, ports: int, first: int, alone: int, number: int
) -> Retrained:
    return retrained(plan, ports, first + number, twin_alone=number < alone)
