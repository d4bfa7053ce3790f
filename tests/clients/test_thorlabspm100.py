"""The package ThorlabsPM100, unmodified, on a simulated Thorlabs meter through pyvisa."""

import contextlib

import pytest
import pyvisa
from ThorlabsPM100 import ThorlabsPM100

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, SimulatedThorlabsPM
from simulated_instruments._tcp import TcpServer


@pytest.fixture
def bench():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    server = TcpServer(SimulatedThorlabsPM("m", chip, {0: 0}, clock), "m")
    manager = pyvisa.ResourceManager("@py")
    resource = manager.open_resource(
        f"TCPIP0::127.0.0.1::{server.port}::SOCKET", read_termination="\n", write_termination="\n", timeout=5000
    )
    with contextlib.ExitStack() as stack:
        for close in (server.close, manager.close, resource.close):
            stack.callback(close)
        yield ThorlabsPM100(inst=resource), chip, clock


def test_settings_in_long_form_and_mixed_case(bench):
    meter, _, _ = bench
    assert meter.system.sensor.idn == '"S155C","21011550","5-MAR-2026",1,18,33'
    assert meter.sense.correction.wavelength == 1550
    assert meter.sense.correction.minimum_wavelength == 800
    assert meter.sense.correction.maximum_wavelength == 1700
    meter.sense.correction.wavelength = 1310
    assert meter.sense.correction.wavelength == 1310
    meter.sense.average.count = 100
    assert meter.sense.average.count == 100
    meter.sense.power.dc.range.auto = "OFF"
    assert meter.sense.power.dc.range.auto == 0
    meter.sense.power.dc.range.upper = 1e-3
    assert meter.sense.power.dc.range.upper == 5e-3
    assert meter.sense.power.dc.range.minimum_upper == 5e-8
    assert meter.sense.power.dc.range.maximum_upper == 2e-2
    meter.sense.correction.loss.input.magnitude = 3.0
    assert meter.sense.correction.loss.input.magnitude == 3.0
    meter.sense.power.dc.unit = "DBM"
    assert meter.sense.power.dc.unit == "DBM"
    assert meter.system.error.next == '+0,"No error"'


def test_measuring_and_status(bench):
    meter, chip, clock = bench
    expected = (chip.parameters.gain * chip.detector_powers())[0]
    meter.sense.average.count = 100
    before = clock.now()
    assert meter.read == pytest.approx(expected, rel=0.02)
    assert clock.now() - before == pytest.approx(0.3)
    meter.configure.scalar.power()
    assert meter.getconfigure == "POW"
    meter.initiate.immediate()
    assert meter.fetch == pytest.approx(expected, rel=0.02)
    meter.sense.power.dc.range.upper = 1e-6
    assert meter.read == pytest.approx(9.9e37)
    assert meter.status.questionable.condition == 8
    meter.status.operation.ptransition = 512
    assert meter.status.operation.ptransition == 512
    meter.sense.correction.collect.zero.initiate()
    assert meter.sense.correction.collect.zero.state == 1
    clock.sleep(1.0)
    assert meter.sense.correction.collect.zero.state == 0
    assert meter.sense.correction.collect.zero.magnitude == pytest.approx(expected, rel=0.02)
