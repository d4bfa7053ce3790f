"""Global fit of the twin to random settings: maximum a posteriori by Levenberg-Marquardt."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration._session import Array
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipElements, ChipModel, TwinParameters
from optinc_hw.photonics.arms import bare_arms
from optinc_hw.photonics.layout import ChipLayout

NEIGHBOUR_PITCHES = 3.3
"""Arms closer than this to a heater get heat from it in the fitted model: the same MZI and those around it."""
_COARSE_PITCHES = 1.2
_COARSE_SHARE = 0.5
_COARSE_STEPS = 4
_CHUNK = 250
_MAX_STEPS = 40
_STOP = 5e-3
_MODEL_SHARE = 0.5
"""Share of the present rms residual added to the noise, so that a poor start is not over-trusted."""

_LOG_BLOCKS = ("efficiency", "input_amplitude", "mzi_transmission", "output_transmission", "lo_amplitude", "gain")
_PRIOR_SIGMA = {
    "offset": 1.0, "efficiency": 0.05, "crosstalk": 0.02, "input_eta": 0.03, "mesh_eta": 0.03,
    "attenuator_eta": 0.03, "receiver_eta": 0.03, "input_amplitude": 0.3, "mzi_transmission": 0.01,
    "output_transmission": 0.2, "lo_amplitude": 0.2, "gain": 0.05,
}  # fmt: skip
"""Widths of the Gaussian priors around the start: rad, relative (for amplitudes), or crosstalk as such.

