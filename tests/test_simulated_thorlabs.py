"""The simulated Thorlabs meters: command by command, in the replies of each model."""

import struct

import numpy as np
import pytest
import pyvisa
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import (
    BenchWiring,
    HiddenChip,
    HiddenEffects,
    InstrumentSpec,
    SimulatedBench,
    SimulatedThorlabsPM,
)

SETTINGS = (
    "sens:corr:wav?", "sens:corr?", "sens:pow:unit?", "sens:pow:rang?", "sens:pow:rang:auto?", "sens:aver?", "conf?",
    "init:cont?", "fetc:stat?", "stat:ques:cond?;even?;enab?;ptr?;ntr?", "stat:oper?", "sens:corr:coll:zero:magn?",
    "sens:corr:coll:zero:stat?", "fetc?", "syst:err?", "syst:err?",
)  # fmt: skip

USES = (
    "corr:wav 1310", "conf:curr", "aver 7", "read?", "bad", "pow:rang 1e-6", "pow:unit dbm", "corr:coll:zero",
    "stat:ques:ptr 1", "init:cont 1", "conf:arr 3,100", "init", "corr 2",
)  # fmt: skip


class Meter:
    """A meter on the first photodiode of a chip of two ports, asked through one session."""

    def __init__(self, model="PM101", effects=None, detectors=None, **options):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(1, 2, effects=effects, clock=self.clock)
        self.chip.set_laser(4e-3, 1550e-9)
        detectors = {0: 0} if detectors is None else detectors
        self.instrument = SimulatedThorlabsPM("m", self.chip, detectors, self.clock, model=model, **options)
        self.session = self.instrument.open_session()

    def raw(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\n") for command in commands)

    def __call__(self, *commands):
        return self.raw(*commands).decode()

    def power(self):
        """What the photodiode's electronics show without noise."""
        return (self.chip.parameters.gain * self.chip.detector_powers() + self.chip.parameters.dark_w)[0]


@pytest.fixture
def meter():
    return Meter()


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["*IDN?"], "Thorlabs,PM101,M00512345,1.4.0\n"),
        (["SYST:SENS:IDN?"], '"S155C","21011550","5-MAR-2026",1,18,33\n'),
        (["SYSTEM:SENSOR1:IDN?"], '"S155C","21011550","5-MAR-2026",1,18,33\n'),
        (["syst:err?"], '0,"No error"\n'),
        (["sens:corr:wav?"], "1.55000000E+03\n"),
        (["SENSe1:CORRection:WAVelength 1310", "corr:wav?"], "1.31000000E+03\n"),
        (["sens:corr:wav 1310.4 nm;wav?"], "1.31000000E+03\n"),
        (["sens:corr:wav? MIN;wav? MAX;:sens:corr:wav? def"], "8.00000000E+02;1.70000000E+03;1.55000000E+03\n"),
        (["corr:wav 633", "syst:err?", "corr:wav?"], '-222,"Data out of range"\n1.55000000E+03\n'),
        (["corr:wav blue", "syst:err?"], '-104,"Data type error"\n'),
        (["corr:wav 1550 m", "syst:err?"], '-131,"Invalid suffix"\n'),
        (["sens:corr?"], "0.00000000E+00\n"),
        (["sens:corr:loss:inp:magn 3.5dB", "sens:corr:loss?"], "3.50000000E+00\n"),
        (["sens:corr 61", "syst:err?"], '-222,"Data out of range"\n'),
        (["sens:pow:unit?;unit DBM;unit?"], "W;DBM\n"),
        (["sens:pow:unit V", "syst:err?"], '-224,"Illegal parameter value"\n'),
        (["sens:pow:dc:rang:auto?;:sens:pow:rang?"], "1;2.00000000E-02\n"),
        (["pow:rang 1mW", "pow:rang?;rang:auto?"], "5.00000000E-03;0\n"),
        (["pow:rang:upp 5e-4;:pow:rang?"], "5.00000000E-04\n"),
        (["pow:rang MIN;rang?;:pow:rang MAX;rang?"], "5.00000000E-08;2.00000000E-02\n"),
        (["pow:rang? MIN;rang? MAX"], "5.00000000E-08;2.00000000E-02\n"),
        (["pow:rang 1", "syst:err?"], '-222,"Data out of range"\n'),
        (["aver?;aver 300;aver?;aver:coun?"], "1;300;300\n"),
        (["aver 0", "syst:err?"], '-222,"Data out of range"\n'),
        (["AVER", "syst:err?"], '-109,"Missing parameter"\n'),
        (["init:cont?;cont 1;cont?"], "0;1\n"),
        (["conf?"], "POW\n"),
        (["conf:curr", "conf?"], "CURR\n"),
        (["conf:volt", "syst:err?"], '-241,"Hardware missing"\n'),
        (["meas:temp?", "syst:err?"], '-241,"Hardware missing"\n'),
        (["fetc:stat?"], "0\n"),
        (["fetc?", "syst:err?"], '-230,"Data corrupt or stale"\n'),
        (["fetc:arr? 0,10", "syst:err?"], '-230,"Data corrupt or stale"\n'),
        (["conf:arr 10", "syst:err?"], '-109,"Missing parameter"\n'),
        (["conf:arr 10,100,1", "syst:err?"], '-108,"Parameter not allowed"\n'),
        (["conf:arr 10001,100", "syst:err?"], '-222,"Data out of range"\n'),
        (["conf:arr 10,99", "syst:err?"], '-222,"Data out of range"\n'),
        (["stat:oper:ptr 512;ntr 4;enab 3;ptr?;ntr?;enab?"], "512;4;3\n"),
        (["stat:oper:ptr 4;:stat:pres;oper:ptr?"], "32767\n"),
        (["syst:ser:tran:baud?;baud 9600;baud?"], "115200;9600\n"),
        (["syst:vers?;:*opc?;*tst?"], "1999.0;1;0\n"),
        (["nonsense", "syst:err?;:syst:err:next?"], '-113,"Undefined header";0,"No error"\n'),
        (["nonsense", "*CLS", "syst:err?"], '0,"No error"\n'),
        (["corr:wav 1310;:sens:pow:unit DBM", "*rst", "corr:wav?;:sens:pow:unit?"], "1.55000000E+03;W\n"),
    ],
)
def test_commands(meter, commands, reply):
    assert meter(*commands) == reply


