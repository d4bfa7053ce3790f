"""A measured transfer matrix: its elements, how sure they are, and which phases the measurement cannot see."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._arrays import floats
from calibration._session import Array
from optinc_hw.errors import MatrixError

ComplexArray = NDArray[np.complex128]
Gauge = Literal["ports", "inputs", "outputs", "global", "none"]
"""Which phases of a matrix are free: at every input and output, at one side only, one for all, or none."""
MatrixVerdict = Literal["good", "partial", "poor"]

GAUGE_TEXT: dict[Gauge, str] = {
    "ports": "a phase at every output and every input",
    "inputs": "a phase at every input",
    "outputs": "a phase at every output",
    "global": "one phase common to all elements",
    "none": "nothing",
}
"""What each gauge leaves free, in words."""

MAX_ELEMENT_SIGMA = 0.03
"""Largest standard deviation of an element, relative to the rms element, with which a matrix is good."""
MAX_CHI = 2.0
"""Largest rms residual over noise with which a matrix explains its readings."""
UNKNOWN_PHASE_RMS = float(np.pi / np.sqrt(3.0))
"""Rms in rad of a phase of which nothing is known."""


@dataclass(frozen=True)
class TransferMatrix:
    """A transfer matrix ``b = S a`` with its uncertainty.

    Parameters
    ----------
    matrix
        (m, n) complex; rows are outputs, columns inputs. Its free phases are set as ``gauge`` says.
    sigma
        Standard deviations (m, n, 2) in the unit of the matrix, along each element (of its modulus) and across it
        (of its phase times its modulus), after the free phases have been matched.
    gauge
        Which phases the measurement leaves free; compare in this gauge.
    method
        How it was measured.
    chi
        Rms residual over noise of the readings that made it; NaN where none are left over to judge by.
    verdict
        "good": the matrix explains its readings (chi at most `MAX_CHI`) and every element is known to
        `MAX_ELEMENT_SIGMA` of the rms element; "partial": it explains them, but some elements are known less well;
        "poor": it does not explain its readings, or is not the only matrix that does.
    reason
        Why it is not good, or an empty string.
    """

    matrix: ComplexArray
    sigma: Array
    gauge: Gauge
    method: str
    chi: float
    verdict: MatrixVerdict
    reason: str

    @property
    def free(self) -> str:
        """What the measurement leaves free, in words."""
        return GAUGE_TEXT[self.gauge]


def total_variation(p: ArrayLike, q: ArrayLike) -> Array:
    """Total variation distance of distributions, ``sum |p - q| / 2`` after each was normalised.

    Parameters
    ----------
    p, q
        Powers or probabilities (..., m), finite, none negative.

    Returns
    -------
    NDArray
        (...) between 0 (equal) and 1; two dark distributions are equal, a dark and a bright one are 1 apart.

    Raises
    ------
    MatrixError
        If they are no real numbers, the shapes differ, there are none, or a value is negative, masked or not finite.
    """
    first, second = floats("p", p, MatrixError), floats("q", q, MatrixError)
    if first.shape != second.shape or first.ndim == 0 or first.shape[-1] == 0:
        raise MatrixError(f"distributions must have one shape (..., m), got {first.shape} and {second.shape}")
    for values in (first, second):
        if not (values >= 0.0).all() or not np.isfinite(values).all():
            raise MatrixError("distributions must be finite and not negative; subtract dark readings and clip at zero")
    first, second = (_normalised(values) for values in (first, second))
    distance = 0.5 * np.abs(first - second).sum(axis=-1)
    dark = (first.sum(axis=-1) == 0.0) != (second.sum(axis=-1) == 0.0)
    return np.asarray(np.where(dark, 1.0, np.minimum(distance, 1.0)))


def _normalised(values: Array) -> Array:
    largest = values.max(axis=-1, keepdims=True, initial=0.0)
    scaled = np.divide(values, largest, out=np.zeros_like(values), where=largest > 0.0)
    total = scaled.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(scaled, total, out=np.zeros_like(values), where=total > 0.0))


def rms_element(matrix: ComplexArray) -> float:
    """Root mean square modulus of a matrix's elements."""
    return float(np.sqrt(np.mean(np.abs(matrix) ** 2)))


def judge(
    matrix: ComplexArray, sigma: Array, gauge: Gauge, method: str, chi: float, objection: str = ""
) -> TransferMatrix:
    """Give a matrix its verdict.

    Parameters
    ----------
    matrix, sigma, gauge, method, chi
        As in `TransferMatrix`.
    objection
        A reason for which the matrix is poor whatever its numbers say.
    """
    reasons = [objection] if objection else []
    if chi > MAX_CHI:
        reasons.append(f"readings deviate from the best matrix by {chi:.3g} times their noise ({MAX_CHI:g} allowed)")
    verdict: MatrixVerdict = "poor" if reasons else "good"
    limit = MAX_ELEMENT_SIGMA * rms_element(matrix)
    vague = np.argwhere(~(sigma.max(axis=-1) <= limit))
    if len(vague):
        verdict = "poor" if reasons else "partial"
        across = sigma[..., 1] > limit
        kind = "phases" if across[tuple(vague.T)].all() else "values"
        reasons.append(f"{kind} of {_listed(vague)} are known worse than {MAX_ELEMENT_SIGMA:.0%} of the rms element")
    return TransferMatrix(matrix, sigma, gauge, method, chi, verdict, "; ".join(reasons))


def _listed(elements: NDArray[np.intp], most: int = 6) -> str:
    """Name elements as (output, input)."""
    names = ", ".join(f"({row}, {column})" for row, column in elements[:most])
    rest = len(elements) - most
    return f"elements {names}" + (f" and {rest} more" if rest > 0 else "")
