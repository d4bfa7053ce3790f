"""The simulated Keysight power meter: command by command, and block reads by pyvisa over a socket."""

import struct

import numpy as np
import pytest
import pyvisa
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedBench, SimulatedKeysightN7745A, default_bench

OVER_RANGE = float(np.finfo(np.float32).max)


class Meter:
    """A meter on the plus photodiodes of a 4-port chip, asked through one session; ports 5 to 8 are dark."""

    def __init__(self, effects=None, ports=8):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(1, 4, effects=effects, clock=self.clock)
        self.chip.set_laser(4e-3, 1550e-9)
        detectors = {port: port for port in range(min(ports, 4))}
        self.session = SimulatedKeysightN7745A("m", ports, self.chip, detectors, self.clock).open_session()

    def raw(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\n") for command in commands)

    def __call__(self, *commands):
        return self.raw(*commands).decode()

    def block(self, command):
        reply = self.raw(command)
        assert reply[:4] == b"#232"
        assert reply[-1:] == b"\n"
        return np.array(struct.unpack("<8f", reply[4:-1]))

    def triggered(self):
        for port in range(1, 9):
            self(f"init{port}:cont 0;:sens{port}:pow:unit W;atim 10ms")
        return self


@pytest.fixture
def meter():
    return Meter()


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["*IDN?"], "Agilent Technologies,N7745A,DE00000001,V1.16\n"),
        (["syst:err?"], '+0,"No error"\n'),
        (["sens1:pow:wav?"], "+1.55000000E-006\n"),
        (["sens1:pow:wav 1540 nm", "sens1:pow:wav?", "sens2:pow:wav?"], "+1.54000000E-006\n+1.55000000E-006\n"),
        (["sens1:pow:wav:all 1.3e-6", "SENSE8:CHANNEL1:POWER:WAVELENGTH?"], "+1.30000000E-006\n"),
        (["sens1:pow:wav? MIN;wav? MAX;wav? DEF"], "+1.25000000E-006;+1.65000000E-006;+1.55000000E-006\n"),
        (["sens1:pow:wav 1700nm", "syst:err?"], '-222,"Data out of range"\n'),
        (["sens1:pow:unit?"], "+0\n"),
        (["sens1:pow:unit 1", "sens1:pow:unit?"], "+1\n"),
        (["sens1:pow:unit W;unit?;unit DBM;unit?"], "+1;+0\n"),
        (["sens3:pow:unit Watt", "sens:pow:unit:all:csv?"], "0,0,1,0,0,0,0,0\n"),
        (["sens1:pow:rang:auto?"], "+1\n"),
        (["sens1:pow:rang -18", "sens1:pow:rang?;rang:auto?"], "-2.00000000E+001;+0\n"),
        (["sens1:pow:rang -20 DBM;rang:auto 1", "sens1:pow:rang:auto?"], "+1\n"),
        (["sens1:pow:rang -60", "syst:err?"], '-222,"Data out of range"\n'),
        (["sens1:pow:atim?"], "+2.00000000E-001\n"),
        (["sens1:pow:atim 10 ms;atim?;atim 0.5;atim?"], "+1.00000000E-002;+5.00000000E-001\n"),
        (["init1:cont?;cont 0;cont?"], "+1;+0\n"),
        (["init1", "syst:err?"], '-213,"Init ignored"\n'),
        (["*OPC?"], "1\n"),
        (["sens9:pow:wav?", "syst:err?"], '-114,"Header suffix out of range"\n'),
        (["sens1:chan2:pow:wav?", "syst:err?"], '-114,"Header suffix out of range"\n'),
        (["nonsense?", "syst:err?;:syst:err?"], '-113,"Undefined header";+0,"No error"\n'),
        (["nonsense", "*CLS", "syst:err?"], '+0,"No error"\n'),
        (["sens2:pow:unit W;atim 1", "*rst", "sens2:pow:unit?;atim?"], "+0;+2.00000000E-001\n"),
        (["read1:pow? 3", "syst:err?"], '-108,"Parameter not allowed"\n'),
    ],
)
def test_commands(meter, commands, reply):
    assert meter(*commands) == reply


def test_configuration_block(meter):
    pairs = struct.pack("<16H", *(v for port in range(1, 9) for v in (port, 1)))
    for command in ("read:pow:all:conf?", "FETCh:POWer:ALL:CONFig?"):
        assert meter.raw(command) == b"#232" + pairs + b"\n"


def test_triggered_reading_takes_its_averaging_time(meter):
    meter.triggered()
    before = meter.clock.now()
    values = meter.block("read:pow:all?")
    assert meter.clock.now() - before == pytest.approx(0.010)
    expected = (meter.chip.parameters.gain * meter.chip.detector_powers() + meter.chip.parameters.dark_w)[:4]
    np.testing.assert_allclose(values[:4], expected, rtol=0.01)
    assert np.abs(values[4:]).max() < 1e-8
    assert float(meter("read2:pow?")) == pytest.approx(expected[1], rel=0.01)
    assert meter.clock.now() - before == pytest.approx(0.020)
    meter("sens3:pow:atim 0.5")
    meter.block("read:pow:all?")  # the slowest port counts
    assert meter.clock.now() - before == pytest.approx(0.520)


