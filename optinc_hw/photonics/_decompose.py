"""Decomposition of a unitary into the phases of a rectangular mesh."""

import cmath
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._mesh import MeshPhases
from optinc_hw.photonics._transfer import mesh_matrix
from optinc_hw.photonics._unitary import require_unitary
from optinc_hw.photonics.mesh_layout import RectangularLayout

_TWO_PI = 2.0 * math.pi
_RECONSTRUCTION_TOLERANCE = 1e-8


def decompose(unitary: ArrayLike, layout: RectangularLayout) -> MeshPhases:
    """Find the phases with which an ideal mesh realises a unitary.

    Elements are nulled alternately from the right and from the left, then the left factors are pushed through
    the diagonal (W. R. Clements et al., Optica 3, 1460, 2016), here in the convention of `mzi_matrix`.

    Parameters
    ----------
    unitary
        ``(n, n)`` complex, n = ``layout.ports``.
    layout
        The mesh.

    Returns
    -------
    MeshPhases
        theta in [0, pi], phi and output in [0, 2 pi), all in rad.

    Raises
    ------
    MatrixError
        If the matrix is not square, finite, unitary (to 1e-9) or of the layout's size, or if the
        reconstruction does not reproduce it.
    """
    work = require_unitary(unitary).copy()
    n = layout.ports
    if work.shape != (n, n):
        raise MatrixError(f"the matrix has shape {work.shape}, the layout has {n} ports; they must agree")
    target = work.copy()
    right, left = _null(work)
    diagonal = np.diagonal(work).copy()
    cells = right + [_push_through(diagonal, *cell) for cell in reversed(left)]
    phases = _place(cells, np.angle(diagonal), layout)
    error = float(np.abs(mesh_matrix(phases) - target).max())
    if error > _RECONSTRUCTION_TOLERANCE:
        raise MatrixError(f"the decomposition reproduces the matrix only to {error:.3g}; is it finite and unitary?")
    return phases


_Cell = tuple[int, float, float]


def _null(work: NDArray[np.complex128]) -> tuple[list[_Cell], list[_Cell]]:
    """Make ``work`` diagonal in place; return the (mode, theta, phi) applied from the right and the left."""
    n = len(work)
    right: list[_Cell] = []
    left: list[_Cell] = []
    for diagonal in range(n - 1):
        for step in range(diagonal + 1):
            if diagonal % 2 == 0:
                mode, row = diagonal - step, n - 1 - step
                right.append(_null_from_right(work, row, mode))
            else:
                mode, column = n - 2 - diagonal + step, step
                left.append(_null_from_left(work, mode, column))
    return right, left


def _null_from_right(work: NDArray[np.complex128], row: int, mode: int) -> _Cell:
    upper, lower = complex(work[row, mode]), complex(work[row, mode + 1])
    theta = 2.0 * math.atan2(abs(lower), abs(upper))
    phi = cmath.phase(upper) - cmath.phase(lower) + math.pi
    work[:, mode : mode + 2] = work[:, mode : mode + 2] @ _cell_matrix(theta, phi).conj().T
    work[row, mode] = 0.0
    return mode, theta, phi


def _null_from_left(work: NDArray[np.complex128], mode: int, column: int) -> _Cell:
    upper, lower = complex(work[mode, column]), complex(work[mode + 1, column])
    theta = 2.0 * math.atan2(abs(upper), abs(lower))
    phi = cmath.phase(lower) - cmath.phase(upper)
    work[mode : mode + 2] = _cell_matrix(theta, phi) @ work[mode : mode + 2]
    work[mode + 1, column] = 0.0
    return mode, theta, phi


def _cell_matrix(theta: float, phi: float) -> NDArray[np.complex128]:
    common = 1j * cmath.exp(0.5j * theta)
    sine, cosine, outer = math.sin(theta / 2), math.cos(theta / 2), cmath.exp(1j * phi)
    return np.array([[common * outer * sine, common * cosine], [common * outer * cosine, -common * sine]])


def _push_through(diagonal: NDArray[np.complex128], mode: int, theta: float, phi: float) -> _Cell:
    """Rewrite ``T(theta, phi)^dagger D = D' T(theta, phi')``; updates the diagonal in place."""
    upper, lower = complex(diagonal[mode]), complex(diagonal[mode + 1])
    common = -cmath.exp(-1j * theta) * lower
    diagonal[mode] = common * cmath.exp(-1j * phi)
    diagonal[mode + 1] = common
    return mode, theta, cmath.phase(upper) - cmath.phase(lower)


def _place(cells: list[_Cell], output: NDArray[np.float64], layout: RectangularLayout) -> MeshPhases:
    """Put cells, given in the order of the light, into the earliest free columns."""
    index = {mzi: k for k, mzi in enumerate(layout.mzis)}
    depth = [0] * layout.ports
    theta = np.zeros(len(layout.mzis))
    phi = np.zeros(len(layout.mzis))
    for mode, cell_theta, cell_phi in cells:
        column = max(depth[mode], depth[mode + 1])
        column += (column + mode) % 2
        k = index[column, mode]
        theta[k], phi[k] = cell_theta, cell_phi
        depth[mode] = depth[mode + 1] = column + 1
    # Twice: a tiny negative phase modulo 2 pi is rounded to 2 pi itself.
    return MeshPhases(layout, theta, phi % _TWO_PI % _TWO_PI, output % _TWO_PI % _TWO_PI)
