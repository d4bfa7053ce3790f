"""Thermal side of the hidden chip: voltages on heaters, and heat that lags behind."""

import math

import numpy as np
from numpy.typing import NDArray

from simulated_instruments._heater_circuit import HeaterCircuit
from simulated_instruments._parameters import FloatArray

_SETTLED_TIME_CONSTANTS = 40.0  # exp(-40) is far below the resolution of float64


class ChipHeaters:
    """Voltages on all heaters of a chip, and the heat that they give off as time goes by.

    Parameters
    ----------
    circuit
        What turns voltages into currents.
    time_constant_s
        First-order time constant of the heat; 0 for heat without lag.
    now
        Present time in s.
    """

    def __init__(self, circuit: HeaterCircuit, time_constant_s: float, now: float) -> None:
        self._circuit = circuit
        self._time_constant = time_constant_s
        self._time = now
        self._changed_at = -math.inf
        self._settled = True
        self._target: FloatArray | None = np.zeros_like(circuit.resistance_ohm)
        self._currents: FloatArray | None = None
        self.heat_w = np.zeros_like(circuit.resistance_ohm)
        self._heat_at_change = self.heat_w
        self.voltage_v = np.zeros_like(circuit.resistance_ohm)
        self.revision = 0
        self.resistance_revision = 0

    def set_voltages(self, heaters: NDArray[np.intp], voltage_v: FloatArray) -> None:
        """Put voltages on heaters; call ``advance`` to the present time before."""
        if not np.array_equal(self.voltage_v[heaters], voltage_v):
            self.voltage_v[heaters] = voltage_v
            self._begin_to_relax()

    def change_resistances(self, resistance_ohm: FloatArray, growth_per_w: FloatArray) -> None:
        """Give the heaters other (H,) cold resistances in ohm, infinite where no current flows, and growths in 1/W."""
        now = self._circuit
        if not (np.array_equal(resistance_ohm, now.resistance_ohm) and np.array_equal(growth_per_w, now.growth_per_w)):
            self._circuit = now.with_resistances(resistance_ohm, growth_per_w)
            self._begin_to_relax()
            self.resistance_revision += 1

    def _begin_to_relax(self) -> None:
        self._changed_at, self._heat_at_change = self._time, self.heat_w
        self._target = self._currents = None
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
        """Electrical power (H,) in W of each heater."""
        if self._target is None:
            self._target = self._circuit.powers(self.voltage_v)
        return self._target

    def currents_a(self) -> FloatArray:
        """Return the currents (H,) in A."""
        if self._currents is None:
            self._currents = self._circuit.currents(self.voltage_v)
        return self._currents

    def voltage_for_current(self, heater: int, current_a: float) -> float:
        """Return the voltage in V at which ``current_a`` flows; infinite where the heater would run away."""
        return self._circuit.voltage_for_current(heater, current_a, self.voltage_v)
