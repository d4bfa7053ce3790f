"""Speed of decompositions, matrices and outputs beside peers, a plain loop and the product of the same sizes."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from _harness import PRODUCT, PROJECT, SINGLE, Comparison, Row, at_most, cpu_times
from _loop import loop_apply
from _peers import Peer, random_interferometer
from numpy.typing import NDArray
from torch import Tensor

from optinc_hw.photonics import MeshModel, MeshPhases, RectangularLayout, decompose, haar_unitary, mesh_matrix

LOOP = "torch loop"
LEAN_LOOP = "leanest torch loop"
SINGLE_PRODUCT = f"{PRODUCT}, {SINGLE}"
_BATCH = 256
_VECTORS = 4096
_SETTINGS = 4  # taken in turn, so that no result can be kept from the call before

Matrix = NDArray[np.complex128]


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Parameters
    ----------
    seconds
        For each contender at each size; 0 takes one sample of each.
    largest_peer
        Most ports at which peers run that take seconds there.
    """

    seconds: float
    largest_peer: int


FULL = Effort(seconds=1.0, largest_peer=128)
QUICK = Effort(seconds=0.1, largest_peer=64)


def decompositions(sizes: Sequence[int], peers: Sequence[Peer], effort: Effort) -> Iterator[Comparison]:
    """Time single decompositions; the project's checks its input and verifies its output."""
    goals = {64: {"strawberryfields": 100.0}, 128: {"strawberryfields": 400.0}}
    for n in sizes:
        layout, unitary = RectangularLayout(n), haar_unitary(n, np.random.default_rng(n))
        own = Peer(PROJECT, partial(decompose, layout=layout), mesh_matrix)
        asked = [own, *(peer for peer in peers if n <= effort.largest_peer)]
        results: dict[str, Any] = {}
        contenders: dict[str, Callable[[], object]] = {
            PROJECT: partial(_keep, results, own, unitary),
            PRODUCT: _product(unitary, unitary),
            **{peer.name: partial(_keep, results, peer, unitary) for peer in asked[1:]},
        }
        times = cpu_times(contenders, effort.seconds)
        errors = {peer.name: _distance(peer.rebuild(results[peer.name]), unitary) for peer in asked}
        yield Comparison("decomposition, checked and verified", n, times, errors, least=goals.get(n, {}))


def batched_decompositions(sizes: Sequence[int], effort: Effort) -> Iterator[Comparison]:
    """Time the decomposition of a batch, per matrix."""
    for n in sizes:
        layout, rng = RectangularLayout(n), np.random.default_rng(n)
        unitaries = np.stack([haar_unitary(n, rng) for _ in range(_BATCH)])
        contenders: dict[str, Callable[[], object]] = {
            PROJECT: partial(decompose, unitaries, layout),
            PRODUCT: _product(unitaries, unitaries),
        }
        errors = {PROJECT: _distance(mesh_matrix(decompose(unitaries, layout)), unitaries)}
        times = {name: value / _BATCH for name, value in cpu_times(contenders, effort.seconds).items()}
        yield Comparison(f"decomposition of a batch of {_BATCH}, per matrix", n, times, errors)


def matrices(sizes: Sequence[int], effort: Effort) -> Iterator[Comparison]:
    """Time the matrix from new phases; constructing and checking `MeshPhases` is included.

    Of `interferometer` only the calculation counts, not the construction of its beam splitters.
    """
    goals = {64: {"interferometer": 400.0}, 128: {"interferometer": 1500.0}}
    for n in sizes:
        layout, settings = RectangularLayout(n), haar_settings(n, _SETTINGS)
        arrays = [tuple(part.numpy() for part in setting) for setting in settings]
        single = [tuple(part.float() for part in setting) for setting in settings]
        model = MeshModel(layout)
        by_loop = partial(loop_apply(layout), fields=torch.eye(n, dtype=torch.complex128))
        exact = _matrix(layout, *arrays[0])
        contenders = {
            PROJECT: _in_turn(partial(_matrix, layout), arrays),
            PRODUCT: _product(exact, exact),
            SINGLE: _in_turn(model.matrix, single),
            LOOP: _in_turn(by_loop, settings),
        }
        mesh = random_interferometer(n, np.random.default_rng(n)) if n <= effort.largest_peer else None
        if mesh is not None:
            contenders["interferometer"] = mesh.calculate_transformation
        with torch.no_grad():
            errors = {
                PROJECT: _distance(by_loop(*settings[0]), exact),
                SINGLE: _distance(model.matrix(*single[0]), exact),
            }
            times = cpu_times(contenders, effort.seconds)
        yield Comparison("matrix from new phases", n, times, errors, least=goals.get(n, {}))


