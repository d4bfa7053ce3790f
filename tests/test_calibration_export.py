"""Runs in a QCoDeS database: other people's loader gives units, setpoints and every number."""

import json
import signal
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import qcodes
from journaled_runs import header_of, true_twin
from qcodes.dataset import connect, initialised_database_at, load_by_run_spec
from qcodes.dataset.data_set import DataSet

from calibration import export_qcodes, read_report
from calibration._journal import Journal
from calibration._run_file import RunFile
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout

LAYOUT = ChipLayout(2)


@pytest.fixture
def run(tmp_path):
    """A finished run of two stages, and what was measured."""
    rng = np.random.default_rng(0)
    power, readings = rng.random((5, len(LAYOUT.heaters))), rng.random((5, 4))
    with Journal.create(tmp_path / "run.nc.journal", header_of(LAYOUT), now=lambda: 1.8e9) as journal:
        for rows, stage in ((slice(0, 3), "train"), (slice(3, 5), "held out")):
            journal.step(stage, {"power_w": power[rows]}, lambda rows=rows: {"readings_w": readings[rows]})
        journal.step("dark", {"light": np.zeros(2, dtype=bool)}, lambda: {"readings_w": np.zeros((2, 4))})
        journal.result("fit", {}, lambda: {"chi": np.array(1.0)})
        RunFile(tmp_path / "run.nc", journal).finish(true_twin(2, 0), {"residual_over_noise": 1.5})
    return tmp_path / "run.nc", power, readings


def loaded(database, run_id):
    with initialised_database_at(str(database)):
        return load_by_run_spec(captured_run_id=run_id)


def test_sweeps_and_results_come_back_with_units_and_setpoints(run, tmp_path):
    path, power, readings = run
    database, former = tmp_path / "lab.db", qcodes.config["core"]["db_location"]
    ids = export_qcodes(path, database, experiment="mesh 4")
    assert qcodes.config["core"]["db_location"] == former
    assert list(ids) == ["sweep", "repeat", "results"]
    sweep = loaded(database, ids["sweep"])
    assert (sweep.exp_name, sweep.sample_name, sweep.name) == ("mesh 4", "test", "sweep")
    parameters = {parameter.name: parameter for parameter in sweep.get_parameters()}
    assert parameters["sweep_power_w"].unit == "W"
    assert parameters["sweep_readings_w"].label == "detector readings, dark readings subtracted where they were known"
    data = sweep.get_parameter_data()
    assert set(data["sweep_readings_w"]) == {"sweep_readings_w", "sweep_reading_position", "detector_position"}
    np.testing.assert_array_equal(data["sweep_readings_w"]["sweep_readings_w"].reshape(5, 4), readings)
    np.testing.assert_array_equal(data["sweep_power_w"]["sweep_power_w"].reshape(power.shape), power)
    detector = data["sweep_readings_w"]["detector_position"].reshape(5, 4)
    np.testing.assert_array_equal(detector, np.tile(np.arange(4), (5, 1)))
    assert json.loads(sweep.metadata["detector"]) == list(LAYOUT.detectors)
    names = np.array(json.loads(sweep.metadata["sweep_stage"]))
    stages = data["sweep_stage"]["sweep_stage"].reshape(5).astype(int)
    assert names[stages].tolist() == ["train"] * 3 + ["held out"] * 2
    results = loaded(database, ids["results"])
    twin = true_twin(2, 0)
    found = results.get_parameter_data("twin_offset")["twin_offset"]["twin_offset"]
    np.testing.assert_array_equal(found.reshape(-1), twin.offset)
    assert {p.name: p.unit for p in results.get_parameters()}["twin_efficiency"] == "rad/W"
    assert float(results.metadata["residual_over_noise"]) == 1.5
    assert not any(p.name.startswith("fit_") for p in results.get_parameters())
    for dataset in (sweep, results):
        assert dataset.completed
        dataset.conn.close()


def test_a_journal_can_be_exported_and_experiments_grow(tmp_path):
    database = tmp_path / "lab.db"
    with Journal.create(tmp_path / "run.nc.journal", header_of(LAYOUT)) as journal:
        journal.step("dark", {"light": np.zeros(2, dtype=bool)}, lambda: {"readings_w": np.zeros((2, 4))})
        first, second = (export_qcodes(tmp_path / "run.nc.journal", database) for _ in range(2))
    assert list(first) == ["repeat"]
    assert second["repeat"] == first["repeat"] + 1


def test_what_cannot_be_read_or_written_is_named(run, tmp_path):
    with pytest.raises(CalibrationError, match="cannot read the run"):
        export_qcodes(tmp_path / "none.nc", tmp_path / "lab.db")
    with pytest.raises(CalibrationError, match=r"cannot write the QCoDeS database .*missing"):
        export_qcodes(run[0], tmp_path / "missing" / "lab.db")


def content(database):
    """Everything that a database tells of its runs."""
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        return {name: connection.execute(f'select * from "{name}"').fetchall() for name in sorted(tables)}


