"""How runs begin: nothing that was measured is replaced, and a run goes on only on the bench that it began on."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from journaled_runs import CountingBench, header_of
from test_bench_record import make_record

from calibration import calibrate, read_run, recalibrate
from calibration._journal import Journal
from calibration._journal_run import Step
from calibration._run_file import RunData
from calibration._run_opening import open_journal, run_header
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout

BARE = ChipLayout(3, inputs="ports", receivers="power")


def step_of(value, stage="lines"):
    return Step(stage, 1.8e9, {"power_w": np.full((2, 6), value)}, {"readings_w": np.full((2, 3), value)})


def bench_in(place, kind="homodyne"):
    return CountingBench(place / "bench", 2, 0, kind)


@pytest.mark.parametrize("what", ["finished", "no run"])
def test_a_run_never_replaces_a_file(tmp_path, what):
    path = tmp_path / "run.nc"
    if what == "finished":
        RunData(header_of(BARE), (step_of(0.0),)).save(path)
    else:
        path.write_text("notes of another kind")
    before = path.read_bytes()
    bench = bench_in(tmp_path)
    with pytest.raises(CalibrationError, match=r"run\.nc exists, and a run replaces no file"):
        calibrate(bench, settings=20, held_out=1, data_file=path)
    assert path.read_bytes() == before
    assert bench.readings == 0
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["run.nc"]


def test_the_file_of_a_run_that_failed_is_resumed_and_not_replaced(tmp_path):
    path = tmp_path / "run.nc"

    def stop(stage, done, total):
        if stage == "phase curves":
            raise KeyboardInterrupt

    bench = bench_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, settings=20, held_out=1, data_file=path, progress=stop)
    before = path.read_bytes()
    with pytest.raises(CalibrationError, match=r"go on with that run by resume='.*run\.nc\.journal', or give anothe"):
        calibrate(bench, settings=20, held_out=1, data_file=path)
    assert path.read_bytes() == before
    taken = bench.readings
    calibrate(bench, settings=20, held_out=1, resume=path)
    bench = bench_in(tmp_path)
    calibrate(bench, settings=20, held_out=1, data_file=tmp_path / "whole.nc")
    assert taken + 1 < bench.readings  # the resumed one had sweeps to give back
    found, whole = (read_run(tmp_path / name) for name in ("run.nc", "whole.nc"))
    for one, other in zip(found.steps, whole.steps, strict=True):
        for name, values in one.answered.items():
            np.testing.assert_array_equal(values, other.answered[name])


def test_a_run_that_fails_before_its_first_sweep_leaves_no_file(tmp_path):
    def stop(stage, done, total):
        raise KeyboardInterrupt

    bench = bench_in(tmp_path)
    bench.read_detectors = lambda: stop("", 0, 0)
    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, settings=20, held_out=1, data_file=tmp_path / "run.nc")
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == []


def test_runs_of_one_second_get_files_of_their_own(tmp_path):
    bench = bench_in(tmp_path)
    records = [calibrate(bench, settings=20, held_out=1, seed=seed) for seed in range(2)]
    names = [record.provenance.data_file for record in records]
    assert len(set(names)) == 2
    assert all((tmp_path / "bench" / name).is_file() for name in names)


def swapped(entries, one, other):
    return {**entries, one: entries[other], other: entries[one]}


def chip_with(description, **changes):
    return replace(description, chip=description.chip.model_copy(update=changes))


def other_laser(description, **changes):
    return chip_with(description, laser=description.chip.laser.model_copy(update=changes))


def other_heaters(description):
    heaters = description.chip.heaters
    entries = swapped(heaters.entries, "mzi_0_0_theta", "mzi_0_0_phi")
    return chip_with(description, heaters=type(heaters)(defaults=heaters.defaults, **entries))


CHANGES = {
    "laser_power_w": lambda d: other_laser(d, power_dbm=d.chip.laser.power_dbm - 1.0),
    "laser_wavelength_m": lambda d: other_laser(d, wavelength_nm=d.chip.laser.wavelength_nm + 1.0),
    "averaging_time_s": lambda d: chip_with(d, averaging_time_s=2.0 * d.chip.averaging_time_s),
    "settle_s": lambda d: chip_with(d, settling=d.chip.settling.model_copy(update={"settle_s": 1.0})),
    "heater_wiring": other_heaters,
    "detector_wiring": lambda d: chip_with(d, detectors=swapped(d.chip.detectors, *list(d.chip.detectors)[:2])),
    "input_wiring": lambda d: chip_with(d, inputs=swapped(d.chip.inputs, 0, 1)),
    "instruments": lambda d: chip_with(d, serial_numbers={d.chip.laser.instrument: "12"}),
    "simulated_seed": None,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_goes_on_only_with_the_light_and_the_wiring_that_it_began_with(tmp_path, name):
    bench = bench_in(tmp_path, "mesh")
    begun = run_header(bench, 0, {}, datetime.now(UTC))
    if CHANGES[name] is None:
        bench.simulated_seed = None
    else:
        bench.description = CHANGES[name](bench.description)
    now = run_header(bench, 0, {}, datetime.now(UTC))
    with Journal.create(tmp_path / "run.nc.journal", begun) as journal:
        journal.step("lines", {}, lambda: {"readings_w": np.zeros((1, 2))})
    with pytest.raises(CalibrationError, match=rf"is of another run: {name} was .* and is [^;]*\. Resume it with what"):
        open_journal(Path("unused.nc"), now, tmp_path / "run.nc.journal")
    RunData(begun, (step_of(0.0),)).save(tmp_path / "run2.nc")
    with pytest.raises(CalibrationError, match=f"is of another run: {name} was"):
        open_journal(Path("unused.nc"), now, tmp_path / "run2.nc")
    assert begun.require_same_run(begun, "") is None


def test_an_instrument_with_another_address_is_the_same(tmp_path):
    bench = bench_in(tmp_path)
    begun = run_header(bench, 0, {}, datetime.now(UTC))
    station = tmp_path / "bench" / "station.yaml"
    station.write_text(station.read_text().replace("simulated:laser", "simulated:another"))
    bench = bench_in(tmp_path)
    assert bench.description.station.instruments["laser"].where == "simulated:another"
    assert begun.require_same_run(run_header(bench, 0, {}, datetime.now(UTC)), "") is None


def test_an_unfinished_correction_is_mentioned_with_the_call_that_takes_it_up(tmp_path, caplog):
    header = header_of(BARE, arguments={"readings": 48, "record": "c0ffee"})
    with Journal.create(tmp_path / "drift.nc.journal", header) as journal:
        journal.step("dark", {}, lambda: {"readings_w": np.zeros((1, 3))})
    _, journal = open_journal(tmp_path / "run.nc", header_of(BARE), None)
    journal.close()
    path = str(tmp_path / "drift.nc.journal")
    assert (
        f"go on with it by recalibrate(bench, record, seed=3, readings=48, resume={path!r}) with the record whose "
        "content_hash is 'c0ffee', or remove it"
    ) in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 0.5}, r"seed must be a whole number of at least 0, got 0\.5"),
        ({"readings": 40.0}, r"readings must be a whole number of at least 0, got 40\.0"),
        ({"readings": True}, "readings must be a whole number of at least 0, got True"),
        ({"readings": 3}, "3 readings are too few to correct a record"),
        ({"data_file": "a.nc", "resume": "b.nc"}, "give data_file or resume, not both"),
        ({"resume": ""}, "resume = '' names no file"),
        ({"data_file": Path()}, "names no file"),
        ({"data_file": "a\0b.nc"}, r"data_file = .* cannot name a file \(embedded null"),
        ({"resume": "a\0b.nc"}, r"resume = .* cannot name a file \(embedded null"),
        ({"data_file": "\ud800.nc"}, "data_file = .* cannot name a file"),
        ({"data_file": "x" * 300 + ".nc"}, "cannot name a file .*too long"),
        ({"data_file": "x" * 243 + ".nc"}, "cannot name a file .*too long"),  # its temporary name is longer
        ({"data_file": "/".join(["x" * 200] * 40)}, "cannot name a file .*too long"),
        ({"resume": "x" * 300 + ".nc"}, "cannot name a file .*too long"),
        ({"data_file": "~nobody/run.nc"}, "begins with ~, which stands for no folder here"),
        ({"resume": "~/run.nc"}, "begins with ~, which stands for no folder here"),
        ({"data_file": "."}, "names no file"),
        ({"data_file": ".."}, "names no file, but a folder"),
        ({"record": None}, "record is a NoneType and no calibration record"),
        ({"record": "calibration.json"}, "record is a str and no calibration record"),
    ],
)
def test_impossible_corrections_are_refused_before_anything_moves(tmp_path, change, message):
    bench, record = bench_in(tmp_path, "mesh"), make_record(2, inputs="ports", receivers="power")
    with pytest.raises(CalibrationError, match=message):
        recalibrate(bench, **{"record": record, **change})
    assert bench.readings == 0


STEPS = (step_of(0.1), step_of(0.2), step_of(0.3, "dark"), Step("dark", 1.8e9, {}, {"readings_w": np.ones((1, 3))}))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "run.nc"
    RunData(header_of(BARE), STEPS).save(path)
    return xr.load_dataset(path, engine="h5netcdf")


def deep(depth):
    return "[" * depth + "]" * depth


def header_with(data, **changes):
    return data.assign_attrs(run_header=json.dumps({**json.loads(data.attrs["run_header"]), **changes}))


def layout_with(data, **changes):
    return header_with(data, layout={**json.loads(data.attrs["run_header"])["layout"], **changes})


COMPLEX_RESULT = '[{"key": "a", "arrays": {"b": ["c16", [1]]}}]'
TAMPERED = {
    "a sweep is gone": lambda d: d.isel(sweep_reading=d.sweep_step.to_numpy() != 1),
    "the first sweep is gone": lambda d: d.isel(sweep_reading=d.sweep_step.to_numpy() != 0),
    "a sweep is there twice": lambda d: d.assign(sweep_step=d.sweep_step.where(d.sweep_step != 1, 3)),
    "a sweep is torn apart": lambda d: d.assign(sweep_step=("sweep_reading", [0, 1, 0, 1, 2, 2])),
    "a position is negative": lambda d: d.assign(sweep_step=d.sweep_step.where(d.sweep_step != 0, -1)),
    "positions are no integers": lambda d: d.assign(sweep_step=d.sweep_step.astype(float)),
    "times are texts": lambda d: d.assign(sweep_time=d.sweep_time.astype(str)),
    "readings are gone": lambda d: d.drop_vars("sweep_readings_w"),
    "readings are texts": lambda d: d.assign(sweep_readings_w=d.sweep_readings_w.astype(str, keep_attrs=True)),
    "stages are gone": lambda d: d.drop_vars("repeat_stage"),
    "a table is not listed": lambda d: d.assign_attrs(run_tables='["repeat"]'),
    "a table is listed twice": lambda d: d.assign_attrs(run_tables='["sweep", "sweep", "repeat"]'),
    "a table is not there": lambda d: d.assign_attrs(run_tables='["sweep", "repeat", "third"]'),
    "tables are a number": lambda d: d.assign_attrs(run_tables="7"),
    "tables are numbers": lambda d: d.assign_attrs(run_tables="[7]"),
    "tables are no text": lambda d: d.assign_attrs(run_tables=7),
    "tables are deep": lambda d: d.assign_attrs(run_tables=deep(100_000)),
    "the list of tables is gone": lambda d: d.assign_attrs(run_tables="null"),
    "results are deep": lambda d: d.assign_attrs(run_results=deep(100_000)),
    "results are a number": lambda d: d.assign_attrs(run_results="7"),
    "results are of no known kind": lambda d: d.assign_attrs(run_results=COMPLEX_RESULT),
    "the header is deep": lambda d: d.assign_attrs(run_header=deep(100_000)),
    "the header is a list": lambda d: d.assign_attrs(run_header="[]"),
    "the header is no text": lambda d: d.assign_attrs(run_header=7),
    "limits are of another chip": lambda d: header_with(d, max_power_w=[0.1]),
    "limits are texts": lambda d: header_with(d, max_power_w=["a"] * 6),
    "limits are no numbers": lambda d: header_with(d, nominal_efficiency=[float("nan")] * 6),
    "the total limit is negative": lambda d: header_with(d, max_total_power_w=-1.0),
    "the seed is a text": lambda d: header_with(d, seed="7"),
    "the chip is a number": lambda d: header_with(d, chip=7),
    "arguments are a list": lambda d: header_with(d, arguments=[1]),
    "conditions are deep": lambda d: header_with(d, conditions={"a": {"b": 1}}),
    "a field is unknown": lambda d: header_with(d, colour="red"),
    "the format is another": lambda d: header_with(d, format=1),
    "there are too many ports": lambda d: layout_with(d, ports=10**9),
    "ports are a text": lambda d: layout_with(d, ports="3"),
    "an MZI is outside": lambda d: layout_with(d, mzis=[[0, 7]]),
    "receivers are unknown": lambda d: layout_with(d, receivers="cameras"),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_a_file_that_was_changed_is_refused_by_name(tmp_path, stored, what):
    path = tmp_path / "changed.nc"
    TAMPERED[what](stored).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(CalibrationError, match=r"changed\.nc"):
        read_run(path)
    with pytest.raises(CalibrationError, match=r"changed\.nc"):
        open_journal(Path("unused.nc"), header_of(BARE), path)


def test_the_file_that_the_changes_start_from_is_whole(tmp_path, stored):
    stored.to_netcdf(tmp_path / "same.nc", engine="h5netcdf")
    assert len(read_run(tmp_path / "same.nc").steps) == len(STEPS)


@settings(max_examples=60)
@given(st.data())
def test_no_change_of_an_attribute_gives_another_error(tmp_path_factory, stored, data):
    """Whatever an attribute holds, reading gives the run or a CalibrationError."""
    name = data.draw(st.sampled_from(["run_header", "run_tables", "run_results"]))
    text = stored.attrs[name]
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    content = st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
    )
    cut = data.draw(st.integers(0, len(text)))
    changed = data.draw(st.one_of(st.just(text[:cut]), content.map(json.dumps)))
    path = tmp_path_factory.mktemp("changed") / "run.nc"
    stored.assign_attrs({name: changed}).to_netcdf(path, engine="h5netcdf")
    with suppress(CalibrationError):
        read_run(path)