def test_reading_shows_the_light_at_its_end(meter):
    meter.triggered()
    meter.chip.set_laser(0.0, 1550e-9, at_s=meter.clock.now() + 0.005)
    assert np.abs(meter.block("read:pow:all?")).max() < 1e-7


def test_fetch_repeats_until_the_next_trigger(meter):
    meter.triggered()
    first = meter.block("read:pow:all?")
    now = meter.clock.now()
    np.testing.assert_array_equal(meter.block("fetc:pow:all?"), first)
    assert float(meter("fetc1:pow?")) == pytest.approx(first[0], rel=1e-7)
    assert meter.clock.now() == now
    meter("init1:imm")
    assert meter.clock.now() == now
    fetched = meter.block("fetc:pow:all?")  # waits for the trigger that is under way
    assert meter.clock.now() == pytest.approx(now + 0.010)
    assert fetched[0] != first[0]
    np.testing.assert_array_equal(fetched[1:], first[1:])


def test_operation_complete_blocks(meter):
    meter.triggered()
    meter("init4;:sens4:pow:atim 1")
    before = meter.clock.now()
    assert meter("*OPC?") == "1\n"
    assert meter.clock.now() == pytest.approx(before + 0.010)


def test_continuous_mode_repeats_within_an_averaging_time(meter):
    meter("sens1:pow:unit W;atim 10ms")
    first = meter("read1:pow?")
    now = meter.clock.now()
    assert meter("read1:pow?") == meter("fetc1:pow?") == first
    assert meter.clock.now() == now
    meter.clock.sleep(0.011)
    assert meter("fetc1:pow?") != first


def test_values_in_dbm(meter):
    meter("init1:cont 0", "init8:cont 0")
    power = (meter.chip.parameters.gain * meter.chip.detector_powers())[0]
    assert float(meter("read1:pow?")) == pytest.approx(10 * np.log10(power / 1e-3), abs=0.02)
    meter.chip.set_laser(0.0, 1550e-9)
    levels = {float(meter("read8:pow?")) for _ in range(50)}
    assert min(levels) == pytest.approx(-OVER_RANGE)  # noise below zero has no level
    assert sorted(levels)[1] > -150.0


def test_range_limits_and_steps():
    meter = Meter(HiddenEffects.none()).triggered()
    power = 4e-3 * 0.15 / 4 / 2  # local oscillator only: 75 uW
    for range_dbm in (-10, 0, 10):
        meter(f"sens1:pow:rang {range_dbm}")
        step = 1e-3 * 10 ** (range_dbm / 10) / 2**18
        value = float(meter("read1:pow?"))
        assert value == pytest.approx(round(power / step) * step, rel=1e-8)
    meter("sens1:pow:rang -20")
    assert float(meter("read1:pow?")) == pytest.approx(OVER_RANGE)
    assert meter.block("read:pow:all?")[0] == OVER_RANGE
    meter("sens1:pow:unit DBM")
    assert float(meter("fetc1:pow?")) == pytest.approx(OVER_RANGE)
    meter("sens1:pow:unit W;rang:auto 1")
    assert float(meter("read1:pow?")) == pytest.approx(power, rel=1e-5)
    assert meter("sens1:pow:rang?") == "-1.00000000E+001\n"
    meter.chip.set_laser(1.0, 1550e-9)
    assert float(meter("read1:pow?")) == pytest.approx(OVER_RANGE)  # 18.75 mW is above the top range
    assert meter("sens1:pow:rang:auto 0;auto?;:sens1:pow:rang?") == "+0;+1.00000000E+001\n"


def test_small_meter_is_an_n7744a():
    meter = Meter(ports=4)
    assert meter("*idn?").split(",")[1] == "N7744A"
    assert meter.raw("read:pow:all?")[:4] == b"#216"


@given(st.text(alphabet="sensread1239:powcfintalwav?;* .-+e\"',", max_size=40))
def test_garbled_messages_never_break_the_meter(message):
    METER.raw(message)
    METER.raw("*cls")
    assert METER("syst:err?") == '+0,"No error"\n'


METER = Meter()


@pytest.mark.parametrize(("ports", "detectors"), [(0, {}), (9, {}), (4, {4: 0}), (4, {-1: 0})])
def test_impossible_meters(ports, detectors):
    with pytest.raises(ConfigurationError, match="simulated m"):
        SimulatedKeysightN7745A("m", ports, HiddenChip.from_seed(0, 2), detectors, SimulatedClock())


def test_pyvisa_reads_blocks():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 4, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    with SimulatedBench(chip, *default_bench(4), clock) as bench:
        manager = pyvisa.ResourceManager("@py")
        meter = manager.open_resource(
            bench.addresses["meter_minus_0"], read_termination="\n", write_termination="\n", timeout=5000
        )
        try:
            for port in range(1, 9):
                meter.write(f"init{port}:cont 0;:sens{port}:pow:unit W;atim 10ms")
            assert meter.query("syst:err?") == '+0,"No error"'
            for _ in range(5):
                values = meter.query_binary_values("read:pow:all?", datatype="f", is_big_endian=False)
                assert len(values) == 8
                assert values[:4] == pytest.approx((chip.parameters.gain * chip.detector_powers())[4:], rel=0.02)
        finally:
            meter.close()
            manager.close()
