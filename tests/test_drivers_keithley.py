"""The 2600B driver against byte-exact scripts and the simulated instrument."""

import math
from contextlib import contextmanager

import pytest
from _scripted_link import ScriptServer
from driver_cases import CASES, opened, simulated
from hypothesis import given
from hypothesis import strategies as st
from qcodes.instrument import Instrument

from drivers import Keithley2600
from drivers.keithley import parse_queue_entry, split_values
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, ReplyError
from simulated_instruments.faults import ErrorFlood, LostWrite, ShortedHeater

ONE, ZERO = b"1.00000e+00\n", b"0.00000e+00\n"
EMPTY = (b"print(errorqueue.next())\n", b"0.00000e+00\tQueue Is Empty\t0.00000e+00\t0.00000e+00\n")


def identity(model="2611B"):
    return (b"*IDN?\n", f"Keithley Instruments Inc., Model {model}, 1398687, 3.3.5\n".encode())


IDN = identity()


@contextmanager
def source_on(*steps, model="2611B", **options):
    with ScriptServer(identity(model), *steps) as server:
        source = Keithley2600("smu", server.visa_address, **{"channels": 1, "timeout": 5.0, **options})
        source.clock = SimulatedClock()
        source.ramp_step = 2.0
        try:
            yield source
        finally:
            source.close()


def measure(smu, function, value, status=0):
    question = f"print({smu}.measure.{function}(), status.measurement.instrument.{smu}.condition)\n"
    return (question.encode(), f"{value:.5e}\t{status:.5e}\n".encode())


def switched(smu, *, on):
    state = int(on)
    return [
        (f"{smu}.source.output={state}\n".encode(), None),
        (f"print({smu}.source.output)\n".encode(), b"%d\n" % state),
    ]


VOLTS = (b"print(smua.source.func)\n", ONE)
IS_ON = (b"print(smua.source.output)\n", ONE)
IS_OFF = (b"print(smua.source.output)\n", ZERO)
SWITCH_ON = [IS_OFF, (b"smua.source.levelv=0\n", None), *switched("smua", on=True)]


def level(volts, measured=None, status=0):
    """A step, and its measurement; as set, if nothing else is ``measured``."""
    question, answer = measure("smua", "v", volts if measured is None else measured, status)
    return (f"smua.source.levelv={volts:.6f}\n".encode() + question, answer)


def safe_from(volts):
    """From at most one step of 2 V down, verified; the output was on before, and stays on."""
    return [measure("smua", "v", volts), level(0.0), measure("smua", "v", 0.0)]


# Connecting -------------------------------------------------------------------------------------------------------


def test_connecting_asks_for_the_identity_and_closing_does_nothing():
    with source_on() as source:
        assert source.channel_count == 1
        assert source.model == "2611B"
    with source_on(model="2636B", channels=2) as source:
        assert source.channel_count == 2
    assert not Instrument.exist("smu")


@pytest.mark.parametrize(
    ("answer", "options", "problem"),
    [
        (b"Keithley Instruments Inc., Model 2400, 1, C32\n", {}, "26.* is expected"),
        (b"QDevil, QDAC-II, 12, 11-1.14\n", {}, "26.* is expected"),
        (identity("2601B")[1], {"channels": 2}, "a 2601B with 1 usable channels answers"),
        (identity("2614B")[1], {"channels": 2, "model": "2636B"}, "but 2636B with 2 is expected"),
        (b"KKKKeithley Instruments Inc. Model 2611B\n", {}, None),  # D-05
        (b"\xffKeithley Instruments Inc., Model 2611B, 1, 3\n", {}, None),  # D-22
    ],
)
def test_other_instruments_are_refused(answer, options, problem):
    expected = IdentityError if problem else ReplyError
    with ScriptServer((b"*IDN?\n", answer)) as server, pytest.raises(expected, match=problem):
        Keithley2600("smu", server.visa_address, **{"channels": 1, "timeout": 1.0, **options})
    assert not Instrument.exist("smu")


def test_impossible_arguments():
    for options, problem in (({"channels": 3}, "1 or 2"), ({"model": "2400"}, "2614B")):
        with pytest.raises(ConfigurationError, match=problem):
            Keithley2600("smu", "TCPIP0::127.0.0.1::1::SOCKET", **options)


# Setting ----------------------------------------------------------------------------------------------------------


def test_an_output_goes_on_at_zero_ramps_is_measured_and_goes_off_again():
    up = [VOLTS, *SWITCH_ON, level(2.0), level(4.0), level(5.0, 4.9999)]
    down = [measure("smua", "v", 4.9999), level(2.9999), level(0.9999), level(0.0), measure("smua", "v", 1e-5)]
    with source_on(*up, *down, *switched("smua", on=False)) as source:
        source.set_voltages({0: 5.0})
        assert source.clock.now() == pytest.approx(2e-3)
        source._outputs.forget()


