"""Damaged bare meshes: swapped and dead heaters, a dead detector; how discovery sees them, and what is true."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics import ChipLayout, voltage_from_power
from simulated_instruments import HiddenChip, HiddenEffects

SWAPPED, LEAST_SWAPPED, DEAD = 0.05, 2, 3
_LASER_W, _WAVELENGTH_M = 0.010, 1550e-9
_FULL_SCALE_V, _STEPS = 12.0, 2**16
_TURNS = 1.3
_AVERAGING_S = 0.01


@dataclass(frozen=True)
class Damage:
    """What is wrong with a chip: heaters exchanged in a ring, some that move no phase, a detector without light."""

    layout: ChipLayout
    swapped: tuple[str, ...]
    dead: tuple[str, ...]
    blind: str
    phases: tuple[float, ...]

    @classmethod
    def drawn(cls, ports: int, seed: int) -> "Damage":
        """Draw 5 % of the heaters (two at least) to be swapped, three to be dead, and a dead detector."""
        layout = ChipLayout(ports, inputs="ports", receivers="power")
        rng, names = np.random.default_rng([seed, ports, 5]), layout.heaters
        count = max(LEAST_SWAPPED, round(SWAPPED * len(names)))
        chosen = [names[k] for k in rng.permutation(len(names))[: count + DEAD]]
        blind = layout.detectors[int(rng.integers(ports))]
        return cls(layout, tuple(chosen[:count]), tuple(chosen[count:]), blind, tuple(rng.uniform(-3.0, 3.0, DEAD)))

    @property
    def wires(self) -> dict[str, str]:
        """Heater at which the wires of each swapped one end."""
        return dict(zip(self.swapped, self.swapped[-1:] + self.swapped[:-1], strict=True))

    @property
    def driven_by(self) -> dict[str, str | None]:
        """Heater to whose channel each one really hangs; None for dead ones."""
        found: dict[str, str | None] = {name: name for name in self.layout.heaters}
        found.update({end: wire for wire, end in self.wires.items()})
        found.update(dict.fromkeys(self.dead))
        return found

    def truth(self, opens: int, *, wired: bool = False) -> dict[str, Any]:
        """Section ``truth`` of a hidden chip: the first ``opens`` dead heaters take no current, others warm nothing.

        With ``wired`` all wires end where they should.
        """
        stuck = dict(zip(self.dead[opens:], self.phases[opens:], strict=True))
        wires = {} if wired else {"wires": self.wires}
        return {
            "dead_heaters": list(self.dead[:opens]),
            "stuck_heaters": stuck,
            "dead_detectors": [self.blind],
            **wires,
        }


class DamagedProbe:
    """A `calibration.Probe` on a damaged hidden chip, with the steps of a 16-bit driver.

    Powers are set as discovery does it: by the heaters' cold resistances, whose growth it does not know yet.
    """

    def __init__(self, preset: str, ports: int, seed: int) -> None:
        self.damage = Damage.drawn(ports, seed)
        self.effects = HiddenEffects.preset(preset)
        content = {"version": 1, "preset": preset, "ports": ports, "seed": seed, "truth": self.damage.truth(0)}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "hidden_chip.yaml"
            file.write_text(json.dumps(content), encoding="utf-8")
            self._chip = HiddenChip.from_file(file)
        self._chip.set_laser(_LASER_W, _WAVELENGTH_M)
        self.layout = self.damage.layout
        heaters = len(self.layout.heaters)
        self.nominal_efficiency = np.full(heaters, np.pi / self.effects.pi_power_w)
        self.max_power_w = np.full(heaters, 2.0 * _TURNS * self.effects.pi_power_w)
        self.max_total_power_w = float(self.max_power_w.sum())
        self.readings = 0

    def measure(self, stage: str, power_w: NDArray[np.float64], lit: NDArray[np.intp]) -> NDArray[np.float64]:
        """Measure one sweep, see `calibration.Probe`."""
        del stage
        ohm, step = self._chip.parameters.resistance_ohm, _FULL_SCALE_V / _STEPS
        volts = np.rint(voltage_from_power(power_w, ohm, np.zeros(len(ohm))) / step) * step
        rows = []
        for row, port in zip(volts, lit.tolist(), strict=True):
            self._chip.set_heater_voltages(dict(enumerate(row)))
            self._chip.set_lit_port(port)
            self._chip.clock.sleep(1.0)
            rows.append(self._chip.measure(range(self.layout.ports), _AVERAGING_S))
        self.readings += len(lit)
        return np.array(rows).reshape(len(lit), self.layout.ports)
