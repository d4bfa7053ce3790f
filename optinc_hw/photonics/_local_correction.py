"""Hardware error correction MZI by MZI: the wanted split from imperfect couplers, left-over phases handed on.

S. Bandyopadhyay, R. Hamerly and D. Englund, Optica 8, 1247 (2021).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics._mesh import MeshImperfections, MeshPhases
from optinc_hw.photonics._mzi import coupler_matrix, mzi_matrix
from optinc_hw.photonics.placement import wrapped

_TINY = 1e-200
"""Keeps divisions by the weight of an element without light finite."""


@dataclass(frozen=True)
class Cells:
    """The MZIs of a mesh, each on its own: ``(..., K)`` arrays in the standard placement.

    Parameters
    ----------
    eta_in, eta_out
        Splitting angles in rad.
    arms
        ``(..., K, 2)`` field transmissions between the couplers.
    theta, phi
        Phases in rad that cannot be chosen; NaN where they can.
    """

    eta_in: NDArray[np.float64]
    eta_out: NDArray[np.float64]
    arms: NDArray[np.float64]
    theta: NDArray[np.float64]
    phi: NDArray[np.float64]

    @classmethod
    def of(cls, flaws: MeshImperfections) -> "Cells":
        """Take what concerns an MZI's splitting; loss common to both arms does not."""
        free = np.full(np.shape(flaws.eta_in), np.nan)
        return cls(
            flaws.eta_in,
            flaws.eta_out,
            np.ones((*free.shape, 2)) if flaws.arms is None else flaws.arms,
            free if flaws.stuck_theta is None else flaws.stuck_theta,
            free if flaws.stuck_phi is None else flaws.stuck_phi,
        )


@dataclass(frozen=True)
class Correction:
    """What local correction chose and what it could not do; ``(..., K)`` arrays over the MZIs.

    Parameters
    ----------
    phases
        Corrected phases in the standard placement, in [0, 2 pi).
    asked
        ``|T11|`` of the ideal MZI.
    lowest, highest
        Range of ``|T11|`` that the imperfect MZI reaches, per rms transmission of its arms.
    error
        ``|T_ideal - T|_F^2`` with T brought to the norm of a lossless MZI.
    """

    phases: MeshPhases
    asked: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    error: NDArray[np.float64]


def correct_locally(ideal: MeshPhases, cells: Cells) -> Correction:
    """Find phases with which imperfect MZIs do what ideal ones do at the given phases.

    Every MZI gets the internal phase that splits power as the ideal MZI does, or the nearest that it can. The phases
    of its four elements then agree with the ideal ones up to a phase of its upper input, its own external phase, and
    one of each output, handed on to the MZIs behind and in the end to the ports. Exact where every split is
    reachable and the arms are equal. Unequal arms turn the four phases apart; the difference is spread so that the
    overlap with the ideal MZI is largest.

    Parameters
    ----------
    ideal
        Phases in the standard placement for a mesh without imperfections.
    cells
        The MZIs of one chip or a batch; leading axes broadcast against those of ``ideal``.
    """
    asked, cosine = np.abs(np.sin(ideal.theta / 2.0)), np.abs(np.cos(ideal.theta / 2.0))
    theta = _internal_phase(asked, cosine, cells)
    want, have = mzi_matrix(ideal.theta, ideal.phi), _arm_mzi(theta, cells)
    norm = np.sqrt((have.real**2 + have.imag**2).sum(axis=(-2, -1), keepdims=True) / 2.0)
    sizes = np.abs(want), np.abs(have) / np.maximum(norm, _TINY)
    overlap = sizes[0] * sizes[1]
    off, turns = _spread_mismatch(np.angle(want) - np.angle(have), overlap)
    forced = np.broadcast_to(cells.phi, theta.shape)
    phi, output, missed = _walk(ideal, turns, overlap, forced)
    off = off + missed
    error = ((sizes[0] - sizes[1]) ** 2 + 4.0 * overlap * np.sin(off / 2.0) ** 2).sum(axis=(-2, -1))
    phases = MeshPhases(ideal.layout, wrapped(theta), wrapped(phi), wrapped(output))
    return Correction(phases, np.broadcast_to(asked, theta.shape), *reach(cells), error)


