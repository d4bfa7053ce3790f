"""Meshes that the library `interferometer` decomposed, as phases of our chips."""

import math

import numpy as np
from interferometer import square_decomposition


def haar(ports, seed):
    rng = np.random.default_rng(seed)
    q, r = np.linalg.qr(rng.standard_normal((ports, ports)) + 1j * rng.standard_normal((ports, ports)))
    return q * (np.diag(r) / np.abs(np.diag(r)))


def phases_from_library(unitary, layout):
    """Heater phases for a unitary that the library `interferometer` decomposed.

    Its element is B(a, p) = [[e^ip cos a, -sin a], [e^ip sin a, cos a]]; ours is
    T(t, f) = -i e^{it/2} B(pi/2 - t/2, f + pi), so common phases are carried along to the outputs.
    """
    mesh = square_decomposition(unitary)
    carried = np.zeros(layout.ports)
    waiting = {mode: [c for c, m in layout.mesh.mzis if m == mode] for mode in range(layout.ports - 1)}
    phases = {}
    for element in mesh.BS_list:
        upper = element.mode1 - 1
        assert element.mode2 == element.mode1 + 1
        column = waiting[upper].pop(0)
        theta = math.pi - 2.0 * element.theta
        phases[f"mzi_{column}_{upper}_theta"] = theta
        phases[f"mzi_{column}_{upper}_phi"] = element.phi - math.pi + carried[upper] - carried[upper + 1]
        carried[upper : upper + 2] = carried[upper + 1] + math.pi / 2.0 - theta / 2.0
    assert not any(waiting.values())
    return phases, np.asarray(mesh.output_phases) + carried
