"""The QDAC-II driver against byte-exact scripts and the simulated instrument."""

import math
from contextlib import contextmanager

import pytest
from _scripted_link import HangUp, ScriptServer
from driver_cases import CASES, opened, simulated
from hypothesis import given
from hypothesis import strategies as st
from qcodes.instrument import Instrument

from drivers import QDevilQDAC2
from drivers.qdevil import parse_errors
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, LinkError, ReplyError
from simulated_instruments.faults import ErrorFlood, LostWrite, ShortedHeater

IDN = (b"*IDN?\n", b"QDevil, QDAC-II, 12, 11-1.14\n")
NO_ERROR = (b"syst:err:all?\n", b'0, "No error"\n')


@contextmanager
def qdac_on(*steps, **options):
    with ScriptServer(IDN, *steps) as server:
        source = QDevilQDAC2("qdac", server.visa_address, **{"channels": 2, "timeout": 5.0, **options})
        source.clock = SimulatedClock()
        source.ramp_step = 2.0
        try:
            yield source
        finally:
            source.close()


def setpoints(*volts, first=1):
    """Compound questions for the setpoints of neighbouring channels, up to eight at once."""
    steps = []
    for start in range(0, len(volts), 8):
        part = volts[start : start + 8]
        text = ";:".join(f"sour{first + start + k}:volt?" for k in range(len(part)))
        steps.append((f"{text}\n".encode(), ";".join(f"{value:g}" for value in part).encode() + b"\n"))
    return steps


def checks(number, mode=b"fix", span=b"high", slew=b"2e+07"):
    channel = str(number).encode()
    return [
        (b"sour" + channel + b":volt:mode?\n", mode + b"\n"),
        (b"sour" + channel + b":rang?\n", span + b"\n"),
        (b"sour" + channel + b":volt:slew?\n", slew + b"\n"),
    ]


def sensor(number, span=b"high"):
    return (f"sens{number}:rang?\n".encode(), span + b"\n")


def put(*voltages):
    """One compound message, the look into the error queue, and the question for the setpoints."""
    text = ";:".join(f"sour{number}:volt {volts:.6f}" for number, volts in voltages)
    question = ";:".join(f"sour{number}:volt?" for number, _ in voltages)
    told = ";".join(f"{volts:g}" for _, volts in voltages)
    return [(text.encode() + b"\n", None), NO_ERROR, (question.encode() + b"\n", told.encode() + b"\n")]


def unlimited(*numbers):
    """The look at the currents of raised channels at the end of a ramp, far below the limit."""
    question = f"read{numbers[0]}?" if len(numbers) == 1 else f"read? (@{','.join(map(str, numbers))})"
    return [(question.encode() + b"\n", ",".join(["1e-3"] * len(numbers)).encode() + b"\n")]


SAFE_FROM_ONE_VOLT = [*setpoints(1.0, 0.0), *put((1, 0.0), (2, 0.0)), *setpoints(0.0, 0.0)]


# Connecting -------------------------------------------------------------------------------------------------------


def test_connecting_asks_for_the_identity_and_closing_does_nothing():
    with qdac_on() as source:
        assert source.channel_count == 2
    assert not Instrument.exist("qdac")


@pytest.mark.parametrize(
    "identity",
    [b"QDevil, QDAC, 12, 1.07\n", b"Keithley Instruments Inc., Model 2614B, 1, 3\n", b"QDevil, QSwitch, 1, 2\n"],
)
def test_another_instrument_is_refused(identity):
    with ScriptServer((b"*IDN?\n", identity)) as server, pytest.raises(IdentityError, match="QDAC-II is expected"):
        QDevilQDAC2("qdac", server.visa_address, timeout=1.0)
    assert not Instrument.exist("qdac")


def test_a_serial_port_may_hold_bytes_of_an_earlier_session():
    stale = (b"*IDN?\n", b"2.5;1\n" + IDN[1])
    with ScriptServer(stale, IDN, *setpoints(0.25)) as server:
        source = QDevilQDAC2("qdac", server.serial_url, channels=1, timeout=5.0)
        try:
            assert source.read_voltage(0) == 0.25
        finally:
            source.close()


def test_impossible_arguments():
    for options, problem in (({"channels": 25}, "24"), ({"channels": 0}, "24"), ({"voltage_range": "mid"}, "'low'")):
        with pytest.raises(ConfigurationError, match=problem):
            QDevilQDAC2("qdac", "TCPIP0::127.0.0.1::1::SOCKET", **options)


