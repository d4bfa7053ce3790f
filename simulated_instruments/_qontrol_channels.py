"""Output channels of a simulated Qontrol chain: DAC, limits, loads on the hidden chip, read-back noise."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from simulated_instruments._parameters import FloatArray
from simulated_instruments._qontrol_modules import ModuleType
from simulated_instruments.hidden_chip import HiddenChip

OVER_VOLTAGE, OVER_CURRENT = 1, 2
UNKNOWN_COMMAND, BAD_PARAMETER, BAD_CHANNEL, FORBIDDEN, BUFFER_OVERFLOW, SERIAL_ERROR = 10, 11, 12, 13, 14, 15
SUPPRESSED, POWERED_UP = 30, 90

ChannelError = tuple[int, int, bool]
"""An error: code, channel, and whether the value was refused."""

_DAC_STEPS = 0xFFFF
_VOLTAGE_NOISE_V = 1e-4
_CURRENT_NOISE_A = 1e-6
_CURRENT_OFFSET_A = 3e-6


class QontrolChannels:
    """All channels of one chain.

    Parameters
    ----------
    kind
        Type of the modules.
    count
        Number of channels.
    chip
        The hidden chip with the loads.
    heaters
        Heater index per channel; a channel without one is open.
    name
        Name of the instrument, which seeds its noise.
    """

    def __init__(self, kind: ModuleType, count: int, chip: HiddenChip, heaters: Mapping[int, int], name: str) -> None:
        self.count = count
        self._full_voltage, self._full_current = kind.full_voltage_v, kind.full_current_a
        self._chip = chip
        self._heaters = dict(heaters)
        rng = chip.generator(name)
        self._rng = rng
        self._current_offset = _CURRENT_OFFSET_A * rng.standard_normal(count)
        self._voltage = np.zeros(count)
        self._loaded = np.array(sorted(self._heaters), dtype=np.intp)
        self._load = np.array([self._heaters[int(channel)] for channel in self._loaded], dtype=np.intp)
        for channel, heater in self._heaters.items():
            self._voltage[channel] = chip.heater_voltage(heater)
        self._loads_seen = chip.resistance_revision
        self._reset_limits()

    def restart(self) -> None:
        """Go to 0 V, with all limits at full scale."""
        self._reset_limits()
        self._drive(dict.fromkeys(range(self.count), 0.0))

    def _reset_limits(self) -> None:
        self.max_voltage_v = [self._full_voltage] * self.count
        self.max_current_a = [self._full_current] * self.count
        self._find_voltages_at_max_current()

    def _find_voltages_at_max_current(self) -> None:
        self._voltage_at_max_current = [self._voltage_for(*limit) for limit in enumerate(self.max_current_a)]

    def follow_loads(self) -> list[ChannelError]:
        """Bring outputs down whose loads have changed and draw too much current now; return their errors."""
        if self._chip.resistance_revision == self._loads_seen:
            return []
        self._loads_seen = self._chip.resistance_revision
        self._find_voltages_at_max_current()
        excess = [k for k in range(self.count) if self._voltage[k] > self._voltage_at_max_current[k]]
        self._drive({channel: self._voltage_at_max_current[channel] for channel in excess})
        return [(OVER_CURRENT, channel, False) for channel in excess]

    def set_voltages(self, first: int, values: Sequence[float]) -> list[ChannelError]:
        """Put voltages on a run of channels; return errors.

        A value above the limit is refused and leaves its channel as it was; a current above the limit brings the
        voltage down to where the limit is kept.
        """
        errors: list[ChannelError] = []
        outputs: dict[int, float] = {}
        for channel, value in enumerate(values, start=first):
            if value > self.max_voltage_v[channel]:
                errors.append((OVER_VOLTAGE, channel, True))
                continue
            highest = self._voltage_at_max_current[channel]
            if value > highest:
                errors.append((OVER_CURRENT, channel, False))
            outputs[channel] = min(value, highest)
        self._drive(outputs)
        return errors

    def set_currents(self, first: int, values: Sequence[float]) -> list[ChannelError]:
        """Drive currents in A through a run of channels, as far as their voltage limits allow; see set_voltages."""
        errors: list[ChannelError] = []
        outputs: dict[int, float] = {}
        for channel, value in enumerate(values, start=first):
            if value > self.max_current_a[channel]:
                errors.append((OVER_CURRENT, channel, True))
                continue
            voltage = self._voltage_for(channel, value) if value > 0.0 else 0.0
            if voltage > self.max_voltage_v[channel]:
                errors.append((OVER_VOLTAGE, channel, False))
            outputs[channel] = min(voltage, self.max_voltage_v[channel])
        self._drive(outputs)
        return errors

    def set_limit(self, quantity: str, channel: int, value: float) -> list[ChannelError]:
        """Set VMAX (V) or IMAX (A) of a channel and bring its output under it."""
        limits, full, code = {
            "VMAX": (self.max_voltage_v, self._full_voltage, OVER_VOLTAGE),
            "IMAX": (self.max_current_a, self._full_current, OVER_CURRENT),
        }[quantity]
        if value > full:
            return [(code, channel, True)]
        limits[channel] = value
        self._voltage_at_max_current[channel] = self._voltage_for(channel, self.max_current_a[channel])
        highest = min(self.max_voltage_v[channel], self._voltage_at_max_current[channel])
        if self._voltage[channel] <= highest:
            return []
        self._drive({channel: highest})
        return [(code, channel, False)]

    def read_voltages(self) -> FloatArray:
        """Measure all voltages in V."""
        noise: FloatArray = self._rng.standard_normal(self.count)
        return self._voltage + _VOLTAGE_NOISE_V * noise

    def read_currents(self) -> FloatArray:
        """Measure all currents in A; open channels read offset and noise."""
        current = self._current_offset + _CURRENT_NOISE_A * self._rng.standard_normal(self.count)
        current[self._loaded] += self._chip.heater_currents()[self._load]
        return current

    def _voltage_for(self, channel: int, current_a: float) -> float:
        """Voltage at which ``current_a`` flows; no voltage drives it through an open channel."""
        heater = self._heaters.get(channel)
        return math.inf if heater is None else self._chip.voltage_for_current(heater, current_a)

    def _drive(self, outputs: Mapping[int, float]) -> None:
        loads: dict[int, float] = {}
        for channel, value in outputs.items():
            voltage = round(value * (_DAC_STEPS / self._full_voltage)) * (self._full_voltage / _DAC_STEPS)
            self._voltage[channel] = voltage
            heater = self._heaters.get(channel)
            if heater is not None:
                loads[heater] = voltage
        if loads:
            self._chip.set_heater_voltages(loads)
