"""The bench end to end: drivers, wire protocols, simulated instruments, one hidden chip."""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from qcodes.station import Station

import optinc_hw
from drivers._serial_port import _SocketSerial
from optinc_hw._files import write_text
from optinc_hw.bench import Bench, PhotonicChip, check_bench, instrument_names, write_bench_folder
from optinc_hw.clock import SimulatedClock, WallClock
from optinc_hw.errors import CalibrationError, ConfigurationError, InstrumentError, LimitError, LinkError
from simulated_instruments import HiddenChip, SimulatedBench, default_bench

HOME = Path(optinc_hw.__file__).parent.parent
EXAMPLE = HOME / "examples" / "benches" / "eight_ports"


@pytest.fixture
def folder(tmp_path):
    """Two-port bench folder with placeholder addresses."""
    place = tmp_path / "bench"
    write_bench_folder(place, 2, {name: f"placeholder:{name}" for name in instrument_names(2)})
    return place


def test_one_measurement_of_the_default_chip():
    with Bench.simulated(ports=8, seed=0) as bench:
        dark = bench.read_detectors()
        bench.light(True)
        rng = np.random.default_rng(1)
        voltages = bench.interlock.voltage(rng.uniform(0.0, 0.04, 89))
        bench.set_voltages(voltages)
        bench.settle()
        first, second = bench.read_detectors(), bench.read_detectors()
        measured = bench.read_heaters()
        assert bench.readings == 3
        assert not bench.found_at_start
    assert first.power_w.shape == first.valid.shape == (16,)
    assert dark.valid.all()
    assert first.valid.all()
    assert np.abs(dark.power_w).max() < 1e-7
    assert first.power_w.min() > 1e-6
    np.testing.assert_allclose(second.power_w, first.power_w, rtol=0.02)
    np.testing.assert_allclose(measured.voltage_v, voltages, atol=2e-3)
    np.testing.assert_allclose(voltages[voltages > 2] / measured.current_a[voltages > 2], 1230.0, rtol=0.1)


def read_once(seed):
    with Bench.simulated(ports=2, seed=seed) as bench:
        bench.light(True)
        bench.set_voltages(np.linspace(1.0, 4.0, len(bench.layout.heaters)))
        bench.settle()
        return bench.read_detectors().power_w


def test_same_seed_same_bytes_other_seed_other_chip():
    first = read_once(3)
    np.testing.assert_array_equal(read_once(3), first)
    assert np.abs(read_once(4) / first - 1.0).max() > 0.05


def test_simulated_outputs_are_safe_on_command_and_limits_hold():
    with Bench.simulated(ports=2) as bench:
        count = len(bench.layout.heaters)
        bench.set_voltages(np.full(count, 3.0))
        with pytest.raises(LimitError):
            bench.set_voltages(np.full(count, 9.9))
        np.testing.assert_allclose(bench.read_heaters().voltage_v, 3.0, atol=2e-3)
        bench.make_safe()
        np.testing.assert_allclose(bench.read_heaters().voltage_v, 0.0, atol=2e-3)
        bench.set_voltages(np.full(count, 1.0))
        np.testing.assert_allclose(bench.read_heaters().voltage_v, 1.0, atol=2e-3)


