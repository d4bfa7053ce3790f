"""Calibration on a simulated bench: what it leaves, what it may touch, what it refuses, and what it never replaces."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from calibrated_benches import bench_of, error_over_noise_floor, take_settings

from calibration import (
    CalibrationRecord,
    NoiseModel,
    Settings,
    calibrate,
    fit_phase_curve,
    fit_resistance,
    residual_over_noise,
    verify,
)
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipModel
from optinc_hw.photonics.twin import parameter_shapes
from simulated_instruments import HiddenChip, HiddenEffects


@pytest.fixture
def bench(calibrated):
    with calibrated.bench() as opened:
        yield opened


def assert_dark_and_cold(bench):
    np.testing.assert_array_equal(bench.voltages, 0.0)
    np.testing.assert_allclose(bench.read_heaters().voltage_v, 0.0, atol=2e-3)
    assert np.abs(bench.read_detectors().power_w).max() < 1e-7


def test_the_record_predicts_new_settings(calibrated, bench):
    powers, readings = take_settings(bench, calibrated.record, count=80, repeats=3, seed=99)
    ratio, floor = error_over_noise_floor(calibrated.record, powers, readings)
    assert ratio < 3.0
    assert floor == pytest.approx(1.0, abs=0.06)
    assert calibrated.record.quality.residual_over_noise == pytest.approx(ratio, rel=0.25)


def test_verify_finds_a_fresh_record_good_and_leaves_the_chip_dark(calibrated, bench):
    before = bench.readings
    seen = []
    result = verify(bench, calibrated.record, settings=30, progress=lambda *entry: seen.append(entry))
    assert result.good
    assert result.residual_over_noise < 3.0
    assert result.recorded == calibrated.record.quality.residual_over_noise
    assert result.settings == bench.readings - before == 30
    assert 0.0 < result.age_s < 3600.0
    assert seen == [("verification", done, 30) for done in (10, 20, 30)]
    assert_dark_and_cold(bench)


def test_verify_tells_a_record_of_another_chip(calibrated):
    with Bench.simulated(ports=4, seed=2) as other:
        result = verify(other, calibrated.record, settings=10)
    assert not result.good
    assert result.residual_over_noise > 50.0


def test_verify_notices_a_change_of_one_phase(calibrated, bench):
    offset = calibrated.record.twin().offset
    phi = bench.layout.heater_index["mzi_1_1_phi"]
    offset[phi] += 0.02
    entry = calibrated.record.heaters["mzi_1_1_phi"].model_copy(update={"offset_rad": float(offset[phi])})
    moved = calibrated.record.model_copy(update={"heaters": calibrated.record.heaters | {"mzi_1_1_phi": entry}})
    result = verify(bench, moved, settings=30)
    assert not result.good


def test_a_saved_record_serves_a_new_session_of_the_same_chip(calibrated):
    with calibrated.bench() as bench:
        (pointer,) = bench.folder.glob("calibration_*.json")
        loaded = CalibrationRecord.load(pointer)
        assert loaded == calibrated.record == bench.require_record()
        assert bench.description.chip.name == loaded.provenance.chip
    with Bench.simulated(ports=4, seed=1) as again:
        assert again.record is None
        again.save_record(loaded)
        assert verify(again, again.require_record(), settings=10).good


def test_progress_tells_every_stage_to_its_end(calibrated):
    stages = list(dict.fromkeys(stage for stage, *_ in calibrated.progress))
    assert stages[0] == "heater resistances"
    assert stages[-3:] == ["train settings", "held-out settings", "twin fit"]
    assert {"phase curves", "attenuators", "input modulators", "start_theta", "start_phi"} < set(stages)
    for stage in stages:
        entries = [(done, total) for name, done, total in calibrated.progress if name == stage]
        assert all(0 <= done <= total for done, total in entries), stage
        assert [done for done, _ in entries] == sorted(done for done, _ in entries), stage
        assert stage == "twin fit" or entries[-1][0] == entries[-1][1], stage


def test_the_run_file_holds_everything_that_the_record_rests_on(calibrated):
    provenance = calibrated.record.provenance
    assert provenance.data_file == calibrated.data_file.name
    assert provenance.data_sha256 == hashlib.sha256(calibrated.data_file.read_bytes()).hexdigest()
    with xr.open_dataset(calibrated.data_file, engine="h5netcdf") as data:
        assert data.attrs["stage"] == "finished"
        assert data.attrs["readings"] == calibrated.record.quality.readings
        assert data.attrs["seed"] == 0
        for name in ("fringe_readings", "train_readings", "held_out_readings", "twin_offset", "resistance_current"):
            assert np.isfinite(data[name].to_numpy()).all()
        for variable in data.data_vars.values():
            assert variable.attrs["units"]
            assert variable.attrs["long_name"]
        twin = calibrated.record.twin()
        np.testing.assert_allclose(data["twin_offset"], twin.offset)
        np.testing.assert_allclose(data["twin_crosstalk"], twin.crosstalk, atol=1e-10)  # records keep 10 decimals


def test_stored_data_can_be_analysed_again(calibrated, bench):
    record, layout = calibrated.record, bench.layout
    noise = NoiseModel(record.quality.noise_relative, record.quality.noise_floor_w)
    with xr.open_dataset(calibrated.data_file, engine="h5netcdf") as data:
        held_out = Settings(data["held_out_power"].to_numpy(), data["held_out_readings"].to_numpy())
        assert len(held_out.power_w) == record.quality.held_out_settings
        residual = residual_over_noise(record.twin(), held_out, noise)
        for heater in ("in_0_theta", "mzi_2_0_phi", "lo"):
            one = data.sel(heater=heater)
            index = layout.heater_index[heater]
            searched = (0.6 * np.pi / 0.020, 1.5 * np.pi / 0.020)  # around the nominal 20 mW, as the calibration does
            fringe = fit_phase_curve(one["fringe_power"], one["fringe_readings"], efficiency_range=searched)
            plain = fit_phase_curve(one["fringe_power"], one["fringe_readings"])
            assert plain.good
            assert plain.efficiency == pytest.approx(fringe.efficiency, rel=1e-6)
            assert fringe.good
            assert fringe.efficiency == pytest.approx(record.twin().efficiency[index], rel=0.05)
            law = fit_resistance(one["resistance_current"], one["resistance_voltage"])
            assert law.resistance_ohm == record.resistance_ohm[index]
    assert residual == pytest.approx(record.quality.residual_over_noise, rel=1e-6)  # crosstalk has 10 decimals


def test_a_second_calibration_is_as_good_and_replaces_nothing_by_itself(calibrated, bench):
    bench = bench
    again = calibrate(bench, seed=7)
    assert bench.record is calibrated.record
    first, second = calibrated.record.quality, again.quality
    assert second.residual_over_noise < 1.25 * first.residual_over_noise
    # Two calibrations agree in what they predict, although nothing compares their parameters.
    powers, readings = take_settings(bench, calibrated.record, count=20, repeats=2, seed=5)
    twins = [record.twin() for record in (calibrated.record, again)]
    predicted = [ChipModel.from_parameters(twin).readings(twin, powers) for twin in twins]
    sigma = np.hypot(first.noise_relative * predicted[0], first.noise_floor_w)
    assert np.sqrt(np.mean(((predicted[0] - predicted[1]) / sigma) ** 2)) < 3.0
    assert error_over_noise_floor(again, powers, readings)[0] < 3.0


API = {
    "layout",
    "description",
    "folder",
    "simulated_seed",
    "readings",
    "max_voltage",
    "max_power",
    "max_total_power",
    "interlock",
    "light",
    "set_voltages",
    "settle",
    "read_detectors",
    "read_heaters",
}


class Restricted:
    """The bench through its measuring methods alone; anything else is an AttributeError."""

    def __init__(self, bench):
        self._bench = bench

    def __getattr__(self, name):
        if name not in API:
            raise AttributeError(f"calibration asked the bench for {name!r}")
        return getattr(self._bench, name)


def test_calibration_needs_nothing_but_the_measuring_methods_and_is_reproducible(tmp_path):
    records = []
    for name, wrap in (("one.nc", Restricted), ("two.nc", lambda bench: bench)):
        with Bench.simulated(ports=2, seed=3) as bench:
            records.append(calibrate(wrap(bench), settings=120, held_out=40, data_file=tmp_path / name))
    first, second = (record.twin() for record in records)
    assert (first.mesh, first.stuck) == (second.mesh, second.stuck)
    for name in parameter_shapes(first.layout):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-9, err_msg=name)
    np.testing.assert_array_equal(records[0].resistance_ohm, records[1].resistance_ohm)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": 4}, r"settings = 4.* at least 8 settings"),
        ({"settings": 0}, "settings = 0"),
        ({"held_out": 0}, "held_out = 0"),
        ({"held_out": 20.0}, r"held_out must be a whole number of at least 0, got 20\.0"),
        ({"settings": "many"}, "settings must be a whole number of at least 0, got 'many'"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": 1.0}, r"seed must be a whole number of at least 0, got 1\.0"),
        ({"seed": None}, "seed must be a whole number of at least 0, got None"),
        ({"resume": ""}, "resume = '' names no file"),
        ({"data_file": ""}, "data_file = '' names no file"),
        ({"data_file": 3}, "data_file = 3 names no file"),
        ({"data_file": "/"}, "data_file = '/' names no file"),
        ({"data_file": "run.nc.journal"}, "ends in .journal, as journals do; name the netCDF file"),
        ({"data_file": "a.nc", "resume": "a.nc"}, "give data_file or resume, not both"),
    ],
)
def test_impossible_requests_are_refused_before_anything_moves(bench, change, message):
    before = bench.readings
    with pytest.raises(CalibrationError, match=message):
        calibrate(bench, **change)
    assert bench.readings == before


def test_verify_refuses_impossible_requests(calibrated):
    for change in ({"settings": 0}, {"seed": -1}, {"settings": 2.0}, {"seed": True}, {"seed": "1"}):
        (name,) = change
        with calibrated.bench() as bench, pytest.raises(CalibrationError, match=f"{name} must be a whole number of"):
            verify(bench, calibrated.record, **change)
    with Bench.simulated(ports=2) as small, pytest.raises(CalibrationError, match=r"of 4 ports, the bench has 2"):
        verify(small, calibrated.record)


def files_of(bench):
    return {path.name: path.read_bytes() for path in bench.folder.iterdir() if path.suffix not in (".nc", ".journal")}


def assert_refused(bench, message):
    """A calibration that fails says why, leaves the chip dark, and the record in force as it was."""
    files, record = files_of(bench), bench.require_record()
    with pytest.raises(CalibrationError, match=message):
        calibrate(bench, data_file=bench.folder / "failed.nc")
    assert files_of(bench) == files
    assert bench.require_record() is record
    np.testing.assert_array_equal(bench.voltages, 0.0)


def stage_of(bench):
    with xr.open_dataset(bench.folder / "failed.nc", engine="h5netcdf") as data:
        tables = ("sweep_", "repeat_", "electrical_")
        return data.attrs["stage"], {name for name in data.data_vars if not name.startswith(tables)}


def test_a_dead_laser_is_named_at_once_and_the_old_record_stays(calibrated, bench, monkeypatch):
    set_laser = HiddenChip.set_laser
    with monkeypatch.context() as patch:
        patch.setattr(HiddenChip, "set_laser", lambda self, power, *rest, **more: set_laser(self, 0.0, *rest, **more))
        assert_refused(bench, "all detectors are dark although the light is on; check laser, shutter and fibres")
    stage, kept = stage_of(bench)
    assert stage == "noise"
    assert kept == {"dark_readings", "resistance_current", "resistance_voltage", "noise_readings"}
    assert verify(bench, calibrated.record, settings=10).good


def test_a_shutter_that_does_not_close_is_named(calibrated, bench, monkeypatch):
    set_laser = HiddenChip.set_laser
    with monkeypatch.context() as patch:
        patch.setattr(HiddenChip, "set_laser", lambda self, power, *rest, **more: set_laser(self, 0.01, *rest, **more))
        bench.light(on=False)
        assert_refused(bench, "with the light off .* check the laser's shutter")


def test_noise_that_hides_the_fringes_stops_before_anything_is_built_on_them(bench, monkeypatch):
    measure, rng = HiddenChip.measure, np.random.default_rng(0)

    def noisy(self, detectors, averaging_time_s):
        power = measure(self, detectors, averaging_time_s)
        return power * (1.0 + 0.3 * rng.standard_normal(power.shape))

    with monkeypatch.context() as patch:
        patch.setattr(HiddenChip, "measure", noisy)
        assert_refused(bench, r"no clear fringe for .*in_0_theta \(contrast .*Check wiring, laser power")
    stage, kept = stage_of(bench)
    assert stage == "phase curves"
    assert "attenuator_fields" not in kept


def test_an_interrupted_calibration_leaves_the_chip_dark_and_its_data(calibrated, bench):
    def stop(stage, done, total):
        if stage == "attenuators":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, data_file=bench.folder / "failed.nc", progress=stop)
    assert_dark_and_cold(bench)
    assert stage_of(bench)[0] == "phase curves"
    assert bench.record is calibrated.record


def test_a_data_file_that_cannot_be_written_stops_before_heaters_move(calibrated, bench):
    path = bench.folder / "missing" / "run.nc"
    with pytest.raises(CalibrationError, match=r"cannot write the run's data to .*missing"):
        calibrate(bench, data_file=path)
    assert_dark_and_cold(bench)


def chip_with(ports=2, seed=0, **changes):
    """A hidden chip with single parameters changed: (array name, name of heater or detector) -> value."""
    chip = HiddenChip.from_seed(seed, ports)
    arrays = {}
    for (name, place), value in changes.pop("parameters").items():
        array = arrays.setdefault(name, getattr(chip.parameters, name).copy())
        array[place] = value
    return HiddenChip(chip.layout, chip.effects, replace(chip.parameters, **arrays), 0)


def test_a_heater_that_does_not_heat_is_named():
    layout = HiddenChip.from_seed(0, 2).layout
    dead = layout.heater_index["mzi_0_0_phi"]
    with bench_of(chip_with(parameters={("pi_power_w", dead): 1e3})) as bench:
        with pytest.raises(CalibrationError, match=r"no clear fringe for mzi_0_0_phi \(") as caught:
            calibrate(bench)
        np.testing.assert_array_equal(bench.voltages, 0.0)
    assert ";" not in str(caught.value).split("Check")[0]


@pytest.mark.parametrize(("detector", "name"), [(1, "rx_1_plus"), (2, "rx_0_minus")])
def test_a_dead_photodiode_is_named(detector, name):
    with (
        bench_of(chip_with(parameters={("gain", detector): 1e-9})) as bench,
        pytest.raises(CalibrationError, match=f"no light on {name} at any setting; check these photodiodes"),
    ):
        calibrate(bench)


@pytest.mark.parametrize(
    ("parameter", "heaters"), [("output_amplitude", "out_1 .*att_1"), ("input_amplitude", "in_1_theta .*in_1_phi")]
)
def test_a_port_without_light_names_its_heaters(parameter, heaters):
    with (
        bench_of(chip_with(parameters={(parameter, 1): 1e-4})) as bench,
        pytest.raises(CalibrationError, match=rf"no clear fringe for {heaters}.*light's path to these heaters"),
    ):
        calibrate(bench)


def test_a_chip_that_the_model_cannot_describe_is_refused():
    chip = HiddenChip.from_seed(1, 4, effects=HiddenEffects(crosstalk_length=6.0))
    with bench_of(chip) as bench, pytest.raises(CalibrationError, match=r"only to [\d.]+ times the noise .*old record"):
        calibrate(bench, held_out=50)
