"""The chip as one differentiable torch model: generator, mesh, attenuators, homodyne receivers."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from optinc_hw.photonics.layout import ChipLayout
from optinc_hw.photonics.mesh_model import MeshModel
from optinc_hw.photonics.twin import TwinParameters


@dataclass(frozen=True)
class ChipElements:
    """Static elements of the chip as tensors; leading batch axes are allowed and broadcast.

    The names, units and trailing shapes are those of `TwinParameters`.
    """

    input_eta: Tensor
    mesh_eta: Tensor
    attenuator_eta: Tensor
    receiver_eta: Tensor
    input_amplitude: Tensor
    mzi_transmission: Tensor
    output_transmission: Tensor
    lo_amplitude: Tensor
    gain: Tensor
    dark_w: Tensor

    @classmethod
    def from_parameters(
        cls, parameters: TwinParameters, dtype: torch.dtype = torch.float64, device: torch.device | None = None
    ) -> "ChipElements":
        """Copy the static elements of a twin into tensors."""
        return cls(*(torch.tensor(getattr(parameters, f.name), dtype=dtype, device=device) for f in fields(cls)))


class ChipModel:
    """Forward model of the whole chip, differentiable in phases and elements.

    Parameters
    ----------
    layout
        Names and order of heaters and detectors.
    elements
        Couplers, transmissions, amplitudes and gains.
    """

    def __init__(self, layout: ChipLayout, elements: ChipElements) -> None:
        self.layout = layout
        self.elements = elements
        self._mesh = MeshModel(
            layout.mesh,
            eta_in=elements.mesh_eta[..., 0],
            eta_out=elements.mesh_eta[..., 1],
            transmission=elements.mzi_transmission,
        )

    @classmethod
    def from_parameters(
        cls, parameters: TwinParameters, dtype: torch.dtype = torch.float64, device: torch.device | None = None
    ) -> "ChipModel":
        """Return the model of a calibrated (or nominal) chip."""
        return cls(parameters.layout, ChipElements.from_parameters(parameters, dtype, device))

    def inputs(self, phases: Tensor) -> Tensor:
        """Fields at the mesh inputs.

        Parameters
        ----------
        phases
            Phases of all heaters ``(batch, H)`` in rad.

        Returns
        -------
        Tensor
            ``(batch, n)`` complex, sqrt(W).
        """
        theta, phi = phases[:, self.layout.input_theta], phases[:, self.layout.input_phi]
        bar = _bar(theta, self.elements.input_eta)
        return self.elements.input_amplitude * bar * _unit(phi)

    def propagate(self, phases: Tensor, fields: Tensor) -> Tensor:
        """Carry fields from the mesh inputs to the receivers.

        Parameters
        ----------
        phases
            Phases of all heaters ``(batch, H)`` in rad.
        fields
            ``(batch, n, w)`` complex: w vectors a setting.

        Returns
        -------
        Tensor
            ``(batch, n, w)`` complex.
        """
        theta, phi = phases[:, self.layout.mesh_theta], phases[:, self.layout.mesh_phi]
        return self._tail(phases) * self._mesh.apply(theta, phi, None, fields)

    def transfer_matrix(self, phases: Tensor) -> Tensor:
        """Complex matrix ``(batch, n, n)`` from mesh inputs to receivers at phases ``(batch, H)`` in rad."""
        theta, phi = phases[:, self.layout.mesh_theta], phases[:, self.layout.mesh_phi]
        return self._tail(phases) * self._mesh.matrix(theta, phi)

    def _tail(self, phases: Tensor) -> Tensor:
        """Field transmission (batch, n, 1) from the mesh to the receivers."""
        layout, elements = self.layout, self.elements
        bar = _bar(phases[:, layout.attenuator], elements.attenuator_eta)
        return (_unit(phases[:, layout.output_phase]) * bar * elements.output_transmission).unsqueeze(-1)

    def detector_powers(self, phases: Tensor) -> Tensor:
        """Compute the readings of all detectors.

        Parameters
        ----------
        phases
            Phases of all heaters ``(batch, H)`` in rad.

        Returns
        -------
        Tensor
            ``(batch, 2n)`` in W, in the order of ``layout.detectors``, gains and dark readings included.
        """
        elements = self.elements
        signal = self.propagate(phases, self.inputs(phases).unsqueeze(-1)).squeeze(-1)
        lo = elements.lo_amplitude * _unit(phases[:, self.layout.lo]).unsqueeze(-1)
        cosine, sine = torch.cos(elements.receiver_eta), torch.sin(elements.receiver_eta)
        plus = cosine * signal + 1j * sine * lo
        minus = 1j * sine * signal + cosine * lo
        powers = torch.cat([plus.abs().square(), minus.abs().square()], dim=-1)
        return elements.gain * powers + elements.dark_w

    def readings(self, parameters: TwinParameters, power_w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Detector readings ``(batch, 2n)`` in W at heater powers ``(batch, H)`` in W, without gradients."""
        with torch.no_grad():
            gain = self.elements.gain
            phases = torch.as_tensor(parameters.phases(power_w), dtype=gain.dtype, device=gain.device)
            return np.asarray(self.detector_powers(phases).cpu().numpy(), dtype=np.float64)


def _unit(angle: Tensor) -> Tensor:
    return torch.complex(torch.cos(angle), torch.sin(angle))


def _bar(theta: Tensor, eta: Tensor) -> Tensor:
    """Upper-to-upper field transmission of an MZI without external phase; couplers on the last axis of eta."""
    cosines = torch.cos(eta).prod(-1)
    sines = torch.sin(eta).prod(-1)
    return cosines * _unit(theta) - sines
