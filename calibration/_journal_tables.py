"""The sweeps of a run as tables in a netCDF file, a row a reading, and back."""

import json
import re
from collections.abc import Iterable, Iterator

import numpy as np
import xarray as xr

from calibration._journal_format import AnyArray, plain_array
from calibration._journal_run import READINGS, RunHeader, Step
from optinc_hw.errors import CalibrationError

_HEADER, _TABLES = "run_header", "run_tables"
_UNITS = {"w": "W", "v": "V", "a": "A", "s": "s", "hz": "Hz", "rad": "rad", "k": "K", "m": "m", "ohm": "ohm"}
"""Units by the last word of an array's name."""
_MEANINGS = {
    "power_w": "heater power asked for",
    "voltage_v": "heater voltage asked for",
    "measured_voltage_v": "measured heater voltage",
    "measured_current_a": "measured heater current",
    "lit": "lit input port",
    "light": "whether the laser's light was on",
    READINGS: "detector readings, dark readings subtracted where they were known",
}
_AXES = {"power_w": "heater", "voltage_v": "heater", "measured_voltage_v": "heater", "measured_current_a": "heater",
         READINGS: "detector"}  # fmt: skip
_MOST_NAMED = 5
_Schema = tuple[tuple[str, str, str, tuple[int, ...]], ...]


def axes(header: RunHeader) -> dict[str, xr.Variable]:
    """Names of heaters, detectors and MZIs, for the axes of a run's file."""
    layout = header.layout
    return {
        "heater": xr.Variable("heater", list(layout.heaters)),
        "heating": xr.Variable("heating", list(layout.heaters)),
        "detector": xr.Variable("detector", list(layout.detectors)),
        "mzi": xr.Variable("mzi", [f"mzi_{c}_{m}" for c, m in layout.mesh.mzis]),
    }


def add_tables(dataset: xr.Dataset, header: RunHeader, steps: Iterable[Step]) -> None:
    """Add all sweeps to a dataset that has `axes`, sweeps with the same arrays in one table.

    Table ``T`` has the dimension ``T_reading``; variables ``T_stage``, ``T_step`` (position of the sweep in the run)
    and ``T_time`` of each reading; and ``T_NAME`` for each array that was asked for or came back.
    """
    groups: dict[_Schema, list[tuple[int, Step]]] = {}
    for index, step in enumerate(steps):
        groups.setdefault(_schema(step), []).append((index, step))
    names: list[str] = []
    for schema, members in groups.items():
        names.append(_name(schema, members[0][1].stage, names))
        _add_table(dataset, names[-1], members)
    dataset.attrs[_HEADER] = header.to_json()
    dataset.attrs[_TABLES] = json.dumps(names)


def read_tables(dataset: xr.Dataset, origin: str) -> tuple[RunHeader, list[Step]]:
    """Return the header and the sweeps that `add_tables` put into a dataset.

    Raises
    ------
    CalibrationError
        If they are not there, or not all of them.
    KeyError, ValueError, TypeError, RecursionError
        If tables are not what `add_tables` makes.
    """
    if _HEADER not in dataset.attrs:
        raise CalibrationError(
            f"{origin} holds no sweeps: it is of an unfinished run, whose sweeps are in its journal, or of an earlier "
            "version; its variables open in xarray"
        )
    header = RunHeader.from_json(dataset.attrs[_HEADER], origin)
    found: dict[int, Step] = {}
    for table in json.loads(dataset.attrs[_TABLES]):
        for index, step in _read_table(dataset, table):
            if index in found:
                raise CalibrationError(f"{origin} holds sweep {index} twice; it was changed: restore a copy")
            found[index] = step
    lacking = sorted(set(range(1 + max(found, default=-1))) - found.keys())
    if lacking or min(found, default=0) < 0:
        raise CalibrationError(f"{origin} lacks sweeps {lacking[:_MOST_NAMED]}; it was changed: restore a copy")
    return header, [found[index] for index in range(len(found))]


