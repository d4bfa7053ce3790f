"""Simulated instruments that are reached within the process: the same conversation, without a socket."""

from contextlib import closing

import pytest
import serial

from drivers import QontrolQ8iv
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import LinkError, LinkTimeoutError, ReplyError
from simulated_instruments import BenchWiring, HiddenChip, InstrumentSpec, SimulatedBench
from simulated_instruments.faults import Doubled, Dropped, Late, LostReply

SPECS = (InstrumentSpec("laser", "santec_tsl570"), InstrumentSpec("heaters", "qontrol_q8iv", 2))
TIMEOUT_S = 0.1


@pytest.fixture
def bench():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    wiring = BenchWiring({name: ("heaters", k) for k, name in enumerate(chip.layout.heaters)}, {}, "laser")
    with SimulatedBench(chip, SPECS, wiring, clock, in_process=True) as running:
        yield running


@pytest.fixture
def heaters(bench):
    driver = QontrolQ8iv("heaters", bench.addresses["heaters"], modules=2, timeout=TIMEOUT_S)
    driver.clock = SimulatedClock()
    yield driver
    driver.close()


def test_serial_ports_are_within_the_process_and_others_on_sockets(bench):
    assert bench.addresses["heaters"].startswith("simulated://")
    assert bench.addresses["laser"].startswith("TCPIP0::127.0.0.1::")


def test_a_driver_talks_as_over_a_socket(heaters):
    heaters.set_voltages({0: 3.0, 9: 1.0})
    assert heaters.read_voltages()[[0, 1, 9]] == pytest.approx([3.0, 0.0, 1.0], abs=2e-3)
    assert heaters.get_idn()["vendor"] == "Qontrol"


def test_two_clients_share_the_instrument_and_not_their_replies(bench, heaters):
    with closing(serial.serial_for_url(bench.addresses["heaters"], timeout=0.0)) as other:
        other.write(b"V0=")
        heaters.set_voltages({0: 2.0})
        other.write(b"1.5\n")
        assert heaters.read_voltages()[0] == pytest.approx(1.5, abs=2e-3)
        assert other.read(100).strip() == b"OK"
        assert other.read(1) == b""


def test_an_address_without_an_instrument_is_refused(bench):
    address = bench.addresses["heaters"]
    bench.__exit__(None, None, None)
    for url in (address, "simulated://0"):
        with pytest.raises(LinkError, match="no instrument of this process"):
            QontrolQ8iv("heaters", url, modules=2)
    bench.__enter__()  # the fixture leaves it again


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (LostReply(), LinkTimeoutError),
        (Late(), LinkTimeoutError),
        (Doubled(), ReplyError),
        (Dropped(when="before"), LinkError),
        (Dropped(when="within"), LinkError),
    ],
)
def test_faults_look_as_on_other_transports(bench, heaters, fault, error):
    bench.faults.inject("heaters", fault, count=1)
    with pytest.raises(error):
        heaters.read_voltage(0)
    if isinstance(fault, Dropped):
        heaters.reconnect()
    assert heaters.read_voltage(0) == pytest.approx(0.0, abs=2e-3)
