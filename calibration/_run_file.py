"""One netCDF file a run: raw data of every stage as soon as it is there, the result at the end."""

import hashlib
from pathlib import Path

import numpy as np
import xarray as xr

from calibration._session import Array
from optinc_hw._files import replacing
from optinc_hw._netcdf import netcdf_bytes
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, TwinParameters
from optinc_hw.photonics.twin import parameter_shapes

_RAW = {
    "dark_readings": (("dark_repeat", "detector"), "W", "detector readings without light"),
    "noise_readings": (("noise_repeat", "detector"), "W", "repeated detector readings, dark readings subtracted"),
    "resistance_voltage": (("resistance_level", "heater"), "V", "heater voltage"),
    "resistance_current": (("resistance_level", "heater"), "A", "heater current"),
    "fringe_power": (("heater", "fringe_point"), "W", "heater power of the single sweeps"),
    "fringe_readings": (("heater", "fringe_point", "detector"), "W", "detector readings of the single sweeps"),
    "attenuator_fields": (("attenuator_setting", "step", "port", "complex"), "W", "output fields times LO field"),
    "generator_fields": (("input", "step", "port", "complex"), "W", "output fields times LO field of one input"),
    "line_fields": (("mzi", "step", "complex"), "W", "field times LO field at the line's output"),
    "matrix": (("port", "input", "complex"), "W", "output field times LO field per open input"),
    "lo_readings": (("detector",), "W", "detector readings with all inputs dark"),
    "train_power": (("train", "heater"), "W", "heater powers of the random settings of the fit"),
    "train_readings": (("train", "detector"), "W", "detector readings of the random settings of the fit"),
    "held_out_power": (("held_out", "heater"), "W", "heater powers of the settings kept out of the fit"),
    "held_out_readings": (("held_out", "detector"), "W", "detector readings of the settings kept out of the fit"),
}  # fmt: skip

_TWIN_DIMS = {
    "offset": (("heater",), "rad"), "efficiency": (("heater",), "rad/W"), "crosstalk": (("heater", "heating"), "1"),
    "input_eta": (("input", "coupler"), "rad"), "mesh_eta": (("mzi", "coupler"), "rad"),
    "attenuator_eta": (("port", "coupler"), "rad"), "receiver_eta": (("port",), "rad"),
    "input_amplitude": (("input",), "W^0.5"), "mzi_transmission": (("mzi",), "1"),
    "arm_loss": (("mzi", "arm"), "1"), "second_order": (("second_order_term",), "1/rad"),
    "output_transmission": (("port",), "1"), "lo_amplitude": (("port",), "W^0.5"), "gain": (("detector",), "1"),
    "dark_w": (("detector",), "W"),
}  # fmt: skip


class RunFile:
    """The file of one calibration run; rewritten whole, atomically, after every stage.

    Parameters
    ----------
    path
        Where to write.
    layout
        Chip, for the names on the axes.
    attributes
        Provenance: text and numbers that netCDF can hold.
    """

    def __init__(self, path: Path, layout: ChipLayout, attributes: dict[str, str | int | float]) -> None:
        self.path = path
        self._dataset = xr.Dataset(
            coords={
                "heater": list(layout.heaters), "heating": ("heating", list(layout.heaters)),
                "detector": list(layout.detectors), "mzi": [f"mzi_{c}_{m}" for c, m in layout.mesh.mzis],
                "complex": ["real", "imaginary"],
            },
            attrs={"title": "optinc-hw calibration run", "stage": "started", **attributes},
        )  # fmt: skip

    def add(self, stage: str, raw: dict[str, Array]) -> None:
        """Add the raw data of a stage and write the file."""
        for name, values in raw.items():
            dims, unit, meaning = _RAW[name]
            self._dataset[name] = (dims, np.asarray(values), {"units": unit, "long_name": meaning})
        self._write(stage)

    def finish(self, twin: TwinParameters, results: dict[str, float]) -> str:
        """Add the fitted twin and figures of merit, write the file, and return its SHA-256."""
        for name in parameter_shapes(twin.ports):
            dims, unit = _TWIN_DIMS[name]
            self._dataset[f"twin_{name}"] = (dims, getattr(twin, name), {"units": unit, "long_name": f"twin: {name}"})
        self._dataset.attrs.update(results)
        self._write("finished")
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def _write(self, stage: str) -> None:
        self._dataset.attrs["stage"] = stage
        try:
            with replacing(self.path) as part:
                part.write_bytes(netcdf_bytes(self._dataset))
        except OSError as error:
            raise CalibrationError(f"cannot write the run's data to {self.path}: {error}") from error
