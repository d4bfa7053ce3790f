"""Global fit of the twin to random settings: maximum a posteriori by Levenberg-Marquardt with inner CG."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from calibration._linearised import LinearisedReadings
from calibration._mesh_checks import real_array, require_powers, require_readings
from calibration._session import Array
from calibration._space import ParameterSpace
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipModel, TwinParameters

NEIGHBOUR_PITCHES = 4.2
"""Arms closer than this to a heater get its heat in the fitted model: its own MZI and the two rings around it."""
_COARSE_PITCHES = 1.2
_COARSE_SHARE = 0.5
_COARSE_STEPS = 3
_MAX_STEPS = 40
_STOP = 1e-2
_HOPELESS_DAMPING = 1e4
_MODEL_SHARE = 0.5
"""Share of the present rms residual added to the noise, so that a poor start is not over-trusted."""


@dataclass(frozen=True)
class NoiseModel:
    """Noise of a detector reading, ``sigma^2 = (relative P)^2 + floor^2``.

    Parameters
    ----------
    relative
        Relative part.
    floor_w
        Part without light in W.

    Raises
    ------
    CalibrationError
        If the relative part is negative, the floor not above 0 (a dark reading would count infinitely), or one of them
        no finite number.
    """

    relative: float
    floor_w: float

    def __post_init__(self) -> None:
        for name, value in (("relative", self.relative), ("floor_w", self.floor_w)):
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and 0.0 <= float(value) < np.inf) or (name == "floor_w" and value == 0.0):
                raise CalibrationError(
                    f"the noise of a reading must have finite parts, relative of 0 or more and floor_w above 0 W, got "
                    f"{name} = {value!r}; repeated readings with and without light tell them"
                )

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

    Raises
    ------
    CalibrationError
        If they are no numbers, masked somewhere, or have not one row a setting.
    """

    power_w: Array
    readings_w: Array

    def __post_init__(self) -> None:
        power = real_array(self.power_w, "power_w (heater powers)")
        readings = real_array(self.readings_w, "readings_w (readings)")
        if power.ndim != 2 or readings.ndim != 2 or len(power) != len(readings):
            raise CalibrationError(
                f"heater powers and readings have shapes {power.shape} and {readings.shape}; they need a row a "
                "setting: (settings, heaters) and (settings, detectors)"
            )
        object.__setattr__(self, "power_w", power)
        object.__setattr__(self, "readings_w", readings)

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
        Posterior standard deviations (H,) of the phases at mid power in rad and of the efficiencies in rad/W, for the
        fitted crosstalk.
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


