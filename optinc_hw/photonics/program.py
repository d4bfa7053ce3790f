"""Programming a real matrix onto a twin: phases for the static heaters, drives for the inputs, and the read-out."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._branches import common_branches
from optinc_hw.photonics._decompose import decompose
from optinc_hw.photonics._unitary import real_matrix
from optinc_hw.photonics._wraps import Heating
from optinc_hw.photonics.chip_model import ChipModel
from optinc_hw.photonics.heaters import solve_powers
from optinc_hw.photonics.layout import ChipLayout
from optinc_hw.photonics.mesh_layout import RectangularLayout, TriangularLayout
from optinc_hw.photonics.realise import unitary_of_real_part
from optinc_hw.photonics.twin import TwinParameters

STARTS = ((0.93, 0.02), *((0.93, 1.0),) * 2, *((0.86, 1.0),) * 3, *((0.75, 1.0),) * 3)
"""Starts of the refinement, tried until one reaches the matrix: headroom and tilt.

Headroom is the part of the chip's mean transmission that a matrix of norm 1 uses; the rest lets unequal losses be
balanced. Tilt is the rms in rad by which the start leaves the ideal mesh's phases: first just off the bar and cross
states, where amplitudes have no first derivative, then far enough to leave the local minima that identities,
permutations and diagonal matrices have beside them.
"""
GOOD_RESIDUAL = 1e-3
"""Deviation of the twin's matrix from the target, per full scale, at which no other start is tried."""
MAX_RESIDUAL = 0.05
"""Deviation above which a program is refused: the chip's couplers or losses do not allow the matrix."""
_STEPS = 60
_TOLERANCE = 1e-7
_STALL_STEPS, _STALL_GAIN = 5, 0.02
"""A descent ends when this many steps lower the deviation by less than this share."""
_HOPELESS = 1e3
_INPUT_TOLERANCE = 1e-9
_INPUT_LEVELS = 500  # of either sign, for the ranges of the modulators' phases


@dataclass(frozen=True)
class ProgrammedMatrix:
    """A real matrix ``(r, c)`` on a chip of n >= r, c ports, ready to be driven and read.

    Parameters
    ----------
    parameters
        The twin that it was programmed with.
    matrix
        The target, spectral norm at most 1.
    inputs
        Chip inputs (c,) that carry the matrix's columns: those whose modulators extinguish best.
    static_power_w
        Powers (H,) in W of all heaters but the input modulators (those are zero here).
    row_scale
        Output amplitude per unit of ``matrix @ a`` (r,), in units of ``reference``.
    reference
        Field amplitude in sqrt(W) that an input of 1 sends into the mesh.
    leak
        Output amplitudes (r,), scaled as the outputs, that inputs beyond the matrix leak although they are off.
    max_power_w
        Limits (H,) of the heaters in W.
    residual
        Largest deviation of the twin's matrix, scaled, from the target.
    """

    parameters: TwinParameters
    matrix: NDArray[np.float64]
    inputs: NDArray[np.intp]
    static_power_w: NDArray[np.float64]
    row_scale: NDArray[np.float64]
    reference: float
    leak: NDArray[np.float64]
    max_power_w: NDArray[np.float64]
    residual: float

    def drive(self, amplitudes: ArrayLike) -> NDArray[np.float64]:
        """Heater powers that send input vectors through the matrix.

        Parameters
        ----------
        amplitudes
            ``(batch, c)`` with entries in [-1, 1].

        Returns
        -------
        NDArray
            ``(batch, H)`` in W.

        Raises
        ------
        MatrixError
            If the shape does not fit or an entry is outside [-1, 1] or not finite.
        LimitError
            If a heater would exceed its limit.
        """
        values = np.asarray(amplitudes, float)
        columns = self.matrix.shape[1]
        if values.ndim != 2 or values.shape[1] != columns:
            raise MatrixError(f"amplitudes have shape {values.shape}; the matrix needs (batch, {columns})")
        if not (np.abs(values) <= 1.0 + _INPUT_TOLERANCE).all():
            raise MatrixError("amplitudes must be finite and within [-1, 1]; scale the inputs of the layer")
        fields = np.zeros((len(values), self.parameters.ports))
        fields[:, self.inputs] = values * self.reference
        generator = np.arange(2 * self.parameters.ports)
        powers = np.tile(self.static_power_w, (len(values), 1))
        powers[:, generator] = solve_powers(
            self.parameters, self._generator(fields), chosen=generator, background=self._background,
            max_power_w=self.max_power_w[generator], near=self._near(fields),
        )  # fmt: skip
        return powers

    def _generator(self, fields: NDArray[np.float64]) -> NDArray[np.float64]:
        """Phases (batch, 2n) of the input modulators' heaters for fields (batch, n)."""
        layout = self.parameters.layout
        phases = np.empty((len(fields), 2 * layout.ports))
        phases[:, layout.input_theta], phases[:, layout.input_phi] = modulator_phases(self.parameters, fields)
        return phases

    @cached_property
    def _background(self) -> NDArray[np.float64]:
        """Phases (2n,) in rad that the static heaters add to those of the input modulators."""
        heat = self.parameters.efficiency * self.static_power_w
        return np.asarray(heat @ self.parameters.crosstalk[: 2 * self.parameters.ports].T)

    @cached_property
    def _branches(self) -> NDArray[np.float64]:
        """Phases (2, 2n) in rad about which multiples of 2 pi are chosen, for positive and for negative inputs."""
        parameters, generator = self.parameters, np.arange(2 * self.parameters.ports)
        fields = np.zeros((_INPUT_LEVELS, parameters.ports))
        fields[:, self.inputs] = self.reference * np.linspace(1.0, 1.0 / _INPUT_LEVELS, _INPUT_LEVELS)[:, None]
        heating = Heating.of(parameters.crosstalk[np.ix_(generator, generator)], parameters.efficiency[generator])
        missing = np.stack([self._generator(fields), self._generator(-fields)])
        missing -= parameters.offset[generator] + self._background
        return common_branches(heating, missing, self.max_power_w[generator])

    def _near(self, fields: NDArray[np.float64]) -> NDArray[np.float64]:
        """Phases (batch, 2n) in rad about which multiples of 2 pi are chosen for fields (batch, n)."""
        layout = self.parameters.layout
        negative = np.empty((len(fields), 2 * layout.ports), dtype=bool)
        negative[:, layout.input_theta] = negative[:, layout.input_phi] = fields < 0.0
        return np.asarray(np.where(negative, self._branches[1], self._branches[0]))

    def decode(self, readings_w: ArrayLike) -> NDArray[np.float64]:
        """Products ``matrix @ a`` (batch, r) from detector readings ``(batch, 2n)`` in W."""
        quadrature = quadratures(self.parameters, np.asarray(readings_w, float))[:, : len(self.matrix)]
        return np.asarray(quadrature / (self.reference * self.row_scale) - self.leak)


