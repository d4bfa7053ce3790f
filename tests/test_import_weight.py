"""What importing a package loads: nothing heavy for a training node, no thread, no file written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import optinc_hw

HOME = Path(optinc_hw.__file__).parent.parent
INSTRUMENTS = ["qcodes", "pyvisa", "pyvisa_py", "serial", "drivers", "simulated_instruments"]
HEAVY = [*INSTRUMENTS, "torch", "pandas", "matplotlib", "scipy", "xarray", "sklearn"]

CODE = """
import json, sys, threading
import {module}
print(json.dumps([sorted(set(sys.modules) & set({forbidden!r})), [t.name for t in threading.enumerate()]]))
"""


def loaded(module, forbidden):
    command = [sys.executable, "-c", CODE.format(module=module, forbidden=forbidden)]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", ["optinc_hw", "optinc_hw.errors", "optinc_hw.units", "optinc_hw.clock"])
def test_the_top_package_is_light(module):
    assert loaded(module, [*HEAVY, "numpy", "pydantic"]) == [[], ["MainThread"]]


@pytest.mark.parametrize("module", ["optinc_hw.onn", "optinc_hw.interconnect", "optinc_hw.interconnect.comparison"])
def test_layouts_networks_and_schedules_need_no_torch_at_import(module):
    assert loaded(module, HEAVY) == [[], ["MainThread"]]


@pytest.mark.parametrize("module", ["optinc_hw.aggregation", "optinc_hw.bench", "optinc_hw.photonics"])
def test_a_training_node_loads_no_instrument_library(module):
    forbidden = [*INSTRUMENTS, "pandas", "matplotlib", "sklearn"]
    assert loaded(module, forbidden) == [[], ["MainThread"]]


def test_hardware_users_do_not_load_the_simulation():
    assert loaded("calibration, drivers, optinc_hw.bench", ["simulated_instruments", "sklearn"])[0] == []
