"""Maximum a posteriori fit of input phases that are linear in heat, from a known mesh and coherent readings."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration._matrix import ComplexArray
from calibration._session import Array
from calibration._twin_fit import NoiseModel

_RANDOM_STARTS = 12
_STEPS = 40
_STOP = 1e-6
_HOPELESS = 1e8
_WEAK = 1e-3
"""Prior width of 1/rad^2 of an input phase: hardly any."""
_MODEL_SHARE = 0.5
_WIDTH_SCALES = (1e-3, 1e2)
"""Least and largest change of the squares of prior widths."""


@dataclass(frozen=True)
class InputFit:
    """What input phases are fitted to.

    Parameters
    ----------
    matrices
        From mesh inputs to square roots of readings (B, n, n).
    fields
        Fields before the unknown phases (B, n) in sqrt(W).
    readings
        Readings (B, n) in W; NaN is left out.
    features
        What phases are linear in (B, F): 1, then heat of each heater from its mean, then squares of heats from theirs.
    prior
        Precisions (F - 1, n - 1, n - 1) of the inputs' coefficients of each heat and square.
    heats
        Number of heats; how large their coefficients are is learned, that of squares is known.
    noise
        Noise of a reading.
    """

    matrices: ComplexArray
    fields: ComplexArray
    readings: Array
    features: Array
    prior: Array
    heats: int
    noise: NoiseModel

    def part(self, which: NDArray[np.intp]) -> "InputFit":
        """Return some of the settings."""
        return replace(
            self, matrices=self.matrices[which], fields=self.fields[which], readings=self.readings[which],
            features=self.features[which],
        )  # fmt: skip

    def coherent(self) -> NDArray[np.bool_]:
        """Tell which valid readings (B, n) depend on the input phases: light of several inputs beats in them.

        The beat is larger than the noise. All others are predicted alike whatever the phases, and tell nothing of them.
        """
        size = np.abs(self.matrices * self.fields[:, None, :])
        alone = np.sum(size**2, axis=-1)
        beat = size.sum(axis=-1) ** 2 - alone
        return np.asarray(np.isfinite(self.readings) & (beat > self.noise.sigma(alone)))

    def constant(self) -> "InputFit":
        """Return the same with phases that do not depend on heat."""
        return replace(self, features=self.features[:, :1], prior=self.prior[:0], heats=0)


def predicted_powers(data: InputFit, solution: Array) -> Array:
    """Return readings (B, n) in W at coefficients (n, F) of the input phases."""
    outputs, _ = _outputs(data, solution)
    return np.asarray(np.abs(outputs) ** 2)


def fit_input_phases(data: InputFit, rng: np.random.Generator, start: Array | None = None) -> Array:
    """Find coefficients (n, F) of the input phases; those of input 0 are zero.

    Without a start, constant phases come first: from the lifted problem (linear in products of phase factors) where
    there are readings enough, and from random ones.
    """
    n = data.fields.shape[1]
    if start is not None:
        return _descend(data, start)
    constant = data.constant()
    lifted = _lifted(data)
    starts = [] if lifted is None else [lifted]
    starts += list(rng.uniform(-np.pi, np.pi, (_RANDOM_STARTS, n)))
    best, cost = np.zeros((n, 1)), np.inf
    for phases in starts:
        found = _descend(constant, (phases - phases[0])[:, None])
        reached = _misfit(constant, found)
        if reached < cost:
            best, cost = found, reached
    whole = np.zeros((n, data.features.shape[1]))
    whole[:, :1] = best
    return _descend(data, whole)


def with_learned_widths(data: InputFit, solution: Array) -> InputFit:
    """Scale the prior of heat on the inputs to what the data say of its size (empirical Bayes).

    The sum of squares of the coefficients over their prior widths is compared with the number of coefficients that the
    data determine; data that determine less than one say nothing of it.
    """
    heats = data.heats
    if not heats:
        return data
    inputs, features = len(solution) - 1, len(data.prior)
    posterior = np.linalg.inv(fit_weight(data, solution))[inputs:, inputs:]
    within = np.einsum("ifkf->fik", posterior.reshape(inputs, features, inputs, features)[:, :heats, :, :heats])
    undetermined = float(np.einsum("fik,fki->", data.prior[:heats], within))
    determined = inputs * heats - undetermined
    if determined < 1.0:
        return data
    coefficients = solution[1:, 1 : heats + 1]
    size = float(np.einsum("if,fik,kf->", coefficients, data.prior[:heats], coefficients))
    scale = np.clip(size / determined, *_WIDTH_SCALES)
    return replace(data, prior=np.concatenate([data.prior[:heats] / scale, data.prior[heats:]]))


def heat_learned(data: InputFit, covariance: Array) -> float:
    """Return by how much readings narrowed the best known coefficient of heat: 0 not at all, 1 to nothing.

    Parameters
    ----------
    data
        What was fitted.
    covariance
        Posterior covariance of all coefficients, in the order of `fit_weight`.

    Returns
    -------
    float
        Largest part of a coefficient's prior standard deviation that is gone; 1 if none was fitted.
    """
    if not data.heats:
        return 1.0
    inputs = data.fields.shape[1] - 1
    prior = np.diagonal(np.linalg.inv(data.prior[: data.heats]), axis1=1, axis2=2).T
    left = np.diagonal(covariance)[inputs:].reshape(inputs, -1)[:, : data.heats]
    return float(1.0 - np.sqrt(np.min(left / prior)))


def fit_weight(data: InputFit, solution: Array) -> Array:
    """Return the posterior precision of the coefficients of inputs 1.. in the order (constants, input by heat)."""
    sigma = data.noise.sigma(predicted_powers(data, solution))
    _, normal = _normal_equations(data, solution, sigma)
    inputs, features = len(solution) - 1, data.features.shape[1]
    places = np.arange(inputs * features).reshape(inputs, features)
    order = np.concatenate([places[:, 0], places[:, 1:].ravel()])
    return np.asarray(normal[np.ix_(order, order)])


def _outputs(data: InputFit, solution: Array) -> tuple[ComplexArray, ComplexArray]:
    """Output fields (B, n), and what each input sends to each of them (B, n, n)."""
    turned = data.fields * np.exp(1j * (data.features @ solution.T))
    parts = data.matrices * turned[:, None, :]
    return np.asarray(parts.sum(axis=-1)), np.asarray(parts)


def _misfit(data: InputFit, solution: Array) -> float:
    """Robust misfit: rms residual in W, which no small reading dominates."""
    return float(np.sqrt(np.nanmean((predicted_powers(data, solution) - data.readings) ** 2)))


def _descend(data: InputFit, start: Array) -> Array:
    """Levenberg-Marquardt; noise is inflated by the present residual until that is small."""
    solution, damping = start.copy(), 1e-3
    for _ in range(_STEPS):
        predicted = predicted_powers(data, solution)
        residual = np.where(np.isfinite(data.readings), predicted - data.readings, 0.0)
        sigma = np.hypot(data.noise.sigma(predicted), _MODEL_SHARE * _excess(residual, data.noise.sigma(predicted)))
        cost = _cost(data, solution, sigma)
        gradient, normal = _normal_equations(data, solution, sigma)
        while damping < _HOPELESS:
            lifted = normal + damping * np.diag(np.diagonal(normal))
            step = np.linalg.solve(lifted, gradient).reshape(len(solution) - 1, -1)
            trial = solution.copy()
            trial[1:] -= step
            reached = _cost(data, trial, sigma)
            if reached < cost:
                break
            damping *= 10.0
        else:
            break
        solution, damping = trial, max(0.1 * damping, 1e-9)
        if cost - reached < _STOP * cost:
            break
    return solution


def _excess(residual: Array, sigma: Array) -> float:
    """Rms residual in W if it is well above noise, else 0."""
    return float(np.sqrt(np.mean(residual**2))) if np.mean((residual / sigma) ** 2) > 4.0 else 0.0


def _cost(data: InputFit, solution: Array, sigma: Array) -> float:
    deviation = (predicted_powers(data, solution) - data.readings) / sigma
    prior = np.einsum("if,fik,kf->", solution[1:, 1:], data.prior, solution[1:, 1:])
    return float(np.nansum(deviation**2) + prior)


def _normal_equations(data: InputFit, solution: Array, sigma: Array) -> tuple[Array, Array]:
    """Gradient and Gauss-Newton matrix of half the cost over inputs 1.. and features, prior included."""
    outputs, parts = _outputs(data, solution)
    residual = (np.abs(outputs) ** 2 - data.readings) / sigma
    valid = np.isfinite(residual)
    slope = -2.0 * (outputs.conj()[:, :, None] * parts[:, :, 1:]).imag / sigma[:, :, None]
    slope = np.where(valid[:, :, None], slope, 0.0)
    inputs, features = slope.shape[2], data.features.shape[1]
    by_input = np.einsum("bji,bj->bi", slope, np.where(valid, residual, 0.0))
    gradient = (by_input.T @ data.features).ravel()
    # Every derivative is a product of input and feature, and so is their Gram matrix.
    gram = (slope.swapaxes(1, 2) @ slope).reshape(len(slope), -1)
    squares = (data.features[:, :, None] * data.features[:, None, :]).reshape(len(slope), -1)
    normal = (gram.T @ squares).reshape(inputs, inputs, features, features).swapaxes(1, 2)
    prior = np.zeros((inputs, features, inputs, features))
    prior[:, 0, :, 0] = _WEAK * np.eye(inputs)
    for feature, precision in enumerate(data.prior, start=1):
        prior[:, feature, :, feature] = precision
    flat = prior.reshape(inputs * features, -1)
    step = np.zeros_like(solution[1:])
    step[:, 1:] = solution[1:, 1:]
    return gradient + flat @ step.ravel(), normal.reshape(inputs * features, -1) + flat


def _lifted(data: InputFit) -> Array | None:
    """Input phases (n,) from the linear problem in the products ``z_i conj(z_k)`` of phase factors, or None."""
    n = data.fields.shape[1]
    upper, lower = np.triu_indices(n, 1)
    parts = data.matrices * data.fields[:, None, :]
    products = (parts[:, :, upper] * parts[:, :, lower].conj()).reshape(-1, len(upper))
    known = np.sum(np.abs(parts) ** 2, axis=-1).ravel()
    readings = data.readings.ravel()
    valid = np.isfinite(readings)
    if valid.sum() < 3 * len(upper) or n < 2:
        return None
    weight = 1.0 / (data.noise.floor_w + known[valid])
    design = 2.0 * np.concatenate([products.real, -products.imag], axis=1)[valid] * weight[:, None]
    solution, *_ = np.linalg.lstsq(design, (readings - known)[valid] * weight, rcond=1e-6)
    gram = np.eye(n, dtype=complex)
    gram[upper, lower] = solution[: len(upper)] + 1j * solution[len(upper) :]
    gram[lower, upper] = gram[upper, lower].conj()
    return np.asarray(np.angle(np.linalg.eigh(gram)[1][:, -1]))
