"""netCDF files that a full disk cannot hurt."""

import io

import h5netcdf
import xarray as xr


def netcdf_bytes(dataset: xr.Dataset) -> bytes:
    """Return the netCDF-4 file of ``dataset``, for the caller to write.

    HDF5 itself must not write to the disk: once a write of it has failed, it crashes the process at its end.
    """
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        dataset.dump_to_store(xr.backends.H5NetCDFStore(file))
    return buffer.getvalue()
