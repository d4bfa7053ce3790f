"""Comparison of matrices up to phases that a measurement cannot see, with proof that no better ones exist."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from calibration._arrays import complexes
from calibration._matrix import GAUGE_TEXT, ComplexArray, Gauge, total_variation
from calibration._session import Array
from optinc_hw.errors import MatrixError

Normalise = Literal["columns", "none"]
PROVEN = 1e-9
"""Largest gap of a fidelity to its upper bound at which it counts as the proven maximum."""
_RANDOM_STARTS = 8
_ROUNDS = 2000


@dataclass(frozen=True)
class MatrixComparison:
    """How far a measured matrix is from an expected one.

    E is the expected matrix and M the measured one, both normalised as ``normalise`` says, M with its free phases
    matched: turned by those phases that ``gauge`` leaves free, chosen for the largest ``Re sum conj(E) M``.

    Parameters
    ----------
    fidelity
        ``(Re sum conj(E) M)^2 / (|E|^2 |M|^2)`` between 0 and 1, with Frobenius norms; 0 where the real part is
        negative. A factor common to all elements of a matrix does not change it. With a free phase the sum is real and
        positive; with gauge ``"none"`` it is not, and a phase common to all elements counts as an error.
    upper_bound
        No choice of the free phases gives a larger fidelity than this; at least ``fidelity``.
    conjugate_fidelity
        The same fidelity of the measured matrix's complex conjugate: larger than ``fidelity`` where phases were counted
        in the wrong direction.
    residual
        ``|M - E| / |E|``, Frobenius norms. With ``normalise="none"`` a factor between the matrices counts: a measured
        matrix of twice the size has the residual 1.
    error
        (m, n) complex: ``M - E``, without ``normalise="columns"`` in the unit of the matrices.
    tvd
        Total variation distance (n,) of the output powers of each lit input, each scaled to sum 1; neither phases nor
        ``normalise`` matter to it. 1 where one of the two columns is dark, 0 where both are.
    output_phases, input_phases
        Phases (m,) and (n,) in rad that were added to the measured matrix's rows and columns.
    gauge, normalise
        What was free to differ.
    statement
        All this in a sentence.
    """

    fidelity: float
    upper_bound: float
    conjugate_fidelity: float
    residual: float
    error: ComplexArray
    tvd: Array
    output_phases: Array
    input_phases: Array
    gauge: Gauge
    normalise: Normalise
    statement: str

    @property
    def proven(self) -> bool:
        """Whether no choice of the free phases gives a larger fidelity."""
        return self.upper_bound - self.fidelity <= PROVEN


def compare_matrices(
    measured: ArrayLike, expected: ArrayLike, gauge: Gauge = "ports", normalise: Normalise = "columns"
) -> MatrixComparison:
    """Compare two matrices in the best choice of the phases that are free to differ.

    With ``"ports"`` the fidelity is a maximum over two screens of phases, found by alternating ascents from several
    starts. A dual bound (the least eigenvalue of ``diag(d) - H`` with d the row sums at the maximum) proves it to be
    the largest one wherever the matrices resemble each other; `MatrixComparison.proven` says so. All other gauges are
    exact.

    Parameters
    ----------
    measured, expected
        (m, n) real or complex, finite, not zero, of any scale.
    gauge
        Phases that are free to differ: ``"ports"`` at every output and input (what powers cannot see), ``"inputs"``
        or ``"outputs"`` at one side, ``"global"`` one phase, ``"none"``.
    normalise
        ``"columns"`` scales every column of both to norm 1 (losses of inputs do not count); dark columns stay dark.
        ``"none"`` leaves both as they are, and columns count by their power.

    Returns
    -------
    MatrixComparison
        Fidelity, errors and the phases that were applied.

    Raises
    ------
    MatrixError
        If shapes differ, a value is no finite number, a matrix is zero, or gauge or normalisation is unknown.
    """
    first, second = _matrix("measured", measured), _matrix("expected", expected)
    if first.shape != second.shape:
        raise MatrixError(f"cannot compare matrices of shapes {first.shape} and {second.shape}")
    if gauge not in GAUGE_TEXT:
        raise MatrixError(f"unknown gauge {gauge!r}; choose {', '.join(GAUGE_TEXT)}")
    if normalise not in ("columns", "none"):
        raise MatrixError(f"unknown normalisation {normalise!r}; choose columns or none")
    shares = [np.abs(unit_columns(matrix).T) ** 2 for matrix in (first, second)]
    if normalise == "columns":
        first, second = unit_columns(first), unit_columns(second)
    # Squares of very large or small elements are no numbers any more, so all is reckoned at a largest element of 1.
    sizes = [float(np.abs(matrix).max()) for matrix in (first, second)]
    start, goal = first / sizes[0], second / sizes[1]
    norm = float(np.linalg.norm(start) * np.linalg.norm(goal))
    rows, columns, bound = match_phases(start, goal, gauge)
    matched = rows[:, None] * start * columns
    fidelity = _squared(float(np.sum(goal.conj() * matched).real), norm)
    conjugate = start.conj()
    turned = match_phases(conjugate, goal, gauge)
    mirrored = float(np.sum(goal.conj() * (turned[0][:, None] * conjugate * turned[1])).real)
    upper = max(_squared(bound, norm), fidelity)
    larger = max(sizes)
    apart = np.linalg.norm(matched * (sizes[0] / larger) - goal * (sizes[1] / larger))
    return MatrixComparison(
        fidelity=fidelity,
        upper_bound=upper,
        conjugate_fidelity=_squared(mirrored, norm),
        residual=float(apart / np.linalg.norm(goal)) * (larger / sizes[1]),
        error=matched * sizes[0] - second,
        tvd=total_variation(*shares),
        output_phases=np.angle(rows),
        input_phases=np.angle(columns),
        gauge=gauge,
        normalise=normalise,
        statement=_statement(fidelity, upper, gauge, normalise, first.shape),
    )


def match_phases(
    measured: ComplexArray, expected: ComplexArray, gauge: Gauge
) -> tuple[ComplexArray, ComplexArray, float]:
    """Find the phase factors (m,) and (n,) that bring a matrix closest to another one.

    Returns
    -------
    tuple
        Factors of rows and columns, and an upper bound of ``Re sum conj(expected) measured`` over all such factors.
    """
    overlap = expected.conj() * measured
    rows, columns = np.ones(overlap.shape[0], complex), np.ones(overlap.shape[1], complex)
    if gauge == "ports":
        return _match_ports(overlap)
    if gauge == "outputs":
        rows = _aligning(overlap.sum(axis=1))
    elif gauge == "inputs":
        columns = _aligning(overlap.sum(axis=0))
    elif gauge == "global":
        rows = rows * _aligning(overlap.sum())
    return rows, columns, float((rows @ overlap @ columns).real)


def _match_ports(overlap: ComplexArray) -> tuple[ComplexArray, ComplexArray, float]:
    rng = np.random.default_rng(0)  # equal matrices get equal answers
    n = overlap.shape[1]
    right = np.linalg.svd(overlap)[2][0].conj()
    starts = [_tree_columns(overlap), np.ones(n, complex), np.exp(1j * np.angle(right))]
    starts += list(np.exp(2j * np.pi * rng.random((_RANDOM_STARTS, n))))
    best, bound = (np.ones(len(overlap), complex), starts[1]), np.inf
    value = -np.inf
    for start in starts:
        rows, columns = _climb(overlap, start)
        reached = float((rows @ overlap @ columns).real)
        if reached > value:
            value, best = reached, (rows, columns)
            bound = min(bound, _dual_bound(rows[:, None] * overlap * columns))
        if bound - value <= 1e-12 * value:
            break
    return *best, bound


def _climb(overlap: ComplexArray, columns: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
    """Align rows and columns in turns; no turn lowers the overlap."""
    value = -np.inf
    for _ in range(_ROUNDS):
        rows = _aligning(overlap @ columns)
        sums = rows @ overlap
        columns = _aligning(sums)
        previous, value = value, float(np.abs(sums).sum())
        if value - previous <= 1e-15 * value:
            break
    return rows, columns


def _dual_bound(aligned: ComplexArray) -> float:
    """Upper bound of ``Re sum u_j A_ji w_i`` over all phase factors u, w.

    For any real d, ``x^H H x <= sum d - (m + n) min(0, least eigenvalue of diag(d) - H)`` with
    ``H = [[0, A], [A^H, 0]]`` and x of unit moduli. At a maximum the sums of rows and columns are the best d.
    """
    m, n = aligned.shape
    hermitian = np.zeros((m + n, m + n), complex)
    hermitian[:m, m:] = aligned
    hermitian[m:, :m] = aligned.conj().T
    diagonal = hermitian.sum(axis=1).real
    least = float(np.linalg.eigvalsh(np.diag(diagonal) - hermitian)[0])
    shift = min(0.0, least) * (m + n)
    return 0.5 * (float(diagonal.sum()) - float(shift))


def _tree_columns(overlap: ComplexArray) -> ComplexArray:
    """Phase factors (n,) of the columns that align the strongest elements which connect all rows and columns.

    They are exact for matrices that are equal up to phases of ports, whatever elements are dark.
    """
    m, n = overlap.shape
    size = np.abs(overlap)
    rows, columns = np.zeros(m, complex), np.zeros(n, complex)
    while not columns.all():
        reach = size * ((rows == 0.0)[:, None] ^ (columns == 0.0))
        row, column = np.unravel_index(int(np.argmax(reach)), reach.shape)
        if reach[row, column] == 0.0:
            columns[int(np.argmin(np.abs(columns)))] = 1.0
        elif columns[column] == 0.0:
            columns[column] = _aligning(rows[row] * overlap[row, column])
        else:
            rows[row] = _aligning(columns[column] * overlap[row, column])
    return columns


def _aligning(values: ArrayLike) -> ComplexArray:
    """Phase factors that make values real and positive."""
    return np.asarray(np.exp(-1j * np.angle(np.asarray(values, np.complex128))))


def _squared(overlap: float, norm: float) -> float:
    cosine: float = min(max(overlap / norm, 0.0), 1.0)
    return cosine * cosine


def _matrix(name: str, values: ArrayLike) -> ComplexArray:
    array = complexes(name, values, MatrixError)
    if array.ndim != 2 or array.size == 0:
        raise MatrixError(f"{name} must be a matrix (m, n), got shape {array.shape}")
    with np.errstate(over="ignore"):
        largest = np.abs(array).max()
    if not np.isfinite(largest):
        raise MatrixError(f"the {name} matrix holds NaN, Inf or masked elements; every element must be finite")
    if largest == 0.0:
        raise MatrixError(f"cannot compare with a matrix that is zero: the {name} one is")
    return array


def unit_columns(matrix: ComplexArray) -> ComplexArray:
    """Scale every column to norm 1; dark ones stay dark."""
    largest = np.abs(matrix).max(axis=0)
    scaled = matrix / np.where(largest > 0.0, largest, 1.0)
    norm = np.linalg.norm(scaled, axis=0)
    return np.asarray(scaled / np.where(norm > 0.0, norm, 1.0))


def _statement(fidelity: float, upper: float, gauge: Gauge, normalise: Normalise, shape: tuple[int, int]) -> str:
    if gauge == "none":
        free = "no phase free"
    elif gauge == "ports":
        free = f"maximised over the phases of {shape[0]} outputs and {shape[1]} inputs, which powers cannot see"
    else:
        free = f"maximised over {GAUGE_TEXT[gauge]}"
    if upper - fidelity <= PROVEN:
        proof = "proven to be the largest"
    else:
        proof = f"a local maximum; the largest is at most {upper:.6f}"
    scaled = "every column scaled to norm 1" if normalise == "columns" else "columns as they are"
    return f"fidelity {fidelity:.6f}, {free} ({proof}); {scaled}"