def _schema(step: Step) -> _Schema:
    return tuple(
        (role, name, values.dtype.str, values.shape[1:])
        for role, arrays in (("asked", step.asked), ("answered", step.answered))
        for name, values in arrays.items()
    )


def _name(schema: _Schema, stage: str, taken: list[str]) -> str:
    arrays = {name for _, name, *_ in schema}
    if READINGS in arrays:
        name = "sweep" if "power_w" in arrays else "repeat"
    elif "measured_current_a" in arrays:
        name = "electrical"
    else:
        name = re.sub(r"[^0-9a-z]+", "_", stage.lower()).strip("_") or "stage"
    count = sum(re.fullmatch(rf"{re.escape(name)}(_\d+)?", other) is not None for other in taken)
    return f"{name}_{count + 1}" if count else name


def _add_table(dataset: xr.Dataset, table: str, members: list[tuple[int, Step]]) -> None:
    rows = f"{table}_reading"
    lengths = [step.rows for _, step in members]
    dataset[f"{table}_stage"] = xr.Variable(
        rows, np.repeat([step.stage for _, step in members], lengths),
        {"units": "1", "long_name": "stage of the run"},
    )  # fmt: skip
    dataset[f"{table}_step"] = xr.Variable(
        rows, np.repeat([index for index, _ in members], lengths),
        {"units": "1", "long_name": "position of the sweep in the run"},
    )  # fmt: skip
    dataset[f"{table}_time"] = xr.Variable(
        rows, np.repeat([step.time_s for _, step in members], lengths),
        {"units": "s", "long_name": "end of the sweep after 1970-01-01 00:00 UTC"},
    )  # fmt: skip
    for role in ("asked", "answered"):
        for name in getattr(members[0][1], role):
            values = np.concatenate([getattr(step, role)[name] for _, step in members])
            dims = (rows, *_axes(dataset, table, name, values.shape[1:]))
            dataset[f"{table}_{name}"] = xr.Variable(
                dims, values, {"units": unit(name), "long_name": _MEANINGS.get(name, f"{name}, {role}"), "role": role}
            )


def unit(name: str) -> str:
    """SI unit that the last word of an array's name stands for; "1" for none."""
    return _UNITS.get(name.rpartition("_")[2], "1") if "_" in name else "1"


def _axes(dataset: xr.Dataset, table: str, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    known = _AXES.get(name)
    if known is not None and shape == (dataset.sizes[known],):
        return (known,)
    return tuple(f"{table}_{name}_{position}" for position in range(len(shape)))


def _read_table(dataset: xr.Dataset, table: str) -> Iterator[tuple[int, Step]]:
    columns: dict[str, dict[str, AnyArray]] = {"asked": {}, "answered": {}}
    for variable in dataset.data_vars:
        role = dataset[variable].attrs.get("role")
        if role in columns and dataset[variable].dims[:1] == (f"{table}_reading",):
            values = dataset[variable].to_numpy()
            if values.dtype.kind not in "fiub":
                raise ValueError(f"{variable} has the type {values.dtype}")
            name = str(variable).removeprefix(f"{table}_")
            columns[role][name] = plain_array(name, values)
    index, stage, time = (dataset[f"{table}_{name}"].to_numpy() for name in ("step", "stage", "time"))
    if index.dtype.kind not in "iu" or time.dtype.kind != "f" or not columns["answered"]:
        raise ValueError(f"the table {table} has no readings, or positions or times that are no numbers")
    starts = np.flatnonzero(np.r_[True, np.diff(index) != 0]) if len(index) else np.array([], dtype=np.intp)
    for start, stop in zip(starts, [*starts[1:], len(index)], strict=True):
        parts = {role: {n: a[start:stop].copy() for n, a in arrays.items()} for role, arrays in columns.items()}
        yield int(index[start]), Step(str(stage[start]), float(time[start]), **parts)
