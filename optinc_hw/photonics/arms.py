"""Waveguides without a heater: where they run, and what a phase on them does to the phases that have one.

A common phase of both arms passes an MZI unchanged, so a phase anywhere on the chip can be pushed towards the
outputs until it sits on heated arms only.  Heat on bare waveguides therefore needs no phases of its own: it turns
into crosstalk that reaches along the light's diagonals.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.layout import ChipLayout

ATTENUATOR_ARM_GAP = 0.5
"""Distance of an attenuator's arms in pitches; attenuators stand one pitch apart."""


@dataclass(frozen=True)
class BareArms:
    """The A waveguide sections without a heater whose phase reaches a receiver, or whose effect is nothing.

    Parameters
    ----------
    sites
        Places (A, 2): x along the light, y across, in pitches.
    effect
        Changes (H, A) of the heated phases that stand for one unit of phase on each bare arm; entries are integers.
    """

    sites: NDArray[np.float64]
    effect: NDArray[np.float64]


def bare_arms(layout: ChipLayout) -> BareArms:
    """List the bare arms of a chip: lower arms, and modes that pass a column beside its MZIs."""
    heaters, unit = layout.heater_sites, np.eye(len(layout.heaters))
    # Columns from the last to the first: a phase before a column is known from those behind it.
    columns: list[_Arms] = []
    # Phases behind the mesh mean nothing to power detectors.
    behind = unit[layout.output_phase] if layout.homodynes else np.zeros((layout.ports, len(unit)))
    for column in reversed(range(layout.mesh.depth)):
        behind, arms = _before_column(layout, column, behind, unit)
        columns.append(arms)
    inputs = [
        (heaters[theta, 0], 2.0 * i + 1.0, unit[phi] - unit[theta])
        for i, (theta, phi) in enumerate(zip(layout.input_theta, layout.input_phi, strict=True))
    ]
    attenuators = [
        (heaters[att, 0], heaters[att, 1] + ATTENUATOR_ARM_GAP, unit[out] - unit[att])
        for out, att in zip(layout.output_phase, layout.attenuator, strict=True)
    ]
    arms = [*inputs, *(arm for column in reversed(columns) for arm in column), *attenuators]
    sites = np.array([(x, y) for x, y, _ in arms], dtype=np.float64).reshape(-1, 2)
    effects = np.array([effect for *_, effect in arms], dtype=np.float64).reshape(-1, len(heaters))
    return BareArms(sites, effects.T.copy())


_Arms = list[tuple[float, float, NDArray[np.float64]]]


def _before_column(
    layout: ChipLayout, column: int, behind: NDArray[np.float64], unit: NDArray[np.float64]
) -> tuple[NDArray[np.float64], _Arms]:
    """Return what stands for one unit on each mode (n, H) before a column, and the column's bare arms."""
    mesh = layout.mesh
    before = behind.copy()
    arms = {mode: [(2.0 * column + x, float(mode), behind[mode]) for x in (0.0, 1.0)] for mode in range(layout.ports)}
    for cell in mesh.columns[column]:
        upper = mesh.mzis[cell][1]
        lower, common = upper + 1, behind[upper] + behind[upper + 1]
        # A unit on the lower arm is minus one on the upper arm and plus one on both outputs of the MZI.
        before[upper], before[lower] = unit[layout.mesh_phi[cell]], common - unit[layout.mesh_phi[cell]]
        inside = common - unit[layout.mesh_theta[cell]]
        arms[upper] = []
        arms[lower] = [(2.0 * column, float(lower), before[lower]), (2.0 * column + 1.0, float(lower), inside)]
    return before, [arm for mode in range(layout.ports) for arm in arms[mode]]
