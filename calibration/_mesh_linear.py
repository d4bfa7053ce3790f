"""Powers of a bare mesh at one point of the parameter space, and their Jacobian as an operator.

No matrix of readings times parameters is formed: a crosstalk strength acts through one arm and one heater, so a
product with the Jacobian is a matrix product of heater powers with crosstalk, and one pass of light per reading.

One derivative is left out: that of the second-order heat of neighbours by efficiencies, a few thousandths of what
efficiencies do.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration import _mesh_kernels as kernels
from calibration._mesh_space import MeshSpace
from calibration._session import Array


@dataclass(frozen=True)
class MeshData:
    """Readings of a bare mesh.

    Parameters
    ----------
    power_w
        Heater powers (B, H) in W.
    lit
        Lit port (B,) of each reading.
    readings_w
        Detector readings (B, n) in W without their dark part; NaN where a reading is invalid.
    """

    power_w: Array
    lit: NDArray[np.intp]
    readings_w: Array

    def take(self, which: NDArray[np.intp] | NDArray[np.bool_] | slice) -> "MeshData":
        """Return some of the readings."""
        return MeshData(self.power_w[which], self.lit[which], self.readings_w[which])

    def joined(self, other: "MeshData") -> "MeshData":
        """Return these readings and then the others."""
        return MeshData(
            np.concatenate([self.power_w, other.power_w]),
            np.concatenate([self.lit, other.lit]),
            np.concatenate([self.readings_w, other.readings_w]),
        )

    def __len__(self) -> int:
        return len(self.lit)


class MeshPoint:
    """Predicted powers at one vector, and products with their Jacobian.

    Parameters
    ----------
    space
        The flat vector's meaning.
    vector
        The point.
    power_w, lit
        Heater powers (B, H) in W and lit ports (B,).
    """

    def __init__(self, space: MeshSpace, vector: Array, power_w: Array, lit: NDArray[np.intp]) -> None:
        self.space, self.vector, self._power_w, self._lit = space, vector, power_w, lit
        self._lanes = _Lanes(lit)
        start, piece = space.start, {name: vector[place] for name, place in space.slices.items()}
        layout = start.layout
        self._modes, self._theta, self._phi = layout.mesh.modes, layout.mesh_theta, layout.mesh_phi
        efficiency = (space.efficiency(vector) * layout.movable)[:, None]
        self._heat = self._lanes.spread(power_w).T * efficiency
        self._rest = space.reference_power_w[:, None] * efficiency
        self.drive = self._heat - self._rest
        self.crosstalk = space.crosstalk(vector)
        own, neighbours = start.second_order + piece["second_order"]
        self._curvature, self._neighbours = own + start.curvature + piece["curvature"], neighbours
        phases = piece["offset"][:, None] + self.crosstalk @ self.drive
        if self._bends:
            kernels.add_bends(phases, self._own_square, self._curvature, self._neighbour_square, self._neighbours)
        losses = np.exp(-(start.arm_loss + piece["arm_loss"].reshape(-1, 2)))
        self._record = self._lanes.record(
            np.exp(1j * phases[self._theta]) * losses[:, :1], np.exp(1j * phases[self._phi]) * losses[:, 1:]
        )
        eta = start.mesh_eta + piece["common_eta"] + piece["eta"].reshape(-1, 2)
        self._couplers = np.stack([np.cos(eta[:, 0]), np.sin(eta[:, 0]), np.cos(eta[:, 1]), np.sin(eta[:, 1])], axis=1)
        self._loss = start.mzi_transmission * np.exp(piece["common_loss"] + piece["loss"])
        self._reach = np.empty(self._record.shape[:2], dtype=np.bool_)
        self._out = np.empty((len(self._lanes.lit), start.ports, 2 * kernels.LANES))
        kernels.propagate(
            self._modes, self._couplers, self._loss, self._lanes.lit, self._record, self._reach, self._out
        )
        detectors = start.gain * start.output_transmission**2 * np.exp(2.0 * piece["output"])
        inputs = (start.input_amplitude * np.exp(piece["input"])) ** 2
        self._scale = self._lanes.group(detectors * inputs[lit, None])
        real, imaginary = self._parts(self._out)
        self.predicted: Array = self._lanes.ungroup(self._scale * (real**2 + imaginary**2))

    @staticmethod
    def _parts(fields: Array) -> tuple[Array, Array]:
        return fields[..., : kernels.LANES], fields[..., kernels.LANES :]

    def take(self, which: NDArray[np.intp]) -> "MeshPoint":
        """Return the same point for some of the readings."""
        return MeshPoint(self.space, self.vector, self._power_w[which], self._lit[which])

    @property
    def _bends(self) -> bool:
        bent = bool(self._curvature.any()) or self._neighbours != 0.0
        return bent or bool({"second_order", "curvature"} & self.space.free)

    @cached_property
    def _own_square(self) -> Array:
        """Squares of the heaters' own phases, less those at the reference powers."""
        return np.asarray(self._heat**2 - self._rest**2)

    @cached_property
    def _neighbour_square(self) -> Array:
        """Own phases times what the neighbours dissipate, less those at the reference powers."""
        heat = self.space.start.neighbour_heat
        return np.asarray(self._heat * (heat @ self._heat) - self._rest * (heat @ self._rest))

    def apply(self, vector: Array) -> Array:
        """Multiply by the Jacobian: changes (B, n) of the powers in W."""
        piece = {name: vector[place] for name, place in self.space.slices.items()}
        efficiency = piece["efficiency"] + piece["common_efficiency"]
        phases = (self.space.crosstalk_change(vector) + self.crosstalk * efficiency) @ self.drive
        phases += piece["offset"][:, None]
        if self._bends:
            bend = 2.0 * self._curvature * efficiency + piece["second_order"][0] + piece["curvature"]
            kernels.add_bends(phases, self._own_square, bend, self._neighbour_square, piece["second_order"][1])
        change = np.empty_like(self._out)
        kernels.push(
            self._modes,
            self._theta,
            self._phi,
            self._couplers,
            self._loss,
            self._record,
            self._reach,
            phases,
            piece["arm_loss"].reshape(-1, 2),
            piece["common_eta"] + piece["eta"].reshape(-1, 2),
            piece["common_loss"] + piece["loss"],
            change,
        )
        (real, imaginary), (d_real, d_imaginary) = self._parts(self._out), self._parts(change)
        light = self._lanes.ungroup(2.0 * self._scale * (real * d_real + imaginary * d_imaginary))
        return light + 2.0 * self.predicted * (piece["output"] + piece["input"][self._lit, None])

    def apply_transposed(self, weights: Array) -> Array:
        """Multiply weights (B, n) of the powers by the transposed Jacobian."""
        by_phase, by_element = np.empty(self.drive.shape), np.empty((len(self._modes), 5))
        factor = 2.0 * self._scale * self._lanes.group(weights)
        real, imaginary = self._parts(self._out)
        kernels.pull(
            self._modes,
            self._theta,
            self._phi,
            self._couplers,
            self._loss,
            self._record,
            self._reach,
            np.concatenate([factor * real, -factor * imaginary], axis=-1),
            by_phase,
            by_element,
        )
        by_matrix = by_phase @ self.drive.T
        by_efficiency = np.sum(self.crosstalk * by_matrix, axis=0)
        gradient, place = np.empty(self.space.size), self.space.slices
        gradient[place["second_order"]] = gradient[place["curvature"]] = 0.0
        if self._bends:
            own = np.empty(len(by_phase))
            by_neighbours = kernels.sum_bends(by_phase, self._own_square, self._neighbour_square, own)
            by_efficiency += 2.0 * self._curvature * own
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
        gradient[place["input"]] = np.bincount(self._lit, light.sum(axis=1), minlength=self.space.start.ports)
        self.space.crosstalk_gradient(by_matrix, gradient)
        return gradient

    def dense_rows(self) -> tuple[Array, Array]:
        """Differentiate every power by all parameters but single heat paths.

        Returns
        -------
        tuple
            By phases (B, n, H), and by the dense block of the vector (B, n, size).
        """
        groups, mzis = self._record.shape[:2]
        readings, ports = self.predicted.shape
        raw = np.empty((groups, ports, mzis, kernels.SLOTS * kernels.LANES))
        kernels.rows(self._modes, self._couplers, self._loss, self._record, self._reach, self._out, self._scale, raw)
        raw = self._lanes.ungroup(raw.reshape(groups, ports, mzis, kernels.SLOTS, kernels.LANES))
        by_phase = np.empty((readings, ports, 2 * mzis))
        by_phase[:, :, self._theta], by_phase[:, :, self._phi] = raw[..., 0], raw[..., 1]
        dense, place = np.zeros((readings, ports, self.space.dense_size)), self.space.slices
        drive = self._lanes.gather(self.drive)
        by_efficiency = (by_phase @ self.crosstalk) * drive[:, None, :]
        for at, profile in zip(range(place["profile"].start, place["profile"].stop), self.space.profiles, strict=True):
            dense[:, :, at] = np.einsum("bjh,bh->bj", by_phase, drive @ profile.T)
        if self._bends:
            first, own = place["second_order"].start, self._lanes.gather(self._own_square)
            bent = by_phase * own[:, None, :]
            by_efficiency += 2.0 * self._curvature * bent
            dense[:, :, place["curvature"]] = bent
            dense[:, :, first] = bent.sum(axis=-1)
            dense[:, :, first + 1] = np.einsum("bjh,bh->bj", by_phase, self._lanes.gather(self._neighbour_square))
        dense[:, :, place["offset"]] = by_phase
        dense[:, :, place["efficiency"]] = by_efficiency
        dense[:, :, place["common_efficiency"]] = by_efficiency.sum(axis=-1, keepdims=True)
        dense[:, :, place["arm_loss"]] = raw[..., 2:4].reshape(readings, ports, -1)
        dense[:, :, place["eta"]] = raw[..., 4:6].reshape(readings, ports, -1)
        dense[:, :, place["common_eta"]] = raw[..., 4:6].sum(axis=(2, 3))[..., None]
        dense[:, :, place["loss"]] = raw[..., 6]
        dense[:, :, place["common_loss"]] = raw[..., 6].sum(axis=-1, keepdims=True)
        each = np.arange(ports)
        dense[:, each, place["output"].start + each] = 2.0 * self.predicted
        index = np.arange(readings)
        dense[index[:, None], each, (place["input"].start + self._lit)[:, None]] = 2.0 * self.predicted
        return by_phase, dense


