"""Real matrices as products of things a chip can do."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._unitary import real_matrix


@dataclass(frozen=True)
class SvdRealisation:
    """``W = scale * left @ diag(sigma) @ right`` with two orthogonal meshes and a column of attenuators.

    Parameters
    ----------
    scale
        Largest singular value of W (1 for a zero matrix); the gain to be applied after detection.
    left, right
        Orthogonal matrices ``(m, m)`` and ``(n, n)``, float64.
    sigma
        Attenuations (min(m, n),) in [0, 1].
    """

    scale: float
    left: NDArray[np.float64]
    sigma: NDArray[np.float64]
    right: NDArray[np.float64]

    def matrix(self) -> NDArray[np.float64]:
        """Multiply the factors: the realised matrix ``(m, n)``."""
        middle = np.zeros((len(self.left), len(self.right)))
        np.fill_diagonal(middle, self.sigma)
        return np.asarray(self.scale * self.left @ middle @ self.right)


@dataclass(frozen=True)
class RealPartRealisation:
    """``W = scale * Re(unitary)[:m, :n]`` with one mesh, read by homodyne detection of the real part.

    Parameters
    ----------
    scale
        Largest singular value of W (1 for a zero matrix); the gain to be applied after detection.
    unitary
        Complex unitary of max(m, n) rows.
    shape
        Shape (m, n) of W.
    """

    scale: float
    unitary: NDArray[np.complex128]
    shape: tuple[int, int]

    def matrix(self) -> NDArray[np.float64]:
        """Take the scaled real part: the realised matrix ``(m, n)``."""
        rows, columns = self.shape
        return np.asarray(self.scale * self.unitary.real[:rows, :columns])


def realise(matrix: ArrayLike, form: Literal["svd", "re_u"] = "svd") -> SvdRealisation | RealPartRealisation:
    """Factor a real matrix into unitary meshes, attenuators and one gain.

    Parameters
    ----------
    matrix
        ``(m, n)`` real and finite.
    form
        ``"svd"``: ``U Sigma V``, exact, for any detection. ``"re_u"``: the real part of one unitary, exact with half
        the MZIs: with ``W / scale = A cos(t) B`` (singular values as cosines), ``U = A exp(i t) B``.

    Returns
    -------
    SvdRealisation or RealPartRealisation
        Both reproduce the matrix with ``.matrix()``.

    Raises
    ------
    MatrixError
        If the matrix is not two-dimensional, real and finite, or the form is unknown.
    """
    array = real_matrix(matrix)
    norm = float(np.linalg.norm(array, 2))
    scale = norm if norm > 0.0 else 1.0
    if form == "svd":
        left, sigma, right = np.linalg.svd(array / scale)
        return SvdRealisation(scale, left, np.clip(sigma, 0.0, 1.0), right)
    if form == "re_u":
        return _real_part(array, scale)
    raise MatrixError(f"unknown form {form!r}; choose 'svd' or 're_u'")


def _real_part(array: NDArray[np.float64], scale: float) -> RealPartRealisation:
    size = max(array.shape)
    square = np.zeros((size, size))
    square[: array.shape[0], : array.shape[1]] = array / scale
    left, cosine, right = np.linalg.svd(square)
    cosine = np.clip(cosine, 0.0, 1.0)
    rotation = cosine + 1j * np.sqrt(1.0 - cosine**2)
    rows, columns = array.shape
    return RealPartRealisation(scale, (left * rotation) @ right, (rows, columns))
