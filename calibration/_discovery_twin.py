"""A rough twin for discovery: phases that explain powers, found one after the other, whatever is dead or swapped.

Only internal phases whose channels passed their gates move; all others stand still at phases that are as unknown as
offsets are. So the twin relies on little, and dead or swapped heaters do no harm.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration import _discovery_kernels as kernels
from calibration._mesh_linear import MeshData
from calibration._session import Array
from optinc_hw.photonics import ChipLayout

MODEL_SHARE = 0.05
"""Error of the rough twin relative to the mean power, in units of which prior widths count."""
_GAIN_RANGE = (0.5, 2.0)
_ETA_RANGE = 0.12
_TINY = 1e-300
_LEAST_W = 1e-140  # least mean power: its square is no 0


@dataclass(frozen=True)
class RoughTwin:
    """A mesh without crosstalk.

    Parameters
    ----------
    layout
        The chip.
    channel
        Channel (H,) that moves each phase; -1 for those that stand still.
    efficiency
        Phase per power (H,) of each channel in rad/W.
    offset
        Phases (H,) in rad without power.
    inputs_w, gains
        Power in W that enters each port (n,), and efficiencies of the outputs (n,).
    eta
        Splitting angle of all couplers in rad.
    """

    layout: ChipLayout
    channel: NDArray[np.intp]
    efficiency: Array
    offset: Array
    inputs_w: Array
    gains: Array
    eta: float = np.pi / 4

    @property
    def elements(self) -> tuple[NDArray[np.intp], Array]:
        """Upper modes (K,) of the MZIs and their couplers (K, 4)."""
        modes = self.layout.mesh.modes
        return modes, np.tile([np.cos(self.eta), np.sin(self.eta)], (len(modes), 2))

    @property
    def mean_heat(self) -> Array:
        """Crosstalk (H, H) that heaters at all places have on average, zero diagonal; none is known of a rough twin."""
        return np.zeros((len(self.offset), len(self.offset)))

    def factors(self, power_w: Array) -> NDArray[np.complex128]:
        """Return exp(i phase) (H, B) at powers (B, H) in W."""
        moved = self.channel >= 0
        phases = np.repeat(self.offset[:, None], len(power_w), axis=1)
        wires = self.channel[moved]
        phases[moved] += (power_w[:, wires] * self.efficiency[wires]).T
        return np.asarray(np.exp(1j * phases))

    def scale(self, lit: NDArray[np.intp]) -> Array:
        """Return the readings (B, n) in W of unit power at the outputs."""
        return np.asarray(self.inputs_w[lit, None] * self.gains)

    def predict(self, power_w: Array, lit: NDArray[np.intp]) -> Array:
        """Predict readings (B, n) in W."""
        shares = kernels.outputs(*self.elements, self.factors(power_w), lit, self.layout.ports)
        return np.asarray(shares * self.scale(lit))

    def interferences(self, power_w: Array, lit: NDArray[np.intp]) -> NDArray[np.complex128]:
        """Return ``Z`` (H, B, n) in W: a change ``d`` of a phase changes readings by ``Re(Z (exp(i d) - 1))``."""
        made = kernels.interferences(*self.elements, self.factors(power_w), lit, self.layout.ports)
        return np.asarray(made * self.scale(lit))

    def distance(self, data: MeshData) -> float:
        """Mean total variation distance to readings, invalid ones left out."""
        seen = np.isfinite(data.readings_w)
        told = np.where(seen, self.predict(data.power_w, data.lit), 0.0)
        read = np.where(seen, np.maximum(data.readings_w, 0.0), 0.0)
        shares = [values / np.maximum(values.sum(axis=1, keepdims=True), _TINY) for values in (told, read)]
        return float(0.5 * np.abs(shares[0] - shares[1]).sum(axis=1).mean())

    def misfit(self, data: MeshData, unit: MeshData | None = None) -> float:
        """Sum of squared residuals over `MODEL_SHARE` of the mean power, of ``unit`` if given."""
        seen = np.isfinite(data.readings_w)
        off = np.where(seen, self.predict(data.power_w, data.lit) - np.where(seen, data.readings_w, 0.0), 0.0)
        return weigh(off, data if unit is None else unit)

    def with_scales(self, data: MeshData, rounds: int = 2) -> "RoughTwin":
        """Return the twin with the inputs' and outputs' efficiencies that fit best."""
        seen = np.isfinite(data.readings_w)
        read, inputs, gains = np.where(seen, data.readings_w, 0.0), self.inputs_w, self.gains
        shares = np.where(seen, self.predict(data.power_w, data.lit) / self.scale(data.lit), 0.0)
        for _ in range(rounds):
            told = shares * gains
            ports = len(inputs)
            above = np.bincount(data.lit, (told * read).sum(axis=1), ports)
            below = np.bincount(data.lit, (told**2).sum(axis=1), ports)
            inputs = np.where(below > 0.0, above / np.maximum(below, _TINY), inputs)
            told = shares * inputs[data.lit, None]
            found = (told * read).sum(axis=0) / np.maximum((told**2).sum(axis=0), _TINY)
            gains = np.where(seen.any(axis=0), np.clip(found, *_GAIN_RANGE), 1.0)
        return replace(self, inputs_w=np.maximum(inputs, _TINY), gains=gains)

    def with_couplers(self, data: MeshData) -> "RoughTwin":
        """Return the twin with the splitting angle common to all couplers that fits best."""
        tried = [
            replace(self, eta=eta).with_scales(data) for eta in np.pi / 4 + _ETA_RANGE * np.linspace(-1.0, 1.0, 17)
        ]
        return min(tried, key=lambda twin: twin.misfit(data))

    def descended(
        self, data: MeshData, free: NDArray[np.bool_], prior: Array, sigma: Array, passes: int
    ) -> "RoughTwin":
        """Return the twin with free phases (H,) set one after the other to fit best.

        Parameters
        ----------
        data
            Readings.
        free
            Phases to set.
        prior, sigma
            Means and widths (H,) of Gaussian priors in rad; infinite widths for none.
        passes
            How often.
        """
        twin = self
        seen = np.isfinite(data.readings_w)
        read = np.where(seen, data.readings_w, 0.0)
        precision = (MODEL_SHARE * _mean(data) / sigma) ** 2
        for _ in range(passes):
            twin = twin.with_scales(data)
            scale = np.where(seen, twin.scale(data.lit), 0.0)
            change, _ = kernels.descend(
                *twin.elements, twin.factors(data.power_w), data.lit, read, scale, free, twin.offset - prior, precision
            )
            twin = replace(twin, offset=twin.offset + change)
        return twin

    def mirrored(self, mzi: int) -> "RoughTwin":
        """Return the twin with the other sign of a still internal phase: no reading tells them apart."""
        turns, more = mirror(self.layout, mzi)
        return replace(self, offset=turns @ self.offset + more)


def mirror(layout: ChipLayout, mzi: int) -> tuple[Array, Array]:
    """Return phases with which a mesh does the same although an internal phase that stands still has the other sign.

    The external phase turns by pi, and what the outputs turn by is pushed on along the light.

    Returns
    -------
    tuple
        Matrix (H, H) and constants (H,) in rad that take the phases to the others.
    """
    mzis, theta, phi = layout.mesh.mzis, layout.mesh_theta, layout.mesh_phi
    heaters = len(layout.heaters)
    turns, more = np.eye(heaters), np.zeros(heaters)
    column, upper = mzis[mzi]
    by_theta, constant = np.zeros(layout.ports), np.zeros(layout.ports)
    by_theta[[upper, upper + 1]], constant[upper + 1] = 1.0, np.pi
    more[phi[mzi]] = np.pi
    turns[theta[mzi], theta[mzi]] = -1.0
    for k in range(mzi + 1, len(mzis)):
        if mzis[k][0] > column:
            m = mzis[k][1]
            turns[phi[k], theta[mzi]] += by_theta[m] - by_theta[m + 1]
            more[phi[k]] += constant[m] - constant[m + 1]
            by_theta[m], constant[m] = by_theta[m + 1], constant[m + 1]
    return turns, more


def weigh(values: Array, unit: MeshData) -> float:
    """Sum of squares over `MODEL_SHARE` of the mean power of ``unit``."""
    return float((values**2).sum()) / (MODEL_SHARE * _mean(unit)) ** 2


def _mean(data: MeshData) -> float:
    seen = data.readings_w[np.isfinite(data.readings_w)]
    return max(float(seen.mean()) if len(seen) else 0.0, _LEAST_W)
