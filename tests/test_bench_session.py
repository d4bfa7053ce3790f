"""An open bench against instruments without a wire: order, wiring, safe state, lock."""

import os
import shutil
import signal
import sys
import threading

import bench_fakes
import numpy as np
import pytest
from bench_fakes import JOURNAL, SETTINGS, calls, drive, write_fake_folder

from optinc_hw.bench import Bench
from optinc_hw.errors import (
    CalibrationError,
    ConfigurationError,
    IdentityError,
    InstrumentError,
    LimitError,
    LinkError,
)

HEATERS = 89
TERMINATION = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@pytest.fixture
def folder(tmp_path):
    bench_fakes.reset()
    return write_fake_folder(tmp_path / "bench")


@pytest.fixture
def bench(folder):
    with Bench.open(folder) as opened:
        yield opened


def test_connecting_and_closing_asks_only_and_in_a_fixed_order(folder):
    with Bench.open(folder):
        pass
    opened = [e[0] for e in calls(what="open")]
    assert opened == ["meter_plus_0", "meter_minus_0", "laser", "heaters_0", "heaters_1"]
    assert {e[1] for e in JOURNAL} == {"open", "close"}
    assert [e[0] for e in calls(what="close")] == opened[::-1]


def test_limits_and_ramp_are_armed_in_the_drivers(folder):
    text = (folder / "chip.yaml").read_text()
    line = "in_0_phi:      {instrument: heaters_0, channel: 1"
    assert line in text
    (folder / "chip.yaml").write_text(text.replace(line, f"{line}, max_voltage_v: 3.5"))
    with Bench.open(folder) as bench:
        chain = bench.station.components["heaters_0"]
        assert chain.limits[0] == (10.0, 0.012, 0.060)
        assert chain.limits[1] == (3.5, 0.012, 0.060)
        assert len(chain.limits) == 64
        assert (chain.ramp_step, chain.ramp_interval) == (2.5, 0.0002)
        assert chain.clock is bench.clock
        assert bench.max_voltage[1] == 3.5
        assert bench.max_voltage.shape == bench.max_current.shape == bench.max_power.shape == (HEATERS,)


def test_only_changed_channels_are_sent(bench):
    voltages = np.linspace(0.0, 4.0, HEATERS)
    bench.set_voltages(voltages)
    first = calls(what="set_voltages")
    assert [len(e[2]) for e in first] == [64, 25]
    assert first[1][2][0] == voltages[64]
    JOURNAL.clear()
    bench.set_voltages(voltages)
    assert calls(what="set_voltages") == []
    voltages[70] = 1.0
    bench.set_voltages(voltages)
    assert calls(what="set_voltages") == [("heaters_1", "set_voltages", {6: 1.0})]
    np.testing.assert_array_equal(bench.voltages, voltages)
    reading = bench.read_heaters()
    np.testing.assert_array_equal(reading.voltage_v, voltages)
    np.testing.assert_allclose(reading.current_a, voltages / 1000.0)


def test_the_returned_voltages_are_a_copy(bench):
    bench.set_voltages(np.ones(HEATERS))
    bench.voltages[:] = 9.0
    np.testing.assert_array_equal(bench.voltages, np.ones(HEATERS))


def test_a_refused_vector_moves_nothing(bench):
    voltages = np.ones(HEATERS)
    voltages[3] = 10.5
    with pytest.raises(LimitError, match=r"heater in_1_phi: voltage 10.5 V exceeds max_voltage_v = 10 V"):
        bench.set_voltages(voltages)
    assert calls(what="set_voltages") == []


def test_chains_never_pass_the_total_power_together(bench):
    """4.0 W allowed: 60 heaters at 55 mW on the first chain, then the same heat moved to other heaters."""
    hot, cold = bench.interlock.voltage(np.full(HEATERS, 0.055)), np.zeros(HEATERS)
    before, after = cold.copy(), cold.copy()
    before[25:] = hot[25:]
    after[:64] = hot[:64]
    bench.set_voltages(before)
    JOURNAL.clear()
    bench.set_voltages(after)
    state = before.copy()
    for name, _, values in calls(what="set_voltages"):
        for channel, value in values.items():
            state[channel + (64 if name == "heaters_1" else 0)] = value
        assert bench.interlock.power(state).sum() <= bench.max_total_power
    np.testing.assert_array_equal(state, after)


