"""Global refinement of a mesh's phases by gradients, in the placement that the chip has."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from optinc_hw.photonics._engine import plan
from optinc_hw.photonics._least_squares import ColumnProblem
from optinc_hw.photonics._matrices import matrices
from optinc_hw.photonics._mesh import STANDARD, MeshImperfections, MeshPhases
from optinc_hw.photonics._transfer import mesh_couplings, mesh_matrix, stuck
from optinc_hw.photonics.placement import _ARMS, from_standard, to_standard, wrapped

Criterion = Literal["fidelity", "columns", "real_part"]

_MOST_PORTS = 40
"""Larger meshes have too many phases for steps that solve for all of them at once."""
_MEMORY = 20
_ENOUGH = 1e-16
"""Infidelity at which nothing is left to gain."""
_STALL_STEPS, _STALL_GAIN = 50, 0.001
"""A descent has ended when this many steps lower the infidelity by less than this share."""


def infidelity(
    matrix: NDArray[np.complex128], target: NDArray[np.complex128], criterion: Criterion
) -> tuple[float, complex]:
    """Distance of ``matrix`` from ``scale * target`` at the best scale, squared, over ``|matrix|_F^2``; and the scale.

    For ``"fidelity"`` the scale is complex and the distance is 1 - F without its loss of digits; so it is for
    ``"columns"``, of the matrix with all columns scaled to one norm. For ``"real_part"`` real parts alone count and the
    scale is real, at least 0. A matrix of zeros is at distance 1.
    """
    distance, scale, _ = _distance(matrix, target, criterion)
    return distance, scale


def _distance(
    matrix: NDArray[np.complex128], target: NDArray[np.complex128], criterion: Criterion
) -> tuple[float, complex, NDArray[np.complex128]]:
    """Infidelity, scale, and the derivative by the matrix's real part plus i times that by its imaginary part."""
    if criterion == "columns":
        norms = np.maximum(np.linalg.norm(matrix, axis=0), np.finfo(float).tiny)
        columns = matrix / norms
        distance, scale, slope = _distance(columns, target, "fidelity")
        along = np.sum((columns.conj() * slope).real, axis=0)
        return distance, scale, np.asarray((slope - along * columns) / norms)
    seen, wanted = (matrix, target) if criterion == "fidelity" else (matrix.real, target.real)
    power = float(np.vdot(seen, seen).real)
    if power == 0.0:
        return 1.0, 0.0j, np.zeros_like(matrix)
    scale = complex(np.vdot(wanted, seen) / np.vdot(wanted, wanted).real)
    if criterion == "real_part":
        scale = complex(max(scale.real, 0.0))
    missed = seen - scale * wanted
    distance = float(np.vdot(missed, missed).real) / power
    return distance, scale, np.asarray(2.0 * (missed - distance * seen) / power, dtype=np.complex128)


