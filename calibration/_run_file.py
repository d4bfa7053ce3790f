"""One netCDF file a run: what its stages found, the result, and every sweep of its journal."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr

from calibration._checks import readable, require_file_name
from calibration._journal import SUFFIX, Journal
from calibration._journal_format import AnyArray
from calibration._journal_probe import ReplayProbe
from calibration._journal_run import Results, RunHeader, Step, unpack
from calibration._journal_tables import add_tables, axes, read_tables
from calibration._journal_writer import flush_folder, read_file
from calibration._result_tables import add_results, read_results
from calibration._session import Array
from optinc_hw._files import replacing
from optinc_hw._netcdf import netcdf_bytes
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters
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
    "mesh_power": (("mesh_reading", "mesh_heater"), "W", "heater powers of the mesh, as of a bare one"),
    "mesh_lit": (("mesh_reading",), "1", "lit input"),
    "mesh_fields": (("mesh_reading", "port", "complex"), "W", "output fields times LO field of one input"),
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
    "curvature": (("heater",), "1/rad"),
    "output_transmission": (("port",), "1"), "lo_amplitude": (("port",), "W^0.5"), "gain": (("detector",), "1"),
    "dark_w": (("detector",), "W"),
}  # fmt: skip


class RunFile:
    """The netCDF file of one calibration run, written atomically when the run is over, or fails.

    Until then everything is in the run's journal.

    Parameters
    ----------
    path
        Where to write.
    journal
        Sweeps of the run; the file of a replay is finished already and is never written.
    """

    def __init__(self, path: Path, journal: Journal) -> None:
        self.path = path
        self._journal = journal
        header = journal.header
        self._dataset = xr.Dataset(
            coords={**axes(header), "complex": ["real", "imaginary"]},
            attrs={
                "title": "optinc-hw calibration run", "stage": "started", "software": header.software,
                "created_utc": header.created_utc, "chip": header.chip, "ports": header.layout.ports,
                "seed": header.seed, **{name: value for name, value in header.conditions.items() if value is not None},
            },
        )  # fmt: skip

    def add(self, stage: str, raw: dict[str, Array]) -> None:
        """Add the raw data of a stage that is over."""
        for name, values in raw.items():
            dims, unit, meaning = _RAW[name]
            self._put(name, dims, values, unit, meaning)
        self._dataset.attrs["stage"] = stage

    def _put(self, name: str, dims: tuple[str, ...], values: Array, unit: str, meaning: str) -> None:
        self._dataset[name] = (dims, np.asarray(values), {"units": unit, "long_name": meaning})

    def finish(self, twin: TwinParameters, results: dict[str, str | int | float]) -> str:
        """Add the fitted twin and figures of merit, write the file, and only then remove the journal.

        Returns
        -------
        str
            SHA-256 of the file.
        """
        for name, shape in parameter_shapes(twin.layout).items():
            if 0 not in shape:
                dims, unit = _TWIN_DIMS[name]
                self._put(f"twin_{name}", dims, getattr(twin, name), unit, f"twin: {name}")
        self._dataset.attrs.update(results, stage="finished")
        self.write()
        self._journal.remove()
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def write(self) -> None:
        """Write the stages so far and all sweeps, also those of a stage that is not over; nothing without sweeps.

        Raises
        ------
        CalibrationError
            If the file cannot be written; an old one is then still whole.
        """
        if self._journal.stored or not self._journal.steps:
            return
        add_tables(self._dataset, self._journal.header, self._journal.steps)
        add_results(self._dataset, self._journal.results)
        write_dataset(self.path, self._dataset)


@contextmanager
def kept_on_failure(run: RunFile) -> Iterator[None]:
    """Write the file also after an exception; a failure to do so becomes a note of it."""
    try:
        yield
    except BaseException as error:
        try:
            run.write()
        except CalibrationError as failure:
            error.add_note(str(failure))
        raise


def write_dataset(path: Path, dataset: xr.Dataset) -> None:
    """Replace ``path`` by the netCDF file of ``dataset``, on the disk before this returns.

    Raises
    ------
    CalibrationError
        If it cannot be written.
    """
    try:
        with replacing(path) as part:
            part.write_bytes(netcdf_bytes(dataset))
        flush_folder(path.parent)
    except OSError as error:
        raise CalibrationError(f"cannot write the run's data to {path}: {error}") from error


@dataclass(frozen=True)
class RunData:
    """What was measured in one calibration run.

    Parameters
    ----------
    header
        Chip, seed, limits and version of the run.
    steps
        Its sweeps, in order.
    results
        What its fits found, in the fits' own parameters, by the hash of what they depend on.
    """

    header: RunHeader
    steps: tuple[Step, ...]
    results: Results = field(default_factory=dict)

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in the order of their first sweeps."""
        return tuple(dict.fromkeys(step.stage for step in self.steps))

    def arrays(self, stage: str) -> dict[str, AnyArray]:
        """All readings of one stage: what was asked for and what came back, by name, a row a reading.

        Raises
        ------
        CalibrationError
            If there is no such stage, or its sweeps have different arrays.
        """
        parts = [{**step.asked, **step.answered} for step in self.steps if step.stage == stage]
        if not parts:
            raise CalibrationError(f"the run has no stage {stage!r}; it has {', '.join(self.stages) or 'none'}")
        if any(part.keys() != parts[0].keys() for part in parts):
            raise CalibrationError(f"the sweeps of {stage!r} have different arrays; take them from `steps`")
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def replay(self) -> Journal:
        """Return a journal that gives the sweeps back, in order, and what fits found, and cannot measure."""
        return Journal.replay(self.header, self.steps, self.results)

    def probe(self) -> ReplayProbe:
        """Return a probe that gives the sweeps back to the experiments that measured them, without a bench."""
        return ReplayProbe(self.replay())

    def dataset(self) -> xr.Dataset:
        """Return the sweeps and the fits' results as in the run's netCDF file."""
        tables = xr.Dataset(coords=axes(self.header), attrs={"title": "optinc-hw calibration run"})
        add_tables(tables, self.header, self.steps)
        add_results(tables, self.results)
        return tables

    def save(self, path: str | Path) -> None:
        """Write `dataset` as a netCDF file, which `read_run` reads.

        Raises
        ------
        CalibrationError
            If it cannot be written.
        """
        write_dataset(Path(path), self.dataset())


def read_run(path: str | Path) -> RunData:
    """Read the raw data of a calibration, from its netCDF file or from its journal.

    Parameters
    ----------
    path
        netCDF file of a finished run, or journal (``.journal``) of an unfinished one, also while it is being written.

    Raises
    ------
    CalibrationError
        If it cannot be read, or holds no sweeps.
    """
    require_file_name("path", path, "give a run's netCDF file or journal")
    source = Path(path)
    if source.suffix == SUFFIX:
        header, steps, results = unpack(read_file(source), str(source))
    else:
        with readable("the run", source), xr.open_dataset(source, engine="h5netcdf") as dataset:
            header, steps = read_tables(dataset.load(), str(source))
            results = read_results(dataset)
    return RunData(header, tuple(steps), results)
