"""The mesh in torch operations alone: for accelerators, and an independent check of the kernels."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from optinc_hw.photonics._once import once
from optinc_hw.photonics.mesh_layout import MeshLayout

ALLOWANCE = 100.0
"""Largest factor by which undoing columns may multiply round-off before their inputs are saved instead."""


def cells(theta: Tensor, phi: Tensor, couplings: Tensor) -> Tensor:
    """Matrices (..., K, 2, 2) of MZIs.

    Parameters
    ----------
    theta, phi
        Phases (..., K) in rad.
    couplings
        (..., K, 6): cosine and sine of the first coupler, of the second one times the upper arm's and times the lower
        arm's transmission.
    """
    ci, si, gu, hu, gl, hl = couplings.unbind(-1)
    inner, outer = torch.polar(torch.ones_like(theta), theta), torch.polar(torch.ones_like(phi), phi)
    parts = (
        outer * (gu * ci * inner - hl * si), 1j * (gu * si * inner + hl * ci),
        1j * outer * (hu * ci * inner + gl * si), gl * ci - hu * si * inner,
    )  # fmt: skip
    batch = np.broadcast_shapes(*(part.shape for part in parts))
    return torch.stack([part.expand(batch) for part in parts], dim=-1).reshape(*batch, 2, 2)


def transfer(layout: MeshLayout, cell: Tensor) -> Tensor:
    """Multiply MZIs (..., K, 2, 2) to matrices (..., n, n), columns in pairs: log2(depth) batched products."""
    n, batch = layout.ports, cell.shape[:-3]
    factors = []
    identity = torch.eye(n, dtype=cell.dtype, device=cell.device).expand(*batch, n, n)
    for chosen, modes in _indices(layout, cell.device):
        dense = identity.clone()
        for i in range(2):
            for j in range(2):
                dense[..., modes + i, modes + j] = cell[..., chosen, i, j]
        factors.append(dense)
    while len(factors) > 1:
        pairs = [late @ early for early, late in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[2 * len(pairs) :]
    return factors[0] if factors else identity


def settings(layout: MeshLayout, cell: Tensor, fields: Tensor) -> Tensor:
    """Carry fields (B, n, w) through settings (B, K, 2, 2), in memory that does not grow with the depth."""
    fields = fields.expand(len(cell), *fields.shape[1:])
    return _Columns.apply(cell, fields, layout)  # type: ignore[no-untyped-call,no-any-return]


class _Columns(torch.autograd.Function):
    """Columns one after the other; backward undoes them, or takes inputs saved where it cannot."""

    @staticmethod
    def forward(ctx: Any, cell: Tensor, fields: Tensor, layout: MeshLayout) -> Tensor:
        columns = _indices(layout, cell.device)
        survives = _weakest(cell)
        weakest = [float(survives[chosen.cpu()].min()) for chosen, _ in columns]
        keep, growth = [False] * len(columns), 1.0
        for k in range(len(columns) - 1, -1, -1):
            keep[k] = growth > ALLOWANCE * weakest[k]
            growth = 1.0 if keep[k] else growth / weakest[k]
        state, saved = fields.clone(), []
        for (chosen, modes), kept in zip(columns, keep, strict=True):
            if kept:
                saved.append(state.clone())
            _mix(cell[:, chosen], modes, state)
        ctx.columns, ctx.keep = columns, keep
        ctx.save_for_backward(cell, fields if ctx.needs_input_grad[1] else None, state, *saved)
        return state.clone()

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        cell, _, state, *saved = ctx.saved_tensors
        state, grad = state.clone(), grad.clone()
        d_cell = torch.zeros_like(cell)
        for (chosen, modes), kept in zip(reversed(ctx.columns), reversed(ctx.keep), strict=True):
            these = cell[:, chosen]
            if kept:
                state = saved.pop().clone()
            else:
                _mix(torch.linalg.inv(these), modes, state)
            before = torch.stack([state[:, modes], state[:, modes + 1]], dim=2)
            after = torch.stack([grad[:, modes], grad[:, modes + 1]], dim=2)
            d_cell[:, chosen] = after @ before.mH
            _mix(these.mH, modes, grad)
        return d_cell, grad, None


def _indices(layout: MeshLayout, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """List indices and upper modes of the MZIs of each column that has any."""
    return [
        (torch.as_tensor(column, device=device), torch.as_tensor(layout.modes[list(column)], device=device))
        for column in layout.columns
        if column
    ]


def _mix(these: Tensor, modes: Tensor, state: Tensor) -> None:
    """Apply 2x2 matrices (B, k, 2, 2) to the fields (B, n, w) at ``modes`` and below, in place."""
    pairs = these @ torch.stack([state[:, modes], state[:, modes + 1]], dim=2)
    state[:, modes], state[:, modes + 1] = pairs[:, :, 0], pairs[:, :, 1]


def _weakest(cell: Tensor) -> Tensor:
    """Smallest singular value (K,) that each of the MZIs (B, K, 2, 2) has in any setting, on the CPU."""
    norm = cell.abs().square().sum((-2, -1))
    determinant = (cell[..., 0, 0] * cell[..., 1, 1] - cell[..., 0, 1] * cell[..., 1, 0]).abs()
    gap = (norm.square() - 4.0 * determinant.square()).clamp(min=0.0).sqrt()
    weakest = ((norm - gap).clamp(min=0.0) / 2.0).sqrt()
    return (weakest.amin(0) if len(weakest) else weakest.new_ones(weakest.shape[1:])).cpu()
