"""How a hidden chip ages between two sessions."""

from dataclasses import dataclass, replace

import numpy as np

from simulated_instruments._draw import positive
from simulated_instruments._parameters import HiddenParameters


@dataclass(frozen=True)
class Drift:
    """Changes of a chip; "change" is common and relative, "spread" one standard deviation of single elements."""

    resistance_change: float = 0.0
    resistance_spread: float = 0.0
    efficiency_change: float = 0.0
    efficiency_spread: float = 0.0
    offset_rms_rad: float = 0.0
    gain_spread: float = 0.0

    def of(self, parameters: HiddenParameters, seed: int) -> HiddenParameters:
        """Return the parameters after the drift that belongs to ``seed``."""
        rng, p = np.random.default_rng(seed), parameters
        resistance, efficiency = (rng.standard_normal(p.pi_power_w.shape) for _ in range(2))
        offset, gain = rng.standard_normal(p.offset_rad.shape), rng.standard_normal(p.gain.shape)
        more_efficient = positive(1.0 + self.efficiency_change + self.efficiency_spread * efficiency)
        return replace(
            p,
            resistance_ohm=p.resistance_ohm
            * positive(1.0 + self.resistance_change + self.resistance_spread * resistance),
            pi_power_w=p.pi_power_w / more_efficient,
            offset_rad=p.offset_rad + self.offset_rms_rad * offset,
            gain=p.gain * positive(1.0 + self.gain_spread * gain),
        )