def test_both_channels_move_with_one_line_and_one_that_was_on_starts_where_it_is():
    ready = [VOLTS, (b"print(smub.source.func)\n", ONE), IS_OFF, *SWITCH_ON[1:], (b"print(smub.source.output)\n", ONE)]
    start = [measure("smua", "v", 0.0), measure("smub", "v", 3.0)]
    moves = [
        (b"smua.source.levelv=1.000000;smub.source.levelv=1.000000\n", None),
        measure("smua", "v", 1.0),
        measure("smub", "v", 1.0),
        (b"smub.source.levelv=0.000000\n", None),
        measure("smub", "v", 0.0),
    ]
    back = [VOLTS, IS_ON, level(0.0), *switched("smua", on=False)]
    with source_on(*ready, *start, *moves, *back, model="2614B", channels=2) as source:
        source.set_voltages({0: 1.0, 1: 0.0})
        source.set_voltages({0: 0.0})


def test_an_output_that_somebody_switched_off_starts_from_zero_again():  # D-44
    up = [VOLTS, *SWITCH_ON, level(2.0)]
    again = [VOLTS, *SWITCH_ON, level(2.0), level(3.0)]
    down = [VOLTS, IS_ON, level(1.0), level(0.0), *switched("smua", on=False)]
    with source_on(*up, *again, *down) as source:
        source.set_voltages({0: 2.0})
        source.set_voltages({0: 3.0})
        source.set_voltages({0: 0.0})


def test_a_current_source_is_refused_and_left_alone():
    with (
        source_on((b"print(smua.source.func)\n", ZERO)) as source,
        pytest.raises(DeviceError, match=r"smua is a current source.*smua\.source\.func=1.*Nothing was moved"),
    ):
        source.set_voltages({0: 1.0})


def limit(amperes):
    return (b"print(smua.source.limiti)\n", f"{amperes:.5e}\n".encode())


def test_a_current_limit_is_the_compliance_before_every_move_also_after_a_restart():
    put = [limit(0.1), (b"smua.source.limiti=0.005\n", None), limit(5e-3)]
    first = [VOLTS, *put, *SWITCH_ON, level(0.25), measure("smua", "i", 2e-4)]
    again = [VOLTS, *put, *SWITCH_ON, level(0.125), measure("smua", "i", 1e-4)]
    down = [VOLTS, limit(5e-3), IS_ON, level(0.0)]
    with source_on(*first, *again, *down, *switched("smua", on=False)) as source:
        source.set_channel_limits(0, max_current=5e-3)  # nothing is sent
        source.set_voltages({0: 0.25})
        source.set_voltages({0: 0.125})
        source.set_voltages({0: 0.0})


def test_a_compliance_that_the_instrument_does_not_take():
    refused = [limit(0.1), (b"smua.source.limiti=1\n", None), limit(0.1)]
    error = (b"print(errorqueue.next())\n", b"1.10200e+03\tParameter too big\t2.00000e+01\t1.00000e+00\n")
    with source_on(VOLTS, *refused, error, EMPTY, *safe_from(0.0)) as source:
        source.set_channel_limits(0, max_current=1.0)
        with pytest.raises(DeviceError, match=r"limit of smua is 0\.1 A although 1 A was set.*1102 Parameter too big"):
            source.set_voltages({0: 1.0})


@pytest.mark.parametrize(
    ("measured", "status", "problem"),
    [
        (0.3, 2, r"smua is held at its current limit.*set to 1 V and measures 0\.3 V"),
        (0.999, 2, "held at its current limit"),
        (0.0, 0, "smua does not follow"),
        (9.91e37, 128, "measures nan V"),
    ],
)
def test_what_did_not_arrive_is_found_at_once(measured, status, problem):
    ramp = [VOLTS, IS_ON, measure("smua", "v", 0.0), level(1.0, measured, status), EMPTY]
    with source_on(*ramp, *safe_from(0.3)) as source, pytest.raises(DeviceError, match=problem):
        source.set_voltages({0: 1.0})


def test_an_output_that_does_not_go_on():
    stuck = [VOLTS, *SWITCH_ON[:-1], (b"print(smua.source.output)\n", ZERO), EMPTY]
    off = [*safe_from(0.0), *switched("smua", on=False)]
    with (
        source_on(*stuck, *off) as source,
        pytest.raises(DeviceError, match="smua does not go on; check the interlock"),
    ):
        source.set_voltages({0: 1.0})


def test_limits_are_checked_before_anything_is_sent():
    with source_on() as source:
        for values in ({0: 200.1}, {0: -0.1}, {1: 1.0}, {0: math.inf}):
            with pytest.raises(LimitError):
                source.set_voltages(values)
        with pytest.raises(LimitError, match=r"1\.5 A"):
            source.set_channel_limits(0, max_current=1.6)
    with source_on(model="2601B") as source, pytest.raises(LimitError, match="40 V"):
        source.set_voltages({0: 41.0})


# Reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [b"9.91000e+37\t0\n", b"-9.9E37\t0\n", b"1.5\t128\n", b"nan\t1.28000e+02\n"])
def test_over_range_is_no_number(reply):  # D-26, D-28
    question = measure("smua", "i", 0.0)[0]
    with source_on((question, reply), measure("smua", "i", 1.5e-3)) as source:
        assert math.isnan(source.read_current(0))
        assert source.read_currents() == pytest.approx([1.5e-3])


