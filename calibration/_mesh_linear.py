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
from calibration._mesh_checks import rows_of_readings
from calibration._mesh_jacobian import Lanes, MeshJacobian
from calibration._mesh_space import MeshSpace
from calibration._session import Array
from optinc_hw.errors import CalibrationError


@dataclass(frozen=True)
class MeshData:
    """Readings of a bare mesh; what is given is made arrays of.

    Parameters
    ----------
    power_w
        Heater powers (B, H) in W.
    lit
        Lit port (B,) of each reading, integers.
    readings_w
        Detector readings (B, n) in W without their dark part; NaN where a reading is invalid.

    Raises
    ------
    CalibrationError
        If they are no numbers, masked somewhere, or have not one row a reading.  Whether they are those of a chip is
        seen where they are used.
    """

    power_w: Array
    lit: NDArray[np.intp]
    readings_w: Array

    def __post_init__(self) -> None:
        fields = rows_of_readings(self.power_w, self.lit, self.readings_w)
        for name, values in zip(("power_w", "lit", "readings_w"), fields, strict=True):
            object.__setattr__(self, name, values)

    def take(self, which: NDArray[np.intp] | NDArray[np.bool_] | slice) -> "MeshData":
        """Return some of the readings."""
        return MeshData(self.power_w[which], self.lit[which], self.readings_w[which])

    def joined(self, other: "MeshData") -> "MeshData":
        """Return these readings and then the others.

        Raises
        ------
        CalibrationError
            If they are of another chip.
        """
        widths = [(data.power_w.shape[1], data.readings_w.shape[1]) for data in (self, other)]
        if widths[0] != widths[1]:
            raise CalibrationError(
                f"readings of a chip of {widths[0][0]} heaters and {widths[0][1]} ports cannot be joined with those of "
                f"{widths[1][0]} heaters and {widths[1][1]} ports; join the data of one chip"
            )
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
        self._lanes = Lanes(lit)
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
        heat = self.space.neighbour_heat
        return np.asarray(self._heat * (heat @ self._heat) - self._rest * (heat @ self._rest))

    def drive_moments(self) -> Array:
        """Means (4, H) over the readings of what heaters do: drive squared, drive times square, squares squared.

        The third are of own squares, the last of what neighbours bend.
        """
        count = len(self._lit)
        drive = self.drive
        if not self._bends:
            return np.concatenate([np.einsum("hb,hb->h", drive, drive)[None] / count, np.zeros((3, len(drive)))])
        own, beside = self._own_square, self._neighbour_square
        pairs = ((drive, drive), (drive, own), (own, own), (beside, beside))
        return np.stack([np.einsum("hb,hb->h", one, other) / count for one, other in pairs])

    @cached_property
    def jacobian(self) -> MeshJacobian:
        """Products with the Jacobian in double precision."""
        return MeshJacobian(
            self.space, self._lanes, self._lit, self._couplers, self._loss, self._record, self._reach, self._out,
            self._scale, self.predicted, self.drive, self.crosstalk, self._own_square if self._bends else None,
            self._neighbour_square if self._bends else None, self._curvature,
        )  # fmt: skip

    @cached_property
    def single_jacobian(self) -> MeshJacobian:
        """Products with the Jacobian in single precision."""
        return self.jacobian.in_single()

    def apply(self, vector: Array) -> Array:
        """Multiply by the Jacobian: changes (B, n) of the powers in W."""
        return self.jacobian.apply(vector)

    def apply_transposed(self, weights: Array) -> Array:
        """Multiply weights (B, n) of the powers by the transposed Jacobian."""
        return self.jacobian.apply_transposed(weights)

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