class _Lanes:
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

    def spread(self, values: Array) -> Array:
        """Sort rows (B, ...) into lanes (G LANES, ...)."""
        spread = np.zeros((self.lit.size, *values.shape[1:]))
        spread[: len(values)] = values[self._order]
        return spread

    def gather(self, values: Array) -> Array:
        """Return columns (..., G LANES) as rows (B, ...) in the order of the readings."""
        return np.asarray(values.T[self._place])

    def group(self, values: Array) -> Array:
        """Sort rows (B, n) into groups (G, n, LANES)."""
        grouped = self.spread(values).reshape(self._groups, kernels.LANES, -1)
        return np.ascontiguousarray(grouped.transpose(0, 2, 1))

    def ungroup(self, values: Array) -> Array:
        """Return groups (G, ..., LANES) as rows (B, ...) in the order of the readings."""
        rows = np.moveaxis(values, -1, 1).reshape(self.lit.size, *values.shape[1:-1])
        return np.asarray(rows[self._place])

    def record(self, inner: NDArray[np.complex128], outer: NDArray[np.complex128]) -> Array:
        """Return the records (G, K, RECORD LANES) of phase factors (K, G LANES), fields still empty."""
        record = np.empty((self._groups, len(inner), kernels.RECORD, kernels.LANES))
        for row, values in enumerate((inner.real, inner.imag, outer.real, outer.imag)):
            record[:, :, row] = values.reshape(len(inner), self._groups, kernels.LANES).transpose(1, 0, 2)
        return record.reshape(self._groups, len(inner), -1)
