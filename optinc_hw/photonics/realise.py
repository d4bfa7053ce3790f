"""Real matrices as products of things a chip can do: meshes, attenuators and one gain after detection."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._decompose import Decomposition, decompose
from optinc_hw.photonics._unitary import real_matrix
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout

Form = Literal["svd", "sigma_u", "re_u"]


@dataclass(frozen=True, eq=False)
class Realisation(ABC):
    """What a chip does in place of a real matrix; one of `SvdRealisation`, `BlockRealisation`, `RealPartRealisation`.

    Parameters
    ----------
    target
        The matrix ``(m, n)`` that was asked for, float64; m outputs, n inputs.
    scale
        Gain to be applied after detection (1 for a zero matrix).
    """

    form: ClassVar[Form]
    target: NDArray[np.float64]
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (m, n) of the matrix."""
        rows, columns = self.target.shape
        return rows, columns

    @property
    @abstractmethod
    def unitaries(self) -> tuple[NDArray[np.complex128] | NDArray[np.float64], ...]:
        """Square unitary matrices to be put on meshes: in the order of the light, or of the blocks."""

    @abstractmethod
    def matrix(self) -> NDArray[np.float64]:
        """Multiply the factors: the realised matrix ``(m, n)``."""

    @property
    def residual(self) -> float:
        """Distance of the realised from the asked matrix, ``|W' - W|_F / |W|_F`` (0 for a zero matrix)."""
        size = float(np.abs(self.target).max()) or 1.0  # squares of very small or large entries leave the range
        norm = float(np.linalg.norm(self.target / size))
        return float(np.linalg.norm(self.matrix() / size - self.target / size)) / (norm or 1.0)

    @property
    def mzis(self) -> int:
        """Number of MZIs of meshes and attenuators, `mzi_count` of the shape."""
        return mzi_count(self.shape, self.form)

    def meshes(self, layout: Callable[[int], MeshLayout] = RectangularLayout) -> tuple[Decomposition, ...]:
        """Phases of an ideal mesh for each of ``unitaries``, in their order.

        Parameters
        ----------
        layout
            Makes the mesh of a number of ports: `RectangularLayout` or `TriangularLayout`.

        Raises
        ------
        MatrixError
            If the layout is neither rectangular nor triangular.
        """
        return tuple(decompose(unitary, layout(len(unitary))) for unitary in self.unitaries)


@dataclass(frozen=True, eq=False)
class SvdRealisation(Realisation):
    """``W = scale * left @ diag(sigma) @ right``: two orthogonal meshes and a column of attenuators; exact.

    Parameters
    ----------
    target, scale
        See `Realisation`; the scale is the largest singular value of W.
    left, right
        Orthogonal matrices ``(m, m)`` and ``(n, n)``, float64; light meets ``right`` first.
    sigma
        Attenuations (min(m, n),) in [0, 1], largest first.
    """

    form: ClassVar[Form] = "svd"
    left: NDArray[np.float64]
    sigma: NDArray[np.float64]
    right: NDArray[np.float64]

    @property
    def unitaries(self) -> tuple[NDArray[np.float64], ...]:
        """``right``, then ``left``."""
        return self.right, self.left

    def matrix(self) -> NDArray[np.float64]:
        """Multiply the factors: the realised matrix ``(m, n)``."""
        count = len(self.sigma)
        return np.asarray(self.scale * ((self.left[:, :count] * self.sigma) @ self.right[:count]))


@dataclass(frozen=True, eq=False)
class BlockRealisation(Realisation):
    """``W`` cut along its longer side into square blocks ``scale * diag(sigma) @ U``: OptINC's approximated layer.

    Blocks lie side by side (their outputs are added) or one below the other (they share their inputs). If the longer
    side is no multiple of the shorter one, the last block is the part that W fills of a whole one: the rest of its
    inputs stay dark or the rest of its outputs are not used. Splitters and combiners are not counted as MZIs.

    Parameters
    ----------
    target, scale
        See `Realisation`; the scale is the largest attenuation's.
    sigma
        Attenuations (blocks, s) in [0, 1] of the outputs of each block, s = min(m, n).
    blocks
        Orthogonal matrices ``(blocks, s, s)``, float64.
    """

    form: ClassVar[Form] = "sigma_u"
    sigma: NDArray[np.float64]
    blocks: NDArray[np.float64]

    @property
    def unitaries(self) -> tuple[NDArray[np.float64], ...]:
        """The blocks, from the left or from the top."""
        return tuple(self.blocks)

    def matrix(self) -> NDArray[np.float64]:
        """Put the blocks together: the realised matrix ``(m, n)``."""
        rows, columns = self.shape
        scaled = self.scale * (self.sigma[:, :, None] * self.blocks)
        return np.concatenate(scaled, axis=1 if columns > rows else 0)[:rows, :columns]


@dataclass(frozen=True, eq=False)
class RealPartRealisation(Realisation):
    """``W = scale * Re(unitary)[:m, :n]``: one mesh, read by homodyne detection of the real part; exact.

    Parameters
    ----------
    target, scale
        See `Realisation`; the scale is the largest singular value of W.
    unitary
        Complex unitary of max(m, n) rows.
    """

    form: ClassVar[Form] = "re_u"
    unitary: NDArray[np.complex128]

    @property
    def unitaries(self) -> tuple[NDArray[np.complex128], ...]:
        """The one unitary."""
        return (self.unitary,)

    def matrix(self) -> NDArray[np.float64]:
        """Take the scaled real part: the realised matrix ``(m, n)``."""
        rows, columns = self.shape
        return np.asarray(self.scale * self.unitary.real[:rows, :columns])


