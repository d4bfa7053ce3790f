"""Runs in a QCoDeS database: other people's loader gives units, setpoints and every number."""

import json

import numpy as np
import pytest
import qcodes
from journaled_runs import header_of, true_twin
from qcodes.dataset import initialised_database_at, load_by_run_spec

from calibration import export_qcodes
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
