"""Our Thorlabs driver on the simulator of labmcp-thorlabs-pm, unmodified, behind a line server.

That simulator has no status registers, so the server answers their one query; everything else is its own answer.
"""

import contextlib
import math
import socketserver
import threading

import pytest
from labmcp_thorlabs_pm.simulator import LASER_NM, LASER_W, ThorlabsPMSimulator, si_responsivity

from drivers import ThorlabsPM
from optinc_hw.errors import DeviceError, LimitError

NOTHING_QUESTIONABLE = {"STAT:QUES:COND?": "0"}


class _Lines(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            command = line.decode("ascii").strip()
            reply = NOTHING_QUESTIONABLE.get(command) or self.server.simulator.handle(command)
            if reply is not None:
                self.wfile.write(reply.encode("ascii") + b"\n")


@contextlib.contextmanager
def meter_on(simulator):
    with socketserver.TCPServer(("127.0.0.1", 0), _Lines) as server:
        server.simulator = simulator
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        meter = ThorlabsPM("meter", f"TCPIP0::127.0.0.1::{server.server_address[1]}::SOCKET", timeout=5.0)
        try:
            yield meter
        finally:
            meter.close()
            server.shutdown()
            thread.join()


def test_identity_and_readings():
    with meter_on(ThorlabsPMSimulator()) as meter:
        assert meter.get_idn() == {
            "vendor": "THORLABS", "model": "PM100D", "serial": "P0012345", "firmware": "2.8.0",
        }  # fmt: skip
        assert (meter.sensor.name, meter.sensor.serial, meter.sensor.signal_unit) == ("S120C", "16060232", "A")
        meter.initialise(LASER_NM * 1e-9, 0.3)
        assert meter.wavelength() == pytest.approx(633e-9)
        assert meter.averaging_count() == 100
        assert meter.power() == pytest.approx(LASER_W, rel=0.02)
        assert meter.power_dbm() == pytest.approx(10 * math.log10(LASER_W / 1e-3), abs=0.1)
        # A meter set to another wavelength divides the current by another responsivity.
        meter.wavelength(900e-9)
        wrong = LASER_W * si_responsivity(LASER_NM) / si_responsivity(900.0)
        assert meter.power() == pytest.approx(wrong, rel=0.02)


def test_ranges_and_over_range():
    simulator = ThorlabsPMSimulator()
    with meter_on(simulator) as meter:
        meter.initialise(633e-9, 0.01)
        meter.set_range(1e-4)
        assert meter.power_range() == pytest.approx(5e-4)
        assert meter.auto_range() is False
        reading = meter.read_powers()
        assert reading.valid.tolist() == [False]
        assert math.isnan(reading.power_w[0])
        meter.auto_range(True)
        assert meter.read_powers().valid.all()
        simulator.laser_w = 1.0
        assert not meter.read_powers().valid.any()


def test_limits_and_refusals():
    with meter_on(ThorlabsPMSimulator()) as meter:
        with pytest.raises(LimitError, match="400 to 1100 nm"):
            meter.wavelength(1550e-9)
        with pytest.raises(LimitError, match=r"up to 0\.05 W"):
            meter.set_range(1.0)
        with pytest.raises(DeviceError, match="Undefined header"):
            meter.record(10, 1e-3)
        meter.write_raw("SENS:POW:UNIT DBM")
        with pytest.raises(DeviceError, match="'DBM' and not in W"):
            meter.read_powers()
        meter.initialise(633e-9, 0.01)
        assert meter.read_powers().valid.all()


def test_zeroing_a_thermopile():
    simulator = ThorlabsPMSimulator("S302C", laser_w=0.0)
    with meter_on(simulator) as meter:
        assert (meter.sensor.name, meter.sensor.signal_unit) == ("S302C", "V")
        meter.initialise(1550e-9, 0.01)
        before = meter.power()
        assert before == pytest.approx(4e-6 / 0.25, rel=0.05)  # its offset voltage and response
        meter.start_zeroing()
        with pytest.raises(DeviceError, match="zeroing"):
            meter.read_powers()
        meter.wait_zeroed(10.0)
        assert meter.zero_magnitude() == pytest.approx(4e-6, rel=0.05)
        assert abs(meter.power()) < 0.1 * before
