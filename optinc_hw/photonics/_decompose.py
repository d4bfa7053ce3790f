"""Decomposition of unitaries into the phases of a rectangular or a triangular mesh."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._mesh import STANDARD, MeshPhases, PhasePlacement
from optinc_hw.photonics._transfer import mesh_matrix
from optinc_hw.photonics._unitary import polar_factor, require_unitary, square_matrices
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout, TriangularLayout
from optinc_hw.photonics.placement import fold_push_pull, from_standard

_ROUND_OFF = 1e-11
_FOLDED = PhasePlacement("push_pull", "push_pull")

_Shape = Literal["rectangular", "triangular"]


@dataclass(frozen=True, kw_only=True)
class Decomposition(MeshPhases):
    """Phases that make a wanted unitary, and how well they do.

    Parameters
    ----------
    error
        Largest entry ``(...)`` of the difference between `mesh_matrix` of the phases and the unitary that was
        decomposed; a number for one matrix.
    distance
        Largest singular value ``(...)`` of the difference between the matrix that was asked for and the unitary that
        was decomposed, which no entry of that difference exceeds; 0 unless ``nearest_unitary`` was set.
    """

    error: float | NDArray[np.float64]
    distance: float | NDArray[np.float64]


def decompose(
    unitary: ArrayLike,
    layout: MeshLayout,
    *,
    placement: PhasePlacement = STANDARD,
    nearest_unitary: bool = False,
) -> Decomposition:
    """Find the phases with which an ideal mesh makes a unitary.

    Elements are nulled one by one: in a triangular mesh row by row from the right (M. Reck et al., Phys. Rev.
    Lett. 73, 58, 1994), in a rectangular one alternately from the right and from the left, after which the left
    factors are pushed through the diagonal (W. R. Clements et al., Optica 3, 1460, 2016).

    Phases are unique but for MZIs in the bar state (theta = pi) or the cross state (theta = 0), whose external phase
    could as well stand behind them: it is set to phi = pi, so that the identity is all bar with phi = pi and output 0.

    Parameters
    ----------
    unitary
        ``(n, n)`` or a batch ``(..., n, n)``, real or complex, n = ``layout.ports``; rows are outputs. It must be
        unitary to ``max |U^dagger U - 1| <= 1e-9``, which matrices in single precision are not.
    layout
        A rectangular or triangular mesh, or any other description of the same MZIs.
    placement
        Where the chip has its phase shifters.
    nearest_unitary
        Decompose the closest unitary instead, whatever its distance, and report that.

    Returns
    -------
    Decomposition
        In rad: theta in [0, pi], phi and output in [0, 2 pi). In another placement as `convert_phases` gives them,
        but with both phases in push-pull and the external one before the MZI: theta in [-pi, pi], phi in
        [pi/2, 3 pi/2) and output in [0, 2 pi); for real matrices every phi is then pi, to round-off.

    Raises
    ------
    MatrixError
        If the mesh is neither rectangular nor triangular; if a matrix is not square, finite, of the layout's size
        or unitary, or, with ``nearest_unitary``, is of deficient rank; if the phases found do not reproduce a matrix
        to 1e-11 plus 2 n times its own ``max |U^dagger U - 1|``.
    """
    steps, transposed = _steps(_shape(layout), layout.ports)
    if nearest_unitary:
        target, distance = polar_factor(_sized(square_matrices(unitary), layout))
        deviation = np.zeros_like(distance)
    else:
        target, deviation = require_unitary(unitary)
        target = _sized(target, layout)
        distance = np.zeros_like(deviation)
    found = _place(_standard_phases(target, layout, steps, transposed), placement)
    error = np.abs(mesh_matrix(found) - target).max((-2, -1))
    limit = _ROUND_OFF + 2.0 * layout.ports * deviation
    if not (error <= limit).all():
        worst = np.argmax(error - limit)
        raise MatrixError(
            f"the phases found reproduce the matrix only to {np.ravel(error)[worst]:.3g}, not to "
            f"{np.ravel(limit)[worst]:.3g}; decompose with nearest_unitary=True"
        )
    return Decomposition(
        layout,
        found.theta,
        found.phi,
        found.output,
        found.input,
        placement,
        error=error if error.ndim else float(error),
        distance=distance if distance.ndim else float(distance),
    )


def _standard_phases(
    target: NDArray[np.complex128], layout: MeshLayout, steps: NDArray[np.int64], transposed: bool
) -> MeshPhases:
    from optinc_hw.photonics._decompose_kernels import phases_of  # numba: only when needed

    batch, n, mzis = target.shape[:-2], layout.ports, len(steps)
    # numba compiles anew for arrays that are read-only.
    matrices = np.require(target, requirements=["C", "W"]).reshape(math.prod(batch), n, n)
    theta, phi, output = (np.empty((len(matrices), length)) for length in (mzis, mzis, n))
    phases_of(matrices, steps, transposed, layout.modes, theta, phi, output)
    return MeshPhases(layout, theta.reshape(*batch, mzis), phi.reshape(*batch, mzis), output.reshape(*batch, n))


def _place(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    if placement == STANDARD:
        return phases
    return fold_push_pull(phases) if placement == _FOLDED else from_standard(phases, placement)


def _sized(matrices: NDArray[np.complex128], layout: MeshLayout) -> NDArray[np.complex128]:
    if matrices.shape[-1] != layout.ports:
        raise MatrixError(
            f"the matrix has shape {matrices.shape}, the layout has {layout.ports} ports; they must agree"
        )
    return matrices


def _shape(layout: MeshLayout) -> _Shape:
    # The types come first: comparing thousands of MZIs takes as long as decomposing.
    if isinstance(layout, RectangularLayout):
        return "rectangular"
    if isinstance(layout, TriangularLayout):
        return "triangular"
    for shape in ("rectangular", "triangular"):
        if layout == _layout(shape, layout.ports):
            return shape
    n = layout.ports
    raise MatrixError(
        f"this mesh of {len(layout.mzis)} MZIs on {n} ports is neither rectangular nor triangular "
        f"({n * (n - 1) // 2} MZIs), the meshes known to make every unitary; program_mesh fits phases to any mesh"
    )


@lru_cache(maxsize=16)
def _layout(shape: _Shape, ports: int) -> MeshLayout:
    return RectangularLayout(ports) if shape == "rectangular" else TriangularLayout(ports)


@lru_cache(maxsize=16)
def _steps(shape: _Shape, ports: int) -> tuple[NDArray[np.int64], bool]:
    """Rotations (K, 4) in the order of nulling as `phases_of` wants them, and whether to transpose."""
    steps = _rectangular_steps(ports) if shape == "rectangular" else _triangular_steps(ports)
    table = np.array(steps, dtype=np.int64).reshape(-1, 4)
    table.flags.writeable = False
    return table, shape == "triangular"


def _triangular_steps(n: int) -> list[tuple[int, int, int, int]]:
    layout = _layout("triangular", n)
    return [
        (0, mode, n - 1 - turn, layout.index(mode + 2 * turn, mode))
        for turn in range(n - 1)
        for mode in range(n - 1 - turn)
    ]


def _rectangular_steps(n: int) -> list[tuple[int, int, int, int]]:
    """Nulling runs along the lower left diagonals; light meets the factors from the right first, then the left ones.

    Diagonal d of the right becomes a descending line of MZIs from column 0, mode d; of the left a line that ends in the
    last column.
    """
    layout = _layout("rectangular", n)
    steps = []
    for diagonal in range(n - 1):
        for step in range(diagonal + 1):
            if diagonal % 2 == 0:
                steps.append((0, diagonal - step, n - 1 - step, layout.index(step, diagonal - step)))
            else:
                mode = n - 2 - diagonal + step
                steps.append((1, mode, step, layout.index(n - 1 - step, mode)))
    return steps
