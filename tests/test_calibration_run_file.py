"""The netCDF file of a run: opens without our code, holds every sweep, and is whole or not there."""

import hashlib
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from journaled_runs import header_of, true_twin

from calibration import read_run
from calibration._journal import Journal
from calibration._journal_run import Step
from calibration._run_file import RunData, RunFile, kept_on_failure
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout

BARE = ChipLayout(3, inputs="ports", receivers="power")


def begin(folder, layout):
    return Journal.create(folder / "run.nc.journal", header_of(layout), now=lambda: 1.8e9)


def opened(path):
    return xr.open_dataset(path, engine="h5netcdf")


def test_a_run_file_opens_in_plain_xarray_with_names_and_units(tmp_path):
    layout, rng = ChipLayout(3), np.random.default_rng(0)
    path = tmp_path / "run.nc"
    power, readings = rng.random((5, len(layout.heaters))), rng.random((5, 6))
    with begin(tmp_path, layout) as journal:
        run = RunFile(path, journal)
        journal.step("train", {"power_w": power}, lambda: {"readings_w": readings})
        run.add("train", {"train_power": power, "train_readings": readings})
        run.write()
        with opened(path) as data:
            assert data.attrs["stage"] == "train"
            assert data.attrs["chip"] == "test"
            assert "twin_offset" not in data
        twin = true_twin(3, 0)
        digest = run.finish(twin, {"residual_over_noise": 2.5, "readings": 77})
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(tmp_path.iterdir()) == [path]  # the journal is part of the file now
    with opened(path) as data:
        assert data.attrs["stage"] == "finished"
        assert data.attrs["readings"] == 77
        assert data.attrs["laser_power_w"] == 0.01
        np.testing.assert_array_equal(data["train_power"], power)
        np.testing.assert_array_equal(data["train_readings"].sel(detector="rx_1_minus"), readings[:, 4])
        np.testing.assert_array_equal(data["sweep_readings_w"].sel(detector="rx_1_minus"), readings[:, 4])
        assert list(data["sweep_stage"].to_numpy()) == ["train"] * 5
        assert data["sweep_time"].to_numpy()[0] == 1.8e9
        assert float(data["twin_offset"].sel(heater="lo")) == twin.offset[-1]
        for name, variable in data.data_vars.items():
            assert variable.attrs["units"], name
            assert variable.attrs["long_name"], name
        assert list(data["heater"].to_numpy()) == list(layout.heaters)


