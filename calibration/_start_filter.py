"""A small model of a bare mesh for its start, and the Gauss-Newton filter that takes columns in one after the other.

Parameters are the offsets of all thetas and phis, and logarithms of the detectors' and the lit ports' efficiencies. The
filter keeps their precision matrix: what one column's readings said is the prior of the next.
"""

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_state import StartState, Sweep
from optinc_hw.photonics.mesh_layout import MeshLayout

Complex = NDArray[np.complex128]
_STEPS = 6
_LARGEST_STEP = 0.7
_CONVERGED = 0.01
_HELD = 1e8
_THETA_SPREAD, _POOR_SPREAD = 0.06, 1.0
_PHI_SPREAD = 10.0
_LIGHT_SPREAD = 0.06
_MODEL_SHARE = 0.06
_LEAK = 0.05
_FAINT = 0.003


class StartModel:
    """Fields and powers of a mesh of equal couplers without loss.

    Parameters
    ----------
    mesh
        The mesh.
    eta
        Splitting angle of all couplers, rad.
    """

    def __init__(self, mesh: MeshLayout, eta: float) -> None:
        self.mesh = mesh
        self._cells = [np.array(cells, dtype=np.intp) for cells in mesh.columns]
        self._cosine, self._sine = np.cos(eta), 1j * np.sin(eta)

    def entries(self, theta: Array, phi: Array) -> tuple[Complex, Complex, Complex, Complex]:
        """Elements of the MZIs' matrices, row by row."""
        inner, outer = np.exp(1j * theta), np.exp(1j * phi)
        c, s = self._cosine, self._sine
        off = c * s * (inner + 1.0)
        return (c * c * inner + s * s) * outer, off, off * outer, s * s * inner + c * c

    def fields(self, theta: Array, phi: Array, lit: NDArray[np.intp], before: int | None = None) -> Complex:
        """Fields (B, n) behind the mesh, or before a column, at phases (B, K) in rad."""
        fields = np.zeros((len(lit), self.mesh.ports), dtype=np.complex128)
        fields[np.arange(len(lit)), lit] = 1.0
        matrix = self.entries(theta, phi)
        for cells in self._cells[:before]:
            fields = self._through(matrix, cells, fields)
        return fields

    def _through(self, matrix: tuple[Complex, ...], cells: NDArray[np.intp], fields: Complex) -> Complex:
        upper = self.mesh.modes[cells]
        first, second, after = fields[:, upper], fields[:, upper + 1], fields.copy()
        after[:, upper] = matrix[0][:, cells] * first + matrix[1][:, cells] * second
        after[:, upper + 1] = matrix[2][:, cells] * first + matrix[3][:, cells] * second
        return after

    def powers(self, theta: Array, phi: Array, lit: NDArray[np.intp]) -> tuple[Array, Array]:
        """Powers (B, n) and their derivatives (B, n, 2K) by all thetas, then all phis."""
        matrix, inner, outer = self.entries(theta, phi), np.exp(1j * theta), np.exp(1j * phi)
        ports, count = self.mesh.ports, len(self.mesh.mzis)
        fields = np.zeros((len(lit), ports), dtype=np.complex128)
        fields[np.arange(len(lit)), lit] = 1.0
        entered = []
        for cells in self._cells:
            entered.append(fields)
            fields = self._through(matrix, cells, fields)
        slopes = np.zeros((len(lit), ports, 2 * count))
        # Rows of what is behind a column, times twice the conjugate field at each output.
        behind = 2.0 * np.conj(fields)[:, :, None] * np.eye(ports)
        for cells, light in zip(reversed(self._cells), reversed(entered), strict=True):
            upper = self.mesh.modes[cells]
            first, second = light[:, upper], light[:, upper + 1]
            to_upper, to_lower = behind[:, :, upper], behind[:, :, upper + 1]
            turned = 1j * inner[:, cells] * (self._cosine * outer[:, cells] * first + self._sine * second)
            slopes[:, :, cells] = ((self._cosine * to_upper + self._sine * to_lower) * turned[:, None]).real
            through = to_upper * matrix[0][:, None, cells] + to_lower * matrix[2][:, None, cells]
            slopes[:, :, count + cells] = (through * (1j * first)[:, None]).real
            behind = behind.copy()
            behind[:, :, upper + 1] = to_upper * matrix[1][:, None, cells] + to_lower * matrix[3][:, None, cells]
            behind[:, :, upper] = through
        return np.abs(fields) ** 2, slopes


