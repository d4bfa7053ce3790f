"""The sensor head of a simulated Thorlabs meter: signal, ranges and zero."""

import math
from bisect import bisect_left
from collections.abc import Mapping

from optinc_hw.clock import Clock
from simulated_instruments._thorlabs_models import Sensor
from simulated_instruments.hidden_chip import HiddenChip

_DARK_NOISE_W = 1e-10  # rms of a sensor with nothing before it
_ZEROING_S = 1.0


class SensorHead:
    """A sensor on a photodiode of the hidden chip.

    Parameters
    ----------
    sensor
        Its ranges.
    chip
        The chip whose photodiodes are read.
    detectors
        Detector index of port 0; without one the sensor is dark.
    clock
        Zeroing takes time on it, in the background.
    name
        Seeds the noise of a sensor with nothing before it.
    """

    def __init__(self, sensor: Sensor, chip: HiddenChip, detectors: Mapping[int, int], clock: Clock, name: str) -> None:
        self._ranges = sensor.ranges_w
        self._chip, self._detectors, self._clock = chip, detectors, clock
        self._rng = chip.generator(name)
        self.reset()

    def reset(self) -> None:
        """Go to automatic ranging from the top, and forget the zero."""
        self.automatic_range, self._range = True, len(self._ranges) - 1
        self._zero_w, self._next_zero_w, self._zeroed_at = 0.0, 0.0, -math.inf

    @property
    def range_w(self) -> float:
        """Upper limit of the range in use, in W."""
        return self._ranges[self._range]

    def choose_range(self, power_w: float) -> None:
        """Stay in the most sensitive range that holds ``power_w`` W."""
        self._range = min(bisect_left(self._ranges, power_w * (1.0 - 1e-9)), len(self._ranges) - 1)
        self.automatic_range = False

    def measure(self, averaging_s: float) -> float:
        """Return what the sensor shows at this moment, in W; infinite if it is out of the range."""
        signal = self._signal_w(averaging_s) - self.zero_w
        fitting = bisect_left(self._ranges, abs(signal))
        if self.automatic_range:
            self._range = min(fitting, len(self._ranges) - 1)
        return math.copysign(math.inf, signal) if fitting > self._range else signal

    @property
    def zeroing(self) -> bool:
        """Whether zeroing goes on."""
        return self._clock.now() < self._zeroed_at

    @property
    def zero_w(self) -> float:
        """The zero in force, in W."""
        if not self.zeroing:
            self._zero_w = self._next_zero_w
        return self._zero_w

    def start_zeroing(self) -> None:
        """Make what the sensor sees now the zero in a while."""
        self._zero_w = self.zero_w
        self._next_zero_w = self._signal_w(_ZEROING_S)
        self._zeroed_at = self._clock.now() + _ZEROING_S

    def abort_zeroing(self) -> None:
        """Keep the former zero if zeroing goes on."""
        if self.zeroing:
            self._next_zero_w, self._zeroed_at = self._zero_w, -math.inf

    def _signal_w(self, averaging_s: float) -> float:
        detector = self._detectors.get(0)  # at every sample: a switch in front may have changed it
        if detector is None:
            return float(_DARK_NOISE_W * self._rng.standard_normal())
        return float(self._chip.measure([detector], averaging_s)[0])
