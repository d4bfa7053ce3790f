"""Couplers and Mach-Zehnder interferometers as matrices on field amplitudes."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

IDEAL_ETA = math.pi / 4
"""Splitting angle of a 50:50 coupler in rad."""


def coupler_matrix(eta: ArrayLike = IDEAL_ETA) -> NDArray[np.complex128]:
    """Matrix of a directional coupler, ``[[cos eta, i sin eta], [i sin eta, cos eta]]``.

    Parameters
    ----------
    eta
        Splitting angle in rad, any shape; pi/4 splits 50:50.

    Returns
    -------
    NDArray
        Unitary matrices, shape ``(*eta.shape, 2, 2)``, complex128.
    """
    angle = np.asarray(eta, dtype=np.float64)
    matrix = np.empty((*angle.shape, 2, 2), dtype=np.complex128)
    matrix[..., 0, 0] = matrix[..., 1, 1] = np.cos(angle)
    matrix[..., 0, 1] = matrix[..., 1, 0] = 1j * np.sin(angle)
    return matrix


def mzi_matrix(
    theta: ArrayLike, phi: ArrayLike, eta_in: ArrayLike = IDEAL_ETA, eta_out: ArrayLike = IDEAL_ETA
) -> NDArray[np.complex128]:
    """Matrix of an MZI: external phase, coupler, internal phase, coupler, both phases on the upper arm.

    ``T = C(eta_out) diag(exp(i theta), 1) C(eta_in) diag(exp(i phi), 1)``; with ideal couplers theta = 0 is
    the cross state and theta = pi the bar state.

    Parameters
    ----------
    theta, phi
        Internal and external phase in rad; shapes broadcast.
    eta_in, eta_out
        Splitting angles in rad of the first and second coupler the light meets.

    Returns
    -------
    NDArray
        Unitary matrices, shape ``(*broadcast, 2, 2)``, complex128; rows are outputs.
    """
    theta, phi, eta_in, eta_out = np.broadcast_arrays(theta, phi, eta_in, eta_out)
    inner = np.exp(1j * theta)
    outer = np.exp(1j * phi)
    cos_in, sin_in = np.cos(eta_in), np.sin(eta_in)
    cos_out, sin_out = np.cos(eta_out), np.sin(eta_out)
    matrix = np.empty((*theta.shape, 2, 2), dtype=np.complex128)
    matrix[..., 0, 0] = outer * (cos_out * cos_in * inner - sin_out * sin_in)
    matrix[..., 0, 1] = 1j * (cos_out * sin_in * inner + sin_out * cos_in)
    matrix[..., 1, 0] = 1j * outer * (sin_out * cos_in * inner + cos_out * sin_in)
    matrix[..., 1, 1] = cos_out * cos_in - sin_out * sin_in * inner
    return matrix
