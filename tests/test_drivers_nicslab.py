"""The XPOW driver against byte-exact scripts and the simulated instrument."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
from _scripted_link import SHORT_S, ScriptServer
from driver_cases import CASES, opened, simulated
from hypothesis import given
from hypothesis import strategies as st
from qcodes.instrument import Instrument

from drivers import NicslabXPOW
from drivers.nicslab import XpowWire
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, LinkTimeoutError, ReplyError
from simulated_instruments.faults import LostWrite, ShortedHeater

IDN = (b"*IDN?\n", b"XPOW-8AX-CCvCV-U\n")


def reading(channel, volts, milliamperes=0.0, dialect="counts"):
    text = f"CH:{channel}:{volts:.3f}:{milliamperes:.3f}" if dialect == "units" else (
        f"CH:{channel}:VAL? Channel {channel} = {volts:.3f}V, {milliamperes:.3f}mA"
    )  # fmt: skip
    return (f"CH:{channel}:VAL?\n".encode(), f"{text}\n".encode())


def connect_steps(dialect="counts"):
    """Finding the place in the stream, the identity, the last channel."""
    return [IDN, reading(1, 0.0, dialect=dialect), IDN, reading(8, 0.0, dialect=dialect)]


@contextmanager
def xpow_on(*steps, dialect="counts", **options):
    with ScriptServer(*connect_steps(dialect), *steps) as server:
        source = NicslabXPOW("xpow", server.serial_url, channels=8, dialect=dialect, **{"timeout": 5.0, **options})
        source.clock = SimulatedClock()
        source.ramp_step = 2.0
        try:
            yield source
        finally:
            source.close()


def all_readings(values, dialect="counts"):
    return [reading(channel, value, dialect=dialect) for channel, value in enumerate(values, start=1)]


def safe_from(volts):
    """What brings channel 1 back from ``volts``, at most one step of 2 V, and verifies that all are at 0 V."""
    steps = all_readings([volts] + [0.0] * 7)
    for channel in range(1, 9):
        steps += [(f"CH:{channel}:VOLT:0\n".encode(), None), reading(channel, 0.0)]
    return [*steps, *all_readings([0.0] * 8)]


# Connecting -------------------------------------------------------------------------------------------------------


def test_connecting_asks_and_closing_leaves_everything_alone():
    with xpow_on() as source:
        assert source.channel_count == 8
        assert source.IDN.cache.get(get_if_invalid=False) is None
    assert not Instrument.exist("xpow")


@pytest.mark.parametrize("reply", [b"Keithley,2600,1,2\n", b"\n", b"\xffXPOW\n"])
def test_another_instrument_is_refused(reply):
    with ScriptServer((b"*IDN?\n", reply)) as server, pytest.raises(LinkTimeoutError):
        NicslabXPOW("xpow", server.serial_url, channels=8, timeout=0.05)
    assert not Instrument.exist("xpow")


@pytest.mark.parametrize(("spoken", "expected"), [("units", "counts"), ("counts", "units")])
def test_the_other_dialect_is_found_out_before_anything_is_set(spoken, expected):
    with (
        ScriptServer(*connect_steps(spoken)) as server,
        pytest.raises(IdentityError, match=f"correct channels or dialect.*no reading in the dialect '{expected}'"),
    ):
        NicslabXPOW("xpow", server.serial_url, channels=8, dialect=expected, timeout=1.0)


def test_an_instrument_with_fewer_channels_is_refused():
    steps = [IDN, reading(1, 0.0), IDN, (b"CH:40:VAL?\n", None)]
    with ScriptServer(*steps) as server, pytest.raises(IdentityError, match="channel 39 does not answer"):
        NicslabXPOW("xpow", server.serial_url, channels=40, timeout=SHORT_S)


def test_impossible_arguments():
    for options, problem in (
        ({"channels": 16}, "8 or 40"),
        ({"channels": 8, "dialect": "volts"}, "'counts' or 'units'"),
        ({"channels": 8, "tolerance": 0.0}, "above 0 V"),
        ({"channels": 8, "ramp_step": 0.0}, "ramp_step"),
    ):
        with pytest.raises((ConfigurationError, LimitError), match=problem):
            NicslabXPOW("xpow", "socket://127.0.0.1:1", **options)


# Setting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "levels"),
    [
        ("counts", {0.0: "0", 1.0: "1638", 2.0: "3277", 3.0: "4915", 4.0: "6554", 5.0: "8192"}),
        ("units", {volts: f"{volts:.4f}" for volts in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)}),
    ],
)
def test_ramps_up_and_down_read_every_step_back(dialect, levels):
    """Counts are V * 65535 / 40."""

    def step(channel, volts):
        return [
            (f"CH:{channel}:VOLT:{levels[volts]}\n".encode(), None),
            reading(channel, volts, 1.2, dialect),
        ]

    zeros = all_readings([0.0] * 8, dialect)
    up = [*zeros, *step(3, 2.0), *step(3, 4.0), *step(3, 5.0)]
    down = all_readings([0.0, 0.0, 5.0] + [0.0] * 5, dialect)
    for channel in range(1, 9):
        down += step(channel, 3.0 if channel == 3 else 0.0)
    with xpow_on(*up, *down, *step(3, 1.0), *step(3, 0.0), *zeros, dialect=dialect) as source:
        source.set_voltages({2: 5.0})
        assert source.repeated_sets() == 0
        assert source.clock.now() == pytest.approx(3 * 10e-3 + 2 * 1e-3)  # three times to settle, two intervals


def test_a_lost_set_is_repeated_and_counted():
    steps = [
        *all_readings([0.0] * 8),
        (b"CH:1:VOLT:1638\n", None),
        reading(1, 0.0),
        (b"CH:1:VOLT:1638\n", None),
        reading(1, 1.0),
        reading(1, 1.0),  # all of the ramp again: was it a restart?
    ]
    with xpow_on(*steps, *safe_from(1.0)) as source:
        source.set_voltages({0: 1.0})
        assert source.repeated_sets() == 1


def test_channels_that_fell_in_a_restart_are_found_out():
    steps = [
        *all_readings([0.0] * 8),
        (b"CH:1:VOLT:1638\n", None),
        reading(1, 1.0),
        (b"CH:2:VOLT:1638\n", None),
        reading(2, 0.0),
        (b"CH:2:VOLT:1638\n", None),
        reading(2, 1.0),
        reading(1, 0.0),
        reading(2, 1.0),
    ]
    with (
        xpow_on(*steps, *safe_from(0.0)) as source,
        pytest.raises(DeviceError, match=r"channels \[0\] are not at the voltages"),
    ):
        source.set_voltages({0: 1.0, 1: 1.0})


@pytest.mark.parametrize(
    ("found", "tries", "problem"),
    [
        (0.0, 3, r"channel 0 was set to 1\.0000 V 3 times and still reads 0 V"),
        (0.4, 1, r"channel 0 was at 0 V, was set to 1\.0000 V and reads 0\.4 V.*may have restarted"),
    ],
)
def test_a_channel_that_does_not_follow_is_given_up_with_all_that_is_known(found, tries, problem):
    """A set that was lost is sent again; after anything else that could be a jump."""
    sets = [step for _ in range(tries) for step in ((b"CH:1:VOLT:1638\n", None), reading(1, found))]
    with (
        xpow_on(*all_readings([0.0] * 8), *sets, *safe_from(found)) as source,
        pytest.raises(DeviceError, match=problem) as caught,
    ):
        source.set_voltages({0: 1.0})
    assert "last set: 0: unknown" in caught.value.__notes__[0]


def test_limits_are_checked_before_anything_is_sent():
    with xpow_on() as source:
        source.set_channel_limits(1, max_voltage=5.0)
        for values in ({0: 30.1}, {1: 5.1}, {0: -0.1}, {8: 1.0}, {0: math.nan}, {0: 1.0, 1: 6.0}):
            with pytest.raises(LimitError):
                source.set_voltages(values)
        with pytest.raises(LimitError, match=r"0\.3 A"):
            source.set_channel_limits(0, max_current=0.31)


# Reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "volts", "amperes"),
    [
        (b"CH:3:VAL? Channel 3 = 1.234V, 5.678mA\n", 1.234, 5.678e-3),
        (b"Channel 3 = -0.001V, 0.002mA\r\n", -0.001, 2e-6),
        (b"x = 1V, 1e-3mA\n", 1.0, 1e-6),
        (b" = 9.91E+37V, 1.000mA\n", math.nan, 1e-3),  # D-26, D-28
        (b" = 1.5V, -9.9E37mA\n", 1.5, math.nan),
        (b" = NANV, 1mA\n", math.nan, 1e-3),
    ],
)
def test_replies_of_the_counts_dialect(reply, volts, amperes):
    question = (b"CH:3:VAL?\n", reply)
    with xpow_on(question, question) as source:
        assert source.read_voltage(2) == pytest.approx(volts, nan_ok=True)
        assert source.read_current(2) == pytest.approx(amperes, nan_ok=True)


@pytest.mark.parametrize(
    "reply",
    [
        b"CH:2:VAL? Channel 2 = 1.234V, 5.678mA\n",
        b"CH:3:VAL? Channel 2 = 1.234V, 5.678mA\n",
        b"Channel 3 = 1,234V, 5,678mA\n",  # D-31
        b"Channel 3 = 1.234mV, 5.678mA\n",  # another unit
        b"Channel 3 = 1.234V, 5.678A\n",
        b"Channel 3 = -0.-1V, 5.678mA\n",  # D-29
        b"Channel 3 = 1.234V\n",
        b"Channel 3 = 99.9V, 1.0mA\n",  # no such source
        b"CH:3:1.234:5.678\n",
        b"1.234\n",
        b"\xff = 1.234V, 5.678mA\n",
        b"Channel 3 = 1.234V, 5.678mA\nmore\n",
    ],
)
def test_other_replies_are_refused_and_the_next_answer_is_right(reply):
    again = [IDN, reading(1, 0.0), reading(4, 2.5)]
    with xpow_on((b"CH:3:VAL?\n", reply), *again) as source:
        with pytest.raises(ReplyError, match="bad reply"):
            source.read_voltage(2)
        assert source.read_voltage(3) == 2.5


@pytest.mark.parametrize(
    "reply", [b"CH:4:1.5:2.5\n", b"CH:3:1.5\n", b"CH:3:1.5:2.5:0\n", b"CH:3:1,5:2,5\n", b"= 1V, 1mA\n"]
)
def test_other_replies_are_refused_in_the_units_dialect(reply):
    again = [IDN, reading(1, 0.0, dialect="units"), (b"CH:3:VAL?\n", b"CH:3:1.5:2.5\n")]
    with xpow_on((b"CH:3:VAL?\n", reply), *again, dialect="units") as source:
        with pytest.raises(ReplyError):
            source.read_voltage(2)
        assert source.read_current(2) == pytest.approx(2.5e-3)


@given(st.decimals(-40, 40, places=3), st.decimals(-300, 300, places=3), st.sampled_from(["counts", "units"]))
def test_any_reading_that_can_be_printed_is_read(volts, milliamperes, dialect):
    wire = XpowWire(None, 8, dialect, 0.05, lambda: None)
    text = reading(5, volts, milliamperes, dialect)[1].decode().strip()
    assert wire._parse(4, text) == pytest.approx((float(volts), 1e-3 * float(milliamperes)))


@given(st.text(max_size=40))
def test_any_other_text_is_refused(text):
    for dialect in ("counts", "units"):
        wire = XpowWire(None, 8, dialect, 0.05, lambda: None)
        try:
            values = wire._parse(0, text)
        except ValueError:
            continue
        assert all(math.isnan(value) or abs(value) <= 80.0 for value in values)


# On the simulated instrument ---------------------------------------------------------------------------------------


@pytest.fixture(params=[case for case in CASES if case.driver is NicslabXPOW], ids=lambda case: case.id)
def bench(request):
    with (
        simulated(request.param) as (running, chip, clock),
        opened(request.param, running.addresses["device"], clock) as source,
    ):
        yield running, chip, source


def test_every_seventh_write_is_lost(bench):  # D-38
    running, chip, source = bench
    for hit in range(30):
        running.faults.inject("device", LostWrite(), match=b":VOLT:", after=7 * hit + 6)
    targets = {channel: 2.0 + channel for channel in range(4)}
    source.set_voltages(targets)
    assert [chip.heater_voltage(k) for k in range(4)] == pytest.approx([2.0, 3.0, 4.0, 5.0], abs=1e-3)
    lost = running.faults.counts()["device"]["lost_write"]
    assert lost >= 2
    assert source.repeated_sets() == lost


def test_currents_and_voltages_of_the_chip(bench):
    _, chip, source = bench
    source.set_voltages({0: 3.0, 1: 1.5})
    assert source.read_voltages()[:3] == pytest.approx([3.0, 1.5, 0.0], abs=2e-3)
    expected = [chip.heater_current(0), chip.heater_current(1), 0.0]
    assert source.read_currents()[:3] == pytest.approx(expected, abs=30e-6)
    assert source.nonzero_outputs().keys() == {0, 1}
    source.make_safe()
    assert np.abs(source.read_voltages()).max() < 2e-3


def test_a_short_circuit_is_noticed_because_the_voltage_does_not_come_up(bench):
    running, chip, source = bench
    running.faults.inject_on_chip(ShortedHeater(chip.layout.heaters[0], resistance_ohm=1.0))
    with pytest.raises(DeviceError, match=r"limited by its current"):
        source.set_voltages({0: 5.0})
    running.faults.clear()
    source.set_voltages({0: 5.0})
    assert chip.heater_voltage(0) == pytest.approx(5.0, abs=1e-3)
