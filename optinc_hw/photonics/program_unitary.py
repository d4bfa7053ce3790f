"""Programming a unitary through a calibrated twin: from the target to the powers of the mesh's heaters."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._mesh import MeshPhases
from optinc_hw.photonics._mesh_plan import LimitingMzi
from optinc_hw.photonics._transfer import mesh_matrix
from optinc_hw.photonics._unitary import fidelity, require_unitary, square_matrix
from optinc_hw.photonics.heaters import solve_powers
from optinc_hw.photonics.program_mesh import MeshProgram, program_mesh
from optinc_hw.photonics.twin import TwinParameters

_MAX_STEPS = 10_000
_STUCK_ROUNDS = 4
"""Heat of the other heaters moves stuck phases; so often is the target programmed around where they are by then."""


@dataclass(frozen=True)
class ProgrammedUnitary:
    """Heater powers with which a mesh comes as near to a unitary as was found.

    Parameters
    ----------
    target
        The unitary (n, n).
    power_w
        Powers (H,) in W; heaters outside the mesh are at 0.
    matrix
        What the twin predicts of the mesh (n, n), complex: without the light's ways to and from it.
    fidelity
        ``|Tr(U^dagger A S B)|^2 / n^2`` of it with every column of S scaled to norm 1, maximised over phases of the
        outputs (A) and the inputs (B), which power detectors do not see.
    limiting
        MZIs that keep the mesh from the target, the worst first.
    """

    target: NDArray[np.complex128]
    power_w: NDArray[np.float64]
    matrix: NDArray[np.complex128]
    fidelity: float
    limiting: tuple[LimitingMzi, ...]

    @property
    def distribution(self) -> NDArray[np.float64]:
        """Predicted share (n, n) of each input's light (column) that leaves by each output (row)."""
        powers = np.abs(self.matrix) ** 2
        return np.asarray(powers / powers.sum(axis=0))


def program_unitary(
    parameters: TwinParameters, target: ArrayLike, max_power_w: ArrayLike = np.inf
) -> ProgrammedUnitary:
    """Find heater powers of a mesh for a unitary; couplers, losses and crosstalk of the twin are taken into account.

    Phases behind the mesh are free: power detectors do not see them.  Stuck phases stay where they are, and the rest
    of the mesh is programmed around them.

    Parameters
    ----------
    parameters
        The calibrated (or nominal) chip.
    target
        ``(n, n)`` unitary.
    max_power_w
        Limit of every heater (H,) or of all, in W.

    Returns
    -------
    ProgrammedUnitary
        Powers and what the twin predicts of them.

    Raises
    ------
    MatrixError
        If the target is not unitary or does not fit the chip.
    LimitError
        If a heater would exceed its limit.
    """
    unitary, _ = require_unitary(square_matrix(target))
    if len(unitary) != parameters.ports:
        raise MatrixError(f"the target has shape {unitary.shape}, the chip {parameters.ports} ports; they must agree")
    layout = parameters.layout
    limits = np.broadcast_to(np.asarray(max_power_w, float), parameters.offset.shape)
    mesh = np.concatenate([layout.mesh_theta, layout.mesh_phi])
    driven = mesh[layout.movable[mesh]]
    power = np.zeros(len(limits))
    program = _programmed(parameters, unitary, power, None)
    for begun in range(_STUCK_ROUNDS if layout.stuck else 1):
        if begun:
            program = _programmed(parameters, unitary, power, program)
        wanted = np.zeros(len(limits))
        wanted[mesh] = np.concatenate([program.phases.theta, program.phases.phi])
        power = np.zeros(len(limits))
        power[driven] = solve_powers(parameters, wanted[driven], chosen=driven, max_power_w=limits[driven])
    matrix = mesh_of(parameters, power)
    reached = fidelity(unitary, matrix / np.linalg.norm(matrix, axis=0), gauge="ports")
    return ProgrammedUnitary(unitary, power, matrix, reached, program.limiting)


def _programmed(
    parameters: TwinParameters,
    unitary: NDArray[np.complex128],
    power_w: NDArray[np.float64],
    before: MeshProgram | None,
) -> MeshProgram:
    """Program the mesh with stuck phases as they are at the powers of the other heaters."""
    layout, phases = parameters.layout, parameters.phases(power_w)
    held = np.where(layout.movable, np.nan, phases)
    flaws, _ = parameters.mesh_imperfections()
    if layout.stuck:
        flaws = replace(flaws, stuck_theta=held[layout.mesh_theta], stuck_phi=held[layout.mesh_phi])
    start = None if before is None else before.phases
    return program_mesh(unitary, layout.mesh, flaws, criterion="columns", max_steps=_MAX_STEPS, start=start)


def mesh_of(parameters: TwinParameters, power_w: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Complex matrix (n, n) of the mesh alone at heater powers (H,) in W."""
    layout, phases = parameters.layout, parameters.phases(power_w)
    flaws, before = parameters.mesh_imperfections()
    output = np.zeros(parameters.ports)
    setting = MeshPhases(layout.mesh, phases[layout.mesh_theta], phases[layout.mesh_phi], output)
    return np.asarray(mesh_matrix(setting, flaws) * before)
