"""The Jacobian of a bare mesh's powers as an operator, in double or single precision.

Products in single precision are right to six digits at half the cost: enough to solve for a step, not to say where
steps end.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibration import _mesh_kernels as kernels
from calibration._mesh_space import MeshSpace, Values
from calibration._session import Array

_Float = TypeVar("_Float", bound=np.floating[Any])  # Any: of either precision


class Lanes:
    """Readings sorted by lit port and dealt to groups of lanes; lanes left over are dark."""

    def __init__(self, lit: NDArray[np.intp]) -> None:
        count, width = len(lit), kernels.LANES
        self._order = np.argsort(lit, kind="stable")
        self._place = np.empty(count, dtype=np.intp)
        self._place[self._order] = np.arange(count)
        self._groups = -(-count // width)
        padded = np.full(self._groups * width, -1, dtype=np.int64)
        padded[:count] = lit[self._order]
        self.lit = padded.reshape(-1, width)

    @property
    def rows(self) -> NDArray[np.intp]:
        """Lane (B,) of each reading."""
        return self._place

    def spread(self, values: NDArray[_Float]) -> NDArray[_Float]:
        """Sort rows (B, ...) into lanes (G LANES, ...)."""
        spread = np.zeros((self.lit.size, *values.shape[1:]), dtype=values.dtype)
        spread[: len(values)] = values[self._order]
        return spread

    def gather(self, values: NDArray[_Float]) -> NDArray[_Float]:
        """Return columns (..., G LANES) as rows (B, ...) in the order of the readings."""
        return np.asarray(values.T[self._place])

    def group(self, values: NDArray[_Float]) -> NDArray[_Float]:
        """Sort rows (B, n) into groups (G, n, LANES)."""
        grouped = self.spread(values).reshape(self._groups, kernels.LANES, -1)
        return np.ascontiguousarray(grouped.transpose(0, 2, 1))

    def ungroup(self, values: NDArray[_Float]) -> NDArray[_Float]:
        """Return groups (G, ..., LANES) as rows (B, ...) in the order of the readings."""
        rows = np.moveaxis(values, -1, 1).reshape(self.lit.size, *values.shape[1:-1])
        return np.asarray(rows[self._place])

    def record(self, inner: NDArray[np.complex128], outer: NDArray[np.complex128]) -> Array:
        """Return the records (G, K, RECORD LANES) of phase factors (K, G LANES), fields still empty."""
        record = np.zeros((self._groups, len(inner), kernels.RECORD, kernels.LANES))
        for row, values in enumerate((inner.real, inner.imag, outer.real, outer.imag)):
            record[:, :, row] = values.reshape(len(inner), self._groups, kernels.LANES).transpose(1, 0, 2)
        return record.reshape(self._groups, len(inner), -1)


@dataclass(frozen=True)
class MeshJacobian:
    """Products with the Jacobian at one point.

    Parameters
    ----------
    space, lanes, lit
        The flat vector; where readings are; lit ports (B,).
    couplers, loss, record, reach, out
        As `_mesh_kernels.propagate` took and left them.
    scale
        Power (G, n, LANES) in W of a reading per square of its field.
    predicted
        Powers (B, n) in W.
    drive
        Own phases (H, G LANES) in rad of the heaters less those at the reference powers.
    crosstalk
        (H, H).
    own_square, neighbour_square
        Squares of the own phases, and products with the neighbours' ones, less those at the reference powers
        (H, G LANES); None where there is and may be no second-order heat.
    curvature
        Second-order heat (H,) per own square, 1/rad.
    """

    space: MeshSpace
    lanes: Lanes
    lit: NDArray[np.intp]
    couplers: Values
    loss: Values
    record: Values
    reach: NDArray[np.bool_]
    out: Values
    scale: Values
    predicted: Values
    drive: Values
    crosstalk: Values
    own_square: Values | None
    neighbour_square: Values | None
    curvature: Values

    def in_single(self) -> "MeshJacobian":
        """Return the Jacobian in single precision."""
        values: dict[str, Any] = {}  # Any: of each field
        for field in fields(self):
            value = getattr(self, field.name)
            double = isinstance(value, np.ndarray) and value.dtype == np.float64
            values[field.name] = value.astype(np.float32) if double else value
        return MeshJacobian(**values)

    @property
    def _type(self) -> type[np.floating[Any]]:
        return self.record.dtype.type

    def _elements(self) -> tuple[Any, ...]:  # Any: arrays of several types
        layout = self.space.start.layout
        return layout.mesh.modes, layout.mesh_theta, layout.mesh_phi, self.couplers, self.loss, self.record, self.reach

    def apply(self, vector: Array) -> Array:
        """Multiply by the Jacobian: changes (B, n) of the powers in W."""
        piece = {name: vector[place].astype(self._type) for name, place in self.space.slices.items()}
        efficiency = piece["efficiency"] + piece["common_efficiency"]
        phases = (self.space.crosstalk_change(vector, self._type) + self.crosstalk * efficiency) @ self.drive
        phases += piece["offset"][:, None]
        if self.own_square is not None and self.neighbour_square is not None:
            bend = 2.0 * self.curvature * efficiency + piece["second_order"][0] + piece["curvature"]
            kernels.add_bends(phases, self.own_square, bend, self.neighbour_square, piece["second_order"][1])
        change = np.empty_like(self.out)
        kernels.push(
            *self._elements(),
            phases,
            piece["arm_loss"].reshape(-1, 2),
            piece["common_eta"] + piece["eta"].reshape(-1, 2),
            piece["common_loss"] + piece["loss"],
            change,
        )
        width = kernels.LANES
        moved = self.out[..., :width] * change[..., :width] + self.out[..., width:] * change[..., width:]
        light = self.lanes.ungroup(self.scale * moved)
        return np.asarray(2.0 * (light + self.predicted * (piece["output"] + piece["input"][self.lit, None])))

    def _covectors(self, weights: Array) -> Values:
        """Covectors (G, n, 2 LANES) of the output fields for weights (B, n) of the powers."""
        factor = 2.0 * self.scale * self.lanes.group(weights.astype(self._type))
        width = kernels.LANES
        return np.concatenate([factor * self.out[..., :width], -factor * self.out[..., width:]], axis=-1)

    def apply_transposed(self, weights: Array) -> Array:
        """Multiply weights (B, n) of the powers by the transposed Jacobian."""
        by_phase = np.empty(self.drive.shape, dtype=self._type)
        by_element = np.empty((len(self.loss), 5), dtype=self._type)
        kernels.pull(*self._elements(), self._covectors(weights), by_phase, by_element)
        by_matrix = by_phase @ self.drive.T
        by_efficiency = np.sum(self.crosstalk * by_matrix, axis=0)
        gradient, place = np.empty(self.space.size), self.space.slices
        gradient[place["second_order"]] = gradient[place["curvature"]] = 0.0
        if self.own_square is not None and self.neighbour_square is not None:
            own = np.empty(len(by_phase))
            by_neighbours = kernels.sum_bends(by_phase, self.own_square, self.neighbour_square, own)
            by_efficiency = by_efficiency + 2.0 * self.curvature * own
            gradient[place["curvature"]] = own
            gradient[place["second_order"]] = own.sum(), by_neighbours
        gradient[place["offset"]] = by_phase.sum(axis=1)
        gradient[place["efficiency"]] = by_efficiency
        gradient[place["common_efficiency"]] = by_efficiency.sum()
        gradient[place["arm_loss"]] = by_element[:, :2].ravel()
        gradient[place["eta"]] = by_element[:, 2:4].ravel()
        gradient[place["common_eta"]] = by_element[:, 2:4].sum()
        gradient[place["loss"]] = by_element[:, 4]
        gradient[place["common_loss"]] = by_element[:, 4].sum()
        light = 2.0 * weights * self.predicted
        gradient[place["output"]] = light.sum(axis=0)
        gradient[place["input"]] = np.bincount(self.lit, light.sum(axis=1), minlength=self.space.start.ports)
        self.space.crosstalk_gradient(by_matrix, gradient)
        return gradient

    def sketch(self, weights: Array, first: NDArray[np.intp], into: Values) -> None:
        """Multiply weights (B, n) of the powers, each reading for itself, by the transposed Jacobian of its elements.

        Parameters
        ----------
        weights
            (B, n).
        first
            First columns of couplers, losses of MZIs and of arms; phases come first.
        into
            Receives rows (G LANES, ...), in the order of the lanes.
        """
        kernels.sketch(*self._elements(), self._covectors(weights), first, into)