# Setting ----------------------------------------------------------------------------------------------------------


def test_the_first_move_checks_the_channels_and_sets_their_sensors():
    first = [
        *checks(1),
        *checks(2, mode=b"FIXED", span=b"HIGH", slew=b"inf"),
        sensor(1, b"low"),
        NO_ERROR,
        (b"sens1:rang high\n", None),
        NO_ERROR,
        sensor(2, b"HIGH"),
        *setpoints(0.0, 0.0),
        *put((1, 1.0), (2, 2.0)),
        *put((2, 2.5)),
        *setpoints(1.0, 2.5),
        *unlimited(1, 2),
    ]
    second = [*setpoints(1.0, 2.5), *put((1, 0.0), (2, 0.5)), *put((2, 0.0)), *setpoints(0.0, 0.0)]
    with qdac_on(*first, *second) as source:
        source.set_voltages({0: 1.0, 1: 2.5})
        source.set_voltages({0: 0.0, 1: 0.0})  # states are checked only once


def test_one_message_sets_up_to_eight_channels():
    moved = [(number, 0.5) for number in range(1, 11)]
    ready = [*(step for number, _ in moved for step in checks(number)), *(sensor(number) for number, _ in moved)]
    zeros = [(number, 0.0) for number, _ in moved]
    with qdac_on(
        *ready,
        *setpoints(*[0.0] * 10),
        NO_ERROR,
        *put(*moved[:8]),
        *put(*moved[8:]),
        *setpoints(*[0.5] * 10),
        *unlimited(*range(1, 11)),
        *setpoints(*[0.5] * 10),
        *put(*zeros[:8]),
        *put(*zeros[8:]),
        *setpoints(*[0.0] * 10),
        channels=10,
    ) as source:
        source.set_voltages({number - 1: volts for number, volts in moved})
        source.set_voltages({number - 1: 0.0 for number, _ in moved})


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (checks(1, mode=b"list")[:1], r"volt:mode 'list'.*sour1:volt:mode fix"),
        (checks(1, span=b"low")[:2], r"rang 'low'.*sour1:rang high"),
        (checks(1, slew=b"5"), r"slew limit of 5 V/s, too slow for ramps of 2 V every 0\.001 s"),
    ],
)
def test_a_channel_in_another_state_is_refused_and_nothing_is_moved(steps, problem):
    with qdac_on(*steps) as source, pytest.raises(DeviceError, match=problem):
        source.set_voltages({0: 1.0})


def test_a_slower_ramp_fits_a_slew_limit():
    steps = [*checks(1, slew=b"5"), sensor(1), *setpoints(0.0), NO_ERROR]
    steps += [*put((1, 1.0)), *setpoints(1.0), *unlimited(1), *setpoints(1.0), *put((1, 0.0)), *setpoints(0.0)]
    safe = [*setpoints(0.0), *put((1, 0.0)), *setpoints(0.0)]
    with qdac_on(*steps, *safe, channels=1, ramp_interval=0.5) as source:
        source.set_voltages({0: 1.0})
        source.set_voltages({0: 0.0})
        source.ramp_interval = 0.1
        with pytest.raises(DeviceError, match="too slow"):  # known without another question
            source.set_voltages({0: 1.0})


def test_errors_left_by_others_are_logged_and_own_ones_raised_all_together(caplog):  # D-25
    left = (b"syst:err:all?\n", b'-113, "Undefined header"\n')
    both = (b"syst:err:all?\n", b'-222, "Data out of range",-350, "Queue overflow"\n')
    steps = [
        *checks(1),
        sensor(1),
        *setpoints(0.0, 0.0),
        left,
        (b"sour1:volt 1.000000\n", None),
        both,
        *SAFE_FROM_ONE_VOLT,
    ]
    with qdac_on(*steps) as source:
        with pytest.raises(DeviceError, match="-222 Data out of range; -350 Queue overflow") as caught:
            source.set_voltages({0: 1.0})
        assert "the ramp stopped in step 1; last set: 0: unknown" in caught.value.__notes__[0]
    assert "errors left in the queue by others: -113 Undefined header" in caplog.text


def test_ramps_start_where_the_instrument_says_it_is_also_below_zero():  # D-44
    start = [*checks(1), sensor(1), *setpoints(-3.0, 0.0), NO_ERROR]
    ramp = [*put((1, -1.0)), *put((1, 1.0)), *setpoints(1.0), *unlimited(1)]
    with qdac_on(*start, *ramp, *SAFE_FROM_ONE_VOLT) as source:
        source.set_voltages({0: 1.0})


