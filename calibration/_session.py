"""The state of one calibration run: what is known so far, and how to set powers and read fields with it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics.heaters import voltage_from_power

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""

LO_STEPS = 4
"""Local oscillator phases of one complex reading, equally spaced over the circle."""


class Session:
    """Working knowledge of a chip under calibration, and the moves that build on it.

    Parameters
    ----------
    bench
        The bench.
    rng
        Source of the random settings.
    progress
        Told about every stage.
    """

    def __init__(self, bench: Bench, rng: np.random.Generator, progress: Progress) -> None:
        self.bench = bench
        self.layout = bench.layout
        self.rng = rng
        self.progress = progress
        heaters = len(self.layout.heaters)
        self.resistance_ohm = np.full(heaters, np.nan)
        self.beta_per_w = np.zeros(heaters)
        self.efficiency = np.full(heaters, np.pi / bench.description.chip.nominal.p_pi_w)
        self.offset = np.full(heaters, np.nan)
        self.power = np.zeros(heaters)
        self.dark_w = np.zeros(len(self.layout.detectors))

    @property
    def period_w(self) -> Array:
        """Power (H,) in W for a phase of 2 pi."""
        return np.asarray(2.0 * np.pi / self.efficiency)

    def power_for_phase(self, heater: int, phase: float) -> float:
        """Power in W, within one period, that gives a known heater a phase in rad."""
        wanted = (phase - self.offset[heater]) % (2.0 * np.pi)
        return float(wanted / self.efficiency[heater])

    def set_powers(self, power: Array) -> None:
        """Set heater powers (H,) in W and wait until the chip has settled."""
        self.power = np.array(power, dtype=np.float64)
        self.bench.set_voltages(voltage_from_power(self.power, self.resistance_ohm, self.beta_per_w))
        self.bench.settle()

    def read(self) -> Array:
        """Detector powers (2n,) in W without their dark readings.

        Raises
        ------
        CalibrationError
            If a detector is out of range.
        """
        reading = self.bench.read_detectors()
        if not reading.valid.all():
            bad = [self.layout.detectors[d] for d in np.flatnonzero(~reading.valid)]
            raise CalibrationError(f"detectors {', '.join(bad)} are out of range; check laser power and meter range")
        return np.asarray(reading.power_w - self.dark_w)

    def sweep(self, heaters: NDArray[np.intp], powers: Array) -> Array:
        """Step several heaters together through ``powers`` (points, h) in W; return readings (points, 2n) in W."""
        rest = self.power.copy()
        rows = []
        for row in powers:
            setting = rest.copy()
            setting[heaters] = row
            self.set_powers(setting)
            rows.append(self.read())
        self.power = rest
        return np.stack(rows)

    def read_fields(self) -> NDArray[np.complex128]:
        """Complex fields (n,) at the receivers relative to the local oscillator, in units of its beat, W.

        The four phases of the local oscillator cancel everything that does not beat with it.
        """
        n, lo = self.layout.ports, self.layout.lo
        rest = self.power.copy()
        total = np.zeros(n, dtype=np.complex128)
        for step in range(LO_STEPS):
            angle = 2.0 * np.pi * step / LO_STEPS
            setting = rest.copy()
            setting[lo] = angle / self.efficiency[lo]
            self.set_powers(setting)
            reading = self.read()
            total += np.exp(1j * angle) * (reading[:n] - reading[n:])
        self.power = rest
        return 1j * total / LO_STEPS

    def sweep_fields(self, heaters: NDArray[np.intp], powers: Array) -> NDArray[np.complex128]:
        """As `sweep`, with complex fields (points, n)."""
        rest = self.power.copy()
        rows = []
        for row in powers:
            self.power = rest.copy()
            self.power[heaters] = row
            rows.append(self.read_fields())
        self.power = rest
        return np.stack(rows)
