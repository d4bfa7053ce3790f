"""Other libraries' mesh decompositions and matrices, each only where it is installed."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.integrate
from numpy.typing import NDArray

Matrix = NDArray[np.complex128]


@dataclass(frozen=True)
class Peer:
    """A library that decomposes a unitary for a rectangular mesh.

    Parameters
    ----------
    name
        Of the package.
    decompose
        Unitary to whatever the library returns.
    rebuild
        That back to a matrix.
    """

    name: str
    decompose: Callable[[Matrix], Any]
    rebuild: Callable[[Any], Matrix]


def _strawberryfields() -> Peer:
    # It asks for a function that SciPy renamed in 1.11 and removed in 1.14; decompositions never call it.
    if not hasattr(scipy.integrate, "simps"):
        scipy.integrate.simps = scipy.integrate.simpson
    from strawberryfields import decompositions

    def rebuild(parts: Any) -> Matrix:
        before, diagonal, after = parts
        matrix = np.diag(diagonal)
        for cell in reversed(before):
            matrix = matrix @ decompositions.T(*cell)
        for cell in reversed(after):
            matrix = decompositions.Ti(*cell) @ matrix
        return matrix

    return Peer("strawberryfields", decompositions.rectangular, rebuild)


def _interferometer() -> Peer:
    from interferometer import square_decomposition

    return Peer("interferometer", square_decomposition, lambda mesh: mesh.calculate_transformation())


def _phaseshift() -> Peer:
    from phaseshift import clements_interferometer as package

    return Peer("phaseshift", package.clements_decomposition, package.circuit_reconstruction)


def _piquasso() -> Peer:
    from piquasso import NumpyConnector
    from piquasso.decompositions.clements import clements, inverse_clements

    connector = NumpyConnector()
    return Peer(
        "piquasso",
        lambda unitary: clements(unitary, connector),
        lambda parts: inverse_clements(parts, connector, np.dtype(np.complex128)),
    )


def installed_peers() -> list[Peer]:
    """Return the peers that can be imported."""
    peers = []
    for load in (_strawberryfields, _interferometer, _phaseshift, _piquasso):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # theirs to mend
                peers.append(load())
        except ImportError:
            continue
    return peers


def random_interferometer(n: int, rng: np.random.Generator) -> Any:
    """Return `interferometer`'s rectangular mesh with random angles, or None where it is not installed.

    Its time does not depend on the angles, so no decomposition is needed.
    """
    try:
        from interferometer import Beamsplitter, Interferometer
    except ImportError:
        return None
    mesh = Interferometer()
    for column in range(n):
        for mode in range(column % 2, n - 1, 2):
            mesh.add_BS(Beamsplitter(mode + 1, mode + 2, *rng.uniform(0.0, np.pi, 2)))
    for mode in range(n):
        mesh.add_phase(mode + 1, rng.uniform(0.0, np.pi))
    return mesh
