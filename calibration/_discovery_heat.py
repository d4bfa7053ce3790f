"""Channels whose phases no power shows: told apart by the neighbours that they warm, and from dead ones by any."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from calibration._discovery_steps import Steps
from calibration._discovery_twin import RoughTwin
from calibration._session import Array
from calibration._space import HeatPaths
from calibration._twin_fit import NoiseModel
from optinc_hw.photonics import ChipLayout

SILENT_CHI = 1.5
"""Rms effect over noise below which a channel does nothing."""
HEARD_CHI = 2.0
"""The same above which it does something."""
EXPLAINS_HEAT = 2.5
"""Misfit (1 is to be expected) up to which a place explains a channel's heat; wrong twins have some 4 to 50."""
_REACH = 8.0


@dataclass(frozen=True)
class HeatPrior:
    """What is known of heat before a heater is looked at: a heater's phase on other arms relative to its own.

    Parameters
    ----------
    heated, bare
        Mean at one pitch on arms with and without heaters: strengths (L,) of exponentials.
    lengths
        Distances (L,) in pitches over which these fall by e.
    scatter, length
        Standard deviation of single arms at one pitch, and the distance in pitches over which it falls by e.
    share
        Error of the twin's derivatives, relative.
    """

    heated: Array
    bare: Array
    lengths: Array
    scatter: float
    length: float
    share: float

    def mean(self, distance: Array, bare: NDArray[np.bool_]) -> Array:
        """Mean heat (N,) on arms at distances (N,) in pitches."""
        fall = np.exp(-(distance[:, None] - 1.0) / self.lengths)
        return np.asarray((fall * np.where(bare[:, None], self.bare, self.heated)).sum(axis=1))

    def sigma(self, distance: Array) -> Array:
        """Scatter (N,) of heat at distances (N,) in pitches."""
        return np.asarray(self.scatter * np.exp(-(distance - 1.0) / self.length))


def invisible_phases(layout: ChipLayout) -> NDArray[np.intp]:
    """List phases that no power shows: one input is lit at a time, and they turn all of its light."""
    return np.array([layout.mesh_phi[k] for k, (column, _) in enumerate(layout.mesh.mzis) if not column], dtype=np.intp)


def effect_over_noise(steps: Steps, noise: NoiseModel, heaters: int) -> Array:
    """Rms effect (H,) of channels over what noise alone makes; 0 for channels without steps."""
    sigma = _sigma(steps, noise)
    seen = np.isfinite(steps.before[steps.base]) & np.isfinite(steps.after)
    square = np.bincount(steps.channel, np.where(seen, (steps.effect / sigma) ** 2, 0.0).sum(axis=1), heaters)
    return np.asarray(np.sqrt(square / np.maximum(np.bincount(steps.channel, seen.sum(axis=1), heaters), 1.0)))


def _sigma(steps: Steps, noise: NoiseModel) -> Array:
    before, after = np.nan_to_num(steps.before[steps.base]), np.nan_to_num(steps.after)
    return np.asarray(np.sqrt(noise.relative**2 * (before**2 + after**2) + 2.0 * noise.floor_w**2))


@dataclass(frozen=True)
class HeatModel:
    """What heat of a heater at each place does to powers.

    Parameters
    ----------
    twin
        A twin.
    priors
        What is known of heat; the most likely one counts.
    """

    twin: RoughTwin
    priors: tuple[HeatPrior, ...]

    def log_likelihoods(self, steps: Steps, noise: NoiseModel, places: NDArray[np.intp]) -> Array:
        """Log likelihoods (places,) that the heater which made all ``steps`` is at each place.

        Parameters
        ----------
        steps
            Steps of one channel.
        noise
            Noise of a reading.
        places
            Invisible phases.

        Returns
        -------
        NDArray
            Minus infinity everywhere if no place explains the steps, as happens with a twin that is wrong.
        """
        paths = HeatPaths.near(self.twin.layout, _REACH)
        beats = self.twin.interferences(steps.power_w, steps.lit)[:, steps.base]
        seen = np.isfinite(steps.before[steps.base]) & np.isfinite(steps.after)
        drive = self.twin.efficiency[steps.channel] * steps.change_w
        slopes = (-beats.imag * drive[None, :, None])[:, seen]
        effect, sigma = steps.effect[seen], _sigma(steps, noise)[seen]
        size = float(np.mean(effect**2))
        found, misfits = [], []
        for place in places:
            mine = paths.heater == place
            arms, distance = paths.arm[mine], paths.distance[mine]
            moved, bare = paths.effect[:, arms].T @ slopes, arms >= len(self.twin.channel)
            density, misfit = max(
                _log_normal(
                    effect - prior.mean(distance, bare) @ moved,
                    sigma**2 + prior.share**2 * size,
                    prior.sigma(distance)[:, None] * moved,
                )
                for prior in self.priors
            )
            found.append(density)
            misfits.append(misfit)
        return np.where(min(misfits) < EXPLAINS_HEAT, np.array(found), -np.inf)


def _log_normal(values: Array, variance: Array, factors: Array) -> tuple[float, float]:
    """Log density of values (N,) with covariance diag(variance) + factors.T @ factors, and their misfit.

    The density is up to a constant; the misfit is the mean square of the values over what the covariance expects.
    """
    covariance = factors.T @ factors
    covariance[np.diag_indices(len(values))] += variance
    factor = cho_factor(covariance, lower=True, overwrite_a=True)
    square = float(values @ cho_solve(factor, values))
    return -0.5 * square - float(np.log(np.diagonal(factor[0])).sum()), square / len(values)