def test_a_run_file_needs_no_code_of_ours_to_be_read(tmp_path):
    with begin(tmp_path, BARE) as journal:
        journal.step(
            "lines", {"power_w": np.zeros((2, 6)), "lit": np.array([0, 2])}, lambda: {"readings_w": np.ones((2, 3))}
        )
        RunFile(tmp_path / "run.nc", journal).write()
    code = f"""
import sys, xarray
data = xarray.open_dataset({str(tmp_path / "run.nc")!r}, engine="h5netcdf")
lit = data.isel(sweep_reading=data.sweep_lit.values == 2)
print(float(lit.sweep_readings_w.sel(detector="rx_0").sum()), data.sweep_readings_w.units, data.sweep_power_w.dims)
print([name for name in sys.modules if name.partition(".")[0] in ("optinc_hw", "calibration")])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "1.0 W ('sweep_reading', 'heater')\n[]\n"


NAMES = st.sampled_from(["power_w", "lit", "readings_w", "measured_current_a", "light", "detuning_hz", "trace"])
KINDS = st.sampled_from([np.dtype("f8"), np.dtype("i8"), np.dtype("?")])


@st.composite
def sweeps(draw):
    rows = draw(st.integers(1, 4))

    def some(least):
        names = draw(st.lists(NAMES, min_size=least, max_size=3, unique=True))
        shapes = [(rows, *draw(st.lists(st.integers(1, 3), max_size=2))) for _ in names]
        return {name: draw(arrays.arrays(draw(KINDS), shape)) for name, shape in zip(names, shapes, strict=True)}

    stage = draw(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8))
    answered = some(1)
    asked = {name: values for name, values in some(0).items() if name not in answered}
    return Step(stage, 1.8e9 + draw(st.integers(0, 9)) / 7.0, asked, answered)


RESULTS = st.dictionaries(
    st.text("0123456789abcdef", min_size=4, max_size=8),
    st.dictionaries(
        st.sampled_from(["vector", "chi", "spoilt", "readings_w"]),
        st.tuples(KINDS, arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)).flatmap(
            lambda kind: arrays.arrays(*kind)
        ),
        max_size=3,
    ),
    max_size=3,
)


@settings(max_examples=10)
@given(RESULTS)
def test_every_result_of_a_fit_comes_back_bit_for_bit(tmp_path_factory, results):
    path = tmp_path_factory.mktemp("run") / "run.nc"
    RunData(header_of(BARE), (), results).save(path)
    again = read_run(path).results
    assert list(again) == list(results)
    for key, stored in results.items():
        assert again[key].keys() == stored.keys()
        for name, values in stored.items():
            found = again[key][name]
            assert (found.dtype, found.shape, found.tobytes()) == (values.dtype, values.shape, values.tobytes())


def test_a_file_whose_results_have_another_shape_is_refused(tmp_path):
    RunData(header_of(BARE), (), {"ab": {"vector": np.zeros(3)}}).save(tmp_path / "run.nc")
    with opened(tmp_path / "run.nc") as data:
        data = data.load()
    data.attrs["run_results"] = data.attrs["run_results"].replace("[3]", "[4]")
    data.to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(CalibrationError, match=r"fit_0_vector has the shape \(3,\) and not \(4,\)"):
        read_run(tmp_path / "other.nc")


@settings(max_examples=10)
@given(st.lists(sweeps(), max_size=5))
def test_every_sweep_comes_back_bit_for_bit(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("run") / "run.nc"
    run = RunData(header_of(BARE, arguments={"settings": 7, "note": "ä"}), tuple(steps))
    run.save(path)
    again = read_run(path)
    assert again.header == run.header
    assert [step.stage for step in again.steps] == [step.stage for step in steps]
    for found, step in zip(again.steps, steps, strict=True):
        assert found.time_s == step.time_s
        for role in ("asked", "answered"):
            stored, given_ = getattr(found, role), getattr(step, role)
            assert stored.keys() == given_.keys()
            for name, values in given_.items():
                assert stored[name].dtype == values.dtype
                assert stored[name].tobytes() == values.tobytes()


def test_a_stage_comes_back_as_the_arrays_that_analyses_take(tmp_path):
    with begin(tmp_path, BARE) as journal:
        for first in range(2):
            power = np.full((2, 6), 0.01 * first)
            journal.step("random", {"power_w": power}, lambda: {"readings_w": np.full((2, 3), float(first))})  # noqa: B023
        journal.step("dark", {"light": np.zeros(1, dtype=bool)}, lambda: {"readings_w": np.zeros((1, 3))})
        for source in (tmp_path / "run.nc.journal", tmp_path / "run.nc"):  # the journal is readable while written
            RunFile(tmp_path / "run.nc", journal).write()
            run = read_run(source)
            assert run.stages == ("random", "dark")
            found = run.arrays("random")
            np.testing.assert_array_equal(found["power_w"][:, 0], [0.0, 0.0, 0.01, 0.01])
            np.testing.assert_array_equal(found["readings_w"][:, 2], [0.0, 0.0, 1.0, 1.0])
            with pytest.raises(CalibrationError, match="no stage 'lines'; it has random, dark"):
                run.arrays("lines")


def test_stages_with_sweeps_of_different_arrays_are_not_thrown_together():
    one = Step("a", 0.0, {"power_w": np.zeros((1, 6))}, {"readings_w": np.zeros((1, 3))})
    run = RunData(header_of(BARE), (one, replace(one, asked={"light": np.zeros(1)})))
    with pytest.raises(CalibrationError, match="'a' have different arrays; take them from `steps`"):
        run.arrays("a")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read the run .*run.nc"), (b"no netCDF", "cannot read the run .*run.nc")],
)
def test_files_that_are_no_runs_are_named(tmp_path, content, message):
    path = tmp_path / "run.nc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CalibrationError, match=message):
        read_run(path)


def test_a_file_of_an_earlier_version_is_told_from_damage(tmp_path):
    path = tmp_path / "run.nc"
    xr.Dataset({"dark_readings": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(CalibrationError, match=r"holds no sweeps: .* its variables open in xarray"):
        read_run(path)


def full(self, target):
    raise OSError(28, "No space left on device")


def test_a_write_that_fails_leaves_the_former_file_and_the_journal(tmp_path, monkeypatch):
    path = tmp_path / "run.nc"
    with begin(tmp_path, ChipLayout(3)) as journal:
        run = RunFile(path, journal)
        journal.step("dark", {"light": np.zeros(3, dtype=bool)}, lambda: {"readings_w": np.ones((3, 6))})
        run.write()
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            with pytest.raises(CalibrationError, match=r"cannot write the run's data to .*run\.nc: .*No space left"):
                run.finish(true_twin(3, 0), {})
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.nc", "run.nc.journal"]
    assert len(read_run(tmp_path / "run.nc.journal").steps) == 1


def test_after_an_error_the_file_is_there_and_a_second_error_is_a_note(tmp_path, monkeypatch):
    with begin(tmp_path, BARE) as journal:
        run = RunFile(tmp_path / "run.nc", journal)
        with pytest.raises(ZeroDivisionError), kept_on_failure(run):
            _ = 1 / 0
        assert not (tmp_path / "run.nc").exists()  # nothing was measured
        journal.step("noise", {"light": np.ones(3, dtype=bool)}, lambda: {"readings_w": np.ones((3, 3))})
        run.add("noise", {"noise_readings": np.ones((3, 3))})
        with pytest.raises(ZeroDivisionError), kept_on_failure(run):
            _ = 1 / 0
        with opened(tmp_path / "run.nc") as data:
            assert data.attrs["stage"] == "noise"
        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(ZeroDivisionError) as caught, kept_on_failure(run):
            _ = 1 / 0
    assert any("No space left" in note for note in caught.value.__notes__)


def test_a_full_disk_is_one_error_and_no_crash_at_the_end_of_the_process(tmp_path):
    """HDF5 ends a process by a segmentation fault once a write of it has failed."""
    script = f"""
        import resource, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        import numpy as np
        from journaled_runs import header_of
        from calibration._journal import Journal
        from calibration._run_file import RunFile
        from optinc_hw.errors import CalibrationError
        from optinc_hw.photonics import ChipLayout
        journal = Journal.create(Path({str(tmp_path / "run.nc.journal")!r}), header_of(ChipLayout(2)))
        run = RunFile(Path({str(tmp_path / "run.nc")!r}), journal)
        run.add("dark", {{"dark_readings": np.ones((3, 4))}})
        journal.step("dark", {{}}, lambda: {{"trace": np.ones((3, 4))}})
        run.write()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        run.add("train", {{"train_readings": np.ones((10_000, 4))}})
        for write in (run.write, lambda: journal.step("a", {{}}, lambda: {{"trace": np.ones((10_000, 1))}})):
            try:
                write()
            except CalibrationError as error:
                print(error)
        journal.step("b", {{}}, lambda: {{"trace": np.ones((10, 1))}})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file, journal = done.stdout.splitlines()
    assert file.startswith(f"cannot write the run's data to {tmp_path / 'run.nc'}: ")
    assert journal.startswith(f"cannot write the run's data to {tmp_path / 'run.nc.journal'}: ")
    assert "train_readings" not in xr.load_dataset(tmp_path / "run.nc", engine="h5netcdf")
    assert [step.stage for step in read_run(tmp_path / "run.nc.journal").steps] == ["dark", "b"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.nc", "run.nc.journal"]
