"""A twin that learns from what the chip did while it is retrained."""

from collections import deque
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration._checks import require_within
from calibration._retrain_linear import ProductSlopes, TwinProducts
from calibration._session import Array
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.arms import bare_arms

_LENGTHS = (0.5, 1.0, 2.0, 4.0)
"""Lengths in pitches over which heat that the twin does not know may fall off."""
_SHORTER, _TRIES = 0.3, 5
_FAR_OFF = 0.5
"""Share of the rms error that counts as noise while it is larger than that."""
_LEAST_DOUBT, _MOST_DOUBT = 1e-9, 1e3
"""Standard deviations whose inverse squares still leave the normal equations regular."""


@dataclass(frozen=True)
class TwinDoubt:
    """How far a twin may be off (one standard deviation each, from 1e-9 to 1000).

    Parameters
    ----------
    phase_rad
        Phases without heat, in rad.
    coupler_rad
        Splitting angles in rad.
    efficiency
        Phases per heater power, relative; errors of resistances count here.
    crosstalk
        Phase of neighbours per heater's own phase, at one pitch.
    product
        Products, in units of the input amplitude 1: noise, and what no twin has.

    Raises
    ------
    CalibrationError
        If one is not finite or out of range.
    """

    phase_rad: float = 0.1
    coupler_rad: float = 0.05
    efficiency: float = 0.02
    crosstalk: float = 0.02
    product: float = 0.003

    def __post_init__(self) -> None:
        for field in fields(self):
            require_within(
                f"{field.name} of a TwinDoubt", getattr(self, field.name), _LEAST_DOUBT, _MOST_DOUBT,
                remedy="what is surely known has a small doubt, such as 1e-6",
            )  # fmt: skip


@dataclass(frozen=True)
class _Seen:
    """One setting: powers (batch, H) in W, products (batch, r), and the field of a product of 1 (r,)."""

    power_w: Array
    products: Array
    scale: Array