def test_simulating_a_users_folder_changes_no_file_of_it(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with Bench.open(folder, simulate=True) as bench:
        bench.light(True)
        assert isinstance(bench.clock, SimulatedClock)
        assert bench.station.components["heaters_0"].address.startswith("simulated://")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_simulated_calibration_is_kept_apart_from_the_real_one(folder):
    from test_bench_record import make_record

    before = (folder / "chip.yaml").read_bytes()
    with Bench.open(folder, simulate=True, seed=5) as bench:
        path = bench.save_record(make_record(ports=2))
    assert path == folder / "calibration_simulated_5.json"
    assert (folder / "chip.yaml").read_bytes() == before
    with Bench.open(folder, simulate=True, seed=5) as bench:
        assert bench.require_record() == bench.record
    with Bench.open(folder, simulate=True, seed=6) as bench, pytest.raises(CalibrationError):
        bench.require_record()


def test_the_bench_offers_no_way_to_the_hidden_chip():
    with Bench.simulated(ports=2) as bench:
        names = [name for name in dir(bench) if not name.startswith("_")]
        assert "hidden_chip" not in names
        for name in names:
            assert not isinstance(getattr(bench, name), HiddenChip | SimulatedBench)


def test_the_chip_as_a_qcodes_instrument_sees_the_light_move():
    with Bench.simulated(ports=2) as bench:
        chip = PhotonicChip("chip", bench=bench)
        chip.light(True)
        seen = []
        for power in np.linspace(0.0, 0.04, 5):
            chip.in_0_theta.power(power)
            seen.append(chip.powers())
        chip.close()
    assert np.ptp(np.array(seen), axis=0).max() > 1e-5


def test_importing_the_bench_loads_no_instrument_library():
    code = """
        import sys, optinc_hw.bench
        heavy = {"qcodes", "pyvisa", "serial", "matplotlib", "pandas", "simulated_instruments", "drivers"}
        print(sorted(heavy & set(sys.modules)))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_shipped_example_is_what_the_writer_makes(tmp_path):
    report = check_bench(EXAMPLE)
    write_bench_folder(tmp_path / "again", 8, {row.name: str(row.address) for row in report.instruments})
    for name in ("station.yaml", "chip.yaml"):
        assert (tmp_path / "again" / name).read_text() == (EXAMPLE / name).read_text()


def test_the_shipped_example_runs_simulated(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "bench")
    with Bench.open(tmp_path / "bench", simulate=True) as bench:
        assert bench.read_detectors().power_w.shape == (16,)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "heaters_0, channel: 8}",
            "heaters_0, channel: 16}",
            "'heaters_0' has no channel 16; it has 16, counted from 0",
        ),
        ("meter_plus_0, port: 1}", "meter_plus_0, port: 8}", "'meter_plus_0' has no port 8; it has 8, counted from 0"),
    ],
)
def test_channels_out_of_range_are_found_without_connecting(folder, old, new, message):
    path = folder / "chip.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigurationError) as caught:
        check_bench(folder)
    assert message in str(caught.value)


@pytest.mark.parametrize("modules", ["zero", "0", "true"])
def test_a_size_that_is_no_number_is_named(folder, modules):
    path = folder / "station.yaml"
    path.write_text(path.read_text().replace("modules: 2", f"modules: {modules}"))
    with pytest.raises(
        ConfigurationError, match=r"instruments\.heaters_0\.init\.modules: .* is not a number of modules"
    ):
        check_bench(folder)


@pytest.fixture
def served(folder):
    """The folder with the addresses of instruments that outlive a bench session, as real ones do."""
    clock = WallClock()
    instruments, wiring = default_bench(2)
    with SimulatedBench(HiddenChip.from_seed(0, 2, clock=clock), instruments, wiring, clock) as simulated:
        text = (folder / "station.yaml").read_text()
        for name, address in simulated.addresses.items():
            text = text.replace(f"placeholder:{name}", address)
        write_text(folder / "station.yaml", text)
        yield folder


def test_a_plain_qcodes_session_loads_the_station(served):
    station = Station(config_file=str(served / "station.yaml"), default=False, use_monitor=False)
    for name in instrument_names(2):
        station.load_instrument(name)
    assert station.components["heaters_0"].channels[3].voltage() == pytest.approx(0.0, abs=2e-3)
    station.close_all_registered_instruments()


def test_after_a_kill_the_next_start_reports_and_changes_nothing(served):
    code = f"""
        import numpy as np, os, signal
        from optinc_hw.bench import Bench
        bench = Bench.open({str(served)!r})
        bench.set_voltages(np.full(len(bench.layout.heaters), 2.0))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=HOME, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    for _ in range(2):  # looking does not change what is there
        with Bench.open(served) as bench:
            found = bench.found_at_start
            assert set(found) == set(bench.layout.heaters)
            np.testing.assert_allclose(list(found.values()), 2.0, atol=2e-3)
    with Bench.open(served) as bench:
        bench.make_safe()
        assert bench.found_at_start
    with Bench.open(served) as bench:
        assert bench.found_at_start == {}


def test_leaving_a_session_leaves_outputs_at_zero(served):
    with Bench.open(served) as bench:
        bench.light(True)
        bench.set_voltages(np.full(len(bench.layout.heaters), 2.0))
    with Bench.open(served) as bench:
        assert bench.found_at_start == {}
        assert np.abs(bench.read_detectors().power_w).max() < 1e-7


class Relay:
    """Passes bytes between one client and an instrument until it is cut."""

    def __init__(self, port):
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._sockets = [self._server]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            client, _ = self._server.accept()
            instrument = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, instrument]
            for ends in ((client, instrument), (instrument, client)):
                self._threads.append(threading.Thread(target=self._pump, args=ends))
                self._threads[-1].start()

    def _pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                sink.sendall(data)

    def cut(self):
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join()


