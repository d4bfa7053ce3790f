"""Models of ``chip.yaml``: what the chip is, how it is wired, and what it must never see."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from optinc_hw.bench._inputs_section import Inputs, SwitchEntry
from optinc_hw.bench._mesh_section import LayoutName, MeshSection, check_mesh
from optinc_hw.bench._problems import Name, parse, read_yaml
from optinc_hw.photonics.layout import ChipLayout, Receivers

CHIP_FILE = "chip.yaml"
MAX_PORTS = 64

_Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LaserEntry(_Strict):
    """The laser that feeds the chip."""

    instrument: Name = Field(description="the name of the laser in station.yaml")
    wavelength_nm: _Positive = Field(description="the wavelength in nm, more than 0")
    power_dbm: float = Field(
        ge=-60.0, le=20.0, allow_inf_nan=False, description="the laser's output power in dBm, from -60 to 20"
    )


class HeaterLimits(_Strict):
    """Hard limits of a heater; as ``defaults`` they hold for every heater that does not state its own."""

    max_voltage_v: _Positive | None = Field(default=None, description="the highest voltage in V, more than 0")
    max_current_a: _Positive | None = Field(default=None, description="the highest current in A, more than 0")
    max_power_w: _Positive | None = Field(default=None, description="the highest electrical power in W, more than 0")


class HeaterEntry(HeaterLimits):
    """Where one heater hangs, and its own limits if they differ from the defaults."""

    instrument: Name = Field(description="the name of a heater driver in station.yaml")
    channel: Annotated[int, Field(ge=0)] = Field(description="the channel of that instrument, counted from 0")


class Heaters(BaseModel):
    """The default limits and one entry for each heater, by its name in the chip's layout."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, HeaterEntry] = Field(init=False)

    defaults: HeaterLimits = Field(default=HeaterLimits(), description="limits for heaters that state none")

    @property
    def entries(self) -> dict[str, HeaterEntry]:
        """Entry of each heater name in the file, in the file's order."""
        return dict(self.__pydantic_extra__)

    def limit(self, heater: str, key: str) -> float | None:
        """Limit ``key`` (such as "max_power_w") of ``heater``: its own, else the default, else None."""
        own: float | None = getattr(self.entries[heater], key)
        default: float | None = getattr(self.defaults, key)
        return default if own is None else own


class DetectorEntry(_Strict):
    """Where one photodiode, or the fibre of one output, is read."""

    instrument: Name = Field(description="the name of a power meter in station.yaml")
    port: Annotated[int, Field(ge=0)] = Field(description="the port of that meter, counted from 0")
    switch: SwitchEntry | None = Field(
        default=None, description="a mapping with instrument, input, output: the way through a switch before that port"
    )


class ChipLimits(_Strict):
    """Hard limits of the whole chip."""

    total_power_w: _Positive = Field(description="the highest electrical power of all heaters together in W")


class Settling(_Strict):
    """How long the chip needs after a change."""

    settle_s: _NotNegative = Field(description="the time in s after which heaters and light are settled, 0 or more")


class Ramp(_Strict):
    """How fast heater voltages may move."""

    step_v: _Positive = Field(description="the largest voltage step in V, more than 0")
    interval_s: _NotNegative = Field(description="the pause between steps in s, 0 or more")


class SafeState(_Strict):
    """State in which every session leaves the chip; stated in the file so that its reader knows it."""

    heater_voltage_v: Annotated[float, Field(ge=0.0, le=0.0)] = Field(
        default=0.0, description="0.0, the only safe heater voltage that the drivers know"
    )
    laser_shutter: Literal["closed"] = Field(default="closed", description="closed, the only safe state of the shutter")


class Nominal(_Strict):
    """Design values of a heater, used before a calibration exists."""

    resistance_ohm: _Positive = Field(description="the nominal heater resistance in ohm, more than 0")
    p_pi_w: _Positive = Field(description="the nominal heater power in W for a phase of pi, more than 0")


class ChipFile(_Strict):
    """Content of ``chip.yaml``, version 1.

    All fields are as in the file; heaters and detectors are keyed by the names of ``chip_layout``.  ``inputs`` is None
    for a chip with input modulators.  Unknown keys are refused.
    """

    version: Literal[1] = Field(description="1, the only version of this file format")
    name: Name = Field(description="a name for the chip")
    ports: Annotated[int, Field(ge=2, le=MAX_PORTS)] = Field(
        description=f"the number of optical ports, 2 to {MAX_PORTS}"
    )
    layout: LayoutName = Field(default="rectangular", description="rectangular, triangular or custom")
    mesh: MeshSection = Field(
        default=MeshSection(), description="a mapping with mzis (for layout: custom), missing, stuck"
    )
    inputs: Inputs = None
    receivers: Receivers = Field(default="homodyne", description="homodyne or power")
    laser: LaserEntry = Field(description="a mapping with instrument, wavelength_nm and power_dbm")
    averaging_time_s: _Positive = Field(description="the averaging time of the power meters in s, more than 0")
    settling: Settling = Field(description="a mapping with settle_s")
    ramp: Ramp = Field(description="a mapping with step_v and interval_s")
    limits: ChipLimits = Field(description="a mapping with total_power_w")
    safe_state: SafeState = Field(default=SafeState(), description="a mapping with heater_voltage_v, laser_shutter")
    nominal: Nominal = Field(description="a mapping with resistance_ohm and p_pi_w")
    calibration: Annotated[str, Field(min_length=1, pattern=r"^[^/\\]+$")] | None = Field(
        default=None, description="the file name (no folder) of the calibration record beside chip.yaml, or null"
    )
    serial_numbers: dict[Name, str] = Field(
        default={}, description="instrument name to the serial number that must answer at its address"
    )
    heaters: Heaters = Field(description="a mapping from heater name to instrument and channel, and defaults")
    detectors: dict[str, DetectorEntry] = Field(description="a mapping from detector name to instrument and port")

    @property
    def chip_layout(self) -> ChipLayout:
        """Names and order of the chip's heaters and detectors, stuck ones included and missing ones left out."""
        return ChipLayout(
            self.ports,
            self.mesh.built(self.layout, self.ports),
            self.mesh.stuck_rad,
            inputs="modulators" if self.inputs is None else "ports",
            receivers=self.receivers,
        )


def read_chip_file(folder: Path) -> ChipFile:
    """Read ``folder/chip.yaml``.

    Raises
    ------
    ConfigurationError
        If the file is missing or malformed; the message lists every fault with its key path and remedy.
    """
    path = folder / CHIP_FILE
    chip = parse(ChipFile, read_yaml(path), path)
    check_mesh(chip.mesh, chip.layout, chip.ports, path)
    return chip