@pytest.mark.parametrize("model", ["PM100D", "PM100USB"])
def test_older_models_reply_differently(model):
    meter = Meter(model)
    assert meter("*IDN?").split(",")[:2] == ["THORLABS", model]
    assert meter("syst:err?") == '+0,"No error"\n'
    assert meter("corr:wav 633", "syst:err?", "corr:wav?") == '+0,"No error"\n8.00000000E+02\n'  # moved, not refused
    assert meter("conf:arr 10,100", "syst:err?") == '-113,"Undefined header"\n'
    assert meter("pow:rang min", "read?", "stat:ques:cond?") == "+9.90000000E+37\n8\n"
    assert meter("aver 100", "pow:rang:auto 1") == ""
    before = meter.clock.now()
    assert float(meter("read?")) == pytest.approx(meter.power(), rel=0.01)
    assert meter.clock.now() - before == pytest.approx(0.300)


def test_a_reading_takes_its_averaging_time_and_shows_the_light_at_its_end(meter):
    meter("aver 100")
    before = meter.clock.now()
    meter.chip.set_laser(1e-3, 1550e-9, at_s=before + 0.05)
    value = float(meter("meas:pow?"))
    assert meter.clock.now() - before == pytest.approx(0.100)
    assert value == pytest.approx(meter.power(), rel=0.02)


def test_triggered_readings_repeat_until_the_next_trigger(meter):
    meter("aver 10", "init")
    assert meter("fetc:stat?") == "0\n"
    meter.clock.sleep(0.011)
    assert meter("fetc:stat?", "stat:oper:cond?") == "1\n512\n"
    assert meter("fetc?") == meter("fetc?")
    first = meter("fetc?")
    assert meter("stat:oper?", "stat:oper?") == "512\n0\n"
    before = meter.clock.now()
    assert meter("init;fetc?") != first
    assert meter.clock.now() - before == pytest.approx(0.010)
    meter("init", "abor")
    assert meter("fetc:stat?") == "1\n"  # the last value is still there
    meter("init:cont 1")
    assert meter("fetc?") != meter("fetc?")


