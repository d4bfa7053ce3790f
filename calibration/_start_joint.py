"""The last fit of a start: all its readings at once, with what a column by itself cannot tell apart.

To the parameters of `StartFilter` come those that all heaters share - mean crosstalk against distance, the common
scale of efficiencies, the mean coupler angle - and both phases of each MZI in the bar state beside those at random
powers: there it stands whenever others are measured, always with the same heat around it, and what light it lets across
is as much that of unequal couplers, in whose place the second phase stands.

What is left of the heat scatters.  What moves from reading to reading of a group errs anew in each; what stands still
errs alike in all of them, as an unknown shift of the group's phases.  So the more readings of a group do not tell the
more, and errors that add up along the light show in the deviations stated.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from calibration._session import Array
from calibration._start_filter import StartFilter
from calibration._start_heat import LENGTHS, MEAN_SPREAD, StartHeat
from calibration._start_model import Single, StartModel
from calibration._start_state import StartState, Sweep

Parts = list[tuple[Sweep, int]]
Cells = NDArray[np.bool_]

_THETA_SPREAD, _POOR_SPREAD, _PHI_SPREAD = 0.1, 1.0, 2.0
_SCALE_SPREAD, _EXCESS_SPREAD = 0.04, 0.08
_LACKING = 0.02
"""Phase in rad on every arm that stands for couplers and losses of single MZIs."""
_STEPS, _CONVERGED, _LARGEST_STEP = 3, 0.05, 0.7
_CHUNK = 24
"""Readings that are linearised at once (memory)."""
_EXCESS_STEP = 0.01
_BAR_PHI_SPREAD = 0.7
"""Light across an MZI in the bar state by unequal couplers is about as much as that by a phase of 0.07 rad."""


class JointFit(StartFilter):
    """All readings of a start at once.

    Parameters
    ----------
    state
        Phases near the right ones; they are updated.
    begun
        The filter that found them.
    """

    def __init__(self, state: StartState, begun: StartFilter) -> None:
        self._shared, self._bar = np.zeros(len(LENGTHS) + 2), np.zeros(2 * len(state.column))
        super().__init__(state)
        self.light, self._heat = begun.light.copy(), StartHeat.of(state.probe.layout)
        poor = np.array([bool(reason) for reason in state.theta_reason])
        self._prior[: self._count] = 1.0 / np.where(poor, _POOR_SPREAD, _THETA_SPREAD) ** 2
        late = self._count + np.flatnonzero(state.column >= 2)
        self._prior[late] = 1.0 / _PHI_SPREAD**2
        shared = np.array([*([MEAN_SPREAD] * len(LENGTHS)), _SCALE_SPREAD, _EXCESS_SPREAD])
        turned = np.full(self._count, _BAR_PHI_SPREAD)
        self._prior = np.concatenate([self._prior, 1.0 / shared**2, 1.0 / self._bar_variance(), 1.0 / turned**2])
        self._precision = np.diag(self._prior)

    def fit(self, parts: Parts) -> None:
        """Fit all readings, unless that ends farther from them than it began; parts name their column."""
        known, before, unlearned = self._vector(), self._distance(parts), (self._heat, self._prior.copy())
        for _ in range(_STEPS):
            if self._step_to(parts) < _CONVERGED:
                break
        self._learn_scatter()
        self._step_to(parts)
        if self._distance(parts) > before:
            self._heat, self._prior = unlearned
            self._set(known)
            self._precision = self._said_by(parts)[0]

    def _step_to(self, parts: Parts) -> float:
        """Go to the minimum of what all readings say here and the prior; returns the largest step."""
        vector = self._vector()
        normal, right = self._said_by(parts)
        self._precision = normal
        step = cho_solve(cho_factor(normal, overwrite_a=False), right)
        rest = len(step) - len(self._bar)
        largest = float(np.abs(step[:rest]).max())
        step[:rest] *= min(1.0, _LARGEST_STEP / largest)
        # Bar phases of single MZIs may be hardly known, and hold up nothing.
        step[rest:] = np.clip(step[rest:], -_LARGEST_STEP, _LARGEST_STEP)
        self._set(vector + step)
        return largest

    def _said_by(self, parts: Parts) -> tuple[Array, Array]:
        """Return normal matrix and right side of all readings and the prior at the present phases."""
        normal, right = np.diag(self._prior), self._prior * (self._centre - self._vector())
        for sweep, column in parts:
            active, more, and_right = self._said(sweep, column)
            normal[np.ix_(active, active)] += more
            right[active] += and_right
        return normal, right

    def _learn_scatter(self) -> None:
        """Make heat scatter as much as the bar phases do, as far as they are known: one step of the EM algorithm."""
        thetas = slice(-2 * self._count, -self._count)
        left = np.diag(cho_solve(cho_factor(self._precision), np.eye(len(self._prior))))[thetas]
        factor = float(np.mean((self._bar[: self._count] ** 2 + left) * self._prior[thetas]))
        self._heat = replace(self._heat, variance=self._heat.variance * factor)
        self._prior[thetas] = 1.0 / self._bar_variance()

    @property
    def crosstalk(self) -> Array:
        """Change (H, H) of the phases per heaters' own phase by mean crosstalk, in the layout's order."""
        matrix = np.zeros((2 * self._count, 2 * self._count))
        matrix[self._heat.upper] = np.tensordot(self._shared[: len(LENGTHS)], self._heat.mean, 1)
        return matrix

    def settle(self) -> None:
        """Hand what all heaters share to the state: what is said of phases holds without crosstalk from then on."""
        state, layout, scale = self._state, self._state.probe.layout, float(self._shared[-2])
        # Phases hold at mid-range powers, where a common scale turns them by nothing.
        state.theta = state.theta - np.pi * scale * state.moves_theta
        state.phi = state.phi - np.pi * scale * state.moves_phi
        moves = np.zeros(len(layout.heaters), dtype=np.bool_)
        moves[layout.mesh_theta], moves[layout.mesh_phi] = state.moves_theta, state.moves_phi
        state.efficiency = state.efficiency * (1.0 + scale * moves)
        state.couplers = replace(state.couplers, excess=self._excess)

    @property
    def _excess(self) -> float:
        return self._state.couplers.excess + float(self._shared[-1])

    def _bar_variance(self) -> Array:
        """Variance (K,) of thetas in the bar state, from the heat of all others there and their own."""
        state, every = self._state, np.arange(self._count)
        power = np.zeros(2 * self._count)
        power[: self._count] = (state.still(every) - np.pi) * state.moves_theta
        arms = self._heat.variance @ self._by_heater(power) ** 2
        return np.asarray(arms[self._heat.upper] + arms[self._heat.lower] + _LACKING**2)[: self._count]

    def _by_heater(self, values: Array) -> Array:
        """Bring values (..., 2K), thetas first, into the layout's order."""
        result = np.zeros_like(values)
        result[..., self._heat.upper] = values
        return result

    def _heated(self, sweep: Sweep) -> Array:
        """Phases (R, 2K) in rad of the heaters themselves beyond mid-range, thetas first; 0 of dead ones."""
        moves = np.concatenate([self._state.moves_theta, self._state.moves_phi])
        return np.asarray((sweep.phase[:, self._heat.upper] - np.pi) * moves)

    def _changes(self, sweep: Sweep) -> Single:
        """Return changes (L + 1, R, 2K) of all phases by unit mean crosstalk of each length, and by the scale."""
        own = self._heated(sweep)
        heat = self._by_heater(own).astype(np.float32)
        return np.concatenate([heat @ self._heat.mean.transpose(0, 2, 1), own[None].astype(np.float32)])

    def phases(self, sweep: Sweep) -> tuple[Array, Array]:
        """Phases theta and phi (B, K) in rad of a sweep, mean crosstalk included."""
        return self._changed(sweep, self._changes(sweep))

    def _changed(self, sweep: Sweep, changes: Single, stands: Cells | None = None) -> tuple[Array, Array]:
        theta, phi = super().phases(sweep)
        change = np.tensordot(self._shared[:-1], changes, 1)
        if stands is not None:
            change = change + self._bar * np.tile(stands, 2)
        return theta + change[:, : self._count], phi + change[:, self._count :]

    def _stands(self, sweep: Sweep, column: int) -> Cells:
        """Whether each MZI (K,) stands in the bar state in a sweep."""
        return np.asarray((self._state.column > column) | (self._state.column < sweep.first))

    def _distance(self, parts: Parts) -> float:
        """Mean total variation distance of all readings."""
        left = total = 0.0
        for sweep, column in parts:
            theta, phi = self._changed(sweep, self._changes(sweep), self._stands(sweep, column))
            predicted = self.scale(sweep.lit) * np.abs(self.model.fields(theta, phi, sweep.lit)) ** 2
            left += float(np.nansum(np.abs(predicted - sweep.readings_w)))
            total += float(np.nansum(predicted + sweep.readings_w))
        return left / total

    def _vector(self) -> Array:
        return np.concatenate([super()._vector(), self._shared, self._bar])

    def _set(self, vector: Array) -> None:
        first, self._shared, self._bar = np.split(vector, np.cumsum([len(vector) - len(self._shared) - 2 * self._count,
                                                                     len(self._shared)]))  # fmt: skip
        super()._set(first)
        self.model = StartModel(self.model.mesh, np.pi / 4 + 0.5 * self._excess)

    def _said(self, sweep: Sweep, column: int) -> tuple[NDArray[np.intp], Array, Array]:
        """Return what a sweep says: the parameters it speaks of, normal matrix and right side."""
        stands = self._stands(sweep, column)
        late = self._count + np.flatnonzero(self._state.column >= 2)
        light = 2 * self._count + np.arange(2 * self._ports + len(self._shared))
        active = np.concatenate([np.arange(self._count), late, light])
        normal, right, chis = np.zeros((len(active), len(active))), np.zeros(len(active)), list[Array]()
        for rows in self._groups(sweep, column):
            more, and_right, chi = self._group(sweep.take(rows), stands, active)
            normal += more
            right += and_right
            chis.append(chi)
        inflation = max(1.0, float(np.median(np.concatenate(chis))))
        # Where an MZI stands, its bar phases add to both of it.
        standing = np.flatnonzero(np.tile(stands, 2)[active[active < 2 * self._count]])
        source = np.concatenate([np.arange(len(active)), standing])
        active = np.concatenate([active, light[-1] + 1 + active[standing]])
        return active, normal[np.ix_(source, source)] / inflation, right[source] / inflation

    def _groups(self, sweep: Sweep, column: int) -> list[NDArray[np.intp]]:
        """Return rows of readings between which thetas before the column stand still; all rows if none do."""
        before = (self._state.column < column) & (self._state.column >= sweep.first)
        thetas = sweep.phase[:, self._heat.upper[: self._count][before]]
        held = np.all(thetas[1:] == thetas[:-1], axis=1)
        every = np.arange(len(sweep.lit))
        return np.split(every, np.flatnonzero(~held) + 1) if held.any() else [every]

    def _group(self, group: Sweep, stands: Cells, active: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """Return normal matrix, right side, and each reading's residual over the expected one."""
        own = self._heated(group)
        single, common = self._arms(own, stands)
        parts = [
            self._whitened_group(group.take(rows), stands, active, single, float(np.mean(single + common)))
            for rows in np.array_split(np.arange(len(group.lit)), -(-len(group.lit) // _CHUNK))
        ]
        left, slopes = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts], axis=1)
        shifted = np.flatnonzero(~np.tile(stands, 2)[active[active < 2 * self._count]])
        pushed = self._heat.pushed[active[shifted]]
        root = np.linalg.cholesky((pushed * common) @ pushed.T + 1e-10 * np.eye(len(shifted))).astype(np.float32)
        shifts = root.T @ slopes[shifted].reshape(len(shifted), -1)
        found = np.linalg.solve(np.eye(len(shifted), dtype=np.float32) + shifts @ shifts.T, shifts @ left.ravel())
        seen = np.maximum(np.isfinite(group.readings_w).sum(axis=1), 1)
        chi = np.sqrt(np.sum((left - (found @ shifts).reshape(left.shape)) ** 2, axis=1) / seen)
        # Readings far off weigh less, but never draw less.
        weight = 1.0 / np.sqrt(np.maximum(1.0, chi))
        rows = (slopes * weight[:, None]).reshape(len(slopes), -1)
        normal, right = (rows @ rows.T).astype(np.float64), (rows @ (left * weight[:, None]).ravel()).astype(np.float64)
        across = normal[:, shifted] @ root.astype(np.float64)
        solved = np.linalg.solve(
            np.eye(len(shifted)) + root.T @ across[shifted], np.column_stack([across.T, root.T @ right[shifted]])
        )
        return normal - across @ solved[:, :-1], right - across @ solved[:, -1], chi

    def _arms(self, own: Array, stands: Cells) -> tuple[Array, Array]:
        """Variances (A,) of the arms' phases: of single readings, and of what a group shares."""
        heat = self._heat
        single = heat.variance @ self._by_heater(own.var(axis=0))
        mean = self._by_heater(own.mean(axis=0)) ** 2
        standing = self._by_heater(np.concatenate([stands, np.zeros(self._count, dtype=np.bool_)]))
        # What standing MZIs do to each other belongs to their bar phases.
        at_rest = np.zeros(self._state.probe.layout.mesh.depth, dtype=np.bool_)
        at_rest[self._state.column[stands]] = True
        common = heat.variance @ mean - at_rest[heat.column] * (heat.variance[:, standing] @ mean[standing])
        return single, np.maximum(common, 0.0) + _LACKING**2

    def _whitened_group(
        self, sweep: Sweep, stands: Cells, active: NDArray[np.intp], single: Array, spread: float
    ) -> tuple[Single, Single]:
        """Residuals (B, n) and slopes (a, B, n) by the active parameters, uncorrelated and in units of the noise."""
        changes = self._changes(sweep)
        theta, phi = self._changed(sweep, changes, stands)
        powers, own, below, scattered = self.model.slopes(theta, phi, sweep.lit)
        scale, seen, outputs = self.scale(sweep.lit), np.isfinite(sweep.readings_w), np.arange(self._ports)
        predicted = scale * powers
        roots = np.sqrt(np.concatenate([single[self._heat.upper], single[self._heat.lower]])).astype(np.float32)
        arms = (np.concatenate([own, below]) * roots[:, None, None]).transpose(1, 2, 0)
        covariance = (arms @ arms.transpose(0, 2, 1)) * (scale[:, :, None] * scale[:, None, :])
        covariance[:, outputs, outputs] += self.alone(predicted, scale * scattered, float(np.mean(single)), seen)
        white = np.linalg.inv(np.linalg.cholesky(covariance))
        left = np.where(seen, sweep.readings_w - predicted - spread * scale * scattered, 0.0)
        phases = active[active < 2 * self._count]
        slopes = np.zeros((len(active), *predicted.shape), dtype=np.float32)
        slopes[: len(phases)] = own[phases] * scale
        after = len(phases) + self._ports
        slopes[len(phases) + outputs, :, outputs] = predicted.T
        slopes[after + sweep.lit, np.arange(len(sweep.lit))] = predicted
        shared = changes.transpose(1, 0, 2) @ own.transpose(1, 0, 2)
        slopes[after + self._ports : -1] = shared.transpose(1, 0, 2) * scale
        other = StartModel(self.model.mesh, np.pi / 4 + 0.5 * (self._excess + _EXCESS_STEP))
        slopes[-1] = scale * (np.abs(other.fields(theta, phi, sweep.lit)) ** 2 - powers) / _EXCESS_STEP
        turned = white.transpose(0, 2, 1).astype(np.float32)
        white_slopes = np.matmul(slopes.transpose(1, 0, 2), turned).transpose(1, 0, 2)
        return np.einsum("bij,bj->bi", white, left).astype(np.float32), white_slopes
