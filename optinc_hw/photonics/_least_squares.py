"""Refinement of a small mesh's phases by damped Newton steps.

With every column scaled to norm 1 and free phases at the outputs, ``|S - U|_F^2 = 2 n (1 - sqrt(F))``: the best
fidelity is a least-squares fit of n^2 complex numbers.  Its second derivatives are taken in full: at a permutation,
all bar and cross states, light that leaks turns on small circles, and the Gauss-Newton part alone, which sees straight
lines, ends at other places from every start (20 ports, couplers 0.02 rad, 400 steps: 1 - F 2e-3 instead of 1.5e-4).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from optinc_hw.photonics._mesh import MeshImperfections
from optinc_hw.photonics.mesh_layout import MeshLayout

_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-9, 1e6
_FIRMER, _LOOSER = 3.0, 1.0 / 3.0
_POOR_STEP, _GOOD_STEP = 0.25, 0.75
"""Gains, in parts of what the second order promises, below which damping grows and above which it shrinks."""
_GAIN = 1e-5
"""Share of the cost that a step must gain; a few steps of less and the descent has ended."""
_IDLE_STEPS = 3
_ENOUGH = 1e-16

_Complex = NDArray[np.complex128]
_Real = NDArray[np.float64]


@dataclass(frozen=True)
class _Fields:
    """Matrix of a mesh and its derivative by each phase: i times left (n, K) outer right (K, n), theta then phi."""

    matrix: _Complex
    left: tuple[_Complex, _Complex]
    right: tuple[_Complex, _Complex]


class ColumnProblem:
    """Distance of a mesh's matrix, every column scaled to norm 1, from a unitary.

    Parameters
    ----------
    target
        Unitary (n, n).
    layout
        The mesh.
    flaws
        Imperfections of one chip.
    free
        Which phases (2 K + n,), theta, phi, outputs, can be moved.
    """

    def __init__(self, target: _Complex, layout: MeshLayout, flaws: MeshImperfections, free: NDArray[np.bool_]) -> None:
        self._target, self._free = target, free
        self._ports, self._mzis = layout.ports, len(layout.mzis)
        self._columns = [(np.asarray(column), layout.modes[np.asarray(column)]) for column in layout.columns]
        ones = np.ones((self._mzis, 2))
        self._first = np.cos(flaws.eta_in)[:, None], 1j * np.sin(flaws.eta_in)[:, None]
        self._second = np.cos(flaws.eta_out)[:, None], 1j * np.sin(flaws.eta_out)[:, None]
        self._arms = ones if flaws.arms is None else flaws.arms
        self._behind = flaws.transmission[:, None] * (ones if flaws.behind is None else flaws.behind)

    def _fields(self, phases: _Real) -> _Fields:
        mzis, ports = self._mzis, self._ports
        inner, outer, output = np.split(np.exp(1j * phases)[:, None], [mzis, 2 * mzis])
        before = self._arms * np.concatenate([inner, np.ones((mzis, 1))], axis=1)
        right = np.empty((2, mzis, ports), dtype=np.complex128)
        light = np.eye(ports, dtype=np.complex128)
        for k, mode in self._columns:
            upper, lower = light[mode] * outer[k], light[mode + 1]
            right[1, k] = upper
            upper, lower = _couple(self._first, k, upper, lower)
            upper, lower = upper * before[k, :1], lower * before[k, 1:]
            right[0, k] = upper
            upper, lower = _couple(self._second, k, upper, lower)
            light[mode], light[mode + 1] = upper * self._behind[k, :1], lower * self._behind[k, 1:]
        left = np.empty((2, mzis, ports), dtype=np.complex128)
        ways = np.diag(output[:, 0])  # ways[m]: how light in waveguide m arrives at the outputs
        for k, mode in reversed(self._columns):
            upper, lower = ways[mode] * self._behind[k, :1], ways[mode + 1] * self._behind[k, 1:]
            upper, lower = _couple(self._second, k, upper, lower)
            left[0, k] = upper
            upper, lower = _couple(self._first, k, upper * before[k, :1], lower * before[k, 1:])
            left[1, k] = upper
            ways[mode], ways[mode + 1] = upper * outer[k], lower
        return _Fields(output * light, (left[0].T, left[1].T), (right[0], right[1]))

    def residual(self, phases: _Real) -> tuple[_Complex, _Fields]:
        """Return the difference (n, n) from the target, and what its derivatives need."""
        fields = self._fields(phases)
        norms = np.maximum(np.linalg.norm(fields.matrix, axis=0), np.finfo(float).tiny)
        return fields.matrix / norms - self._target, fields

    def jacobian(self, fields: _Fields) -> _Real:
        """Differentiate real and imaginary part of the residual (2 n^2,) by the free phases."""
        mzis, ports = self._mzis, self._ports
        slope = np.zeros((len(self._free), ports, ports), dtype=np.complex128)
        for kind, (left, right) in enumerate(zip(fields.left, fields.right, strict=True)):
            slope[kind * mzis : (kind + 1) * mzis] = 1j * left.T[:, :, None] * right[:, None, :]
        each = np.arange(ports)
        slope[2 * mzis + each, each] = 1j * fields.matrix
        slope = slope[self._free]
        norms = np.maximum(np.linalg.norm(fields.matrix, axis=0), np.finfo(float).tiny)
        columns = fields.matrix / norms
        slope /= norms
        along = np.einsum("ij,kij->kj", columns.real, slope.real) + np.einsum("ij,kij->kj", columns.imag, slope.imag)
        slope -= along[:, None, :] * columns
        return slope.reshape(len(slope), -1).view(np.float64).T

    def curvature(self, phases: _Real, residual: _Complex, fields: _Fields) -> _Real:
        """Sum of the residual times its second derivatives by the free phases, the columns' norms held."""
        mzis, ports = self._mzis, self._ports
        norms = np.maximum(np.linalg.norm(fields.matrix, axis=0), np.finfo(float).tiny)
        pull = residual.conj() / norms
        left = np.concatenate([part.T for part in fields.left])
        pulled = np.concatenate(fields.right) @ pull.T
        later = -((left @ pulled.T) * self._ways_between(phases)).real
        result = np.zeros((2 * mzis + ports, 2 * mzis + ports))
        result[: 2 * mzis, : 2 * mzis] = later + later.T
        result[: 2 * mzis, 2 * mzis :] = -(left * pulled).real
        result[2 * mzis :, : 2 * mzis] = result[: 2 * mzis, 2 * mzis :].T
        own = [-(left * pulled).real.sum(axis=1), -(pull * fields.matrix).real.sum(axis=1)]
        result[np.diag_indices_from(result)] = np.concatenate(own)
        return result[np.ix_(self._free, self._free)]

    def _ways_between(self, phases: _Real) -> _Complex:
        """Amplitude (2 K, 2 K) at each phase shifter, theta then phi, of light of amplitude 1 behind an earlier one."""
        mzis, ports = self._mzis, self._ports
        inner, outer = np.split(np.exp(1j * phases[: 2 * mzis])[:, None], 2)
        before = self._arms * np.concatenate([inner, np.ones((mzis, 1))], axis=1)
        ways = np.empty((2 * mzis, 2 * mzis), dtype=np.complex128)
        light = np.zeros((ports, 2 * mzis), dtype=np.complex128)
        for k, mode in self._columns:
            each = np.arange(len(k))
            upper, lower = light[mode] * outer[k], light[mode + 1]
            ways[mzis + k] = upper
            upper[each, mzis + k] = 1.0
            upper, lower = _couple(self._first, k, upper, lower)
            upper, lower = upper * before[k, :1], lower * before[k, 1:]
            ways[k] = upper
            upper[each, k] = 1.0
            upper, lower = _couple(self._second, k, upper, lower)
            light[mode], light[mode + 1] = upper * self._behind[k, :1], lower * self._behind[k, 1:]
        return ways

    def descend(self, phases: _Real, max_steps: int) -> tuple[_Real, bool]:
        """Lower the distance from ``phases`` (2 K + n,) on; returns the phases, and whether the descent ended."""
        residual, fields = self.residual(phases)
        cost, damping, idle = float(np.vdot(residual, residual).real), _DAMPING, 0
        for _ in range(max_steps):
            jacobian = self.jacobian(fields)
            slope = jacobian.T @ residual.reshape(-1).view(np.float64)
            hessian = jacobian.T @ jacobian + self.curvature(phases, residual, fields)
            while damping < _MOST_DAMPING:
                step = _damped(hessian, slope, damping)
                if step is None:
                    damping *= _FIRMER
                    continue
                moved = phases.copy()
                moved[self._free] += step
                new_residual, new_fields = self.residual(moved)
                new_cost = float(np.vdot(new_residual, new_residual).real)
                promised = -float(2.0 * slope @ step + step @ hessian @ step)
                if cost - new_cost <= _POOR_STEP * promised:
                    damping *= _FIRMER
                elif cost - new_cost > _GOOD_STEP * promised:
                    damping = max(damping * _LOOSER, _LEAST_DAMPING)
                if new_cost < cost:
                    break
            else:
                return phases, True
            idle = idle + 1 if cost - new_cost < _GAIN * cost else 0
            phases, residual, fields, cost = moved, new_residual, new_fields, new_cost
            if idle == _IDLE_STEPS or cost < _ENOUGH * self._ports:
                return phases, True
        return phases, False


def _damped(hessian: _Real, slope: _Real, damping: float) -> _Real | None:
    """Newton step, or None where the damped Hessian is not positive definite."""
    try:
        factor = cho_factor(hessian + damping * np.eye(len(hessian)))
    except LinAlgError:
        return None
    return -np.asarray(cho_solve(factor, slope))


def _couple(
    coupler: tuple[_Complex, _Complex], k: NDArray[np.intp], upper: _Complex, lower: _Complex
) -> tuple[_Complex, _Complex]:
    """Mix two waveguides; a coupler is its own transpose."""
    bar, cross = coupler[0][k], coupler[1][k]
    return bar * upper + cross * lower, cross * upper + bar * lower
