"""The simulated XPOW in both dialects, at its session."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, SimulatedNicslabXPOW

COUNT_V = 40.0 / 65535
COUNTS_REPLY = rb"(?:CH:(\d+):VAL\? Channel (\d+)) = (-?\d+\.\d{3})V, (-?\d+\.\d{3})mA\n"
UNITS_REPLY = rb"CH:(\d+):(-?\d+\.\d{3}):(-?\d+\.\d{3})\n"


def xpow(dialect, channels=8, loads=4):
    chip = HiddenChip.from_seed(4, 2)
    return SimulatedNicslabXPOW("x", channels, dialect, chip, {k: k for k in range(loads)}), chip


def read(session, channel, dialect):
    reply = session.receive(f"CH:{channel}:VAL?\n".encode())
    match = re.fullmatch(COUNTS_REPLY if dialect == "counts" else UNITS_REPLY, reply)
    assert match is not None, reply
    assert int(match[1]) == channel
    return float(match.groups()[-2]), float(match.groups()[-1])


@pytest.mark.parametrize(
    ("dialect", "volt", "current"),
    [("counts", "CH:2:VOLT:3277", "CH:2:CUR:437"), ("units", "CH:2:VOLT:2", "CH:2:CURR:2")],
)
def test_voltage_and_current_levels(dialect, volt, current):
    """3277 counts of 40 V / 65535 are 2.0002 V; 437 counts of 300 mA / 65535 are 2.0005 mA."""
    instrument, chip = xpow(dialect)
    session = instrument.open_session()
    assert session.receive(volt.encode() + b"\n") == b""
    assert chip.heater_voltage(1) == pytest.approx(2.0, abs=COUNT_V)
    volts, milliamperes = read(session, 2, dialect)
    assert volts == pytest.approx(2.0, abs=2e-3)
    assert milliamperes == pytest.approx(1e3 * chip.heater_current(1), abs=0.03)
    assert session.receive(current.encode() + b"\n") == b""
    assert chip.heater_current(1) == pytest.approx(2e-3, abs=2e-6)


@pytest.mark.parametrize("dialect", ["counts", "units"])
def test_identity_and_read_back_of_an_open_channel(dialect):
    session = xpow(dialect)[0].open_session()
    reply = session.receive(b"*IDN?\n")
    assert b"XPOW" in reply
    assert reply.endswith(b"\n")
    volts, milliamperes = read(session, 8, dialect)
    assert abs(volts) < 2e-3
    assert abs(milliamperes) < 0.05


@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        ("counts", "CH:1:VOLT:65536"),
        ("counts", "CH:1:VOLT:1.5"),
        ("counts", "CH:1:VOLT:-1"),
        ("counts", "CH:1:CURR:100"),
        ("counts", "CH:0:VOLT:100"),
        ("counts", "CH:9:VOLT:100"),
        ("counts", "CH:9:VAL?"),
        ("counts", "CH:1:VAL?:3"),
        ("counts", "CH:1:VOLT"),
        ("counts", "WHAT?"),
        ("units", "CH:1:VOLT:40.1"),
        ("units", "CH:1:VOLT:nan"),
        ("units", "CH:1:VOLT:0,5"),
        ("units", "CH:1:CUR:5"),
        ("units", "CH:1:CURR:301"),
    ],
)
def test_what_it_does_not_understand_is_silence_and_changes_nothing(dialect, line):
    instrument, chip = xpow(dialect)
    assert instrument.open_session().receive(line.encode() + b"\r\n") == b""
    assert not any(chip.heater_voltage(k) for k in range(4))


@given(st.integers(0, 49151))
def test_counts_arrive_on_the_heater(count):
    instrument, chip = xpow("counts")
    instrument.open_session().receive(f"CH:1:VOLT:{count}\n".encode())
    assert chip.heater_voltage(0) == pytest.approx(count * COUNT_V, abs=1e-9)


def test_a_current_that_an_open_channel_cannot_carry_stops_at_full_voltage():
    instrument, _ = xpow("units", loads=1)
    session = instrument.open_session()
    session.receive(b"CH:5:CURR:10\n")
    assert read(session, 5, "units")[0] == pytest.approx(40.0, abs=2e-3)


def test_the_voltage_stays_where_the_chip_had_it_and_a_new_session_changes_nothing():
    chip = HiddenChip.from_seed(4, 2)
    chip.set_heater_voltages({2: 3.0})
    instrument = SimulatedNicslabXPOW("x", 40, "units", chip, {7: 2})
    for _ in range(2):
        assert read(instrument.open_session(), 8, "units")[0] == pytest.approx(3.0, abs=2e-3)
    assert chip.heater_voltage(2) == 3.0


def test_restart_is_a_fresh_instrument():
    instrument, chip = xpow("units")
    session = instrument.open_session()
    session.receive(b"CH:1:VOLT:5\nCH:2:CURR:3\n")
    assert instrument.flood_errors(3) == b""
    instrument.restart()
    assert not any(chip.heater_voltage(k) for k in range(4))
    fresh = xpow("units")[0].open_session()
    for channel in range(1, 9):
        assert read(session, channel, "units") == pytest.approx(read(fresh, channel, "units"), abs=0.05)


def test_impossible_instruments_are_refused():
    chip = HiddenChip.from_seed(4, 2)
    for channels, dialect, heaters, problem in (
        (16, "counts", {}, "8 or 40"),
        (8, "volts", {}, "counts or units"),
        (8, "counts", {8: 0}, "channel 8"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            SimulatedNicslabXPOW("x", channels, dialect, chip, heaters)
