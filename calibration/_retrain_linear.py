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


class TwinProducts:
    """Products that receivers read, by a twin.

    Parameters
    ----------
    twin
        The chip.
    scale
        Field (r,) in sqrt(W) of a product of 1 at each output.
    """

    def __init__(self, twin: TwinParameters, scale: Array) -> None:
        self._twin, self._scale = twin, scale
        self._elements = ChipElements.from_parameters(twin)
        self._model = ChipModel(twin.layout, self._elements)

    def values(self, power_w: Array) -> Array:
        """Products (batch, r) at powers (batch, H) in W that differ in the generator alone."""
        phases = torch.as_tensor(self._twin.phases(power_w))
        with torch.no_grad():
            matrix = self._matrix(phases)
            return np.asarray((self._model.inputs(phases) @ matrix.T).imag.numpy() / self._scale)

    def by_phase(self, power_w: Array) -> Array:
        """Return derivatives (batch, r, H) by the phases of all heaters; powers as in `values`."""
        phases = torch.as_tensor(self._twin.phases(power_w))
        with torch.no_grad():
            matrix = self._matrix(phases).numpy()
        (by_phase,) = self._entry_slopes(phases[0], couplers=False)
        fields, (by_input,) = self._fields(phases, couplers=False)
        return self._moved(matrix, fields, by_phase, by_input)

    def slopes(self, power_w: Array) -> ProductSlopes:
        """Products and all their derivatives; powers as in `values`."""
        phases = torch.as_tensor(self._twin.phases(power_w))
        with torch.no_grad():
            matrix = self._matrix(phases).numpy()
        by_phase, by_coupler = self._entry_slopes(phases[0], couplers=True)
        fields, (by_input, by_input_coupler) = self._fields(phases, couplers=True)
        scale = self._scale[:, None]
        behind = (matrix[None, :, :, None] * by_input_coupler[:, None]).imag
        return ProductSlopes(
            (fields @ matrix.T).imag / self._scale,
            self._moved(matrix, fields, by_phase, by_input),
            _sent(fields, by_coupler) / scale,
            behind.reshape(len(fields), len(matrix), -1) / scale,
        )

    def _matrix(self, phases: Tensor) -> Tensor:
        """Transfer matrix (r, n) of the first setting."""
        return self._model.transfer_matrix(phases[:1])[0, : len(self._scale)]

    def _moved(self, matrix: Complex, fields: Complex, by_phase: Complex, by_input: Complex) -> Array:
        """Return derivatives (batch, r, H) from those of the matrix (r, n, H) and of the fields (batch, n, 2)."""
        moved = _sent(fields, by_phase)
        own = (matrix[None, :, :, None] * by_input[:, None]).imag
        layout = self._twin.layout
        moved[..., layout.input_theta] += own[..., 0]
        moved[..., layout.input_phi] += own[..., 1]
        return moved / self._scale[:, None]

    def _entry_slopes(self, phases: Tensor, *, couplers: bool) -> list[Complex]:
        """Return derivatives of the matrix (r, n) by phases (r, n, H) and, if asked for, by couplers (r, n, 2K).

        Every entry has its own copy of the chip, through which the light of one port goes.
        """
        rows, ports = len(self._scale), self._twin.ports
        row, port = (index.ravel() for index in np.indices((rows, ports)))
        copies = phases.repeat(2 * len(row), 1).requires_grad_()
        leaves, elements = [copies], self._elements
        if couplers:
            leaves.append(elements.mesh_eta.repeat(2 * len(row), 1, 1).requires_grad_())
            elements = _with(elements, mesh_eta=leaves[1])
        model = ChipModel(self._twin.layout, elements) if couplers else self._model
        lit = torch.eye(ports, dtype=torch.complex128)[np.tile(port, 2)].unsqueeze(-1)
        got = model.propagate(copies, lit)[np.arange(2 * len(row)), np.tile(row, 2), 0]
        return [part.reshape(rows, ports, -1) for part in _slopes(got, leaves)]

    def _fields(self, phases: Tensor, *, couplers: bool) -> tuple[Complex, list[Complex]]:
        """Fields (batch, n) of the generator, and derivatives (batch, n, 2) by own phases and, if wanted, couplers."""
        layout, batch = self._twin.layout, len(phases)
        copies = phases.repeat(2, 1).requires_grad_()
        leaves, elements = [copies], self._elements
        if couplers:
            leaves.append(elements.input_eta.repeat(2 * batch, 1, 1).requires_grad_())
            elements = _with(elements, input_eta=leaves[1])
        model = ChipModel(layout, elements) if couplers else self._model
        fields = model.inputs(copies)
        by_phase, *rest = _slopes(fields, leaves)
        own = np.stack([by_phase[:, layout.input_theta], by_phase[:, layout.input_phi]], axis=-1)
        return fields[:batch].detach().numpy(), [own, *rest]


def _with(elements: ChipElements, **changed: Tensor) -> ChipElements:
    values = {name: getattr(elements, name) for name in ChipElements.__dataclass_fields__}
    return ChipElements(**{**values, **changed})


def _sent(fields: Complex, slopes: Complex) -> Array:
    """Imaginary parts (batch, r, P) of what fields (batch, n) become by slopes (r, n, P) of the matrix."""
    rows, ports, count = slopes.shape
    flat = slopes.transpose(1, 0, 2).reshape(ports, -1)
    sent = fields.real @ flat.imag + fields.imag @ flat.real
    return sent.reshape(len(fields), rows, count)


def _slopes(values: Tensor, leaves: list[Tensor]) -> list[Complex]:
    """Return derivatives of complex values that come twice, each with its own copy of the leaves."""
    half = len(values) // 2
    found = torch.autograd.grad(values[:half].real.sum() + values[half:].imag.sum(), leaves)
    return [part[:half].numpy() + 1j * part[half:].numpy() for part in found]