@dataclass
class _Descent:
    """The objective over the phases that can be moved, and the record of its descent."""

    target: NDArray[np.complex128]
    flaws: MeshImperfections
    start: MeshPhases
    criterion: Criterion

    def __post_init__(self) -> None:
        held = [self.flaws.stuck_theta, self.flaws.stuck_phi]
        follows = [
            np.ones(len(self.start.layout.mzis), bool) if phases is None else np.isnan(phases) for phases in held
        ]
        self.free = np.concatenate([*follows, np.ones(self.start.layout.ports, bool)])
        # What `mesh_matrix` and `mesh_vjp` would work out again at every step.
        self.couplings = mesh_couplings(self.flaws)[None]
        self.plan = plan(self.start.layout, self.couplings)
        self.history: list[float] = []

    def phases(self, free: NDArray[np.float64]) -> MeshPhases:
        values = flat_phases(self.start)
        values[self.free] = free
        return unflat_phases(self.start, values)

    def __call__(self, free: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        phases = self.phases(free)
        standard, layout = to_standard(stuck(phases, self.flaws)), phases.layout
        theta, phi, output = (np.asarray(values[None]) for values in (standard.theta, standard.phi, standard.output))
        made = matrices(layout, theta, phi, output, self.couplings, self.plan, "phases")
        distance, _, cotangent = _distance(made.matrix[0], self.target, self.criterion)
        pulled = made.pull(cotangent[None])
        slopes = _pull_back(phases, pulled[0][0], pulled[1][0], pulled[2][0])[self.free]
        # Times n, the curvature along a phase is of the order of 1 for meshes of any size.
        return layout.ports * distance, layout.ports * slopes

    def watch(self, intermediate_result: OptimizeResult) -> None:
        """End the descent when nothing is left to gain; the parameter's name is scipy's."""
        self.history.append(float(intermediate_result.fun) / self.start.layout.ports)
        if self.ended:
            raise StopIteration

    @property
    def ended(self) -> bool:
        seen = self.history
        if not seen:
            return False
        stalled = len(seen) > _STALL_STEPS and seen[-1] > (1.0 - _STALL_GAIN) * seen[-1 - _STALL_STEPS]
        return stalled or seen[-1] < _ENOUGH


def refine(
    target: NDArray[np.complex128], flaws: MeshImperfections, start: MeshPhases, criterion: Criterion, max_steps: int
) -> tuple[MeshPhases, bool]:
    """Descend from ``start``; returns phases brought into their interval, and whether the descent ended.

    By least squares where they fit the criterion and the mesh is small, else by L-BFGS. Phases are periodic, so a
    descent needs no bounds.
    """
    descent = _Descent(target, flaws, start, criterion)
    first = flat_phases(start)[descent.free]
    if first.size == 0 or descent(first)[0] < _ENOUGH:
        return start, True
    if criterion == "columns" and start.placement == STANDARD and start.layout.ports <= _MOST_PORTS:
        problem = ColumnProblem(target, start.layout, flaws, descent.free)
        found, ended = problem.descend(flat_phases(stuck(start, flaws)), max_steps)
        return brought_in(unflat_phases(start, found), flaws), ended
    options = {"maxiter": max_steps, "maxfun": 4 * max_steps, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0}
    found = minimize(descent, first, jac=True, method="L-BFGS-B", callback=descent.watch, options=options)
    ended = descent.ended or (not found.success and found.nit < max_steps and found.nfev < options["maxfun"])
    phases = descent.phases(found.x)
    if criterion != "real_part":
        phases = _upright(phases, target, flaws)
    return brought_in(phases, flaws), ended


def _upright(phases: MeshPhases, target: NDArray[np.complex128], flaws: MeshImperfections) -> MeshPhases:
    """Turn all ports so that the matrix has the target's common phase, which fidelity does not see."""
    _, scale = infidelity(mesh_matrix(phases, flaws), target, "fidelity")
    values = flat_phases(phases)
    values[-phases.layout.ports :] -= np.angle(scale)
    return unflat_phases(phases, values)


def brought_in(phases: MeshPhases, flaws: MeshImperfections) -> MeshPhases:
    """Express the same matrix with phases in [0, 2 pi).

    Push-pull phases have a period of 4 pi: 2 pi turn both arms by pi. MZIs behind absorb that unless their phases are
    stuck; push-pull meshes with stuck MZIs therefore get phases in [0, 4 pi).
    """
    arms = (phases.placement.internal, phases.placement.external)
    if "push_pull" not in arms:
        return unflat_phases(phases, wrapped(flat_phases(phases)))
    if flaws.stuck_theta is None and flaws.stuck_phi is None:
        return from_standard(to_standard(phases), phases.placement)
    return unflat_phases(phases, 2.0 * wrapped(flat_phases(phases) / 2.0))


def flat_phases(phases: MeshPhases) -> NDArray[np.float64]:
    """Theta, phi and the phases of the ports in one array (2 K + n,)."""
    ports = phases.output if phases.input is None else phases.input
    return np.concatenate([phases.theta, phases.phi, ports])


def unflat_phases(like: MeshPhases, values: NDArray[np.float64]) -> MeshPhases:
    """Put an array (2 K + n,) into phases of the kind of ``like``."""
    mzis = len(like.layout.mzis)
    theta, phi, ports = values[:mzis], values[mzis : 2 * mzis], values[2 * mzis :]
    if like.input is None:
        return replace(like, theta=theta, phi=phi, output=ports)
    return replace(like, theta=theta, phi=phi, input=ports)


def _pull_back(
    phases: MeshPhases, theta: NDArray[np.float64], phi: NDArray[np.float64], output: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Slopes (2 K + n,) by phases in their own placement from those in the standard one; `to_standard` transposed."""
    placement, modes = phases.placement, phases.layout.modes
    upper, lower = _ARMS[placement.external]
    inner_upper, inner_lower = _ARMS[placement.internal]
    if inner_lower == lower == 0.0 and placement.side == "before" and phases.input is None:
        return np.concatenate([theta, phi, output])
    theta, outer, carried = (inner_upper - inner_lower) * theta, np.empty_like(phi), output.copy()
    for column in reversed(phases.layout.columns):
        k = np.asarray(column, dtype=np.int64)
        up, down = carried[modes[k]], carried[modes[k] + 1]
        theta[k] += inner_lower * (up + down)
        carried[modes[k]], carried[modes[k] + 1] = phi[k], up + down - phi[k]
        before = upper * phi[k] + lower * (up + down - phi[k])
        outer[k] = before if placement.side == "before" else upper * up + lower * down
    return np.concatenate([theta, outer, output if phases.input is None else carried])