They only hold what the data cannot see (input phases against mesh phases, gains against transmissions).
"""


@dataclass(frozen=True)
class NoiseModel:
    """Noise of a detector reading, ``sigma^2 = (relative P)^2 + floor^2``.

    Parameters
    ----------
    relative
        Relative part.
    floor_w
        Part without light in W.
    """

    relative: float
    floor_w: float

    def sigma(self, power_w: Array) -> Array:
        """Return the standard deviation in W at readings in W."""
        return np.asarray(np.hypot(self.relative * power_w, self.floor_w))


@dataclass(frozen=True)
class Settings:
    """Readings at many heater settings.

    Parameters
    ----------
    power_w
        Heater powers (settings, H) in W.
    readings_w
        Detector readings (settings, 2n) in W, dark readings included.
    """

    power_w: Array
    readings_w: Array

    def first(self, count: int) -> "Settings":
        """Return the first ``count`` settings."""
        return Settings(self.power_w[:count], self.readings_w[:count])


@dataclass(frozen=True)
class TwinFit:
    """Result of a fit.

    Parameters
    ----------
    parameters
        The fitted twin.
    offset_sigma, efficiency_sigma
        Posterior standard deviations (H,) in rad and rad/W.
    chi
        Rms residual over noise on the settings of the fit.
    steps
        Accepted steps.
    """

    parameters: TwinParameters
    offset_sigma: Array
    efficiency_sigma: Array
    chi: float
    steps: int


@dataclass(frozen=True)
class HeatPaths:
    """Which heater warms which arm in the fitted model.

    Parameters
    ----------
    arm, heater
        Indices (pairs,); arms are the H heated ones, then the bare ones.
    effect
        Phases (H, arms) that stand for a unit of phase on each arm.
    """

    arm: NDArray[np.intp]
    heater: NDArray[np.intp]
    effect: Array

    @classmethod
    def near(cls, layout: ChipLayout, pitches: float) -> "HeatPaths":
        """Return the paths from every heater to the arms closer than ``pitches``, its own excepted."""
        bare = bare_arms(layout)
        sites = np.concatenate([layout.heater_sites, bare.sites])
        distance = np.linalg.norm(sites[:, None] - layout.heater_sites[None], axis=-1)
        near = distance < pitches
        near[: len(layout.heaters)] &= ~np.eye(len(layout.heaters), dtype=bool)
        arm, heater = np.nonzero(near)
        return cls(arm, heater, np.concatenate([np.eye(len(layout.heaters)), bare.effect], axis=1))

    def crosstalk(self, strength: Array) -> Array:
        """Contribution (H, H) of strengths (pairs,) to the crosstalk matrix."""
        by_arm = np.zeros((self.effect.shape[1], len(self.effect)))
        by_arm[self.arm, self.heater] = strength
        return np.asarray(self.effect @ by_arm)


def residual_over_noise(parameters: TwinParameters, data: Settings, noise: NoiseModel) -> float:
    """Rms of (prediction - reading) / sigma over all settings and detectors; 1 is perfect."""
    predicted = ChipModel.from_parameters(parameters).readings(parameters, data.power_w)
    return float(np.sqrt(np.mean(((predicted - data.readings_w) / noise.sigma(predicted)) ** 2)))


def fit_twin(
    data: Settings, start: TwinParameters, noise: NoiseModel, on_step: Callable[[int, float], None]
) -> TwinFit:
    """Fit all parameters of the twin but its dark readings.

    Parameters
    ----------
    data
        Readings of random settings.
    start
        Where to begin and the centre of the priors.
    noise
        Noise of a reading.
    on_step
        Told the number of the step and the present residual over noise.

    Returns
    -------
    TwinFit
        The best parameters found.

    Raises
    ------
    CalibrationError
        If the data are fewer than the model's free phases or not finite.
    """
    if not (np.isfinite(data.power_w).all() and np.isfinite(data.readings_w).all()):
        raise CalibrationError("settings or readings hold NaN or Inf; leave invalid readings out of the fit")
    if data.readings_w.size < 2 * len(start.offset):
        raise CalibrationError(
            f"{data.readings_w.size} readings cannot determine {2 * len(start.offset)} offsets and efficiencies; "
            "take more settings"
        )
    few = data.first(max(1, int(_COARSE_SHARE * len(data.power_w))))
    with _one_thread():
        coarse = _descend(_Space(start, _COARSE_PITCHES), few, noise, _COARSE_STEPS, on_step, 0)
        space = _Space(coarse.parameters, NEIGHBOUR_PITCHES)
        fine = _descend(space, data, noise, _MAX_STEPS, on_step, coarse.steps)
        parameters = _with_unit_diagonal(fine.parameters)
        chi = residual_over_noise(parameters, data, noise)
    variance = np.diagonal(np.linalg.inv(fine.normal))
    heaters = len(start.offset)
    return TwinFit(
        parameters, np.sqrt(variance[:heaters]), np.sqrt(variance[heaters : 2 * heaters]) * parameters.efficiency,
        chi, fine.steps,
    )  # fmt: skip


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one thread: these tensors are small, and on busy cores more threads cost ten times the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class _Descent:
    parameters: TwinParameters
    normal: Array
    steps: int


def _descend(
    space: "_Space", data: Settings, noise: NoiseModel, max_steps: int, on_step: Callable[[int, float], None],
    first_step: int,
) -> _Descent:  # fmt: skip
    """Levenberg-Marquardt from the space's start until the residual stops falling."""
    centre = space.vector(space.start)
    precision = 1.0 / space.prior_sigma**2
    sigma_noise = noise.sigma(data.readings_w)
    vector, damping, chi, step = centre.copy(), 1e-3, np.inf, 0
    normal = np.diag(precision)
    for step in range(max_steps):
        parameters = space.parameters(vector)
        residual = _residual(parameters, data)
        previous, chi = chi, float(np.sqrt(np.mean((residual / sigma_noise) ** 2)))
        on_step(first_step + step, chi)
        if previous - chi < _STOP * chi:
            break
        sigma = np.hypot(sigma_noise, _MODEL_SHARE * np.sqrt(np.mean(residual**2)))
        normal, gradient = space.normal_equations(parameters, data, residual, sigma)
        normal += np.diag(precision)
        gradient += precision * (vector - centre)
        cost = _cost(residual, sigma, vector - centre, precision)
        moved = _damped_step(space, data, (vector, centre, precision), (normal, gradient), sigma, cost, damping)
        if moved is None:
            break
        vector, damping = moved
    return _Descent(space.parameters(vector), normal, first_step + step)


def _with_unit_diagonal(parameters: TwinParameters) -> TwinParameters:
    """Move a heater's heat on its own MZI's bare arm from the crosstalk's diagonal into its efficiency."""
    own = np.diagonal(parameters.crosstalk)
    return replace(parameters, efficiency=parameters.efficiency * own, crosstalk=parameters.crosstalk / own)


def _damped_step(
    space: "_Space", data: Settings, point: tuple[Array, Array, Array], system: tuple[Array, Array],
    sigma: Array, cost: float, damping: float,
) -> tuple[Array, float] | None:  # fmt: skip
    """Raise the damping until a step lowers the cost; None if none does."""
    vector, centre, precision = point
    normal, gradient = system
    while damping < 1e6:
        step = np.linalg.solve(normal + damping * np.diag(np.diagonal(normal)), gradient)
        trial = vector - step
        residual = _residual(space.parameters(trial), data)
        if _cost(residual, sigma, trial - centre, precision) < cost:
            return trial, max(damping * 0.2, 1e-7)
        damping *= 5.0
    return None


def _cost(residual: Array, sigma: Array, shift: Array, precision: Array) -> float:
    return float(np.sum((residual / sigma) ** 2) + np.sum(precision * shift**2))


