"""The mesh of OptINC's own chip, seen through its modulators and homodyne receivers.

Powers of fields are all that the start of a bare mesh needs; the fields' phases then tell those of the ports.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from calibration._mesh_calibrate import find_good_start
from calibration._probe import Ports
from calibration._session import Array, Session, allowed_power, allowed_total
from calibration._start import Start
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, ChipModel

MIN_COHERENCE = 0.6
"""Least share of the fields that port phases have to explain; fields that do not belong together explain little."""
_SIGNS = 2
"""Readings of one field with the input's external phase half a period apart."""
_LARGEST = 2**62
"""Readings are no limit here; tries of a start are."""


class FieldProbe:
    """The mesh as experiments on bare meshes see it: readings are squared fields (beats with the LO), in W^2.

    Parameters
    ----------
    session
        Knows resistances, efficiencies, attenuators (open) and input modulators (dark).
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        chip = session.layout
        self.layout = ChipLayout(chip.ports, chip.mesh, inputs="ports", receivers="power")
        self.heaters = np.array([chip.heaters.index(name) for name in self.layout.heaters], dtype=np.intp)
        """Positions (K,) of the mesh's heaters among the chip's."""
        law = session.resistance_ohm, session.beta_per_w
        self.max_power_w = allowed_power(session.bench, *law)[self.heaters]
        self.max_total_power_w = allowed_total(session.bench, *law) - self._others_w()
        self.nominal_efficiency = session.efficiency[self.heaters]
        self.readings = 0
        """Fields of all ports measured."""
        self.power_w = np.empty((0, len(self.heaters)))
        self.lit: Ports = np.empty(0, dtype=np.intp)
        self.fields = np.empty((0, chip.ports), dtype=np.complex128)
        """All that was measured: powers (B, K) in W, lit ports (B,), fields (B, n) in W."""

    def measure(self, stage: str, power_w: Array, lit: Ports) -> Array:
        """Measure fields of one lit input each and return their squares; see `Probe`.

        Raises
        ------
        CalibrationError, LimitError, InstrumentError
            See `Session.measure`.
        """
        session, chip = self._session, self._session.layout
        session.stage = stage
        settings = np.tile(session.power, (len(lit), _SIGNS, 1))
        settings[..., self.heaters] = power_w[:, None]
        for row, port in zip(settings, lit.tolist(), strict=True):
            theta, phi = int(chip.input_theta[port]), int(chip.input_phi[port])
            row[:, theta] = session.power_for_phase(theta, np.pi)
            row[:, phi] = 0.0, np.pi / session.efficiency[phi]
        fields = session.measure_fields(settings.reshape(-1, settings.shape[-1])).reshape(len(lit), _SIGNS, -1)
        found = (fields[:, 0] - fields[:, 1]) / 2.0
        self.power_w = np.concatenate([self.power_w, power_w])
        self.lit, self.fields = np.concatenate([self.lit, lit]), np.concatenate([self.fields, found])
        self.readings += len(lit)
        return np.asarray(np.abs(found) ** 2)

    def _others_w(self) -> float:
        """Largest power in W of all heaters that are not the mesh's while one input is lit."""
        session, chip = self._session, self._session.layout
        rest = session.power.copy()
        rest[self.heaters] = 0.0
        lit = [
            session.power_for_phase(int(theta), np.pi) - rest[theta] + np.pi / session.efficiency[phi]
            for theta, phi in zip(chip.input_theta, chip.input_phi, strict=True)
        ]
        return float(rest.sum() + max(lit) + 2.0 * np.pi / session.efficiency[chip.lo])


@dataclass(frozen=True)
class MeshPorts:
    """What the start of the mesh and the fields' phases tell.

    Parameters
    ----------
    start
        Start of the bare mesh; its gains and input amplitudes are those of fields, in W.
    heaters
        Positions (K,) of the mesh's heaters among the chip's.
    input_phase, output_phase
        Phases (n,) in rad from the open modulators to the mesh with their external heaters at 0 W, and from the mesh to
        the beats with the LO; a common part is with the outputs.
    lo_w
        Readings (2n,) of the detectors in W with all inputs dark.
    coherence
        Share of the fields that they explain.
    """

    start: Start
    heaters: NDArray[np.intp]
    input_phase: Array
    output_phase: Array
    lo_w: Array
    coherence: float


def find_mesh(session: Session, noise: NoiseModel) -> tuple[MeshPorts, dict[str, Array]]:
    """Find the mesh's phases and those of its ports; leaves all inputs dark.

    Returns
    -------
    tuple
        What was found, and the raw data: ``lo_readings`` (2n,) in W with all inputs dark; ``mesh_fields`` (B, n, 2),
        real and imaginary part in W, of settings ``mesh_power`` (B, K) in W with one lit input ``mesh_lit`` (B,).

    Raises
    ------
    CalibrationError
        If no start is found (see `find_start`), heaters or receivers are dead, or the fields' phases do not fit.
    """
    session.stage = "local oscillator"
    lo_w = session.measure(session.power[None])[0]
    probe = FieldProbe(session)
    start = find_good_start(probe, session.rng, _of_squares(noise, lo_w), _LARGEST, session.progress)
    dead = [verdict.heater for verdict in start.verdicts if verdict.dead]
    if dead or start.dead_detectors:
        raise CalibrationError(
            f"without effect on the light: {', '.join((*dead, *start.dead_detectors))}; a chip with modulators and "
            "homodyne receivers is calibrated with every mesh heater and receiver working: check their wiring"
        )
    found = _ports(probe, start, lo_w)
    if not found.coherence >= MIN_COHERENCE:
        raise CalibrationError(
            f"the fields' phases do not fit their powers (coherence {found.coherence:.2f}, {MIN_COHERENCE:g} is "
            "needed); check that the local oscillator's phase stays put while fields are read"
        )
    raw = {
        "lo_readings": lo_w, "mesh_power": probe.power_w, "mesh_lit": probe.lit.astype(np.float64),
        "mesh_fields": np.stack([probe.fields.real, probe.fields.imag], axis=-1),
    }  # fmt: skip
    return found, raw


def _of_squares(noise: NoiseModel, lo_w: Array) -> NoiseModel:
    """Noise of squared fields, from that of detector readings, which the LO's light makes most of."""
    return NoiseModel(2.0 * noise.relative, float(np.median(noise.sigma(lo_w))) ** 2 / 4.0)


def _ports(probe: FieldProbe, start: Start, lo_w: Array) -> MeshPorts:
    """Take from all fields what phases of single inputs and outputs are common to them."""
    twin = start.parameters
    with torch.no_grad():
        phases = torch.as_tensor(twin.phases(probe.power_w))
        matrices = ChipModel.from_parameters(twin).transfer_matrix(phases).numpy()
    told = matrices[np.arange(len(probe.lit)), :, probe.lit]
    product = probe.fields * np.conj(told)
    common = np.zeros((twin.ports, twin.ports), dtype=np.complex128)
    np.add.at(common.T, probe.lit, product)
    left, _, right = np.linalg.svd(common)
    outputs, inputs = left[:, 0] / np.abs(left[:, 0]), right[0] / np.abs(right[0])
    explained = np.real(product * np.conj(outputs * inputs[probe.lit][:, None])).sum()
    return MeshPorts(
        start, probe.heaters, np.angle(inputs), np.angle(outputs), lo_w, float(explained / np.abs(product).sum())
    )