@overload
def realise(matrix: ArrayLike, form: Literal["svd"] = "svd") -> SvdRealisation: ...
@overload
def realise(matrix: ArrayLike, form: Literal["sigma_u"]) -> BlockRealisation: ...
@overload
def realise(matrix: ArrayLike, form: Literal["re_u"]) -> RealPartRealisation: ...
def realise(matrix: ArrayLike, form: Form = "svd") -> Realisation:
    """Factor a real matrix into unitary meshes, attenuators and one gain.

    Parameters
    ----------
    matrix
        ``(m, n)`` real and finite.
    form
        ``"svd"``: ``U Sigma V``, exact, for any detection.
        ``"sigma_u"``: square blocks ``Sigma U``, about half the MZIs, with U the orthogonal polar factor of each block
        and Sigma fitted to it row by row (OptINC, arXiv 2603.28290). Exact only for whole blocks that are a
        non-negative diagonal times an orthogonal matrix; a Gaussian one of 64 x 64 loses 52 % of its norm
        (``residual`` 0.52), so networks are trained for this form.
        ``"re_u"``: the real part of one unitary, exact with about half the MZIs: with ``W / scale = A cos(t) B``
        (singular values as cosines), ``U = A exp(i t) B``.

    Returns
    -------
    Realisation
        A `SvdRealisation`, `BlockRealisation` or `RealPartRealisation`.

    Raises
    ------
    MatrixError
        If the matrix is not two-dimensional, real and finite, its norm exceeds the range of float64, or the form is
        unknown.
    """
    array = real_matrix(matrix).copy()
    peak = float(np.abs(array).max()) or 1.0
    unit = array / peak
    norm = float(np.linalg.norm(unit, 2)) or 1.0
    if not np.isfinite(peak * norm):
        raise MatrixError(f"the norm of the matrix, {norm:.3g} times {peak:.3g}, exceeds float64; scale it down")
    if form == "svd":
        left, sigma, right = np.linalg.svd(unit / norm)
        return SvdRealisation(array, peak * norm, left, np.clip(sigma, 0.0, 1.0), right)
    if form == "sigma_u":
        sigma, blocks = _row_scaled_blocks(unit)
        largest = float(sigma.max()) or 1.0
        return BlockRealisation(array, peak * largest, sigma / largest, blocks)
    if form == "re_u":
        rows, columns = array.shape
        square = np.zeros((max(array.shape),) * 2)
        square[:rows, :columns] = unit / norm
        return RealPartRealisation(array, peak * norm, unitary_of_real_part(square))
    raise _unknown(form)


def mzi_count(shape: tuple[int, int], form: Form = "svd") -> int:
    """Count the MZIs that hold a real matrix of the given shape.

    Parameters
    ----------
    shape
        (outputs m, inputs n) of the matrix.
    form
        ``"svd"``: two meshes and an attenuator at every output, (m (m + 1) + n (n - 1)) / 2.
        ``"sigma_u"``: ceil(max / min) square blocks of s (s + 1) / 2 with s = min.
        ``"re_u"``: one mesh of p = max(m, n) ports, p (p - 1) / 2.

    Raises
    ------
    MatrixError
        If a dimension is below 1 or the form is unknown.
    """
    rows, columns = shape
    if rows < 1 or columns < 1:
        raise MatrixError(f"a matrix of shape {shape} holds nothing; both dimensions must be at least 1")
    large, small = max(rows, columns), min(rows, columns)
    if form == "svd":
        return (rows * (rows + 1) + columns * (columns - 1)) // 2
    if form == "sigma_u":
        return -(-large // small) * (small * (small + 1) // 2)
    if form == "re_u":
        return large * (large - 1) // 2
    raise _unknown(form)


def unitary_of_real_part(matrix: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return a unitary ``(p, p)`` whose real part is ``matrix`` (p, p), of spectral norm at most 1."""
    left, cosine, right = np.linalg.svd(matrix)
    cosine = np.clip(cosine, 0.0, 1.0)
    return np.asarray((left * (cosine + 1j * np.sqrt(1.0 - cosine**2))) @ right, dtype=np.complex128)


def _row_scaled_blocks(array: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Attenuations (blocks, s), not yet scaled, and orthogonal matrices (blocks, s, s)."""
    rows, columns = array.shape
    side = min(rows, columns)
    count = -(-max(rows, columns) // side)
    sideways = columns > rows
    padded, filled = np.zeros((2, *((side, count * side) if sideways else (count * side, side))))
    padded[:rows, :columns] = array
    filled[:rows, :columns] = 1.0
    wanted, used = (np.stack(np.split(whole, count, axis=1 if sideways else 0)) for whole in (padded, filled))
    left, _, right = np.linalg.svd(wanted)
    blocks = left @ right
    # Rows of U have unit length, but dark inputs cut the rows of a last block that is not full.
    length = np.sum(used * blocks**2, axis=-1)
    products = np.sum(wanted * blocks, axis=-1)
    sigma = np.divide(products, length, out=np.zeros_like(products), where=length > 0.0)
    # The polar factor P = W U^T is positive semidefinite, hence 0 <= sigma <= |W|: only round-off is clipped.
    return np.clip(sigma, 0.0, np.linalg.norm(wanted, 2, axis=(-2, -1))[:, None]), blocks


def _unknown(form: str) -> MatrixError:
    return MatrixError(f"unknown form {form!r}; choose 'svd', 'sigma_u' or 're_u'")
