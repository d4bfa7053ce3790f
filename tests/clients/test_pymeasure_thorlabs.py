"""pymeasure's ThorlabsPM100USB, unmodified, on simulated Thorlabs meters."""

import contextlib

import pytest
from pymeasure.instruments.thorlabs import ThorlabsPM100USB

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, SimulatedThorlabsPM
from simulated_instruments._tcp import TcpServer

# The client's own class warns that it does not know whether the meter speaks SCPI.
pytestmark = pytest.mark.filterwarnings("ignore:It is not known whether this device support SCPI:FutureWarning")


@contextlib.contextmanager
def served(**options):
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    server = TcpServer(SimulatedThorlabsPM("m", chip, {0: 0}, clock, **options), "m")
    try:
        yield f"TCPIP0::127.0.0.1::{server.port}::SOCKET", chip
    finally:
        server.close()


@contextlib.contextmanager
def meter_at(address):
    meter = ThorlabsPM100USB(address, visa_library="@py", read_termination="\n", write_termination="\n", timeout=5000)
    try:
        yield meter
    finally:
        meter.adapter.close()


@pytest.mark.parametrize("model", ["PM100USB", "PM100D", "PM101", "PM400"])
def test_sensor_wavelength_and_power(model):
    with served(model=model) as (address, chip), meter_at(address) as meter:
        assert (meter.sensor_name, meter.sensor_sn) == ('"S155C"', '"21011550"')  # it keeps the quotes of the reply
        assert (meter.is_power_sensor, meter.is_energy_sensor, meter.wavelength_settable) == (True, False, True)
        assert (meter.wavelength_min, meter.wavelength_max, meter.wavelength) == (800, 1700, 1550)
        meter.wavelength = 1310
        assert meter.wavelength == 1310
        meter.wavelength = 5000  # the client itself stays within the limits
        assert meter.wavelength == 1700
        assert meter.power == pytest.approx((chip.parameters.gain * chip.detector_powers())[0], rel=0.02)
        assert meter.check_errors() == []


def test_sensors_without_power_are_told():
    with served(sensor="ES111C") as (address, _), meter_at(address) as meter:
        assert meter.is_energy_sensor
        with pytest.raises(AttributeError, match="not a power sensor"):
            _ = meter.power
    with served(sensor="none") as (address, _), meter_at(address) as meter:
        assert not meter.is_energy_sensor
        assert not meter.is_power_sensor
