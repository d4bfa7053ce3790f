"""Rectangular meshes: phases, imperfections and the matrix they make."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._mzi import IDEAL_ETA, mzi_matrix
from optinc_hw.photonics.layout import RectangularLayout


@dataclass(frozen=True)
class MeshPhases:
    """Phases of a mesh in rad.

    Parameters
    ----------
    layout
        The mesh that they belong to, with K MZIs on n modes.
    theta, phi
        Internal and external phases ``(K,)``, in the order of ``layout.mzis``.
    output
        Phases ``(n,)`` behind the last column.

    Raises
    ------
    MatrixError
        If a shape does not fit the layout or a phase is not finite.
    """

    layout: RectangularLayout
    theta: NDArray[np.float64]
    phi: NDArray[np.float64]
    output: NDArray[np.float64]

    def __post_init__(self) -> None:
        mzis = len(self.layout.mzis)
        for name, expected in (("theta", mzis), ("phi", mzis), ("output", self.layout.ports)):
            _check_vector(name, getattr(self, name), expected)


@dataclass(frozen=True)
class MeshImperfections:
    """Static imperfections of a mesh of K MZIs.

    Parameters
    ----------
    eta_in, eta_out
        Splitting angles ``(K,)`` in rad of each MZI's first and second coupler (ideal pi/4).
    transmission
        Field transmission ``(K,)`` of each MZI, common to both arms (ideal 1).
    """

    eta_in: NDArray[np.float64]
    eta_out: NDArray[np.float64]
    transmission: NDArray[np.float64]

    @classmethod
    def ideal(cls, layout: RectangularLayout) -> "MeshImperfections":
        """Return perfect couplers and no loss for ``layout``."""
        mzis = len(layout.mzis)
        return cls(np.full(mzis, IDEAL_ETA), np.full(mzis, IDEAL_ETA), np.ones(mzis))


def mesh_matrix(phases: MeshPhases, imperfections: MeshImperfections | None = None) -> NDArray[np.complex128]:
    """Transfer matrix of a mesh, ``b = S @ a``.

    Parameters
    ----------
    phases
        Phases of every MZI and output.
    imperfections
        Coupler angles and transmissions; None means ideal.

    Returns
    -------
    NDArray
        ``(n, n)`` complex128; unitary without loss.

    Raises
    ------
    MatrixError
        If the imperfections do not fit the layout.
    """
    layout = phases.layout
    flaws = MeshImperfections.ideal(layout) if imperfections is None else imperfections
    for name in ("eta_in", "eta_out", "transmission"):
        _check_vector(name, getattr(flaws, name), len(layout.mzis))
    cells = mzi_matrix(phases.theta, phases.phi, flaws.eta_in, flaws.eta_out) * flaws.transmission[:, None, None]
    state = np.eye(layout.ports, dtype=np.complex128)
    for column in layout.columns:
        if column:
            first = layout.mzis[column[0]][1]
            rows = slice(first, first + 2 * len(column))
            pairs = state[rows].reshape(len(column), 2, layout.ports)
            state[rows] = (cells[list(column)] @ pairs).reshape(-1, layout.ports)
    return np.asarray(np.exp(1j * phases.output)[:, None] * state, dtype=np.complex128)


def _check_vector(name: str, values: NDArray[np.float64], length: int) -> None:
    if np.shape(values) != (length,):
        raise MatrixError(f"{name} has shape {np.shape(values)}, the layout needs ({length},)")
    if not np.isfinite(values).all():
        raise MatrixError(f"{name} holds NaN or Inf; every value must be finite")
