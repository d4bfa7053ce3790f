"""The optinc command as a process: what it imports, Ctrl-C, and folders that hide our packages."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

import optinc_hw
from optinc_hw.bench import Bench
from optinc_hw.cli import app

COMMAND = [sys.executable, "-c", "from optinc_hw.cli import main; main()"]
HEAVY = ("numpy", "torch", "qcodes", "pandas", "matplotlib", "pyvisa", "xarray", "simulated_instruments", "calibration")


def environment():
    return os.environ | {"PYTHONPATH": str(Path(optinc_hw.__file__).parent.parent)}


def test_help_imports_nothing_heavy():
    code = f"import sys, optinc_hw.cli; print([name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_folder_that_hides_our_package_is_named(tmp_path):
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "__init__.py").write_text("raise RuntimeError('must not be run')\n")
    for arguments in (["check", "bench"], ["demo"], ["doctor"]):
        command = [*COMMAND, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert f"{tmp_path / 'calibration'} hides the package 'calibration' of optinc-hw" in done.stderr
        assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_running_calibration_with_130(tmp_path):
    assert CliRunner().invoke(app, ["init", str(tmp_path / "bench"), "--ports", "4"]).exit_code == 0
    command = [*COMMAND, "calibrate", "bench", "--simulate"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=-1, stderr=-1, text=True)
    with process:
        for line in process.stderr:
            if "phase curves" in line:  # heaters and light are up
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.stdout.read() == ""
    assert process.returncode == 130
    assert "interrupted" in rest
    assert "safe state" in rest
    assert "Traceback" not in rest
    assert not list((tmp_path / "bench").glob("calibration*.json"))


def test_ctrl_c_leaves_the_chip_dark_and_cold(tmp_path, monkeypatch):
    from simulated_instruments import HiddenChip

    chips = []
    make = HiddenChip.from_seed

    def remember(*arguments, **options):
        chips.append(make(*arguments, **options))
        return chips[-1]

    def interrupted(bench: Bench, **_):
        bench.light(on=True)
        bench.set_voltages(bench.max_voltage * 0.2)
        bench.settle()
        (chip,) = chips
        assert chip.heater_voltage(3) > 1.0
        assert chip.detector_powers().max() > 1e-6
        raise KeyboardInterrupt

    monkeypatch.setattr(HiddenChip, "from_seed", remember)
    monkeypatch.setattr("calibration.calibrate", interrupted)
    folder = tmp_path / "bench"
    CliRunner().invoke(app, ["init", str(folder), "--ports", "2"])
    result = CliRunner().invoke(app, ["calibrate", str(folder), "--simulate"])
    assert result.exit_code == 130
    (chip,) = chips
    assert max(chip.heater_voltage(heater) for heater in range(len(chip.layout.heaters))) == 0.0
    assert chip.detector_powers().max() == 0.0
