"""The calibration record in force: where it is saved, what it changes, and what refuses it."""

from datetime import UTC, datetime

import bench_fakes
import numpy as np
import pytest
from bench_fakes import write_fake_folder

from optinc_hw.bench import Bench, BenchTileRunner, record_history
from optinc_hw.bench._record_store import RecordStore
from optinc_hw.bench.chip_file import read_chip_file
from optinc_hw.bench.record import CalibrationRecord, Provenance, Quality
from optinc_hw.errors import CalibrationError, ConfigurationError, LimitError
from optinc_hw.photonics import TwinParameters
from optinc_hw.photonics.layout import ChipLayout

PORTS = 4


@pytest.fixture
def folder(tmp_path):
    bench_fakes.reset()
    return write_fake_folder(tmp_path / "bench", PORTS)


def make_record(ports=PORTS, resistance=1200.0, **kind):
    twin = TwinParameters.nominal(ports, input_amplitude=0.03, lo_amplitude=0.04, **kind)
    count = len(twin.layout.heaters)
    return CalibrationRecord.from_twin(
        twin,
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
    (folder / f"calibration_20260101T000000_{record.content_hash[-8:]}.json").mkdir()
    with Bench.open(folder) as bench:
        before = (folder / "chip.yaml").read_text()
        with pytest.raises(ConfigurationError, match=r"chip\.yaml still names the former record"):
            bench.save_record(record)
        assert bench.record is None
    assert (folder / "chip.yaml").read_text() == before


def drifted(record, hour):
    """A correction of ``record``, made on the same day."""
    other = make_record(resistance=1210.0)
    made = other.provenance.model_copy(
        update={
            "created_utc": datetime(2026, 1, 1, hour, tzinfo=UTC),
            "kind": "drift",
            "parent_hash": record.content_hash,
        }
    )
    return other.model_copy(update={"provenance": made})


def test_former_records_stay_and_are_listed_with_what_they_correct(folder):
    first = make_record()
    second = drifted(first, 5)
    assert record_history(folder) == ()
    with Bench.open(folder) as bench:
        paths = [bench.save_record(first), bench.save_record(second)]
    (folder / "calibration_broken.json").write_text("{}")
    broken, *rows = record_history(folder)
    assert [row.file for row in rows] == [path.name for path in paths]
    assert [row.file[:27] for row in rows] == ["calibration_20260101T000000", "calibration_20260101T050000"]
    assert [(row.in_force, row.kind) for row in rows] == [(False, "full"), (True, "drift")]
    assert rows[1].parent_hash == rows[0].content_hash == first.content_hash
    assert (rows[0].readings, rows[0].residual_over_noise, rows[0].held_out_tvd) == (100, 1.5, None)
    assert (broken.file, broken.in_force, broken.created_utc) == ("calibration_broken.json", False, None)
    assert "has no content_hash" in broken.problem
    with Bench.open(folder) as bench:
        assert bench.record == second


def test_records_of_simulated_sessions_stay_too(folder):
    first = make_record()
    chip = read_chip_file(folder)
    store = RecordStore(folder, chip, "calibration_simulated_3.json")
    store.save(first)
    store.save(first)
    store.save(drifted(first, 7))
    former, present = record_history(folder)
    assert former.file == f"calibration_simulated_3_20260101T000000_{first.content_hash[-8:]}.json"
    assert present.file == "calibration_simulated_3.json"
    assert store.load() == drifted(first, 7)
    (folder / "calibration_simulated_3.json").write_text("no record")
    store.save(first)
    assert store.load() == first


def test_a_record_in_force_that_is_gone_is_listed_with_its_problem(folder):
    with Bench.open(folder) as bench:
        path = bench.save_record(make_record())
    path.unlink()
    (row,) = record_history(folder)
    assert row.in_force
    assert "cannot read the calibration record" in row.problem