def test_detectors_come_in_the_order_of_the_layout(folder):
    text = (folder / "chip.yaml").read_text()
    text = text.replace(
        "rx_0_plus:     {instrument: meter_plus_0, port: 0}", "rx_0_plus: {instrument: meter_plus_0, port: 7}"
    )
    text = text.replace(
        "rx_7_plus:     {instrument: meter_plus_0, port: 7}", "rx_7_plus: {instrument: meter_plus_0, port: 0}"
    )
    (folder / "chip.yaml").write_text(text)
    with Bench.open(folder) as bench:
        reading = bench.read_detectors()
        bench.read_detectors()
        assert bench.readings == 2
    np.testing.assert_array_equal(reading.power_w, [8, 2, 3, 4, 5, 6, 7, 1, -1, -2, -3, -4, -5, -6, -7, -8])
    assert np.flatnonzero(~reading.valid).tolist() == [1, 9]
    assert calls("meter_plus_0", "initialise") == [("meter_plus_0", "initialise", pytest.approx(1550e-9), 0.01)]


def test_a_bench_tells_whether_it_let_light_in_last(bench, monkeypatch):
    assert bench.light_on is None
    for on in (True, False, True):
        bench.light(on)
        assert bench.light_on is on

    def deaf(self, deadline_s):
        raise LinkError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(bench_fakes.FakeLaser, "wait_settled", deaf)
        with pytest.raises(LinkError):
            bench.light(True)
        assert bench.light_on is None
    bench.light(True)
    bench.make_safe()
    assert bench.light_on is False


def test_first_light_sets_wavelength_and_power_once(bench):
    bench.light(True)
    bench.light(False)
    bench.light(True)
    assert [e[1:] for e in calls("laser")][1:] == [
        ("wavelength", pytest.approx(1550e-9)),
        ("power", pytest.approx(0.01)),
        ("light", True),
        ("wait_settled",),
        ("light", False),
        ("light", True),
        ("wait_settled",),
    ]


def test_outputs_found_at_start_are_reported_and_left_alone(folder, caplog):
    SETTINGS["at_start"] = {"heaters_0": {1: 5.0}, "heaters_1": {63: 2.0}}
    with Bench.open(folder) as bench:
        assert bench.found_at_start == {"in_0_phi": 5.0, "heaters_1[63]": 2.0}
        assert bench.voltages[1] == 5.0
        assert "2 heater outputs are not zero at the start (in_0_phi 5 V, heaters_1[63] 2 V)" in caplog.text
        assert calls(what="make_safe") == calls(what="set_voltages") == []
    assert calls(what="make_safe") == []
    with Bench.open(folder) as bench:
        bench.make_safe()
        assert [e[0] for e in calls(what="make_safe")] == ["heaters_0", "heaters_1", "laser"]
        np.testing.assert_array_equal(bench.voltages, np.zeros(HEATERS))


def test_an_unreachable_instrument_closes_those_already_open(folder):
    path = folder / "station.yaml"
    path.write_text(path.read_text().replace("'fake:heaters_1'", "'fake:unreachable'"))
    with pytest.raises(LinkError, match="heaters_1: nobody answers at fake:unreachable"):
        Bench.open(folder)
    assert len(calls(what="close")) >= 4
    path.write_text(path.read_text().replace("'fake:unreachable'", "'fake:heaters_1'"))
    with Bench.open(folder):
        pass


def test_arguments_that_a_driver_refuses_are_a_configuration_error(folder):
    path = folder / "station.yaml"
    path.write_text(path.read_text().replace("modules: 8", "modulez: 8"))
    with pytest.raises(ConfigurationError, match=r"instruments.heaters_0.init: driver .* refuses its arguments"):
        Bench.open(folder)


def test_another_serial_number_is_refused(folder):
    path = folder / "chip.yaml"
    text = path.read_text()
    path.write_text(text.replace("serial_numbers: {}", "serial_numbers: {laser: SN-laser}"))
    with Bench.open(folder):
        pass
    path.write_text(text.replace("serial_numbers: {}", "serial_numbers: {laser: SN-7}"))
    with pytest.raises(IdentityError, match=r"'laser' at 'fake:laser' has serial number 'SN-laser', .* expects 'SN-7'"):
        Bench.open(folder)


def test_a_chain_with_too_few_channels_is_refused(folder):
    SETTINGS["channels"] = 56
    with pytest.raises(IdentityError, match=r"'heaters_0' has 56 channels, but chip.yaml uses channel 63"):
        Bench.open(folder)


