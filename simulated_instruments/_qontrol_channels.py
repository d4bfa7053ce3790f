"""Output channels of a simulated Qontrol chain: DAC, limits, loads on the hidden chip, read-back noise."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from simulated_instruments._parameters import FloatArray
from simulated_instruments.hidden_chip import HiddenChip

FULL_VOLTAGE_V = 12.0
FULL_CURRENT_A = 0.024
CHANNELS_PER_MODULE = 8

OVER_VOLTAGE, OVER_CURRENT = 1, 2
UNKNOWN_COMMAND, BAD_PARAMETER, BAD_CHANNEL, FORBIDDEN, BUFFER_OVERFLOW, SERIAL_ERROR = 10, 11, 12, 13, 14, 15

_DAC_STEPS = 0xFFFF
_VOLTAGE_NOISE_V = 1e-4
_CURRENT_NOISE_A = 1e-6
_CURRENT_OFFSET_A = 3e-6


class QontrolChannels:
    """All channels of one chain.

    Parameters
    ----------
    count
        Number of channels.
    chip
        The hidden chip with the loads.
    heaters
        Heater index per channel; a channel without one is open.
    name
        Name of the instrument, which seeds its noise.
    """

    def __init__(self, count: int, chip: HiddenChip, heaters: Mapping[int, int], name: str) -> None:
        self.count = count
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
        self.max_voltage_v = [FULL_VOLTAGE_V] * count
        self.max_current_a = [FULL_CURRENT_A] * count
        self._voltage_at_max_current = [self._voltage_for(channel, FULL_CURRENT_A) for channel in range(count)]

    def set_voltages(self, first: int, values: Sequence[float]) -> list[tuple[int, int, bool]]:
        """Put voltages on a run of channels; return errors as (code, channel, whether the value was refused).

        A value above the limit is refused and leaves its channel as it was; a current above the limit brings the
        voltage down to where the limit is kept.
        """
        errors: list[tuple[int, int, bool]] = []
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

    def set_currents(self, first: int, values: Sequence[float]) -> list[tuple[int, int, bool]]:
        """Drive currents in A through a run of channels, as far as their voltage limits allow; see set_voltages."""
        errors: list[tuple[int, int, bool]] = []
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

    def set_limit(self, quantity: str, channel: int, value: float) -> list[tuple[int, int, bool]]:
        """Set VMAX (V) or IMAX (A) of a channel and bring its output under it."""
        limits, full, code = {
            "VMAX": (self.max_voltage_v, FULL_VOLTAGE_V, OVER_VOLTAGE),
            "IMAX": (self.max_current_a, FULL_CURRENT_A, OVER_CURRENT),
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
            voltage = round(value * (_DAC_STEPS / FULL_VOLTAGE_V)) * (FULL_VOLTAGE_V / _DAC_STEPS)
            self._voltage[channel] = voltage
            heater = self._heaters.get(channel)
            if heater is not None:
                loads[heater] = voltage
        if loads:
            self._chip.set_heater_voltages(loads)
