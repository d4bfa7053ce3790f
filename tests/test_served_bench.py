"""A bench served by one process and driven by another: sessions that end in every way, and what the heaters saw."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from qcodes.station import Station
from typer.testing import CliRunner

from optinc_hw.bench import Bench, serve_bench, write_bench_folder
from optinc_hw.bench.write import instrument_names
from optinc_hw.cli import app
from optinc_hw.errors import ConfigurationError, InstrumentError, LinkError
from simulated_instruments import read_heater_trace

PORTS, HEATERS = 2, 11
STEP_V, INTERVAL_S = 0.25, 2e-3
DAC_V = 12.0 / 0xFFFF
READ_BACK_V = 5e-4
"""Five times the noise of a voltage that is read: a ramp starts from one where nobody knows what was set."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def write_folder(folder, names=None):
    addresses = {name: f"nowhere:{name}" for name in instrument_names(PORTS)}
    write_bench_folder(folder, PORTS, addresses)
    chip = folder / "chip.yaml"
    text = chip.read_text()
    edits = {"step_v: 2.5": f"step_v: {STEP_V}", "interval_s: 0.0002": f"interval_s: {INTERVAL_S}"}
    edits["serial_numbers: {}"] = "serial_numbers: {laser: '007'}"
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    chip.write_text(text)
    return folder


def start(*arguments, cwd):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *arguments], cwd=cwd, stdout=pipe, stderr=pipe, text=True)