def test_a_name_in_use_is_refused(bench, tmp_path):
    other = write_fake_folder(tmp_path / "other")
    path = other / "station.yaml"
    path.write_text(path.read_text().replace("'fake:", "'fake:another_"))
    with pytest.raises(ConfigurationError, match="an instrument of this name is already open in this process"):
        Bench.open(other)


def test_the_same_instruments_cannot_be_driven_out_of_a_copy_of_the_folder(bench, tmp_path):
    copy = shutil.copytree(bench.folder, tmp_path / "copy")
    path = copy / "station.yaml"
    path.write_text(path.read_text().replace("'fake:", "' FAKE:"))  # another spelling
    with pytest.raises(LinkError, match=r"' FAKE:meter_plus_0' of instrument 'meter_plus_0' in .*copy is in use"):
        Bench.open(copy)
    bench.close()
    with Bench.open(copy):
        pass


def test_a_link_to_a_serial_port_is_the_port(tmp_path):
    bench_fakes.reset()
    (tmp_path / "ttyUSB0").touch()
    (tmp_path / "by-id").symlink_to(tmp_path / "ttyUSB0")
    folders = [write_fake_folder(tmp_path / name, ports=2) for name in ("first", "second")]
    for folder, port in zip(folders, ("ttyUSB0", "by-id"), strict=True):
        path = folder / "station.yaml"
        text = path.read_text().replace("'fake:heaters_0'", f"'{tmp_path / port}'")
        path.write_text(text.replace("'fake:", f"'fake:{folder.name}_"))
    with Bench.open(folders[0]), pytest.raises(LinkError, match=r"by-id' of instrument 'heaters_0' .* is in use"):
        Bench.open(folders[1])


def test_a_failed_move_is_sent_again(bench):
    bench.set_voltages(np.ones(HEATERS))
    SETTINGS["dead"] = ("heaters_1",)
    with pytest.raises(LinkError):
        bench.set_voltages(np.full(HEATERS, 2.0))
    np.testing.assert_array_equal(bench.voltages, np.full(HEATERS, 2.0))
    SETTINGS["dead"] = ()
    JOURNAL.clear()
    bench.set_voltages(np.full(HEATERS, 2.0))
    assert [(e[0], len(e[2])) for e in calls(what="set_voltages")] == [("heaters_1", 25)]


def test_after_a_failed_measurement_all_channels_of_that_driver_are_sent_again(bench, monkeypatch):
    bench.set_voltages(np.ones(HEATERS))

    def tripped(self):
        raise InstrumentError(f"{self.name}: a module reported over-current")

    with monkeypatch.context() as patched:
        patched.setattr(bench_fakes.FakeHeaters, "read_currents", tripped)
        with pytest.raises(InstrumentError, match="heaters_0: a module reported"):
            bench.read_heaters()
    JOURNAL.clear()
    bench.set_voltages(np.ones(HEATERS))
    assert [(e[0], len(e[2])) for e in calls(what="set_voltages")] == [("heaters_0", 64)]


def test_threads_that_set_different_heaters_do_not_undo_one_another(bench):
    heaters = range(16)

    def work(heater):
        for step in range(1, 31):
            bench.set_voltage(heater, step / 10.0)

    threads = [threading.Thread(target=work, args=(heater,)) for heater in heaters]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    np.testing.assert_array_equal(bench.voltages[:16], 3.0)


def test_a_closed_bench_refuses_everything(folder):
    with Bench.open(folder) as bench:
        pass
    for action in (
        bench.read_detectors,
        bench.read_heaters,
        bench.make_safe,
        lambda: bench.light(True),
        lambda: drive(bench),
    ):
        with pytest.raises(InstrumentError, match="is closed; open it again"):
            action()


def test_without_a_calibration_the_record_is_required_by_name(bench):
    assert bench.record is None
    with pytest.raises(CalibrationError, match="has no calibration in force; run `optinc calibrate`"):
        bench.require_record()


def test_fakes_cannot_be_simulated(folder):
    with pytest.raises(ConfigurationError, match=r"no simulated instrument for driver 'bench_fakes\.FakeMeter'"):
        Bench.open(folder, simulate=True)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner on this platform")
def test_lock_files_go_into_no_folder_that_somebody_else_has_prepared(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"optinc-hw-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="no folder of yours"):
        Bench.open(folder)
