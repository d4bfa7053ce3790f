"""Programming a unitary onto a mesh with known imperfections."""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._commands import check_crosstalk, commands
from optinc_hw.photonics._mesh import STANDARD, MeshImperfections, MeshPhases, PhasePlacement
from optinc_hw.photonics._mesh_plan import REACHED, LimitingMzi, general_starts, make_plan
from optinc_hw.photonics._refine_mesh import Criterion, brought_in, flat_phases, infidelity
from optinc_hw.photonics._refine_mesh import refine as descend
from optinc_hw.photonics._transfer import mesh_matrix
from optinc_hw.photonics._unitary import require_unitary, square_matrix
from optinc_hw.photonics.mesh_layout import MeshLayout, whole
from optinc_hw.photonics.placement import convert_phases, from_standard

Method = Literal["uncorrected", "corrected", "refined"]

_TWO_PI = 2.0 * np.pi
_EXACT = 1e-20
"""Infidelity, near that of rounding errors, at which refinement is not tried."""
_POOR = 0.01
"""Infidelity above which other starts are tried: far from its ideal, a mesh has better places than the nearest."""
_WHOLE_STATE = 1e-6
"""Largest sine of the internal phases of a mesh whose MZIs all cross or pass all light."""
_TINY = np.finfo(float).tiny
_SHOWN = 5
"""Limiting MZIs in a summary."""


@dataclass(frozen=True)
class MeshProgram:
    """Phases that bring an imperfect mesh as near to a unitary target as was found, and how near that is.

    Fidelities are ``|Tr(U^dagger S)|^2 / (n |S|_F^2)``, free of a common phase and of a common loss.

    Parameters
    ----------
    phases
        Phases in rad in the chip's placement, in [0, 2 pi) ([0, 4 pi) for push-pull meshes with stuck MZIs). Stuck MZIs
        are listed too, although they do not follow.
    commanded
        Phases ``(2 K + n,)`` in rad to command (theta, phi, then the ports) where crosstalk was given: at least 0,
        and 0 for phase shifters that are stuck. None without crosstalk.
    criterion
        What was made best.
    method
        Which phases were best: the ideal mesh's (or the caller's start), locally corrected, or refined.
    converged
        True if the target is reached (infidelity at most 1e-8). Also if the ideal mesh makes the target, refinement
        began there, and its last 50 steps lowered the infidelity by less than 0.1 %: the rest is then put down to the
        chip, although a better place far away cannot be excluded. False if steps ran out, and if a start of the
        caller's ended short of the target, which may be a local minimum of the mesh itself.
    fidelity, uncorrected_fidelity, corrected_fidelity
        Of ``phases``, of the ideal mesh's phases (or the caller's start), and of the locally corrected phases before
        refinement.
    residual, uncorrected_residual, corrected_residual
        ``|S / scale - U|_F / sqrt(n)`` of the same phases.
    scale
        Factor with which S is nearest to scale * U; real, with which Re(S) is nearest to scale * Re(U), for the
        criterion ``"real_part"``.
    real_part_error, uncorrected_real_part_error
        ``|Re(S) / a - Re(U)|_F / |Re(U)|_F`` at the best real a; NaN if Re(U) is 0.
    limiting
        MZIs that limit ``corrected_residual`` (of the decomposition's phases, also with a start of the caller's), the
        worst first.
    loss_share
        Part of ``corrected_residual ** 2`` that losses make by differing between paths.
    """

    phases: MeshPhases
    commanded: NDArray[np.float64] | None
    criterion: Criterion
    method: Method
    converged: bool
    fidelity: float
    uncorrected_fidelity: float
    corrected_fidelity: float
    residual: float
    uncorrected_residual: float
    corrected_residual: float
    scale: complex
    real_part_error: float
    uncorrected_real_part_error: float
    limiting: tuple[LimitingMzi, ...]
    loss_share: float

    def __str__(self) -> str:
        """Summarise for people."""
        lines = [
            f"mesh of {self.phases.layout.ports} ports, {len(self.phases.layout.mzis)} MZIs: 1 - F = "
            f"{_lost(self.residual):.2e} ({self.method}), residual {self.residual:.2e}, "
            + ("converged" if self.converged else "NOT CONVERGED"),
            f"1 - F uncorrected {_lost(self.uncorrected_residual):.2e}, locally corrected "
            f"{_lost(self.corrected_residual):.2e}; real part off by {self.real_part_error:.2e} "
            f"(uncorrected {self.uncorrected_real_part_error:.2e})",
        ]
        if self.loss_share > 0.0:
            lines.append(
                f"losses that differ between paths make {self.loss_share:.0%} of the squared residual after local "
                "correction"
            )
        lines += [
            f"MZI ({mzi.column}, {mzi.mode}) {mzi.cause}: |T11| = {mzi.asked:.4f} asked, {mzi.lowest:.4f} to "
            f"{mzi.highest:.4f} reached, {mzi.share:.0%} of the squared residual after local correction"
            for mzi in self.limiting[:_SHOWN]
        ]
        if len(self.limiting) > _SHOWN:
            lines.append(f"and {len(self.limiting) - _SHOWN} more MZIs that fall short")
        return "\n".join(lines)


