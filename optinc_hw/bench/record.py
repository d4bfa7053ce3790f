"""Calibration records: what a calibration found about one chip, versioned, hashed and readable."""

import hashlib
import json
import re
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

import optinc_hw
from optinc_hw._files import write_text
from optinc_hw.bench._mesh_section import mzi_name
from optinc_hw.errors import CalibrationError, MatrixError
from optinc_hw.photonics import ChipLayout, MeshLayout, TwinParameters

_MZI_NAME = re.compile(r"mzi_(0|[1-9]\d{0,3})_(0|[1-9]\d{0,3})")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class HeaterEntry(_Model):
    """One heater: its resistance law ``R0 (1 + beta P)`` and its phase curve.

    The offset is the phase at zero power; its standard deviation is that of the phase at the mean power of the fit's
    settings, which the data determine better.
    """

    resistance_ohm: float = Field(gt=0)
    resistance_beta_per_w: float
    offset_rad: float
    offset_sigma_rad: float = Field(ge=0)
    p_pi_w: float = Field(gt=0)
    p_pi_sigma_w: float = Field(ge=0)


class CrosstalkEntry(_Model):
    """Heat that one heater sends to the phase of another, relative to its effect on its own."""

    heated: str
    heating: str
    coefficient: float


class CouplerEntry(_Model):
    """Splitting angles of an MZI's first and second coupler."""

    eta_in_rad: float
    eta_out_rad: float


class PortEntry(_Model):
    """Input and output of one port."""

    input_amplitude_sqrt_w: float = Field(gt=0)
    output_transmission: float = Field(gt=0)
    lo_amplitude_sqrt_w: float = Field(gt=0)
    receiver_eta_rad: float
    input_modulator: CouplerEntry
    attenuator: CouplerEntry


class MziEntry(CouplerEntry):
    """One MZI of the mesh."""

    transmission: float = Field(gt=0)


class DetectorEntry(_Model):
    """One photodiode."""

    gain: float = Field(gt=0)
    dark_w: float


class Quality(_Model):
    """How well the twin predicts settings that the fit has not seen."""

    residual_over_noise: float = Field(ge=0)
    held_out_settings: int = Field(ge=1)
    readings: int = Field(ge=1)
    noise_relative: float = Field(gt=0)
    noise_floor_w: float = Field(gt=0)


class Provenance(_Model):
    """Where a record comes from."""

    software: str
    created_utc: AwareDatetime
    seed: int
    chip: str
    laser_power_w: float = Field(gt=0)
    laser_wavelength_m: float = Field(gt=0)
    data_file: str
    data_sha256: str


