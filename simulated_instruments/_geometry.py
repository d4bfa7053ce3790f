"""Arm sections of the hidden chip: every piece of waveguide that has a phase of its own, heated or bare."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optinc_hw.photonics.layout import ChipLayout

BARE = -1
_ATTENUATOR_ARM_GAP = 0.5  # attenuators stand one pitch apart, so their lower arms run half way between


@dataclass(frozen=True)
class ArmSections:
    """The S arm sections in the order of every section axis of the hidden chip.

    ==================  ===============  ==================================================================
    block               shape            sections
    ==================  ===============  ==================================================================
    ``input_external``  (m,)             upper arm before each input modulator (the lower one is dark)
    ``input_internal``  (m, 2)           upper and lower arm inside each input modulator
    ``mesh_external``   (columns, n)     each mode before the first couplers of each mesh column
    ``mesh_internal``   (columns, n)     each mode between the couplers of each mesh column
    ``output``          (r,)             output phases
    ``attenuator``      (r, 2)           upper and lower arm inside each attenuator
    ``lo``              (1,)             local oscillator
    ==================  ===============  ==================================================================

    There are m = n input modulators, or none where light enters from outside, and r = n homodyne receivers with all
    that belongs to them, or none, ``lo`` included, where there are power detectors. A mesh mode that passes a column
    beside its MZIs has two bare sections there.
    """

    layout: ChipLayout

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """Place of each block of the table in the section axis."""
        grid = self.layout.ports * self.layout.mesh.depth
        modulators, homodynes = self.layout.modulators, self.layout.homodynes
        sizes = {
            "input_external": modulators,
            "input_internal": 2 * modulators,
            "mesh_external": grid,
            "mesh_internal": grid,
            "output": homodynes,
            "attenuator": 2 * homodynes,
            "lo": min(homodynes, 1),
        }
        stops = np.cumsum(list(sizes.values())).tolist()
        return {name: slice(stop - size, stop) for (name, size), stop in zip(sizes.items(), stops, strict=True)}

    @property
    def count(self) -> int:
        """Number of sections S."""
        return int(self.blocks["lo"].stop)

    @cached_property
    def heater(self) -> NDArray[np.intp]:
        """Index (S,) of the heater on each section, ``BARE`` where there is none."""
        layout, n = self.layout, self.layout.ports
        mesh_external = np.full((layout.mesh.depth, n), BARE)
        mesh_internal = np.full((layout.mesh.depth, n), BARE)
        for k, (column, mode) in enumerate(layout.mesh.mzis):
            mesh_external[column, mode] = layout.mesh_phi[k]
            mesh_internal[column, mode] = layout.mesh_theta[k]
        return np.concatenate(
            [
                layout.input_phi,
                _with_bare(layout.input_theta),
                mesh_external.ravel(),
                mesh_internal.ravel(),
                layout.output_phase,
                _with_bare(layout.attenuator),
                self._local_oscillator,
            ]
        )

    @cached_property
    def own(self) -> NDArray[np.intp]:
        """Index (H,) of the section under each heater."""
        heated = np.flatnonzero(self.heater != BARE)
        own = np.empty(len(self.layout.heaters), dtype=np.intp)
        own[self.heater[heated]] = heated
        return own

    @property
    def _local_oscillator(self) -> NDArray[np.intp]:
        return np.array([self.layout.lo] if self.layout.homodynes else [], dtype=np.intp)

    @cached_property
    def sites(self) -> NDArray[np.float64]:
        """Places (S, 2) in pitches: x along the light, y across; heated sections lie where their heaters are."""
        layout, n = self.layout, self.layout.ports
        heaters = layout.heater_sites
        modes = np.arange(n, dtype=np.float64)
        columns, rows = np.meshgrid(np.arange(layout.mesh.depth, dtype=np.float64), modes, indexing="ij")
        grid = np.stack([2.0 * columns, rows], axis=-1).reshape(-1, 2)
        return np.concatenate(
            [
                heaters[layout.input_phi],
                _with_lower_arm(heaters[layout.input_theta], 1.0),
                grid,
                grid + np.array([1.0, 0.0]),
                heaters[layout.output_phase],
                _with_lower_arm(heaters[layout.attenuator], _ATTENUATOR_ARM_GAP),
                heaters[self._local_oscillator],
            ]
        )


def _with_lower_arm(upper: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Alternate each site of ``upper`` (n, 2) with the one ``gap`` pitches below it: (2n, 2)."""
    return np.stack([upper, upper + np.array([0.0, gap])], axis=1).reshape(-1, 2)


def _with_bare(heated: NDArray[np.intp]) -> NDArray[np.intp]:
    """Alternate the heaters (n,) on upper arms with the bare lower arms: (2n,)."""
    return np.stack([heated, np.full_like(heated, BARE)], axis=1).ravel()