def test_a_restart_that_nobody_noticed_is_no_jump(caplog):  # D-44
    ready = [*checks(1), sensor(1), *setpoints(0.0), NO_ERROR, *put((1, 2.0)), *put((1, 3.0)), *setpoints(3.0)]
    ready += unlimited(1)
    fell = [*setpoints(0.0), *setpoints(0.0), *put((1, 2.0)), *put((1, 3.5)), *setpoints(3.5), *unlimited(1)]
    down = [*setpoints(3.5), *put((1, 1.5)), *put((1, 0.0)), *setpoints(0.0)]
    with qdac_on(*ready, *fell, *down, channels=1) as source:
        source.set_voltages({0: 3.0})
        source.set_voltages({0: 3.5})
        source.set_voltages({0: 0.0})
    assert "channel 0 was set to 3 V but is at 0 V now" in caplog.text


def test_limits_are_checked_before_anything_is_sent():
    with qdac_on(voltage_range="low") as source:
        for values in ({0: 2.1}, {0: -0.1}, {2: 1.0}, {0: math.nan}):
            with pytest.raises(LimitError):
                source.set_voltages(values)
        with pytest.raises(LimitError, match=r"0\.01 A"):
            source.set_channel_limits(0, max_current=0.011)


def test_after_a_broken_link_nothing_is_taken_for_granted():
    ready = [*checks(1), sensor(1), *setpoints(0.0), NO_ERROR, *put((1, 1.0)), *setpoints(1.0), *unlimited(1)]
    gone = [(b"sour1:volt?\n", HangUp()), IDN, IDN]
    again = [*checks(1), sensor(1), *setpoints(1.0), NO_ERROR, *put((1, 0.0)), *setpoints(0.0)]
    with qdac_on(*ready, *gone, *again, channels=1) as source:
        source.set_voltages({0: 1.0})
        with pytest.raises(LinkError):
            source.read_voltage(0)
        source.reconnect()
        source.set_voltages({0: 0.0})


def test_raw_commands_make_settings_unknown():
    raw = [(b"sour1:volt:mode list\n", None), checks(1, mode=b"list")[0]]
    safe = [*setpoints(0.0, 0.0), NO_ERROR, *put((1, 0.0), (2, 0.0)), *setpoints(0.0, 0.0)]
    with qdac_on(*raw, *safe) as source:
        source.write("sour1:volt:mode list")
        with pytest.raises(DeviceError, match="'list'"):
            source.set_voltages({0: 1.0})


# Reading ----------------------------------------------------------------------------------------------------------


def test_voltages_and_currents():
    steps = [*setpoints(1.5, -0.25), (b"read? (@1,2)\n", b"1.234567e-03, -2.5E-9\n"), (b"read2?\n", b"1e-3\n")]
    with qdac_on(*steps) as source:
        assert source.read_voltages() == pytest.approx([1.5, -0.25])
        assert source.read_currents() == pytest.approx([1.234567e-3, -2.5e-9])
        assert source.read_current(1) == 1e-3


@pytest.mark.parametrize("code", [b"9.9E+37", b"-9.9E37", b"9.91E37", b"NAN", b"inf"])
def test_over_range_is_no_number(code):  # D-26, D-28
    with qdac_on((b"read? (@1,2)\n", b"1e-3," + code + b"\n"), (b"sour1:volt?\n", code + b"\n"), IDN, IDN) as source:
        assert source.read_currents() == pytest.approx([1e-3, math.nan], nan_ok=True)
        with pytest.raises(ReplyError):  # a setpoint is never out of range
            source.read_voltage(0)
        source.get_idn()


@pytest.mark.parametrize(
    "reply",
    [
        b"1e-3\n",
        b"1e-3,2e-3,3e-3\n",
        b"1e-3;2e-3\n",
        b"0,001,0,002\n",
        b"-0.-1,1\n",
        b"1e-3,0.5\n",
        b",\n",
        b"\xff,1\n",
    ],
)
def test_other_replies_are_refused_and_the_next_answer_is_right(reply):  # D-29, D-31
    with qdac_on((b"read? (@1,2)\n", reply), IDN, *setpoints(0.5)) as source:
        with pytest.raises(ReplyError):
            source.read_currents()
        assert source.read_voltage(0) == 0.5


