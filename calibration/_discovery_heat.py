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
DECAY = 1.5
"""Pitches over which heat falls by e, as a prior."""
STRENGTHS = (0.002, 0.006, 0.02, 0.06)
"""Widths of the prior of heat at one pitch, relative to the heater's own phase; the most likely one counts."""
_SHARE = 0.15
"""Error of the twin's derivatives, relative."""
_REACH = 8.0


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
    """What heat of a heater at each place does to powers, by the prior that it falls with distance.

    Parameters
    ----------
    twin
        A twin.
    """

    twin: RoughTwin

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
        """
        paths = HeatPaths.near(self.twin.layout, _REACH)
        beats = self.twin.interferences(steps.power_w, steps.lit)[:, steps.base]
        seen = np.isfinite(steps.before[steps.base]) & np.isfinite(steps.after)
        drive = self.twin.efficiency[steps.channel] * steps.change_w
        slopes = (-beats.imag * drive[None, :, None])[:, seen]
        effect, sigma = steps.effect[seen], _sigma(steps, noise)[seen]
        own = sigma**2 + (_SHARE * float(np.sqrt(np.mean(effect**2)))) ** 2
        found = []
        for place in places:
            mine = paths.heater == place
            arms, fall = paths.arm[mine], np.exp(-(paths.distance[mine] - 1.0) / DECAY)
            moved = (paths.effect[:, arms] * fall).T @ slopes
            found.append(max(_log_normal(effect, own, strength * moved) for strength in STRENGTHS))
        return np.array(found)


def _log_normal(values: Array, variance: Array, factors: Array) -> float:
    """Log density of values (N,) with covariance diag(variance) + factors.T @ factors, up to a constant."""
    covariance = factors.T @ factors
    covariance[np.diag_indices(len(values))] += variance
    factor = cho_factor(covariance, lower=True, overwrite_a=True)
    return -0.5 * float(values @ cho_solve(factor, values)) - float(np.log(np.diagonal(factor[0])).sum())
