"""Electrical and thermal side of the hidden chip: sources act on it, faults and drift change it."""

import math
import threading
from collections.abc import Callable, Mapping

import numpy as np

from optinc_hw.clock import Clock, SimulatedClock
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._fault_chip import ChipFaults
from simulated_instruments._fault_kinds import ChipFault
from simulated_instruments._heater_circuit import HeaterCircuit
from simulated_instruments._heaters import ChipHeaters
from simulated_instruments._parameters import FloatArray, HiddenParameters

HeaterListener = Callable[[float, Mapping[int, float]], None]
"""Gets the time in s and the voltages in V by heater index."""


class HeatedChip:
    """Heaters of a chip under voltages, with faults, as time goes by.

    Parameters
    ----------
    layout
        Names and order of heaters and detectors.
    effects
        Scalar effects.
    parameters
        The truth about this chip.
    clock
        Time; a ``SimulatedClock`` of its own by default.
    """

    def __init__(
        self, layout: ChipLayout, effects: HiddenEffects, parameters: HiddenParameters, clock: Clock | None
    ) -> None:
        self.layout = layout
        self.effects = effects
        self.parameters = parameters
        self._clock: Clock = SimulatedClock() if clock is None else clock
        self._lock = threading.RLock()
        circuit = HeaterCircuit.of(parameters, effects)
        self._heaters = ChipHeaters(circuit, effects.thermal_time_constant_s, self._clock.now())
        self._faults = ChipFaults(layout, circuit)
        self._heater_listeners: list[HeaterListener] = []
        self._change_listeners: list[Callable[[], None]] = []

    def set_heater_voltages(self, values: Mapping[int, float]) -> None:
        """Put voltages on heaters at the present time.

        Parameters
        ----------
        values
            Volt per heater index; other heaters keep theirs.

        Raises
        ------
        ConfigurationError
            If a heater does not exist, or a voltage is negative or not finite; nothing was changed.
        """
        heaters = np.fromiter(values.keys(), dtype=np.intp, count=len(values))
        voltages = np.fromiter(values.values(), dtype=np.float64, count=len(values))
        for heater in heaters[(heaters < 0) | (heaters >= len(self.layout.heaters))]:
            self._check_heater(int(heater))
        for place in np.flatnonzero(~((voltages >= 0.0) & (voltages < math.inf))):
            name = self.layout.heaters[heaters[place]]
            raise ConfigurationError(
                f"hidden chip: heater {name} cannot take {float(voltages[place])!r} V; give 0 V or more"
            )
        self.announce_change()
        with self._lock:
            now = self._clock.now()
            self._advance(now)
            self._heaters.set_voltages(heaters, voltages)
            for listener in self._heater_listeners:
                listener(now, values)

    def watch_heaters(self, listener: HeaterListener) -> None:
        """Let ``listener`` be called with the time in s and V by heater index whenever voltages are set."""
        with self._lock:
            self._heater_listeners.append(listener)

    def watch_changes(self, listener: Callable[[], None]) -> None:
        """Let ``listener`` be called just before voltages or light are changed: it may sample what was until now."""
        with self._lock:
            self._change_listeners.append(listener)

    def announce_change(self) -> None:
        """Tell whoever watches changes that the light is about to change; for what stands in the light's way."""
        # Not under the chip's lock: a listener takes a lock of its own, under which it asks the chip.
        for listener in self._change_listeners:
            listener()

    def heater_voltage(self, heater: int) -> float:
        """Return the voltage on a heater in V."""
        self._check_heater(heater)
        with self._lock:
            return float(self._heaters.voltage_v[heater])

    def heater_current(self, heater: int) -> float:
        """Return the current through a heater in A; the resistance follows the power without lag."""
        self._check_heater(heater)
        with self._lock:
            self._follow_faults()
            return float(self._heaters.currents_a()[heater])

    def heater_currents(self) -> FloatArray:
        """Return the currents (H,) through all heaters in A."""
        with self._lock:
            self._follow_faults()
            return self._heaters.currents_a().copy()

    def voltage_for_current(self, heater: int, current_a: float) -> float:
        """Return the voltage in V that drives ``current_a`` through a heater; infinite beyond thermal runaway."""
        self._check_heater(heater)
        with self._lock:
            self._follow_faults()
            return self._heaters.voltage_for_current(heater, current_a)

    @property
    def resistance_revision(self) -> int:
        """Number that grows whenever a heater's resistance has changed: a source with a limit looks again."""
        with self._lock:
            self._follow_faults()
            return self._heaters.resistance_revision

    def inject(self, fault: ChipFault, *, after_s: float = 0.0, for_s: float = math.inf) -> None:
        """Let a fault begin ``after_s`` s from now on the chip's clock and last for ``for_s`` s.

        Raises
        ------
        ConfigurationError
            If the chip has no such heater or detector.
        """
        with self._lock:
            start = self._clock.now() + after_s
            self._faults.add(fault, start, start + for_s)

    def heal(self) -> None:
        """End all faults, and forget those to come."""
        self.announce_change()
        with self._lock:
            now = self._clock.now()
            self._advance(now)
            self._faults.clear()
            self._heaters.change_resistances(*self._faults.resistances(now, now))

    def _become(self, effects: HiddenEffects, parameters: HiddenParameters) -> None:
        """Be another chip from now on, under the same voltages."""
        now = self._clock.now()
        self._advance(now)
        self.effects, self.parameters = effects, parameters
        self._faults.circuit = HeaterCircuit.of(parameters, effects)
        self._heaters.change_resistances(*self._faults.resistances(now, now))

    def _advance(self, now: float) -> None:
        """Let the heat relax until ``now``, and resistances change on the way where heaters are faulty."""
        if self._faults.electrical:
            for turn in self._faults.turns(self._heaters.time, now):
                self._relax(turn)
                self._heaters.change_resistances(*self._faults.resistances(turn, turn))
            self._relax(now)
        else:
            self._heaters.advance(now)

    def _relax(self, now: float) -> None:
        """Let the heat relax until ``now``, before which no fault begins or ends."""
        self._heaters.change_resistances(*self._faults.resistances(self._heaters.time, now))
        self._heaters.advance(now)

    def _follow_faults(self) -> None:
        if self._faults.electrical:
            self._advance(self._clock.now())

    def _check_heater(self, heater: int) -> None:
        if not 0 <= heater < len(self.layout.heaters):
            raise ConfigurationError(
                f"hidden chip: there is no heater {heater!r}; the {self.layout.ports}-port chip has "
                f"0..{len(self.layout.heaters) - 1}"
            )
