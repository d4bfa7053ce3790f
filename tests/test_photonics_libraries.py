"""Meshes and decomposition against independent libraries: their mesh with our phases, and our mesh with theirs."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from interferometer import Beamsplitter, Interferometer, square_decomposition, triangle_decomposition

from optinc_hw.photonics import (
    MeshPhases,
    RectangularLayout,
    TriangularLayout,
    decompose,
    haar_unitary,
    mesh_matrix,
)

LAYOUTS = {"rectangular": RectangularLayout, "triangular": TriangularLayout}
UNITARIES = [haar_unitary(2 + seed % 32, np.random.default_rng(seed)) for seed in range(200)]


@pytest.fixture(scope="module")
def strawberryfields():
    """The module of decompositions alone.

    The package itself does not start with a current scipy, and what the module imports beyond numpy and scipy serves
    functions for Gaussian states.
    """
    [folder] = importlib.util.find_spec("strawberryfields").submodule_search_locations
    spec = importlib.util.spec_from_file_location("decompositions", Path(folder) / "decompositions.py")
    module = importlib.util.module_from_spec(spec)
    quantum, symplectic = ModuleType("thewalrus.quantum"), ModuleType("thewalrus.symplectic")
    quantum.adj_scaling = symplectic.sympmat = symplectic.xpxp_to_xxpp = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "thewalrus.quantum", quantum)
        patch.setitem(sys.modules, "thewalrus.symplectic", symplectic)
        spec.loader.exec_module(module)
    return module


def flipped(matrix):
    """Turn a mesh upside down: the libraries' triangles stand on their tips' opposite side."""
    return matrix[::-1, ::-1]


def our_phases(layout, elements, before, after):
    """Phases of our mesh from another's elements.

    An element is a mode and any unitary W on it and the next; whatever phases W has beyond those of an MZI are
    carried on: ``W diag(carried) = diag(carried') T(theta, phi)``.  The t-th element on a mode is our t-th MZI there.
    """
    places = {mode: iter(np.flatnonzero(layout.modes == mode)) for mode in range(layout.ports - 1)}
    theta, phi = np.empty((2, len(layout.mzis)))
    carried = np.array(before, dtype=complex)
    for mode, element in elements:
        k = next(places[mode])
        [[a, b], [_, d]] = element * carried[mode : mode + 2]
        theta[k], phi[k] = 2.0 * math.atan2(abs(a), abs(b)), np.angle(a / b)
        carried[mode : mode + 2] = np.array([b, -d]) / np.abs([b, d]) / (1j * np.exp(0.5j * theta[k]))
    return MeshPhases(layout, theta, phi, np.angle(carried * after))


def mirrored(elements, ports):
    return [(ports - 2 - mode, flipped(element)) for mode, element in elements]


def beamsplitter(theta, phi):
    return np.array(
        [
            [np.exp(1j * phi) * np.cos(theta), -np.sin(theta)],
            [np.exp(1j * phi) * np.sin(theta), np.cos(theta)],
        ]
    )


def in_interferometer(phases):
    """Matrix that `interferometer` makes of our phases; its element is B = [[e^ip cos a, -sin a], [e^ip sin a, cos a]].

    Ours is T(t, f) = -i e^{it/2} B(pi/2 - t/2, f + pi).  The common phase has no element there, so it is carried along
    to the outputs, and turns the external phases that it meets.
    """
    mesh = Interferometer()
    carried = np.zeros(phases.layout.ports)
    for k, (_, mode) in enumerate(phases.layout.mzis):
        relative = carried[mode] - carried[mode + 1]
        mesh.add_BS(
            Beamsplitter(mode + 1, mode + 2, (math.pi - phases.theta[k]) / 2, phases.phi[k] + math.pi + relative)
        )
        carried[mode : mode + 2] = carried[mode + 1] - math.pi / 2 + phases.theta[k] / 2
    for port, phase in enumerate(phases.output):
        mesh.add_phase(port + 1, phase + carried[port])
    return mesh.calculate_transformation()


def from_interferometer(unitary, shape):
    """Our phases from those that `interferometer` finds."""
    ports = len(unitary)
    mesh = square_decomposition(unitary) if shape == "rectangular" else triangle_decomposition(flipped(unitary))
    elements = [(element.mode1 - 1, beamsplitter(element.theta, element.phi)) for element in mesh.BS_list]
    after = np.exp(1j * np.array(mesh.output_phases))
    if shape == "triangular":
        elements, after = mirrored(elements, ports), after[::-1]
    return our_phases(LAYOUTS[shape](ports), elements, np.ones(ports), after)


def from_strawberryfields(library, unitary, shape):
    """Our phases from those that `strawberryfields` finds; it has the triangle's phases at the inputs."""
    ports = len(unitary)
    layout, ones = LAYOUTS[shape](ports), np.ones(ports)
    if shape == "rectangular":
        found, diagonal, _ = library.rectangular_phase_end(unitary)
        return our_phases(
            layout, [(m, library.T(0, 1, theta, phi, 2)) for m, _, theta, phi, _ in found], ones, diagonal
        )
    found, diagonal, _ = library.triangular(flipped(unitary))
    elements = [(m, library.T(0, 1, theta, phi, 2).conj().T) for m, _, theta, phi, _ in found]
    return our_phases(layout, mirrored(elements, ports), diagonal[::-1], ones)


@pytest.mark.parametrize("shape", LAYOUTS)
@pytest.mark.parametrize("ports", [2, 3, 4, 5, 8])
def test_mesh_matrix_agrees_with_interferometer(shape, ports):
    layout, rng = LAYOUTS[shape](ports), np.random.default_rng(ports)
    mzis = len(layout.mzis)
    phases = MeshPhases(layout, *(rng.uniform(0.0, 2.0 * math.pi, size) for size in (mzis, mzis, ports)))
    np.testing.assert_allclose(mesh_matrix(phases), in_interferometer(phases), atol=1e-13)


@pytest.mark.parametrize("shape", LAYOUTS)
def test_our_phases_make_the_unitary_in_the_mesh_of_interferometer(shape):
    for unitary in UNITARIES:
        phases = decompose(unitary, LAYOUTS[shape](len(unitary)))
        np.testing.assert_allclose(in_interferometer(phases), unitary, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("shape", LAYOUTS)
def test_phases_of_interferometer_are_ours_and_make_the_unitary_in_our_mesh(shape):
    for unitary in UNITARIES:
        check_agreement(from_interferometer(unitary, shape), unitary)


@pytest.mark.parametrize("shape", LAYOUTS)
def test_phases_of_strawberryfields_are_ours_and_make_the_unitary_in_our_mesh(shape, strawberryfields):
    for unitary in UNITARIES:
        check_agreement(from_strawberryfields(strawberryfields, unitary, shape), unitary)


def check_agreement(theirs, unitary):
    np.testing.assert_allclose(mesh_matrix(theirs), unitary, rtol=0.0, atol=1e-12)
    ours = decompose(unitary, theirs.layout)
    # Phases of random unitaries are unique, but loosely bound where little light passes.
    for part in ("theta", "phi", "output"):
        apart = np.exp(1j * getattr(ours, part)) - np.exp(1j * getattr(theirs, part))
        np.testing.assert_allclose(apart, 0.0, atol=1e-7)
