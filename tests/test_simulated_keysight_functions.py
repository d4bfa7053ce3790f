"""Logging, stability and extremes of the simulated Keysight power meter: times, triggers, states, blocks."""

import dataclasses
import struct

import numpy as np
import pytest

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedKeysightN7745A

OVER_RANGE = float(np.finfo(np.float32).max)
PERFECT = HiddenEffects.none()
DARK, BRIGHT = 75e-6, 750e-6  # W on each plus photodiode of the perfect 4-port chip, at 4 mW and at 40 mW


class Meter:
    """A meter in W on the plus photodiodes of a perfect 4-port chip; ports 5 to 8 are dark."""

    def __init__(self, effects=PERFECT):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(1, 4, effects=effects, clock=self.clock)
        self.chip.set_laser(4e-3, 1550e-9)
        self.device = SimulatedKeysightN7745A("m", 8, self.chip, {k: k for k in range(4)}, self.clock)
        self.session = self.device.open_session()
        for port in range(1, 9):
            self(f"sens{port}:pow:unit W;rang 0;:init{port}:cont 0")

    def raw(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\n") for command in commands)

    def __call__(self, *commands):
        return self.raw(*commands).decode()

    def result(self, port=1):
        reply = self.raw(f"sens{port}:func:res?")
        digits = int(reply[1:2])
        count = int(reply[2 : 2 + digits])
        assert len(reply) == 2 + digits + count + 1
        assert reply[-1:] == b"\n"
        return np.array(struct.unpack(f"<{count // 4}f", reply[2 + digits : -1]))

    def state(self, port=1):
        return self(f"sens{port}:func:stat?").strip()

    def error(self):
        return int(self("syst:err?").split(",")[0])

    def log(self, points=10, averaging="10ms", port=1):
        self(f"sens1:func:par:logg {points},{averaging}", f"sens{port}:func:stat logg,star")


@pytest.fixture
def meter():
    return Meter()


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["sens1:func:par:logg 1000,1ms", "sens1:func:par:logg?"], "+1000,+1.00000000E-003\n"),
        (["sens1:func:par:logg 1000,1ms", "SENSE4:FUNCTION:PARAMETER:LOGGING?"], "+1000,+1.00000000E-003\n"),
        (["sens1:func:par:logg 1000,0.200000s", "sens1:func:par:logg?"], "+1000,+2.00000000E-001\n"),
        (["sens1:func:par:stab 9,1,0.5;stab?"], "+9.00000000E+000,+1.00000000E+000,+5.00000000E-001\n"),
        (["sens1:func:par:minm WIND,50", "sens1:func:par:minm?"], "WIND,+50\n"),
        (["sens1:func:stat?"], "NONE,COMPLETE\n"),
        (["sens1:func:stat logg,star", "sens1:func:stat?"], "LOGGING_STABILITY,PROGRESS\n"),
        (["sens1:func:stat STABILITY,START", "sens1:func:stat?"], "LOGGING_STABILITY,PROGRESS\n"),
        (["sens1:func:stat minm,star", "sens1:func:stat?"], "MINMAX,PROGRESS\n"),
        (["sens1:func:stat logg,star", "sens2:func:stat?"], "NONE,COMPLETE\n"),
        (["sens1:func:stat logg,star", "sens1:func:stat logg,stop", "sens1:func:stat?"], "NONE,PROGRESS\n"),
        (["trig:conf?", "trig1:inp?;outp?"], "DEF\nIGN;DIS\n"),
        (["trig:conf LOOP;conf?", "trig3:inp cme;inp?", "trig1:inp?", "trig2:outp AVG;outp?"], "LOOP\nCME\nIGN\nAVG\n"),
    ],
)  # fmt: skip
def test_commands(meter, commands, reply):
    assert meter(*commands) == reply
    assert meter.error() == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("sens1:func:par:logg 0,1ms", -222),
        ("sens1:func:par:logg 1000001,1ms", -222),
        ("sens1:func:par:logg 1.5,1ms", -222),
        ("sens1:func:par:logg 10,0.1us", -222),
        ("sens1:func:par:logg 10", -109),
        ("sens1:func:par:logg 10,1ms,3", -108),
        ("sens9:func:par:logg 10,1ms", -114),
        ("sens1:func:par:stab 10,0.1,1", -221),
        ("sens1:func:par:minm SOME,1", -224),
        ("sens1:func:stat logg,go", -224),
        ("sens1:func:stat what,star", -224),
        ("sens1:func:res?", -230),
        ("trig1:inp what", -224),
        ("trig 3", -224),
    ],
)
def test_mistakes(meter, command, code):
    assert meter(command) == ""
    assert meter.error() == code


def test_a_log_takes_points_times_averaging(meter):
    meter.log(1000, "1ms")
    meter.clock.sleep(0.9985)
    assert meter.state() == "LOGGING_STABILITY,PROGRESS"
    assert meter("sens1:func:res?") == ""
    assert meter.error() == -230
    assert meter("stat:oper:cond?") == "+2\n"  # bit n is port n
    meter.clock.sleep(0.0015)
    assert meter.state() == "LOGGING_STABILITY,COMPLETE"
    assert meter("stat:oper:cond?") == "+0\n"
    values = meter.result()
    assert values.shape == (1000,)
    np.testing.assert_allclose(values, DARK, rtol=1e-4)
    np.testing.assert_array_equal(meter.result(), values)
    assert meter.error() == 0


