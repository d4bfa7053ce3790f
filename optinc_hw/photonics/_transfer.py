"""The matrix that a mesh makes."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics._mesh import MeshImperfections, MeshPhases
from optinc_hw.photonics._mzi import mzi_matrix
from optinc_hw.photonics.placement import to_standard


def mesh_matrix(phases: MeshPhases, imperfections: MeshImperfections | None = None) -> NDArray[np.complex128]:
    """Transfer matrix of a mesh, ``b = S @ a``.

    Parameters
    ----------
    phases
        Phases of every MZI and port, one setting or a batch, in any placement.
    imperfections
        Coupler angles, losses and stuck MZIs of one chip or a batch; None means ideal.

    Returns
    -------
    NDArray
        ``(..., n, n)`` complex128; unitary without loss. The leading axes are those of the phases and the
        imperfections, broadcast.

    Raises
    ------
    MatrixError
        If the imperfections do not fit the layout.
    """
    layout = phases.layout
    flaws = MeshImperfections.ideal(layout) if imperfections is None else imperfections
    flaws.check(layout)
    standard = to_standard(stuck(phases, flaws))
    cells = mzi_matrix(standard.theta, standard.phi, flaws.eta_in, flaws.eta_out) * flaws.transmission[..., None, None]
    shape = (*cells.shape[:-3], layout.ports, layout.ports)
    state = np.broadcast_to(np.eye(layout.ports, dtype=np.complex128), shape).copy()
    for k, (_, mode) in enumerate(layout.mzis):
        state[..., mode : mode + 2, :] = cells[..., k, :, :] @ state[..., mode : mode + 2, :]
    return np.asarray(np.exp(1j * standard.output)[..., :, None] * state, dtype=np.complex128)


def stuck(phases: MeshPhases, imperfections: MeshImperfections) -> MeshPhases:
    """Replace the phases that stuck MZIs do not follow."""
    values = {}
    for name in ("theta", "phi"):
        forced = getattr(imperfections, f"stuck_{name}")
        if forced is not None:
            values[name] = np.where(np.isnan(forced), getattr(phases, name), forced)
    return replace(phases, **values) if values else phases
