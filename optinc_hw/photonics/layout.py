"""Names, order and places of everything on the chip: the vocabulary shared by twin, bench and files."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout, whole

Inputs = Literal["modulators", "ports"]
"""Light comes through a modulator at each mesh input, or from outside into one input port after the other."""
Receivers = Literal["homodyne", "power"]
"""Outputs end in phases, attenuators and balanced homodyne receivers, or in one power detector each."""


@dataclass(frozen=True, init=False)
class ChipLayout:
    """One chip: a mesh, what sends light into it and what receives it.

    OptINC's own chip has a generator of modulators, output phases, attenuators and homodyne receivers.  A *bare mesh*
    (``inputs="ports"``, ``receivers="power"``) has only its MZIs' heaters and a power detector at every output.

    The order of ``heaters`` and ``detectors`` is the order of every heater and detector axis in the project.

    ==========================  ========================================================================
    ``in_<i>_theta/_phi``       input modulator i (an MZI: amplitude by theta, phase by phi)
    ``mzi_<c>_<m>_theta/_phi``  mesh MZI in column c with upper mode m
    ``out_<j>``                 output phase of mesh port j
    ``att_<j>``                 attenuator MZI of port j (theta only)
    ``lo``                      phase of the local oscillator, common to all receivers
    ``rx_<j>_plus/_minus``      the two photodiodes of the balanced receiver j (all plus first)
    ``rx_<j>``                  the photodiode of output j of a chip with power detectors
    ==========================  ========================================================================

    Modulators are there with ``inputs="modulators"`` only; output phases, attenuators and the local oscillator with
    ``receivers="homodyne"`` only.

    Parameters
    ----------
    ports
        Number of ports n, at least 2.
    mesh
        Layout of the mesh's K MZIs on n modes, missing ones left out; None means ``RectangularLayout(ports)``.
    stuck
        Names of the mesh's heaters whose phases do not follow them. They keep their places in every heater axis.
    inputs, receivers
        What is before and behind the mesh, see `Inputs` and `Receivers`.

    Raises
    ------
    MatrixError
        If ``ports`` is not an integer of at least 2, the mesh has another number of modes, ``stuck`` names
        something other than a heater of a mesh MZI, or ``inputs`` or ``receivers`` is unknown.
    """

    ports: int
    mesh: MeshLayout
    stuck: tuple[str, ...]
    inputs: Inputs
    receivers: Receivers

    def __init__(
        self, ports: int, mesh: MeshLayout | None = None, stuck: Iterable[str] = (), *,
        inputs: Inputs = "modulators", receivers: Receivers = "homodyne",
    ) -> None:  # fmt: skip
        n = whole("the number of a chip's ports", ports, 2)
        for what, value, known in (("inputs", inputs, Inputs), ("receivers", receivers, Receivers)):
            if value not in get_args(known):
                raise MatrixError(f"{what} = {value!r} is unknown; choose one of {', '.join(get_args(known))}")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "receivers", receivers)
        standard = RectangularLayout(n)
        # A mesh that is rectangular by its MZIs has the places of one, so that equal layouts have equal sites.
        placed = standard if mesh is None or mesh == standard else mesh
        if placed.ports != n:
            raise MatrixError(f"the mesh has {placed.ports} modes, the chip {n} ports; they must agree")
        object.__setattr__(self, "ports", n)
        object.__setattr__(self, "mesh", placed)
        names = set(stuck)
        able = [name for name in self.heaters if name in names and name.startswith("mzi_")]
        if len(able) != len(names):
            odd = ", ".join(sorted(names - set(able)))
            raise MatrixError(f"{odd}: only heaters of the mesh's MZIs can be stuck; the mesh has no such heater")
        object.__setattr__(self, "stuck", tuple(able))

    @property
    def bare(self) -> bool:
        """Whether the chip is a bare mesh: light into one port at a time, a power detector at every output."""
        return self.inputs == "ports" and self.receivers == "power"

    @property
    def modulators(self) -> int:
        """Number of input modulators: n, or 0 where light enters the mesh from outside."""
        return self.ports if self.inputs == "modulators" else 0

    @property
    def homodynes(self) -> int:
        """Number of homodyne receivers, with an output phase and an attenuator each: n, or 0."""
        return self.ports if self.receivers == "homodyne" else 0

    @cached_property
    def heaters(self) -> tuple[str, ...]:
        """Names of the heaters; H = 2K + 4n + 1 on OptINC's chip, 2K on a bare mesh, K = n(n-1)/2 if complete."""
        names = [f"in_{i}_{kind}" for i in range(self.modulators) for kind in ("theta", "phi")]
        names += [f"mzi_{c}_{m}_{kind}" for c, m in self.mesh.mzis for kind in ("theta", "phi")]
        names += [f"out_{j}" for j in range(self.homodynes)]
        names += [f"att_{j}" for j in range(self.homodynes)]
        return (*names, *(["lo"] if self.homodynes else []))

    @cached_property
    def heater_index(self) -> dict[str, int]:
        """Position of each heater name in ``heaters``."""
        return {name: k for k, name in enumerate(self.heaters)}

    @cached_property
    def movable(self) -> NDArray[np.bool_]:
        """Whether each heater's phase follows its power, (H,): False for ``stuck``."""
        return np.array([name not in self.stuck for name in self.heaters], dtype=np.bool_)

    def admits(self, other: "ChipLayout") -> bool:
        """Whether ``other`` is of this chip: a calibration may find more heaters stuck than are known beforehand."""
        return set(self.stuck) <= set(other.stuck) and replace(other, stuck=self.stuck) == self

    @cached_property
    def detectors(self) -> tuple[str, ...]:
        """Names of the photodiodes: n, or 2n of homodyne receivers, all plus ports, then all minus ports."""
        if self.receivers == "power":
            return tuple(f"rx_{j}" for j in range(self.ports))
        return tuple(f"rx_{j}_{side}" for side in ("plus", "minus") for j in range(self.ports))

    @cached_property
    def input_theta(self) -> NDArray[np.intp]:
        """Heater indices of the input modulators' internal phases."""
        return np.arange(0, 2 * self.modulators, 2)

    @cached_property
    def input_phi(self) -> NDArray[np.intp]:
        """Heater indices of the input modulators' external phases."""
        return self.input_theta + 1

    @cached_property
    def mesh_theta(self) -> NDArray[np.intp]:
        """Heater indices of the mesh's internal phases, in the order of ``mesh.mzis``."""
        return 2 * self.modulators + 2 * np.arange(len(self.mesh.mzis))

    @cached_property
    def mesh_phi(self) -> NDArray[np.intp]:
        """Heater indices of the mesh's external phases, in the order of ``mesh.mzis``."""
        return self.mesh_theta + 1

    @cached_property
    def output_phase(self) -> NDArray[np.intp]:
        """Heater indices of the output phases."""
        return 2 * self.modulators + 2 * len(self.mesh.mzis) + np.arange(self.homodynes)

    @cached_property
    def attenuator(self) -> NDArray[np.intp]:
        """Heater indices of the attenuators' internal phases."""
        return self.output_phase + self.homodynes

    @property
    def lo(self) -> int:
        """Heater index of the local oscillator's phase.

        Raises
        ------
        MatrixError
            If the chip has none.
        """
        if not self.homodynes:
            raise MatrixError("a chip with power detectors has no local oscillator")
        return len(self.heaters) - 1

    @cached_property
    def heater_sites(self) -> NDArray[np.float64]:
        """Places (H, 2) of the heaters: x along the light, y across, in pitches of neighbouring waveguides.

        The generator stands eight pitches before the mesh and the receivers' LO heater far behind it, as a
        designer would place them; crosstalk is a matter of neighbours within each group.
        """
        end = 2.0 * self.mesh.depth
        sites = [(x, float(2 * i)) for i in range(self.modulators) for x in (-9.0, -11.0)]
        for c, m in self.mesh.mzis:
            sites += [(2.0 * c + 1.0, float(m)), (2.0 * c, float(m))]
        sites += [(end + 1.0, float(j)) for j in range(self.homodynes)]
        sites += [(end + 4.0, float(j)) for j in range(self.homodynes)]
        sites += [(end + 12.0, 0.0)] if self.homodynes else []
        return np.array(sites, dtype=np.float64).reshape(-1, 2)
