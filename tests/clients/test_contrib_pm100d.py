"""The Thorlab_PM100D of qcodes_contrib_drivers, unmodified, on a simulated PM100D.

It sleeps 5.4 s when it connects, sends ``AVER`` without its number, and cannot parse its own wavelength.
"""

import contextlib

import pytest
from qcodes_contrib_drivers.drivers.Thorlabs.PM100D import Thorlab_PM100D

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, SimulatedThorlabsPM
from simulated_instruments._tcp import TcpServer


def test_power_range_and_attenuation():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    server = TcpServer(SimulatedThorlabsPM("m", chip, {0: 0}, clock), "m")
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        meter = Thorlab_PM100D("pm100d", f"TCPIP0::127.0.0.1::{server.port}::SOCKET", visalib="@py")
        stack.callback(meter.close)
        assert meter.get_idn()["model"] == "PM100D"
        assert meter.ask("SYST:ERR?") == '-109,"Missing parameter"'  # its bare AVER
        meter._check_error()
        expected = (chip.parameters.gain * chip.detector_powers())[0]
        assert meter.power() == pytest.approx(expected, rel=0.02)
        meter.wavelength(1310e-9)
        assert meter.ask("SENS:CORR:WAV?") == "1.31000000E+03"
        meter.power_range(1e-3)
        assert meter.power_range() == 5e-3
        assert meter.auto_range() is False
        meter.attenuation(10)
        assert meter.attenuation() == 10.0
        assert meter.power() == pytest.approx(10 * expected, rel=0.02)
        assert meter.current() == pytest.approx(10 * expected, rel=0.02)  # 1 A/W
        assert meter.zero_value() == 0.0
        meter._check_error()
