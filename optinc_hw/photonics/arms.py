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
    """The A waveguide sections without a heater whose phase reaches a receiver.

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
    n = layout.ports
    push = _Push(layout)
    heaters = layout.heater_sites
    sites: list[tuple[float, float]] = []
    effects: list[NDArray[np.float64]] = []

    def add(x: float, y: float, effect: NDArray[np.float64]) -> None:
        sites.append((x, y))
        effects.append(effect)

    for i, (theta, phi) in enumerate(zip(layout.input_theta, layout.input_phi, strict=True)):
        add(heaters[theta, 0], 2.0 * i + 1.0, push.unit(phi) - push.unit(theta))
    for column in range(n):
        for mode in range(n):
            cell = push.cell(column, mode)
            if cell is None:
                beyond = push.before(column + 1, mode)
                add(2.0 * column, float(mode), beyond)
                add(2.0 * column + 1.0, float(mode), beyond)
            elif layout.mesh.mzis[cell][1] != mode:
                add(2.0 * column, float(mode), push.before(column, mode))
                add(2.0 * column + 1.0, float(mode), push.lower(column, cell, layout.mesh_theta[cell]))
    for out, att in zip(layout.output_phase, layout.attenuator, strict=True):
        add(heaters[att, 0], heaters[att, 1] + ATTENUATOR_ARM_GAP, push.unit(out) - push.unit(att))
    return BareArms(np.array(sites), np.stack(effects, axis=1))


class _Push:
    """Pushes unit phases through the mesh, remembering what it found."""

    def __init__(self, layout: ChipLayout) -> None:
        self.layout = layout
        self._index = {mzi: k for k, mzi in enumerate(layout.mesh.mzis)}
        self._known: dict[tuple[int, int], NDArray[np.float64]] = {}

    def unit(self, heater: int) -> NDArray[np.float64]:
        """Return one unit on a heated arm."""
        vector = np.zeros(len(self.layout.heaters))
        vector[heater] = 1.0
        return vector

    def cell(self, column: int, mode: int) -> int | None:
        """Return the MZI that a mode meets in a column, if any."""
        return self._index.get((column, mode), self._index.get((column, mode - 1)))

    def before(self, column: int, mode: int) -> NDArray[np.float64]:
        """Return what stands for one unit on ``mode`` before a column."""
        key = (column, mode)
        if key not in self._known:
            self._known[key] = self._resolve(column, mode)
        return self._known[key]

    def _resolve(self, column: int, mode: int) -> NDArray[np.float64]:
        if column == self.layout.ports:
            return self.unit(self.layout.output_phase[mode])
        cell = self.cell(column, mode)
        if cell is None:
            return self.before(column + 1, mode)
        if self.layout.mesh.mzis[cell][1] == mode:
            return self.unit(self.layout.mesh_phi[cell])
        return self.lower(column, cell, self.layout.mesh_phi[cell])

    def lower(self, column: int, cell: int, upper_heater: int) -> NDArray[np.float64]:
        """One unit on a lower arm: minus one on the upper arm, plus one on both outputs of the MZI."""
        upper = self.layout.mesh.mzis[cell][1]
        common = self.before(column + 1, upper) + self.before(column + 1, upper + 1)
        return common - self.unit(upper_heater)
