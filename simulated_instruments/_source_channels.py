"""Channels of simulated voltage and current sources with the hidden chip's heaters on them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from optinc_hw.errors import ConfigurationError
from simulated_instruments._parameters import FloatArray
from simulated_instruments.hidden_chip import HiddenChip


@dataclass
class Source:
    """Settings of one channel; ``SourceChannels.apply`` brings its output to them.

    Attributes
    ----------
    on
        Whether the output is switched on.
    voltage_v, current_a
        Levels of voltage and current; negative ones are possible if the instrument allows them.
    max_voltage_v, max_current_a
        Compliance: the most voltage of a current source, the most current of a voltage source.
    step_v
        Step of the converter in the present range.
    regulates_current
        Whether the channel is a current source.
    """

    on: bool
    max_voltage_v: float
    max_current_a: float
    step_v: float
    voltage_v: float = 0.0
    current_a: float = 0.0
    regulates_current: bool = False


@dataclass(frozen=True)
class ReadBack:
    """Errors of what a source measures at its own output.

    Attributes
    ----------
    voltage_noise_v, current_noise_a
        Standard deviation of single readings.
    current_offset_a
        Standard deviation of the constant current offsets of the channels.
    """

    voltage_noise_v: float
    current_noise_a: float
    current_offset_a: float


class SourceChannels:
    """All channels of one source.

    A voltage source whose load would draw more than the compliance current lowers its voltage to where that current
    flows, and a current source stops at its compliance voltage. Voltages that are on the heaters when the channels
    are made stay there.

    Parameters
    ----------
    name
        Name of the instrument, which seeds its noise.
    count
        Number of channels.
    start
        Settings of a channel after power-on.
    read_back
        Errors of measurements.
    chip
        The hidden chip with the loads.
    heaters
        Heater index per channel; a channel without one is open.

    Raises
    ------
    ConfigurationError
        If a channel with a heater does not exist.
    """

    def __init__(
        self,
        name: str,
        count: int,
        start: Source,
        read_back: ReadBack,
        chip: HiddenChip,
        heaters: Mapping[int, int],
    ) -> None:
        for channel in heaters:
            if not 0 <= channel < count:
                raise ConfigurationError(f"simulated {name}: channel {channel} is not in 0..{count - 1}")
        self.count = count
        self._start = start
        self._read_back = read_back
        self._chip = chip
        self._heaters = dict(heaters)
        self._rng = chip.generator(name)
        self._current_offset = read_back.current_offset_a * self._rng.standard_normal(count)
        self._output = np.zeros(count)
        self._limited = [False] * count
        self._loaded = np.array(sorted(self._heaters), dtype=np.intp)
        self._load = np.array([self._heaters[int(channel)] for channel in self._loaded], dtype=np.intp)
        self._sources = [replace(start) for _ in range(count)]
        self._loads_seen = chip.resistance_revision
        for channel, heater in self._heaters.items():
            voltage = chip.heater_voltage(heater)
            if voltage > 0.0:
                self._sources[channel].voltage_v = self._output[channel] = voltage
                self._sources[channel].on = True

    def __getitem__(self, channel: int) -> Source:
        """Return the settings of a channel, to be changed before ``apply``."""
        return self._sources[channel]

    def restart(self) -> None:
        """Go back to the settings after power-on, on all channels."""
        self._sources = [replace(self._start) for _ in range(self.count)]
        self.apply(*range(self.count))

    def apply(self, *channels: int) -> None:
        """Bring outputs to their settings, all together."""
        loads: dict[int, float] = {}
        for channel in channels:
            voltage = self._settled_voltage(channel)
            self._output[channel] = voltage
            heater = self._heaters.get(channel)
            if heater is not None:
                loads[heater] = abs(voltage)
        if loads:
            self._chip.set_heater_voltages(loads)

    def limited(self, channel: int) -> bool:
        """Tell whether a channel is held at its compliance."""
        self._follow_loads()
        return self._limited[channel]

    def output_voltage(self, channel: int) -> float:
        """Return the voltage at the output of a channel in V, without errors of a measurement."""
        self._follow_loads()
        return float(self._output[channel])

    def read_voltages(self) -> FloatArray:
        """Measure all voltages in V."""
        self._follow_loads()
        noise: FloatArray = self._rng.standard_normal(self.count)
        return self._output + self._read_back.voltage_noise_v * noise

    def read_currents(self) -> FloatArray:
        """Measure all currents in A; open channels read offset and noise."""
        self._follow_loads()
        current = self._current_offset + self._read_back.current_noise_a * self._rng.standard_normal(self.count)
        current[self._loaded] += np.sign(self._output[self._loaded]) * self._chip.heater_currents()[self._load]
        return current

    def _follow_loads(self) -> None:
        """Keep to the compliances with loads whose resistance has changed."""
        revision = self._chip.resistance_revision
        if revision != self._loads_seen:
            self._loads_seen = revision
            self.apply(*range(self.count))

    def _settled_voltage(self, channel: int) -> float:
        source = self._sources[channel]
        if not source.on:
            self._limited[channel] = False
            return 0.0
        if source.regulates_current:
            level, limit = source.current_a, source.max_voltage_v
            wanted = self._voltage_for(channel, abs(level))
        else:
            level, limit = source.voltage_v, self._voltage_for(channel, source.max_current_a)
            wanted = abs(level)
        self._limited[channel] = wanted > limit
        return math.copysign(round(min(wanted, limit) / source.step_v) * source.step_v, level)

    def _voltage_for(self, channel: int, current_a: float) -> float:
        """Voltage at which ``current_a`` flows; no voltage drives it through an open channel."""
        if current_a == 0.0:
            return 0.0
        heater = self._heaters.get(channel)
        return math.inf if heater is None else self._chip.voltage_for_current(heater, current_a)
