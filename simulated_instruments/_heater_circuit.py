"""Currents through the heaters of the hidden chip: resistances that grow, and ground returns that heaters share."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulated_instruments._effects import HiddenEffects
from simulated_instruments._parameters import FloatArray, HiddenParameters

_ROUNDS = 50
_TOLERANCE = 1e-14


@dataclass(frozen=True)
class HeaterCircuit:
    """The heaters' resistances and their ground returns.

    Parameters
    ----------
    resistance_ohm
        (H,) cold resistances, infinite where no current flows.
    growth_per_w
        (H,) growth beta of ``R(P) = R0 (1 + beta P)`` in 1/W.
    ground_ohm
        Resistance of each group's ground return.
    group
        (H,) group of each heater, 0, 1, ...
    """

    resistance_ohm: FloatArray
    growth_per_w: FloatArray
    ground_ohm: float
    group: NDArray[np.intp]

    @classmethod
    def of(cls, parameters: HiddenParameters, effects: HiddenEffects) -> "HeaterCircuit":
        """Return the circuit of a chip at its temperature."""
        warm = 1.0 + effects.temperature_k * effects.resistance_per_k
        resistance = np.where(parameters.connected > 0.0, parameters.resistance_ohm * warm, math.inf)
        group = np.arange(len(resistance)) // int(effects.ground_group)
        return cls(resistance, parameters.resistance_growth_per_w, effects.ground_resistance_ohm, group)

    def with_resistances(self, resistance_ohm: FloatArray, growth_per_w: FloatArray) -> "HeaterCircuit":
        """Return the circuit with other resistances."""
        return replace(self, resistance_ohm=resistance_ohm, growth_per_w=growth_per_w)

    def powers(self, voltage_v: FloatArray) -> FloatArray:
        """Return the powers (H,) in W that the heaters take at source voltages (H,): P R(P) = U^2 across each."""
        cold = self._across(voltage_v) ** 2 / self.resistance_ohm
        return np.asarray(2.0 * cold / (1.0 + np.sqrt(1.0 + 4.0 * self.growth_per_w * cold)))

    def currents(self, voltage_v: FloatArray) -> FloatArray:
        """Return the currents (H,) in A; a heater at 0 V passes current back from a ground that others raise."""
        power = self.powers(voltage_v)
        return np.asarray(self._across(voltage_v) / (self.resistance_ohm * (1.0 + self.growth_per_w * power)))

    def voltage_for_current(self, heater: int, current_a: float, voltage_v: FloatArray) -> float:
        """Return the source voltage at which a current flows, the other heaters at (H,) ``voltage_v``.

        Infinite where the heater would run away, or lets no current through.
        """
        resistance = float(self.resistance_ohm[heater])
        if resistance == math.inf:
            return math.inf if current_a > 0.0 else 0.0
        runaway = current_a * current_a * resistance * float(self.growth_per_w[heater])
        if runaway >= 1.0:
            return math.inf
        across = current_a * resistance / (1.0 - runaway)
        if self.ground_ohm == 0.0:
            return across
        mates = np.flatnonzero(self.group == self.group[heater])
        mates = mates[mates != heater]
        alone = replace(
            self,
            resistance_ohm=self.resistance_ohm[mates],
            growth_per_w=self.growth_per_w[mates],
            group=np.zeros(len(mates), dtype=np.intp),
        )
        return across + float(alone.ground_potentials(voltage_v[mates], current_a)[0])

    def _across(self, voltage_v: FloatArray) -> FloatArray:
        if self.ground_ohm == 0.0:
            return voltage_v
        return voltage_v - self.ground_potentials(voltage_v)[self.group]

    def ground_potentials(self, voltage_v: FloatArray, more_a: float = 0.0) -> FloatArray:
        """Return the potential (groups,) in V of each ground return, with ``more_a`` flowing into it besides.

        By Newton's method; currents fall with the potential, so there is one solution.
        """
        groups = 1 + int(self.group.max(initial=0))
        potential = np.zeros(groups)
        for _ in range(_ROUNDS):
            across = voltage_v - potential[self.group]
            cold = across**2 / self.resistance_ohm
            hot = self.growth_per_w * 2.0 * cold / (1.0 + np.sqrt(1.0 + 4.0 * self.growth_per_w * cold))
            current = across / (self.resistance_ohm * (1.0 + hot))
            slope = 1.0 / (self.resistance_ohm * (1.0 + hot) * (1.0 + 2.0 * hot))
            excess = potential - self.ground_ohm * (np.bincount(self.group, current, groups) + more_a)
            step = excess / (1.0 + self.ground_ohm * np.bincount(self.group, slope, groups))
            potential = potential - step
            if np.abs(step).max() <= _TOLERANCE * max(float(np.abs(potential).max()), 1.0):
                break
        return potential
