"""The demo's own data as one netCDF file, beside the calibration's."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from optinc_hw._netcdf import netcdf_bytes
from optinc_hw.demo._chip import Codes, MatrixMeasurement, SampleRun
from optinc_hw.demo._training import TrainingComparison


def write_data(
    path: Path,
    codes: Codes,
    runs: tuple[SampleRun, SampleRun],
    matrices: tuple[MatrixMeasurement, ...],
    training: TrainingComparison,
    attributes: dict[str, str | int],
) -> None:
    """Write samples, matrices and training curves.

    Parameters
    ----------
    path
        File to write.
    codes
        Codes (elements, workers) that went through the chip.
    runs
        The chip's answers with and without calibration.
    matrices
        Target and measured matrices.
    training
        Curves of all training runs.
    attributes
        Provenance.
    """
    calibrated, uncalibrated = runs
    level = "PAM4 levels"
    data = xr.Dataset(attrs={"title": "optinc-hw demo", **attributes})
    data["sample_codes"] = _labelled(("element", "worker"), codes, "1", "codes of the workers' gradients")
    for name, run in (("calibrated", calibrated), ("uncalibrated", uncalibrated)):
        dims = (f"element_{name}", "symbol")
        data[f"{name}_symbols"] = _labelled(dims, run.analogue, level, f"{name} chip: outputs before the decision")
        data[f"{name}_wanted"] = _labelled(dims, run.wanted_symbols, level, "symbols of the exact mean")
    for index, m in enumerate(matrices):
        values = np.stack([m.target, m.calibrated, m.uncalibrated])
        axes = ("kind", f"output_{index}", f"input_{index}")
        data[f"matrix_{index}"] = _labelled(axes, values, "1", f"{m.name}: field amplitude out per amplitude in")
    both = (training.optical, training.float_)
    loss = np.stack([[run.loss for run in runs_] for runs_ in both])
    accuracy = np.stack([[run.accuracy for run in runs_] for runs_ in both])
    data["loss"] = _labelled(("averaging", "run", "step"), loss, "nat", "training loss of the workers' batches")
    data["accuracy"] = _labelled(("averaging", "run", "epoch"), accuracy, "1", "test accuracy, before and after epochs")
    named = data.assign_coords(
        kind=["target", "calibrated", "uncalibrated"],
        averaging=["optical", "float"],
        run=("run", [run.seed for run in training.optical], {"long_name": "seed of the training run"}),
    )
    path.write_bytes(netcdf_bytes(named))


def _labelled(dims: tuple[str, ...], values: NDArray[Any], unit: str, meaning: str) -> xr.Variable:
    return xr.Variable(dims, values, {"units": unit, "long_name": meaning})
