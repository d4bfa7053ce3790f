"""Arrays around the compiled kernels: trigonometry, scratch space and what a backward pass needs.

Kernels are imported on first use: ``import optinc_hw`` stays light.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from optinc_hw.photonics.mesh_layout import MeshLayout

Array = NDArray[Any]  # float32 or float64

_COMPLEX: dict[Any, Any] = {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(np.float64): np.dtype(np.complex128)}
_LARGEST_ANGLE = 1e5  # rad; the kernel's reduction is exact below
ALLOWANCE = 100.0
"""Largest factor by which undoing MZIs may multiply round-off before inputs are saved instead."""


@dataclass(frozen=True)
class Plan:
    """Which MZIs save their inputs because they cannot be undone.

    Parameters
    ----------
    slots
        Place (K,) among the saved inputs, -1 where nothing is saved.
    count
        How many are saved.
    """

    slots: NDArray[np.int64]
    count: int


@dataclass(frozen=True)
class Sweep:
    """One forward pass, with what undoing it needs.

    Parameters
    ----------
    trig
        Cosines and sines of theta and phi.
    couplings
        Six numbers an MZI.
    slots, saved
        Which MZIs saved their inputs (see `Plan`), and the inputs.
    state
        Fields behind the last MZI.
    """

    trig: tuple[Array, Array, Array, Array]
    couplings: Array
    slots: NDArray[np.int64]
    saved: Array
    state: Array


def unit(angle: Tensor) -> tuple[Array, Array]:
    """Cosines and sines of angles in rad."""
    from optinc_hw.photonics import _kernels

    values = np.ascontiguousarray(angle.detach().resolve_neg().numpy())
    if not np.abs(values).max(initial=0.0) <= _LARGEST_ANGLE:  # also where one is NaN
        with np.errstate(invalid="ignore"):
            return np.cos(values), np.sin(values)
    cosine, sine = np.empty_like(values), np.empty_like(values)
    _kernels.sincos(values.ravel(), cosine.ravel(), sine.ravel())
    return cosine, sine


def plan(layout: MeshLayout, couplings: Array) -> Plan:
    """Choose which MZIs save their inputs; of couplings (..., K, 6) the weakest arm of any setting counts."""
    square = np.square(couplings[..., 2:]).reshape(math.prod(couplings.shape[:-2]), len(layout.mzis), 4)
    upper = np.sqrt((square[..., 0] + square[..., 1]).min(axis=0, initial=1.0))
    lower = np.sqrt((square[..., 2] + square[..., 3]).min(axis=0, initial=1.0))
    weakest = min(upper.min(initial=1.0), lower.min(initial=1.0))
    if weakest**layout.depth * ALLOWANCE > 1.0:
        return save_nothing(layout)
    from optinc_hw.photonics import _kernels

    slots, count = _kernels.plan_saves(layout.modes, upper, lower, layout.ports, ALLOWANCE)
    return Plan(slots, int(count))


def save_nothing(layout: MeshLayout) -> Plan:
    """Return the plan of a pass that will not be undone, or of a mesh without much loss."""
    return Plan(np.full(len(layout.mzis), -1, np.int64), 0)


def transfer(
    layout: MeshLayout, theta: Tensor, phi: Tensor, output: Tensor, couplings: Array, undo: Plan | None
) -> tuple[Array, Sweep]:
    """Matrices of B settings.

    Parameters
    ----------
    layout
        The mesh.
    theta, phi
        (B, K).
    output
        Phases behind the mesh (B, n).
    couplings
        (B or 1, K, 6).
    undo
        The plan with which `transfer_vjp` will follow, or None if it will not.

    Returns
    -------
    tuple
        Matrices (B, n, n), complex, and the sweep.
    """
    from optinc_hw.photonics import _kernels

    trig, ports, dtype = (*unit(theta), *unit(phi)), layout.ports, couplings.dtype
    batch, width = len(theta), _width(ports)
    plan = save_nothing(layout) if undo is None else undo
    saved = np.empty((batch, plan.count, 2, 2, width), dtype)
    states = np.empty((1 if undo is None else batch, ports, 2, width), dtype)
    matrix = np.empty((batch, ports, 2 * ports), dtype)
    _kernels.transfer(layout.table, *trig, couplings, *unit(output), plan.slots, saved, states, matrix)
    return matrix.view(_COMPLEX[dtype]), Sweep(trig, couplings, plan.slots, saved, states)


def transfer_vjp(
    layout: MeshLayout, output: Tensor, sweep: Sweep, cotangent: Array, *, statics: bool
) -> tuple[Array, Array, Array, Array]:
    """Pull gradients of matrices back.

    Parameters
    ----------
    layout
        The mesh.
    output
        Phases (B, n) of the forward pass.
    sweep
        From `transfer` with a plan.
    cotangent
        ``dL/dRe + i dL/dIm`` of the matrices (B, n, n), complex.
    statics
        Whether gradients of the couplings are asked for.

    Returns
    -------
    tuple
        Gradients of theta and phi (B, K), of the output phases (B, n) and of the couplings (B, K, 6), the last
        with no entries if not asked for.
    """
    from optinc_hw.photonics import _kernels

    batch, mzis = sweep.trig[0].shape
    dtype = sweep.couplings.dtype
    gradients = (
        np.empty((batch, mzis), dtype),
        np.empty((batch, mzis), dtype),
        np.empty((batch, layout.ports), dtype),
        np.empty((batch if statics else 0, mzis, 6), dtype),
    )
    _kernels.transfer_vjp(
        layout.table, *sweep.trig, sweep.couplings, *unit(output), sweep.slots, sweep.saved, sweep.state,
        np.ascontiguousarray(cotangent).view(dtype), *gradients,
    )  # fmt: skip
    return gradients


def settings(
    layout: MeshLayout, theta: Tensor, phi: Tensor, couplings: Array, fields: Array, undo: Plan | None
) -> tuple[Array, Sweep]:
    """Carry w vectors through each of B settings.

    Parameters
    ----------
    layout
        The mesh.
    theta, phi
        (K, B).
    couplings
        (K, 6) or (K, 6, B).
    fields
        (B, n, w) complex.
    undo
        The plan with which `settings_vjp` will follow, or None if it will not.

    Returns
    -------
    tuple
        Fields behind the mesh (B, n, w), complex, and the sweep.
    """
    from optinc_hw.photonics import _kernels

    trig, dtype = (*unit(theta), *unit(phi)), couplings.dtype
    plan = save_nothing(layout) if undo is None else undo
    state = _rows(fields, dtype)
    saved = np.empty((len(state), plan.count, 2, 2, state.shape[-1]), dtype)
    _kernels.settings(layout.modes, *trig, couplings, plan.slots, saved, state)
    return _complex(state), Sweep(trig, couplings, plan.slots, saved, state)


def settings_vjp(
    layout: MeshLayout, sweep: Sweep, cotangent: Array, *, statics: bool
) -> tuple[Array, Array, Array | None, Array]:
    """Pull gradients of fields back.

    Parameters
    ----------
    layout
        The mesh.
    sweep
        From `settings` with a plan; it is not used up.
    cotangent
        ``dL/dRe + i dL/dIm`` of the fields (B, n, w), complex.
    statics
        Whether gradients of the couplings are asked for.

    Returns
    -------
    tuple
        Gradients of theta and phi (K, B), of the couplings (K, 6, B) or None, and of the fields (B, n, w).
    """
    from optinc_hw.photonics import _kernels

    dtype, shape = sweep.couplings.dtype, sweep.trig[0].shape
    state, pull = sweep.state.copy(), _rows(cotangent, dtype)
    d_theta, d_phi = np.zeros(shape, dtype), np.zeros(shape, dtype)
    d_couplings = np.zeros((shape[0], 6, shape[1]), dtype) if statics else None
    _kernels.settings_vjp(
        layout.modes, *sweep.trig, sweep.couplings, sweep.slots, sweep.saved, state, pull, d_theta, d_phi, d_couplings
    )
    return d_theta, d_phi, d_couplings, _complex(pull)


def _width(ports: int) -> int:
    """Row length: whole vectors, but no multiple of 64, which would put all rows into the same cache lines."""
    width = -(-ports // 8) * 8
    return width + 8 if width % 64 == 0 else width


def _rows(fields: Array, dtype: Any) -> Array:  # numpy's dtype
    """Fields (B, n, w) as rows (w, n, 2, B)."""
    batch, ports, vectors = fields.shape
    rows = np.empty((vectors, ports, 2, batch), dtype)
    rows[:, :, 0] = fields.real.transpose(2, 1, 0)
    rows[:, :, 1] = fields.imag.transpose(2, 1, 0)
    return rows


def _complex(rows: Array) -> Array:
    """Rows (w, n, 2, B) as fields (B, n, w)."""
    vectors, ports, _, batch = rows.shape
    fields = np.empty((batch, ports, vectors), _COMPLEX[rows.dtype])
    fields.real = rows[:, :, 0].transpose(2, 1, 0)
    fields.imag = rows[:, :, 1].transpose(2, 1, 0)
    return fields