def many_vectors(sizes: Sequence[int], effort: Effort) -> Iterator[Comparison]:
    """Time the outputs of 4096 vectors from new phases against the product with a known matrix."""
    for n in sizes:
        layout, settings = RectangularLayout(n), haar_settings(n, _SETTINGS)
        single = [tuple(part.float() for part in setting) for setting in settings]
        fields = complex_normal(n, _VECTORS)
        low = fields.to(torch.complex64)
        matrix = torch.from_numpy(_matrix(layout, *(part.numpy() for part in settings[0])))
        apply = MeshModel(layout).apply
        contenders = {
            PROJECT: _in_turn(partial(apply, fields=fields), settings),
            PRODUCT: partial(torch.matmul, matrix, fields),
            SINGLE: _in_turn(partial(apply, fields=low), single),
            SINGLE_PRODUCT: partial(torch.matmul, matrix.to(torch.complex64), low),
        }
        mesh = random_interferometer(n, np.random.default_rng(n)) if n <= effort.largest_peer else None
        if mesh is not None:
            contenders["interferometer"] = partial(_outputs, mesh, fields.numpy())
        with torch.no_grad():
            exact = loop_apply(layout)(*settings[0], fields)
            errors = {
                PROJECT: _distance(apply(*settings[0], fields), exact),
                SINGLE: _distance(apply(*single[0], low), exact),
            }
            times = cpu_times(contenders, effort.seconds)
        yield Comparison(f"{_VECTORS} vectors, new phases", n, times, errors, most={PRODUCT: 1.25})


def forward_budgets(effort: Effort) -> list[Row]:
    """Return the time of large meshes' matrices against the budgets of case M-09, here in CPU time."""
    rows = []
    for n, budget in ((64, 5.0), (200, 1000.0)):
        layout, rng = RectangularLayout(n), np.random.default_rng(n)
        mzis = len(layout.mzis)
        angles = [rng.uniform(0.0, 2.0 * np.pi, size) for size in (mzis, mzis, n)]
        value = cpu_times({PROJECT: partial(_matrix, layout, *angles)}, effort.seconds)[PROJECT]
        rows.append(at_most(f"matrix within the budget of case M-09, n = {n}", value, "ms of CPU", budget))
    return rows


def haar_settings(n: int, count: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return theta, phi and output of rectangular meshes that make Haar unitaries."""
    layout, rng = RectangularLayout(n), np.random.default_rng(n)
    chosen = [decompose(haar_unitary(n, rng), layout) for _ in range(count)]
    return [(torch.tensor(item.theta), torch.tensor(item.phi), torch.tensor(item.output)) for item in chosen]


def complex_normal(*shape: int) -> Tensor:
    """Return reproducible complex fields."""
    return torch.randn(*shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))


def _keep(results: dict[str, Any], peer: Peer, unitary: Matrix) -> None:
    results[peer.name] = peer.decompose(unitary)


def _matrix(
    layout: RectangularLayout, theta: NDArray[np.float64], phi: NDArray[np.float64], output: NDArray[np.float64]
) -> Matrix:
    return mesh_matrix(MeshPhases(layout, theta, phi, output))


def _outputs(mesh: Any, fields: Matrix) -> Matrix:
    return mesh.calculate_transformation() @ fields


def _product(left: Matrix, right: Matrix) -> Callable[[], object]:
    return partial(torch.matmul, torch.from_numpy(left), torch.from_numpy(right))


def _in_turn(call: Callable[..., object], settings: Sequence[Sequence[Any]]) -> Callable[[], object]:
    turns = itertools.cycle(settings)
    return lambda: call(*next(turns))


def _distance(one: Matrix | Tensor, other: Matrix | Tensor) -> float:
    return float(np.abs(np.asarray(one) - np.asarray(other)).max())
