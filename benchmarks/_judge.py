"""Judges of calibrations: a twin brother of the hidden chip on the bench, whose truth is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from _truth import true_twin

from calibration import CalibrationRecord
from optinc_hw import Bench
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
    """A kind of chips, the budget of readings, and what is to be reached.

    With ``drift`` the chips drift after the calibration and their records are corrected; ``coherent`` readings with
    light in all ports are added, if any, to predict such light.
    """

    preset: str
    ports: int
    budget: int
    goals: Mapping[str, float]
    permutations: bool = False
    changes: Mapping[str, float] = field(default_factory=dict)
    drift: bool = False
    coherent: int = 0

    @property
    def effects(self) -> HiddenEffects:
        return HiddenEffects.preset(self.preset, **self.changes)

    def bench(self, seed: int, drift: Mapping[str, Any] | None = None) -> Bench:
        """Open the bench of a chip, as it was made or after a drift."""
        chip = {"preset": self.preset, "ports": self.ports, "seed": seed, "effects": dict(self.changes)}
        chip |= {} if drift is None else {"drift": dict(drift)}
        nominal = self.effects
        design = {"p_pi_w": nominal.pi_power_w, "resistance_ohm": nominal.heater_resistance_ohm}
        return Bench.simulated(self.ports, seed, kind="mesh", chip=chip, **design)


class Judge:
    """A twin brother of the hidden chip on the bench, whose truth is known."""

    def __init__(self, case: Case, seed: int) -> None:
        effects = case.effects
        self.chip = HiddenChip.from_seed(seed, case.ports, inputs="ports", receivers="power", effects=effects)
        self.chip.set_laser(LASER_W, WAVELENGTH_M)
        self._learn()
        self.noise = effects.noise_relative, effects.noise_floor_w
        self.max_power_w = 3.0 * effects.pi_power_w

    def drift(self, drift: Mapping[str, Any]) -> None:
        """Let the chip drift."""
        self.chip.drift(**drift)
        self._learn()

    def _learn(self) -> None:
        self.truth = true_twin(self.chip, LASER_W)
        self.law = self.chip.parameters.resistance_ohm, self.chip.parameters.resistance_growth_per_w

    def matrix(self, volts: np.ndarray) -> np.ndarray:
        self._heat(volts)
        return self.chip.transfer_matrix()

    def readings(self, volts: np.ndarray, light: int | np.ndarray) -> np.ndarray:
        """Read all detectors with one lit port, or with coherent fields (n,) before all of them."""
        self._heat(volts)
        if isinstance(light, np.ndarray):
            self.chip.light_ports(light)
        else:
            self.chip.set_lit_port(light)
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

    def haar(self, twin: TwinParameters, law: tuple[np.ndarray, np.ndarray], seed: int) -> np.ndarray:
        """Return 1 - F and the total variation distance (TARGETS, 2) of Haar-random targets."""
        rng = np.random.default_rng(seed)
        return np.array([self.lost(twin, law, haar_unitary(twin.ports, rng)) for _ in range(TARGETS)])

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
