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


def save(folder, name, hours, turned=0.0, ports=2, parent=None):
    """Save a record whose heater ``lo`` has turned by so much."""
    twin = TwinParameters.nominal(ports, input_amplitude=0.03, lo_amplitude=0.02)
    offset = twin.offset.copy()
    offset[-1] = turned
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


def test_a_folder_without_records_says_so(folder):
    with pytest.raises(CalibrationError, match="holds no readable calibration record; run optinc calibrate"):
        parameter_history(folder)