class CalibrationRecord(_Model):
    """The calibration of one chip, as benches load it.

    A record is immutable; `content_hash` identifies it and is checked on loading.  The MZIs in ``mesh`` are those of
    the chip; ``stuck`` names heaters that do not move their phases, which stay at the ``offset_rad`` of their entries.
    """

    version: Literal[1] = 1
    ports: int = Field(ge=2)
    provenance: Provenance
    quality: Quality
    heaters: dict[str, HeaterEntry]
    mesh: dict[str, MziEntry]
    port: tuple[PortEntry, ...]
    detectors: dict[str, DetectorEntry]
    crosstalk: tuple[CrosstalkEntry, ...]
    stuck: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_match_layout(self) -> Self:
        try:
            layout = self.layout
        except MatrixError as error:
            raise ValueError(f"mesh and stuck describe no chip of {self.ports} ports: {error}") from error
        for field in ("heaters", "detectors"):
            if set(getattr(self, field)) != set(getattr(layout, field)):
                raise ValueError(f"{field} do not name exactly those of a chip of {self.ports} ports and this mesh")
        if len(self.port) != self.ports:
            raise ValueError(f"port has {len(self.port)} entries, the chip has {self.ports} ports")
        pairs = [(entry.heated, entry.heating) for entry in self.crosstalk]
        for heated, heating in pairs:
            if {heated, heating} - set(layout.heaters):
                raise ValueError(f"crosstalk names an unknown heater: {heated} or {heating}")
            if heated == heating:
                raise ValueError(f"crosstalk of {heated} on itself is 1 by definition and must be left out")
        if len(set(pairs)) != len(pairs):
            raise ValueError("crosstalk names a pair of heaters twice")
        return self

    @classmethod
    def from_twin(
        cls, twin: TwinParameters, resistance_ohm: NDArray[np.float64], beta_per_w: NDArray[np.float64],
        sigmas: tuple[NDArray[np.float64], NDArray[np.float64]], quality: Quality, provenance: Provenance,
    ) -> "CalibrationRecord":  # fmt: skip
        """Build a record from a fitted twin.

        Parameters
        ----------
        twin
            The fitted parameters.
        resistance_ohm, beta_per_w
            Resistance law of each heater (H,).
        sigmas
            Standard deviations (H,) of phases at mid power in rad and of efficiencies in rad/W.
        quality, provenance
            How good the fit is and where it comes from.

        Raises
        ------
        CalibrationError
            If a value is not possible (a negative efficiency, a crosstalk of a heater on itself other than 1).
        """
        if not (np.diagonal(twin.crosstalk) == 1.0).all():
            raise CalibrationError(
                "the twin's crosstalk of a heater on itself is not 1; divide each column by it and put it into the "
                "heater's efficiency"
            )
        try:
            return cls._from_entries(twin, resistance_ohm, beta_per_w, sigmas, quality, provenance)
        except ValidationError as error:
            raise CalibrationError(f"these parameters make no record: {_first_problem(error)}") from error

    @classmethod
    def _from_entries(
        cls, twin: TwinParameters, resistance_ohm: NDArray[np.float64], beta_per_w: NDArray[np.float64],
        sigmas: tuple[NDArray[np.float64], NDArray[np.float64]], quality: Quality, provenance: Provenance,
    ) -> "CalibrationRecord":  # fmt: skip
        return cls(
            ports=twin.ports, provenance=provenance, quality=quality,
            heaters=_heater_entries(twin, resistance_ohm, beta_per_w, sigmas),
            mesh={
                mzi_name(mzi): MziEntry(eta_in_rad=eta[0], eta_out_rad=eta[1], transmission=loss)
                for mzi, eta, loss in zip(twin.layout.mesh.mzis, twin.mesh_eta, twin.mzi_transmission, strict=True)
            },
            port=tuple(_port_entry(twin, j) for j in range(twin.ports)),
            detectors={
                name: DetectorEntry(gain=gain, dark_w=dark)
                for name, gain, dark in zip(twin.layout.detectors, twin.gain, twin.dark_w, strict=True)
            },
            crosstalk=_crosstalk_entries(twin), stuck=twin.layout.stuck,
        )  # fmt: skip

    @cached_property
    def layout(self) -> ChipLayout:
        """Names and order of heaters and detectors, by the MZIs and the stuck heaters of the record."""
        return ChipLayout(self.ports, MeshLayout(self.ports, tuple(map(_mzi, self.mesh))), self.stuck)

    @property
    def resistance_ohm(self) -> NDArray[np.float64]:
        """Resistances at zero power (H,) in ohm, in the order of the layout's heaters."""
        return self._column("resistance_ohm")

    @property
    def resistance_beta_per_w(self) -> NDArray[np.float64]:
        """Relative growth of the resistances (H,) in 1/W."""
        return self._column("resistance_beta_per_w")

    def _column(self, field: str) -> NDArray[np.float64]:
        return np.array([getattr(self.heaters[name], field) for name in self.layout.heaters])

    def twin(self) -> TwinParameters:
        """Return the twin's parameters as arrays."""
        layout = self.layout
        crosstalk = np.eye(len(layout.heaters))
        for entry in self.crosstalk:
            crosstalk[layout.heater_index[entry.heated], layout.heater_index[entry.heating]] = entry.coefficient
        mesh = [self.mesh[mzi_name(mzi)] for mzi in layout.mesh.mzis]
        detectors = [self.detectors[name] for name in layout.detectors]
        return TwinParameters(
            self.ports, offset=self._column("offset_rad"), efficiency=np.pi / self._column("p_pi_w"),
            crosstalk=crosstalk, mesh_eta=_angles(mesh),
            input_eta=_angles([p.input_modulator for p in self.port]),
            attenuator_eta=_angles([p.attenuator for p in self.port]),
            receiver_eta=np.array([p.receiver_eta_rad for p in self.port]),
            input_amplitude=np.array([p.input_amplitude_sqrt_w for p in self.port]),
            mzi_transmission=np.array([m.transmission for m in mesh]),
            output_transmission=np.array([p.output_transmission for p in self.port]),
            lo_amplitude=np.array([p.lo_amplitude_sqrt_w for p in self.port]),
            gain=np.array([d.gain for d in detectors]), dark_w=np.array([d.dark_w for d in detectors]),
            mesh=layout.mesh, stuck=layout.stuck,
        )  # fmt: skip

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical content, as hexadecimal text."""
        return _digest(self._content())

    def _content(self) -> dict[str, Any]:  # Any: whatever JSON can hold
        # A chip without stuck phases says nothing of them, as before there was that key.
        return self.model_dump(mode="json", exclude=None if self.stuck else {"stuck"})

    def save(self, path: str | Path) -> None:
        """Write the record as JSON, to a temporary name first, then renamed.

        Raises
        ------
        CalibrationError
            If the file cannot be written; an old file is then still whole.
        """
        target = Path(path)
        content = {"content_hash": self.content_hash, **self._content()}
        try:
            write_text(target, json.dumps(content, indent=1) + "\n")
        except OSError as error:
            raise CalibrationError(f"cannot write the calibration record {target}: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> "CalibrationRecord":
        """Read and check a record.

        Raises
        ------
        CalibrationError
            If the file is missing, malformed, of another version, or its hash does not match its content.
        """
        source = Path(path)
        try:
            content = json.loads(source.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:  # JSON nested without end recurses
            raise CalibrationError(f"cannot read the calibration record {source}: {error}") from error
        if not isinstance(content, dict) or "content_hash" not in content:
            raise CalibrationError(f"{source} is not a calibration record: it has no content_hash")
        stated = content.pop("content_hash")
        try:
            record = cls.model_validate(content)
        except ValidationError as error:
            raise CalibrationError(f"{source}: {_first_problem(error)}; calibrate again (optinc calibrate)") from error
        if _digest(content) != stated:  # of the text itself, so that nothing passes by being read the same
            raise CalibrationError(
                f"{source}: the content does not match its hash, so the file was changed after the calibration; "
                "restore it or calibrate again"
            )
        return record


def make_provenance(
    *, seed: int, chip: str, laser_power_w: float, laser_wavelength_m: float, created: datetime,
    data_file: str, data_sha256: str,
) -> Provenance:  # fmt: skip
    """State where a record comes from, with this software's version."""
    return Provenance(
        software=f"optinc-hw {optinc_hw.__version__}", created_utc=created, seed=seed, chip=chip,
        laser_power_w=laser_power_w, laser_wavelength_m=laser_wavelength_m,
        data_file=data_file, data_sha256=data_sha256,
    )  # fmt: skip


