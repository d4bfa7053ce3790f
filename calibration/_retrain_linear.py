"""How a chip's products change with its phases and couplers, by the twin: the backward pass of retraining."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration._session import Array
from optinc_hw.photonics import ChipElements, ChipModel, TwinParameters

Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class ProductSlopes:
    """Products of one setting of the static heaters, and their derivatives, by a twin.

    Parameters
    ----------
    values
        Products (batch, r).
    by_phase
        Derivatives (batch, r, H) by the phases of all heaters.
    by_coupler
        Derivatives (batch, r, 2K) by the splitting angles of the mesh.
    by_input_coupler
        Derivatives (batch, r, 2n) by the splitting angles of the generator.
    """

    values: Array
    by_phase: Array
    by_coupler: Array
    by_input_coupler: Array


def product_values(twin: TwinParameters, power_w: Array, scale: Array) -> Array:
    """Products (batch, r) at powers (batch, H) in W that differ in the generator alone; see `product_slopes`."""
    model, phases = ChipModel.from_parameters(twin), torch.as_tensor(twin.phases(power_w))
    with torch.no_grad():
        matrix = model.transfer_matrix(phases[:1])[0, : len(scale)]
        return np.asarray((model.inputs(phases) @ matrix.T).imag.numpy() / scale)


def product_slopes(twin: TwinParameters, power_w: Array, scale: Array) -> ProductSlopes:
    """Products that receivers read, and how they change.

    Parameters
    ----------
    twin
        The chip.
    power_w
        Powers (batch, H) in W that differ in the generator alone.
    scale
        Field (r,) in sqrt(W) of a product of 1 at each output.
    """
    phases, elements = twin.phases(power_w), ChipElements.from_parameters(twin)
    matrix, by_phase, by_coupler = _matrix_slopes(twin, elements, phases[0], len(scale))
    fields, by_input, by_input_coupler = _field_slopes(twin, elements, phases)
    moved = np.einsum("bi,jif->bjf", fields, by_phase, optimize=True)
    moved[..., : 2 * twin.ports] += (matrix[None, :, :, None] * by_input[:, None]).reshape(*moved.shape[:2], -1)
    return ProductSlopes(
        (fields @ matrix.T).imag / scale,
        moved.imag / scale[:, None],
        np.einsum("bi,jif->bjf", fields, by_coupler, optimize=True).imag / scale[:, None],
        (matrix[None, :, :, None] * by_input_coupler[:, None]).reshape(*moved.shape[:2], -1).imag / scale[:, None],
    )


def _matrix_slopes(
    twin: TwinParameters, elements: ChipElements, phases: Array, rows: int
) -> tuple[Complex, Complex, Complex]:
    """Transfer matrix (rows, n), and its derivatives by phases (rows, n, H) and couplers (rows, n, 2K)."""
    entries = rows * twin.ports
    copies = torch.as_tensor(phases).repeat(entries, 1).requires_grad_()
    couplers = elements.mesh_eta.repeat(entries, 1, 1).requires_grad_()
    values = {name: getattr(elements, name) for name in ChipElements.__dataclass_fields__}
    model = ChipModel(twin.layout, ChipElements(**{**values, "mesh_eta": couplers}))
    found = torch.diagonal(model.transfer_matrix(copies)[:, :rows].reshape(entries, entries))
    by_phase, by_coupler = _slopes(found, (copies, couplers))
    matrix = found.detach().numpy().reshape(rows, twin.ports)
    return matrix, by_phase.reshape(rows, twin.ports, -1), by_coupler.reshape(rows, twin.ports, -1)


def _field_slopes(twin: TwinParameters, elements: ChipElements, phases: Array) -> tuple[Complex, Complex, Complex]:
    """Fields (batch, n) of the generator, and derivatives (batch, n, 2) by their own phases and couplers."""
    layout, batch = twin.layout, len(phases)
    copies = torch.as_tensor(phases).requires_grad_()
    couplers = elements.input_eta.expand(batch, -1, -1).clone().requires_grad_()
    values = {name: getattr(elements, name) for name in ChipElements.__dataclass_fields__}
    fields = ChipModel(layout, ChipElements(**{**values, "input_eta": couplers})).inputs(copies)
    by_phase, by_coupler = _slopes(fields, (copies, couplers))
    own = np.stack([by_phase[:, layout.input_theta], by_phase[:, layout.input_phi]], axis=-1)
    return fields.detach().numpy(), own, by_coupler


def _slopes(values: Tensor, leaves: tuple[Tensor, ...]) -> list[Complex]:
    """Return derivatives of complex values, each of which depends on its own copy of the leaves."""
    real = torch.autograd.grad(values.real.sum(), leaves, retain_graph=True)
    imaginary = torch.autograd.grad(values.imag.sum(), leaves)
    return [a.numpy() + 1j * b.numpy() for a, b in zip(real, imaginary, strict=True)]