def program_mesh(
    target: ArrayLike,
    layout: MeshLayout,
    imperfections: MeshImperfections | None = None,
    *,
    crosstalk: ArrayLike | None = None,
    start: MeshPhases | None = None,
    refine: bool = True,
    placement: PhasePlacement = STANDARD,
    criterion: Criterion = "fidelity",
    max_steps: int = 500,
) -> MeshProgram:
    """Find phases with which a mesh of known imperfections makes a unitary.

    The target is decomposed for an ideal mesh, every MZI is corrected for its own couplers (`correct_locally`; exact
    where they reach the split asked for), and all phases are then refined together by L-BFGS. The best of the ideal,
    the corrected and the refined phases is returned: by the criterion, never worse than ignoring the imperfections.

    Parameters
    ----------
    target
        ``(n, n)`` unitary.
    layout
        Any mesh of n ports. Rectangular and triangular meshes, also with missing MZIs, start from the decomposition;
        for others the ideal phases are searched by descents from fixed starts.
    imperfections
        Of one chip; None means ideal.
    crosstalk
        ``(2 K + n, 2 K + n)``: actual phases = crosstalk @ commanded phases, in the order theta, phi, ports (outputs,
        or inputs where the external phases come after the MZIs); unit diagonal.
    start
        Phases to refine instead of those of the decomposition, in any placement.
    refine
        Whether to refine after local correction.
    placement
        Where the chip has its phase shifters; stuck phases and crosstalk are meant in it.
    criterion
        ``"fidelity"`` of the complex matrix; ``"columns"``, its fidelity with every column scaled to norm 1, for
        chips whose inputs are normalised; or ``"real_part"`` for chips whose receivers read real parts: the relative
        error of Re(S) at the best scale.
    max_steps
        Largest number of steps of each descent, at least 1.

    Returns
    -------
    MeshProgram
        Phases, residual and what limits it.

    Raises
    ------
    MatrixError
        If the target is not unitary (to 1e-9; see `nearest_unitary`) or does not fit the layout; imperfections,
        crosstalk or start do not fit or are of several chips; Re(U) is 0 with ``"real_part"``; an option is unknown.
    LimitError
        If crosstalk leaves a commanded phase below 0.
    """
    unitary, _ = require_unitary(square_matrix(target))
    flaws = _checked(unitary, layout, imperfections, criterion)
    steps = whole("max_steps", max_steps, 1)
    mixing = None if crosstalk is None else check_crosstalk(crosstalk, 2 * len(layout.mzis) + layout.ports)
    plan = make_plan(unitary, layout, flaws, placement, steps)
    first = _Attempt("uncorrected", from_standard(plan.ideal, placement), unitary, flaws)
    local = corrected = _Attempt("corrected", from_standard(plan.corrected, placement), unitary, flaws)
    if start is not None:
        own = brought_in(convert_phases(_fitting(start, layout), placement), flaws)
        first = corrected = _Attempt("uncorrected", own, unitary, flaws)
    best = min((first, corrected), key=lambda attempt: attempt.missed(criterion))
    ended = False
    starts = [best.phases] if refine and best.missed(criterion) > _EXACT else []
    if starts and start is None:
        nearest = plan.ideal if best is first else plan.corrected
        starts = [from_standard(_without_symmetry(nearest, plan.ideal, unitary), placement)]
        starts += [from_standard(phases, placement) for phases in general_starts(layout)]
    for begin in starts:
        phases, over = descend(unitary, flaws, begin, criterion, steps)
        refined = _Attempt("refined", phases, unitary, flaws)
        if refined.missed(criterion) < best.missed(criterion):
            best, ended = refined, over
        if best.missed(criterion) < _POOR:
            break
    square = max(local.error() ** 2, _TINY)
    return MeshProgram(
        phases=best.phases,
        commanded=None if mixing is None else _commanded(best.phases, flaws, mixing),
        criterion=criterion,
        method=best.method,
        converged=best.missed(criterion) <= REACHED or (ended and plan.exact and start is None),
        fidelity=1.0 - best.missed(),
        uncorrected_fidelity=1.0 - first.missed(),
        corrected_fidelity=1.0 - corrected.missed(),
        residual=best.error(),
        uncorrected_residual=first.error(),
        corrected_residual=corrected.error(),
        scale=infidelity(best.matrix, unitary, criterion)[1],
        real_part_error=best.error("real_part"),
        uncorrected_real_part_error=first.error("real_part"),
        limiting=plan.limiting(square),
        loss_share=plan.loss / square,
    )


