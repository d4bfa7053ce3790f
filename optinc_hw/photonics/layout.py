"""Names, order and places of everything on the chip: the vocabulary shared by twin, bench and files."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout, whole


@dataclass(frozen=True, init=False)
class ChipLayout:
    """One OptINC chip: generator, mesh with output phases, attenuators, homodyne receivers.

    The order of ``heaters`` and ``detectors`` is the order of every heater and detector axis in the project.

    ==========================  ========================================================================
    ``in_<i>_theta/_phi``       input modulator i (an MZI: amplitude by theta, phase by phi)
    ``mzi_<c>_<m>_theta/_phi``  mesh MZI in column c with upper mode m
    ``out_<j>``                 output phase of mesh port j
    ``att_<j>``                 attenuator MZI of port j (theta only)
    ``lo``                      phase of the local oscillator, common to all receivers
    ``rx_<j>_plus/_minus``      the two photodiodes of the balanced receiver j (all plus first)
    ==========================  ========================================================================

    Parameters
    ----------
    ports
        Number of ports n, at least 2.
    mesh
        Layout of the mesh's K MZIs on n modes, missing ones left out; None means ``RectangularLayout(ports)``.
    stuck
        Names of the mesh's heaters whose phases do not follow them. They keep their places in every heater axis.

    Raises
    ------
    MatrixError
        If ``ports`` is not an integer of at least 2, the mesh has another number of modes, or ``stuck`` names
        something other than a heater of a mesh MZI.
    """

    ports: int
    mesh: MeshLayout
    stuck: tuple[str, ...]

    def __init__(self, ports: int, mesh: MeshLayout | None = None, stuck: Iterable[str] = ()) -> None:
        n = whole("the number of a chip's ports", ports, 2)
        standard = RectangularLayout(n)
        # A mesh that is rectangular by its MZIs has the places of one, so that equal layouts have equal sites.
        placed = standard if mesh is None or mesh == standard else mesh
        if placed.ports != n:
            raise MatrixError(f"the mesh has {placed.ports} modes, the chip {n} ports; they must agree")
        object.__setattr__(self, "ports", n)
        object.__setattr__(self, "mesh", placed)
        names = set(stuck)
        known = [name for name in self.heaters if name in names and name.startswith("mzi_")]
        if len(known) != len(names):
            odd = ", ".join(sorted(names - set(known)))
            raise MatrixError(f"{odd}: only heaters of the mesh's MZIs can be stuck; the mesh has no such heater")
        object.__setattr__(self, "stuck", tuple(known))

    @cached_property
    def heaters(self) -> tuple[str, ...]:
        """Names of the H = 2K + 4n + 1 heaters; K = n(n-1)/2 in a complete mesh."""
        names = [f"in_{i}_{kind}" for i in range(self.ports) for kind in ("theta", "phi")]
        names += [f"mzi_{c}_{m}_{kind}" for c, m in self.mesh.mzis for kind in ("theta", "phi")]
        names += [f"out_{j}" for j in range(self.ports)]
        names += [f"att_{j}" for j in range(self.ports)]
        return (*names, "lo")

    @cached_property
    def heater_index(self) -> dict[str, int]:
        """Position of each heater name in ``heaters``."""
        return {name: k for k, name in enumerate(self.heaters)}

    @cached_property
    def movable(self) -> NDArray[np.bool_]:
        """Whether each heater's phase follows its power, (H,): False for ``stuck``."""
        return np.array([name not in self.stuck for name in self.heaters])

    @cached_property
    def detectors(self) -> tuple[str, ...]:
        """Names of the 2n photodiodes: all plus ports, then all minus ports."""
        return tuple(f"rx_{j}_{side}" for side in ("plus", "minus") for j in range(self.ports))

    @cached_property
    def input_theta(self) -> NDArray[np.intp]:
        """Heater indices of the n input modulators' internal phases."""
        return np.arange(0, 2 * self.ports, 2)

    @cached_property
    def input_phi(self) -> NDArray[np.intp]:
        """Heater indices of the n input modulators' external phases."""
        return self.input_theta + 1

    @cached_property
    def mesh_theta(self) -> NDArray[np.intp]:
        """Heater indices of the mesh's internal phases, in the order of ``mesh.mzis``."""
        return 2 * self.ports + 2 * np.arange(len(self.mesh.mzis))

    @cached_property
    def mesh_phi(self) -> NDArray[np.intp]:
        """Heater indices of the mesh's external phases, in the order of ``mesh.mzis``."""
        return self.mesh_theta + 1

    @cached_property
    def output_phase(self) -> NDArray[np.intp]:
        """Heater indices of the n output phases."""
        return 2 * self.ports + 2 * len(self.mesh.mzis) + np.arange(self.ports)

    @cached_property
    def attenuator(self) -> NDArray[np.intp]:
        """Heater indices of the n attenuators' internal phases."""
        return self.output_phase + self.ports

    @property
    def lo(self) -> int:
        """Heater index of the local oscillator's phase."""
        return len(self.heaters) - 1

    @cached_property
    def heater_sites(self) -> NDArray[np.float64]:
        """Places (H, 2) of the heaters: x along the light, y across, in pitches of neighbouring waveguides.

        The generator stands eight pitches before the mesh and the receivers' LO heater far behind it, as a
        designer would place them; crosstalk is a matter of neighbours within each group.
        """
        n, end = self.ports, 2.0 * self.mesh.depth
        sites = [(x, float(2 * i)) for i in range(n) for x in (-9.0, -11.0)]
        for c, m in self.mesh.mzis:
            sites += [(2.0 * c + 1.0, float(m)), (2.0 * c, float(m))]
        sites += [(end + 1.0, float(j)) for j in range(n)]
        sites += [(end + 4.0, float(j)) for j in range(n)]
        sites.append((end + 12.0, 0.0))
        return np.array(sites)
