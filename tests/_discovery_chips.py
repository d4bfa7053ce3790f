"""Bare meshes with hidden wiring faults, behind the protocol that calibration's experiments talk to.

A numpy stand-in of its own: arm by arm, heat on bare arms included, so that discovery is not tested against the
models that calibration fits.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.layout import ChipLayout

Array = NDArray[np.float64]
NO_PHASE = -1
"""What a channel acts on that moves no phase, and what a dead detector sees."""


class FaultyMesh:
    """A bare mesh of n ports; counts and answers readings.

    ``acts_on`` (H,) is the phase that each channel moves, ``sees`` (n,) the output that each detector sees; both may be
    ``NO_PHASE``.  Judges read them, the code under test does not.
    """

    max_total_power_w = 1e3

    def __init__(
        self, ports: int, seed: int, *, swapped: int = 0, dead: int = 0, dead_detectors: int = 0,
        permuted_detectors: int = 0, shuffled: bool = False, coupler_mean: float = 0.0, coupler_spread: float = 0.02,
        crosstalk: float = 0.015, signs: bool = False, relative: float = 1e-3, floor: float = 1e-5,
        efficiency_error: float = 0.05, pi_power_w: float = 0.02,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng([seed, ports, 77])
        self.layout = ChipLayout(ports, inputs="ports", receivers="power")
        heaters, mzis = len(self.layout.heaters), len(self.layout.mesh.mzis)
        self.max_power_w = np.full(heaters, 3.0 * pi_power_w)
        self.nominal_efficiency = np.full(heaters, np.pi / pi_power_w)
        self.readings = 0
        self._ports, self._rng = ports, rng
        own = 1.0 + efficiency_error * rng.uniform(-1, 1) + 0.02 * rng.standard_normal(heaters)
        self.efficiency = self.nominal_efficiency * own
        self._eta = np.pi / 4 + coupler_mean + coupler_spread * rng.standard_normal((mzis, 2))
        self._loss = 10 ** (-(0.15 + 0.05 * rng.standard_normal(mzis)) / 20)
        self._entry = 10 ** (-(1.0 + 0.3 * rng.standard_normal(ports)) / 20)
        self._gain = 1.0 + 0.05 * rng.standard_normal(ports)
        self._noise = (relative, floor)
        self._heat = self._arm_heat(crosstalk, signs)
        self._offset = rng.uniform(-np.pi, np.pi, 2 * self.layout.mesh.depth * ports)
        self._wire(swapped, dead, dead_detectors, permuted_detectors, shuffled)

    def _wire(self, swapped: int, dead: int, dead_detectors: int, permuted: int, shuffled: bool) -> None:
        rng, heaters, n = self._rng, len(self.layout.heaters), self._ports
        self.acts_on = rng.permutation(heaters) if shuffled else np.arange(heaters)
        chosen = rng.permutation(heaters)[: swapped + dead]
        moved = chosen[:swapped]
        self.acts_on[moved] = np.roll(self.acts_on[moved], 1)
        self.acts_on[chosen[swapped:]] = NO_PHASE
        self.sees = np.arange(n)
        picked = rng.permutation(n)[:permuted]
        self.sees[picked] = np.roll(self.sees[picked], 1)
        self.sees[rng.permutation(n)[:dead_detectors]] = NO_PHASE

    def _arm_heat(self, crosstalk: float, signs: bool) -> Array:
        """Phase of every arm section (2 depth n) per own phase of every heated phase (H)."""
        n, depth = self._ports, self.layout.mesh.depth
        arms = np.array([(x, m) for x in range(2 * depth) for m in range(n)], dtype=float)
        distance = np.linalg.norm(arms[:, None] - self.layout.heater_sites[None], axis=2)
        reach = crosstalk * np.exp(-(np.maximum(distance, 1.0) - 1.0) / 1.5)
        scatter = 1.0 + 0.3 * self._rng.standard_normal(reach.shape)
        if signs:
            scatter = scatter * self._rng.choice([-1.0, 1.0], reach.shape)
        return np.where(distance < 0.5, 1.0, reach * scatter)

    def phases(self, power_w: Array) -> Array:
        """Phases (B, 2 depth, n) in rad of all arm sections at powers (B, H) in W."""
        moved = np.zeros_like(power_w)
        for channel, phase in enumerate(self.acts_on):
            if phase != NO_PHASE:
                moved[:, phase] = self.efficiency[channel] * power_w[:, channel]
        return (self._offset + moved @ self._heat.T).reshape(len(power_w), -1, self._ports)

    def outputs(self, power_w: Array, lit: NDArray[np.intp]) -> Array:
        """Powers (B, n) at the outputs."""
        phases, batch = self.phases(power_w), np.arange(len(power_w))
        field = np.zeros((len(power_w), self._ports), dtype=complex)
        field[batch, lit] = self._entry[lit]
        for k, (column, mode) in enumerate(self.layout.mesh.mzis):
            pair = field[:, mode : mode + 2]
            for section in (0, 1):
                eta = self._eta[k, section]
                pair = pair * np.exp(1j * phases[:, 2 * column + section, mode : mode + 2])
                pair = pair @ np.array([[np.cos(eta), 1j * np.sin(eta)], [1j * np.sin(eta), np.cos(eta)]])
            field[:, mode : mode + 2] = self._loss[k] * pair
            # Sections of bare modes only add phases to be pushed on.
            if k + 1 == len(self.layout.mesh.mzis) or self.layout.mesh.mzis[k + 1][0] != column:
                bare = [m for m in range(self._ports) if not self._covered(column, m)]
                turn = phases[:, 2 * column, bare] + phases[:, 2 * column + 1, bare]
                field[:, bare] *= np.exp(1j * turn)
        return np.abs(field) ** 2

    def _covered(self, column: int, mode: int) -> bool:
        return any(c == column and m in (mode, mode - 1) for c, m in self.layout.mesh.mzis)

    def measure(self, stage: str, power_w: Array, lit: NDArray[np.intp]) -> Array:
        """One sweep; see the Probe protocol."""
        assert stage, "sweeps have names"
        assert power_w.min() >= 0.0, "powers are not negative"
        assert (power_w <= self.max_power_w).all(), "powers keep the limits"
        self.readings += len(lit)
        seen = self.outputs(power_w, lit)
        relative, floor = self._noise
        clean = np.where(self.sees == NO_PHASE, 0.0, seen[:, self.sees] * self._gain)
        noise = relative * clean * self._rng.standard_normal(clean.shape)
        return np.asarray(clean + noise + floor * self._rng.standard_normal(clean.shape))


def truth(chip: FaultyMesh) -> Mapping[str, str | None]:
    """Channel (by its heater's name in chip.yaml) that moves each phase; None where none does."""
    names = chip.layout.heaters
    found: dict[str, str | None] = dict.fromkeys(names)
    found.update({names[phase]: names[channel] for channel, phase in enumerate(chip.acts_on) if phase != NO_PHASE})
    return found