def test_out_of_range_readings_are_texts_and_questionable(meter):
    meter("pow:rang 50e-9")
    assert meter("read?", "stat:ques:cond?", "stat:ques?") == "inf\n8\n8\n"
    meter("sens:pow:unit dbm")
    assert meter("read?") == "inf\n"
    meter("pow:rang:auto 1;:sens:pow:unit w")
    assert float(meter("read?")) == pytest.approx(meter.power(), rel=0.02)
    assert meter("stat:ques:cond?") == "0\n"
    meter.chip.set_laser(10.0, 1550e-9)
    assert meter("read?") == "inf\n"  # beyond the sensor


def test_levels_losses_and_currents(meter):
    meter("sens:pow:unit dbm")
    level = 10 * np.log10(meter.power() / 1e-3)
    assert float(meter("read?")) == pytest.approx(level, abs=0.05)
    meter("sens:corr 10")
    assert float(meter("read?")) == pytest.approx(level + 10.0, abs=0.05)
    meter("sens:corr 0;:sens:pow:unit w")
    assert float(meter("meas:curr?")) == pytest.approx(meter.power() * 1.0, rel=0.02)  # 1 A/W
    assert meter("conf?") == "CURR\n"
    dark = Meter(detectors={})
    dark("sens:pow:unit dbm")
    assert "-inf\n" in {dark("read?") for _ in range(50)}  # noise below zero has no level


def test_thermopile_reports_volts_when_told_to():
    meter = Meter(sensor="S302C")
    assert meter("syst:sens:idn?") == '"S302C","19051104","14-MAR-2022",2,18,353\n'
    assert float(meter("conf:volt", "read?")) == pytest.approx(0.25 * meter.power(), rel=0.02)
    assert meter("meas:curr?", "syst:err?") == '-241,"Hardware missing"\n'
    assert float(meter("meas:temp?")) == pytest.approx(24.1)


@pytest.mark.parametrize("sensor", ["ES111C", "none"])
def test_sensors_that_measure_no_power(sensor):
    meter = Meter(sensor=sensor)
    assert meter("read?", "syst:err?") == '-241,"Hardware missing"\n'
    assert meter("syst:sens:idn?").startswith('"ES111C"' if sensor == "ES111C" else '"no sensor","","",0,0,0')


def test_zeroing_goes_on_in_the_background():
    meter = Meter(effects=HiddenEffects.none())
    meter.chip.set_laser(1e-6, 1550e-9)
    offset = meter.power()
    assert meter("sens:corr:coll:zero", "sens:corr:coll:zero:stat?") == "1\n"
    assert float(meter("read?")) == pytest.approx(offset, rel=1e-6)  # the old zero still counts
    meter.clock.sleep(1.0)
    assert meter("sens:corr:coll:zero:stat?") == "0\n"
    assert float(meter("sens:corr:coll:zero:magn?")) == pytest.approx(offset, rel=1e-6)  # in A, at 1 A/W
    assert abs(float(meter("read?"))) < 1e-3 * offset
    meter.chip.set_laser(3e-6, 1550e-9)
    assert float(meter("read?")) == pytest.approx(2 * offset, rel=1e-6)
    meter("sens:corr:coll:zero:init", "sens:corr:coll:zero:abor")
    assert meter("sens:corr:coll:zero:stat?") == "0\n"
    assert float(meter("read?")) == pytest.approx(2 * offset, rel=1e-6)


def test_array_mode(meter):
    before = meter.clock.now()
    meter("conf:arr 50,200", "init")
    assert meter("fetc:stat?", "conf?") == "0\nARR\n"
    assert meter("fetc?", "syst:err?") == '-221,"Settings conflict"\n'
    reply = meter.raw("fetc:arr? 0,100")  # waits for the end; not more than 40 values come
    assert meter.clock.now() - before == pytest.approx(0.010)
    assert len(reply) == 3 + 160 + 1
    assert (reply[:3], reply[-1:]) == (b"40,", b"\n")
    first = np.array(struct.unpack("<40f", reply[3:-1]))
    np.testing.assert_allclose(first, meter.power(), rtol=0.1)
    assert len(set(first.tolist())) > 1
    rest = meter.raw("fetc:arr? 40,40")
    assert (rest[:3], len(rest)) == (b"10,", 3 + 40 + 1)
    assert meter("fetc:arr? 50,1", "syst:err?") == '-222,"Data out of range"\n'
    assert meter("meas:pow?", "conf?").endswith("POW\n")


