"""Parameters of a bare mesh as one flat vector with hierarchical priors.

What many elements share is a parameter of its own with a wide prior (mean coupler angle, mean loss, common
efficiency, mean crosstalk by distance); what is left to each element has a narrow prior whose width is learned from
the data.  Phases in the vector are those at the data's mean power: at zero power they would carry the whole sum of
crosstalk.
"""

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from calibration._session import Array
from calibration._space import HeatPaths
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

Values = NDArray[np.floating[Any]]  # Any: of either precision
_Float = TypeVar("_Float", bound=np.floating[Any])

PROFILE_LENGTHS = (0.6, 1.5, 3.5)
"""Decay lengths in pitches of the exponentials that together are the mean crosstalk at a distance."""
BLOCKS = (
    "offset", "efficiency", "common_efficiency", "common_eta", "common_loss", "profile", "second_order", "curvature",
    "eta", "loss", "arm_loss", "output", "input", "crosstalk",
)  # fmt: skip
"""Order of the blocks in the flat vector; all but the last form the dense block."""
_ALIKE = 1e-3
"""Combinations of profiles that differ by less, relatively, are not told apart."""
_FROZEN = 1e-8
"""Prior width of a block that is not free, relative to its own."""


@dataclass(frozen=True)
class PriorWidths:
    """Standard deviations of the Gaussian priors around the start; those of the second group are learned.

    Parameters
    ----------
    offset
        Phases at mean power, rad.
    common_efficiency, common_loss
        Relative; logarithm of a field transmission.
    common_eta
        Mean coupler angle, rad.
    profile
        Mean crosstalk at one pitch, of each exponential.
    second_order, curvature
        1/rad; the latter of single heaters is learned.
    output, input
        Logarithms of field transmissions of detectors and lit ports.
    efficiency, eta, loss, arm_loss
        Scatter of single heaters (relative), couplers (rad), MZIs (logarithm) and arms (loss exponents).
    crosstalk, length
        Scatter of single heat paths at one pitch, and the distance in pitches over which it falls by e.
    """

    offset: float = 3.0
    common_efficiency: float = 0.05
    common_eta: float = 0.15
    common_loss: float = 0.05
    profile: float = 0.02
    second_order: float = 0.005
    curvature: float = 0.0005
    output: float = 0.3
    input: float = 0.3
    efficiency: float = 0.02
    eta: float = 0.02
    loss: float = 0.006
    arm_loss: float = 0.002
    crosstalk: float = 0.01
    length: float = 1.5

    def __post_init__(self) -> None:
        for field in fields(self):
            width = getattr(self, field.name)
            if isinstance(width, bool) or not isinstance(width, Real) or not 0.0 < float(width) < np.inf:
                raise CalibrationError(
                    f"the prior width of {field.name} must be finite and above 0, got {width!r}; leave a block out of "
                    "`free` to hold its values"
                )


