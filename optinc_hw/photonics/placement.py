"""Phases moved between the arms on which chips have their phase shifters; the matrix stays the same.

A shifter that turns the arms of a pair by x and y does what x - y on the upper arm alone does, and y on both. What is
common to both arms passes an MZI unchanged, whatever its couplers and losses are; so it is carried on to the next
column, in the end to the ports, and what it has gathered differently on two modes is put into the next external phase.

A unitary of n modes has n^2 free phases and n(n-1)/2 MZIs have n(n-1), so n more are needed. With external phases
before the MZIs they have to be at the outputs. At the inputs, what differs between two modes does no more than the
external phase of the MZI behind, and what they share stays shared: the outputs of the last MZIs cannot be turned
against one another. Hence (before, outputs) and its mirror image (after, inputs) reach every unitary, and phases are
converted to no other arrangement; `MeshPhases` describes chips that have one.
"""

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics._mesh import STANDARD, Arm, MeshPhases, PhasePlacement

_TWO_PI = 2.0 * np.pi
_ARMS: dict[Arm, tuple[float, float]] = {"upper": (1.0, 0.0), "lower": (0.0, 1.0), "push_pull": (0.5, -0.5)}
"""How a phase shifter turns the upper and the lower arm."""
_PUSH_PULL = PhasePlacement("push_pull", "push_pull")
_EXACT = 1e-15  # an MZI so near the bar or the cross state is in it


def convert_phases(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    """Express the same matrix with phase shifters in other places.

    Parameters
    ----------
    phases
        Phases in any placement, one setting or a batch.
    placement
        Where the phase shifters are wanted. With external phases before the MZIs the rest goes to the outputs, with
        external phases after them it goes to the inputs.

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
    ahead, behind = (1.0, 0.0) if placement.side == "before" else (0.0, 1.0)
    phi = np.empty(np.shape(phases.phi))
    carried = np.zeros(np.shape(phases.output)) if phases.input is None else np.array(phases.input, dtype=np.float64)
    for column, modes in _columns(phases):
        external = phases.phi[..., column]
        bottom = carried[..., modes + 1] + ahead * lower * external
        phi[..., column] = carried[..., modes] + ahead * upper * external - bottom
        bottom += inner_lower * phases.theta[..., column]
        carried[..., modes] = wrapped(bottom + behind * upper * external)
        carried[..., modes + 1] = wrapped(bottom + behind * lower * external)
    theta = (inner_upper - inner_lower) * phases.theta
    return MeshPhases(phases.layout, wrapped(theta), wrapped(phi), wrapped(phases.output + carried))


def from_standard(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    """Express standard phases, rest at the outputs, in another placement."""
    if placement == STANDARD:
        return MeshPhases(phases.layout, wrapped(phases.theta), wrapped(phases.phi), wrapped(phases.output))
    return _towards_outputs(phases, placement) if placement.side == "before" else _towards_inputs(phases, placement)


def fold_push_pull(phases: MeshPhases) -> MeshPhases:
    """Express standard phases of an ideal mesh in push-pull, external phases within pi/2 of pi.

    An ideal MZI with theta of the other sign and phi turned by pi differs from the original only by the sign of its
    lower output, so half the range of phi is enough. An MZI in the bar or the cross state passes phi on to one output,
    and gets phi = pi. Real orthogonal matrices then need only phi = pi: every MZI is a real rotation.

    Returns
    -------
    MeshPhases
        In push-pull; theta in [-pi, pi], phi in [pi/2, 3 pi/2), output in [0, 2 pi).
    """
    theta, phi = (np.empty(np.shape(phases.theta)) for _ in range(2))
    carried = np.zeros(np.shape(phases.output))
    for column, modes in _columns(phases):
        bottom = carried[..., modes + 1]
        external = wrapped(carried[..., modes] - bottom + phases.phi[..., column])
        internal = wrapped(phases.theta[..., column] + np.pi) - np.pi
        bar, cross = np.abs(np.cos(internal / 2.0)) < _EXACT, np.abs(np.sin(internal / 2.0)) < _EXACT
        passed = np.where(bar | cross, external - np.pi, 0.0)
        external = external - passed
        flip = np.where((external >= 0.5 * np.pi) & (external < 1.5 * np.pi), 0.0, np.pi)
        external = wrapped(external + flip)
        theta[..., column], phi[..., column] = np.where(flip > 0.0, -internal, internal), external
        bottom = bottom + 0.5 * (external + internal)
        carried[..., modes] = wrapped(bottom + np.where(bar, passed, 0.0))
        carried[..., modes + 1] = wrapped(bottom + np.where(cross, passed, 0.0) + flip)
    return MeshPhases(phases.layout, theta, phi, wrapped(phases.output + carried), placement=_PUSH_PULL)


def wrapped(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles in [0, 2 pi)."""
    turned = np.mod(angle, _TWO_PI)
    # A tiny negative phase modulo 2 pi is rounded to 2 pi itself.
    return np.asarray(np.where(turned < _TWO_PI, turned, 0.0), dtype=np.float64)


def _towards_outputs(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    upper, lower = _ARMS[placement.external]
    inner_upper, inner_lower = _ARMS[placement.internal]
    theta = wrapped(phases.theta / (inner_upper - inner_lower))
    phi = np.empty(np.shape(phases.phi))
    carried = np.zeros(np.shape(phases.output))
    for column, modes in _columns(phases):
        bottom = carried[..., modes + 1]
        phi[..., column] = wrapped((carried[..., modes] - bottom + phases.phi[..., column]) / (upper - lower))
        bottom = bottom - lower * phi[..., column] - inner_lower * theta[..., column]
        carried[..., modes] = carried[..., modes + 1] = wrapped(bottom)
    return MeshPhases(phases.layout, theta, phi, wrapped(phases.output + carried), placement=placement)


def _towards_inputs(phases: MeshPhases, placement: PhasePlacement) -> MeshPhases:
    upper, lower = _ARMS[placement.external]
    inner_upper, inner_lower = _ARMS[placement.internal]
    theta = wrapped(phases.theta / (inner_upper - inner_lower))
    phi = np.empty(np.shape(phases.phi))
    carried = np.array(phases.output, dtype=np.float64)
    for column, modes in reversed(_columns(phases)):
        bottom = carried[..., modes + 1]
        phi[..., column] = wrapped((carried[..., modes] - bottom) / (upper - lower))
        bottom = bottom - lower * phi[..., column] - inner_lower * theta[..., column]
        carried[..., modes] = wrapped(bottom + phases.phi[..., column])
        carried[..., modes + 1] = wrapped(bottom)
    rest = np.zeros(np.shape(phases.output))
    return MeshPhases(phases.layout, theta, phi, rest, input=wrapped(carried), placement=placement)


def _columns(phases: MeshPhases) -> list[tuple[slice, NDArray[np.int64]]]:
    """List the range and the upper modes of the MZIs of each column that has any."""
    spans = [slice(column[0], column[-1] + 1) for column in phases.layout.columns if column]
    return [(span, phases.layout.modes[span]) for span in spans]