@pytest.mark.parametrize(
    "reply",
    [
        b"1.5\n",
        b"1.5 0\n",
        b"1.5,0\n",
        b"1.5\t0\t0\n",
        b"1,5\t0\n",  # D-31
        b"-0.-1\t0\n",  # D-29
        b"1.5\t0.5\n",
        b"nil\t0\n",
        b"500\t0\n",  # no such source
        b"\xff1.5\t0\n",
    ],
)
def test_other_replies_are_refused_and_the_next_answer_is_right(reply):
    question = measure("smua", "v", 0.0)[0]
    with source_on((question, reply), IDN, measure("smua", "v", 2.5)) as source:
        with pytest.raises(ReplyError, match="bad reply"):
            source.read_voltage(0)
        assert source.read_voltage(0) == 2.5


@pytest.mark.parametrize("count", [0, 1, 50])
def test_the_error_queue_is_read_to_its_end(count):  # D-25
    entry = (b"print(errorqueue.next())\n", b"-2.85000e+02\tTSP Syntax error\t2.00000e+01\t1.00000e+00\n")
    with source_on(*[entry] * count, EMPTY) as source:
        if count:
            with pytest.raises(DeviceError, match="; ".join(["-285 TSP Syntax error"] * count)):
                source.check_errors()
        else:
            source.check_errors()


def test_an_endless_error_queue_is_left_after_a_hundred():  # D-25
    entry = (b"print(errorqueue.next())\n", b"-3.50000e+02\tQueue overflow\t2.00000e+01\t1.00000e+00\n")
    with source_on(*[entry] * 100) as source, pytest.raises(DeviceError, match="more than 100 others"):
        source.check_errors()


FIELDS = st.text(st.characters(codec="ascii", exclude_characters="\t\r\n"), max_size=30)


@given(st.integers(-9999, 9999), FIELDS)
def test_any_entry_of_the_queue_is_read(code, message):
    assert parse_queue_entry(f"{code:.5e}\t{message}\t2.00000e+01\t1.00000e+00") == (code, message)


@given(st.lists(FIELDS, min_size=1, max_size=6), st.integers(1, 6))
def test_values_are_divided_by_tabulators_and_counted(fields, count):
    text = "\t".join(fields)
    if len(fields) == count:
        assert split_values(text, count) == fields
    else:
        with pytest.raises(ValueError, match=f"instead of {count}"):
            split_values(text, count)


# On the simulated instrument ---------------------------------------------------------------------------------------


@pytest.fixture
def bench():
    (case,) = [case for case in CASES if case.id == "keithley_2600"]
    with simulated(case) as (running, chip, clock), opened(case, running.addresses["device"], clock) as source:
        yield running, chip, source


def test_volts_and_amperes_of_the_chip(bench):
    _, chip, source = bench
    source.set_voltages({0: 3.0, 1: 1.5})
    assert [chip.heater_voltage(0), chip.heater_voltage(1)] == pytest.approx([3.0, 1.5], abs=1e-3)
    assert source.read_voltages() == pytest.approx([3.0, 1.5], abs=1e-3)
    assert source.read_currents() == pytest.approx([chip.heater_current(0), chip.heater_current(1)], abs=1e-6)
    source.make_safe()
    assert source.ask("print(smua.source.output)") == "0.00000e+00"


def test_the_compliance_protects_a_heater_that_turns_into_a_short(bench):
    running, chip, source = bench
    source.set_channel_limits(0, max_current=4e-3)
    source.set_voltages({0: 3.0})
    running.faults.inject_on_chip(ShortedHeater(chip.layout.heaters[0], resistance_ohm=10.0))
    assert source.read_current(0) == pytest.approx(4e-3, rel=0.01)
    with pytest.raises(DeviceError, match="held at its current limit"):
        source.set_voltages({0: 2.5})
    running.faults.clear()


def test_a_level_that_was_lost_is_found_at_once(bench):  # D-38
    running, chip, source = bench
    source.set_voltages({0: 1.0})
    running.faults.inject("device", LostWrite(), match=rb"levelv=2\.0")
    with pytest.raises(DeviceError, match=r"does not follow: it was set to 2 V and measures (1\.0|0\.99)"):
        source.set_voltages({0: 2.0})
    source.set_voltages({0: 2.0})
    assert chip.heater_voltage(0) == pytest.approx(2.0, abs=1e-3)


def test_a_fixed_range_that_is_too_low_explains_itself(bench):
    _, _, source = bench
    source.write("smua.source.rangev=2")
    with pytest.raises(DeviceError, match=r"does not follow.*1102 Parameter too big"):
        source.set_voltages({0: 3.0})


def test_errors_of_others_stay_where_they_are_until_something_goes_wrong(bench):
    running, chip, source = bench
    running.faults.inject("device", ErrorFlood(5), match=rb"levelv")
    source.set_voltages({0: 1.0})
    assert chip.heater_voltage(0) == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(DeviceError, match="-310 System error"):
        source.check_errors()
    source.check_errors()