def test_switching_off_and_on_brings_the_start_state():
    for model in ("PM100D", "PM101"):
        used, fresh = (Meter(model, effects=HiddenEffects.none()) for _ in range(2))
        used("corr:wav 1310;:corr 3;:sens:pow:unit dbm;rang 1e-6;:aver 20;:conf:curr;:init:cont 1;:read?;nonsense")
        used("stat:ques:enab 8;ptr 0;ntr 8", "sens:corr:coll:zero", "conf:arr 10,100", "init")
        used.instrument.restart()
        assert [used(command) for command in SETTINGS] == [fresh(command) for command in SETTINGS]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(SETTINGS + USES), max_size=8))
def test_restart_equals_a_fresh_meter_after_any_use(commands):
    USED(*commands)
    USED.instrument.restart()
    fresh = Meter(effects=HiddenEffects.none())
    assert [USED(command) for command in SETTINGS] == [fresh(command) for command in SETTINGS]


USED = Meter(effects=HiddenEffects.none())


def test_a_flood_of_errors_fills_the_queue(meter):
    assert meter.instrument.flood_errors(40) == b""
    replies = [meter("syst:err?") for _ in range(31)]
    assert replies[:29] == ['-310,"System error"\n'] * 29
    assert replies[29:] == ['-350,"Queue overflow"\n', '0,"No error"\n']


@given(st.text(alphabet="sensread1239:powcfitalrwav?;* .-+e\"',", max_size=40))
def test_garbled_messages_never_break_the_meter(message):
    GARBLED.raw(message)
    GARBLED.raw("*cls")
    assert GARBLED("syst:err?") == '0,"No error"\n'


GARBLED = Meter()


@pytest.mark.parametrize(
    ("options", "detectors"), [({"model": "PM103E"}, {}), ({"sensor": "S999"}, {}), ({}, {1: 0}), ({}, {-1: 0})]
)
def test_impossible_meters(options, detectors):
    with pytest.raises(ConfigurationError, match="simulated m"):
        SimulatedThorlabsPM("m", HiddenChip.from_seed(0, 2), detectors, SimulatedClock(), **options)


@pytest.mark.parametrize(
    "spec", [InstrumentSpec("m", "thorlabs_pm", 2), InstrumentSpec("m", "thorlabs_pm", 1, {"x": "1"})]
)
def test_impossible_meters_on_a_bench(spec):
    laser = InstrumentSpec("laser", "santec_tsl570")
    wiring = BenchWiring(heaters={}, detectors={}, laser="laser")
    with pytest.raises(ConfigurationError, match="size 1 and the options model and sensor"):
        SimulatedBench(HiddenChip.from_seed(0, 2), (spec, laser), wiring, SimulatedClock())


def test_pyvisa_reads_an_array():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    specs = (InstrumentSpec("m", "thorlabs_pm", 1, {"model": "PM400"}), InstrumentSpec("laser", "santec_tsl570"))
    wiring = BenchWiring(heaters={}, detectors={"rx_1_plus": ("m", 0)}, laser="laser")
    with SimulatedBench(chip, specs, wiring, clock) as bench:
        manager = pyvisa.ResourceManager("@py")
        meter = manager.open_resource(bench.addresses["m"], read_termination="\n", write_termination="\n", timeout=5000)
        try:
            assert meter.query("*idn?").startswith("THORLABS,PM400,")
            meter.write("conf:arr 40,100;:init;fetc:arr? 0,40")
            assert meter.read_bytes(3) == b"40,"
            values = struct.unpack("<40f", meter.read_bytes(160))
            assert meter.read_bytes(1) == b"\n"
            assert np.median(values) == pytest.approx((chip.parameters.gain * chip.detector_powers())[1], rel=0.02)
        finally:
            meter.close()
            manager.close()
