"""Rows of a layer that optics need to make only once."""

import numpy as np
from numpy.typing import NDArray

_PARALLEL = 1e-12


def distinct_rows(weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
    """Directions (r, in) among the rows of ``weight``, and for each row its direction and factor."""
    base: list[NDArray[np.float64]] = []
    place = np.zeros(len(weight), dtype=np.intp)
    gain = np.zeros(len(weight))
    for i, row in enumerate(weight):
        if not row.any():
            continue  # gain 0 on any optical row
        length = float(np.linalg.norm(row))
        for k, other in enumerate(base):
            factor = float(row @ other) / float(other @ other)
            if np.linalg.norm(row - factor * other) <= _PARALLEL * length:
                place[i], gain[i] = k, factor
                break
        else:
            place[i], gain[i] = len(base), 1.0
            base.append(row)
    return np.array(base or [np.zeros(weight.shape[1])]), place, gain


def tree_couplers(weight: NDArray[np.float64]) -> int:
    """Count the couplers that wire a sparse matrix ``(out, in)`` as trees.

    A signal that k rows need is split k - 1 times, and a row of k entries is joined by k - 1 combiners; rows that are
    multiples of one another are made once.
    """
    used = distinct_rows(weight)[0] != 0.0
    return sum(max(int(count) - 1, 0) for axis in (0, 1) for count in used.sum(axis=axis))