def _residual(parameters: TwinParameters, data: Settings) -> Array:
    return ChipModel.from_parameters(parameters).readings(parameters, data.power_w) - data.readings_w


class _Space:
    """Maps twin parameters to the flat vector of the fit and back, and knows the Jacobian.

    The vector holds strengths of the heat paths on top of the start's crosstalk.
    """

    def __init__(self, start: TwinParameters, pitches: float) -> None:
        self.start = start
        self.paths = HeatPaths.near(start.layout, pitches)
        elements = [f.name for f in fields(ChipElements) if f.name != "dark_w"]
        self.blocks = ["offset", "efficiency", "crosstalk", *elements]
        self.elements = elements
        self.sizes = [self._flat(start, name).size for name in self.blocks]
        self.prior_sigma = np.concatenate(
            [np.full(size, _PRIOR_SIGMA[name]) for name, size in zip(self.blocks, self.sizes, strict=True)]
        )

    def _flat(self, parameters: TwinParameters, name: str) -> Array:
        value = np.asarray(getattr(parameters, name))
        if name == "crosstalk":
            return np.zeros(len(self.paths.arm))
        return np.asarray(np.log(value).ravel() if name in _LOG_BLOCKS else value.ravel())

    def vector(self, parameters: TwinParameters) -> Array:
        """Flatten the free parameters."""
        return np.concatenate([self._flat(parameters, name) for name in self.blocks])

    def parameters(self, vector: Array) -> TwinParameters:
        """Rebuild a twin from the flat vector."""
        pieces = np.split(vector, np.cumsum(self.sizes)[:-1])
        changes: dict[str, Any] = {}  # Any: replace takes the int field `ports` too
        for name, piece in zip(self.blocks, pieces, strict=True):
            old = np.asarray(getattr(self.start, name))
            if name == "crosstalk":
                new = old + self.paths.crosstalk(piece)
            else:
                new = (np.exp(piece) if name in _LOG_BLOCKS else piece).reshape(old.shape)
            changes[name] = new
        return replace(self.start, **changes)

    def normal_equations(
        self, parameters: TwinParameters, data: Settings, residual: Array, sigma: Array
    ) -> tuple[Array, Array]:
        """Gauss-Newton matrix and gradient of the weighted residuals, built chunk by chunk."""
        size = sum(self.sizes)
        normal, gradient = np.zeros((size, size)), np.zeros(size)
        for begin in range(0, len(data.power_w), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            weight = 1.0 / sigma[part]
            jacobian = self._jacobian(parameters, data.power_w[part]) * weight[:, :, None]
            flat = jacobian.reshape(-1, size)
            normal += flat.T @ flat
            gradient += flat.T @ (residual[part] * weight).ravel()
        return normal, gradient

    def _jacobian(self, parameters: TwinParameters, power_w: Array) -> Array:
        """Differentiate the readings: (settings, 2n, parameters)."""
        by_phase, by_element = _model_jacobian(parameters, power_w, self.elements)
        drive = parameters.efficiency * power_w
        columns = [
            by_phase,
            (by_phase @ parameters.crosstalk) * drive[:, None, :],
            (by_phase @ self.paths.effect)[:, :, self.paths.arm] * drive[:, None, self.paths.heater],
        ]
        for name in self.elements:
            part = by_element[name]
            scale = np.asarray(getattr(parameters, name)).ravel() if name in _LOG_BLOCKS else 1.0
            columns.append(part * scale)
        return np.concatenate(columns, axis=-1)


def _model_jacobian(parameters: TwinParameters, power_w: Array, names: list[str]) -> tuple[Array, dict[str, Array]]:
    """Differentiate by phase (settings, 2n, H) and by each element, flattened (settings, 2n, size)."""
    count = len(power_w)
    elements = ChipElements.from_parameters(parameters)
    leaves: dict[str, Tensor] = {}
    for name in names:
        value: Tensor = getattr(elements, name)
        leaves[name] = value.expand(count, *value.shape).clone().requires_grad_()
    phases = torch.as_tensor(parameters.phases(power_w)).requires_grad_()
    readings = ChipModel(parameters.layout, replace(elements, **leaves)).detector_powers(phases)
    inputs = [phases, *leaves.values()]
    rows: list[list[Array]] = [[] for _ in inputs]
    for detector in range(readings.shape[1]):
        gradients = torch.autograd.grad(readings[:, detector].sum(), inputs, retain_graph=True)
        for row, gradient in zip(rows, gradients, strict=True):
            row.append(gradient.reshape(count, -1).numpy())
    stacked = [np.stack(row, axis=1) for row in rows]
    return stacked[0], dict(zip(names, stacked[1:], strict=True))