def test_a_current_out_of_range_proves_no_limit():
    over = (b"read1?\n", b"9.9E+37\n")
    steps = [*checks(1), sensor(1), *setpoints(0.0), NO_ERROR, *put((1, 2.0)), over]
    back = [*put((1, 0.0)), *setpoints(0.0)]
    with qdac_on(*steps, *back, channels=1) as source:
        source.set_channel_limits(0, max_power=5e-3)
        with pytest.raises(LimitError, match="out of the range of its reading"):
            source.set_voltages({0: 3.0})


MESSAGES = st.text(st.characters(codec="ascii", exclude_characters="\r\n", min_codepoint=32), max_size=20)


@given(st.lists(st.tuples(st.integers(-500, 500), MESSAGES), min_size=1, max_size=40))
def test_any_list_of_errors_is_read(entries):
    text = ",".join(f'{code}, "{message.replace(chr(34), chr(34) * 2)}"' for code, message in entries)
    assert parse_errors(text) == entries


@pytest.mark.parametrize(
    "text", ["", "0", '0 "No error"', '0, "No error', '0, "a" -1, "b"', '0, "a",', "No error", '9.9E37, "a"']
)
def test_what_is_no_list_of_errors(text):
    with pytest.raises(ValueError, match="no list of errors"):
        parse_errors(text)


# On the simulated instrument ---------------------------------------------------------------------------------------


@pytest.fixture
def bench():
    (case,) = [case for case in CASES if case.driver is QDevilQDAC2]
    with simulated(case) as (running, chip, clock), opened(case, running.addresses["device"], clock) as source:
        yield running, chip, source


def test_light_and_heat_of_the_chip(bench):
    _, chip, source = bench
    source.set_voltages({0: 3.0, 1: 1.5})
    assert [chip.heater_voltage(0), chip.heater_voltage(1)] == pytest.approx([3.0, 1.5], abs=1e-4)
    assert source.read_voltages() == pytest.approx([3.0, 1.5, 0.0, 0.0], abs=1e-5)
    assert source.read_currents()[:2] == pytest.approx([chip.heater_current(0), chip.heater_current(1)], abs=1e-6)
    source.make_safe()
    assert chip.heater_voltage(0) == 0.0


def test_a_limit_of_power_with_the_measured_resistance(bench):
    _, chip, source = bench
    source.set_channel_limits(0, max_power=15e-3)  # about 4.5 V
    source.set_voltages({0: 3.0})
    with pytest.raises(LimitError, match="power"):
        source.set_voltages({0: 8.0})
    assert chip.heater_voltage(0) == pytest.approx(3.0, abs=1e-4)


def test_a_short_circuit_shows_in_the_current(bench):
    running, chip, source = bench
    source.set_channel_limits(0, max_current=5e-3)
    running.faults.inject_on_chip(ShortedHeater(chip.layout.heaters[0], resistance_ohm=20.0))
    with pytest.raises(LimitError, match="current"):
        source.set_voltages({0: 5.0})


def test_an_output_at_its_current_limit_is_reported(bench):
    running, chip, source = bench
    running.faults.inject_on_chip(ShortedHeater(chip.layout.heaters[0], resistance_ohm=20.0))
    with pytest.raises(DeviceError, match=r"channels \[0\] are at their current limit of 0\.01 A"):
        source.set_voltages({0: 5.0, 1: 1.0})
    source.make_safe()


def test_a_write_that_was_lost_is_found_at_the_end(bench):  # D-38
    running, chip, source = bench
    source.set_voltages({0: 1.0, 1: 1.0})
    running.faults.inject("device", LostWrite(), match=rb"sour1:volt 2\.0")
    with pytest.raises(DeviceError, match="channel 0 was set to 2 V, but its setpoint is 1 V"):
        source.set_voltages({0: 2.0})
    source.set_voltages({0: 2.0})
    assert chip.heater_voltage(0) == pytest.approx(2.0, abs=1e-4)


def test_a_flood_of_errors_before_ours_is_logged_and_one_of_ours_is_raised(bench, caplog):
    running, _, source = bench
    running.faults.inject("device", ErrorFlood(50), match=rb"syst:err")
    source.set_voltages({0: 1.0})
    assert caplog.text.count("-310 System error") == 29
    assert "-350 Queue overflow" in caplog.text
    running.faults.inject("device", ErrorFlood(3), match=rb"syst:err")
    with pytest.raises(DeviceError, match="-310 System error; -310 System error; -310 System error"):
        source.check_errors()
    source.check_errors()
