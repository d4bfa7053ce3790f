"""The chip as one differentiable torch model: generator, mesh, attenuators, homodyne receivers."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from optinc_hw.errors import MatrixError
from optinc_hw.photonics.layout import ChipLayout
from optinc_hw.photonics.mesh_layout import MeshLayout
from optinc_hw.photonics.mesh_model import MeshModel
from optinc_hw.photonics.twin import TwinParameters


@dataclass(frozen=True)
class ChipElements:
    """Static elements of the chip as tensors; leading batch axes are allowed and broadcast.

    What a layout lacks has no entries: modulators, attenuators, receivers and the local oscillator.

    The names, units and trailing shapes are those of `TwinParameters`.
    """

    input_eta: Tensor
    mesh_eta: Tensor
    attenuator_eta: Tensor
    receiver_eta: Tensor
    input_amplitude: Tensor
    mzi_transmission: Tensor
    arm_loss: Tensor
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
        arms, behind, self._before = _arm_losses(layout.mesh, elements.arm_loss)
        self._mesh = MeshModel(
            layout.mesh,
            eta_in=elements.mesh_eta[..., 0],
            eta_out=elements.mesh_eta[..., 1],
            transmission=elements.mzi_transmission,
            arms=arms,
            behind=behind,
        )

    @classmethod
    def from_parameters(
        cls, parameters: TwinParameters, dtype: torch.dtype = torch.float64, device: torch.device | None = None
    ) -> "ChipModel":
        """Return the model of a calibrated (or nominal) chip."""
        return cls(parameters.layout, ChipElements.from_parameters(parameters, dtype, device))

    def inputs(self, phases: Tensor, lit: Tensor | None = None) -> Tensor:
        """Fields at the mesh inputs.

        Parameters
        ----------
        phases
            Phases of all heaters ``(batch, H)`` in rad.
        lit
            On a chip without modulators, lit port ``(batch,)`` of each setting, or complex fields ``(batch, n)`` that
            enter the ports, in units of ``input_amplitude``.

        Returns
        -------
        Tensor
            ``(batch, n)`` complex, sqrt(W).

        Raises
        ------
        MatrixError
            If ``lit`` is missing on a chip without modulators, or given on one with them.
        """
        amplitude = self.elements.input_amplitude
        if (lit is None) is (self.layout.inputs == "ports"):
            raise MatrixError("state the lit port of each setting on chips without modulators, and only there")
        if lit is not None:
            if not lit.is_complex():
                lit = torch.nn.functional.one_hot(lit.long(), self.layout.ports)
            return amplitude * lit.to(_complex(phases.dtype))
        theta, phi = phases[:, self.layout.input_theta], phases[:, self.layout.input_phi]
        bar = _bar(theta, self.elements.input_eta)
        return amplitude * bar * _unit(phi)

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
        if self._before is not None:
            fields = self._before.unsqueeze(-1) * fields
        return self._tail(phases) * self._mesh.apply(theta, phi, None, fields)

    def transfer_matrix(self, phases: Tensor) -> Tensor:
        """Complex matrix ``(batch, n, n)`` from mesh inputs to receivers at phases ``(batch, H)`` in rad."""
        theta, phi = phases[:, self.layout.mesh_theta], phases[:, self.layout.mesh_phi]
        matrix = self._mesh.matrix(theta, phi)
        if self._before is not None:
            matrix = matrix * self._before.unsqueeze(-2)
        return self._tail(phases) * matrix

    def _tail(self, phases: Tensor) -> Tensor:
        """Field transmission (batch, n, 1) from the mesh to the receivers."""
        layout, elements = self.layout, self.elements
        if not layout.homodynes:
            return elements.output_transmission.unsqueeze(-1)
        bar = _bar(phases[:, layout.attenuator], elements.attenuator_eta)
        return (_unit(phases[:, layout.output_phase]) * bar * elements.output_transmission).unsqueeze(-1)

    def detector_powers(self, phases: Tensor, lit: Tensor | None = None) -> Tensor:
        """Compute the readings of all detectors.

        Parameters
        ----------
        phases
            Phases of all heaters ``(batch, H)`` in rad.
        lit
            As in `inputs`.

        Returns
        -------
        Tensor
            ``(batch, 2n)``, or ``(batch, n)`` with power detectors, in W, in the order of ``layout.detectors``, gains
            and dark readings included.

        Raises
        ------
        MatrixError
            As `inputs`.
        """
        elements = self.elements
        signal = self.propagate(phases, self.inputs(phases, lit).unsqueeze(-1)).squeeze(-1)
        if not self.layout.homodynes:
            return elements.gain * signal.abs().square() + elements.dark_w
        lo = elements.lo_amplitude * _unit(phases[:, self.layout.lo]).unsqueeze(-1)
        cosine, sine = torch.cos(elements.receiver_eta), torch.sin(elements.receiver_eta)
        plus = cosine * signal + 1j * sine * lo
        minus = 1j * sine * signal + cosine * lo
        powers = torch.cat([plus.abs().square(), minus.abs().square()], dim=-1)
        return elements.gain * powers + elements.dark_w

    def readings(
        self, parameters: TwinParameters, power_w: NDArray[np.float64], lit: NDArray[np.intp] | None = None
    ) -> NDArray[np.float64]:
        """Detector readings ``(batch, D)`` in W at heater powers ``(batch, H)`` in W, without gradients.

        ``lit`` are the lit ports ``(batch,)`` of a chip without modulators.
        """
        with torch.no_grad():
            gain = self.elements.gain
            phases = torch.as_tensor(parameters.phases(power_w), dtype=gain.dtype, device=gain.device)
            ports = None if lit is None else torch.as_tensor(lit, device=gain.device)
            return np.asarray(self.detector_powers(phases, ports).cpu().numpy(), dtype=np.float64)


def _arm_losses(mesh: MeshLayout, arm_loss: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Transmissions of arms (..., K, 2), of what is behind the MZIs (..., K, 2) and before the mesh (..., n), if any.

    Loss of an external arm is loss behind the MZI before it.
    """
    if not arm_loss.requires_grad and not arm_loss.any():
        return None, None, None
    internal, external = arm_loss.unbind(-1)
    arms = torch.exp(torch.stack([-internal, torch.zeros_like(internal)], dim=-1))
    mzis, batch = len(mesh.mzis), arm_loss.shape[:-2]
    place = torch.as_tensor(mesh.before_upper, device=arm_loss.device)
    flat = arm_loss.new_zeros(*batch, 2 * mzis + mesh.ports).index_copy(-1, place, -external)
    passed = torch.exp(flat)
    return arms, passed[..., : 2 * mzis].reshape(*batch, mzis, 2), passed[..., 2 * mzis :]


def _complex(dtype: torch.dtype) -> torch.dtype:
    return torch.complex64 if dtype == torch.float32 else torch.complex128


def _unit(angle: Tensor) -> Tensor:
    return torch.complex(torch.cos(angle), torch.sin(angle))


def _bar(theta: Tensor, eta: Tensor) -> Tensor:
    """Upper-to-upper field transmission of an MZI without external phase; couplers on the last axis of eta."""
    cosines = torch.cos(eta).prod(-1)
    sines = torch.sin(eta).prod(-1)
    return cosines * _unit(theta) - sines
