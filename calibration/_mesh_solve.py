"""Normal equations of the linearised fit: a preconditioner from blocks, and conjugate gradients.

Powers are centred, so settings of independent heaters hardly couple phases to crosstalk, nor the crosstalk of one
heater to that of another.  What is left are a dense block of everything but single heat paths and, for each heater, a
block among its own paths, in which the average over settings of what phases do to powers stands for each setting's
own.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk

from calibration._mesh_linear import MeshPoint
from calibration._mesh_space import MeshSpace, path_index
from calibration._session import Array
from optinc_hw.errors import CalibrationError

_ROWS_PER_COLUMN = 6
"""Powers that the dense block of the preconditioner looks at, per column."""
_LEAST_READINGS = 200
_CHUNK = 64
_BREAKDOWN = 1e-30


class NormalEquations:
    """``(J^T W^2 J + precision) x = b`` at one point.

    Parameters
    ----------
    space
        The flat vector.
    point
        Where the powers are linearised.
    weight
        One over sigma (B, n) of each reading; zero where it does not count.
    """

    def __init__(self, space: MeshSpace, point: MeshPoint, weight: Array) -> None:
        self.space, self._point, self._weight = space, point, weight
        self._precision = space.precision

    def right_side(self, residual: Array, shift: Array) -> Array:
        """Gradient of half the cost: residuals (B, n) in W, shift from the priors' centre."""
        return self._point.apply_transposed(self._weight**2 * residual) + self._precision * shift

    def multiply(self, vector: Array) -> Array:
        """Multiply by the matrix."""
        seen = self._weight**2 * self._point.apply(vector)
        return self._point.apply_transposed(seen) + self._precision * vector

    def sample(
        self, precondition: Callable[[Array], Array], rng: np.random.Generator, tolerance: float, max_steps: int
    ) -> Array:
        """Draw a deviation (size,) from the posterior of the linearised problem: noisy data and priors, solved again.

        A solver that stops early leaves directions that the data hardly see narrower than they are.
        """
        noise = self._point.apply_transposed(self._weight * rng.standard_normal(self._weight.shape))
        right = noise + rng.standard_normal(self.space.size) / self.space.sigma
        return conjugate_gradients(self.multiply, precondition, right, tolerance, max_steps)[0]

    def preconditioner(self) -> "BlockPreconditioner":
        """Build the preconditioner of this point."""
        return BlockPreconditioner(self.space, self._point, self._weight)


class BlockPreconditioner:
    """Inverse of the blocks of the normal equations.

    Parameters
    ----------
    space, point, weight
        As in `NormalEquations`.
    """

    def __init__(self, space: MeshSpace, point: MeshPoint, weight: Array) -> None:
        self._space, precision = space, space.precision
        size = space.dense_size
        dense, by_phase = _gram(space, point, weight)
        dense[np.diag_indices(size)] += precision[:size]
        self._scale = 1.0 / np.sqrt(np.diagonal(dense))
        self._dense = cho_factor(dense * self._scale * self._scale[:, None], overwrite_a=True)
        self._blocks: list[tuple[int, int, NDArray[np.float32]]] = []
        if "crosstalk" in space.free:
            effect = space.paths.effect
            seen = by_phase @ effect
            by_arm = effect.T @ seen
            strength = np.mean(point.drive**2, axis=1)
            sigma = space.sigma[space.slices["crosstalk"]]
            for heater, index in enumerate(path_index(space.paths, len(space.start.offset))):
                if not len(index):
                    continue
                arms, width = space.paths.arm[index], sigma[index]
                own = effect[heater, arms]  # a heater's effect on its own phase is its efficiency, not crosstalk
                mixed = np.multiply.outer(own, seen[heater, arms] - 0.5 * by_phase[heater, heater] * own)
                block = strength[heater] * (by_arm[np.ix_(arms, arms)] - mixed - mixed.T) * width * width[:, None]
                block[np.diag_indices(len(arms))] += 1.0
                # Single precision would lose the well-determined directions of the inverse, not those of its root.
                root = (np.linalg.inv(np.linalg.cholesky(block)) * width).astype(np.float32)
                self._blocks.append((int(index[0]), int(index[-1]) + 1, root))

    def dense_covariance(self) -> Array:
        """Covariance matrix of the dense block if single heat paths were known."""
        inverse = cho_solve(self._dense, np.eye(len(self._scale)), check_finite=False)
        return np.asarray(self._scale * inverse * self._scale[:, None])

    def __call__(self, vector: Array) -> Array:
        """Multiply by the inverse of the blocks."""
        size = self._space.dense_size
        result = np.empty_like(vector)
        right = self._scale * vector[:size]
        result[:size] = self._scale * cho_solve(self._dense, right, overwrite_b=True, check_finite=False)
        if not self._blocks:
            result[size:] = vector[size:] * self._space.sigma[size:] ** 2
            return result
        paths = vector[size:].astype(np.float32)
        for first, last, root in self._blocks:
            result[first + size : last + size] = (root @ paths[first:last]) @ root
        return result