class StartFilter:
    """What is known of offsets and light, column by column.

    Parameters
    ----------
    state
        Thetas from `find_thetas`; thetas, phis and their uncertainties are updated.
    """

    def __init__(self, state: StartState) -> None:
        self._state = state
        mesh = state.probe.layout.mesh
        self.model = StartModel(mesh, np.pi / 4 + state.couplers.excess / 2.0)
        self._count, self._ports = len(mesh.mzis), mesh.ports
        readings = np.concatenate([sweep.readings_w for sweep in state.sweeps])
        seen = np.isfinite(readings)
        share = np.maximum(seen.sum(axis=1), 1) / mesh.ports
        self.norm_w = float(np.median(np.sum(np.where(seen, readings, 0.0), axis=1) / share))
        self.light = np.zeros(2 * mesh.ports)
        spread = np.concatenate([
            self._theta_spread(), np.full(self._count, _PHI_SPREAD), np.full(2 * mesh.ports, _LIGHT_SPREAD)
        ])  # fmt: skip
        precision = 1.0 / spread**2
        # Phis of the first two columns are phases of inputs, which no power shows.
        precision[self._count : 2 * self._count][state.column < 2] = _HELD
        self.precision = np.diag(precision)
        self._first, self._centre = self.precision.copy(), self._vector()

    def _theta_spread(self) -> Array:
        poor = np.array([bool(reason) for reason in self._state.theta_reason])
        return np.where(poor, _POOR_SPREAD, _THETA_SPREAD)

    def phases(self, sweep: Sweep) -> tuple[Array, Array]:
        """Phases theta and phi (B, K) in rad of a sweep."""
        state, layout = self._state, self._state.probe.layout
        return (
            state.theta + sweep.phase[:, layout.mesh_theta] * state.moves_theta,
            state.phi + sweep.phase[:, layout.mesh_phi] * state.moves_phi,
        )

    def scale(self, lit: NDArray[np.intp]) -> Array:
        """Return readings (B, n) in W that unit power at each output gives."""
        detectors, inputs = self.light[: self._ports], self.light[self._ports :]
        return np.asarray(self.norm_w * np.exp(detectors + inputs[lit, None]))

    def predict(self, sweep: Sweep) -> Array:
        """Return readings (B, n) in W that the present knowledge gives."""
        return np.asarray(self.scale(sweep.lit) * np.abs(self.model.fields(*self.phases(sweep), sweep.lit)) ** 2)

    def variance(self, powers_w: Array, column: int) -> Array:
        """Variance (B, n) in W^2 of readings when columns behind ``column`` are near the bar state."""
        padded = np.pad(powers_w, ((0, 0), (1, 1)))
        around = 0.5 * (padded[:, :-2] + padded[:, 2:])
        passed = 0.5 * _LEAK**2 * (self.model.mesh.depth - 1 - column)
        floor = np.hypot(_FAINT * self.norm_w / self._ports, self._state.noise.floor_w)
        stray = passed * (powers_w * around + passed * around**2)
        return np.asarray((_MODEL_SHARE * (powers_w + around)) ** 2 + stray + floor**2)

    def take_in(self, sweep: Sweep, column: int) -> float:
        """Fit the readings of a column with all before as prior; returns the rms residual over the expected one."""
        state, known = self._state, self._state.column <= column
        movable = known & (state.column >= 2)
        active = np.flatnonzero(np.concatenate([known, movable, np.ones(2 * self._ports, dtype=np.bool_)]))
        prior = self.precision[np.ix_(active, active)]
        centre = self._vector()
        for _ in range(_STEPS):
            left, slopes, weight = self._linearised(sweep, column, active)
            inflation = max(1.0, 0.7 * _rms(left, weight))
            weighted = slopes * (weight / inflation**2)[:, None]
            right = weighted.T @ left - prior @ (self._vector() - centre)[active]
            step = np.linalg.solve(weighted.T @ slopes + prior, right)
            largest = float(np.abs(step).max())
            self._move(active, np.asarray(step * min(1.0, _LARGEST_STEP / largest)))
            if largest < _CONVERGED:
                break
        left, slopes, weight = self._linearised(sweep, column, active)
        rms = _rms(left, weight)
        self.precision[np.ix_(active, active)] += slopes.T @ (slopes * (weight / max(1.0, rms) ** 2)[:, None])
        return rms

    def smooth(self, parts: list[tuple[Sweep, int]]) -> None:
        """Fit the readings of all columns so far at once, from what was known before any; parts name their column."""
        known = self._state.column <= max(column for _, column in parts)
        movable = known & (self._state.column >= 2)
        active = np.flatnonzero(np.concatenate([known, movable, np.ones(2 * self._ports, dtype=np.bool_)]))
        prior = self._first[np.ix_(active, active)]
        for _ in range(_STEPS):
            normal, right = prior.copy(), -prior @ (self._vector() - self._centre)[active]
            for sweep, column in parts:
                left, slopes, weight = self._linearised(sweep, column, active)
                weighted = slopes * (weight / max(1.0, _rms(left, weight)) ** 2)[:, None]
                normal += weighted.T @ slopes
                right += weighted.T @ left
            step = np.linalg.solve(normal, right)
            largest = float(np.abs(step).max())
            self._move(active, np.asarray(step * min(1.0, _LARGEST_STEP / largest)))
            if largest < _CONVERGED:
                break
        self.precision[np.ix_(active, active)] = normal

    def kept(self) -> tuple[Array, Array]:
        """Return what `restore` brings back: phases and light, and their precision."""
        return self._vector(), self.precision.copy()

    def restore(self, kept: tuple[Array, Array]) -> None:
        """Go back to what was known."""
        self._state.theta, self._state.phi, self.light = np.split(kept[0].copy(), [self._count, 2 * self._count])
        self.precision = kept[1]

    def _vector(self) -> Array:
        return np.concatenate([self._state.theta, self._state.phi, self.light])

    def _move(self, active: NDArray[np.intp], step: Array) -> None:
        vector = self._vector()
        vector[active] += step
        self._state.theta, self._state.phi, self.light = np.split(vector, [self._count, 2 * self._count])

    def _linearised(self, sweep: Sweep, column: int, active: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """Residuals, their slopes by the active parameters, and weights; one row a valid reading."""
        powers, by_phase = self.model.powers(*self.phases(sweep), sweep.lit)
        scale = self.scale(sweep.lit)
        predicted = scale * powers
        slopes = np.zeros((*predicted.shape, 2 * (self._count + self._ports)))
        slopes[:, :, : 2 * self._count] = scale[:, :, None] * by_phase
        outputs, rows = np.arange(self._ports), np.arange(len(sweep.lit))
        slopes[:, outputs, 2 * self._count + outputs] = predicted
        slopes[rows, :, 2 * self._count + self._ports + sweep.lit] = predicted
        seen = np.isfinite(sweep.readings_w)
        weight = 1.0 / self.variance(predicted, column)[seen]
        return (sweep.readings_w - predicted)[seen], slopes[seen][:, active], weight

    def deviations(self) -> tuple[Array, Array]:
        """Return standard deviations (K,) in rad of thetas and phis."""
        sigma = np.sqrt(np.diag(np.linalg.inv(self.precision)))
        return sigma[: self._count], sigma[self._count : 2 * self._count]


def _rms(left: Array, weight: Array) -> float:
    return float(np.sqrt(np.mean(left**2 * weight)))