@contextmanager
def served(tmp_path):
    """Serve a bench from a process of its own; yields the folder to open and the trace file."""
    write_folder(tmp_path / "bench")
    command = "from optinc_hw.cli import main; main()"
    arguments = ["simulate", "bench", "--out", "served", "--trace", "trace.csv", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stderr:
            if "serving" in line:
                break
        yield tmp_path / "served", tmp_path / "trace.csv", process
    finally:
        process.kill()
        process.communicate()


def start_sweep(folder, end):
    """A process that opens the bench and sweeps all heaters up and down until it is stopped, or does ``end``."""
    script = f"""
        import numpy as np
        from optinc_hw import Bench
        with Bench.open({str(folder)!r}) as bench:
            bench.light(True)
            for k in range(10_000):
                bench.set_voltages(np.full(len(bench.layout.heaters), 1.0 + k % 4))
                bench.read_detectors()
                if k == 2:
                    print("moving", flush=True)
                if k == 6:
                    {end}
    """
    return start("-c", textwrap.dedent(script), cwd=Path.cwd())


def by_heater(trace):
    events = {}
    for event in read_heater_trace(trace):
        events.setdefault(event.heater, []).append(event)
    return events


def check_ramps(trace):
    """Assert that no heater moved faster than chip.yaml allows; return the last voltage of each."""
    last = {}
    for heater, events in by_heater(trace).items():
        times, voltages = np.array([(e.time_s, e.voltage_v) for e in events]).T
        steps = np.abs(np.diff(voltages, prepend=0.0))
        assert steps.max() <= STEP_V + DAC_V + READ_BACK_V, heater
        moved = np.flatnonzero(steps > 0.0)
        assert np.diff(times[moved]).min() >= INTERVAL_S - 2e-6, heater
        last[heater] = voltages[-1]
    return last


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_sweeps_that_end_by_signal_exception_or_kill(tmp_path):
    with served(tmp_path) as (folder, trace, _):
        for number in SIGNALS:
            process = start_sweep(folder, "pass")
            assert process.stdout.readline() == "moving\n"
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
            assert process.returncode not in (0, None), errors
            last = check_ramps(trace)
            assert len(last) == HEATERS
            assert set(last.values()) == {0.0}, number.name

        process = start_sweep(folder, "raise ZeroDivisionError('mine')")
        _, errors = process.communicate(timeout=120)
        assert "ZeroDivisionError: mine" in errors
        assert set(check_ramps(trace).values()) == {0.0}

        process = start_sweep(folder, "pass")
        assert process.stdout.readline() == "moving\n"
        process.kill()
        process.communicate(timeout=120)
        check_start_after_kill(folder, trace)


def check_start_after_kill(folder, trace):
    """The next start reports what is on the heaters, and ramps only on command."""
    left = check_ramps(trace)
    assert all(voltage > 0.2 for voltage in left.values())
    before = len(read_heater_trace(trace))
    with Bench.open(folder) as bench:
        assert set(bench.found_at_start) == set(left)
        assert bench.found_at_start == pytest.approx(left, abs=2e-3)
    with Bench.open(folder) as bench:  # leaving the first session moved nothing either
        assert set(bench.found_at_start) == set(left)
        assert len(read_heater_trace(trace)) == before
        bench.make_safe()
    assert set(check_ramps(trace).values()) == {0.0}


def test_a_simulator_that_dies_is_a_broken_link_and_the_session_still_ends(tmp_path):
    with served(tmp_path) as (folder, _, server):
        bench = Bench.open(folder)
        bench.set_voltages(np.ones(len(bench.layout.heaters)))
        server.kill()
        server.wait()
        with pytest.raises(LinkError):
            bench.set_voltages(np.full(len(bench.layout.heaters), 1.1))
        with pytest.raises(InstrumentError, match="may not be in the safe state"):
            bench.close()


def test_ctrl_c_ends_the_server_in_peace(tmp_path):
    with served(tmp_path) as (folder, _, server):
        with Bench.open(folder) as bench:
            bench.light(True)
            assert bench.read_detectors().valid.all()
        server.send_signal(signal.SIGINT)
        output, errors = server.communicate(timeout=60)
        assert server.returncode == 0, errors
        assert "stopped" in errors
        content = json.loads(output)
        assert set(content["addresses"]) == set(instrument_names(PORTS))


def test_the_tests_of_any_bench_run_on_served_addresses(tmp_path):
    with served(tmp_path) as (folder, _, _):
        tests = Path(__file__).with_name("test_any_bench.py")
        process = start("-m", "pytest", "-q", "-p", "no:cacheprovider", "--bench", folder, tests, cwd=Path.cwd())
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
        assert "5 passed" in output


def test_the_station_file_loads_in_qcodes_and_keeps_its_comments(tmp_path):
    folder = write_folder(tmp_path / "bench")
    with serve_bench(folder, seed=4) as bench:
        bench.write_folder(tmp_path / "served")
        assert "# Instruments of the bench" in bench.station
        assert "007" not in bench.chip
        assert all("127.0.0.1" in address for address in bench.addresses.values())
        station = Station(config_file=str(tmp_path / "served" / "station.yaml"), default=False)
        laser = station.load_instrument("laser")
        assert laser.get_idn()["vendor"] == "SANTEC"
        station.close_all_registered_instruments()
        with pytest.raises(ConfigurationError, match="exists already"):
            bench.write_folder(tmp_path / "served")
    if os.name == "posix":
        assert all(Path(path).parent == Path("/dev/pts") for path in bench.terminals.values())


def test_an_instrument_that_is_not_simulated_is_left_out(tmp_path):
    folder = write_folder(tmp_path / "bench")
    station = folder / "station.yaml"
    station.write_text(station.read_text() + "  spare:\n    type: drivers.SantecTSL570\n    address: 'real'\n")
    with serve_bench(folder) as bench:
        assert "spare" not in bench.addresses
        assert "spare" not in bench.station


def test_a_script_of_faults_is_played(tmp_path):
    folder = write_folder(tmp_path / "bench")
    script = tmp_path / "faults.yaml"
    script.write_text(
        "- {fault: open_heater, heater: in_0_theta}\n- {fault: refused, instrument: laser, count: null}\n"
    )
    with serve_bench(folder, faults=script) as bench:
        bench.write_folder(tmp_path / "served")
        with pytest.raises(LinkError, match="laser"):
            Bench.open(tmp_path / "served")
    script.write_text("- {fault: open_heater, heater: in_0_theta}\n")
    with serve_bench(folder, faults=script) as bench:
        bench.write_folder(tmp_path / "served_again")
        with Bench.open(tmp_path / "served_again") as opened:
            opened.set_voltages(np.full(len(opened.layout.heaters), 2.0))
            current = opened.read_heaters().current_a
            assert abs(current[0]) < 5e-5
            assert (current[1:] > 1e-3).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {fault: meteorite}", "meteorite"),
        ("- {fault: late, instrument: nobody}", "nobody"),
        ("fault: late", "no list of mappings"),
    ],
)
def test_a_script_that_is_not_possible_is_refused(tmp_path, text, message):
    script = tmp_path / "faults.yaml"
    script.write_text(text)
    result = CliRunner().invoke(app, ["simulate", str(write_folder(tmp_path / "bench")), "--faults", str(script)])
    assert result.exit_code == 1
    assert message in result.stderr
    assert "faults.yaml" in result.stderr


def test_mistakes_are_said(tmp_path):
    folder = write_folder(tmp_path / "bench")
    result = CliRunner().invoke(app, ["simulate", str(folder), "--trace", str(tmp_path / "no" / "trace.csv")])
    assert result.exit_code == 1
    assert "trace cannot be written" in result.stderr
    result = CliRunner().invoke(app, ["simulate", str(folder), "--out", str(folder)])
    assert result.exit_code == 1
    assert "exists already" in result.stderr
