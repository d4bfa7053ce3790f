"""Electronics behind the hidden chip's photodiodes: gain, dark offset, noise."""

from collections.abc import Iterator

import numpy as np

from simulated_instruments._effects import HiddenEffects
from simulated_instruments._parameters import FloatArray, HiddenParameters

_DETECTOR_STREAM = 0
_NOISE_BLOCK = 256


class Readout:
    """Electronics behind a group of detectors that is read together, with the group's own noise.

    Parameters
    ----------
    group
        Indices of the detectors.
    parameters
        Gains and dark offsets are read from here.
    effects
        Sizes of the noise.
    entropy
        Seed of the chip's noise.
    """

    def __init__(
        self, group: tuple[int, ...], parameters: HiddenParameters, effects: HiddenEffects, entropy: int
    ) -> None:
        self.index = np.array(group, dtype=np.intp)
        self._effects = effects
        self.calibrate(parameters)
        self._rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(_DETECTOR_STREAM, *group)))
        self._rows: Iterator[FloatArray] = iter(())

    def calibrate(self, parameters: HiddenParameters) -> None:
        """Take gains and dark offsets from ``parameters`` from now on."""
        self._gain = parameters.gain[self.index]
        self._dark_w = parameters.dark_w[self.index]

    def read(self, power_w: FloatArray, averaging_time_s: float | FloatArray) -> FloatArray:
        """Return readings (len(group),) in W of light ``power_w`` (len(group),) in W, averaged for a time in s."""
        return self._with_noise(power_w, averaging_time_s, self._next_noise())

    def read_series(self, power_w: FloatArray, averaging_time_s: float, count: int) -> FloatArray:
        """Return readings (count, len(group)) in W of light that stays as it is."""
        return self._with_noise(power_w, averaging_time_s, self._rng.standard_normal((count, len(self.index))))

    def _with_noise(self, power_w: FloatArray, averaging_time_s: float | FloatArray, noise: FloatArray) -> FloatArray:
        effects = self._effects
        reading = power_w * self._gain
        variance = (effects.noise_relative * reading) ** 2 + effects.noise_floor_w**2
        sigma = np.sqrt(variance * (effects.noise_averaging_s / averaging_time_s))
        return np.asarray(reading + self._dark_w + sigma * noise)

    def _next_noise(self) -> FloatArray:
        """Return (len(group),) unit normal variates; they are drawn in blocks, which is much faster."""
        row = next(self._rows, None)
        if row is None:
            self._rows = iter(self._rng.standard_normal((_NOISE_BLOCK, len(self.index))))
            row = next(self._rows)
        return row
