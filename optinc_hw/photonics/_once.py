"""Backward passes that cannot be differentiated again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]


def once(backward: Backward) -> Backward:
    """Make second derivatives through a ``backward`` an error, with respect to all that its forward pass saved.

    With torch's own `once_differentiable` the gradient of a linear loss counts as constant, and a Hessian is zero.
    """

    def guarded(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # torch's context
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return found
        origins = [value for value in (*ctx.saved_tensors, *grads) if value is not None and value.requires_grad]
        values = [value for value in found if value is not None]
        marked = iter(_Final.apply(len(values), *values, *origins))  # type: ignore[no-untyped-call]
        return tuple(None if value is None else next(marked) for value in found)

    return guarded


class _Final(torch.autograd.Function):
    """Values that depend on their origins in a way that torch cannot differentiate."""

    @staticmethod
    def forward(_ctx: Any, count: int, *values: Tensor) -> tuple[Tensor, ...]:
        return tuple(value.view_as(value) for value in values[:count])

    @staticmethod
    def backward(_ctx: Any, *_grads: Tensor) -> None:
        raise RuntimeError(
            "this gradient of a mesh cannot be differentiated again; for second derivatives use the matrix of "
            "MeshModel(..., backend='torch')"
        )