@dataclass(frozen=True)
class _Corrections:
    """Meaning of a twin's corrections: which numbers are which."""

    prior: TwinParameters

    @cached_property
    def phases(self) -> NDArray[np.intp]:
        """Heaters whose offsets are corrected: all but attenuators and local oscillator."""
        layout = self.prior.layout
        generator = np.arange(2 * layout.modulators)
        return np.concatenate([generator, layout.mesh_theta, layout.mesh_phi, layout.output_phase])

    @cached_property
    def generator(self) -> int:
        """Number of heaters of the generator."""
        return 2 * self.prior.layout.modulators

    @cached_property
    def spreads(self) -> Array:
        """Shapes (S, H, H) that unknown heat to other arms may have."""
        return _spreads(self.prior)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Numbers of each kind, in their order."""
        return {
            "phases": len(self.phases),
            "couplers": self.prior.mesh_eta.size,
            "input_couplers": self.prior.input_eta.size,
            "efficiencies": len(self.phases),
            "spreads": len(self.spreads),
            "generator": self.generator**2,
        }

    def precision(self, doubt: TwinDoubt) -> Array:
        """Inverse variances of all corrections beforehand."""
        sigma = {
            "phases": doubt.phase_rad, "couplers": doubt.coupler_rad, "input_couplers": doubt.coupler_rad,
            "efficiencies": doubt.efficiency,
            "spreads": doubt.crosstalk, "generator": doubt.crosstalk,
        }  # fmt: skip
        return np.concatenate([np.full(size, sigma[name] ** -2.0) for name, size in self.sizes.items()])

    def twin(self, correction: Array) -> TwinParameters:
        """Return the corrected twin."""
        stops = np.cumsum(list(self.sizes.values()))
        part = dict(zip(self.sizes, np.split(correction, stops[:-1]), strict=True))
        prior, inputs = self.prior, self.generator
        offset, crosstalk = prior.offset.copy(), prior.crosstalk + np.tensordot(part["spreads"], self.spreads, axes=1)
        offset[self.phases] += part["phases"]
        efficiency = prior.efficiency.copy()
        efficiency[self.phases] *= 1.0 + part["efficiencies"]
        crosstalk[:inputs, :inputs] += part["generator"].reshape(inputs, inputs) * (1.0 - np.eye(inputs))
        return replace(
            prior, offset=offset, crosstalk=crosstalk, efficiency=efficiency,
            mesh_eta=prior.mesh_eta + part["couplers"].reshape(prior.mesh_eta.shape),
            input_eta=prior.input_eta + part["input_couplers"].reshape(prior.input_eta.shape),
        )  # fmt: skip

    def slopes(self, found: ProductSlopes, twin: TwinParameters, power_w: Array) -> Array:
        """Return derivatives (batch, r, corrections) of the products."""
        drive, inputs = twin.efficiency * power_w, self.generator
        own = (found.by_phase @ twin.crosstalk * (self.prior.efficiency * power_w)[:, None])[..., self.phases]
        spread = np.einsum("bjh,shk,bk->bjs", found.by_phase, self.spreads, drive, optimize=True)
        heated = found.by_phase[..., :inputs, None] * drive[:, None, None, :inputs]
        heated *= 1.0 - np.eye(inputs)
        return np.concatenate(
            [
                found.by_phase[..., self.phases], found.by_coupler, found.by_input_coupler, own, spread,
                heated.reshape(*heated.shape[:2], -1),
            ],
            axis=-1,
        )  # fmt: skip


def corrected_twin(prior: TwinParameters, correction: Array) -> TwinParameters:
    """Return a twin with what `LearningTwin` had learned."""
    return _Corrections(prior).twin(correction)


class LearningTwin:
    """Corrects a twin by every setting that was measured: offsets, couplers, and heat that spreads.

    Corrections are normally distributed beforehand, and the most probable ones are found by Gauss-Newton steps.

    Parameters
    ----------
    twin
        What is known beforehand.
    doubt
        How well.
    memory
        Settings that are kept, the last ones.
    correction
        What was learned before; None for nothing.
    """

    def __init__(self, twin: TwinParameters, doubt: TwinDoubt, memory: int, correction: Array | None = None) -> None:
        self._doubt, self._meaning = doubt, _Corrections(twin)
        self._seen: deque[_Seen] = deque(maxlen=memory)
        self._precision = self._meaning.precision(doubt)
        self._correction = np.zeros(len(self._precision)) if correction is None else correction

    @property
    def correction(self) -> Array:
        """What was learned: all corrections."""
        return self._correction

    @property
    def parameters(self) -> TwinParameters:
        """The twin as it is known now."""
        return self._meaning.twin(self._correction)

    def learn(self, power_w: Array, products: Array, scale: Array, rounds: int = 3) -> None:
        """Learn from one setting.

        Parameters
        ----------
        power_w
            Powers (batch, H) in W that differ in the generator alone.
        products
            What was read (batch, r), leaks included.
        scale
            Field (r,) in sqrt(W) of a product of 1 at each output.
        rounds
            Gauss-Newton steps.
        """
        self._seen.append(_Seen(power_w, products, scale))
        for _ in range(rounds):
            self._improve()

    def _cost(self, correction: Array, sigma: float) -> float:
        twin = self._meaning.twin(correction)
        away = [TwinProducts(twin, one.scale).values(one.power_w) - one.products for one in self._seen]
        return sum(float(np.sum(part**2)) for part in away) / sigma**2 + float(self._precision @ correction**2)

    def _improve(self) -> None:
        """One step towards all that was seen, shortened until it helps.

        As long as the twin is far off, what is seen counts less: products are not linear then, and corrections would
        run away.
        """
        twin, count = self.parameters, len(self._precision)
        gram, slope, squares, seen = np.zeros((count, count)), np.zeros(count), 0.0, 0
        for one in self._seen:
            found = TwinProducts(twin, one.scale).slopes(one.power_w)
            jacobian = self._meaning.slopes(found, twin, one.power_w).reshape(-1, count)
            away = (one.products - found.values).ravel()
            gram += jacobian.T @ jacobian
            slope += jacobian.T @ away
            squares, seen = squares + float(away @ away), seen + len(away)
        sigma = max(self._doubt.product, _FAR_OFF * float(np.sqrt(squares / seen)))
        before = squares / sigma**2 + float(self._precision @ self._correction**2)
        pull = slope / sigma**2 - self._precision * self._correction
        step = np.linalg.solve(gram / sigma**2 + np.diag(self._precision), pull)
        for _ in range(_TRIES):
            if self._cost(self._correction + step, sigma) < before:
                self._correction = self._correction + step
                return
            step = _SHORTER * step


def _spreads(twin: TwinParameters) -> Array:
    """Shapes (S, H, H) that heat to other arms may have: over several lengths, to heated and to bare arms."""
    layout = twin.layout
    sites, bare, own = layout.heater_sites, bare_arms(layout), np.eye(len(layout.heaters))
    shapes = []
    for places, effect in ((sites, own), (bare.sites, bare.effect)):
        distance = np.linalg.norm(places[:, None] - sites[None], axis=-1)
        for length in _LENGTHS:
            heat = np.where(distance > 0.0, np.exp(-(np.maximum(distance, 1.0) - 1.0) / length), 0.0)
            shapes.append(effect @ heat * (1.0 - own))
    return np.array(shapes)
