"""Phases moved between the arms on which chips have their phase shifters; the matrix stays the same.

A phase common to both arms passes an MZI unchanged, whatever its couplers and losses are, so what one placement
cannot express at an MZI is carried on to the next one and in the end to a port.
"""

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics._mesh import STANDARD, Arm, MeshPhases, PhasePlacement

_TWO_PI = 2.0 * np.pi
_ARMS: dict[Arm, tuple[float, float]] = {"upper": (1.0, 0.0), "lower": (0.0, 1.0), "push_pull": (0.5, -0.5)}
"""How a phase shifter turns the upper and the lower arm."""
_PUSH_PULL = PhasePlacement("push_pull", "push_pull")


def convert_phases(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    """Express the same matrix with phase shifters in other places.

    Parameters
    ----------
    phases
        Phases in any placement, one setting or a batch.
    placement
        Where the phase shifters are wanted. With external phases before the MZIs the rest goes to the outputs, with
        external phases after them it goes to the inputs: the only two arrangements that reach every unitary.

    Returns
    -------
    MeshPhases
        In ``placement``, all phases in [0, 2 pi); with external phases before the MZIs ``input`` is None, with
        external phases after them ``output`` is zero. Equal to ``phases`` in its matrix, imperfections included.
    """
    return from_standard(to_standard(phases), placement)


def to_standard(phases: MeshPhases) -> MeshPhases:
    """Express phases in the placement of `mzi_matrix`, rest at the outputs; returns what is standard as it is."""
    placement = phases.placement
    if placement == STANDARD and phases.input is None:
        return phases
    upper, lower = _ARMS[placement.external]
    inner_upper, inner_lower = _ARMS[placement.internal]
    phi = np.empty_like(phases.phi)
    carried = np.zeros_like(phases.output) if phases.input is None else phases.input.copy()
    for column, modes in _columns(phases):
        before, after = _split(phases.phi[..., column], placement)
        bottom = carried[..., modes + 1] + lower * before
        phi[..., column] = carried[..., modes] + upper * before - bottom
        bottom = bottom + inner_lower * phases.theta[..., column]
        carried[..., modes] = wrapped(bottom + upper * after)
        carried[..., modes + 1] = wrapped(bottom + lower * after)
    theta = (inner_upper - inner_lower) * phases.theta
    return MeshPhases(phases.layout, wrapped(theta), wrapped(phi), wrapped(phases.output + carried))


def from_standard(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    """Express standard phases, rest at the outputs, in another placement."""
    if placement == STANDARD:
        return phases
    return _towards_outputs(phases, placement) if placement.side == "before" else _towards_inputs(phases, placement)


def fold_push_pull(phases: MeshPhases) -> MeshPhases:
    """Express standard phases of an ideal mesh in push-pull, external phases within pi/2 of pi.

    An ideal MZI with theta of the other sign and phi turned by pi differs from the original only by the sign of its
    lower output, so half the range of phi is enough, and real orthogonal matrices need only phi = pi: every MZI is
    then a real rotation.

    Returns
    -------
    MeshPhases
        In push-pull; theta in [-pi, pi], phi in [pi/2, 3 pi/2), output in [0, 2 pi).
    """
    return _towards_outputs(phases, _PUSH_PULL, fold=True)


def wrapped(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles in [0, 2 pi)."""
    # Twice: a tiny negative phase modulo 2 pi is rounded to 2 pi itself.
    return np.asarray(np.mod(np.mod(angle, _TWO_PI), _TWO_PI), dtype=np.float64)


def _towards_outputs(phases: MeshPhases, placement: PhasePlacement, *, fold: bool = False) -> MeshPhases:
    upper, lower = _ARMS[placement.external]
    inner_upper, inner_lower = _ARMS[placement.internal]
    theta = wrapped(phases.theta / (inner_upper - inner_lower))
    phi = np.empty_like(phases.phi)
    carried = np.zeros_like(phases.output)
    for column, modes in _columns(phases):
        bottom = carried[..., modes + 1]
        turned = wrapped((carried[..., modes] - bottom + phases.phi[..., column]) / (upper - lower))
        flip = np.zeros_like(turned)
        inner = theta[..., column]
        if fold:
            inner = wrapped(inner + np.pi) - np.pi
            flip = np.where(np.abs(turned - np.pi) > np.pi / 2.0, np.pi, 0.0)
            turned = wrapped(turned + flip)
        theta[..., column] = np.where(flip > 0.0, -inner, inner)
        bottom = bottom - lower * turned - inner_lower * inner
        phi[..., column] = turned
        carried[..., modes] = wrapped(bottom)
        carried[..., modes + 1] = wrapped(bottom + flip)
    return MeshPhases(phases.layout, theta, phi, wrapped(phases.output + carried), placement=placement)


def _towards_inputs(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    upper, lower = _ARMS[placement.external]
    inner_upper, inner_lower = _ARMS[placement.internal]
    theta = wrapped(phases.theta / (inner_upper - inner_lower))
    phi = np.empty_like(phases.phi)
    carried = phases.output.copy()
    for column, modes in reversed(_columns(phases)):
        bottom = carried[..., modes + 1]
        phi[..., column] = wrapped((carried[..., modes] - bottom) / (upper - lower))
        bottom = bottom - lower * phi[..., column] - inner_lower * theta[..., column]
        carried[..., modes] = wrapped(bottom + phases.phi[..., column])
        carried[..., modes + 1] = wrapped(bottom)
    rest = np.zeros_like(phases.output)
    return MeshPhases(phases.layout, theta, phi, rest, input=wrapped(carried), placement=placement)


def _split(phi: NDArray[np.float64], placement: PhasePlacement) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """External phases before and after the MZIs."""
    nothing = np.zeros_like(phi)
    return (phi, nothing) if placement.side == "before" else (nothing, phi)


def _columns(phases: MeshPhases) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """List indices and upper modes of the MZIs of each column that has any."""
    layout = phases.layout
    return [(np.asarray(column, dtype=np.int64), layout.modes[list(column)]) for column in layout.columns if column]
