"""Meshes multiplied out from couplers and phases on single arms: slow, and with nothing in common with the product."""

import numpy as np

from optinc_hw.photonics import coupler_matrix


def arms(phase, arm):
    """A phase shifter on two waveguides."""
    turns = {"upper": (phase, 0.0), "lower": (0.0, phase), "push_pull": (phase / 2, -phase / 2)}[arm]
    return np.diag(np.exp(1j * np.array(turns)))


def dense_cell(theta, phi, placement, flaws, k):
    """The 2 x 2 matrix of MZI ``k`` with phase shifters where the placement says."""
    loss = np.diag(np.ones(2) if flaws.arms is None else flaws.arms[k])
    inside = loss @ arms(theta, placement.internal)
    cell = coupler_matrix(flaws.eta_out[k]) @ inside @ coupler_matrix(flaws.eta_in[k])
    external = arms(phi, placement.external)
    return flaws.transmission[k] * (cell @ external if placement.side == "before" else external @ cell)


def embedded(cell, mode, ports):
    """A 2 x 2 matrix on two of all modes."""
    whole = np.eye(ports, dtype=complex)
    whole[mode : mode + 2, mode : mode + 2] = cell
    return whole


def dense_steps(phases, flaws):
    """The matrix of all that light of one setting has passed, before each MZI and at the end."""
    ports = phases.layout.ports
    state = np.eye(ports) if phases.input is None else np.diag(np.exp(1j * phases.input))
    steps = [state]
    for k, (_, mode) in enumerate(phases.layout.mzis):
        cell = dense_cell(phases.theta[k], phases.phi[k], phases.placement, flaws, k)
        state = embedded(cell, mode, ports) @ state
        steps.append(state)
    return steps


def dense_matrix(phases, flaws):
    """The matrix of a mesh at one setting."""
    return np.diag(np.exp(1j * phases.output)) @ dense_steps(phases, flaws)[-1]
