"""Parameters over the records of a bench folder."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibration import CalibrationRecord, parameter_history
from optinc_hw.bench import write_bench_folder
from optinc_hw.bench.record import Provenance, Quality
from optinc_hw.bench.write import instrument_names
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path):
    write_bench_folder(tmp_path / "bench", 2, {name: f"simulated:{name}" for name in instrument_names(2)})
    return tmp_path / "bench"


def save(folder, name, hours, turned=0.0, ports=2, parent=None, stuck=(), heater="lo", crosstalk=0.0):
    """Save a record whose heater (``lo``) has turned by so much; the same share of each heater's heat in all others."""
    twin = TwinParameters.nominal(ports, input_amplitude=0.03, lo_amplitude=0.02, stuck_rad=dict.fromkeys(stuck, 0.0))
    offset = twin.offset.copy()
    offset[twin.layout.heater_index[heater]] = turned
    twin = replace(twin, crosstalk=np.where(np.eye(len(offset)) > 0.0, 1.0, crosstalk))
    twin = replace(twin, offset=offset, efficiency=twin.efficiency * (1.0 + 0.001 * hours))
    count = len(offset)
    record = CalibrationRecord.from_twin(
        twin, np.full(count, 300.0 + hours), np.zeros(count), (np.full(count, 1e-3), np.full(count, 1e-3)),
        Quality(residual_over_noise=1.5, held_out_settings=9, readings=90, noise_relative=1e-3, noise_floor_w=5e-9),
        Provenance(
            software="test", created_utc=START + timedelta(hours=hours), seed=0, chip="test", laser_power_w=0.01,
            laser_wavelength_m=1550e-9, data_file="run.nc", data_sha256="0" * 64,
            kind="full" if parent is None else "drift", parent_hash=parent,
        ),
    )  # fmt: skip
    record.save(folder / name)
    return record.content_hash


def test_a_phase_is_followed_through_the_records(folder):
    first = save(folder, "calibration_b.json", 0)
    second = save(folder, "calibration_a.json", 5, turned=2.5, parent=first)
    save(folder, "calibration_c.json", 7, turned=5.0 - 2.0 * np.pi, parent=second)
    save(folder, "calibration_simulated_0.json", 9)
    save(folder, "calibration_d.json", -3, ports=3)  # an earlier chip of the same bench
    (folder / "calibration_e.json").write_text("{}")
    history = parameter_history(folder)
    assert [row.file for row in history.records] == [f"calibration_{letter}.json" for letter in "bac"]
    assert [row.kind for row in history.records] == ["full", "drift", "drift"]
    assert history.records[2].parent_hash == second
    np.testing.assert_allclose(history.created_s - history.created_s[0], [0.0, 5 * 3600.0, 7 * 3600.0])
    # At half a period of the oldest record, an efficiency that grows by 0.1 % an hour adds 0.1 % of pi.
    np.testing.assert_allclose(history.moved("lo"), [0.0, 2.5 + 0.005 * np.pi, 5.0 + 0.007 * np.pi], atol=1e-9)
    np.testing.assert_allclose(history.moved("in_0_phi"), [0.0, 0.005 * np.pi, 0.007 * np.pi], atol=1e-9)
    np.testing.assert_allclose(history.efficiency[:, 3] / history.efficiency[0, 3], [1.0, 1.005, 1.007])
    np.testing.assert_allclose(history.resistance_ohm[:, 0], [300.0, 305.0, 307.0])
    assert history.gain.shape == (3, 4)
    with pytest.raises(CalibrationError, match="no heater 'tap'; it has in_0_theta"):
        history.moved("tap")
    assert [row.file for row in parameter_history(folder, simulated=True).records] == ["calibration_simulated_0.json"]


def test_a_heater_that_dies_takes_no_record_out_of_the_history_and_may_come_back(folder):
    """Of three records the middle one holds a heater for stuck, and the last finds it turned by more than pi."""
    dead = "mzi_0_0_theta"
    save(folder, "calibration_a.json", 0, turned=3.0, heater=dead, crosstalk=0.01)
    save(folder, "calibration_b.json", 0.5, stuck=[dead, "mzi_0_0_phi"], crosstalk=0.01)
    save(folder, "calibration_c.json", 1, turned=-3.0, heater=dead, stuck=["mzi_0_0_phi"], crosstalk=0.01)
    history = parameter_history(folder)
    assert [row.file for row in history.records] == [f"calibration_{letter}.json" for letter in "abc"]
    at = history.heaters.index(dead)
    for values in (history.phase_rad, history.efficiency, history.resistance_ohm):
        assert np.isnan(values[:, at]).tolist() == [False, True, False]
        assert np.isnan(values[:, history.heaters.index("mzi_0_0_phi")]).tolist() == [False, True, True]
    # Nine heaters always move; each grows by 0.1 % an hour at half a period, and gives 1 % of its phase to the others.
    others = len(history.heaters) - 2
    assert others == 9
    grown = 0.001 * np.pi
    np.testing.assert_allclose(
        history.moved(dead), [0.0, np.nan, 2.0 * np.pi - 6.0 + grown * (1.0 + 0.01 * others)], atol=1e-9
    )
    np.testing.assert_allclose(
        history.moved("lo"), np.array([0.0, 0.5, 1.0]) * grown * (1.0 + 0.01 * (others - 1)), atol=1e-9
    )
    assert np.isfinite(history.gain).all()


def test_a_heater_that_no_record_knows_has_no_phase(folder):
    for hours in (0, 1):
        save(folder, f"calibration_{hours}.json", hours, stuck=["mzi_0_0_phi"])
    assert np.isnan(parameter_history(folder).moved("mzi_0_0_phi")).tolist() == [True, True]


def test_a_folder_without_records_says_so(folder):
    with pytest.raises(CalibrationError, match="holds no readable calibration record; run optinc calibrate"):
        parameter_history(folder)


@pytest.mark.parametrize("folder", [None, 3, "a\0b", ["bench"], "~nobody-of-this-name/bench"])
def test_what_names_no_folder_is_refused(folder):
    with pytest.raises(CalibrationError, match=r"folder = .* names no place"):
        parameter_history(folder)