def program_matrix(parameters: TwinParameters, matrix: ArrayLike, max_power_w: ArrayLike = np.inf) -> ProgrammedMatrix:
    """Find heater powers with which the twin multiplies by a real matrix, read as the real part of the field.

    The matrix is written as the real part of a unitary and decomposed for an ideal mesh; Gauss-Newton steps on the
    twin then absorb its couplers and losses. Every row is realised at its own scale, as large as its losses allow,
    and is brought back after detection.  Heat that input modulators send to the mesh is left out: they stand apart.

    An input modulator of finite extinction cannot send fields near zero (a few per cent of full scale); there the
    real part is kept and the rest goes into the imaginary part. Place the levels of a code around zero, not on it.

    Parameters
    ----------
    parameters
        The calibrated (or nominal) chip.
    matrix
        ``(r, c)`` real with r, c <= n and spectral norm at most 1.
    max_power_w
        Limit of every heater (H,) or of all, in W.

    Returns
    -------
    ProgrammedMatrix
        With the twin's remaining deviation in ``residual``.

    Raises
    ------
    MatrixError
        If the matrix is not real and finite, does not fit the chip, its norm exceeds 1, the chip's mesh is not a
        complete rectangular or triangular one whose phases all follow their heaters, or its couplers and losses keep
        the twin more than `MAX_RESIDUAL` away from the matrix.
    LimitError
        If a heater would exceed its limit.
    """
    target = real_matrix(matrix)
    n = parameters.ports
    if max(target.shape) > n:
        raise MatrixError(f"a matrix of shape {target.shape} does not fit a chip of {n} ports; cut it into tiles")
    _require_complete(parameters.layout)
    norm = float(np.linalg.norm(target, 2))
    if norm > 1.0 + 1e-9:
        raise MatrixError(f"the matrix has spectral norm {norm:.6g}; a passive mesh realises at most 1")
    full, floor = modulator_range(parameters)
    inputs = np.sort(np.argsort(floor / full)[: target.shape[1]])
    reference = float(full[inputs].min())
    phases, row_scale, residual = _best_refinement(parameters, target, inputs)
    if residual > MAX_RESIDUAL:
        raise MatrixError(
            f"the chip reaches this matrix only to {residual:.2g} of full scale ({MAX_RESIDUAL:g} allowed): its "
            "couplers or losses do not allow it; scale the matrix down or cut it into smaller tiles"
        )
    layout = parameters.layout
    static = np.arange(2 * n, len(layout.heaters))
    limits = np.broadcast_to(np.asarray(max_power_w, float), parameters.offset.shape)
    power = np.zeros(len(layout.heaters))
    power[static] = solve_powers(parameters, phases[static], chosen=static, max_power_w=limits[static])
    off = np.setdiff1d(np.arange(n), inputs)
    leak = _quadrature(parameters, phases)[: len(target), off] @ floor[off] / (reference * row_scale)
    return ProgrammedMatrix(parameters, target, inputs, power, row_scale, reference, leak, limits, residual)


