"""The meter client of labmcp-thorlabs-pm, unmodified, on simulated Thorlabs meters."""

import contextlib

import pytest
from labmcp import InstrumentProtocolError
from labmcp.transports.tcp import TCPTransport
from labmcp_thorlabs_pm.driver import ThorlabsPowerMeter

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, SimulatedThorlabsPM
from simulated_instruments._tcp import TcpServer

MODELS = ["PM100D", "PM100USB", "PM101", "PM400"]


class Hurried(SimulatedClock):
    """Time that passes while it is looked at, for a client that waits on its own clock."""

    def now(self):
        self.sleep(0.3)
        return super().now()


@contextlib.contextmanager
def meter_on(clock=None, **options):
    clock = clock or SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    server = TcpServer(SimulatedThorlabsPM("m", chip, {0: 0}, clock, **options), "m")
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        meter = ThorlabsPowerMeter(TCPTransport("127.0.0.1", server.port))
        stack.callback(meter.close)
        yield meter, chip


@pytest.mark.parametrize("model", MODELS)
def test_settings_and_power(model):
    with meter_on(model=model) as (meter, chip):
        assert meter.identify()["sensor"] == "S155C"
        assert (meter.sensor().type_name, meter.sensor().measures_power) == ("photodiode", True)
        assert meter.power_unit() == "W"
        assert meter.wavelength_range_nm() == (800.0, 1700.0)
        assert meter.set_wavelength_nm(1310.2) == 1310.0
        assert meter.set_averaging(100) == 100
        assert meter.range_limits_w() == (5e-8, 2e-2)
        expected = (chip.parameters.gain * chip.detector_powers())[0]
        assert meter.power_w() == pytest.approx(expected, rel=0.02)
        meter.command("SENS:POW:UNIT DBM")
        assert meter.power_w() == pytest.approx(expected, rel=0.02)  # it converts levels
        assert meter.auto_range()
        assert meter.set_range_w(1e-6) == 5e-6
        assert not meter.auto_range()
        with pytest.raises(InstrumentProtocolError, match="out of the measurement range"):
            meter.power_w()


def test_refused_settings_are_reported():
    with meter_on(model="PM101") as (meter, _):
        with pytest.raises(InstrumentProtocolError, match="-222"):
            meter.set_wavelength_nm(633)
        with pytest.raises(InstrumentProtocolError, match="-113"):
            meter.command("SENS:NONSENSE 1")
        with pytest.raises(InstrumentProtocolError, match="no temperature sensor"):
            meter.temperature_c()
    with meter_on(sensor="S302C") as (meter, _):
        assert meter.temperature_c() == pytest.approx(24.1)


def test_zeroing():
    with meter_on(Hurried()) as (meter, chip):
        expected = (chip.parameters.gain * chip.detector_powers())[0]
        assert meter.zero(poll_s=0.0) == pytest.approx(expected, rel=0.02)
        assert abs(meter.power_w()) < 0.02 * expected