class MeshSpace:
    """Maps the flat vector of the fit to twin parameters and holds its priors.

    Parameters
    ----------
    start
        Start of the fit and centre of the priors.
    reference_power_w
        Powers (H,) in W at which the vector's phases hold.
    widths
        Prior widths.
    free
        Blocks that move; the others stay at their values.
    reach
        Distance in pitches beyond which single heat paths are left out.
    """

    def __init__(
        self,
        start: TwinParameters,
        reference_power_w: Array,
        widths: PriorWidths,
        free: Collection[str] = BLOCKS,
        reach: float = 10.0,
    ) -> None:
        self.start, self.reference_power_w, self.widths, self.reach = start, reference_power_w, widths, reach
        self.free = frozenset(free)
        self.paths = _visible_paths(start, reach)
        heaters, mzis, ports = len(start.offset), len(start.mzi_transmission), start.ports
        sizes = {
            "offset": heaters, "efficiency": heaters, "common_efficiency": 1, "common_eta": 1, "common_loss": 1,
            "profile": 2 * len(PROFILE_LENGTHS), "second_order": 2, "curvature": heaters, "eta": 2 * mzis, "loss": mzis,
            "arm_loss": 2 * mzis, "output": ports, "input": ports, "crosstalk": len(self.paths.arm),
        }  # fmt: skip
        edges = np.cumsum([0, *(sizes[name] for name in BLOCKS)])
        self.slices = {name: slice(int(a), int(b)) for name, a, b in zip(BLOCKS, edges[:-1], edges[1:], strict=True)}
        self.size = int(edges[-1])
        self.dense_size = self.slices["crosstalk"].start
        self.centre = np.zeros(self.size)
        self.centre[self.slices["offset"]] = start.phases(reference_power_w)

    @cached_property
    def sigma(self) -> Array:
        """Prior standard deviation of each parameter."""
        sigma = np.empty(self.size)
        for name, place in self.slices.items():
            width: float = getattr(self.widths, name)
            sigma[place] = width * (1.0 if name in self.free else _FROZEN)
        fall = np.exp(-(self.paths.distance - 1.0) / self.widths.length)
        sigma[self.slices["crosstalk"]] *= fall
        return sigma

    @cached_property
    def precision(self) -> Array:
        """Prior precision of each parameter."""
        return np.asarray(1.0 / self.sigma**2)

    def with_widths(self, widths: PriorWidths) -> "MeshSpace":
        """Return the space with other prior widths; vectors keep their meaning."""
        return self._changed(widths, self.free)

    def with_free(self, free: Collection[str]) -> "MeshSpace":
        """Return the space with other blocks free; vectors keep their meaning."""
        return self._changed(self.widths, free)

    def _changed(self, widths: PriorWidths, free: Collection[str]) -> "MeshSpace":
        """Return the space with other priors; heat paths and profiles take seconds in large meshes and are kept."""
        space = copy(self)
        space.widths, space.free = widths, frozenset(free)
        for prior in ("sigma", "precision"):
            space.__dict__.pop(prior, None)
        return space

    @cached_property
    def profiles(self) -> Array:
        """Crosstalk matrices (profiles, H, H) of the exponentials, on heated and then on bare arms."""
        paths, heated = self.paths, self.paths.arm < len(self.start.offset)
        made = [
            self._without_own(paths.crosstalk(np.where(kind, np.exp(-(paths.distance - 1.0) / length), 0.0)))
            for kind in (heated, ~heated)
            for length in PROFILE_LENGTHS
        ]
        return np.stack(made)

    @staticmethod
    def _without_own(matrix: NDArray[_Float]) -> NDArray[_Float]:
        """Clear the diagonal: a heater's heat on its own MZI's bare arm is part of its efficiency."""
        np.fill_diagonal(matrix, 0.0)
        return matrix

    @cached_property
    def neighbour_heat(self) -> csr_array:
        """Weights (H, H) of neighbours' heat, see `TwinParameters.neighbour_heat`."""
        return csr_array(self.start.neighbour_heat)

    @cached_property
    def _as_single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.paths.effect.astype(np.float32), self.profiles.astype(np.float32)

    def _matrices(self, dtype: type[np.floating[Any]]) -> tuple[Values, Values]:
        """Return what arms do to phases (H, arms), and the profiles, in the type asked for."""
        return self._as_single if dtype == np.float32 else (self.paths.effect, self.profiles)

    def crosstalk_change(self, vector: Array, dtype: type[np.floating[Any]] = np.float64) -> Values:
        """Crosstalk matrix (H, H), zero diagonal, of the profile and the single paths of a vector."""
        effect, profiles = self._matrices(dtype)
        by_arm = np.zeros((effect.shape[1], len(effect)), dtype=dtype)
        by_arm[self.paths.arm, self.paths.heater] = vector[self.slices["crosstalk"]]
        single = self._without_own(effect @ by_arm)
        return single + np.tensordot(vector[self.slices["profile"]].astype(dtype), profiles, 1)

    def crosstalk_gradient(self, by_matrix: Values, into: Array) -> None:
        """Turn the gradient (H, H) by the crosstalk matrix into that by profile and single paths."""
        effect, profiles = self._matrices(by_matrix.dtype.type)
        seen = self._without_own(by_matrix.copy())
        into[self.slices["profile"]] = np.tensordot(profiles, seen, 2)
        into[self.slices["crosstalk"]] = (effect.T @ seen)[self.paths.arm, self.paths.heater]

    def efficiency(self, vector: Array) -> Array:
        """Efficiencies (H,) in rad/W."""
        change = vector[self.slices["efficiency"]] + vector[self.slices["common_efficiency"]]
        return np.asarray(self.start.efficiency * np.exp(change))

    def crosstalk(self, vector: Array) -> Array:
        """Crosstalk matrix (H, H)."""
        return self.start.crosstalk + self.crosstalk_change(vector)

    def twin(self, vector: Array) -> TwinParameters:
        """Rebuild a twin from the flat vector."""
        piece = {name: vector[place] for name, place in self.slices.items()}
        start = self.start
        free = replace(
            start,
            efficiency=self.efficiency(vector),
            crosstalk=self.crosstalk(vector),
            mesh_eta=start.mesh_eta + piece["common_eta"] + piece["eta"].reshape(-1, 2),
            mzi_transmission=start.mzi_transmission * np.exp(piece["common_loss"] + piece["loss"]),
            gain=start.gain * np.exp(2.0 * piece["output"]),
            input_amplitude=start.input_amplitude * np.exp(piece["input"]),
            arm_loss=start.arm_loss + piece["arm_loss"].reshape(-1, 2),
            second_order=start.second_order + piece["second_order"],
            curvature=start.curvature + piece["curvature"],
            offset=np.zeros_like(start.offset),
        )
        return replace(free, offset=piece["offset"] - free.phases(self.reference_power_w))

    def vector(self, twin: TwinParameters) -> Array:
        """Return the vector of a twin; of its crosstalk beyond the start's only what profiles can say."""
        start, vector = self.start, np.zeros(self.size)
        values = {
            "offset": twin.phases(self.reference_power_w),
            "efficiency": np.log(twin.efficiency / start.efficiency),
            "eta": (twin.mesh_eta - start.mesh_eta).ravel(),
            "loss": np.log(twin.mzi_transmission / start.mzi_transmission),
            "arm_loss": (twin.arm_loss - start.arm_loss).ravel(),
            "output": 0.5 * np.log(twin.gain / start.gain),
            "input": np.log(twin.input_amplitude / start.input_amplitude),
            "second_order": twin.second_order - start.second_order,
            "curvature": twin.curvature - start.curvature,
        }
        for name, value in values.items():
            vector[self.slices[name]] = value
        beyond = twin.crosstalk - start.crosstalk
        if beyond.any():
            profiles = self.profiles.reshape(len(self.profiles), -1).T
            vector[self.slices["profile"]] = np.linalg.lstsq(profiles, beyond.ravel(), rcond=_ALIKE)[0]
        return vector


def _visible_paths(start: TwinParameters, reach: float) -> HeatPaths:
    """Heat paths to arms whose phase does anything to the powers at the outputs."""
    paths = HeatPaths.near(start.layout, reach)
    seen = np.any(paths.effect != 0.0, axis=0)[paths.arm]
    return HeatPaths(paths.arm[seen], paths.heater[seen], paths.distance[seen], paths.effect)


def path_index(paths: HeatPaths, heaters: int) -> list[NDArray[np.intp]]:
    """Positions of each heater's paths; paths are sorted by heater."""
    edges = np.searchsorted(paths.heater, np.arange(heaters + 1))
    return [np.arange(a, b) for a, b in pairwise(edges.tolist())]
