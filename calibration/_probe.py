"""How experiments see a chip: one sweep of settings at a time, and nothing else."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibration._electrical_ground import CommonGround
from calibration._mesh_checks import checked_settings
from calibration._session import Array, Progress, allowed_power, allowed_total
from optinc_hw.bench import Bench
from optinc_hw.photonics import ChipLayout, voltage_from_power

Ports = NDArray[np.intp]


class Probe(Protocol):
    """A chip under calibration; powers in W, readings in W without dark readings."""

    layout: ChipLayout
    max_power_w: Array
    max_total_power_w: float
    nominal_efficiency: Array
    readings: int

    def measure(self, stage: str, power_w: Array, lit: Ports) -> Array:
        """Measure one sweep: a checkpoint of the run.

        Parameters
        ----------
        stage
            What it is for.
        power_w
            Heater powers (settings, H) in W.
        lit
            Lit port (settings,) of each setting.

        Returns
        -------
        NDArray
            Readings (settings, n) in W, dark readings subtracted; NaN where a detector was out of range.
        """
        ...


class BenchProbe:
    """A bare mesh on a bench.

    Parameters
    ----------
    bench
        An open bench of a chip without modulators.
    resistance_ohm, beta_per_w
        Resistance laws (H,) of the heaters.
    dark_w
        Readings (n,) in W without light.
    progress
        Called with (stage, done, total).
    ground
        Ground returns that heaters share, whose potentials are added to the voltages; None if there are none.
    """

    def __init__(
        self, bench: Bench, resistance_ohm: Array, beta_per_w: Array, dark_w: Array, progress: Progress,
        ground: CommonGround | None = None,
    ) -> None:  # fmt: skip
        self._bench = bench
        self._ground = ground
        self._law = resistance_ohm, beta_per_w
        self._dark_w = dark_w
        self._progress = progress
        self.layout = bench.layout
        self.max_power_w = allowed_power(bench, resistance_ohm, beta_per_w)
        self.max_total_power_w = allowed_total(bench, resistance_ohm, beta_per_w)
        self.nominal_efficiency = np.full(len(self.layout.heaters), np.pi / bench.description.chip.nominal.p_pi_w)
        self.readings = 0
        self._lit = False

    def measure(self, stage: str, power_w: Array, lit: Ports) -> Array:
        """Set, settle and read setting after setting; see `Probe`.  No settings are no readings, and nothing is set.

        Raises
        ------
        CalibrationError
            If powers or lit ports are none of this chip's; nothing has been set then.
        LimitError
            If a heater's or the chip's limit would be exceeded.
        InstrumentError
            If an instrument fails.
        """
        power_w, lit = checked_settings(power_w, lit, self.layout)
        if not len(lit):
            return np.empty((0, len(self.layout.detectors)))
        if not self._lit:
            self._bench.light(on=True)
            self._lit = True
        ground = self._ground
        voltages = voltage_from_power(power_w, *self._law) if ground is None else ground.source_voltage(power_w)
        rows = []
        for done, (row, port) in enumerate(zip(voltages, lit.tolist(), strict=True)):
            reading = self._bench.measure(row, port)
            rows.append(np.where(reading.valid, reading.power_w, np.nan) - self._dark_w)
            self.readings += 1
            self._progress(stage, done + 1, len(lit))
        return np.stack(rows)
