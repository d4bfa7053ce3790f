"""The calibration record in force: where it is saved, what it changes, and what refuses it."""

from datetime import UTC, datetime

import bench_fakes
import numpy as np
import pytest
from bench_fakes import write_fake_folder

from optinc_hw.bench import Bench, BenchTileRunner
from optinc_hw.bench.record import CalibrationRecord, Provenance, Quality
from optinc_hw.errors import CalibrationError, ConfigurationError, LimitError
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.layout import ChipLayout

PORTS = 4


@pytest.fixture
def folder(tmp_path):
    bench_fakes.reset()
    return write_fake_folder(tmp_path / "bench", PORTS)


def make_record(ports=PORTS, resistance=1200.0):
    count = len(ChipLayout(ports).heaters)
    return CalibrationRecord.from_twin(
        TwinParameters.nominal(ports, input_amplitude=0.03, lo_amplitude=0.04),
        np.full(count, resistance),
        np.full(count, 0.8),
        (np.full(count, 1e-3), np.full(count, 1e-3)),
        Quality(residual_over_noise=1.5, held_out_settings=10, readings=100, noise_relative=1e-3, noise_floor_w=5e-9),
        Provenance(
            software="test",
            created_utc=datetime(2026, 1, 1, tzinfo=UTC),
            seed=0,
            chip="test",
            laser_power_w=0.01,
            laser_wavelength_m=1550e-9,
            data_file="run.nc",
            data_sha256="0" * 64,
        ),
    )


def test_a_saved_record_is_in_force_now_and_at_the_next_start(folder):
    record = make_record()
    with Bench.open(folder) as bench:
        path = bench.save_record(record)
        assert bench.record == bench.require_record() == record
    assert path.parent == folder
    with Bench.open(folder) as bench:
        assert bench.record == record
        np.testing.assert_array_equal(bench.interlock.resistance_beta_per_w, record.resistance_beta_per_w)


def test_saving_changes_one_value_of_the_chip_file_and_nothing_else(folder):
    before = (folder / "chip.yaml").read_text().splitlines()
    with Bench.open(folder) as bench:
        path = bench.save_record(make_record())
        after_first = (folder / "chip.yaml").read_text()
        bench.save_record(bench.require_record())
    assert (folder / "chip.yaml").read_text() == after_first
    after = (folder / "chip.yaml").read_text().splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == 1
    assert changed[0][0].startswith("calibration: null  ")
    assert changed[0][1].startswith(f"calibration: {path.name}")
    assert changed[0][1].endswith("# file name of the calibration record in force; written by `optinc calibrate`")
    leftovers = {p.name for p in folder.iterdir()} - {"chip.yaml", "station.yaml", ".bench.lock", path.name}
    assert leftovers == set()


@pytest.mark.parametrize("spelling", ["'calibration': null # mine\n", "? calibration\n: null\n", ""])
def test_unusual_spellings_of_the_key_are_found(folder, spelling):
    text = (folder / "chip.yaml").read_text()
    line = next(line for line in text.splitlines(keepends=True) if line.startswith("calibration:"))
    (folder / "chip.yaml").write_text(text.replace(line, spelling))
    with Bench.open(folder) as bench:
        bench.save_record(make_record())
    with Bench.open(folder) as bench:
        assert bench.record == make_record_like(bench)
    assert "# One line for each heater." in (folder / "chip.yaml").read_text()


def make_record_like(bench):
    return CalibrationRecord.load(bench.folder / bench.description.chip.calibration)


def test_edits_made_to_the_file_meanwhile_are_kept(folder):
    with Bench.open(folder) as bench:
        path = folder / "chip.yaml"
        path.write_text(path.read_text().replace("step_v: 2.5", "step_v: 0.5  # slower"))
        bench.save_record(make_record())
    assert "step_v: 0.5  # slower" in path.read_text()


def test_the_interlock_uses_the_calibrated_resistances(folder):
    count = len(ChipLayout(PORTS).heaters)
    voltages = np.zeros(count)
    voltages[0] = 8.4
    with Bench.open(folder) as bench:
        bench.set_voltages(voltages)
        bench.save_record(make_record(resistance=1000.0))
        with pytest.raises(LimitError, match=r"heater in_0_theta: power .* at 8.4 V and 1000 ohm exceeds max_power_w"):
            bench.set_voltages(voltages)


def test_a_record_of_another_chip_is_refused(folder):
    with Bench.open(folder) as bench:
        before = (folder / "chip.yaml").read_text()
        with pytest.raises(CalibrationError, match="of a chip with 3 ports, but"):
            bench.save_record(make_record(ports=3))
        assert bench.record is None
        assert (folder / "chip.yaml").read_text() == before
    make_record(ports=3).save(folder / "other.json")
    (folder / "chip.yaml").write_text(before.replace("calibration: null", "calibration: other.json"))
    with pytest.raises(CalibrationError, match=r"other\.json: the calibration record is of a chip with 3 ports"):
        Bench.open(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("power_dbm: 10.0", "power_dbm: 7.0", r"laser power of 0\.01 W, chip\.yaml now asks for 0\.0050"),
        ("wavelength_nm: 1550.0", "wavelength_nm: 1549.9", r"laser wavelength of 1\.55e-06 m"),
    ],
)
def test_a_record_made_with_other_light_drives_nothing(folder, old, new, message):
    with Bench.open(folder) as bench:
        bench.save_record(make_record())
        BenchTileRunner(bench)
    path = folder / "chip.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with Bench.open(folder) as bench, pytest.raises(CalibrationError, match=message):
        BenchTileRunner(bench)


@pytest.mark.parametrize("content", [b"{}", b"", b"null", b'{"content_hash": ', b"\xff\x00", b"[" * 100_000])
def test_a_damaged_record_is_refused_before_anything_is_connected(folder, content):
    (folder / "bad.json").write_bytes(content)
    path = folder / "chip.yaml"
    path.write_text(path.read_text().replace("calibration: null", "calibration: bad.json"))
    with pytest.raises(CalibrationError, match=r"bad\.json"):
        Bench.open(folder)
    assert bench_fakes.JOURNAL == []


def test_an_unwritable_folder_leaves_the_former_record_in_force(folder, monkeypatch):
    with Bench.open(folder) as bench:
        before = (folder / "chip.yaml").read_text()

        def refuse(_chip_file, _name):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("optinc_hw.bench._record_store._point_to", refuse)
        with pytest.raises(ConfigurationError, match=r"chip\.yaml still names the former record"):
            bench.save_record(make_record())
        assert bench.record is None
    assert (folder / "chip.yaml").read_text() == before


def test_a_record_that_cannot_be_written_is_a_configuration_error_too(folder):
    record = make_record()
    (folder / f"calibration_{record.content_hash[-12:]}.json").mkdir()
    with Bench.open(folder) as bench:
        before = (folder / "chip.yaml").read_text()
        with pytest.raises(ConfigurationError, match=r"chip\.yaml still names the former record"):
            bench.save_record(record)
        assert bench.record is None
    assert (folder / "chip.yaml").read_text() == before
