"""The Gauss-Newton filter that takes columns of a bare mesh in one after the other.

Parameters are the offsets of all thetas and phis, and logarithms of the detectors' and the lit ports' efficiencies.
What each block of readings said is kept as a quadratic around the phases at which it was linearised, and linearised
again once they have moved.

Heat of neighbours turns every arm by some phase that differs from setting to setting.  It is not modelled but counted
as noise: outputs of one reading err together, as the phases of all arms that its light goes through make them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_model import StartModel
from calibration._start_state import StartState, Sweep

_STEPS = 6
_LARGEST_STEP = 0.7
_CONVERGED = 0.03
_MOVED = 0.08
"""Steps after which readings are linearised again, rad."""
_HELD = 1e8
_THETA_SPREAD, _POOR_SPREAD = 0.06, 1.0
_PHI_SPREAD = 10.0
_LIGHT_SPREAD = 0.06
_ARM_SPREAD = 0.06
"""Phase of an arm that differs from setting to setting, rad."""
_OWN_SHARE = 0.05
_MODEL_SHARE = 0.06
_LEAK = 0.05
_FAINT = 0.003
_CHUNK = 24
"""Readings that are linearised at once (memory)."""


@dataclass
class _Told:
    """What a sweep says of the active parameters, linearised where ``vector`` was."""

    sweep: Sweep
    active: NDArray[np.intp]
    vector: Array
    moves: NDArray[np.bool_]
    normal: Array
    right: Array
    rms: float


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
        self._prior, self._centre = precision, self._vector()
        self._told: dict[int, _Told] = {}
        self._precision = np.diag(precision)

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
        stray = passed * (powers_w * around + passed * around**2)
        return np.asarray((_MODEL_SHARE * (powers_w + around)) ** 2 + stray + self._floor**2)

    @property
    def _floor(self) -> float:
        return float(np.hypot(_FAINT * self.norm_w / self._ports, self._state.noise.floor_w))

    def take_in(self, parts: list[tuple[Sweep, int]]) -> float:
        """Fit readings of a column with all before; returns their rms residual over the expected one."""
        for _ in range(_STEPS):
            for sweep, column in parts:
                self._tell(sweep, column)
            if self._step() < _CONVERGED:
                break
        told = [self._tell(sweep, column) for sweep, column in parts]
        return float(np.sqrt(np.mean([part.rms**2 for part in told])))

    def smooth(self, parts: list[tuple[Sweep, int]]) -> None:
        """Fit exactly these readings at once, from what was known before any; parts name their column."""
        wanted = {id(sweep) for sweep, _ in parts}
        self._told = {key: told for key, told in self._told.items() if key in wanted}
        for _ in range(_STEPS):
            for sweep, column in parts:
                self._tell(sweep, column)
            if self._step() < _CONVERGED:
                break

    def kept(self) -> tuple[Array, Array]:
        """Return what `restore` brings back: phases and light, and their precision."""
        return self._vector(), self._precision.copy()

    def restore(self, kept: tuple[Array, Array]) -> None:
        """Go back to what was known."""
        self._set(kept[0].copy())
        self._precision = kept[1]

    def _vector(self) -> Array:
        return np.concatenate([self._state.theta, self._state.phi, self.light])

    def _set(self, vector: Array) -> None:
        self._state.theta, self._state.phi, self.light = np.split(vector, [self._count, 2 * self._count])

    def _step(self) -> float:
        """Go to the minimum of all that readings told and the prior; returns the largest step."""
        vector = self._vector()
        normal, right = np.diag(self._prior), self._prior * (self._centre - vector)
        active = np.zeros(len(vector), dtype=np.bool_)
        for told in self._told.values():
            normal[np.ix_(told.active, told.active)] += told.normal
            right[told.active] += told.right - told.normal @ (vector - told.vector)[told.active]
            active[told.active] = True
        self._precision, places = normal, np.flatnonzero(active)
        step = np.linalg.solve(normal[np.ix_(places, places)], right[places])
        largest = float(np.abs(step).max())
        vector[places] += step * min(1.0, _LARGEST_STEP / largest)
        self._set(vector)
        return largest

    def _tell(self, sweep: Sweep, column: int) -> _Told:
        """Linearise what a sweep says, unless nothing has moved since that was done."""
        vector, told = self._vector(), self._told.get(id(sweep))
        moves = np.concatenate([self._state.moves_theta, self._state.moves_phi])
        if told is None or np.any(moves != told.moves) or np.abs(vector - told.vector)[told.active].max() > _MOVED:
            told = self._told[id(sweep)] = self._linearised(sweep, column, vector, moves)
        return told

    def _active(self, sweep: Sweep, column: int) -> tuple[NDArray[np.intp], int]:
        """Parameters that matter to a sweep, and the first column of their MZIs."""
        state = self._state
        cells = (state.column <= column) & ((state.column >= sweep.first) | ~state.good)
        first = int(state.column[cells].min()) if cells.any() else column
        return np.flatnonzero(np.concatenate([
            cells, cells & (state.column >= 2), np.ones(2 * self._ports, dtype=np.bool_)
        ])), first  # fmt: skip

    def _linearised(self, sweep: Sweep, column: int, vector: Array, moves: NDArray[np.bool_]) -> _Told:
        active, first = self._active(sweep, column)
        normal, right, chis = np.zeros((len(active), len(active))), np.zeros(len(active)), list[Array]()
        for start in range(0, len(sweep.lit), _CHUNK):
            part = sweep.take(np.arange(start, min(start + _CHUNK, len(sweep.lit))))
            left, slopes = self._whitened(part, active, first)
            chi = np.sqrt(np.sum(left**2, axis=1) / np.maximum(np.isfinite(part.readings_w).sum(axis=1), 1))
            # Readings far off weigh less, but never draw less.
            weight = 1.0 / np.sqrt(np.maximum(1.0, chi))
            slopes = (slopes * weight[:, None]).reshape(len(active), -1)
            normal += slopes @ slopes.T
            right += slopes @ (left * weight[:, None]).ravel()
            chis.append(chi)
        rms = float(np.sqrt(np.mean(np.concatenate(chis) ** 2)))
        inflation = sweep.alike * max(1.0, float(np.median(np.concatenate(chis))))
        return _Told(sweep, active, vector, moves, normal / inflation, right / inflation, rms)

    def _whitened(self, sweep: Sweep, active: NDArray[np.intp], first: int) -> tuple[Array, Array]:
        """Residuals (B, n) and slopes (a, B, n) by the active parameters, uncorrelated and in units of the noise."""
        powers, own, below, scattered = self.model.slopes(*self.phases(sweep), sweep.lit, first)
        scale, seen = self.scale(sweep.lit), np.isfinite(sweep.readings_w)
        predicted, outputs = scale * powers, np.arange(self._ports)
        behind = np.flatnonzero(np.tile(self._state.column >= first, 2))
        arms = np.concatenate([own[behind], below[behind]]).transpose(1, 2, 0)
        covariance = (arms @ arms.transpose(0, 2, 1)) * (_ARM_SPREAD**2 * scale[:, :, None] * scale[:, None, :])
        covariance[:, outputs, outputs] += self.alone(predicted, scale * scattered, _ARM_SPREAD**2, seen)
        white = np.linalg.inv(np.linalg.cholesky(covariance))
        left = np.where(seen, sweep.readings_w - predicted, 0.0)
        phases = active[active < 2 * self._count]
        slopes = np.zeros((len(active), *predicted.shape))
        slopes[: len(phases)] = own[phases] * scale
        slopes[len(phases) + outputs, :, outputs] = predicted.T
        slopes[len(phases) + self._ports + sweep.lit, np.arange(len(sweep.lit))] = predicted
        white_slopes = np.matmul(slopes.transpose(1, 0, 2), white.transpose(0, 2, 1)).transpose(1, 0, 2)
        return np.einsum("bij,bj->bi", white, left), white_slopes

    def alone(self, predicted_w: Array, scattered_w: Array, arm_variance: float, seen: NDArray[np.bool_]) -> Array:
        """Variance (B, n) in W^2 of readings beyond what phases of arms do to all outputs together."""
        # Where no light is predicted slopes are zero, but not what phases of arms send there; readings that are not
        # there have a variance without bounds.
        sent = arm_variance * np.maximum(scattered_w, 0.0)
        own = (_OWN_SHARE * predicted_w) ** 2 + self._floor**2 + 2.0 * sent**2
        return np.asarray(own + np.where(seen, 0.0, (1e6 * self.norm_w) ** 2))

    def deviations(self) -> tuple[Array, Array]:
        """Return standard deviations (K,) in rad of thetas and phis."""
        sigma = np.sqrt(np.diag(np.linalg.inv(self._precision)))
        return sigma[: self._count], sigma[self._count : 2 * self._count]
