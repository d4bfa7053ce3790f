"""Weighted readings linearised in the parameters: products with the Jacobian without ever forming it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from calibration._session import Array
from calibration._space import ELEMENTS, LOG_BLOCKS, ParameterSpace
from optinc_hw.photonics import ChipElements, ChipModel, TwinParameters

_CHUNK = 250
_SPARSE = 4
_CG_STEPS = 400
_CG_TOLERANCE = 1e-3


class LinearisedReadings:
    """Jacobian of the weighted residuals at one point, as an operator.

    A crosstalk strength acts through one arm and one heater, so its derivatives are a product of what each phase
    does to each reading and of what each heater dissipates: no matrix of readings times pairs is needed.

    Parameters
    ----------
    space
        The flat vector.
    parameters
        The point.
    power_w
        Heater powers (settings, H) in W.
    weight
        One over sigma of each reading (settings, 2n).
    """

    def __init__(self, space: ParameterSpace, parameters: TwinParameters, power_w: Array, weight: Array) -> None:
        self._space = space
        self._crosstalk = parameters.crosstalk
        self._drive = parameters.efficiency * (power_w - space.reference_power_w)
        parts = [
            _model_jacobian(parameters, power_w[begin : begin + _CHUNK]) for begin in range(0, len(power_w), _CHUNK)
        ]
        self._by_phase = np.concatenate([phase for phase, _ in parts]) * weight[:, :, None]
        elements = np.concatenate([element for _, element in parts]) * weight[:, :, None]
        self._by_element = elements.reshape(-1, elements.shape[-1])
        size, pairs = len(space.centre), space.slices["crosstalk"]
        self._dense = np.r_[0 : pairs.start, pairs.stop : size]
        self._pairs = pairs

    def apply(self, vector: Array) -> Array:
        """Multiply by the Jacobian: changes of the weighted residuals (settings, 2n)."""
        slices, paths = self._space.slices, self._space.paths
        phases = vector[slices["offset"]] + (self._drive * vector[slices["efficiency"]]) @ self._crosstalk.T
        phases = phases + self._drive @ paths.crosstalk(vector[slices["crosstalk"]]).T
        moved = np.einsum("bdh,bh->bd", self._by_phase, phases)
        return np.asarray(moved + (self._by_element @ vector[slices["crosstalk"].stop :]).reshape(moved.shape))

    def apply_transposed(self, residual: Array) -> Array:
        """Multiply weighted residuals (settings, 2n) by the transposed Jacobian."""
        by_phase = np.einsum("bdh,bd->bh", self._by_phase, residual)
        paths = self._space.paths
        by_arm = (by_phase @ paths.effect).T @ self._drive
        return np.concatenate(
            [
                by_phase.sum(axis=0),
                np.sum(self._drive * (by_phase @ self._crosstalk), axis=0),
                by_arm[paths.arm, paths.heater],
                residual.ravel() @ self._by_element,
            ]
        )

    def dense_block(self) -> Array:
        """Gauss-Newton matrix of all parameters but the crosstalk strengths, in the vector's order."""
        effective = (self._by_phase @ self._crosstalk) * self._drive[:, None, :]
        heaters = self._drive.shape[1]
        columns = np.concatenate(
            [self._by_phase.reshape(-1, heaters), effective.reshape(-1, heaters), self._by_element], axis=1
        )
        return np.asarray(columns.T @ columns)

    def heater_blocks(self) -> list[Array]:
        """Gauss-Newton matrices among the strengths of one heater's own paths, for each heater that has any.

        They only precondition, so every fourth setting stands for four.
        """
        paths = self._space.paths
        by_arm = self._by_phase[::_SPARSE] @ paths.effect
        drive = self._drive[::_SPARSE]
        blocks = []
        for heater in np.unique(paths.heater):
            arms = paths.arm[paths.heater == heater]
            columns = (by_arm[:, :, arms] * drive[:, heater, None, None]).reshape(-1, len(arms))
            blocks.append(_SPARSE * columns.T @ columns)
        return blocks

    def solver(self, precision: Array) -> Callable[[Array, float], Array]:
        """Prepare to solve ``(J^T J + precision + damping diag) x = b`` for x by conjugate gradients.

        Parameters
        ----------
        precision
            Prior precision of each parameter.

        Returns
        -------
        Callable
            ``solve(b, damping) -> x``; the damping multiplies the diagonal of the whole matrix.
        """
        dense = self.dense_block() + np.diag(precision[self._dense])
        blocks = self.heater_blocks()
        prior = np.split(precision[self._pairs], np.cumsum([len(block) for block in blocks])[:-1])
        blocks = [block + np.diag(part) for block, part in zip(blocks, prior, strict=True)]
        diagonal = np.empty(len(precision))
        diagonal[self._dense] = np.diagonal(dense)
        diagonal[self._pairs] = np.concatenate([np.diagonal(block) for block in blocks])

        def solve(right: Array, damping: float) -> Array:
            boost = 1.0 + damping
            precondition = self._preconditioner(_boosted(dense, boost), [_boosted(b, boost) for b in blocks])

            def multiply(vector: Array) -> Array:
                product = self.apply_transposed(self.apply(vector))
                return np.asarray(product + (precision + damping * diagonal) * vector)

            return conjugate_gradients(multiply, precondition, right)

        return solve

    def _preconditioner(self, dense: Array, blocks: list[Array]) -> Callable[[Array], Array]:
        dense_factor = cho_factor(dense)
        factors = [cho_factor(block) for block in blocks]
        edges = np.cumsum([len(block) for block in blocks])[:-1]

        def precondition(vector: Array) -> Array:
            result = np.empty_like(vector)
            result[self._dense] = cho_solve(dense_factor, vector[self._dense])
            pieces = np.split(vector[self._pairs], edges)
            result[self._pairs] = np.concatenate(
                [cho_solve(factor, piece) for factor, piece in zip(factors, pieces, strict=True)]
            )
            return result

        return precondition


