"""What torch differentiates of a mesh on the CPU: matrices, and fields of one setting or of many, by the kernels."""

import math
from typing import Any

import torch
from torch import Tensor

from optinc_hw.photonics import _engine
from optinc_hw.photonics._matrices import Gradients, LosslessPass, Pass, matrices
from optinc_hw.photonics._once import once
from optinc_hw.photonics._products import product, product_adjoint
from optinc_hw.photonics.mesh_layout import MeshLayout


def version(value: Tensor) -> int | None:
    """How often a tensor was changed in place; None if torch does not count."""
    return None if value.is_inference() else value._version  # noqa: SLF001 - torch has no other name for it


class Transfer(torch.autograd.Function):
    """Matrices (..., n, n) from phases (..., K) and (..., n) and couplings (K, 6) or (B, K, 6); at most one axis B."""

    @staticmethod
    def forward(
        ctx: Any,
        theta: Tensor,
        phi: Tensor,
        output: Tensor | None,
        couplings: Tensor,
        layout: MeshLayout,
        plan: _engine.Plan,
    ) -> Tensor:
        made, ctx.made = forward_matrix(theta, phi, output, couplings, layout, plan, _wanted(ctx))
        ctx.layout, ctx.shared = layout, couplings.ndim == 2
        ctx.save_for_backward(output, theta, phi, couplings, made)  # undoing starts from the matrix: torch watches it
        return made

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        output, n = ctx.saved_tensors[0], ctx.layout.ports
        parts = ctx.made.pull(_array(grad.reshape(math.prod(grad.shape[:-2]), n, n)))
        return (*_gradients(ctx, output, parts, grad.shape[:-2]), None, None)


class Fields(torch.autograd.Function):
    """Fields (n, w) behind one setting: the matrix is made, used and differentiated in one step."""

    @staticmethod
    def forward(
        ctx: Any,
        theta: Tensor,
        phi: Tensor,
        output: Tensor | None,
        couplings: Tensor,
        fields: Tensor,
        layout: MeshLayout,
        plan: _engine.Plan,
    ) -> Tensor:
        made, ctx.made = forward_matrix(theta, phi, output, couplings, layout, plan, _wanted(ctx))
        ctx.layout, ctx.shared = layout, True
        ctx.save_for_backward(output, fields, made, theta, phi, couplings)
        outputs = product(made, fields)
        if isinstance(ctx.made, LosslessPass):
            ctx.outputs, ctx.version = outputs.detach(), version(outputs)
        return outputs

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        output, fields, made = ctx.saved_tensors[:3]
        back = made.mH @ grad if ctx.needs_input_grad[4] else None
        if not any(ctx.needs_input_grad[:4]):
            return None, None, None, None, back, None, None
        if isinstance(ctx.made, LosslessPass):
            # The caller may have changed the outputs in place since.
            outputs = ctx.outputs if version(ctx.outputs) == ctx.version else product(made, fields)
            parts = ctx.made.pull_product(_array(product_adjoint(outputs, grad))[None])
        else:
            parts = ctx.made.pull(_array(product_adjoint(grad, fields))[None])
        return (*_gradients(ctx, output, parts, ()), back, None, None)


def _wanted(ctx: Any) -> Gradients:
    """Of theta, phi, output and couplings, the first four inputs."""
    if ctx.needs_input_grad[3]:
        return "all"
    return "phases" if any(ctx.needs_input_grad[:3]) else "none"


def _array(value: Tensor) -> _engine.Array:
    return value.detach().resolve_neg().resolve_conj().numpy()


def forward_matrix(
    theta: Tensor,
    phi: Tensor,
    output: Tensor | None,
    couplings: Tensor,
    layout: MeshLayout,
    plan: _engine.Plan,
    gradients: Gradients,
) -> tuple[Tensor, Pass]:
    """Make matrices as Transfer does, and return them with what their gradients come from."""
    batch, n = theta.shape[:-1], layout.ports
    rest = theta.new_zeros(*batch, n) if output is None else output
    if not batch:
        theta, phi, rest = theta[None], phi[None], rest[None]
    cells = couplings if couplings.ndim == 3 else couplings[None]
    made = matrices(layout, _array(theta), _array(phi), _array(rest), _array(cells), plan, gradients)
    return torch.from_numpy(made.matrix if batch else made.matrix[0]), made


def _gradients(
    ctx: Any, output: Tensor | None, parts: tuple[_engine.Array, ...], batch: tuple[int, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients (B, ...) by theta, phi, output and couplings as tensors with the leading axes of the matrices."""
    theta, phi, out = (torch.from_numpy(part if batch else part[0]) for part in parts[:3])
    couplings = None
    if ctx.needs_input_grad[3]:
        couplings = torch.from_numpy(parts[3].sum(0) if ctx.shared else parts[3])
    return theta, phi, None if output is None else out, couplings


class Settings(torch.autograd.Function):
    """Fields (B, n, w) behind the mesh from phases (K, B), couplings (K, 6) or (K, 6, B), and fields (B, n, w)."""

    @staticmethod
    def forward(
        ctx: Any,
        theta: Tensor,
        phi: Tensor,
        couplings: Tensor,
        fields: Tensor,
        layout: MeshLayout,
        plan: _engine.Plan,
    ) -> Tensor:
        cells, sent = _array(couplings.contiguous()), _array(fields)
        undo = any(ctx.needs_input_grad)
        got, ctx.sweep = _engine.settings(layout, _array(theta), _array(phi), cells, sent, plan, undo=undo)
        ctx.layout = layout
        ctx.save_for_backward(theta, phi, couplings, fields if ctx.needs_input_grad[3] else None)
        return torch.from_numpy(got)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        statics = ctx.needs_input_grad[2]
        theta, phi, couplings, fields = _engine.settings_vjp(ctx.layout, ctx.sweep, _array(grad), statics=statics)
        static = None
        if couplings is not None:
            static = torch.from_numpy(couplings.sum(axis=2) if ctx.sweep.couplings.ndim == 2 else couplings)
        return torch.from_numpy(theta), torch.from_numpy(phi), static, torch.from_numpy(fields), None, None
