"""The matrix that a mesh makes, and gradients of it, in numpy arrays."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._engine import Plan, plan, save_nothing
from optinc_hw.photonics._matrices import matrices
from optinc_hw.photonics._mesh import STANDARD, MeshImperfections, MeshPhases
from optinc_hw.photonics._mzi import IDEAL_ETA
from optinc_hw.photonics.placement import to_standard

_IDEAL_CELL = np.tile([math.cos(IDEAL_ETA), math.sin(IDEAL_ETA)], 3)
"""Cosine and sine apart: two equal square roots of 1/2 would make every MZI amplify by 1e-16."""


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
    standard, couplings, saves, batch = _prepared(phases, imperfections)
    made = matrices(phases.layout, *_flat(standard, batch), couplings, saves).matrix
    return made.reshape(*batch, phases.layout.ports, phases.layout.ports)


def mesh_vjp(
    phases: MeshPhases, imperfections: MeshImperfections | None, cotangent: NDArray[np.complex128]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Pull a gradient with respect to the matrix back to the phases.

    Parameters
    ----------
    phases
        In the standard placement, without phases at the inputs, one setting or a batch.
    imperfections
        As for `mesh_matrix`; phases of stuck MZIs have no gradient.
    cotangent
        ``dL/dRe(S) + i dL/dIm(S)`` (..., n, n), so that ``dL = Re sum conj(G) dS``.

    Returns
    -------
    tuple
        ``dL/dtheta`` and ``dL/dphi`` (..., K) and ``dL/doutput`` (..., n), in 1/rad.

    Raises
    ------
    MatrixError
        If the phases are not in the standard placement or a shape does not fit.
    """
    if phases.placement != STANDARD or phases.input is not None:
        raise MatrixError("gradients are for phases in the standard placement; use convert_phases first")
    layout = phases.layout
    standard, couplings, saves, batch = _prepared(phases, imperfections)
    if np.shape(cotangent) != (*batch, layout.ports, layout.ports):
        expected = (*batch, layout.ports, layout.ports)
        raise MatrixError(f"the cotangent has shape {np.shape(cotangent)}, the matrix has {expected}")
    given = np.asarray(cotangent, dtype=np.complex128).reshape(math.prod(batch), layout.ports, layout.ports)
    made = matrices(layout, *_flat(standard, batch), couplings, saves, "phases")
    theta, phi, output, _ = made.pull(given)
    mzis = len(layout.mzis)
    gradients = {"theta": theta.reshape(*batch, mzis), "phi": phi.reshape(*batch, mzis)}
    if imperfections is not None:
        for name, gradient in gradients.items():
            forced = getattr(imperfections, f"stuck_{name}")
            if forced is not None:
                gradients[name] = np.where(np.isnan(forced), gradient, 0.0)
    return gradients["theta"], gradients["phi"], output.reshape(*batch, layout.ports)


def stuck(phases: MeshPhases, imperfections: MeshImperfections) -> MeshPhases:
    """Replace the phases that stuck MZIs do not follow; the batch grows to that of the imperfections."""
    values = {}
    for name in ("theta", "phi"):
        forced = getattr(imperfections, f"stuck_{name}")
        if forced is not None:
            values[name] = np.where(np.isnan(forced), getattr(phases, name), forced)
    if not values:
        return phases
    batch = np.broadcast_shapes(*(value.shape[:-1] for value in values.values()), phases.batch)
    for name in ("theta", "phi", "output", "input"):
        value = values.get(name, getattr(phases, name))
        if value is not None:
            values[name] = np.broadcast_to(value, (*batch, value.shape[-1]))
    return replace(phases, **values)


def _prepared(
    phases: MeshPhases, imperfections: MeshImperfections | None
) -> tuple[MeshPhases, NDArray[np.float64], Plan, tuple[int, ...]]:
    """Phases in the standard placement, couplings as `matrices` takes them, what is saved, and the leading axes."""
    layout = phases.layout
    if imperfections is None:
        return to_standard(phases), _IDEAL_CELL[None, None], save_nothing(layout, lossless=True), phases.batch
    imperfections.check(layout)
    standard = to_standard(stuck(phases, imperfections))
    couplings = mesh_couplings(imperfections)
    batch = np.broadcast_shapes(standard.batch, couplings.shape[:-2])
    chips = batch if couplings.ndim > 2 else ()
    couplings = np.broadcast_to(couplings, (*chips, *couplings.shape[-2:]))
    couplings = couplings.reshape(math.prod(chips), *couplings.shape[-2:])
    return standard, couplings, plan(layout, couplings), batch


def mesh_couplings(imperfections: MeshImperfections) -> NDArray[np.float64]:
    """Six numbers (..., K, 6) an MZI, as ``_kernels`` has them."""
    arms = np.ones(2) if imperfections.arms is None else imperfections.arms
    through = np.asarray(imperfections.transmission, np.float64)[..., None] * arms
    cosine, sine = np.cos(imperfections.eta_out)[..., None], np.sin(imperfections.eta_out)[..., None]
    second = np.stack(np.broadcast_arrays(cosine * through, sine * through), axis=-1)
    if imperfections.behind is not None:  # entries of the upper row: cosine of the upper arm, sine of the lower one
        upper, lower = np.asarray(imperfections.behind)[..., 0], np.asarray(imperfections.behind)[..., 1]
        rows = np.stack([np.stack([upper, lower], axis=-1), np.stack([lower, upper], axis=-1)], axis=-2)
        second = second * rows
    first = np.stack([np.cos(imperfections.eta_in), np.sin(imperfections.eta_in)], axis=-1)
    batch = np.broadcast_shapes(first.shape[:-1], second.shape[:-2])
    first, second = np.broadcast_to(first, (*batch, 2)), np.broadcast_to(second, (*batch, 2, 2))
    return np.concatenate([first, second.reshape(*batch, 4)], axis=-1)


def _flat(
    phases: MeshPhases, batch: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Theta, phi and output phases with one leading axis."""
    parts = (np.asarray(values, np.float64) for values in (phases.theta, phases.phi, phases.output))
    if not batch:
        theta, phi, output = (part[None] for part in parts)
    else:
        rows = math.prod(batch)
        theta, phi, output = (
            np.broadcast_to(part, (*batch, part.shape[-1])).reshape(rows, part.shape[-1]) for part in parts
        )
    return theta, phi, output
