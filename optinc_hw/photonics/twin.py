"""Parameters of one chip: what calibration finds, records store and the chip model uses."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._mesh import MeshImperfections
from optinc_hw.photonics._mzi import IDEAL_ETA
from optinc_hw.photonics.layout import ChipLayout, Inputs, Receivers
from optinc_hw.photonics.mesh_layout import MeshLayout

NOMINAL_P_PI_W = 0.020
"""Heater power for a phase of pi that a design file would state, in W."""
SECOND_ORDER_PITCHES = 4.2
"""Heaters further apart than this do not change one another's efficiency in the twin."""


@dataclass(frozen=True)
class TwinParameters:
    """Everything the chip model needs, for H heaters, K mesh MZIs and n ports.

    With ``d = efficiency * power`` phases follow ``offset + crosstalk @ d + (second_order[0] + curvature) d^2 +
    second_order[1] d (neighbour_heat @ d)``.  Offsets of input and output phases hold the phases of the light's way to
    and from the mesh, of the receivers' local oscillators included.  Of n modulators, n attenuators and n receivers a
    layout may have none; their arrays then have no entries.

    Parameters
    ----------
    ports
        Number of ports n.
    offset
        Phases (H,) at zero heater power, rad.
    efficiency
        Phase per heater power (H,), rad/W.
    crosstalk
        Thermal crosstalk (H, H) relative to the heater's own phase; row = heated phase, unit diagonal.
    input_eta, mesh_eta, attenuator_eta
        Splitting angles of first and second coupler, (n, 2), (K, 2), (n, 2), rad.
    receiver_eta
        Splitting angles of the receivers' couplers (n,), rad.
    input_amplitude
        Field before each input modulator (n,), sqrt(W); on a chip without them, field that enters the mesh at the
        lit port.
    mzi_transmission
        Field transmission of each mesh MZI (K,).
    output_transmission
        Field transmission from mesh to receiver (n,).
    lo_amplitude
        Local oscillator field at each receiver (n,), sqrt(W).
    gain
        Reading per optical power of each detector (2n,), or (n,) with power detectors.
    dark_w
        Reading of each detector without light, in W; shape as ``gain``.
    mesh
        Layout of the mesh; None means rectangular.
    stuck
        Names of the mesh's heaters whose phases do not follow them: whatever they are driven with, their own phases
        and their neighbours' stay as they are. Their ``offset`` is the phase at which they are stuck.
    inputs, receivers
        What is before and behind the mesh, see `ChipLayout`.
    arm_loss
        Logarithm (K, 2) of how much less field the upper arm of each mesh MZI passes than the lower one, where theta
        and where phi is: imaginary parts of those phases. None means 0.
    second_order
        Phase that is quadratic in heat (2,), in 1/rad: of the heater itself, and with its neighbours. None means 0.
    curvature
        What single heaters (H,) add to the first of these, in 1/rad: also errors of their resistance laws, which bend
        the scale of their powers. None means 0.

    Raises
    ------
    MatrixError
        If a shape does not fit the layout, a value is not finite, or mesh or stuck heaters do not fit the ports.
    """

    ports: int
    offset: NDArray[np.float64]
    efficiency: NDArray[np.float64]
    crosstalk: NDArray[np.float64]
    input_eta: NDArray[np.float64]
    mesh_eta: NDArray[np.float64]
    attenuator_eta: NDArray[np.float64]
    receiver_eta: NDArray[np.float64]
    input_amplitude: NDArray[np.float64]
    mzi_transmission: NDArray[np.float64]
    output_transmission: NDArray[np.float64]
    lo_amplitude: NDArray[np.float64]
    gain: NDArray[np.float64]
    dark_w: NDArray[np.float64]
    mesh: MeshLayout | None = None
    stuck: tuple[str, ...] = ()
    inputs: Inputs = "modulators"
    receivers: Receivers = "homodyne"
    arm_loss: NDArray[np.float64] = None  # type: ignore[assignment]  # zeros by __post_init__
    second_order: NDArray[np.float64] = None  # type: ignore[assignment]
    curvature: NDArray[np.float64] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("arm_loss", "second_order", "curvature"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.zeros(parameter_shapes(self.layout)[name]))
        shapes = parameter_shapes(self.layout)
        for name, shape in shapes.items():
            value = getattr(self, name)
            if np.shape(value) != shape:
                raise MatrixError(f"{name} has shape {np.shape(value)}; a chip of {self.ports} ports needs {shape}")
            if not np.isfinite(value).all():
                raise MatrixError(f"{name} holds NaN or Inf; every value must be finite")

    @cached_property
    def layout(self) -> ChipLayout:
        """Names and order of heaters and detectors."""
        return ChipLayout(self.ports, self.mesh, self.stuck, inputs=self.inputs, receivers=self.receivers)

    @classmethod
    def nominal(
        cls, ports: int, *, input_amplitude: float, lo_amplitude: float, p_pi_w: float = NOMINAL_P_PI_W,
        mesh: MeshLayout | None = None, stuck_rad: Mapping[str, float] | None = None,
        inputs: Inputs = "modulators", receivers: Receivers = "homodyne",
    ) -> "TwinParameters":  # fmt: skip
        """Return the chip as designed: no offsets, no crosstalk, perfect couplers, no loss, unit gains.

        Parameters
        ----------
        ports
            Number of ports n.
        input_amplitude, lo_amplitude
            Fields before each input modulator and of the local oscillator at each receiver, sqrt(W).
        p_pi_w
            Heater power for a phase of pi, W.
        mesh
            Layout of the mesh; None means rectangular.
        stuck_rad
            Phase in rad of each heater that does not move its phase.
        inputs, receivers
            What is before and behind the mesh.

        Raises
        ------
        MatrixError
            If the mesh or a stuck heater does not fit the ports, or a value is not finite.
        """
        stuck = {} if stuck_rad is None else dict(stuck_rad)
        layout = ChipLayout(ports, mesh, stuck, inputs=inputs, receivers=receivers)
        shapes = parameter_shapes(layout)
        heaters = shapes["offset"][0]
        values = {name: np.zeros(shape) for name, shape in shapes.items()}
        for name in ("input_eta", "mesh_eta", "attenuator_eta", "receiver_eta"):
            values[name] += IDEAL_ETA
        for name in ("mzi_transmission", "output_transmission", "gain"):
            values[name] += 1.0
        values["efficiency"] += np.pi / p_pi_w
        values["crosstalk"] += np.eye(heaters)
        values["input_amplitude"] += input_amplitude
        values["lo_amplitude"] += lo_amplitude
        for name, phase in stuck.items():
            values["offset"][layout.heater_index[name]] = phase
        return cls(ports, **values, mesh=mesh, stuck=layout.stuck, inputs=inputs, receivers=receivers)

    def phases(self, power_w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Phases in rad at heater powers in W; the heater axis (H) is the last of both."""
        drive = self.efficiency * self.layout.movable * power_w
        return self.offset + drive @ self.crosstalk.T + self.curved_phases(power_w)

    def curved_phases(self, power_w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Part of the phases in rad that is not linear in the heater powers in W; shapes as in `phases`."""
        drive = np.asarray(self.efficiency * self.layout.movable * power_w, dtype=np.float64)
        if not (self.second_order.any() or self.curvature.any()):
            return np.zeros_like(drive)
        own, neighbours = self.second_order
        return np.asarray(drive * ((own + self.curvature) * drive + neighbours * (drive @ self.neighbour_heat)))

    @property
    def neighbour_heat(self) -> NDArray[np.float64]:
        """Weights (H, H) with which neighbours' heat enters ``second_order``; symmetric, 1 at one pitch."""
        sites = self.layout.heater_sites
        distance = np.linalg.norm(sites[:, None] - sites[None], axis=-1)
        near = (distance > 0.0) & (distance < SECOND_ORDER_PITCHES)
        return np.where(near, np.exp(1.0 - np.maximum(distance, 1.0)), 0.0)

    def mesh_imperfections(self) -> tuple[MeshImperfections, NDArray[np.float64]]:
        """Couplers and losses of the mesh for `mesh_matrix` and `program_mesh`, and what is before it.

        Returns
        -------
        tuple
            The imperfections, and field transmissions (n,) of the mesh's inputs: losses of the external arms that come
            before any MZI.
        """
        mzis, internal, external = len(self.mzi_transmission), self.arm_loss[:, 0], self.arm_loss[:, 1]
        arms = np.exp(-np.maximum(np.stack([internal, -internal], axis=-1), 0.0))
        common = self.mzi_transmission * np.exp(np.maximum(-internal, 0.0))
        flat = np.zeros(2 * mzis + self.ports)
        flat[self.layout.mesh.before_upper] = -external
        behind = np.exp(flat[: 2 * mzis]).reshape(-1, 2) * np.maximum(common, 1.0)[:, None]
        flaws = MeshImperfections(
            self.mesh_eta[:, 0], self.mesh_eta[:, 1], np.minimum(common, 1.0), arms, behind=behind
        )  # fmt: skip
        return flaws, np.exp(flat[2 * mzis :])


def parameter_shapes(layout: ChipLayout | int) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of `TwinParameters`, in their order, for a layout or a rectangular chip's ports."""
    if not isinstance(layout, ChipLayout):
        layout = ChipLayout(layout)
    ports = layout.ports
    heaters, mzis, detectors = len(layout.heaters), len(layout.mesh.mzis), len(layout.detectors)
    modulators, homodynes = layout.modulators, layout.homodynes
    special = {
        "offset": (heaters,), "efficiency": (heaters,), "crosstalk": (heaters, heaters),
        "input_eta": (modulators, 2), "mesh_eta": (mzis, 2), "attenuator_eta": (homodynes, 2),
        "receiver_eta": (homodynes,), "lo_amplitude": (homodynes,), "mzi_transmission": (mzis,),
        "gain": (detectors,), "dark_w": (detectors,), "arm_loss": (mzis, 2),
        "second_order": (2,), "curvature": (heaters,),
    }  # fmt: skip
    kept_apart = ("ports", "mesh", "stuck", "inputs", "receivers")
    return {f.name: special.get(f.name, (ports,)) for f in fields(TwinParameters) if f.name not in kept_apart}
