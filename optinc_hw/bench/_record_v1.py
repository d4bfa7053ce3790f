"""Calibration records of version 1, which knew chips with modulators and homodyne receivers only."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from optinc_hw.bench._record_parts import CouplerEntry, DetectorEntry, HeaterEntry, Part, Provenance, Quality


class _Crosstalk(Part):
    heated: str
    heating: str
    coefficient: float


class _Mzi(CouplerEntry):
    transmission: float = Field(gt=0)


class _Port(Part):
    input_amplitude_sqrt_w: float = Field(gt=0)
    output_transmission: float = Field(gt=0)
    lo_amplitude_sqrt_w: float = Field(gt=0)
    receiver_eta_rad: float
    input_modulator: CouplerEntry
    attenuator: CouplerEntry


class RecordV1(Part):
    """Content of a record of version 1."""

    version: Literal[1] = 1
    ports: int = Field(ge=2)
    provenance: Provenance
    quality: Quality
    heaters: dict[str, HeaterEntry]
    mesh: dict[str, _Mzi]
    port: tuple[_Port, ...]
    detectors: dict[str, DetectorEntry]
    crosstalk: tuple[_Crosstalk, ...]
    stuck: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _pairs_are_possible(self) -> Self:
        pairs = [(entry.heated, entry.heating) for entry in self.crosstalk]
        for heated, heating in pairs:
            if {heated, heating} - set(self.heaters):
                raise ValueError(f"crosstalk names an unknown heater: {heated} or {heating}")
            if heated == heating:
                raise ValueError(f"crosstalk of {heated} on itself is 1 by definition and must be left out")
        if len(set(pairs)) != len(pairs):
            raise ValueError("crosstalk names a pair of heaters twice")
        return self

    def as_version_2(self) -> dict[str, Any]:  # Any: whatever JSON can hold
        """Return the same calibration as the content of a record of version 2."""
        content = self.model_dump(mode="json", exclude={"crosstalk"}, exclude_none=True)
        names = list(self.heaters)
        rows: dict[str, list[float]] = {}
        position = {name: k for k, name in enumerate(names)}
        for entry in self.crosstalk:
            row = rows.setdefault(entry.heated, [0.0] * len(names))
            row[position[entry.heating]] = entry.coefficient
        for heated, row in rows.items():
            row[position[heated]] = 1.0
        return content | {"version": 2, "crosstalk": {"heating": names, "rows": rows}}