def session_with_cut_link(folder, relay):
    with Bench.open(folder) as bench:
        bench.light(True)
        bench.set_voltages(np.full(len(bench.layout.heaters), 2.0))
        assert bench.read_detectors().power_w.max() > 1e-6
        relay.cut()


def test_a_dead_heater_link_leaves_the_light_off_and_is_reported(served):
    path = served / "station.yaml"
    text = path.read_text()
    port = int(re.search(r"'socket://127\.0\.0\.1:(\d+)'", text)[1])
    relay = Relay(port)
    path.write_text(text.replace(f"'socket://127.0.0.1:{port}'", f"'socket://127.0.0.1:{relay.port}'"))
    with pytest.raises(InstrumentError, match=r"may not be in the safe state; all others are.*heaters_0") as caught:
        session_with_cut_link(served, relay)
    assert "laser" not in str(caught.value)
    path.write_text(text)
    with Bench.open(served) as bench:
        assert set(bench.found_at_start) == set(bench.layout.heaters)
        assert np.abs(bench.read_detectors().power_w).max() < 1e-7
        bench.make_safe()


@pytest.mark.parametrize("place", ["between two steps of a ramp", "in the middle of an exchange"])
def test_an_interrupted_move_ends_safe(served, monkeypatch, place):
    def interrupted_move(bench):
        owner, name = (bench.clock, "sleep") if place.startswith("between") else (_SocketSerial, "receive")
        original = getattr(owner, name)
        with monkeypatch.context() as patch:

            def interrupt(*_):
                patch.setattr(owner, name, original)
                raise KeyboardInterrupt

            patch.setattr(owner, name, interrupt)
            bench.set_voltages(np.full(len(bench.layout.heaters), 6.0))

    def session():
        with Bench.open(served) as bench:
            bench.light(True)
            bench.set_voltages(np.full(len(bench.layout.heaters), 2.0))
            interrupted_move(bench)

    with pytest.raises(KeyboardInterrupt):
        session()
    with Bench.open(served) as bench:
        assert bench.found_at_start == {}
        assert np.abs(bench.read_detectors().power_w).max() < 1e-7


def test_an_unreachable_instrument_is_named(served):
    path = served / "station.yaml"
    text = path.read_text()
    path.write_text(re.sub(r"'socket://127\.0\.0\.1:\d+'", "'socket://127.0.0.1:1'", text))
    with pytest.raises(LinkError, match=r"heaters_0.*socket://127\.0\.0\.1:1"):
        Bench.open(served)
    path.write_text(text)
    with Bench.open(served):
        pass
