"""Speed of gradients through all phases of a mesh beside the plain loop, and the memory that they keep."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from _forward import LEAN_LOOP, LOOP, SINGLE_PRODUCT, Effort, complex_normal, haar_settings
from _harness import PRODUCT, PROJECT, SINGLE, Comparison, cpu_times
from _loop import loop_apply, plain_apply
from torch import Tensor

from optinc_hw.photonics import MeshModel, RectangularLayout

_VECTORS = 256
_SETTINGS = 256

Phases = tuple[Tensor, Tensor, Tensor]  # theta, phi, output
Apply = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def vector_gradients(sizes: Sequence[int], effort: Effort) -> Iterator[Comparison]:
    """Time forward and backward through all phases of one setting, for 256 vectors."""
    goals = {64: {LOOP: 28.0}, 128: {LOOP: 35.0}}
    for n in sizes:
        phases, fields = haar_settings(n, 1)[0], complex_normal(n, _VECTORS)
        yield _compare(f"forward + backward, {_VECTORS} vectors", n, phases, fields, goals.get(n, {}), effort)


def setting_gradients(sizes: Sequence[int], effort: Effort) -> Iterator[Comparison]:
    """Time forward and backward through 256 settings of the phases with one vector each."""
    goals = {12: {LOOP: 5.0}, 32: {LOOP: 14.0}}
    for n in sizes:
        theta, phi, output = (torch.stack(parts) for parts in zip(*haar_settings(n, _SETTINGS), strict=True))
        case = f"forward + backward, {_SETTINGS} settings of one vector"
        yield _compare(case, n, (theta, phi, output), complex_normal(_SETTINGS, n, 1), goals.get(n, {}), effort)


def _compare(case: str, n: int, phases: Phases, fields: Tensor, least: dict[str, float], effort: Effort) -> Comparison:
    layout = RectangularLayout(n)
    model, loop, target = MeshModel(layout), loop_apply(layout), fields.flip(-2)
    plain = plain_apply(layout)
    single = (tuple(part.float() for part in phases), fields.to(torch.complex64), target.to(torch.complex64))
    with torch.no_grad():
        matrix = model.matrix(*phases)
    contenders = {
        PROJECT: partial(gradients, model.apply, phases, fields, target),
        PRODUCT: partial(_products, matrix, fields, target),
        SINGLE: partial(gradients, model.apply, *single),
        SINGLE_PRODUCT: partial(_products, matrix.to(torch.complex64), *single[1:]),
        LOOP: partial(gradients, plain, phases, fields, target),
        f"{LOOP}, {SINGLE}": partial(gradients, plain, *single),
        LEAN_LOOP: partial(gradients, loop, phases, fields, target),
    }
    exact = gradients(loop, phases, fields, target)
    errors = {
        PROJECT: _relative_error(gradients(model.apply, phases, fields, target), exact),
        SINGLE: _relative_error(gradients(model.apply, *single), exact),
    }
    return Comparison(case, n, cpu_times(contenders, effort.seconds), errors, least=least)


def gradients(apply: Apply, phases: Phases, fields: Tensor, target: Tensor) -> Phases:
    """Return the gradients of the outputs' overlap with ``target`` (its real part) by all phases."""
    theta, phi, output = (part.detach().requires_grad_() for part in phases)
    outputs = apply(theta, phi, output, fields)
    overlap = torch.vdot(target.flatten(), outputs.flatten()).real
    return torch.autograd.grad(overlap, (theta, phi, output))


def _products(matrix: Tensor, fields: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The products that a gradient by a matrix takes: its outputs, and the cotangent with the inputs."""
    return matrix @ fields, target @ fields.mH


def _relative_error(found: Phases, exact: Phases) -> float:
    scale = max(float(part.abs().max()) for part in exact)
    return max(float((one - other).abs().max()) for one, other in zip(found, exact, strict=True)) / scale
