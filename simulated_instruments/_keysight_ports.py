"""Ports of a simulated Keysight power meter: settings, trigger model and readings."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optinc_hw.clock import Clock
from optinc_hw.units import WATT_PER_MILLIWATT, dbm_to_watt, watt_to_dbm
from simulated_instruments._parameters import FloatArray
from simulated_instruments._scpi import LENGTH_UNITS, TIME_UNITS, Quantity
from simulated_instruments.hidden_chip import HiddenChip

DBM, WATT = 0, 1

RANGES_DBM = [-30.0, -20.0, -10.0, 0.0, 10.0]
OVER_RANGE = float(np.finfo(np.float32).max)
WAVELENGTH = Quantity(1250e-9, 1650e-9, 1550e-9, LENGTH_UNITS)
AVERAGING = Quantity(1e-6, 10.0, 0.2, TIME_UNITS)
RANGE = Quantity(RANGES_DBM[0], RANGES_DBM[-1], 0.0, {"": 1.0, "DBM": 1.0})

_FULL_SCALES_W = [dbm_to_watt(level) for level in RANGES_DBM]
_TOP_RANGE = len(RANGES_DBM) - 1
_ADC_STEPS = 2.0**18
_DARK_NOISE_W = 1e-9  # rms of a port with nothing before it
_ZEROING_S = 3.0
_ZERO_AVERAGING_S = 1.0
_DARK_ENOUGH_W = 1e-7
_ZEROED, _TOO_MUCH_LIGHT = 0, 1


@dataclass
class MeterPort:
    """Settings and present reading of one port; fresh ones are those after a reset."""

    index: int
    unit: int = DBM
    wavelength_m: float = WAVELENGTH.default
    averaging_s: float = AVERAGING.default
    auto_range: bool = True
    range: int = _TOP_RANGE
    range_in_use: int = _TOP_RANGE
    auto_gain: bool = True
    continuous: bool = True
    trigger_input: str = "IGN"
    trigger_output: str = "DIS"
    value_w: float = 0.0
    outdated_at: float = -math.inf
    """Continuous: when the present value is outdated."""
    due: float | None = None
    """Triggered and not fetched yet: when the averaging ends."""
    zero_w: float = 0.0
    zero_result: int = _ZEROED
    zeroed_at: float = -math.inf
    """When the last zeroing ends."""

    def set_range(self, level_dbm: float) -> None:
        """Choose the nearest range, and keep it."""
        self.range = min(range(len(RANGES_DBM)), key=lambda k: abs(RANGES_DBM[k] - level_dbm))
        self.range_in_use = self.range
        self.auto_range = False

    def set_auto_range(self, automatic: int) -> None:
        """Let the port choose its range, or keep the one in use."""
        if not automatic:
            self.range = self.range_in_use
        self.auto_range = bool(automatic)

    def set_averaging(self, seconds: float) -> None:
        """Change the averaging time; the present value is outdated then."""
        self.averaging_s = seconds
        self.outdated_at = -math.inf

    def keep(self, power_w: float) -> None:
        """Make a reading of what the photodiode sees: range and steps of the converter."""
        power_w -= self.zero_w
        fitting = bisect_left(_FULL_SCALES_W, power_w)
        chosen = min(fitting, _TOP_RANGE) if self.auto_range else self.range
        step = _FULL_SCALES_W[chosen] / _ADC_STEPS
        self.range_in_use = chosen
        self.value_w = OVER_RANGE if fitting > chosen else round(power_w / step) * step

    def digitise(self, power_w: FloatArray) -> FloatArray:
        """Return readings of what the photodiode sees, in the range in use."""
        full_scale = _FULL_SCALES_W[self.range_in_use]
        step = full_scale / _ADC_STEPS
        power_w = power_w - self.zero_w
        return np.where(power_w > full_scale, OVER_RANGE, np.round(power_w / step) * step)

    def in_unit(self, value_w: float) -> float:
        """Return a reading in the port's unit; a power of zero or less has no level, an over-range code stays one."""
        if self.unit == WATT or value_w == OVER_RANGE:
            return value_w
        return watt_to_dbm(value_w) if value_w > 0.0 else -OVER_RANGE

    def all_in_unit(self, value_w: FloatArray) -> FloatArray:
        """Return readings in the port's unit, as float32."""
        if self.unit == WATT:
            return value_w.astype("<f4")
        with np.errstate(divide="ignore", invalid="ignore"):
            level = 10.0 * np.log10(value_w / WATT_PER_MILLIWATT)
        level = np.where(value_w > 0.0, level, -OVER_RANGE)
        return np.where(value_w == OVER_RANGE, OVER_RANGE, level).astype("<f4")


