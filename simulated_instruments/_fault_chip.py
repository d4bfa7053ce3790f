"""What is wrong with a hidden chip and its light, and when."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._fault_kinds import (
    ChipFault,
    DeadDetector,
    DriftingHeater,
    ModeHop,
    OffsetDetector,
    OpenHeater,
    PowerDrop,
    SaturatedDetector,
    ShortedHeater,
    fault_name,
)
from simulated_instruments._heater_circuit import HeaterCircuit
from simulated_instruments._parameters import FloatArray

_RAIL_W = 1e3
"""What an amplifier at its rail reads; beyond the range of every meter."""
_HEATER_FAULTS = (OpenHeater, ShortedHeater, DriftingHeater)


@dataclass(frozen=True)
class _Spell:
    """A fault and the span of time in which it is in force."""

    fault: ChipFault
    start_s: float
    end_s: float

    def in_force(self, now: float) -> bool:
        return self.start_s <= now < self.end_s


@dataclass
class ChipFaults:
    """Faults of one chip, present and to come.

    Parameters
    ----------
    layout
        Names of heaters and detectors.
    circuit
        Resistances without faults are read from here.
    """

    layout: ChipLayout
    circuit: HeaterCircuit
    _spells: list[_Spell] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._spells)

    @property
    def electrical(self) -> bool:
        """Whether a heater has, had or will have a fault."""
        return any(isinstance(spell.fault, _HEATER_FAULTS) for spell in self._spells)

    def add(self, fault: ChipFault, start_s: float, end_s: float) -> None:
        """Put a fault in force from ``start_s`` to ``end_s``; raises ConfigurationError if its part does not exist."""
        if isinstance(fault, _HEATER_FAULTS):
            self._check(fault, "heater", fault.heater, self.layout.heaters)
        elif isinstance(fault, DeadDetector | SaturatedDetector | OffsetDetector):
            self._check(fault, "detector", fault.detector, self.layout.detectors)
        self._spells.append(_Spell(fault, start_s, end_s))

    def clear(self) -> None:
        """Forget all faults."""
        self._spells.clear()

    def shift(self, seconds: float) -> None:
        """Go over to a clock that shows ``seconds`` more."""
        self._spells = [_Spell(s.fault, s.start_s + seconds, s.end_s + seconds) for s in self._spells]

    def turns(self, since: float, now: float) -> list[float]:
        """Return the times after ``since`` and up to ``now`` at which a heater's fault begins or ends."""
        edges = {
            edge for s in self._spells if isinstance(s.fault, _HEATER_FAULTS) for edge in (s.start_s, s.end_s)
        }  # fmt: skip
        return sorted(edge for edge in edges if since < edge <= now)

    def resistances(self, since: float, now: float) -> tuple[FloatArray, FloatArray]:
        """Return the heaters' (H,) cold resistances in ohm and growths in 1/W at ``now``.

        With the faults that were in force at ``since``.
        """
        resistance = self.circuit.resistance_ohm.copy()
        growth = self.circuit.growth_per_w.copy()
        for spell in self._spells:
            if not spell.in_force(since):
                continue
            match spell.fault:
                case OpenHeater(heater=name):
                    resistance[self.layout.heater_index[name]] = math.inf
                case ShortedHeater(heater=name, resistance_ohm=short):
                    resistance[self.layout.heater_index[name]] = short
                    growth[self.layout.heater_index[name]] = 0.0
                case DriftingHeater(heater=name, per_s=rate):
                    # A resistor does not drift to nothing, however long it is left to drift.
                    resistance[self.layout.heater_index[name]] *= max(1.0 + rate * (now - spell.start_s), 0.01)
        return resistance, growth

    def light(self, now: float, power_w: float, wavelength_m: float) -> tuple[float, float]:
        """Return power in W and wavelength in m that enter the chip when the laser believes in these."""
        for spell in self._spells:
            if spell.in_force(now):
                match spell.fault:
                    case PowerDrop(factor=factor):
                        power_w *= factor
                    case ModeHop(shift_m=shift):
                        wavelength_m += shift
        return power_w, wavelength_m

    def seen(self, now: float, power_w: FloatArray) -> FloatArray:
        """Return the (D,) powers in W that photodiodes see of those that fall on them."""
        dead = [s.fault.detector for s in self._spells if isinstance(s.fault, DeadDetector) and s.in_force(now)]
        if not dead:
            return power_w
        power_w = power_w.copy()
        power_w[[self.layout.detectors.index(name) for name in dead]] = 0.0
        return power_w

    def readings(self, now: float, group: NDArray[np.intp], power_w: FloatArray, reading_w: FloatArray) -> FloatArray:
        """Return what a group of detectors reads.

        Parameters
        ----------
        now
            Time in s.
        group
            Indices of the detectors.
        power_w
            (D,) powers in W that the photodiodes see.
        reading_w
            (len(group),) readings in W without faults.
        """
        for spell in self._spells:
            if not spell.in_force(now):
                continue
            match spell.fault:
                case OffsetDetector(detector=name, offset_w=offset):
                    reading_w = reading_w + offset * (group == self.layout.detectors.index(name))
                case SaturatedDetector(detector=name, above_w=above):
                    index = self.layout.detectors.index(name)
                    if power_w[index] >= above:
                        reading_w = np.where(group == index, _RAIL_W, reading_w)
        return reading_w

    @staticmethod
    def _check(fault: ChipFault, what: str, name: str, known: tuple[str, ...]) -> None:
        if name not in known:
            raise ConfigurationError(
                f"fault {fault_name(fault)}: the chip has no {what} {name!r}; it has {', '.join(known)}"
            )
