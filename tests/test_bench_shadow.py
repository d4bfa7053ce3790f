"""A folder of the user's own that hides one of our packages is named in the error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import optinc_hw

CODE = """
from optinc_hw.errors import ConfigurationError
try:
    import optinc_hw.bench
except ImportError as error:
    assert isinstance(error, ConfigurationError)
    print("refused:", error)
else:
    print("imported")
"""


def run(folder):
    home = Path(optinc_hw.__file__).parent.parent
    environment = os.environ | {"PYTHONPATH": str(home)}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.mark.parametrize("name", ["drivers", "calibration", "simulated_instruments"])
def test_a_users_package_in_front_is_named(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise RuntimeError('must not be run')\n")
    output = run(tmp_path)
    assert f"refused: {tmp_path / name} hides the package '{name}' of optinc-hw" in output
    assert "Rename that folder or file" in output


def test_a_users_module_in_front_is_named(tmp_path):
    (tmp_path / "drivers.py").write_text("")
    assert f"refused: {tmp_path / 'drivers.py'} hides the package 'drivers'" in run(tmp_path)


def test_a_folder_without_init_does_not_shadow(tmp_path):
    """Python prefers our regular package to a namespace package, wherever that stands on the path."""
    (tmp_path / "drivers").mkdir()
    assert run(tmp_path) == "imported\n"