def _digest(content: dict[str, Any]) -> str:  # Any: whatever JSON can hold
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "record"
    return f"{key}: {first['msg']}"


def _mzi(name: str) -> tuple[int, int]:
    """Place of an MZI by its name."""
    found = _MZI_NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"mesh.{name}: an MZI is named mzi_<column>_<upper mode>")
    return int(found[1]), int(found[2])


def _angles(entries: list[CouplerEntry] | list[MziEntry]) -> NDArray[np.float64]:
    return np.array([[entry.eta_in_rad, entry.eta_out_rad] for entry in entries], dtype=np.float64).reshape(-1, 2)


def _heater_entries(
    twin: TwinParameters, resistance_ohm: NDArray[np.float64], beta_per_w: NDArray[np.float64],
    sigmas: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> dict[str, HeaterEntry]:  # fmt: skip
    offset_sigma, efficiency_sigma = sigmas
    p_pi = np.pi / twin.efficiency
    return {
        name: HeaterEntry(
            resistance_ohm=resistance_ohm[h], resistance_beta_per_w=beta_per_w[h], offset_rad=twin.offset[h],
            offset_sigma_rad=offset_sigma[h], p_pi_w=p_pi[h],
            p_pi_sigma_w=p_pi[h] * efficiency_sigma[h] / twin.efficiency[h],
        )
        for h, name in enumerate(twin.layout.heaters)
    }  # fmt: skip


def _port_entry(twin: TwinParameters, j: int) -> PortEntry:
    return PortEntry(
        input_amplitude_sqrt_w=twin.input_amplitude[j], output_transmission=twin.output_transmission[j],
        lo_amplitude_sqrt_w=twin.lo_amplitude[j], receiver_eta_rad=twin.receiver_eta[j],
        input_modulator=CouplerEntry(eta_in_rad=twin.input_eta[j, 0], eta_out_rad=twin.input_eta[j, 1]),
        attenuator=CouplerEntry(eta_in_rad=twin.attenuator_eta[j, 0], eta_out_rad=twin.attenuator_eta[j, 1]),
    )  # fmt: skip


def _crosstalk_entries(twin: TwinParameters) -> tuple[CrosstalkEntry, ...]:
    names = twin.layout.heaters
    off_diagonal = twin.crosstalk * (1.0 - np.eye(len(names)))
    return tuple(
        CrosstalkEntry(heated=names[k], heating=names[j], coefficient=off_diagonal[k, j])
        for k, j in zip(*np.nonzero(off_diagonal), strict=True)
    )