def conjugate_gradients(
    multiply: Callable[[Array], Array], precondition: Callable[[Array], Array], right: Array
) -> Array:
    """Solve a positive definite system until the preconditioned residual has fallen to 1e-3 of its start."""
    solution = np.zeros_like(right)
    residual = right.copy()
    direction = z = precondition(residual)
    rho = first = float(residual @ z)
    for _ in range(_CG_STEPS):
        if not rho > _CG_TOLERANCE**2 * first:
            break
        image = multiply(direction)
        alpha = rho / float(direction @ image)
        solution = solution + alpha * direction
        residual = residual - alpha * image
        z = precondition(residual)
        rho, previous = float(residual @ z), rho
        direction = z + (rho / previous) * direction
    return solution


def _boosted(matrix: Array, factor: float) -> Array:
    result = matrix.copy()
    result[np.diag_indices_from(result)] *= factor
    return result


def _model_jacobian(parameters: TwinParameters, power_w: Array) -> tuple[Array, Array]:
    """Differentiate readings by phase (settings, 2n, H) and by the elements of the vector (settings, 2n, size)."""
    count = len(power_w)
    elements = ChipElements.from_parameters(parameters)
    leaves: dict[str, Tensor] = {}
    for name in ELEMENTS:
        value: Tensor = getattr(elements, name)
        leaves[name] = value.expand(count, *value.shape).clone().requires_grad_()
    phases = torch.as_tensor(parameters.phases(power_w)).requires_grad_()
    readings = ChipModel(parameters.layout, replace(elements, **leaves)).detector_powers(phases)
    scales = np.concatenate(
        [np.asarray(getattr(parameters, name)).ravel() ** float(name in LOG_BLOCKS) for name in ELEMENTS]
    )
    by_phase, by_element = [], []
    for detector in range(readings.shape[1]):
        first, *rest = torch.autograd.grad(readings[:, detector].sum(), [phases, *leaves.values()], retain_graph=True)
        by_phase.append(first.numpy())
        by_element.append(torch.cat([part.reshape(count, -1) for part in rest], dim=1).numpy())
    return np.stack(by_phase, axis=1), np.stack(by_element, axis=1) * scales