class MeterPorts:
    """All ports of a meter and what they see.

    Parameters
    ----------
    name
        Name on the bench; seeds the noise of ports with nothing before them.
    count
        Number of ports.
    chip
        The chip whose photodiodes are read.
    detectors
        Detector index per port; the other ports are dark.
    clock
        Readings take time on it.
    """

    def __init__(self, name: str, count: int, chip: HiddenChip, detectors: Mapping[int, int], clock: Clock) -> None:
        self._chip = chip
        self._clock = clock
        self._rng = chip.generator(name)
        self._detectors = detectors
        self._ports = [MeterPort(index) for index in range(count)]

    def __len__(self) -> int:
        return len(self._ports)

    def __getitem__(self, index: int) -> MeterPort:
        return self._ports[index]

    def all(self) -> list[MeterPort]:
        """Return all ports."""
        return self._ports

    def reset(self) -> None:
        """Bring all settings to their defaults; zeroing lasts."""
        self._ports = [
            MeterPort(p.index, zero_w=p.zero_w, zero_result=p.zero_result, zeroed_at=p.zeroed_at) for p in self._ports
        ]

    def power_up(self) -> None:
        """Bring everything into the state after switching on."""
        self._ports = [MeterPort(port.index) for port in self._ports]

    def read(self, ports: Sequence[MeterPort], *, trigger: bool) -> list[float]:
        """Return values in W, after a new measurement if the trigger model asks for one."""
        self._finish_zeroing(ports)
        now = self._clock.now()
        triggered, outdated = [], []
        for port in ports:
            if port.continuous:
                if port.outdated_at <= now:
                    port.outdated_at = now + port.averaging_s
                    outdated.append(port)
                continue
            if trigger:
                port.due = now + port.averaging_s
            if port.due is not None:
                triggered.append(port)
        self.sample(outdated)
        self._complete(triggered)
        return [port.value_w for port in ports]

    def complete(self) -> None:
        """Wait for the end of all that is under way."""
        self._finish_zeroing(self._ports)
        self._complete([port for port in self._ports if port.due is not None])

    def busy(self, port: MeterPort) -> bool:
        """Tell whether a measurement or a zeroing is under way."""
        now = self._clock.now()
        return port.zeroed_at > now or (port.due is not None and port.due > now)

    def trigger(self, port: MeterPort) -> None:
        """Start one measurement."""
        port.due = self._clock.now() + port.averaging_s

    def set_continuous(self, port: MeterPort, continuous: int) -> None:
        """Let a port measure all the time, or only when it is triggered."""
        if port.continuous and not continuous:
            self.sample([port])
        port.continuous = bool(continuous)
        port.due = None
        port.outdated_at = -math.inf

    def zero(self, ports: Sequence[MeterPort]) -> None:
        """Start to take what the ports see for darkness; fails where there is light."""
        dark = self._see(ports, _ZERO_AVERAGING_S)
        for port, power in zip(ports, dark, strict=True):
            port.zeroed_at = self._clock.now() + _ZEROING_S
            port.zero_result = _ZEROED if abs(power) <= _DARK_ENOUGH_W else _TOO_MUCH_LIGHT
            if port.zero_result == _ZEROED:
                port.zero_w = power

    def zero_result(self, ports: Sequence[MeterPort]) -> int:
        """Return the result of the last zeroing, of several ports the worst, when it has ended; 0 is good."""
        self._finish_zeroing(ports)
        return max(port.zero_result for port in ports)

    def sample(self, ports: Sequence[MeterPort]) -> None:
        """Keep what the ports see at this moment."""
        if ports:
            times = [port.averaging_s for port in ports]
            averaging = times[0] if times.count(times[0]) == len(times) else None
            for port, power in zip(ports, self._see(ports, averaging), strict=True):
                port.keep(power)

    def see_series(self, ports: Sequence[MeterPort], averaging_s: float, at_s: float, count: int) -> list[FloatArray]:
        """Return (count,) powers in W in a row of each port, at light as it is at a time in s."""
        found = [self._detectors.get(port.index) for port in ports]
        lit = [detector for detector in found if detector is not None]
        seen = iter(self._chip.sample(lit, averaging_s, at_s, count).T if lit else ())
        return [
            _DARK_NOISE_W * self._rng.standard_normal(count) if detector is None else next(seen) for detector in found
        ]

    def _see(self, ports: Sequence[MeterPort], averaging_s: float | None) -> list[float]:
        """Return the powers in W that the ports see, averaged for a time in s or for each port's own."""
        found = [(port, self._detectors.get(port.index)) for port in ports]
        lit = [(port, detector) for port, detector in found if detector is not None]
        seen: list[float] = []
        if lit:
            averaging = np.array([port.averaging_s for port, _ in lit]) if averaging_s is None else averaging_s
            seen = self._chip.measure([detector for _, detector in lit], averaging).tolist()
        if len(lit) == len(found):
            return seen
        readings = iter(seen)
        return [self._darkness() if detector is None else next(readings) for _, detector in found]

    def _darkness(self) -> float:
        return _DARK_NOISE_W * float(self._rng.standard_normal())

    def _complete(self, ports: Sequence[MeterPort]) -> None:
        """Wait for the end of triggered measurements and keep their values."""
        if ports:
            end = max(port.due for port in ports if port.due is not None)
            self._clock.sleep(max(end - self._clock.now(), 0.0))
            for port in ports:
                port.due = None
            self.sample(ports)

    def _finish_zeroing(self, ports: Sequence[MeterPort]) -> None:
        left = max(port.zeroed_at for port in ports) - self._clock.now()
        if left > 0.0:
            self._clock.sleep(left)