def _gram(space: MeshSpace, point: MeshPoint, weight: Array) -> tuple[Array, Array]:
    """Gauss-Newton matrices of the dense block (its upper triangle) and of the phases, from part of the readings."""
    size, heaters = space.dense_size, len(space.start.offset)
    readings, ports = weight.shape
    moving = sum(place.stop - place.start for name, place in space.slices.items() if name in space.free)
    count = min(readings, max(_LEAST_READINGS, _ROWS_PER_COLUMN * min(size, moving) // ports))
    dense, by_phase = np.zeros((size, size), order="F"), np.zeros((heaters, heaters))
    chosen = np.sort(np.random.default_rng(0).permutation(readings)[:count])
    for first in range(0, len(chosen), _CHUNK):
        part = chosen[first : first + _CHUNK]
        phase, rows = point.take(part).dense_rows()
        phase = (phase * weight[part, :, None]).reshape(-1, heaters)
        rows = (rows * weight[part, :, None]).reshape(-1, size)
        dense = dsyrk(1.0, rows.T, beta=1.0, c=dense, overwrite_c=1)
        by_phase += phase.T @ phase
    return dense * (readings / count), by_phase * (readings / count)


def conjugate_gradients(
    multiply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    right: Array,
    tolerance: float,
    max_steps: int,
    enough: float = 0.0,
) -> tuple[Array, int]:
    """Solve a positive definite system.

    The residual of such a system rises and falls by orders of magnitude on the way; what every step gains of the
    quadratic cost tells how near the end is.

    Parameters
    ----------
    multiply, precondition
        The matrix, and nearly its inverse.
    right
        Right side.
    tolerance
        Relative error of the solution, in the norm of the matrix, at which to stop: estimated from the last gain,
        which the further steps are taken to fall short of as quickly as the steps so far did.
    max_steps
        Largest number of steps.
    enough
        Square of the absolute error, estimated likewise, below which to stop as well.

    Returns
    -------
    tuple
        Solution and steps taken.

    Raises
    ------
    CalibrationError
        If the numbers overflow.
    """
    solution = np.zeros_like(right)
    residual = right.copy()
    direction = z = precondition(residual)
    rho = float(residual @ z)
    step, gain, gained = 0, 0.0, 0.0
    while step < max_steps and rho > _BREAKDOWN:
        if step and step * gain < max(tolerance**2 * gained, enough):
            break
        image = multiply(direction)
        curvature = float(direction @ image)
        if not np.isfinite(curvature):
            raise CalibrationError(
                "the linearised fit overflows; check that readings and heater powers are in W and the start is sane"
            )
        if curvature <= 0.0:
            break
        alpha = rho / curvature
        gain = alpha * rho
        gained += gain
        solution += alpha * direction
        residual -= alpha * image
        z = precondition(residual)
        rho, previous = float(residual @ z), rho
        direction = z + (rho / previous) * direction
        step += 1
    return solution, step
