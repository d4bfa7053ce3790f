"""pyvisa with its HiSLIP resources, unmodified, on a simulated power meter."""

import contextlib

import pytest
import pyvisa
from pyvisa.constants import ResourceAttribute

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, SimulatedBench, default_bench

MESSAGE_AVAILABLE, ERRORS_WAITING = 16, 4


@pytest.fixture
def bench():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 4, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    with SimulatedBench(chip, *default_bench(4), clock) as running:
        yield running


@pytest.fixture
def opened(bench):
    address = bench.open_hislip("meter_plus_0")
    manager = pyvisa.ResourceManager("@py")
    with contextlib.ExitStack() as stack:
        stack.callback(manager.close)
        yield lambda: stack.enter_context(contextlib.closing(manager.open_resource(address, timeout=5000)))


def test_queries_need_no_terminators(opened):
    meter = opened()
    assert meter.query("*idn?").startswith("Agilent Technologies,N7745A,")
    meter.write_raw(b"*idn?")
    assert meter.read_raw().endswith(b"\n")
    meter.write_raw(b"nonsense")
    assert meter.query("syst:err?").strip() == '-113,"Undefined header"'
    assert meter.query("syst:err?").strip() == '+0,"No error"'


def test_status_byte_and_clear(opened):
    meter = opened()
    assert meter.read_stb() == 0
    meter.write("nonsense?")
    meter.query("*opc?")
    assert meter.read_stb() == ERRORS_WAITING
    meter.query("syst:err?")
    meter.write("*idn?")
    while not meter.read_stb() & MESSAGE_AVAILABLE:
        pass
    meter.read()
    assert meter.read_stb() == 0
    meter.clear()
    assert meter.query("*opc?").strip() == "1"


def test_an_unread_reply_is_never_the_answer_to_the_next_question(opened):
    meter = opened()
    meter.write("*idn?")
    assert meter.query("sens1:pow:wav?").strip() == "+1.55000000E-006"
    assert meter.query("syst:err?").strip() == '-410,"Query INTERRUPTED"'


def test_blocks_in_small_messages(opened):
    meter = opened()
    for port in range(1, 9):
        meter.write(f"sens{port}:pow:unit W;:init{port}:cont 0")
    meter.set_visa_attribute(ResourceAttribute.tcpip_hislip_max_message_kb, 1)
    for _ in range(50):
        values = meter.query_binary_values("read:pow:all?", datatype="f", is_big_endian=False)
        assert len(values) == 8
    # 100 queries in one message: the reply is longer than one message may be
    reply = meter.query(";".join([":sens1:pow:wav?"] * 100)).strip()
    assert reply.split(";") == ["+1.55000000E-006"] * 100
    assert meter.query("syst:err?").strip() == '+0,"No error"'


def test_several_clients_share_one_instrument(opened):
    first, second = opened(), opened()
    first.write("sens1:pow:wav 1540nm")
    first.query("*opc?")
    assert second.query("sens1:pow:wav?").strip() == "+1.54000000E-006"
    second.write("*idn?")
    assert first.query("sens1:pow:unit?").strip() == "+0"
    assert second.read().startswith("Agilent")
    second.close()
    assert first.query("sens1:pow:unit?").strip() == "+0"


@pytest.mark.parametrize("name", ["heaters_0", "nobody"])
def test_serial_and_unknown_instruments_have_no_hislip(bench, name):
    with pytest.raises(ConfigurationError, match=name):
        bench.open_hislip(name)


def test_a_closed_bench_serves_nothing(bench):
    bench.__exit__(None, None, None)
    with pytest.raises(ConfigurationError, match="meter_plus_0"):
        bench.open_hislip("meter_plus_0")


def test_a_bench_may_serve_an_instrument_over_hislip_alone():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    specs, wiring = default_bench(2)
    with SimulatedBench(chip, specs, wiring, clock, hislip=["meter_plus_0"]) as running:
        assert "::hislip0," in running.addresses["meter_plus_0"]
        assert running.addresses["meter_minus_0"].endswith("::SOCKET")
    for name in ("heaters_0", "nobody"):
        with pytest.raises(ConfigurationError, match=name):
            SimulatedBench(chip, specs, wiring, clock, hislip=[name])
