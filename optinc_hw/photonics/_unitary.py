"""Random unitaries, validation and comparison of matrices."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError

UNITARITY_TOLERANCE = 1e-9
"""Largest accepted entry of ``|U^dagger U - 1|``."""


def haar_unitary(n: int, rng: np.random.Generator) -> NDArray[np.complex128]:
    """Draw a unitary from the Haar measure (QR of a complex Gaussian with the phases of R removed).

    Parameters
    ----------
    n
        Number of rows and columns, at least 1.
    rng
        Source of randomness.

    Returns
    -------
    NDArray
        ``(n, n)`` complex128.
    """
    if n < 1:
        raise MatrixError(f"a unitary needs at least 1 row, got n = {n}")
    gaussian = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    q, r = np.linalg.qr(gaussian)
    diagonal = np.diagonal(r)
    return np.asarray(q * (diagonal / np.abs(diagonal)), dtype=np.complex128)


def nearest_unitary(matrix: ArrayLike) -> NDArray[np.complex128]:
    """Return the unitary closest to ``matrix`` in every unitarily invariant norm (polar factor).

    Parameters
    ----------
    matrix
        ``(n, n)`` or a batch ``(..., n, n)``, complex, finite, of full rank: the answer is unique only then.

    Returns
    -------
    NDArray
        As ``matrix``, complex128.

    Raises
    ------
    MatrixError
        If it is not square, not finite, or of deficient rank.
    """
    return polar_factor(square_matrices(matrix))[0]


def polar_factor(matrices: NDArray[np.complex128]) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """Return the closest unitaries ``(..., n, n)`` and the largest singular values ``(...)`` of what was changed.

    Raises
    ------
    MatrixError
        If a matrix is of deficient rank.
    """
    try:
        left, values, right = np.linalg.svd(matrices)
    except np.linalg.LinAlgError as error:
        raise MatrixError(f"the closest unitary could not be computed: {error}") from error
    deficient = values[..., -1] <= matrices.shape[-1] * np.finfo(np.float64).eps * values[..., 0]
    if deficient.any():
        where = _first(deficient)
        raise MatrixError(
            f"the matrix{_in_batch(where)} has deficient rank (singular values from {values[where][-1]:.3g} to "
            f"{values[where][0]:.3g}): no unitary is closest to it; give a matrix of full rank"
        )
    return np.asarray(left @ right, dtype=np.complex128), np.abs(values - 1.0).max(-1)


def square_matrix(matrix: ArrayLike) -> NDArray[np.complex128]:
    """Return ``matrix`` as complex128 after checking that it is square and finite.

    Raises
    ------
    MatrixError
        If it is not two-dimensional, not square, empty, not of numbers, or holds NaN or Inf.
    """
    array = square_matrices(matrix)
    if array.ndim != 2:
        raise MatrixError(f"expected one square matrix (n, n) with n >= 1, got shape {array.shape}")
    return array


def square_matrices(matrix: ArrayLike) -> NDArray[np.complex128]:
    """Return a matrix or a batch ``(..., n, n)`` as complex128 after checking that all are square and finite.

    Raises
    ------
    MatrixError
        If it has fewer than two axes, or is not square, empty, not of numbers, or holds NaN or Inf.
    """
    try:
        array = np.asarray(matrix, dtype=np.complex128)
    except (TypeError, ValueError) as error:
        raise MatrixError(f"expected a matrix of numbers: {error}") from error
    if array.ndim < 2 or array.shape[-2] != array.shape[-1] or array.shape[-1] == 0:
        raise MatrixError(f"expected a square matrix (n, n) with n >= 1, got shape {array.shape}")
    if not np.isfinite(array).all():
        where = _first(~np.isfinite(array).all((-2, -1)))
        raise MatrixError(f"the matrix{_in_batch(where)} holds NaN or Inf; every entry must be finite")
    return array


def real_matrix(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return ``matrix`` as float64 after checking that it is a real, finite, two-dimensional matrix.

    Raises
    ------
    MatrixError
        If it is not two-dimensional, empty, complex, not of numbers, or holds NaN or Inf.
    """
    try:
        array = np.asarray(matrix)
        numbers = np.asarray(array.real, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MatrixError(f"expected a matrix of numbers: {error}") from error
    if array.ndim != 2 or array.size == 0 or np.iscomplexobj(array):
        raise MatrixError(f"expected a real matrix (m, n) with m, n >= 1, got shape {array.shape}, dtype {array.dtype}")
    if not np.isfinite(numbers).all():
        raise MatrixError("the matrix holds NaN or Inf; every entry must be finite")
    return numbers


def require_unitary(
    matrix: ArrayLike, tolerance: float = UNITARITY_TOLERANCE
) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """Return a matrix or a batch ``(..., n, n)`` as complex128, and by how much each misses being unitary ``(...)``.

    Raises
    ------
    MatrixError
        If one is not square, not finite, or its ``max |U^dagger U - 1|`` exceeds ``tolerance``.
    """
    array = square_matrices(matrix)
    n = array.shape[-1]
    with np.errstate(over="ignore", invalid="ignore"):
        gram = array.conj().swapaxes(-1, -2) @ array
    gram.reshape(*gram.shape[:-2], n * n)[..., :: n + 1] -= 1.0
    deviation = np.abs(gram).max((-2, -1))
    # Not "greater": products of huge numbers may be NaN.
    excess = ~(deviation <= tolerance)
    if excess.any():
        where = _first(excess)
        raise MatrixError(
            f"the matrix{_in_batch(where)} is not unitary: max |U^dagger U - 1| = {deviation[where]:.3g} exceeds "
            f"{tolerance:.3g} (single precision leaves 1e-6); use nearest_unitary(matrix), or nearest_unitary=True "
            "where there is that choice, if the closest unitary is meant"
        )
    return array, deviation


def _first(bad: NDArray[np.bool_] | np.bool_) -> tuple[int, ...]:
    """Index of the first matrix of a batch that is bad."""
    return tuple(int(axis) for axis in np.unravel_index(int(np.argmax(bad)), np.shape(bad)))


def _in_batch(where: tuple[int, ...]) -> str:
    if not where:
        return ""
    return f" at batch index {where[0] if len(where) == 1 else where}"


def fidelity(
    a: ArrayLike, b: ArrayLike, gauge: Literal["none", "global", "ports"] = "global", iterations: int = 200
) -> float:
    """Overlap of two matrices after normalisation, 1 for equal ones.

    ``F = |Tr(A^dagger B)|^2 / (|A|_F^2 |B|_F^2)``.

    Parameters
    ----------
    a, b
        ``(n, n)`` complex matrices, finite and not zero.
    gauge
        What is free to differ: ``"none"`` takes the real part of the trace, ``"global"`` one common phase,
        ``"ports"`` a phase at each input and output (what powers alone cannot see); the last maximises
        over those phases by alternating steps, each of which cannot lower F.
    iterations
        Largest number of alternating steps for ``"ports"``.

    Returns
    -------
    float
        Fidelity between 0 and 1 (with ``"none"``, 0 for a negative real part).

    Raises
    ------
    MatrixError
        If a matrix is not square, finite and different from zero, the shapes differ, or the gauge is unknown.
    """
    first, second = square_matrix(a), square_matrix(b)
    if first.shape != second.shape:
        raise MatrixError(f"cannot compare matrices of shapes {first.shape} and {second.shape}")
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    if norm == 0.0:
        raise MatrixError("cannot compare with a matrix that is zero")
    overlap = first.conj() * second
    if gauge == "none":
        return float(max(overlap.sum().real, 0.0) / norm) ** 2
    if gauge == "global":
        return float(abs(overlap.sum()) / norm) ** 2
    if gauge == "ports":
        return float(_port_overlap(overlap, iterations) / norm) ** 2
    raise MatrixError(f"unknown gauge {gauge!r}; choose 'none', 'global' or 'ports'")


def _port_overlap(overlap: NDArray[np.complex128], iterations: int) -> float:
    starts = (np.ones(len(overlap), dtype=np.complex128), _tree_phases(overlap))
    return max(_climb(overlap, start, iterations) for start in starts)


def _tree_phases(overlap: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Phases (n,) of the columns that align the strongest entries which connect all rows and columns.

    For matrices that are equal up to port phases, these are exactly those phases, whatever entries are zero.
    """
    n, size = len(overlap), np.abs(overlap)
    rows, columns = np.zeros(n, dtype=np.complex128), np.zeros(n, dtype=np.complex128)
    while not columns.all():
        reach = size * ((rows == 0.0)[:, None] ^ (columns == 0.0))
        row, column = np.unravel_index(int(np.argmax(reach)), reach.shape)
        if reach[row, column] == 0.0:  # what is known is not connected with the rest: begin anew there
            columns[int(np.argmin(np.abs(columns)))] = 1.0
        elif columns[column] == 0.0:
            columns[column] = np.exp(-1j * np.angle(rows[row] * overlap[row, column]))
        else:
            rows[row] = np.exp(-1j * np.angle(overlap[row, column] * columns[column]))
    return columns


def _climb(overlap: NDArray[np.complex128], start: NDArray[np.complex128], iterations: int) -> float:
    best, columns = 0.0, start
    for _ in range(iterations):
        rows = np.exp(-1j * np.angle(overlap @ columns))
        columns = np.exp(-1j * np.angle(rows @ overlap))
        value = float(np.abs(rows @ overlap).sum())
        if value - best <= 1e-15 * value:
            return max(value, best)
        best = value
    return best
