"""The full model of a mesh for discovery: couplers, losses and heat of neighbours, fitted to a wiring that is believed.

A rough twin leaves what crosstalk and couplers do unexplained, a few hundredths of the light. The full model explains
readings nearly to their noise, so that small differences between two places of one channel decide.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_heat import HeatPrior
from calibration._discovery_twin import RoughTwin, mirror
from calibration._mesh_fit import MeshFit, fit_mesh
from calibration._mesh_linear import MeshData
from calibration._mesh_space import BLOCKS, PROFILE_LENGTHS
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

_FREE = tuple(block for block in BLOCKS if block != "arm_loss")
_ROUNDS, _REACH = 1, 6.0
_SHARE = 0.03
"""Error of derivatives, relative."""
_SCATTERS = (1.0, 1.4, 2.0, 3.0)
"""Scatter of heat on single arms relative to that which was fitted."""
_GOOD_CHI = 1.2
"""Residual over noise below which no other fit of a wiring is tried."""
_RESTARTS, _FALLS = 4, 0.9
"""Most further fits from where one has ended, and the part of its residual that each must reach."""
_READINGS_PER_PORT = 100
"""Readings per port that a fit looks at."""


@dataclass(frozen=True)
class FullTwin(RoughTwin):
    """A mesh with couplers, losses and crosstalk of its own.

    ``channel`` and ``efficiency`` are as in `RoughTwin`; ``fit`` is that of a chip whose heaters are driven by the
    channels that move them.
    """

    fit: MeshFit = field(kw_only=True)

    @property
    def known(self) -> TwinParameters:
        """The chip with every channel at its phase."""
        return self.fit.parameters

    @property
    def _profile(self) -> Array:
        return np.asarray(self.fit.vector[self.fit.space.slices["profile"]])

    @property
    def mean_heat(self) -> Array:
        """Crosstalk (H, H) that heaters at all places have on average, zero diagonal."""
        return np.asarray(np.einsum("p,pkj->kj", self._profile, self.fit.space.profiles))

    @property
    def heat(self) -> tuple[HeatPrior, ...]:
        """What the channels that are known tell of the heat of others; fits scatter less than chips."""
        widths, (heated, bare) = self.fit.widths, self._profile.reshape(2, len(PROFILE_LENGTHS))
        lengths = np.array(PROFILE_LENGTHS)
        return tuple(
            HeatPrior(heated, bare, lengths, more * widths.crosstalk, widths.length, _SHARE) for more in _SCATTERS
        )

    @property
    def elements(self) -> tuple[NDArray[np.intp], Array]:
        """Upper modes (K,) of the MZIs and their couplers (K, 4), with their losses in the first ones."""
        eta = self.known.mesh_eta
        couplers = np.stack([np.cos(eta), np.sin(eta)], axis=-1).reshape(len(eta), 4)
        couplers[:, :2] *= self.known.mzi_transmission[:, None]
        return self.layout.mesh.modes, couplers

    def factors(self, power_w: Array) -> NDArray[np.complex128]:
        """Return exp(i phase) (H, B) at powers (B, H) in W."""
        return np.ascontiguousarray(np.exp(1j * self.known.phases(relabelled(power_w, self.channel))).T)

    def scale(self, lit: NDArray[np.intp]) -> Array:
        """Return the readings (B, n) in W of unit power at the outputs."""
        known = self.known
        return np.asarray(known.input_amplitude[lit, None] ** 2 * known.gain * known.output_transmission**2)

    def mirrored(self, mzi: int) -> "FullTwin":
        """Return the twin with the other sign of a still internal phase, and of the heat that it gets."""
        turns, more = mirror(self.layout, mzi)
        known = self.known
        heat = turns @ known.crosstalk
        np.fill_diagonal(heat, 1.0)
        parameters = replace(known, offset=turns @ known.offset + more, crosstalk=heat)
        return replace(self, offset=turns @ self.offset + more, fit=replace(self.fit, parameters=parameters))


def relabelled(power_w: Array, channel: NDArray[np.intp]) -> Array:
    """Return powers (B, H) of phases from those of channels (B, H): 0 where nothing is known that moves a phase."""
    return np.where(channel >= 0, power_w[:, channel], 0.0)


def fit_full(
    rough: RoughTwin, data: MeshData, noise: NoiseModel, rng: np.random.Generator, before: RoughTwin | None = None
) -> RoughTwin:
    """Fit the full model around a rough twin; the rough twin itself if that fails.

    Parameters
    ----------
    rough
        A twin with the wiring that is believed.
    data
        Readings; those in which other channels are driven do not count.
    noise
        Noise of a reading.
    rng
        Chooses readings where there are many.
    before
        The last full model of this chip, with another wiring or fewer readings, to begin with too; None if there is
        none.
    """
    if not (rough.channel >= 0).any():  # nothing moves, so nothing is to be fitted
        return rough
    loose = np.setdiff1d(np.arange(len(rough.channel)), rough.channel[rough.channel >= 0])
    rows = np.flatnonzero((data.power_w[:, loose] == 0.0).all(axis=1))
    most = _READINGS_PER_PORT * rough.layout.ports
    used = data.take(np.sort(rng.permutation(rows)[:most]))
    used = replace(used, power_w=relabelled(used.power_w, rough.channel))
    carried = [_carried(rough, before)] if isinstance(before, FullTwin) else []
    fit = _best_fit(used, _start(rough), noise, [*carried, None])
    if fit is None:
        return rough
    efficiency = rough.efficiency.copy()
    placed = rough.channel >= 0
    efficiency[rough.channel[placed]] = fit.parameters.efficiency[placed]
    loose_share = np.median(fit.parameters.efficiency[placed] / rough.efficiency[rough.channel[placed]])
    efficiency[loose] *= loose_share
    return FullTwin(
        rough.layout, rough.channel, efficiency, rough.offset, rough.inputs_w, rough.gains, rough.eta, fit=fit
    )


def _best_fit(
    data: MeshData, start: TwinParameters, noise: NoiseModel, begins: list[TwinParameters | None]
) -> MeshFit | None:
    """Fit from one beginning after the other until one fit is good; None if all diverge."""
    best: MeshFit | None = None
    for begin in begins:
        try:
            fit = _fitted(data, start, noise, begin)
        except CalibrationError:
            continue
        if best is None or fit.chi < best.chi:
            best = fit
        if best.chi < _GOOD_CHI:
            break
    return best


def _fitted(data: MeshData, start: TwinParameters, noise: NoiseModel, begin: TwinParameters | None) -> MeshFit:
    """Fit, and again from where that ended while it helps: near bar states the way is long."""

    def fitted(begin: TwinParameters | None) -> MeshFit:
        return fit_mesh(data, start, noise, lambda *_: None, free=_FREE, rounds=_ROUNDS, reach=_REACH, begin=begin)

    fit = fitted(begin)
    for _ in range(_RESTARTS):
        if fit.chi < _GOOD_CHI:
            break
        further = fitted(fit.parameters)
        if further.chi > _FALLS * fit.chi:
            break
        fit = further
    return fit


def _carried(rough: RoughTwin, before: FullTwin) -> TwinParameters:
    """Return what a full model knows as a chip of another wiring; efficiencies of phases that it lacked are new."""
    start, known = _start(rough), before.known
    efficiency = np.where((rough.channel >= 0) & (before.channel >= 0), known.efficiency, start.efficiency)
    return replace(known, mesh=start.mesh, stuck=start.stuck, efficiency=efficiency)


def _start(rough: RoughTwin) -> TwinParameters:
    layout = rough.layout
    names = [layout.heaters[phase] for phase in np.flatnonzero(rough.channel < 0)]
    nominal = TwinParameters.nominal(
        layout.ports, input_amplitude=1.0, lo_amplitude=0.0, mesh=layout.mesh, inputs="ports", receivers="power",
        stuck_rad=dict.fromkeys(names, 0.0),
    )  # fmt: skip
    own = np.where(rough.channel >= 0, rough.efficiency[rough.channel], float(np.median(rough.efficiency)))
    return replace(
        nominal,
        offset=np.mod(rough.offset, 2.0 * np.pi),
        efficiency=own,
        mesh_eta=np.full_like(nominal.mesh_eta, rough.eta),
        gain=rough.gains,
        input_amplitude=np.sqrt(rough.inputs_w),
    )
