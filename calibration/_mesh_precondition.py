"""A preconditioner for the normal equations of the mesh fit.

Powers are centred, so settings of independent heaters hardly couple phases to what heaters do per power, nor what one
heater does to what another does.  What is left are

* a dense block of phases, couplers, losses and transmissions, from random combinations of the readings' rows;
* for each heater a block of its efficiency, its curvature and its heat paths, in which the average over settings of
  what phases do to powers stands for each setting's own;
* what all heaters share, which meets all these blocks: eliminated exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dtrtri

from calibration._mesh_linear import MeshPoint
from calibration._mesh_space import MeshSpace, path_index
from calibration._session import Array

_ROWS_PER_COLUMN = 4
"""Rows that the dense block looks at, per column."""
_CHUNK = 2048
_RIDGE = 1e-9
"""Added to the dense block, relative to its diagonal, against rounding errors."""
_TOLD = 0.05
"""What data say of a heat path, relative to its prior, below which it needs no place in a block."""
_DENSE = ("offset", "eta", "loss", "arm_loss", "output", "input", "common_eta", "common_loss")


class MeshPreconditioner:
    """Nearly the inverse of the normal equations.

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
        self._space = space
        self._places = np.concatenate([np.arange(space.size)[space.slices[name]] for name in _DENSE])
        gram = _gram(space, point, weight)
        heaters = len(space.start.offset)
        by_phase = gram[:heaters, :heaters].copy(order="C")
        by_phase = np.triu(by_phase) + np.triu(by_phase, 1).T
        gram[np.diag_indices(len(gram))] += space.precision[self._places]
        self._scale = 1.0 / np.sqrt(np.diagonal(gram))
        gram *= self._scale
        gram *= self._scale[:, None]
        gram[np.diag_indices(len(gram))] += _RIDGE
        self._dense = cho_factor(gram, overwrite_a=True, check_finite=False)
        self._heat = _HeatBlocks(space, point, by_phase)

    def __call__(self, vector: Array) -> Array:
        """Multiply by nearly the inverse."""
        result = np.empty_like(vector)
        right = self._scale * vector[self._places]
        result[self._places] = self._scale * cho_solve(self._dense, right, overwrite_b=True, check_finite=False)
        self._heat.solve(vector, result)
        return result

    def variances(self) -> tuple[Array, Array]:
        """Variances (H,) of phases if what heaters do per power were known, and of efficiencies if phases were."""
        root = dtrtri(self._dense[0], lower=self._dense[1])[0]
        heaters = len(self._space.start.offset)
        spread = np.sum(np.triu(root)[:heaters] ** 2, axis=1) * self._scale[:heaters] ** 2
        return spread, self._heat.efficiency_variances()


@dataclass(frozen=True)
class _Averages:
    """What settings tell on average of what heaters do per power.

    Parameters
    ----------
    by_phase
        Gauss-Newton matrix (H, H) of the phases.
    by_path, by_arm
        The same by phases and arms (H, A), and by arms (A, A).
    common
        What all heaters share (C, H, H): crosstalk in full, which is what efficiency does, and the profiles.
    pushed
        ``by_phase`` times these (C, H, H).
    moments
        See `MeshPoint.drive_moments` (4, H).
    """

    by_phase: Array
    by_path: Array
    by_arm: Array
    common: Array
    pushed: Array
    moments: Array

    @classmethod
    def of(cls, space: MeshSpace, point: MeshPoint, by_phase: Array) -> "_Averages":
        by_path = by_phase @ space.paths.effect
        common = np.concatenate([point.crosstalk[None], space.profiles])
        pushed = np.stack([by_phase @ matrix for matrix in common])
        return cls(by_phase, by_path, space.paths.effect.T @ by_path, common, pushed, point.drive_moments())


