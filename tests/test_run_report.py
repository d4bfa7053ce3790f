"""What a run found besides its record, and how two records of a chip differ."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from test_bench_record import make_record

from calibration import CalibrationRecord, Effect, RunReport, compare_records, read_report
from calibration._report import Correction
from optinc_hw.errors import CalibrationError


def changed(record, resistance_ratio=1.0, **parameters):
    """The record with other parameters of the twin."""
    twin, count = replace(record.twin(), **parameters), len(record.layout.heaters)
    law = record.resistance_ohm * resistance_ratio, record.resistance_beta_per_w
    return CalibrationRecord.from_twin(
        twin, *law, (np.zeros(count), np.zeros(count)), record.quality, record.provenance
    )


def test_changes_of_resistances_efficiencies_and_phases_are_told_apart():
    old = make_record()
    twin = old.twin()
    turn = np.zeros(len(twin.offset))
    turn[3], turn[5] = 0.4, 2.0 * np.pi - 0.1
    new = changed(old, 0.98, offset=twin.offset + turn, efficiency=twin.efficiency * 1.01)
    change = compare_records(old, new)
    assert (change.resistance, change.efficiency) == (pytest.approx(-0.02), pytest.approx(0.01))
    wanted = np.zeros(len(turn))
    wanted[3], wanted[5] = 0.4, -0.1
    assert change.phase_rad == pytest.approx(wanted, abs=1e-9)
    names = old.layout.heaters
    assert change.largest(2) == {names[3]: pytest.approx(0.4), names[5]: pytest.approx(-0.1)}
    assert f"most: {names[3]} +0.40, {names[5]} -0.10" in str(change)


def test_records_of_different_chips_are_not_compared():
    with pytest.raises(CalibrationError, match="different layouts"):
        compare_records(make_record(2), make_record(3))


@pytest.mark.parametrize("other", [None, "calibration.json", {}])
def test_what_is_no_record_is_not_compared(other):
    for pair in ((other, make_record()), (make_record(), other)):
        with pytest.raises(CalibrationError, match="no calibration record; give a CalibrationRecord"):
            compare_records(*pair)


def test_records_without_a_heater_that_moves_in_both_are_not_compared():
    bare = {"inputs": "ports", "receivers": "power"}
    halves = [make_record(2, stuck_rad={f"mzi_0_0_{phase}": 0.0}, **bare) for phase in ("theta", "phi")]
    with pytest.raises(CalibrationError, match="no heater moves its phase in both records"):
        compare_records(*halves)


def test_an_effect_is_seen_beyond_three_standard_deviations():
    assert Effect("bend", "1/rad", 0.31, 0.1).seen
    assert not Effect("bend", "1/rad", -0.29, 0.1).seen
    assert Effect("loss", "dB", 0.1).seen


def test_a_report_comes_back_from_the_file_of_its_run(tmp_path):
    report = RunReport(
        {"dark readings": 10, "random settings": 90}, (Effect("bend", "1/rad", None, None, 1e-3),), ("a line",),
        {"mzi_0_0_theta": "too little light"}, ("rx_1",), "odd",
        Correction(-0.02, 0.0, 0.3, {"mzi_0_0_phi": 0.5}, 100.0, 0.2, 1.0, 0.001),
        ("29 of 30 phases can be moved",),
    )  # fmt: skip
    xr.Dataset(attrs={"report": json.dumps(report.to_json_dict())}).to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    assert read_report(tmp_path / "run.nc") == report


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "holds no report"),
        ({"report": "{"}, "cannot read the report"),
        ({"report": "{}"}, "cannot read the report"),
    ],
)
def test_files_without_a_report_are_named(tmp_path, attributes, message):
    xr.Dataset(attrs=attributes).to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with pytest.raises(CalibrationError, match=f"{message}"):
        read_report(tmp_path / "run.nc")
    with pytest.raises(CalibrationError, match=r"cannot read the report of the run .*nowhere.nc"):
        read_report(tmp_path / "nowhere.nc")


WHOLE = RunReport(
    {"dark readings": 10}, (Effect("bend", "1/rad", 0.1, 0.01),), ("a line",), {"mzi_0_0_theta": "dark"}, ("rx_1",),
    correction=Correction(-0.02, 0.0, 0.3, {"mzi_0_0_phi": 0.5}, 100.0, 0.2, 1.0, 0.001),
)  # fmt: skip
"""A report with something everywhere."""


def with_attribute(folder, value):
    xr.Dataset(attrs={"report": value}).to_netcdf(folder / "run.nc", engine="h5netcdf")
    return folder / "run.nc"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"readings": 5}, "readings"),
        ({"readings": {"dark": True}}, "readings.dark"),
        ({"readings": {"dark": "10"}}, "readings.dark"),
        ({"unseen": "a line"}, "unseen"),
        ({"unseen": [1, 2]}, "unseen.0"),
        ({"doubt": None}, "doubt"),
        ({"heaters": {"mzi_0_0_phi": 1}}, "heaters.mzi_0_0_phi"),
        ({"dark_detectors": [None]}, "dark_detectors.0"),
        ({"abilities": {}}, "abilities"),
        ({"correction": []}, "correction"),
        ({"correction": {"resistance": 0.1}}, "correction.efficiency"),
        ({"effects": [1]}, "effects.0"),
        ({"effects": [{"name": "bend", "unit": "1", "value": "0.1"}]}, "effects.0.value"),
        ({"effects": [{"name": "bend", "unit": "1", "value": 0.1, "chance": 1}]}, "effects.0.chance"),
        ({"later": 1}, "later"),
    ],
)
def test_a_report_whose_entries_are_not_what_they_must_be_is_refused_by_name(tmp_path, changes, where):
    content = json.loads(json.dumps({**WHOLE.to_json_dict(), **changes}))
    with pytest.raises(CalibrationError, match=rf"cannot read the report of the run .*run.nc: {where}"):
        read_report(with_attribute(tmp_path, json.dumps(content)))
    with pytest.raises(CalibrationError, match=rf"this is no report of a run: {where}"):
        RunReport.from_json_dict(content)


@pytest.mark.parametrize("value", ["[" * 100_000, "5", "null", "[]", 5, np.array([1.0, 2.0]), "\N{SNOWMAN}"])
def test_attributes_that_are_no_report_are_refused(tmp_path, value):
    with pytest.raises(CalibrationError, match="cannot read the report of the run"):
        read_report(with_attribute(tmp_path, value))


def test_content_that_is_no_json_is_refused():
    endless = []
    endless.append(endless)
    for content in (None, {"readings": {1, 2}}, {"readings": endless}):
        with pytest.raises(CalibrationError, match="this is no report of a run"):
            RunReport.from_json_dict(content)


@pytest.mark.parametrize("path", [None, 5, "a\0b", ["run.nc"]])
def test_what_is_no_path_holds_no_report(path):
    with pytest.raises(CalibrationError, match="cannot read the report of the run"):
        read_report(path)
