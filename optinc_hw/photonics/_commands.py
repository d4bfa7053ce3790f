"""Phases to command when the heat of every phase shifter reaches the others."""

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgWarning, lu_factor, lu_solve

from optinc_hw.errors import LimitError, MatrixError

_ROUNDS = 50
"""How often periods are added before giving up."""
_ROUNDING = 1e-12
"""Rounding errors below 0 in rad, taken as 0."""
_SINGULAR = 1e-12
"""Ratio of the smallest to the largest pivot below which a matrix has no inverse."""


def check_crosstalk(crosstalk: ArrayLike, size: int) -> NDArray[np.float64]:
    """Return the crosstalk as an array ``(size, size)``.

    Raises
    ------
    MatrixError
        If the shape is another, an entry is not finite, the diagonal is not 1, or the matrix has no inverse.
    """
    try:
        matrix = np.asarray(crosstalk, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MatrixError(f"crosstalk must be a matrix of real numbers: {error}") from error
    if matrix.shape != (size, size):
        raise MatrixError(
            f"crosstalk has shape {matrix.shape}; the mesh needs {(size, size)}, for all theta, all phi and the ports"
        )
    if not np.isfinite(matrix).all():
        raise MatrixError("crosstalk holds NaN or Inf; every entry must be finite")
    if not np.allclose(np.diagonal(matrix), 1.0, rtol=0.0, atol=1e-9):
        raise MatrixError("the diagonal of crosstalk must be 1: each phase shifter turns its own phase")
    return matrix


def commands(
    wanted: NDArray[np.float64], crosstalk: NDArray[np.float64], driven: NDArray[np.bool_], period: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Phases to command so that ``crosstalk @ commands`` is ``wanted`` modulo ``period``, all at least 0.

    Where the inverse gives less than 0, periods are added to the wanted phase.

    Parameters
    ----------
    wanted
        Phases ``(P,)`` in rad.
    crosstalk
        ``(P, P)``; row is the phase that turns, column the phase shifter that is driven.
    driven
        Phase shifters ``(P,)`` that can be driven; the others get 0 and their phases are not cared for.
    period
        Period ``(P,)`` of each phase in rad.

    Returns
    -------
    NDArray
        ``(P,)`` in rad.

    Raises
    ------
    MatrixError
        If the crosstalk between the driven phase shifters has no inverse.
    LimitError
        If no periods keep all commands at or above 0.
    """
    result = np.zeros_like(wanted)
    if not driven.any():
        return result
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # judged by the pivots below
        factors = lu_factor(crosstalk[np.ix_(driven, driven)])
    pivots = np.abs(np.diagonal(factors[0]))
    if pivots.min() < _SINGULAR * pivots.max():
        raise MatrixError(
            "crosstalk has no inverse: some combination of phase shifters turns no phase; measure it anew"
        )
    phases = wanted[driven].copy()
    for _ in range(_ROUNDS):
        found = lu_solve(factors, phases)
        if found.min() >= -_ROUNDING:
            result[driven] = np.maximum(found, 0.0)
            return result
        phases += period[driven] * np.ceil(np.maximum(-found - _ROUNDING, 0.0) / period[driven])
    worst = int(np.flatnonzero(driven)[int(np.argmin(found))])
    raise LimitError(
        f"with this crosstalk phase shifter {worst} would need {found.min():.3g} rad, below 0, after {_ROUNDS} "
        "rounds of adding periods; crosstalk this strong cannot be undone, so check the matrix"
    )