class _HeatBlocks:
    """Single heaters' heat paths, efficiencies and curvatures, and what all share of them."""

    def __init__(self, space: MeshSpace, point: MeshPoint, by_phase: Array) -> None:
        place, self._first = space.slices, space.dense_size
        self._space, self._averages = space, _Averages.of(space, point, by_phase)
        self._alone = 1.0 / space.precision[self._first :]
        self._shared = np.concatenate([
            np.arange(space.size)[place[name]] for name in ("common_efficiency", "profile", "second_order")
        ])  # fmt: skip
        self._blocks: list[tuple[slice, NDArray[np.float32]]] = []
        places, answers = list[NDArray[np.intp]](), list[Array]()
        shared, begin = np.diag(space.precision[self._shared]), 0
        for heater, index in enumerate(path_index(space.paths, len(by_phase))):
            where, block, crossing, common = self._block(heater, self._heard(heater, index))
            sigma = space.sigma[where]
            root = dtrtri(dpotrf(block * sigma * sigma[:, None] + np.eye(len(where)), lower=1)[0], lower=1)[0] * sigma
            # Single precision would lose the well-determined directions of the inverse, not those of its root.
            self._blocks.append((slice(begin, begin + len(where)), root.astype(np.float32)))
            places.append(where)
            answers.append(root.T @ (root @ crossing))
            shared += common - crossing.T @ answers[-1]
            begin += len(where)
        self._places, self._answers = np.concatenate(places), np.concatenate(answers)
        self._scale = 1.0 / np.sqrt(np.diagonal(shared))
        self._common = cho_factor(shared * self._scale * self._scale[:, None])
        del self._averages

    def _heard(self, heater: int, index: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of a heater's paths of which data tell anything, and weigh the others alone."""
        known, space, arms = self._averages, self._space, self._space.paths.arm[index]
        own = space.paths.effect[heater, arms]
        told = known.by_arm[arms, arms] - own * (
            2.0 * known.by_path[heater, arms] - known.by_phase[heater, heater] * own
        )
        told = np.maximum(told, 0.0) * known.moments[0, heater]
        precision = space.precision[self._first + index]
        self._alone[index] = 1.0 / (precision + told)
        return np.asarray(index[told > _TOLD * precision])

    def _block(self, heater: int, index: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array, Array, Array]:
        """Return places, data's part of the block, its crossing with what is shared, and the data's part of that."""
        known, place, effect = self._averages, self._space.slices, self._space.paths.effect
        drive, mixed, square, beside = known.moments[:, heater]
        arms, count = self._space.paths.arm[index], len(index)
        # A heater's effect on its own phase is its efficiency, not crosstalk.
        own, itself = effect[heater, arms], known.by_phase[heater, heater]
        by_own = known.by_path[heater, arms] - own * itself
        across = np.multiply.outer(own, known.by_path[heater, arms] - 0.5 * itself * own)
        by_common = effect[:, arms].T @ known.pushed[:, :, heater].T - np.multiply.outer(
            own, known.pushed[:, heater, heater]
        )
        common = known.common[:, :, heater] @ known.pushed[:, :, heater].T
        turned = known.pushed[:, heater, heater]
        # Rows and columns: paths, efficiency, own square; what is shared: the profiles after efficiency, own square.
        block = np.empty((count + 2, count + 2))
        block[:count, :count] = drive * (known.by_arm[np.ix_(arms, arms)] - across - across.T)
        block[:count, count] = block[count, :count] = drive * by_common[:, 0]
        block[:count, -1] = block[-1, :count] = mixed * by_own
        block[count, count], block[-1, -1] = drive * common[0, 0], square * itself
        block[count, -1] = block[-1, count] = mixed * turned[0]
        crossing = np.zeros((count + 2, len(self._shared)))
        crossing[:count, :-2], crossing[:count, -2] = drive * by_common, mixed * by_own
        crossing[count, :-2], crossing[count, -2] = drive * common[0], mixed * turned[0]
        crossing[-1, :-2], crossing[-1, -2] = mixed * turned, square * itself
        shared = np.zeros((len(self._shared), len(self._shared)))
        shared[:-2, :-2], shared[:-2, -2], shared[-2, :-2] = drive * common, mixed * turned, mixed * turned
        shared[-2, -2], shared[-1, -1] = square * itself, beside * itself
        places = np.array([place["efficiency"].start + heater, place["curvature"].start + heater])
        return np.concatenate([self._first + index, places]), block, crossing, shared

    def solve(self, vector: Array, into: Array) -> None:
        """Solve for what belongs to heat."""
        into[self._first :] = vector[self._first :] * self._alone
        some = vector[self._places]
        right = self._scale * (vector[self._shared] - self._answers.T @ some)
        shared = into[self._shared] = self._scale * cho_solve(self._common, right, check_finite=False)
        single, found = some.astype(np.float32), np.empty(len(some), dtype=np.float32)
        for where, root in self._blocks:
            found[where] = (root @ single[where]) @ root
        into[self._places] = found - self._answers @ shared

    def efficiency_variances(self) -> Array:
        """Variances (H,) of relative efficiencies, own and common parts together."""
        return np.array([np.sum(root[:, -2].astype(np.float64) ** 2) for _, root in self._blocks])


def _gram(space: MeshSpace, point: MeshPoint, weight: Array) -> Array:
    """Gauss-Newton matrix of the dense block (its upper triangle), from random combinations of each reading's rows."""
    heaters, mzis, ports = len(space.start.offset), len(space.start.mzi_transmission), space.start.ports
    # Columns: phases, couplers, losses of MZIs and of arms, outputs, inputs, mean coupler, mean loss.
    first = heaters + np.array([0, 2 * mzis, 3 * mzis, 5 * mzis, 5 * mzis + ports, 5 * mzis + 2 * ports])
    size, jacobian = int(first[-1]) + 2, point.single_jacobian
    place, gram = jacobian.lanes.rows, np.zeros((size, size), order="F")
    rows = np.zeros((jacobian.lanes.lit.size, size), dtype=np.float32)
    for weights in _combinations(weight, size):
        jacobian.sketch(weights, first[:3], rows)
        light = 2.0 * weights * point.predicted
        rows[place, first[3] : first[4]] = light
        rows[:, first[4] : first[5]] = 0.0
        rows[place, first[4] + jacobian.lit] = light.sum(axis=1)
        rows[:, -2] = rows[:, first[0] : first[1]].sum(axis=1)
        rows[:, -1] = rows[:, first[1] : first[2]].sum(axis=1)
        for begin in range(0, len(rows), _CHUNK):
            # In double precision directions that nothing is said of stay without curvature.
            part = rows[begin : begin + _CHUNK].T.astype(np.float64, order="F")
            gram = dsyrk(1.0, part, beta=1.0, c=gram, overwrite_c=1)
    return gram


def _combinations(weight: Array, size: int) -> Iterator[Array]:
    """Yield weights (B, n) of the outputs, one row a reading: with random signs, or output by output if they are few.

    Over the rows squares add up to what all outputs by themselves give, on average.
    """
    readings, ports = weight.shape
    rounds = max(1, -(-_ROWS_PER_COLUMN * size // readings))
    if rounds >= ports:
        for output in range(ports):
            yield weight * (np.arange(ports) == output)
        return
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        yield weight * rng.choice([-1.0, 1.0], size=weight.shape) / np.sqrt(rounds)