class _Attempt:
    """Phases and the matrix that the chip makes with them."""

    def __init__(
        self, method: Method, phases: MeshPhases, target: NDArray[np.complex128], flaws: MeshImperfections
    ) -> None:
        self.method, self.phases, self._target = method, phases, target
        self.matrix = mesh_matrix(phases, flaws)

    def missed(self, criterion: Criterion = "fidelity") -> float:
        """Infidelity."""
        return infidelity(self.matrix, self._target, criterion)[0]

    def error(self, criterion: Criterion = "fidelity") -> float:
        """Relative error at the best scale; infinite if nothing of the target is there, NaN if its real part is 0."""
        if criterion == "real_part" and not self._target.real.any():
            return math.nan
        missed = self.missed(criterion)
        return math.inf if missed >= 1.0 else math.sqrt(missed / (1.0 - missed))


def _checked(
    target: NDArray[np.complex128], layout: MeshLayout, imperfections: MeshImperfections | None, criterion: str
) -> MeshImperfections:
    """Check what belongs together and return the imperfections of the one chip."""
    if len(target) != layout.ports:
        raise MatrixError(f"the target has shape {target.shape}, the mesh has {layout.ports} ports; they must agree")
    if criterion not in get_args(Criterion):
        raise MatrixError(f"criterion is {criterion!r}; choose {', '.join(map(repr, get_args(Criterion)))}")
    if criterion == "real_part" and not target.real.any():
        raise MatrixError("the target's real part is 0, so criterion 'real_part' has nothing to reach; use 'fidelity'")
    if imperfections is None:
        return MeshImperfections.ideal(layout)
    imperfections.check(layout)
    for name, tail in (
        ("eta_in", 1),
        ("eta_out", 1),
        ("transmission", 1),
        ("arms", 2),
        ("stuck_theta", 1),
        ("stuck_phi", 1),
        ("behind", 2),
    ):
        values = getattr(imperfections, name)
        if np.ndim(values) > tail:
            raise MatrixError(
                f"{name} has shape {np.shape(values)}, of several chips; each needs phases of its own: program them "
                "one at a time"
            )
    return imperfections


def _fitting(start: MeshPhases, layout: MeshLayout) -> MeshPhases:
    """Return ``start`` after checking that it is one setting of the mesh."""
    if start.layout != layout:
        raise MatrixError(f"start belongs to {start.layout}, the target is for {layout}; they must be the same mesh")
    if start.batch:
        raise MatrixError(f"start holds settings {start.batch}; give one")
    return start


def _without_symmetry(phases: MeshPhases, ideal: MeshPhases, target: NDArray[np.complex128]) -> MeshPhases:
    """Draw the external phases of a permutation, which the ideal mesh leaves free; others stay as they are.

    As decomposed they are multiples of pi, from where leaking light has no slope towards anything else.
    """
    if np.any(np.abs(np.sin(ideal.theta)) > _WHOLE_STATE):
        return phases
    drawn = np.random.default_rng(0).uniform(0.0, _TWO_PI, len(phases.phi))
    turned = np.sum(target.conj() * mesh_matrix(replace(ideal, phi=drawn)), axis=1)
    return replace(phases, phi=drawn, output=phases.output - np.angle(turned))


def _commanded(phases: MeshPhases, flaws: MeshImperfections, crosstalk: NDArray[np.float64]) -> NDArray[np.float64]:
    """Phases (2 K + n,) to command; stuck phase shifters are left unheated."""
    mzis, ports = len(phases.layout.mzis), phases.layout.ports
    stuck = [np.zeros(mzis, bool) if p is None else ~np.isnan(p) for p in (flaws.stuck_theta, flaws.stuck_phi)]
    driven = ~np.concatenate([*stuck, np.zeros(ports, bool)])
    turns = [2.0 if arm == "push_pull" else 1.0 for arm in (phases.placement.internal, phases.placement.external)]
    period = _TWO_PI * np.repeat([*turns, 1.0], [mzis, mzis, ports])
    return commands(flat_phases(phases), crosstalk, driven, period)


def _lost(residual: float) -> float:
    """Infidelity of a relative error, with the digits that 1 - F lacks."""
    return 1.0 if math.isinf(residual) else residual**2 / (1.0 + residual**2)