def test_samples_show_the_light_at_their_time(meter):
    meter.log(10, "10ms")
    meter.clock.sleep(0.035)
    meter.chip.set_laser(40e-3, 1550e-9)  # between the third and the fourth sample
    meter.clock.sleep(0.020)
    meter.chip.set_laser(0.0, 1550e-9, at_s=meter.clock.now() + 0.020)  # between the seventh and the eighth
    meter.clock.sleep(10.0)
    np.testing.assert_allclose(meter.result(), [DARK] * 3 + [BRIGHT] * 4 + [0.0] * 3, atol=1e-8, rtol=1e-4)


def test_samples_follow_a_sweep():
    """A laser that sweeps its power: each sample shows the power at the end of its averaging time."""
    meter = Meter()
    meter.chip.follow_laser(lambda time_s: (4e-3 * time_s, 1550e-9))
    for port in (1, 2):
        meter.log(100, "10ms", port=port)
    meter.clock.sleep(5.0)
    expected = DARK * 0.01 * np.arange(1, 101)
    for port in (1, 2):
        np.testing.assert_allclose(meter.result(port), expected, atol=1e-8)


def test_samples_follow_the_heat():
    """Photodiode powers of a heater that was just switched on relax as the chip's own readings do."""
    effects = dataclasses.replace(PERFECT, thermal_time_constant_s=0.01)
    logged, stepped = Meter(effects), Meter(effects)
    for meter in (logged, stepped):
        meter.chip.set_heater_voltages({k: 1.0 + 0.1 * k for k in range(len(meter.chip.layout.heaters))})
    for port in (1, 3):
        logged.log(20, "2ms", port=port)
    logged.clock.sleep(1.0)
    logged.chip.detector_powers()  # somebody else's reading, when all is over
    expected = []
    for _ in range(20):
        stepped.clock.sleep(0.002)
        expected.append(stepped.chip.detector_powers())
    assert np.ptp(expected, axis=0)[[0, 2]].min() > 1e-6
    for port in (1, 3):
        np.testing.assert_allclose(logged.result(port), np.array(expected)[:, port - 1], atol=1e-8)


def test_heaters_set_during_a_log_show_from_then_on(meter):
    meter.log(4, "10ms")
    meter.clock.sleep(0.025)
    before = meter.chip.detector_powers()[0]
    meter.chip.set_heater_voltages(dict.fromkeys(range(len(meter.chip.layout.heaters)), 2.0))
    after = meter.chip.detector_powers()[0]
    meter.clock.sleep(1.0)
    assert abs(after - before) > 1e-6
    np.testing.assert_allclose(meter.result(), [before, before, after, after], atol=1e-8)


def test_results_are_in_the_chosen_unit(meter):
    meter("sens1:pow:unit DBM")
    meter.log(3)
    meter.chip.set_laser(0.0, 1550e-9, at_s=0.015)
    meter.clock.sleep(1.0)
    values = meter.result()
    assert values[0] == pytest.approx(10 * np.log10(DARK / 1e-3), abs=1e-2)
    assert values[1] == values[2] == -OVER_RANGE
    assert meter.error() == -261
    assert meter.error() == 0


def test_range_stays_during_a_log(meter):
    meter("sens1:pow:rang:auto 1", "read1:pow?")
    assert meter("sens1:pow:rang?") == "-1.00000000E+001\n"
    meter.log(2)
    meter.chip.set_laser(40e-3, 1550e-9, at_s=meter.clock.now() + 0.015)
    meter.clock.sleep(1.0)
    values = meter.result()
    assert values == pytest.approx([DARK, OVER_RANGE], rel=1e-3)
    assert meter.error() == -231


@pytest.mark.parametrize(
    "command",
    [
        "sens1:pow:wav 1550nm",
        "sens1:pow:wav:all 1550nm",
        "sens1:pow:rang 0",
        "sens1:pow:rang:auto 0",
        "sens1:pow:atim 1ms",
        "sens1:pow:unit W",
        "sens1:pow:gain:auto 1",
        "sens1:corr:coll:zero",
        "sens1:corr:coll:zero:all",
        "init1:cont 0",
        "trig1:inp ign",
    ],
)
def test_any_set_stops_a_log(meter, command):
    meter.log()
    meter(command)
    assert meter.state() == "NONE,PROGRESS"
    meter.clock.sleep(1.0)
    assert meter("sens1:func:res?") == ""
    assert meter.error() == -230


def test_parameters_wait_for_the_end_of_a_log(meter):
    meter.log()
    meter("sens2:func:par:logg 5,1ms")
    assert meter.error() == -221
    meter.clock.sleep(0.1)
    meter("sens2:func:par:logg 5,1ms")
    assert meter.error() == 0
    assert len(meter.result()) == 10


