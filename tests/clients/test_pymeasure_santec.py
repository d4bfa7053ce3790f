"""pymeasure's Santec TSL550 and TSL570, unmodified, on the simulated lasers."""

import contextlib

import pytest
from driver_cases import DriverCase, simulated
from pymeasure.instruments.santec import TSL550, TSL570
from pymeasure.instruments.santec.tsl500series import SweepMode, SweepPattern, SweepRouting, SweepStatus

from drivers import SantecTSL570

LIGHT_SPEED = 299_792_458.0


@contextlib.contextmanager
def client(model, kind):
    """Open a pymeasure laser on a simulated one; yields it, the chip and the clock."""
    case = DriverCase(model, SantecTSL570, "laser", init={}, options={"model": model})
    with simulated(case) as (bench, chip, clock):
        laser = kind(
            bench.addresses["device"], visa_library="@py", read_termination="\r", write_termination="\r", timeout=5000
        )
        try:
            yield laser, chip, clock
        finally:
            laser.adapter.close()


def settle(laser):
    """Wait until the laser has handled everything sent so far: it answers in order."""
    laser.ask("*OPC?")


@pytest.fixture(params=[("TSL-550", TSL550), ("TSL-570", TSL570), ("TSL-710", TSL550), ("TSL-770", TSL570)])
def opened(request):
    with client(*request.param) as found:
        yield found


@pytest.fixture
def laser(opened):
    return opened[0]


def test_identity(request, laser):
    assert laser.id.startswith("SANTEC,TSL-")


def test_power(laser):
    for unit, value in (("dBm", 6.5), ("mW", 2.5)):
        laser.power_unit = unit
        assert laser.power_unit == unit
        laser.power_setpoint = value
        assert laser.power_setpoint == pytest.approx(value)
    assert laser.power < 1e-3  # dark
    laser.write(":POW:STAT 1")
    assert laser.power == pytest.approx(2.5)
    assert laser.check_errors() == []


def test_a_power_out_of_range_is_an_error_of_the_set(laser, caplog):
    laser.power_setpoint = 14.0
    assert "-222" in caplog.text
    assert laser.power_setpoint == 0.0


def test_wavelength_and_frequency(laser):
    laser.wavelength_setpoint = 1545.5
    assert laser.wavelength_setpoint == pytest.approx(1545.5, abs=1e-4)
    assert laser.frequency_setpoint == pytest.approx(LIGHT_SPEED / 1545.5e-9 * 1e-12, abs=1e-5)
    laser.frequency_setpoint = 194.0
    assert laser.frequency_setpoint == pytest.approx(194.0)
    assert laser.wavelength_setpoint == pytest.approx(LIGHT_SPEED / 194e12 * 1e9, abs=1e-4)


def test_sweep_settings(laser):
    laser.wavelength_start, laser.wavelength_stop, laser.wavelength_step = 1540.0, 1541.5, 0.25
    assert (laser.wavelength_start, laser.wavelength_stop, laser.wavelength_step) == (1540.0, 1541.5, 0.25)
    laser.frequency_start, laser.frequency_stop, laser.frequency_step = 194.0, 195.0, 0.5
    found = laser.frequency_start, laser.frequency_stop, laser.frequency_step
    assert found == pytest.approx((194.0, 195.0, 0.5))
    for mode in SweepMode:
        laser.sweep_mode = mode
        assert laser.sweep_mode is mode
    laser.sweep_pattern, laser.sweep_routing = SweepPattern.STEPPED, SweepRouting.ONE_WAY
    assert (laser.sweep_pattern, laser.sweep_routing) == (SweepPattern.STEPPED, SweepRouting.ONE_WAY)
    assert laser.sweep_mode is SweepMode.STEPPED_ONE_WAY
    laser.sweep_speed, laser.sweep_dwell, laser.sweep_delay, laser.sweep_cycles = 20, 0.5, 5, 7
    assert (laser.sweep_speed, laser.sweep_dwell, laser.sweep_delay, laser.sweep_cycles) == (20, 0.5, 5, 7)
    assert laser.check_errors() == []


def test_a_sweep(opened):
    laser, _, clock = opened
    laser.wavelength_start, laser.wavelength_stop, laser.sweep_speed = 1550.0, 1552.0, 2
    laser.sweep_mode, laser.sweep_cycles = SweepMode.CONTINUOUS_ONE_WAY, 2
    assert laser.sweep_status is SweepStatus.STOPPED
    laser.start_sweep()
    assert laser.sweep_status is SweepStatus.PREPARATION_FOR_SWEEP_START
    clock.sleep(0.55)  # it stood at the start already; half a second at 2 nm/s
    assert laser.sweep_status is SweepStatus.RUNNING
    assert laser.wavelength_setpoint == pytest.approx(1551.0, abs=0.02)
    assert laser.sweep_count == 0
    clock.sleep(10.0)
    assert laser.sweep_status is SweepStatus.STOPPED
    assert laser.sweep_count == 2
    laser.start_repeat()
    settle(laser)
    clock.sleep(100.0)
    assert laser.sweep_status is SweepStatus.RUNNING
    laser.stop_sweep()
    assert laser.sweep_status is SweepStatus.STOPPED


def test_diode_and_shutter_of_the_550():
    with client("TSL-550", TSL550) as (laser, chip, clock):
        assert (laser.laser_enabled, laser.output_enabled) == (False, False)
        laser.laser_enabled = True
        laser.output_enabled = True
        assert (laser.laser_enabled, laser.output_enabled) == (True, True)
        clock.sleep(1.0)
        lit = chip.detector_powers().sum()
        laser.output_enabled = False
        settle(laser)
        assert chip.detector_powers().sum() < 1e-6 * lit


def test_speeds_between_those_of_the_570_on_the_550():
    with client("TSL-550", TSL550) as (laser, _, _):
        laser.sweep_speed = 0.5
        assert laser.sweep_speed == 0.5
        laser.sweep_speed = 33.34
        assert laser.sweep_speed == 33.3


def test_metres_and_hertz_of_the_scpi_command_set():
    with client("TSL-770", TSL570) as (laser, _, _):
        laser.output_enabled = True
        assert laser.output_enabled is True
        assert laser.command_set == "Legacy"
        laser.command_set = "SCPI"
        assert laser.command_set == "SCPI"
        assert (laser.wavelength_min, laser.wavelength_max) == (1.48e-6, 1.64e-6)
        found = laser.frequency_min, laser.frequency_max
        assert found == pytest.approx((LIGHT_SPEED / 1.64e-6, LIGHT_SPEED / 1.48e-6), rel=1e-8)
        laser.wavelength_setpoint = 1.55e-6
        assert laser.wavelength_setpoint == pytest.approx(1.55e-6, abs=1e-13)
        laser.frequency_setpoint = 2e14
        assert laser.frequency_setpoint == pytest.approx(2e14, abs=1e7)
        laser.wavelength_start, laser.wavelength_stop, laser.wavelength_step = 1.5e-6, 1.6e-6, 1e-9
        assert (laser.wavelength_start, laser.wavelength_stop, laser.wavelength_step) == (1.5e-6, 1.6e-6, 1e-9)
        laser.frequency_start, laser.frequency_stop, laser.frequency_step = 1.9e14, 2e14, 1e12
        found = laser.frequency_start, laser.frequency_stop, laser.frequency_step
        assert found == pytest.approx((1.9e14, 2e14, 1e12), rel=1e-8)
        assert laser.check_errors() == []
