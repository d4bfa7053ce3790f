"""What a tile is retrained for, and the steps in which its heaters can be set."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calibration._checks import require_each, require_within
from calibration._session import Array
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import power_from_voltage, voltage_from_power

_LARGEST_GAIN = 2.0
"""Digital gain of a row beyond which its noise would count too much."""
_UNLIMITED_W = 1e3
_LEAST_STEP_V, _MOST_STEP_V = 1e-9, 1e3
_HAIR = 1e-12
"""Relative change of a setting far above rounding errors and far below what a chip feels."""


@dataclass(frozen=True)
class HeaterDac:
    """Steps in which heaters are set; those of input modulators are as fine as their drive asks for.

    Parameters
    ----------
    step_v
        Voltage step in V, from 1e-9 to 1000.
    resistance_ohm, beta_per_w
        Resistance laws (H,) of the heaters: above 0, and at least 0.
    whole
        Whether voltages are whole steps; otherwise a step is only a unit.

    Raises
    ------
    CalibrationError
        If a value is not finite or out of its range, or the laws differ in length.
    """

    step_v: float
    resistance_ohm: Array
    beta_per_w: Array
    whole: bool = True

    def __post_init__(self) -> None:
        require_within(
            "step_v (V)", self.step_v, _LEAST_STEP_V, _MOST_STEP_V, remedy="give the driver's full scale over its codes"
        )
        heaters, remedy = int(np.size(self.resistance_ohm)), "take the record's, or HeaterDac.of_bench(bench, step_v)"
        require_each("resistance_ohm (ohm)", self.resistance_ohm, heaters, zero=False, remedy=remedy)
        require_each("beta_per_w (1/W)", self.beta_per_w, heaters, zero=True, remedy=remedy)
        if not isinstance(self.whole, bool):
            raise CalibrationError(f"whole must be True or False, got {self.whole!r}; True for a DAC")

    @classmethod
    def of_bench(cls, bench: Bench, step_v: float, *, whole: bool = True) -> "HeaterDac":
        """Return the steps of a bench's heaters, with the resistances in force; ``step_v`` in V."""
        return cls(step_v, bench.interlock.resistance_ohm, bench.interlock.resistance_beta_per_w, whole)

    def power(self, settings: Array) -> Array:
        """Powers (H,) in W."""
        return power_from_voltage(settings * self.step_v, self.resistance_ohm, self.beta_per_w)

    def slope(self, settings: Array) -> Array:
        """Power in W that one more step of each setting gives (H,), in the mean of up and down."""
        return 0.5 * (self.power(settings + 1.0) - self.power(np.maximum(settings - 1.0, 0.0)))

    def settings(self, power_w: Array, max_power_w: Array) -> Array:
        """Nearest settings (H,) for powers (H,) in W among those within limits (H,) in W."""
        exact = voltage_from_power(power_w, self.resistance_ohm, self.beta_per_w) / self.step_v
        return np.minimum(np.rint(exact) if self.whole else exact, self.largest(max_power_w))

    def largest(self, max_power_w: Array) -> Array:
        """Largest settings (H,) within powers (H,) in W."""
        limit = np.minimum(max_power_w, _UNLIMITED_W)
        exact = voltage_from_power(limit, self.resistance_ohm, self.beta_per_w) / self.step_v
        found = np.floor(exact) if self.whole else exact
        smaller = np.maximum(found - 1.0, 0.0) if self.whole else (1.0 - _HAIR) * found
        return np.where(self.power(found) > limit, smaller, found)  # rounding errors can lift a setting over its limit


@dataclass(frozen=True)
class CellTask:
    """Inputs of one tile, the products that are wanted, and what errors cost.

    Every output may have a digital gain and offset of its own, which are free.

    Parameters
    ----------
    amplitudes
        Inputs (batch, c) in [-1, 1].
    matrix
        Wanted matrix (r, c).
    weights
        Share of the slack (r,) that an error of 1 of each output uses up.
    """

    amplitudes: Array
    matrix: Array
    weights: Array

    @cached_property
    def target(self) -> Array:
        """Wanted products (batch, r)."""
        return np.asarray(self.amplitudes @ self.matrix.T)

    def lines(self, products: Array) -> tuple[Array, Array]:
        """Gains and offsets (r,) with which ``gain * target + offset`` is nearest to products (batch, r)."""
        centred = self.target - self.target.mean(axis=0)
        size = (centred**2).sum(axis=0)
        gain = np.divide((centred * products).sum(axis=0), size, out=np.ones(len(size)), where=size > 1e-12)
        gain = np.clip(gain, 1.0 / _LARGEST_GAIN, _LARGEST_GAIN)
        return gain, products.mean(axis=0) - gain * self.target.mean(axis=0)

    def error(self, products: Array) -> Array:
        """Weighted errors (batch, r) that the best gains and offsets leave."""
        gain, offset = self.lines(products)
        return np.asarray(((products - offset) / gain - self.target) * self.weights)

    def cost(self, products: Array) -> float:
        """Mean square of the weighted errors."""
        return float(np.mean(self.error(products) ** 2))

    def without_lines(self, slopes: Array) -> Array:
        """Weighted slopes (batch, r, F) without what gains and offsets can make up for."""
        left = np.empty_like(slopes)
        for row, target in enumerate(self.target.T):
            basis, _ = np.linalg.qr(np.stack([np.ones(len(target)), target], axis=1))
            left[:, row] = slopes[:, row] - basis @ (basis.T @ slopes[:, row])
        return left * self.weights[:, None]