def test_settings_of_other_ports_and_reads_do_not_stop_a_log(meter):
    meter.log()
    meter("sens2:pow:atim 1ms")
    meter.clock.sleep(0.055)
    assert float(meter("read1:pow?")) == pytest.approx(DARK, rel=1e-3)
    assert meter.clock.now() == pytest.approx(0.055)  # the latest sample, without a new measurement
    meter("init1")
    assert meter.error() == -213
    meter.clock.sleep(0.045)
    assert meter.state() == "LOGGING_STABILITY,COMPLETE"


def test_one_trigger_starts_a_whole_log(meter):
    meter("trig1:inp cme")
    meter.log(3)
    meter.clock.sleep(5.0)
    assert meter.state() == "LOGGING_STABILITY,PROGRESS"
    meter("trig 2", "trig:conf dis", "trig 1", "trig:conf def")
    meter.clock.sleep(5.0)
    assert meter.state() == "LOGGING_STABILITY,PROGRESS"
    meter("trig 1")
    meter.clock.sleep(0.02)
    meter("trig 1")  # it runs already
    assert meter.state() == "LOGGING_STABILITY,PROGRESS"
    meter.clock.sleep(0.01)
    assert meter.state() == "LOGGING_STABILITY,COMPLETE"
    assert len(meter.result()) == 3


def test_each_trigger_takes_one_sample(meter):
    meter("trig1:inp sme")
    meter.log(3, "10ms")
    for power in (4e-3, 40e-3, 0.0):
        meter.clock.sleep(1.0)
        meter.chip.set_laser(power, 1550e-9)
        assert meter.state() == "LOGGING_STABILITY,PROGRESS"
        meter.device.trigger()
        meter.clock.sleep(0.005)
        meter.device.trigger()  # comes while the sample is being taken, and is lost
        meter.clock.sleep(0.005)
    assert meter.state() == "LOGGING_STABILITY,COMPLETE"
    np.testing.assert_allclose(meter.result(), [DARK, BRIGHT, 0.0], atol=1e-8, rtol=1e-4)


def test_a_trigger_takes_a_single_reading_where_no_function_waits(meter):
    meter("trig1:inp sme")
    first = meter("fetc1:pow?")
    meter.chip.set_laser(40e-3, 1550e-9)
    assert meter("fetc1:pow?") == first
    meter("*trg")
    assert float(meter("fetc1:pow?")) == pytest.approx(BRIGHT, rel=1e-3)


def test_stability_samples_now_and_then(meter):
    meter("sens1:func:par:stab 1,0.1,10ms", "sens1:func:stat stab,star")
    meter.chip.follow_laser(lambda time_s: (4e-3 * time_s, 1550e-9))
    meter.clock.sleep(0.909)
    assert meter.state() == "LOGGING_STABILITY,PROGRESS"
    meter.clock.sleep(0.091)
    assert meter.state() == "LOGGING_STABILITY,COMPLETE"
    np.testing.assert_allclose(meter.result(), DARK * (0.1 * np.arange(10) + 0.01), atol=1e-8)


def test_extremes(meter):
    meter("sens1:pow:atim 10ms", "sens1:func:par:minm CONT,10", "sens1:func:stat minm,star")
    meter.clock.sleep(0.5)
    meter.chip.set_laser(40e-3, 1550e-9)
    meter.clock.sleep(0.5)
    assert meter.result() == pytest.approx([DARK, BRIGHT], rel=1e-3)
    meter("sens1:func:stat minm,stop")
    meter.chip.set_laser(0.0, 1550e-9)
    meter.clock.sleep(0.5)
    assert meter.state() == "NONE,COMPLETE"
    assert meter.result() == pytest.approx([DARK, BRIGHT], rel=1e-3)
    meter.chip.set_laser(4e-3, 1550e-9)
    meter("sens1:func:par:minm WIND,10", "sens1:func:stat minm,star")
    meter.clock.sleep(0.5)
    meter.chip.set_laser(40e-3, 1550e-9)
    meter.clock.sleep(0.5)
    assert meter.result() == pytest.approx([BRIGHT, BRIGHT], rel=1e-3)
    meter.clock.sleep(1e7)  # so many samples that no memory could hold them
    assert meter.result() == pytest.approx([BRIGHT, BRIGHT], rel=1e-3)


def test_a_million_samples(meter):
    meter.log(1_000_000, "1us")
    meter.clock.sleep(1.0)
    reply = meter.raw("sens1:func:res?")
    assert reply[:9] == b"#74000000"
    assert len(reply) == 9 + 4_000_000 + 1


def test_noise_of_samples_shrinks_with_the_averaging_time():
    effects = dataclasses.replace(PERFECT, noise_relative=1e-2, noise_averaging_s=1e-3)
    meter = Meter(effects)
    spread = []
    for averaging in ("1ms", "100ms"):
        meter.log(2000, averaging)
        meter.clock.sleep(200.0)
        spread.append(meter.result().std() / DARK)
    assert spread == pytest.approx([1e-2, 1e-3], rel=0.1)