def residual_over_noise(parameters: TwinParameters, data: Settings, noise: NoiseModel) -> float:
    """Rms of (prediction - reading) / sigma over all settings and detectors; 1 is perfect.

    Raises
    ------
    CalibrationError
        If there are no settings, or they are none of the twin's chip.
    """
    _check(data, parameters)
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
        If the data are of another chip, not finite, or fewer than the model's free phases.
    """
    _check(data, start)
    if data.readings_w.size < 2 * len(start.offset):
        raise CalibrationError(
            f"{data.readings_w.size} readings cannot determine {2 * len(start.offset)} offsets and efficiencies; "
            "take more settings"
        )
    few = data.first(max(1, int(_COARSE_SHARE * len(data.power_w))))
    centre = data.power_w.mean(axis=0)
    with _one_thread():
        coarse = _descend(ParameterSpace(start, _COARSE_PITCHES, centre), few, noise, _COARSE_STEPS, on_step, 0)
        space = ParameterSpace(coarse.parameters, NEIGHBOUR_PITCHES, centre)
        fine = _descend(space, data, noise, _MAX_STEPS, on_step, coarse.steps)
        offset_sigma, relative_sigma = _sigmas(space, fine.parameters, data, noise)
        parameters = _with_unit_diagonal(fine.parameters)
        chi = residual_over_noise(parameters, data, noise)
    return TwinFit(parameters, offset_sigma, relative_sigma * parameters.efficiency, chi, fine.steps)


def _check(data: Settings, twin: TwinParameters) -> None:
    layout = twin.layout
    wanted = (len(data.power_w), len(layout.heaters))
    if data.power_w.shape != wanted or not len(data.power_w):
        raise CalibrationError(
            f"heater powers have shapes {data.power_w.shape}; the chip needs {wanted}, and a setting or more: give the "
            "data of this chip"
        )
    require_powers(data.power_w, layout)
    require_readings(data.readings_w, len(data.power_w), len(layout.detectors))
    bad = np.flatnonzero(~np.isfinite(data.readings_w).all(axis=1))
    if len(bad):
        raise CalibrationError(
            f"readings hold NaN or Inf in row {bad[0]} ({len(bad)} of {len(data.readings_w)} rows); leave invalid "
            "readings out of the fit"
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch and BLAS on one thread: on busy cores, more threads cost small matrices ten times the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class _Descent:
    parameters: TwinParameters
    steps: int


def _descend(
    space: ParameterSpace,
    data: Settings,
    noise: NoiseModel,
    max_steps: int,
    on_step: Callable[[int, float], None],
    first_step: int,
) -> _Descent:
    """Levenberg-Marquardt from the space's start until the residual stops falling."""
    precision = 1.0 / space.prior_sigma**2
    sigma_noise = noise.sigma(data.readings_w)
    vector, damping, chi, accepted = space.centre.copy(), 1e-3, np.inf, 0
    while accepted < max_steps:
        parameters = space.parameters(vector)
        residual = _residual(parameters, data)
        previous, chi = chi, float(np.sqrt(np.mean((residual / sigma_noise) ** 2)))
        on_step(first_step + accepted, chi)
        if previous - chi < _STOP * chi:
            break
        sigma = np.hypot(sigma_noise, _MODEL_SHARE * np.sqrt(np.mean(residual**2)))
        linear = LinearisedReadings(space, parameters, data.power_w, 1.0 / sigma)
        shift = vector - space.centre
        gradient = linear.apply_transposed(residual / sigma) + precision * shift
        cost = _cost(residual / sigma, shift, precision)
        solve = linear.solver(precision)
        while damping < _HOPELESS_DAMPING:
            trial = vector - solve(gradient, damping)
            moved = _residual(space.parameters(trial), data) / sigma
            if _cost(moved, trial - space.centre, precision) < cost:
                break
            damping *= 10.0
        else:
            break
        vector, damping, accepted = trial, max(damping * 0.1, 1e-7), accepted + 1
    return _Descent(space.parameters(vector), first_step + accepted)


def _sigmas(
    space: ParameterSpace, parameters: TwinParameters, data: Settings, noise: NoiseModel
) -> tuple[Array, Array]:
    """Posterior sigmas (H,) of phases at mid power in rad and of relative efficiencies, crosstalk held."""
    sigma = noise.sigma(data.readings_w)
    linear = LinearisedReadings(space, parameters, data.power_w, 1.0 / sigma)
    precision = 1.0 / space.prior_sigma**2
    pairs = space.slices["crosstalk"]
    kept = np.r_[0 : pairs.start, pairs.stop : len(precision)]
    variance = np.diagonal(np.linalg.inv(linear.dense_block() + np.diag(precision[kept])))
    heaters = len(parameters.offset)
    return np.sqrt(variance[:heaters]), np.sqrt(variance[heaters : 2 * heaters])


def _with_unit_diagonal(parameters: TwinParameters) -> TwinParameters:
    """Move a heater's heat on its own MZI's bare arm from the crosstalk's diagonal into its efficiency."""
    own = np.diagonal(parameters.crosstalk)
    return replace(parameters, efficiency=parameters.efficiency * own, crosstalk=parameters.crosstalk / own)


def _cost(weighted: Array, shift: Array, precision: Array) -> float:
    return float(np.sum(weighted**2) + np.sum(precision * shift**2))


def _residual(parameters: TwinParameters, data: Settings) -> Array:
    return ChipModel.from_parameters(parameters).readings(parameters, data.power_w) - data.readings_w
