"""Calibration records: what a calibration found about one chip, versioned, hashed and readable."""

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

import optinc_hw
from optinc_hw._files import write_text
from optinc_hw.bench._mesh_section import mzi_name
from optinc_hw.bench._record_parts import (
    CouplerEntry,
    Crosstalk,
    DetectorEntry,
    HeaterEntry,
    MziEntry,
    Part,
    PortEntry,
    Provenance,
    Quality,
)
from optinc_hw.bench._record_v1 import RecordV1
from optinc_hw.errors import CalibrationError, MatrixError
from optinc_hw.photonics import ChipLayout, MeshLayout, TwinParameters
from optinc_hw.photonics.layout import Inputs, Receivers

__all__ = ["CalibrationRecord", "Provenance", "Quality", "make_provenance"]

_MZI_NAME = re.compile(r"mzi_(0|[1-9]\d{0,3})_(0|[1-9]\d{0,3})")


class CalibrationRecord(Part):
    """The calibration of one chip, as benches load it.

    A record is immutable; `content_hash` identifies it and is checked on loading.  The MZIs in ``mesh`` are those of
    the chip; ``stuck`` names heaters that do not move their phases, which stay at the ``offset_rad`` of their entries.
    ``second_order`` is the phase that is quadratic in heat, in 1/rad: of the heater itself, and with its neighbours.
    """

    version: Literal[2] = 2
    ports: int = Field(ge=2)
    inputs: Inputs = "modulators"
    receivers: Receivers = "homodyne"
    provenance: Provenance
    quality: Quality
    heaters: dict[str, HeaterEntry]
    mesh: dict[str, MziEntry]
    port: tuple[PortEntry, ...]
    detectors: dict[str, DetectorEntry]
    crosstalk: Crosstalk
    second_order: tuple[float, float] = (0.0, 0.0)
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
        for j, port in enumerate(self.port):
            wrong = port.lacks(modulators=self.inputs == "modulators", homodyne=self.receivers == "homodyne")
            if wrong:
                raise ValueError(
                    f"port.{j}.{wrong[0]} does not fit a chip with inputs: {self.inputs}, receivers: {self.receivers}"
                )
        if self.crosstalk.rows and set(self.crosstalk.heating) != set(layout.heaters):
            raise ValueError(f"crosstalk.heating does not name exactly the heaters of a chip of {self.ports} ports")
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
            ports=twin.ports, inputs=twin.inputs, receivers=twin.receivers, provenance=provenance, quality=quality,
            heaters=_heater_entries(twin, resistance_ohm, beta_per_w, sigmas),
            mesh={
                mzi_name(mzi): MziEntry(
                    eta_in_rad=eta[0], eta_out_rad=eta[1], transmission=loss, theta_arm_loss=arm[0], phi_arm_loss=arm[1]
                )
                for mzi, eta, loss, arm in zip(
                    twin.layout.mesh.mzis, twin.mesh_eta, twin.mzi_transmission, twin.arm_loss, strict=True
                )
            },
            port=tuple(_port_entry(twin, j) for j in range(twin.ports)),
            detectors={
                name: DetectorEntry(gain=gain, dark_w=dark)
                for name, gain, dark in zip(twin.layout.detectors, twin.gain, twin.dark_w, strict=True)
            },
            crosstalk=Crosstalk.from_matrix(twin.crosstalk, twin.layout.heaters),
            second_order=(twin.second_order[0], twin.second_order[1]), stuck=twin.layout.stuck,
        )  # fmt: skip

    @cached_property
    def layout(self) -> ChipLayout:
        """Names and order of heaters and detectors, by the MZIs and the stuck heaters of the record."""
        mesh = MeshLayout(self.ports, tuple(map(_mzi, self.mesh)))
        return ChipLayout(self.ports, mesh, self.stuck, inputs=self.inputs, receivers=self.receivers)

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
        mesh = [self.mesh[mzi_name(mzi)] for mzi in layout.mesh.mzis]
        detectors = [self.detectors[name] for name in layout.detectors]
        return TwinParameters(
            self.ports, offset=self._column("offset_rad"), efficiency=np.pi / self._column("p_pi_w"),
            crosstalk=self.crosstalk.matrix(layout.heaters), mesh_eta=_angles(mesh),
            input_eta=_angles([p.input_modulator for p in self.port if p.input_modulator is not None]),
            attenuator_eta=_angles([p.attenuator for p in self.port if p.attenuator is not None]),
            receiver_eta=np.array([p.receiver_eta_rad for p in self.port if p.receiver_eta_rad is not None]),
            input_amplitude=np.array([p.input_amplitude_sqrt_w for p in self.port]),
            mzi_transmission=np.array([m.transmission for m in mesh]),
            output_transmission=np.array([p.output_transmission for p in self.port]),
            lo_amplitude=np.array([p.lo_amplitude_sqrt_w for p in self.port if p.lo_amplitude_sqrt_w is not None]),
            gain=np.array([d.gain for d in detectors]), dark_w=np.array([d.dark_w for d in detectors]),
            mesh=layout.mesh, stuck=layout.stuck, inputs=self.inputs, receivers=self.receivers,
            arm_loss=np.array([[m.theta_arm_loss, m.phi_arm_loss] for m in mesh], dtype=np.float64).reshape(-1, 2),
            second_order=np.array(self.second_order), curvature=self._column("curvature_per_rad"),
        )  # fmt: skip

    @property
    def content_hash(self) -> str:
        """SHA-256 of the canonical content, as hexadecimal text."""
        return _digest(self._content())

    def _content(self) -> dict[str, Any]:  # Any: whatever JSON can hold
        # What a chip lacks goes without saying.
        return self.model_dump(mode="json", exclude=None if self.stuck else {"stuck"}, exclude_none=True)

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
            write_text(target, _text(content))
        except OSError as error:
            raise CalibrationError(f"cannot write the calibration record {target}: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> "CalibrationRecord":
        """Read and check a record of version 2 or 1; one of version 1 comes as the same calibration in version 2.

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
            if content.get("version", 1) == 1:
                record = cls.model_validate(RecordV1.model_validate(content).as_version_2())
            else:
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
    data_file: str, data_sha256: str, corrected: CalibrationRecord | None = None,
) -> Provenance:  # fmt: skip
    """State where a record comes from, with this software's version; ``corrected`` is the one that it corrects."""
    return Provenance(
        software=f"optinc-hw {optinc_hw.__version__}", created_utc=created, seed=seed, chip=chip,
        laser_power_w=laser_power_w, laser_wavelength_m=laser_wavelength_m,
        data_file=data_file, data_sha256=data_sha256, kind="full" if corrected is None else "drift",
        parent_hash=None if corrected is None else corrected.content_hash,
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


def _angles(entries: Sequence[CouplerEntry]) -> NDArray[np.float64]:
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
            p_pi_sigma_w=p_pi[h] * efficiency_sigma[h] / twin.efficiency[h], curvature_per_rad=twin.curvature[h],
        )
        for h, name in enumerate(twin.layout.heaters)
    }  # fmt: skip


