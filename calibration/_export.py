"""Runs as QCoDeS datasets, for laboratories that keep everything in one QCoDeS database."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from calibration._checks import expanded, readable, require_file_name, require_text
from calibration._journal import SUFFIX
from calibration._journal_format import AnyArray
from calibration._result_tables import without_results
from calibration._run_file import read_run
from optinc_hw.errors import CalibrationError

if TYPE_CHECKING:
    from qcodes.dataset import Measurement

_RESULTS = "results"


def export_qcodes(
    run: str | Path, database: str | Path, *, experiment: str = "calibration", sample: str | None = None
) -> dict[str, int]:
    """Copy a run into a QCoDeS database: all of it or nothing.

    An export that fails leaves no dataset.  Ctrl-C waits until all are written; a second one leaves none.

    Each table of sweeps becomes a dataset of its name (``sweep``, ``repeat``, ``electrical``), everything else in the
    run's file one named ``results``.  Arrays have their axes as setpoints: positions, whose names are in the dataset's
    metadata under the axis; so are texts, such as ``sweep_stage``, and the run's attributes.

    Parameters
    ----------
    run
        netCDF file or journal of a run.
    database
        SQLite file of QCoDeS; made if it is not there.
    experiment
        Name of the experiment, taken up if it is there: the last one, of several with this name and sample.
    sample
        Name of the sample; None takes the chip's.

    Returns
    -------
    dict
        Captured run id of each dataset, for ``qcodes.dataset.load_by_run_spec``.

    Raises
    ------
    CalibrationError
        If the run cannot be read, the database cannot be written, or a name is none.
    """
    require_text("experiment", experiment, "name the experiment")
    if sample is not None:
        require_text("sample", sample, "name the sample, or give None for the chip's name")
    remedy = "give the path of a QCoDeS database"
    target = expanded("database", database, remedy)
    require_file_name("database", target, remedy)
    with readable("the run", run):
        source = _dataset(Path(run))
        tables = json.loads(source.attrs["run_tables"])
    groups = {table: [n for n, v in source.data_vars.items() if v.dims[0] == f"{table}_reading"] for table in tables}
    taken = {name for names in groups.values() for name in names}
    groups[_RESULTS] = [name for name in source.data_vars if name not in taken]
    named = {title: source[names] for title, names in groups.items() if names}
    try:
        return _write_all(named, target, experiment, sample or str(source.attrs["chip"]))
    except (OSError, RuntimeError, ValueError, sqlite3.Error) as error:  # RuntimeError: a transaction that failed
        raise CalibrationError(
            f"cannot write the QCoDeS database {target}: {_first_cause(error)}; nothing of the run was written: give a "
            "database of QCoDeS, or the name of a new one, that can be written, that no other program is writing, and "
            "that the disk has room for"
        ) from error


def _first_cause(error: BaseException) -> BaseException:
    """Return what made a transaction fail: QCoDeS says only that it did."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _write_all(named: dict[str, xr.Dataset], target: Path, experiment: str, sample: str) -> dict[str, int]:
    """Write every dataset in one transaction; returns their run ids."""
    from qcodes.dataset import connect, initialised_database_at, load_or_create_experiment
    from qcodes.dataset.sqlite.connection import atomic

    with initialised_database_at(target), closing(connect(target)) as connection:
        try:
            with atomic(connection):
                place = load_or_create_experiment(experiment, sample, connection, load_last_duplicate=True)
                return {title: _write(source, title, place) for title, source in named.items()}
        finally:  # what is no Exception passes a transaction without ending it
            connection.rollback()


def _dataset(path: Path) -> xr.Dataset:
    run = read_run(path)
    if path.suffix == SUFFIX:
        source = run.dataset()
    else:
        with xr.open_dataset(path, engine="h5netcdf") as file:
            source = file.load()
    source.attrs.setdefault("chip", run.header.chip)
    return without_results(source)


def _write(source: xr.Dataset, title: str, experiment: Any) -> int:  # Any: the experiment's class has no stable name
    from qcodes.dataset import Measurement

    measurement = Measurement(exp=experiment, name=title)
    metadata = {str(name): _text(value) for name, value in source.attrs.items()}
    columns: dict[str, tuple[AnyArray, tuple[str, ...]]] = {}
    for axis in dict.fromkeys(str(dim) for variable in source.data_vars.values() for dim in variable.dims):
        label = f"position on the axis {axis}"
        measurement.register_custom_parameter(_axis(axis), label=label, unit="", paramtype="array")
        if axis in source.coords:
            metadata[axis] = json.dumps(source[axis].to_numpy().tolist())
    for name, variable in source.data_vars.items():
        values = variable.to_numpy()
        if values.dtype.kind in "OUS":
            known, values = np.unique(values.astype(str), return_inverse=True)
            metadata[str(name)] = json.dumps(known.tolist())
        if values.dtype == np.bool_:
            values = values.astype(np.int64)
        axes = tuple(_axis(str(dim)) for dim in variable.dims)
        _register(measurement, str(name), variable, axes)
        columns[str(name)] = np.asarray(values), axes
    measurement.set_shapes({name: values.shape for name, (values, axes) in columns.items() if axes})
    with measurement.run(write_in_background=False) as saver:
        for name, (values, axes) in columns.items():
            positions = np.meshgrid(*(np.arange(size) for size in values.shape), indexing="ij") if axes else []
            saver.add_result(*zip(axes, positions, strict=True), (name, values))
        dataset = saver.dataset
    for name, text in metadata.items():
        dataset.add_metadata(name, text)
    return int(dataset.captured_run_id)


def _register(measurement: "Measurement", name: str, variable: xr.DataArray, axes: tuple[str, ...]) -> None:
    unit = str(variable.attrs.get("units", ""))
    measurement.register_custom_parameter(
        name, label=str(variable.attrs.get("long_name", name)), unit="" if unit == "1" else unit,
        setpoints=axes or None, paramtype="array",
    )  # fmt: skip


def _axis(dim: str) -> str:
    """Name of the setpoint of an axis; variables may have the axis's own name."""
    return f"{dim}_position"


def _text(value: object) -> str:
    return str(value.item()) if isinstance(value, np.generic) else str(value)