def _require_complete(layout: ChipLayout) -> None:
    """Refuse meshes for which there is no start of the refinement."""
    if layout.mesh not in (RectangularLayout(layout.ports), TriangularLayout(layout.ports)):
        raise MatrixError(
            f"this chip's mesh ({len(layout.mesh.mzis)} MZIs in {layout.mesh.depth} columns) is not a complete "
            "rectangular or triangular one, and matrices are programmed on those only; drive its heaters with powers "
            "of your own"
        )
    if layout.stuck:
        raise MatrixError(
            f"phases of this chip are stuck ({', '.join(layout.stuck)}), and matrices are programmed only on chips "
            "whose phases all follow their heaters; drive its heaters with powers of your own"
        )


def _ideal_phases(parameters: TwinParameters, padded: NDArray[np.float64]) -> NDArray[np.float64]:
    """Phases (H,) of an ideal chip for a matrix of norm <= 1: output quadratures turned to the real part."""
    layout = parameters.layout
    mesh = decompose(unitary_of_real_part(padded), layout.mesh)
    phases = np.zeros(len(layout.heaters))
    phases[layout.mesh_theta], phases[layout.mesh_phi] = mesh.theta, mesh.phi
    phases[layout.attenuator] = np.pi
    # An open attenuator turns the field by pi, and the receivers see the imaginary part.
    phases[layout.output_phase] = mesh.output - np.pi / 2.0
    return phases


