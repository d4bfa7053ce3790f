"""Rows of a transfer matrix from output powers of known input fields: damped Gauss-Newton, and what stays unsure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._matrix import UNKNOWN_PHASE_RMS, ComplexArray
from calibration._session import Array
from calibration._twin_fit import NoiseModel

_STEPS = 60
_STOP = 1e-9
_HOPELESS = 1e8
_DARK = 3.0
"""A reading below this many sigma is dark: its slope vanishes and its curvature holds the row instead."""
_SINGULAR = 1e-14


@dataclass(frozen=True)
class RowFit:
    """Rows that explain output powers.

    Parameters
    ----------
    rows
        (m, n) complex; each row has a phase of its own choice.
    cost
        Sum (m,) of squared residuals over noise.
    """

    rows: ComplexArray
    cost: Array


def row_powers(fields: ComplexArray, rows: ComplexArray) -> Array:
    """Output powers (B, m) in W of input fields (B, n) in sqrt(W)."""
    return np.asarray(np.abs(fields @ rows.T) ** 2)


def refine_rows(fields: ComplexArray, power_w: Array, start: ComplexArray, noise: NoiseModel) -> RowFit:
    """Fit rows to output powers by damped Gauss-Newton steps, all rows at once.

    Parameters
    ----------
    fields
        Input fields (B, n) in sqrt(W).
    power_w
        Output powers (B, m) in W, dark readings subtracted.
    start
        Rows (m, n) to begin with.
    noise
        Noise of a reading; it is taken at the powers that the rows predict, as noisy readings of little light would
        otherwise count too much or too little.
    """
    rows, n = start.copy(), fields.shape[1]
    damping = np.full(len(rows), 1e-3)
    sigma = noise.sigma(power_w)
    for reweighting in range(3):
        cost = _cost(fields, power_w, rows, sigma)
        active = np.ones(len(rows), bool)
        for _ in range(_STEPS):
            gradient, normal = _normal_equations(fields, power_w, rows, sigma)
            diagonal = np.einsum("mii->mi", normal)
            lift = damping[:, None] * diagonal + 1e-12 * diagonal.max(axis=1, keepdims=True) + 1e-300
            step = np.linalg.solve(normal + lift[:, :, None] * np.eye(2 * n), gradient[:, :, None])[:, :, 0]
            trial = rows - (step[:, :n] + 1j * step[:, n:]) * active[:, None]
            reached = _cost(fields, power_w, trial, sigma)
            better = active & (reached < cost)
            gain = cost - reached
            rows = np.where(better[:, None], trial, rows)
            active &= ~(better & (gain <= _STOP * cost)) & (damping < _HOPELESS) & (cost > 0.0)
            cost = np.where(better, reached, cost)
            damping = np.where(better, np.maximum(0.1 * damping, 1e-9), 10.0 * damping)
            if not active.any():
                break
        sigma = noise.sigma(row_powers(fields, rows))
        damping = np.full(len(rows), 1e-3 if reweighting else 1e-2)
    return RowFit(rows, _cost(fields, power_w, rows, sigma))


def row_covariances(
    fields: ComplexArray, rows: ComplexArray, noise: NoiseModel, parts: NDArray[np.intp] | None = None
) -> Array:
    """Covariances (m, 2n, 2n) of fitted rows, of real parts and then of imaginary ones.

    Parameters
    ----------
    fields
        Input fields (B, n) in sqrt(W).
    rows
        Fitted rows (m, n).
    noise
        Noise of a reading.
    parts
        Number (m, n) of the part of its row to which each element belongs: phases between parts of a row are free and
        count as matched. None means that every row is one part.
    """
    power = row_powers(fields, rows)
    sigma = noise.sigma(power)
    dark = power < _DARK * sigma
    _, normal = _normal_equations(fields, power, rows, np.where(dark, np.inf, sigma))
    normal = normal + _dark_information(fields, np.where(dark, 2.0 / sigma, 0.0))
    normal = normal + _circle_information(rows, normal)
    labels = np.zeros(rows.shape, dtype=np.intp) if parts is None else parts
    return np.stack([_covariance(*each) for each in zip(normal, rows, labels, strict=True)])


def element_sigmas(rows: ComplexArray, covariances: Array) -> Array:
    """Return standard deviations (m, n, 2) along and across elements (m, n) of covariances (m, 2n, 2n)."""
    n = rows.shape[1]
    real, imag = np.arange(n), np.arange(n, 2 * n)
    along = np.exp(1j * np.angle(rows))
    first, second = covariances[:, real, real], covariances[:, imag, imag]
    mixed = 2.0 * along.real * along.imag * covariances[:, real, imag]
    radial = along.real**2 * first + along.imag**2 * second + mixed
    across = along.imag**2 * first + along.real**2 * second - mixed
    return np.asarray(np.sqrt(np.maximum(np.stack([radial, across], axis=-1), 0.0)))


def power_sigmas(fields: ComplexArray, rows: ComplexArray, covariances: Array) -> Array:
    """Return standard deviations (B, m) in W of the powers that fitted rows predict for input fields (B, n)."""
    slope = 2.0 * (fields @ rows.T).conj().T[:, :, None] * fields
    jacobian = np.concatenate([slope.real, -slope.imag], axis=-1)
    variance = np.einsum("mbk,mkl,mbl->bm", jacobian, covariances, jacobian, optimize=True)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def _cost(fields: ComplexArray, power_w: Array, rows: ComplexArray, sigma: Array) -> Array:
    return np.asarray(np.sum(((row_powers(fields, rows) - power_w) / sigma) ** 2, axis=0))


def _normal_equations(fields: ComplexArray, power_w: Array, rows: ComplexArray, sigma: Array) -> tuple[Array, Array]:
    """Gradients (m, 2n) and Gauss-Newton matrices (m, 2n, 2n) of half the cost, by real and imaginary parts."""
    outputs = fields @ rows.T
    residual = (np.abs(outputs) ** 2 - power_w) / sigma
    slope = 2.0 * (outputs.conj() / sigma).T[:, :, None] * fields  # (m, B, n)
    jacobian = np.concatenate([slope.real, -slope.imag], axis=-1)
    gradient = np.einsum("mbk,bm->mk", jacobian, residual)
    return gradient, jacobian.swapaxes(1, 2) @ jacobian


def _dark_information(fields: ComplexArray, weight: Array) -> Array:
    """Return what dark readings say (m, 2n, 2n): the output field is below noise, whatever its phase."""
    hermitian = np.einsum("bm,bi,bk->mik", weight, fields.conj(), fields)
    upper = np.concatenate([hermitian.real, -hermitian.imag], axis=2)
    lower = np.concatenate([hermitian.imag, hermitian.real], axis=2)
    return np.concatenate([upper, lower], axis=1)


def _circle_information(rows: ComplexArray, normal: Array) -> Array:
    """Return what is known of every phase beforehand (m, 2n, 2n): it is an angle, no more than half a turn off."""
    m, n = rows.shape
    along = np.exp(1j * np.angle(rows))
    real, imag = np.arange(n), np.arange(n, 2 * n)
    radial = (
        along.real**2 * normal[:, real, real]
        + along.imag**2 * normal[:, imag, imag]
        + 2.0 * along.real * along.imag * normal[:, real, imag]
    )
    reach = UNKNOWN_PHASE_RMS**2 * (np.abs(rows) ** 2 + 1.0 / np.maximum(radial, 1e-300))
    precision = 1.0 / np.maximum(reach, 1e-300)
    result = np.zeros((m, 2 * n, 2 * n))
    result[:, real, real] = along.imag**2 * precision
    result[:, imag, imag] = along.real**2 * precision
    result[:, real, imag] = result[:, imag, real] = -along.real * along.imag * precision
    return result


def _covariance(normal: Array, row: ComplexArray, labels: NDArray[np.intp]) -> Array:
    """Covariance (2n, 2n) of a row; the phases of its parts are those that match the truth best."""
    scale = np.sqrt(np.maximum(np.diagonal(normal), 1e-300))
    free = []
    for label in np.unique(labels):
        turned = np.where(labels == label, 1j * row, 0.0)
        direction = np.concatenate([turned.real, turned.imag])
        size = float(np.linalg.norm(direction))
        if size > 0.0:
            free.append(direction / size)
    gauge = np.array(free).reshape(-1, len(normal)).T
    stiff = float(np.diagonal(normal).max()) * gauge @ gauge.T
    values, vectors = np.linalg.eigh((normal + stiff) / np.outer(scale, scale))
    # What no reading holds is unsure beyond measure, not infinite.
    inverse = (vectors / np.maximum(values, _SINGULAR)) @ vectors.T / np.outer(scale, scale)
    project = np.eye(len(normal)) - gauge @ gauge.T
    return np.asarray(project @ inverse @ project)