def _arm_mzi(theta: NDArray[np.float64], cells: Cells) -> NDArray[np.complex128]:
    """Matrices (..., K, 2, 2) of MZIs with unequal arms, external phase 0."""
    arms = cells.arms * np.stack([np.exp(1j * theta), np.ones_like(theta)], axis=-1)
    return np.asarray(coupler_matrix(cells.eta_out) @ (arms[..., None] * coupler_matrix(cells.eta_in)))


def reach(cells: Cells) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find the smallest and the largest ``|T11|`` of each MZI, per rms transmission of its arms."""
    at_zero, at_pi, _, _ = _power_range(cells)
    fixed = at_zero + (at_pi - at_zero) * np.sin(cells.theta / 2.0) ** 2
    stuck = ~np.isnan(cells.theta)
    low, high = (np.where(stuck, fixed, side(at_zero, at_pi)) for side in (np.minimum, np.maximum))
    return np.sqrt(np.maximum(low, 0.0)), np.sqrt(high)


def _power_range(
    cells: Cells,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Power that stays in its arm at theta = 0 and pi, swing Q, and what unequal arms take off either end.

    Averaged over the two inputs, that power is ``P - kappa Q cos(theta)`` with
    ``P +- Q = cos^2(eta_out -+ eta_in)`` and ``kappa = 2 a b / (a^2 + b^2)`` of the arms a, b.
    """
    upper, lower = cells.arms[..., 0], cells.arms[..., 1]
    swing = np.sin(2.0 * cells.eta_in) * np.sin(2.0 * cells.eta_out) / 2.0
    loss = swing * (upper - lower) ** 2 / np.maximum(upper**2 + lower**2, _TINY)
    at_zero = np.cos(cells.eta_out + cells.eta_in) ** 2 + loss
    return at_zero, np.cos(cells.eta_out - cells.eta_in) ** 2 - loss, swing, loss


def _internal_phase(sine: NDArray[np.float64], cosine: NDArray[np.float64], cells: Cells) -> NDArray[np.float64]:
    """Find the internal phase of the nearest split; half angles keep the digits of small ones."""
    at_zero, _, swing, loss = _power_range(cells)
    sign = np.where(swing < 0.0, -1.0, 1.0)
    rising = np.maximum(sign * (sine**2 - at_zero), 0.0)
    falling = np.maximum(sign * (cosine**2 - np.sin(cells.eta_out - cells.eta_in) ** 2 - loss), 0.0)
    found = 2.0 * np.arctan2(np.sqrt(rising), np.sqrt(falling))
    return np.where(np.isnan(cells.theta), found, cells.theta)


def _spread_mismatch(
    turns: NDArray[np.float64], overlap: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Make phases (..., 2, 2) consistent with three phase shifters, the change going where the least light is."""
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    mismatch = (signs * turns).sum(axis=(-2, -1), keepdims=True)
    mismatch = wrapped(mismatch + np.pi) - np.pi
    ease = 1.0 / np.maximum(overlap, _TINY)
    off = signs * mismatch * ease / ease.sum(axis=(-2, -1), keepdims=True)
    return off, turns - off


def _walk(
    ideal: MeshPhases, turns: NDArray[np.float64], overlap: NDArray[np.float64], forced: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Follow the light: external phases (..., K), output phases (..., n), and what stuck external phases miss."""
    layout, shape = ideal.layout, turns.shape[:-2]
    phi, missed = np.empty(shape), np.zeros(turns.shape)
    pending = np.zeros((*shape[:-1], layout.ports))
    stuck = ~np.isnan(forced)
    any_stuck = bool(stuck.any())
    for column in layout.columns:
        if not column:
            continue
        k = np.asarray(column)
        modes = layout.modes[k]
        wanted = turns[..., k, :, :].copy()
        wanted[..., 0] += pending[..., modes, None]
        wanted[..., 1] += pending[..., modes + 1, None]
        own = wanted[..., 0, 0] - wanted[..., 0, 1]
        ports = wanted[..., 1]
        if any_stuck:
            own = np.where(stuck[..., k], forced[..., k], own)
            wanted[..., 0] -= own[..., None]
            meant = np.angle((overlap[..., k, :, :] * np.exp(1j * wanted)).sum(axis=-1))
            ports = np.where(stuck[..., k, None], meant, ports)
            missed[..., k, :, :] = np.where(stuck[..., k, None, None], wanted - ports[..., None], 0.0)
        phi[..., k] = own
        pending[..., modes] = wrapped(ports[..., 0])
        pending[..., modes + 1] = wrapped(ports[..., 1])
    return phi, ideal.output + pending, missed
