"""What a mesh would be set to without its imperfections, corrected MZI by MZI, and which MZIs fall short."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics._decompose import decompose
from optinc_hw.photonics._local_correction import Cells, Correction, correct_locally, reach
from optinc_hw.photonics._mesh import STANDARD, MeshImperfections, MeshPhases, PhasePlacement
from optinc_hw.photonics._refine_mesh import infidelity, refine
from optinc_hw.photonics._transfer import mesh_matrix
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout, TriangularLayout
from optinc_hw.photonics.placement import _ARMS

Cause = Literal["clipped", "arms", "stuck", "missing"]

REACHED = 1e-8
"""Infidelity at which a target counts as reached."""
_NOTICED = 1e-12
"""Squared deviation of an MZI from the ideal one above which it limits the mesh."""
_TILTS = (0.0, 0.3, 0.6, 1.0)
"""Largest internal phases in rad of starts that need no decomposition: first cross states, through which light goes
straight from one side of the mesh to the other."""


@dataclass(frozen=True)
class LimitingMzi:
    """An MZI that cannot do what the target asks of it.

    Parameters
    ----------
    column, mode
        Its place.
    cause
        ``"clipped"``: its couplers do not reach the split; ``"arms"``: its arms lose unequally; ``"stuck"``: its
        phases do not follow; ``"missing"``: the chip has a bare waveguide there.
    asked
        ``|T11|``, the field that stays in its arm, that the target asks for.
    lowest, highest
        Range of ``|T11|`` that the MZI reaches, loss aside.
    shortfall
        Distance of ``asked`` from that range.
    share
        Part of the squared residual of the locally corrected mesh that this MZI alone makes.
    """

    column: int
    mode: int
    cause: Cause
    asked: float
    lowest: float
    highest: float
    shortfall: float
    share: float


@dataclass(frozen=True)
class Plan:
    """Standard phases of a mesh for a target, before any refinement.

    Parameters
    ----------
    ideal, corrected
        Phases for a mesh without imperfections, and corrected for the known ones.
    exact
        Whether the ideal mesh makes the target with ``ideal``.
    cells
        The M MZIs that the target was decomposed for, of which the chip may lack some.
    missing
        Which it lacks, (M,).
    correction
        What local correction did, (M,).
    loss
        Squared residual that the losses alone make.
    """

    ideal: MeshPhases
    corrected: MeshPhases
    exact: bool
    cells: Cells
    missing: NDArray[np.bool_]
    correction: Correction
    loss: float

    def limiting(self, squared_residual: float) -> tuple[LimitingMzi, ...]:
        """List the MZIs that fall short, the worst first; shares are of ``squared_residual``."""
        done, layout = self.correction, self.correction.phases.layout
        order = np.argsort(-done.error, kind="stable")
        found = []
        for k in order[done.error[order] > _NOTICED]:
            asked, low, high = float(done.asked[k]), float(done.lowest[k]), float(done.highest[k])
            short = max(low - asked, asked - high, 0.0)
            share = float(done.error[k]) / layout.ports / squared_residual
            column, mode = layout.mzis[k]
            found.append(LimitingMzi(column, mode, self._cause(int(k)), asked, low, high, short, share))
        return tuple(found)

    def _cause(self, k: int) -> Cause:
        if self.missing[k]:
            return "missing"
        if not (np.isnan(self.cells.theta[k]) and np.isnan(self.cells.phi[k])):
            return "stuck"
        equal_arms = replace(self.cells, arms=np.ones_like(self.cells.arms))
        lowest, highest = (side[k] for side in reach(equal_arms))
        return "arms" if lowest <= self.correction.asked[k] <= highest else "clipped"


def make_plan(
    target: NDArray[np.complex128],
    layout: MeshLayout,
    flaws: MeshImperfections,
    placement: PhasePlacement,
    max_steps: int,
) -> Plan:
    """Decompose the target, numerically where the layout has no decomposition, and correct every MZI."""
    host = _host(layout)
    if host is None:
        host, (ideal, exact) = layout, _search(target, layout, max_steps)
    else:
        ideal, exact = decompose(target, host), True
    kept = np.array([host.index(*mzi) for mzi in layout.mzis], dtype=np.int64)
    missing = np.ones(len(host.mzis), dtype=bool)
    missing[kept] = False
    cells = _cells(flaws, placement, missing, kept)
    correction = correct_locally(ideal, cells)
    gains = np.ones(len(host.mzis))
    gains[kept] = flaws.transmission
    gains *= np.sqrt((cells.arms**2).mean(axis=-1))
    loss = 0.0
    if (gains != 1.0).any():
        perfect = MeshImperfections.ideal(host)
        lossy = MeshImperfections(perfect.eta_in, perfect.eta_out, gains)
        lost = infidelity(mesh_matrix(ideal, lossy), target, "fidelity")[0]
        loss = lost / max(1.0 - lost, np.finfo(float).tiny)
    onto = [MeshPhases(layout, p.theta[kept], p.phi[kept], p.output) for p in (ideal, correction.phases)]
    return Plan(onto[0], onto[1], exact, cells, missing, correction, loss)


def general_starts(layout: MeshLayout) -> Iterator[MeshPhases]:
    """Yield standard phases from which descents lead far, whatever the target and the mesh."""
    rng = np.random.default_rng(0)  # the same target on the same mesh gets the same phases
    mzis, ports = len(layout.mzis), layout.ports
    for tilt in _TILTS:
        turn = 2.0 * np.pi * tilt
        theta, phi, output = rng.uniform(0.0, tilt, mzis), rng.uniform(0.0, turn, mzis), rng.uniform(0.0, turn, ports)
        yield MeshPhases(layout, theta, phi, output)


def _host(layout: MeshLayout) -> MeshLayout | None:
    """Find the mesh with a decomposition that has all MZIs of ``layout``, and the fewest others."""
    mzis = len(layout.mzis)
    if 2 * mzis > layout.ports * (layout.ports - 1):
        return None
    hosts = (RectangularLayout(layout.ports), TriangularLayout(layout.ports))
    return next((host for host in hosts if set(layout.mzis) <= set(host.mzis)), None)


def _search(target: NDArray[np.complex128], layout: MeshLayout, max_steps: int) -> tuple[MeshPhases, bool]:
    """Find phases of the ideal mesh by descents from several starts, and say whether they make the target."""
    perfect = MeshImperfections.ideal(layout)
    tried = []
    for start in general_starts(layout):
        phases, _ = refine(target, perfect, start, "fidelity", max_steps)
        tried.append((infidelity(mesh_matrix(phases), target, "fidelity")[0], phases))
        if tried[-1][0] < REACHED:
            break
    missed, phases = min(tried, key=lambda attempt: attempt[0])
    return phases, missed < REACHED


def _cells(
    flaws: MeshImperfections, placement: PhasePlacement, missing: NDArray[np.bool_], kept: NDArray[np.int64]
) -> Cells:
    """Put the chip's MZIs among those of the decomposition; bare waveguides are MZIs stuck with empty couplers."""
    own = Cells.of(flaws)
    inner_upper, inner_lower = _ARMS[placement.internal]
    theta = (inner_upper - inner_lower) * own.theta
    # Elsewhere the phase that reaches an MZI depends on those before it; refinement deals with it.
    phi = own.phi if placement == STANDARD else np.full_like(own.phi, np.nan)

    def among(chip: NDArray[np.float64], bare: float) -> NDArray[np.float64]:
        values = np.full((len(missing), *np.shape(chip)[1:]), bare)
        values[kept] = chip
        return values

    return Cells(
        among(own.eta_in, 0.0), among(own.eta_out, 0.0), among(own.arms, 1.0), among(theta, 0.0), among(phi, 0.0)
    )
