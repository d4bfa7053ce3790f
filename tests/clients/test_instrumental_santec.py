"""instrumental-lib's TSL570 (GPL: run here, nothing of it is copied), unmodified, on the simulated laser.

It switches the laser to the Legacy set when it opens. Not asked here: amplitude modulation and wavelength offset, which
nothing else documents.
"""

import contextlib
import importlib

import numpy as np
import pytest
from driver_cases import DriverCase, simulated

from drivers import SantecTSL570


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Import their module, which writes a configuration file for the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("APPDATA", str(tmp_path_factory.mktemp("appdata")))
        return importlib.import_module("instrumental.drivers.lasers.santec")


@pytest.fixture
def opened(theirs, monkeypatch):
    monkeypatch.setenv("PYVISA_LIBRARY", "@py")
    case = DriverCase("TSL-570", SantecTSL570, "laser", init={}, options={"model": "TSL-570"})
    with simulated(case) as (bench, chip, clock), contextlib.ExitStack() as stack:
        laser = theirs.TSL570(visa_address=bench.addresses["device"])
        stack.callback(laser.resource.close)  # their own close() does nothing
        yield laser, chip, clock


@pytest.fixture
def laser(opened):
    return opened[0]


def settle(laser):
    """Wait until the laser has handled everything sent so far: it answers in order."""
    laser.query("*OPC?")


def test_identity_and_system(theirs, laser):
    assert (laser.manufacturer, laser.model) == ("SANTEC", "TSL-570")
    assert laser.communication_format is theirs.SantecMessageFormat.Legacy
    assert laser.system_error == '0,"No error"'
    assert laser.external_interlock is theirs.IsEnabled.Disabled
    laser.gpib_address = 5
    assert laser.gpib_address == 5
    laser.ip_address = "10.1.2.3"
    assert laser.ip_address == "10.1.2.3"
    assert laser.ip_port == 5000
    laser.display_brightness = 40
    assert laser.display_brightness == 40
    assert laser.query("SYST:ERR?") == '0,"No error"'


def test_light(theirs, laser):
    laser.output_wavelength = 1545.5 * theirs.u.nm
    assert laser.output_wavelength.m_as("nm") == pytest.approx(1545.5)
    laser.optical_frequency = theirs.Q_(194.0, "THz")
    assert laser.optical_frequency.m_as("THz") == pytest.approx(194.0)
    laser.wavelength_fine_tuning = -12.25
    assert laser.wavelength_fine_tuning == -12.25
    laser.disable_wavelength_fine_tuning()
    laser.power_setpoint = theirs.Q_(3.25, "dBm")
    assert laser.power_setpoint.m_as("dBm") == pytest.approx(3.25)
    for name in ("coherence_control", "output_on", "auto_attenuation"):
        setattr(laser, name, theirs.IsEnabled.Enabled)
        assert getattr(laser, name) is theirs.IsEnabled.Enabled
    assert laser.power_measured.m_as("dBm") == pytest.approx(3.25)
    laser.output_attenuation = theirs.Q_(7.5, "decibel")
    assert laser.output_attenuation.m_as("decibel") == 7.5
    laser.shutter = theirs.IsEnabled.Disabled
    assert laser.shutter is theirs.IsEnabled.Disabled
    laser.power_unit = theirs.PowerUnit.mW
    assert laser.power_unit is theirs.PowerUnit.mW
    assert laser.query("SYST:ERR?") == '0,"No error"'


def test_a_triggered_sweep_with_its_log(theirs, opened):
    laser, _, clock = opened
    laser.power_setpoint = theirs.Q_(5.0, "dBm")
    laser.output_on = theirs.IsEnabled.Enabled
    laser.configure_continuous_sweep(
        1550.0 * theirs.u.nm,
        1552.0 * theirs.u.nm,
        sweep_delay_time=0.5 * theirs.u.second,
        output_trigger_step=0.01 * theirs.u.nm,
    )
    assert laser.query("SYST:ERR?") == '0,"No error"'
    laser.write("WAV 1550")
    settle(laser)
    clock.sleep(1.0)
    laser.arm_input_trigger(sleep_time=0.0 * theirs.u.second)
    laser.write("WAVelength:SWEep:STATe 1")
    settle(laser)
    clock.sleep(1.0)
    assert laser.sweep_state is theirs.SweepState.Standby
    laser.software_trigger()
    assert laser.sweep_state is theirs.SweepState.Running
    clock.sleep(1.0)
    assert laser.sweep_state is theirs.SweepState.Stopped
    assert laser.sweep_cycle_count == 1
    assert laser.num_log_points == 201
    wavelengths = laser.read_wavelength_data().m_as("nm")
    np.testing.assert_allclose(wavelengths, np.linspace(1550.0, 1552.0, 201), atol=1e-4)
    laser.resource.read_raw()  # it leaves the terminator of the block unread
    powers = laser.read_power_data()
    np.testing.assert_allclose(np.asarray(powers.magnitude), 5.0, atol=1e-6)
    laser.resource.read_raw()
    assert laser.query("SYST:ERR?") == '0,"No error"'
