"""Electrical and thermal side of the hidden chip: heaters whose resistance grows, and heat that lags behind."""

import math

import numpy as np

from simulated_instruments._parameters import FloatArray, HiddenParameters

_SETTLED_TIME_CONSTANTS = 40.0  # exp(-40) is far below the resolution of float64


class ChipHeaters:
    """Voltages on all heaters of a chip, and the heat that they give off as time goes by.

    Parameters
    ----------
    parameters
        Resistances and their growth are read from here.
    time_constant_s
        First-order time constant of the heat; 0 for heat without lag.
    now
        Present time in s.
    """

    def __init__(self, parameters: HiddenParameters, time_constant_s: float, now: float) -> None:
        self._resistance = parameters.resistance_ohm
        self._growth = parameters.resistance_growth_per_w
        self._time_constant = time_constant_s
        self._time = now
        self._changed_at = -math.inf
        self._settled = True
        self._target: FloatArray | None = np.zeros_like(self._resistance)
        self.heat_w = np.zeros_like(self._resistance)
        self._heat_at_change = self.heat_w
        self.voltage_v = np.zeros_like(self._resistance)
        self.revision = 0
        self.resistance_revision = 0

    def set_voltage(self, heater: int, voltage_v: float) -> None:
        """Put a voltage on one heater; call ``advance`` to the present time before."""
        if self.voltage_v[heater] != voltage_v:
            self.voltage_v[heater] = voltage_v
            self._begin_to_relax()

    def change_resistances(self, resistance_ohm: FloatArray, growth_per_w: FloatArray) -> None:
        """Give the heaters other (H,) cold resistances in ohm, infinite where no current flows, and growths in 1/W."""
        if not (np.array_equal(resistance_ohm, self._resistance) and np.array_equal(growth_per_w, self._growth)):
            self._resistance, self._growth = resistance_ohm, growth_per_w
            self._begin_to_relax()
            self.resistance_revision += 1

    def _begin_to_relax(self) -> None:
        self._changed_at, self._heat_at_change = self._time, self.heat_w
        self._target = None
        self._settled = False

    @property
    def settled(self) -> bool:
        """Whether the heat has settled at the time that was last asked for."""
        return self._settled

    @property
    def time(self) -> float:
        """Time in s that was last asked for."""
        return self._time

    def advance(self, now: float) -> None:
        """Bring the heat to ``now``, a time in s since the last change; ``revision`` grows if the heat is another one.

        Instruments that look back may ask for times in any order.
        """
        elapsed = max(now - self._changed_at, 0.0)
        if elapsed >= _SETTLED_TIME_CONSTANTS * self._time_constant:
            if not self._settled:
                self._settled = True
                self._show(self.power_w)
        elif elapsed == 0.0:
            self._settled = False
            self._show(self._heat_at_change)
        elif now != self._time:
            self._settled = False
            target = self.power_w
            self._show(target + (self._heat_at_change - target) * math.exp(-elapsed / self._time_constant))
        self._time = now

    def _show(self, heat_w: FloatArray) -> None:
        if heat_w is not self.heat_w:
            self.heat_w = heat_w
            self.revision += 1

    def restart(self, now: float) -> None:
        """Go over to another clock that shows ``now``, with the heat settled."""
        self._changed_at, self._settled = -math.inf, True
        self._show(self.power_w)
        self._time = now

    @property
    def power_w(self) -> FloatArray:
        """Electrical power (H,) in W: P R(P) = V^2 with R(P) = R0 (1 + beta P)."""
        if self._target is None:
            cold = self.voltage_v**2 / self._resistance
            self._target = 2.0 * cold / (1.0 + np.sqrt(1.0 + 4.0 * self._growth * cold))
        return self._target

    def current_a(self, heater: int) -> float:
        """Return the current in A that the present voltage drives through one heater."""
        voltage = float(self.voltage_v[heater])
        resistance = float(self._resistance[heater])
        cold = voltage * voltage / resistance
        power = 2.0 * cold / (1.0 + math.sqrt(1.0 + 4.0 * float(self._growth[heater]) * cold))
        return voltage / (resistance * (1.0 + float(self._growth[heater]) * power))

    def currents_a(self) -> FloatArray:
        """Return the currents (H,) in A."""
        currents: FloatArray = self.voltage_v / (self._resistance * (1.0 + self._growth * self.power_w))
        return currents

    def voltage_for_current(self, heater: int, current_a: float) -> float:
        """Return the voltage in V at which ``current_a`` flows; infinite where the heater would run away."""
        resistance = float(self._resistance[heater])
        if resistance == math.inf:
            return math.inf if current_a > 0.0 else 0.0
        runaway = current_a * current_a * resistance * float(self._growth[heater])
        if runaway >= 1.0:
            return math.inf
        return current_a * resistance / (1.0 - runaway)