def _port_entry(twin: TwinParameters, j: int) -> PortEntry:
    homodyne, modulators = twin.layout.receivers == "homodyne", twin.layout.inputs == "modulators"
    return PortEntry(
        input_amplitude_sqrt_w=twin.input_amplitude[j], output_transmission=twin.output_transmission[j],
        lo_amplitude_sqrt_w=twin.lo_amplitude[j] if homodyne else None,
        receiver_eta_rad=twin.receiver_eta[j] if homodyne else None,
        input_modulator=_coupler(twin.input_eta[j]) if modulators else None,
        attenuator=_coupler(twin.attenuator_eta[j]) if homodyne else None,
    )  # fmt: skip


def _coupler(eta: NDArray[np.float64]) -> CouplerEntry:
    return CouplerEntry(eta_in_rad=eta[0], eta_out_rad=eta[1])


def _text(content: dict[str, Any]) -> str:  # Any: whatever JSON can hold
    """JSON of a record with a line for each value, but one for each row of crosstalk: these are long."""
    heating, rows = json.dumps(content["crosstalk"]["heating"]), content["crosstalk"]["rows"]
    lines = ",\n".join(f"   {json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    crosstalk = f'{{\n  "heating": {heating},\n  "rows": {{\n{lines}\n  }}\n }}'
    values = {
        key: crosstalk if key == "crosstalk" else json.dumps(value, indent=1).replace("\n", "\n ")
        for key, value in content.items()
    }
    return "{\n" + ",\n".join(f" {json.dumps(key)}: {value}" for key, value in values.items()) + "\n}\n"
