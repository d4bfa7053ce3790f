"""Normal equations of the linearised fit: a preconditioner from blocks, and conjugate gradients.

Powers are centred, so settings of independent heaters hardly couple phases to crosstalk, nor the crosstalk of one
heater to that of another.  What is left are a dense block of everything but single heat paths and, for each heater, a
block among its own paths, in which the average over settings of what phases do to powers stands for each setting's
own.
"""

from collections.abc import Callable

import numpy as np

from calibration._mesh_linear import MeshPoint
from calibration._mesh_precondition import MeshPreconditioner
from calibration._mesh_space import MeshSpace
from calibration._session import Array
from optinc_hw.errors import CalibrationError

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
    single
        Whether the matrix is multiplied in single precision, twice as fast: right to six digits.
    """

    def __init__(self, space: MeshSpace, point: MeshPoint, weight: Array, single: bool = False) -> None:
        self.space, self._point, self._weight = space, point, weight
        self._precision, self._jacobian = space.precision, point.single_jacobian if single else point.jacobian

    def right_side(self, residual: Array, shift: Array) -> Array:
        """Gradient of half the cost: residuals (B, n) in W, shift from the priors' centre."""
        return self._point.apply_transposed(self._weight**2 * residual) + self._precision * shift

    def multiply(self, vector: Array) -> Array:
        """Multiply by the matrix."""
        seen = self._weight**2 * self._jacobian.apply(vector)
        return self._jacobian.apply_transposed(seen) + self._precision * vector

    def sample(
        self, precondition: Callable[[Array], Array], rng: np.random.Generator, tolerance: float, max_steps: int
    ) -> Array:
        """Draw a deviation (size,) from the posterior of the linearised problem: noisy data and priors, solved again.

        A solver that stops early leaves directions that the data hardly see narrower than they are.
        """
        noise = self._point.apply_transposed(self._weight * rng.standard_normal(self._weight.shape))
        right = noise + rng.standard_normal(self.space.size) / self.space.sigma
        return conjugate_gradients(self.multiply, precondition, right, tolerance, max_steps)[0]

    def preconditioner(self) -> MeshPreconditioner:
        """Build the preconditioner of this point."""
        return MeshPreconditioner(self.space, self._point, self._weight)


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
