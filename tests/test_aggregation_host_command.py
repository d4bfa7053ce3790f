"""The command that shares a chip: what it serves, what it refuses, and that it leaves the bench safe."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from chip_hosts import TOKEN, codes_of
from typer.testing import CliRunner

import optinc_hw
from optinc_hw.aggregation import BenchExecutor, ChipHostError, RemoteExecutor, TwinExecutor
from optinc_hw.bench import Bench, BenchTileRunner, TwinTileRunner
from optinc_hw.cli import app
from optinc_hw.clock import SimulatedClock
from optinc_hw.onn import CellChain, build_cell, build_exact, quantised_mean, save_network

COMMAND = [sys.executable, "-c", "from optinc_hw.cli import main; main()"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def record(calibrated, tmp_path):
    path = tmp_path / "record.json"
    calibrated.record.save(path)
    return path


def during(monkeypatch, call):
    """Have ``call(address)`` made while the command serves, and the command end then."""
    addresses, found = [], []
    shown = "optinc_hw.cli._host_command"
    echo = f"{shown}.typer.echo"

    def remember(text, **options):
        addresses.append(text)

    monkeypatch.setattr(echo, remember)
    monkeypatch.setattr(f"{shown}.wait_for_interrupt", lambda: found.append(call(addresses[0])))
    return found


def test_a_bench_is_served_and_left_dark_and_cold(calibrated, tmp_path, monkeypatch):
    from simulated_instruments import HiddenChip

    chips = []
    make = HiddenChip.from_seed

    def remember(*arguments, **options):
        chips.append(make(*arguments, **options))
        return chips[-1]

    folder = tmp_path / "bench"
    assert run("init", folder, "--ports", 4).exit_code == 0
    network = build_exact(4, 8)
    with Bench.open(folder, simulate=True, seed=1) as bench:
        bench.save_record(calibrated.record)
        wanted = BenchExecutor(network, BenchTileRunner(bench)).run(codes_of(3, elements=1))
    monkeypatch.setattr(HiddenChip, "from_seed", remember)

    def use(address):
        with RemoteExecutor(address) as remote:
            answers = remote.run(codes_of(3, elements=1))
        (chip,) = chips
        heaters = range(len(chip.layout.heaters))
        return answers, max(chip.heater_voltage(heater) for heater in heaters), chip.detector_powers().max()

    found = during(monkeypatch, use)
    result = run("host", folder, "--simulate", "--seed", 1)
    assert result.exit_code == 0, result.output
    ((answers, voltage, power),) = found
    assert np.array_equal(answers, wanted)
    assert voltage > 0.1
    assert power > 1e-7
    (chip,) = chips
    assert max(chip.heater_voltage(heater) for heater in range(len(chip.layout.heaters))) == 0.0
    assert chip.detector_powers().max() == 0.0


@pytest.mark.parametrize("network", [build_exact(2, 4), CellChain(build_cell(4, 1), 4, 4)], ids=["network", "chain"])
def test_a_network_file_and_a_token_are_used(record, calibrated, tmp_path, monkeypatch, network):
    file, secret = tmp_path / "network.safetensors", tmp_path / "token"
    save_network(network, file, {})
    secret.write_text(f"{TOKEN}\n")
    codes = np.random.default_rng(0).integers(0, 16, (50, network.servers))

    def use(address):
        with pytest.raises(ChipHostError, match="needs a token"):
            RemoteExecutor(address)
        with RemoteExecutor(address, TOKEN) as remote:
            return remote.run(codes)

    found = during(monkeypatch, use)
    result = run("host", "--twin", record, "--network", file, "--token-file", secret, "--seed", 5)
    assert result.exit_code == 0, result.output
    twin = TwinTileRunner(calibrated.record, np.random.default_rng(5))
    assert np.array_equal(found[0], TwinExecutor(network, twin).run(codes))


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ([], 2, "either a bench folder or --twin"),
        (["bench", "--twin", "RECORD"], 2, "either a bench folder or --twin"),
        (["--twin", "RECORD", "--address", "0.0.0.0"], 1, "give a token"),
        (["--twin", "RECORD", "--token-file", "SHORT"], 1, "at least 16"),
        (["--twin", "RECORD", "--network", "RECORD", "--bits", "8"], 2, "its own servers"),
        (["--twin", "RECORD", "--network", "SHORT"], 1, "SHORT"),
        (["--twin", "SHORT"], 1, "SHORT"),
        (["bench"], 2, "--yes"),
    ],
)
def test_what_cannot_be_served_is_said(record, tmp_path, arguments, code, reason):
    short = tmp_path / "SHORT"
    short.write_text("short\n")
    places = {"RECORD": record, "SHORT": short}
    result = run("host", *(places.get(argument, argument) for argument in arguments))
    assert result.exit_code == code
    assert result.stdout == ""
    assert reason in " ".join(result.stderr.replace("│", "").split())


@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_and_tells_its_clients(record, number):
    environment = os.environ | {"PYTHONPATH": str(Path(optinc_hw.__file__).parent.parent)}
    command = [*COMMAND, "host", "--twin", str(record), "--json"]
    with subprocess.Popen(command, env=environment, stdout=-1, stderr=-1, text=True) as process:
        lines = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1]
        content = json.loads("".join(lines))
        assert {name: content[name] for name in ("executor", "servers", "bits", "inputs")} == {
            "executor": "TwinExecutor", "servers": 4, "bits": 8, "inputs": 4,
        }  # fmt: skip
        codes = codes_of(1)
        with RemoteExecutor(content["address"], clock=SimulatedClock()) as remote:
            assert len(remote.run(codes)) == len(quantised_mean(codes))
            process.send_signal(number)
            _, shown = process.communicate(timeout=60)
            with pytest.raises(ChipHostError, match="cannot be reached") as caught:
                remote.run(codes)
    assert caught.value.outcome == "not_done"
    assert process.returncode == 0
    assert "5 elements" in shown
    assert "Traceback" not in shown