def failing(monkeypatch, method, call, act):
    """Let one call of a method of QCoDeS's datasets do something else first."""
    known, calls = getattr(DataSet, method), []

    def changed(self, *arguments, **named):
        calls.append(arguments)
        if len(calls) == call:
            act()
        return known(self, *arguments, **named)

    monkeypatch.setattr(DataSet, method, changed)


def throws(error):
    def act():
        raise error

    return act


@pytest.mark.parametrize(
    "error", [OSError("no disk"), sqlite3.OperationalError("no disk"), KeyboardInterrupt("no disk")]
)
@pytest.mark.parametrize(("method", "call"), [("mark_started", 1), ("_enqueue_results", 2), ("mark_completed", 3)])
def test_an_export_that_fails_leaves_nothing_of_its_run(run, tmp_path, monkeypatch, error, method, call):
    database = tmp_path / "lab.db"
    ids = export_qcodes(run[0], database)
    before = content(database)
    with monkeypatch.context() as patch:
        failing(patch, method, call, throws(error))
        with pytest.raises((CalibrationError, KeyboardInterrupt), match="no disk"):
            export_qcodes(run[0], database)
    assert content(database)["runs"] == before["runs"]
    assert {name: rows for name, rows in content(database).items() if name in before and rows} == {
        name: rows for name, rows in before.items() if rows
    }
    again = export_qcodes(run[0], database)
    assert list(again) == list(ids)
    assert len(content(database)["runs"]) == len(ids) + len(again)


def test_a_full_disk_is_named_and_leaves_nothing_of_the_run(run, tmp_path, monkeypatch):
    database = tmp_path / "lab.db"
    export_qcodes(run[0], database)
    before = content(database)["runs"]

    def small(path):
        connection = connect(path)
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages + 1}")
        return connection

    monkeypatch.setattr("qcodes.dataset.connect", small)
    with pytest.raises(CalibrationError, match=r"lab.db: database or disk is full; nothing of the run was written"):
        export_qcodes(run[0], database)
    assert content(database)["runs"] == before


def test_ctrl_c_waits_until_all_of_the_run_is_written(run, tmp_path, monkeypatch):
    database = tmp_path / "lab.db"
    failing(monkeypatch, "mark_completed", 2, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        export_qcodes(run[0], database)
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("select name, is_completed from runs").fetchall()
    assert found == [("sweep", 1), ("repeat", 1), ("results", 1)]


def test_the_last_of_several_experiments_of_a_name_is_taken_up(run, tmp_path):
    database = tmp_path / "lab.db"
    with initialised_database_at(str(database)), closing(connect(database)) as connection:
        for _ in range(2):
            qcodes.dataset.new_experiment("calibration", "test", conn=connection)
    ids = export_qcodes(run[0], database)
    assert [row[1] for row in content(database)["runs"]] == [2] * len(ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"database": None}, "database = None names no place"),
        ({"database": ""}, "database = .* names no file"),
        ({"database": "a\0b"}, "database = .* names no place"),
        ({"database": "~nobody-of-this-name/lab.db"}, "names no place .*home"),
        ({"database": "x" * 300}, "cannot name a file"),
        ({"experiment": None}, "experiment must be a text"),
        ({"experiment": ""}, "experiment must be a text"),
        ({"experiment": ["a"]}, "experiment must be a text"),
        ({"sample": 5}, "sample must be a text"),
        ({"sample": "a\0b"}, "sample must be a text"),
        ({"run": None}, "cannot read the run None"),
        ({"run": "a\0b"}, "cannot name a file"),
    ],
)
def test_arguments_that_name_nothing_are_refused(run, tmp_path, arguments, message):
    with pytest.raises(CalibrationError, match=message):
        export_qcodes(**{"run": run[0], "database": tmp_path / "lab.db", **arguments})
    assert not (tmp_path / "lab.db").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # h5netcdf: files that never opened
def test_a_damaged_run_is_one_error_with_its_name(run, tmp_path):
    """HDF5 has errors of its own for each of its structures."""
    whole, damaged = run[0].read_bytes(), tmp_path / "damaged.nc"
    rng, refused = np.random.default_rng(0), []
    for read in [lambda: export_qcodes(damaged, tmp_path / "lab.db"), lambda: read_report(damaged)] * 10:
        changed = bytearray(whole)
        for place in rng.integers(len(changed), size=16):
            changed[place] ^= rng.integers(1, 256)
        damaged.write_bytes(changed)
        try:
            read()
        except CalibrationError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert all("damaged.nc" in message for message in refused)


def test_a_file_that_is_no_database_is_named_and_left_as_it_is(run, tmp_path):
    text = tmp_path / "text.db"
    text.write_text("text and no database\n" * 500)
    with pytest.raises(CalibrationError, match=r"text.db: file is not a database; nothing .*: give a database"):
        export_qcodes(run[0], text)
    assert text.read_text() == "text and no database\n" * 500
