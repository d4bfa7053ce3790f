"""Results of long fits in the netCDF file of a run, so that a finished run is repeated without fitting again."""

import json

import numpy as np
import xarray as xr

from calibration._journal_format import DTYPES, AnyArray
from calibration._journal_run import Results

_RESULTS = "run_results"


def add_results(dataset: xr.Dataset, results: Results) -> None:
    """Add stored results to a dataset: result ``i`` has a variable ``fit_i_NAME`` for each of its arrays.

    The attribute ``run_results`` lists them as JSON: a hash of what each depends on, types and shapes of its arrays.
    """
    listed = []
    for index, (key, arrays) in enumerate(results.items()):
        for name, values in arrays.items():
            if values.size:  # netCDF has no axis of length 0
                variable = _variable(index, name)
                dims = tuple(f"{variable}_{axis}" for axis in range(values.ndim))
                attributes = {"units": "1", "long_name": f"result {index} of a fit: {name}, in its own parameters"}
                dataset[variable] = xr.Variable(dims, values, attributes)
        shapes = {name: [values.dtype.str[1:], list(values.shape)] for name, values in arrays.items()}
        listed.append({"key": key, "arrays": shapes})
    dataset.attrs[_RESULTS] = json.dumps(listed)


def read_results(dataset: xr.Dataset) -> Results:
    """Return what `add_results` put into a dataset; nothing from files of earlier versions.

    Raises
    ------
    KeyError, ValueError
        If an array is not there, or has another shape.
    """
    results: Results = {}
    for index, entry in enumerate(json.loads(dataset.attrs.get(_RESULTS, "[]"))):
        arrays: dict[str, AnyArray] = {}
        for name, (kind, shape) in entry["arrays"].items():
            dtype = DTYPES[kind]
            empty = 0 in shape
            values = np.empty(shape, dtype) if empty else dataset[_variable(index, name)].to_numpy().astype(dtype)
            if values.shape != tuple(shape):
                raise ValueError(f"{_variable(index, name)} has the shape {values.shape} and not {tuple(shape)}")
            arrays[name] = np.array(values, order="C")
        results[entry["key"]] = arrays
    return results


def without_results(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset without the results of fits, which mean something to the fits alone."""
    listed = enumerate(json.loads(dataset.attrs.get(_RESULTS, "[]")))
    names = [_variable(index, name) for index, entry in listed for name in entry["arrays"]]
    plain = dataset.drop_vars(names, errors="ignore")
    plain.attrs = {name: value for name, value in dataset.attrs.items() if name != _RESULTS}
    return plain


def _variable(index: int, name: str) -> str:
    return f"fit_{index}_{name}"
