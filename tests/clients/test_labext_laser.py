"""LabExT's LaserMainframeKeysight, unmodified, on simulated Keysight lasers over HiSLIP."""

import contextlib

import numpy as np
import pytest
from LabExT.Instruments.InstrumentAPI import InstrumentException
from LabExT.Instruments.LaserMainframeKeysight import LaserMainframeKeysight

from optinc_hw.clock import WallClock
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedKeysightLaser
from simulated_instruments._hislip import HislipServer

RECEIVERS_SHARE = 0.15

pytestmark = pytest.mark.usefixtures("labext_settings")


@contextlib.contextmanager
def mainframe(model="8164B"):
    """Yield the client and the chip; the client polls, so time must pass by itself."""
    clock = WallClock()
    chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=clock)
    server = HislipServer(SimulatedKeysightLaser(chip, clock, model), "laser")
    laser = LaserMainframeKeysight(f"TCPIP0::127.0.0.1::hislip0,{server.port}::INSTR", channel=0)
    try:
        laser.open()
        yield laser, chip
    finally:
        laser.close()
        server.close()


def test_identity_limits_and_settings():
    with mainframe() as (laser, _):
        assert laser.idn().startswith("Mainframe: Agilent Technologies,8164B,")
        assert "Slot0: Agilent Technologies,81600B," in laser.idn()
        assert (laser.min_lambda, laser.max_lambda) == (1441, 1639)
        laser.wavelength = 1551.25
        assert laser.wavelength == pytest.approx(1551.25)
        laser.unit = "dBm"
        laser.power = 3.0
        assert (laser.unit, laser.power) == ("dBm", pytest.approx(3.0, abs=1e-4))
        laser.unit = "Watt"
        assert (laser.unit, laser.power) == ("Watt", pytest.approx(1.9953e-3, rel=1e-4))
        parameters = laser.get_instrument_parameter()
        assert parameters["wavelength"] == pytest.approx(1551.25)


def test_what_the_laser_refuses_is_an_error_of_the_client():
    with mainframe() as (laser, _), pytest.raises(InstrumentException, match="-222"):
        laser.wavelength = 1300


@pytest.mark.parametrize("model", ["8164B", "N7776C"])
def test_whole_sweep_with_light_on_the_chip_and_its_log(model):
    with mainframe(model) as (laser, chip):
        laser.power = 6.0
        with laser:
            assert chip.detector_powers().sum() / RECEIVERS_SHARE == pytest.approx(3.981e-3, rel=1e-3)
            laser.sweep_wl_setup(1550, 1551, 10, sweep_speed_nm_per_s=40)
            assert laser.sweep_wl_get_n_points() == 101
            laser.sweep_wl_start()
            while laser.sweep_wl_busy():
                pass
            log = laser.sweep_wl_get_data()
        np.testing.assert_allclose(log, np.linspace(1550.0, 1551.0, 101), atol=1e-3)
        assert chip.detector_powers().sum() == 0.0
        assert laser.query("trig:conf?").strip() == "DEF"


def test_inconsistent_sweeps_are_refused():
    with mainframe() as (laser, _):
        with pytest.raises(InstrumentException, match="368"):
            laser.sweep_wl_setup(1560, 1550, 10)
        with pytest.raises(InstrumentException, match="371"):
            laser.sweep_wl_setup(1550, 1560, 0.5, sweep_speed_nm_per_s=80)
