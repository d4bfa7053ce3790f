"""Arrays around the compiled kernels: trigonometry, scratch space and what a backward pass needs.

Kernels are imported on first use: ``import optinc_hw`` stays light.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.mesh_layout import MeshLayout

Array = NDArray[Any]  # float32 or float64

COMPLEX: dict[Any, Any] = {
    np.dtype(np.float32): np.dtype(np.complex64),
    np.dtype(np.float64): np.dtype(np.complex128),
}
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
    lossless
        Whether no MZI loses light, to rounding.
    """

    slots: NDArray[np.int64]
    count: int
    lossless: bool


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


def unit(angle: Array) -> tuple[Array, Array]:
    """Cosines and sines of angles in rad."""
    from optinc_hw.photonics import _kernels

    values = np.ascontiguousarray(angle)
    cosine, sine = np.empty_like(values), np.empty_like(values)
    _kernels.unit(values.ravel(), cosine.ravel(), sine.ravel())
    return cosine, sine


def plan(layout: MeshLayout, couplings: Array) -> Plan:
    """Choose which MZIs save their inputs; of couplings (..., K, 6) the weakest arm of any setting counts."""
    square = np.square(couplings[..., 2:]).reshape(math.prod(couplings.shape[:-2]), len(layout.mzis), 4)
    arms = square[..., 0::2] + square[..., 1::2]
    lossless = bool(np.abs(arms - 1.0).max(initial=0.0) <= 2.0 * np.finfo(couplings.dtype).eps)
    upper, lower = np.sqrt(arms.min(axis=0, initial=1.0)).T
    weakest = min(upper.min(initial=1.0), lower.min(initial=1.0))
    if weakest**layout.depth * ALLOWANCE > 1.0:
        return save_nothing(layout, lossless=lossless)
    from optinc_hw.photonics import _kernels

    slots, count = _kernels.plan_saves(layout.modes, upper, lower, layout.ports, ALLOWANCE)
    return Plan(slots, int(count), lossless)


def save_nothing(layout: MeshLayout, *, lossless: bool) -> Plan:
    """Return the plan of a mesh without much loss."""
    return Plan(np.full(len(layout.mzis), -1, np.int64), 0, lossless)


def settings(
    layout: MeshLayout, theta: Array, phi: Array, couplings: Array, fields: Array, plan: Plan, *, undo: bool
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
    plan
        Which MZIs save their inputs.
    undo
        Whether `settings_vjp` will follow.

    Returns
    -------
    tuple
        Fields behind the mesh (B, n, w), complex, and the sweep.
    """
    from optinc_hw.photonics import _settings_kernels

    trig, dtype = (*unit(theta), *unit(phi)), couplings.dtype
    if not undo:
        plan = save_nothing(layout, lossless=plan.lossless)
    state = _rows(fields, dtype)
    saved = np.empty((len(state), plan.count, 2, 2, state.shape[-1]), dtype)
    _settings_kernels.settings(layout.modes, *trig, couplings, plan.slots, saved, state)
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
        From `settings` with ``undo``; it is not used up.
    cotangent
        ``dL/dRe + i dL/dIm`` of the fields (B, n, w), complex.
    statics
        Whether gradients of the couplings are asked for.

    Returns
    -------
    tuple
        Gradients of theta and phi (K, B), of the couplings (K, 6, B) or None, and of the fields (B, n, w).
    """
    from optinc_hw.photonics import _settings_kernels

    dtype, shape = sweep.couplings.dtype, sweep.trig[0].shape
    state, pull = sweep.state.copy(), _rows(cotangent, dtype)
    d_theta, d_phi = np.zeros(shape, dtype), np.zeros(shape, dtype)
    d_couplings = np.zeros((shape[0], 6, shape[1]), dtype) if statics else None
    _settings_kernels.settings_vjp(
        layout.modes, *sweep.trig, sweep.couplings, sweep.slots, sweep.saved, state, pull, d_theta, d_phi, d_couplings
    )
    return d_theta, d_phi, d_couplings, _complex(pull)


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
    fields = np.empty((batch, ports, vectors), COMPLEX[rows.dtype])
    fields.real = rows[:, :, 0].transpose(2, 1, 0)
    fields.imag = rows[:, :, 1].transpose(2, 1, 0)
    return fields
