"""Parameters of one chip: what calibration finds, records store and the chip model uses."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics._mzi import IDEAL_ETA
from optinc_hw.photonics.layout import ChipLayout
from optinc_hw.photonics.mesh_layout import MeshLayout

NOMINAL_P_PI_W = 0.020
"""Heater power for a phase of pi that a design file would state, in W."""


@dataclass(frozen=True)
class TwinParameters:
    """Everything the chip model needs, for H heaters, K mesh MZIs and n ports.

    Phases follow ``offset + crosstalk @ (efficiency * power)``.  Offsets of input and output phases hold the
    phases of the light's way to and from the mesh, of the receivers' local oscillators included.

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
        Field before each input modulator (n,), sqrt(W).
    mzi_transmission
        Field transmission of each mesh MZI (K,).
    output_transmission
        Field transmission from mesh to receiver (n,).
    lo_amplitude
        Local oscillator field at each receiver (n,), sqrt(W).
    gain
        Reading per optical power of each detector (2n,).
    dark_w
        Reading of each detector without light (2n,), W.
    mesh
        Layout of the mesh; None means rectangular.
    stuck
        Names of the mesh's heaters whose phases do not follow them: whatever they are driven with, their own phases
        and their neighbours' stay as they are. Their ``offset`` is the phase at which they are stuck.

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

    def __post_init__(self) -> None:
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
        return ChipLayout(self.ports, self.mesh, self.stuck)

    @classmethod
    def nominal(
        cls, ports: int, *, input_amplitude: float, lo_amplitude: float, p_pi_w: float = NOMINAL_P_PI_W,
        mesh: MeshLayout | None = None, stuck_rad: Mapping[str, float] | None = None,
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

        Raises
        ------
        MatrixError
            If the mesh or a stuck heater does not fit the ports, or a value is not finite.
        """
        stuck = {} if stuck_rad is None else dict(stuck_rad)
        layout = ChipLayout(ports, mesh, stuck)
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
        return cls(ports, **values, mesh=mesh, stuck=layout.stuck)

    def phases(self, power_w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Phases in rad at heater powers in W; the heater axis (H) is the last of both."""
        return self.offset + (self.efficiency * self.layout.movable * power_w) @ self.crosstalk.T


def parameter_shapes(layout: ChipLayout | int) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of `TwinParameters`, in their order, for a layout or a rectangular chip's ports."""
    if not isinstance(layout, ChipLayout):
        layout = ChipLayout(layout)
    ports = layout.ports
    heaters, mzis = len(layout.heaters), len(layout.mesh.mzis)
    special = {
        "offset": (heaters,), "efficiency": (heaters,), "crosstalk": (heaters, heaters),
        "input_eta": (ports, 2), "mesh_eta": (mzis, 2), "attenuator_eta": (ports, 2),
        "mzi_transmission": (mzis,), "gain": (2 * ports,), "dark_w": (2 * ports,),
    }  # fmt: skip
    kept_apart = ("ports", "mesh", "stuck")
    return {f.name: special.get(f.name, (ports,)) for f in fields(TwinParameters) if f.name not in kept_apart}
