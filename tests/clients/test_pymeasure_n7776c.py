"""pymeasure's KeysightN7776C, unmodified, on the simulated laser: over a socket and over HiSLIP."""

import contextlib

import numpy as np
import pytest
from pymeasure.instruments.keysight import KeysightN7776C

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedKeysightLaser
from simulated_instruments._hislip import HislipServer
from simulated_instruments._tcp import TcpServer

# Its authors ask users whether the laser speaks SCPI.
pytestmark = pytest.mark.filterwarnings("ignore:It is not known whether this device support SCPI:FutureWarning")

RECEIVERS_SHARE = 0.15
BOTH = pytest.mark.parametrize("bus", ["socket", "hislip"])


class Bench:
    def __init__(self, laser, chip, clock):
        self.laser, self.chip, self.clock = laser, chip, clock

    def light(self):
        """Power that enters the chip."""
        return self.chip.detector_powers().sum() / RECEIVERS_SHARE

    def errors(self):
        return self.laser.ask("syst:err?").strip()


@contextlib.contextmanager
def bench(bus):
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=clock)
    server = (HislipServer if bus == "hislip" else TcpServer)(SimulatedKeysightLaser(chip, clock), "laser")
    name = f"hislip0,{server.port}::INSTR" if bus == "hislip" else f"{server.port}::SOCKET"
    terminations = {} if bus == "hislip" else {"read_termination": "\n", "write_termination": "\n"}
    laser = None
    try:
        laser = KeysightN7776C(f"TCPIP0::127.0.0.1::{name}", visa_library="@py", timeout=5000, **terminations)
        yield Bench(laser, chip, clock)
    finally:
        if laser is not None:
            laser.close()
        server.close()


@BOTH
def test_light_is_set_and_read_back(bus):
    with bench(bus) as b:
        b.laser.locked = False
        assert b.laser.locked is False
        b.laser.wavelength = 1555.5
        assert b.laser.wavelength == pytest.approx(1555.5)
        b.laser.output_power_mW = 4.0
        assert b.laser.output_power_mW == pytest.approx(4.0)
        assert b.laser.output_power_dBm == pytest.approx(6.0206, abs=1e-4)
        b.laser.output_power_dBm = 3.0
        assert b.laser.output_power_mW == pytest.approx(1.9953, abs=1e-4)
        b.laser.output_enabled = True
        assert b.laser.output_enabled is True
        b.clock.sleep(1.0)
        assert b.light() == pytest.approx(1.9953e-3, rel=1e-4)
        b.laser.output_enabled = False
        assert b.laser.output_enabled is False
        assert b.light() == 0.0
        assert b.errors() == '+0,"No error"'


def test_a_locked_laser_stays_off():
    with bench("socket") as b:
        b.laser.locked = True
        b.laser.output_enabled = True
        assert (b.laser.locked, b.laser.output_enabled) == (True, False)
        assert b.errors().startswith("-203,")


@BOTH
def test_sweep_with_wavelength_log(bus):
    with bench(bus) as b:
        laser = b.laser
        laser.sweep_wl_start, laser.sweep_wl_stop, laser.sweep_step = 1550.0, 1551.0, 0.01
        laser.sweep_speed, laser.sweep_mode, laser.sweep_twoway = 50, "CONT", False
        assert (laser.sweep_wl_start, laser.sweep_wl_stop) == pytest.approx((1550.0, 1551.0))
        assert (laser.sweep_step, laser.sweep_speed) == pytest.approx((0.01, 50.0))
        assert (laser.sweep_mode, laser.sweep_twoway) == ("CONT", False)
        laser.trigger_out, laser.trigger_in, laser.wl_logging = "STF", "IGN", True
        assert (laser.trigger_out, laser.trigger_in, laser.wl_logging) == ("STF", "IGN", True)
        assert laser.valid_sweep_params()
        laser.sweep_state = 1
        assert laser.sweep_state == 1
        b.clock.sleep(1.0)
        assert laser.sweep_state == 0
        assert laser.sweep_points == 101
        log = laser.get_wl_data()
        np.testing.assert_allclose(log, np.linspace(1550e-9, 1551e-9, 101), atol=1e-12)
        assert laser.wl_logging is False  # it goes off by itself
        assert laser.wavelength == pytest.approx(1551.0, abs=1e-3)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sweep_wl_start": 1560.0, "sweep_wl_stop": 1550.0}, "End Wavelength <= Start"),
        ({"sweep_mode": "CONT", "sweep_step": 0.0002, "sweep_speed": 200, "trigger_out": "STF"}, "Trigger Frequency"),
        ({"sweep_mode": "CONT", "wl_logging": True, "trigger_out": "DIS"}, "Step Finished"),
        ({"sweep_mode": "STEP", "wl_logging": True, "trigger_out": "STF"}, "continuous sweep mode"),
    ],
)
def test_impossible_sweeps_have_the_numbers_that_the_client_knows(settings, reason, caplog):
    with bench("socket") as b:
        for name, value in settings.items():
            setattr(b.laser, name, value)
        assert not b.laser.valid_sweep_params()
        assert reason in caplog.text


def test_stepping_by_hand():
    with bench("socket") as b:
        laser = b.laser
        laser.sweep_wl_start, laser.sweep_wl_stop, laser.sweep_step, laser.sweep_mode = 1550.0, 1552.0, 0.5, "MAN"
        laser.sweep_state = 1
        assert laser.sweep_state == 1
        b.clock.sleep(1.0)
        visited = [laser.wavelength]
        for move in (laser.next_step, laser.next_step, laser.previous_step):
            move()
            visited.append(laser.wavelength)
        assert visited == pytest.approx([1550.0, 1550.5, 1551.0, 1550.5])
        laser.sweep_state = 0
        assert laser.sweep_state == 0