def _best_refinement(
    parameters: TwinParameters, target: NDArray[np.float64], inputs: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Phases, row scales and residual of the first good, or else the best, start."""
    padded = np.zeros((parameters.ports, parameters.ports))
    padded[: len(target), inputs] = target
    best = (np.zeros(0), np.zeros(0), np.inf)
    rng = np.random.default_rng(0)  # the same matrix on the same twin gets the same powers
    free = trained_heaters(parameters)
    for headroom, tilt in STARTS:
        scale = headroom * _transmission(parameters, len(target))
        start = _ideal_phases(parameters, headroom * padded)
        start[free] += tilt * rng.standard_normal(len(free))
        phases, deviation = _refine(parameters, scale[:, None] * target, inputs, start)
        residual = float(np.abs(deviation / scale[:, None]).max())
        if residual < best[2]:
            best = phases, scale, residual
        if residual < GOOD_RESIDUAL:
            break
    return best


def trained_heaters(parameters: TwinParameters) -> NDArray[np.intp]:
    """Heaters whose phases the refinement moves: mesh and output phases; attenuators stay open."""
    layout = parameters.layout
    return np.concatenate([layout.mesh_theta, layout.mesh_phi, layout.output_phase])


def _transmission(parameters: TwinParameters, rows: int) -> NDArray[np.float64]:
    """Field transmission (rows,) of each output: its way behind the mesh times the mesh's mean."""
    layout = parameters.layout
    per_mzi = float(np.mean(np.log(parameters.mzi_transmission)))
    passed = 2.0 * len(layout.mesh.mzis) / layout.ports
    tail = parameters.output_transmission * np.abs(_bar(np.pi, parameters.attenuator_eta))
    return np.asarray(np.exp(per_mzi * passed) * tail[:rows])


def _refine(
    parameters: TwinParameters, target: NDArray[np.float64], inputs: NDArray[np.intp], start: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Damped Gauss-Newton with least-norm steps; returns phases and the remaining deviation (rows, columns)."""
    free, model, phases = trained_heaters(parameters), ChipModel.from_parameters(parameters), start
    seen, jacobian = _read_block(model, phases, free, len(target), inputs)
    deviation, damping = seen - target, 1e-3
    sizes = [np.inf] * _STALL_STEPS
    for _ in range(_STEPS):
        sizes.append(float(np.linalg.norm(deviation)))
        if sizes[-1] < _TOLERANCE or damping > _HOPELESS or sizes[-1] > (1.0 - _STALL_GAIN) * sizes[-1 - _STALL_STEPS]:
            break
        gram = jacobian @ jacobian.T + damping * np.eye(len(jacobian))
        trial = phases.copy()
        trial[free] -= jacobian.T @ np.linalg.solve(gram, deviation.ravel())
        seen, slope = _read_block(model, trial, free, len(target), inputs)
        if np.linalg.norm(seen - target) < np.linalg.norm(deviation):
            phases, deviation, jacobian, damping = trial, seen - target, slope, damping / 10.0
        else:
            damping *= 10.0
    return phases, deviation


def _read_block(
    model: ChipModel, phases: NDArray[np.float64], free: NDArray[np.intp], rows: int, inputs: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read quadrature (rows, columns) of the transfer matrix and its derivatives (entries, free)."""
    entries = rows * len(inputs)
    copies = torch.as_tensor(phases).repeat(entries, 1).requires_grad_()
    block = model.transfer_matrix(copies)[:, :rows, torch.as_tensor(inputs)].imag
    values = torch.diagonal(block.reshape(entries, entries))
    (jacobian,) = torch.autograd.grad(values.sum(), copies)
    return values.detach().numpy().reshape(rows, len(inputs)), jacobian.numpy()[:, free]


def quadratures(parameters: TwinParameters, readings_w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fields (..., n) in sqrt(W) in quadrature with the local oscillator, from detector readings (..., 2n) in W."""
    p = parameters
    power = (readings_w - p.dark_w) / p.gain
    plus, minus = power[..., : p.ports], power[..., p.ports :]
    cosine, sine = np.cos(p.receiver_eta), np.sin(p.receiver_eta)
    beat = sine**2 * plus - cosine**2 * minus - p.lo_amplitude**2 * (sine**4 - cosine**4)
    return np.asarray(beat / (2.0 * sine * cosine * p.lo_amplitude), dtype=np.float64)


def _quadrature(parameters: TwinParameters, phases: NDArray[np.float64]) -> NDArray[np.float64]:
    """Read quadrature (n, n) of the transfer matrix at phases (H,)."""
    with torch.no_grad():
        matrix = ChipModel.from_parameters(parameters).transfer_matrix(torch.as_tensor(phases)[None])
    return np.asarray(matrix[0].imag.numpy(), dtype=np.float64)


def modulator_range(parameters: TwinParameters) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest and smallest field (n,) in sqrt(W) that each input modulator can send."""
    cosines, sines = np.cos(parameters.input_eta).prod(axis=-1), np.sin(parameters.input_eta).prod(axis=-1)
    return parameters.input_amplitude * (cosines + sines), parameters.input_amplitude * np.abs(cosines - sines)


def _bar(theta: ArrayLike, eta: NDArray[np.float64]) -> NDArray[np.complex128]:
    cosines, sines = np.cos(eta).prod(axis=-1), np.sin(eta).prod(axis=-1)
    return np.asarray(cosines * np.exp(1j * np.asarray(theta)) - sines)


def modulator_phases(
    parameters: TwinParameters, fields: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Phases (batch, n) of the input modulators for real fields; where extinction ends, the real part is kept."""
    cosines = np.cos(parameters.input_eta).prod(axis=-1)
    sines = np.sin(parameters.input_eta).prod(axis=-1)
    wanted = np.abs(fields) / parameters.input_amplitude
    floor = np.abs(cosines - sines)
    size = np.maximum(wanted, floor)
    cosine = (cosines**2 + sines**2 - size**2) / (2.0 * cosines * sines)
    theta = np.arccos(np.clip(cosine, -1.0, 1.0))
    # An input that is off altogether leaks a real field, whose constant effect `ProgrammedMatrix.leak` holds.
    turn = np.where(wanted > 0.0, np.arccos(np.clip(wanted / np.maximum(size, 1e-300), 0.0, 1.0)), 0.0)
    sign = np.where(fields < 0.0, np.pi, 0.0)
    phi = sign + turn - np.angle(_bar(theta, parameters.input_eta))
    return theta, phi
