"""Entries of a calibration record."""

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

_CROSSTALK_DECIMALS = 10


class Part(BaseModel):
    """A part of a record: immutable, without unknown keys, every number finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class HeaterEntry(Part):
    """One heater: its resistance law ``R0 (1 + beta P)`` and its phase curve.

    The offset is the phase at zero power; its standard deviation is that of the phase at the mean power of the fit's
    settings, which the data determine better.  ``curvature_per_rad`` is the phase quadratic in the heater's own one.
    """

    resistance_ohm: float = Field(gt=0)
    resistance_beta_per_w: float
    offset_rad: float
    offset_sigma_rad: float = Field(ge=0)
    p_pi_w: float = Field(gt=0)
    p_pi_sigma_w: float = Field(ge=0)
    curvature_per_rad: float = 0.0


class Crosstalk(Part):
    """Phase of each heater per phase that another one gives itself: one row of numbers a heated heater.

    A row is in the order of ``heating`` and holds 1 for the heater itself. What has no row is heated by no other.
    """

    heating: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        position = {name: k for k, name in enumerate(self.heating)}
        if len(position) != len(self.heating):
            raise ValueError("heating names a heater twice")
        for heated, row in self.rows.items():
            if heated not in position:
                raise ValueError(f"rows name an unknown heater: {heated}")
            if len(row) != len(self.heating):
                raise ValueError(f"the row of {heated} has {len(row)} numbers, not one for each of {len(self.heating)}")
            if row[position[heated]] != 1.0:
                raise ValueError(f"the row of {heated} must hold 1 for {heated} itself, by definition")
        return self

    @classmethod
    def from_matrix(cls, matrix: NDArray[np.float64], names: Sequence[str]) -> "Crosstalk":
        """Make rows out of a matrix (H, H) with unit diagonal; 10 decimals are far more than can be measured."""
        rounded = np.round(matrix, _CROSSTALK_DECIMALS)
        heated = np.flatnonzero((rounded != np.eye(len(names))).any(axis=1)).tolist()
        return cls(heating=tuple(names), rows={names[k]: tuple(rounded[k].tolist()) for k in heated})

    def matrix(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return the matrix (H, H) with rows and columns in the order of ``names``."""
        place = {name: k for k, name in enumerate(names)}
        columns = np.array([place[name] for name in self.heating], dtype=np.intp)
        matrix = np.eye(len(names))
        for heated, row in self.rows.items():
            matrix[place[heated], columns] = row
        return matrix


class CouplerEntry(Part):
    """Splitting angles of an MZI's first and second coupler."""

    eta_in_rad: float
    eta_out_rad: float


class MziEntry(CouplerEntry):
    """One MZI of the mesh; arm losses are logarithms of how much less field the upper arm passes than the lower one."""

    transmission: float = Field(gt=0)
    theta_arm_loss: float = 0.0
    phi_arm_loss: float = 0.0


class PortEntry(Part):
    """Input and output of one port; what the chip lacks has no entry."""

    input_amplitude_sqrt_w: float = Field(gt=0)
    output_transmission: float = Field(gt=0)
    lo_amplitude_sqrt_w: float | None = Field(default=None, gt=0)
    receiver_eta_rad: float | None = None
    input_modulator: CouplerEntry | None = None
    attenuator: CouplerEntry | None = None

    def lacks(self, *, modulators: bool, homodyne: bool) -> list[str]:
        """Return the keys that are missing, or there although the chip has no such thing."""
        wanted = {
            "lo_amplitude_sqrt_w": homodyne,
            "receiver_eta_rad": homodyne,
            "attenuator": homodyne,
            "input_modulator": modulators,
        }
        return [key for key, expected in wanted.items() if (getattr(self, key) is not None) != expected]


class DetectorEntry(Part):
    """One photodiode."""

    gain: float = Field(gt=0)
    dark_w: float


class Quality(Part):
    """How well the twin predicts settings that the fit has not seen.

    ``held_out_tvd`` is the mean total variation distance between predicted and measured output distributions of such
    settings; ``fit_readings`` are those of ``readings`` that entered the fit; ``expected_residual`` is what
    ``residual_over_noise`` would be on a chip that does nothing but what the model knows, from as many readings.
    """

    residual_over_noise: float = Field(ge=0)
    held_out_settings: int = Field(ge=1)
    readings: int = Field(ge=1)
    noise_relative: float = Field(gt=0)
    noise_floor_w: float = Field(gt=0)
    held_out_tvd: float | None = Field(default=None, ge=0, le=1)
    fit_readings: int | None = Field(default=None, ge=0)
    expected_residual: float | None = Field(default=None, ge=1)


class Provenance(Part):
    """Where a record comes from: a full calibration, or a correction for drift of the record with ``parent_hash``."""

    software: str
    created_utc: AwareDatetime
    seed: int
    chip: str
    laser_power_w: float = Field(gt=0)
    laser_wavelength_m: float = Field(gt=0)
    data_file: str
    data_sha256: str
    kind: Literal["full", "drift"] = "full"
    parent_hash: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
