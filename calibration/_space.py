"""Parameters of the twin as one flat vector, and which heater warms which arm in the fitted model."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from optinc_hw.photonics import ChipElements, ChipLayout, TwinParameters
from optinc_hw.photonics.arms import bare_arms

ELEMENTS = tuple(f.name for f in fields(ChipElements) if f.name not in ("arm_loss", "dark_w"))
"""Static elements that are fitted; dark readings are measured."""
LOG_BLOCKS = ("efficiency", "input_amplitude", "mzi_transmission", "output_transmission", "lo_amplitude", "gain")
"""Positive parameters, fitted as logarithms."""
BLOCKS = ("offset", "efficiency", "crosstalk", *ELEMENTS)
"""Order of the blocks in the flat vector."""
_PRIOR_SIGMA = {
    "offset": 1.0, "efficiency": 0.05, "crosstalk": 0.02, "input_eta": 0.03, "mesh_eta": 0.03,
    "attenuator_eta": 0.03, "receiver_eta": 0.03, "input_amplitude": 0.3, "mzi_transmission": 0.01,
    "output_transmission": 0.2, "lo_amplitude": 0.2, "gain": 0.05,
}  # fmt: skip
"""Widths of the Gaussian priors around the start: rad, relative (for amplitudes), or crosstalk as such.

They only hold what the data cannot see (input phases against mesh phases, gains against transmissions).
"""
_PRIOR_PITCHES = 1.0
"""Distance in pitches over which the prior width of crosstalk falls by e: heat spreads, but not far."""


@dataclass(frozen=True)
class HeatPaths:
    """Which heater warms which arm in the fitted model.

    Parameters
    ----------
    arm, heater
        Indices (pairs,), sorted by heater; arms are the H heated ones, then the bare ones.
    distance
        Distances (pairs,) in pitches.
    effect
        Phases (H, arms) that stand for a unit of phase on each arm.
    """

    arm: NDArray[np.intp]
    heater: NDArray[np.intp]
    distance: Array
    effect: Array

    @classmethod
    def near(cls, layout: ChipLayout, pitches: float) -> "HeatPaths":
        """Return the paths from every heater to the arms closer than ``pitches``, its own excepted."""
        bare = bare_arms(layout)
        sites = np.concatenate([layout.heater_sites, bare.sites])
        distance = np.linalg.norm(layout.heater_sites[:, None] - sites[None], axis=-1)
        near = distance < pitches
        near[:, : len(layout.heaters)] &= ~np.eye(len(layout.heaters), dtype=bool)
        heater, arm = np.nonzero(near)
        effect = np.concatenate([np.eye(len(layout.heaters)), bare.effect], axis=1)
        return cls(arm, heater, distance[near], effect)

    def by_arm(self, strength: Array) -> Array:
        """Strengths (arms, H) of the pairs; zero where there is no path."""
        matrix = np.zeros((self.effect.shape[1], len(self.effect)))
        matrix[self.arm, self.heater] = strength
        return matrix

    def crosstalk(self, strength: Array) -> Array:
        """Contribution (H, H) of strengths (pairs,) to the crosstalk matrix."""
        return np.asarray(self.effect @ self.by_arm(strength))


class ParameterSpace:
    """Maps twin parameters to the flat vector of the fit and back.

    The vector holds the phases at a reference power (not at zero: they would carry the whole sum of crosstalk), and
    strengths of the heat paths on top of the start's crosstalk.

    Parameters
    ----------
    start
        Start of the fit and centre of the priors.
    pitches
        Reach of the heat paths.
    reference_power_w
        Powers (H,) in W at which the vector's phases hold; the mean of the data.
    """

    def __init__(self, start: TwinParameters, pitches: float, reference_power_w: Array) -> None:
        self.start = start
        self.reference_power_w = reference_power_w
        self.paths = HeatPaths.near(start.layout, pitches)
        flat = [self._flat(name) for name in BLOCKS]
        self.centre = np.concatenate(flat)
        self.prior_sigma = np.concatenate(
            [np.full(part.size, _PRIOR_SIGMA[name]) for name, part in zip(BLOCKS, flat, strict=True)]
        )
        reach = np.exp(-np.maximum(self.paths.distance - 1.0, 0.0) / _PRIOR_PITCHES)
        edges = np.cumsum([0, *(part.size for part in flat)])
        self.slices = {name: slice(int(a), int(b)) for name, a, b in zip(BLOCKS, edges[:-1], edges[1:], strict=True)}
        self.prior_sigma[self.slices["crosstalk"]] *= reach

    def _flat(self, name: str) -> Array:
        if name == "crosstalk":
            return np.zeros(len(self.paths.arm))
        if name == "offset":
            return self.start.phases(self.reference_power_w)
        value = np.asarray(getattr(self.start, name)).ravel()
        return np.asarray(np.log(value) if name in LOG_BLOCKS else value)

    def parameters(self, vector: Array) -> TwinParameters:
        """Rebuild a twin from the flat vector."""
        changes: dict[str, Any] = {}  # Any: replace takes the int field `ports` too
        for name, place in self.slices.items():
            old, piece = np.asarray(getattr(self.start, name)), vector[place]
            if name == "crosstalk":
                changes[name] = old + self.paths.crosstalk(piece)
            else:
                changes[name] = (np.exp(piece) if name in LOG_BLOCKS else piece).reshape(old.shape)
        drive = changes["efficiency"] * self.reference_power_w
        changes["offset"] = changes["offset"] - changes["crosstalk"] @ drive
        return replace(self.start, **changes)
