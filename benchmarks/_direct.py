"""A hidden chip without a bench: what experiments see, at the speed of the simulation."""

import numpy as np

from calibration._probe import Ports
from calibration._session import Array
from optinc_hw.photonics import voltage_from_power
from simulated_instruments import HiddenChip, HiddenEffects

_LASER_W, _WAVELENGTH_M = 0.010, 1550e-9
_FULL_SCALE_V, _STEPS = 12.0, 2**16
_TURNS = 1.3
_AVERAGING_S = 0.01


class DirectProbe:
    """A `calibration.Probe` on a hidden bare mesh, with the steps of a 16-bit driver; keeps the size of every sweep."""

    def __init__(self, preset: str, ports: int, seed: int) -> None:
        self.effects = HiddenEffects.preset(preset)
        self._chip = HiddenChip.from_seed(seed, ports, inputs="ports", receivers="power", effects=self.effects)
        self._chip.set_laser(_LASER_W, _WAVELENGTH_M)
        self.layout = self._chip.layout
        heaters = len(self.layout.heaters)
        self.nominal_efficiency = np.full(heaters, np.pi / self.effects.pi_power_w)
        self.max_power_w = np.full(heaters, 2.0 * _TURNS * self.effects.pi_power_w)
        self.max_total_power_w = float(self.max_power_w.sum())
        self.readings = 0
        self.sweeps: list[tuple[str, int]] = []

    def measure(self, stage: str, power_w: Array, lit: Ports) -> Array:
        """Measure one sweep, see `calibration.Probe`."""
        law = self._chip.parameters.resistance_ohm, self._chip.parameters.resistance_growth_per_w
        step = _FULL_SCALE_V / _STEPS
        rows = []
        for power, port in zip(power_w, lit.tolist(), strict=True):
            volts = np.rint(voltage_from_power(power, *law) / step) * step
            self._chip.set_heater_voltages(dict(enumerate(volts)))
            self._chip.set_lit_port(port)
            self._chip.clock.sleep(1.0)
            rows.append(self._chip.measure(range(self.layout.ports), _AVERAGING_S))
        self.readings += len(lit)
        self.sweeps.append((stage, len(lit)))
        return np.array(rows).reshape(len(lit), self.layout.ports)
