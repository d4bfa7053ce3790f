"""The simulated QDAC-II, byte for byte at its session."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, InstrumentSpec, SimulatedBench, SimulatedQDevilQDAC2
from simulated_instruments.bench import BenchWiring
from simulated_instruments.faults import ShortedHeater

NO_ERROR = b'0, "No error"\n'
SETTINGS = b"sour{n}:volt?;:sour{n}:volt:mode?;slew?;trig?;:sour{n}:rang?;filt?;:sens{n}:rang?;nplc?;aper?;coun?;del?"


def qdac(loads=4):
    chip = HiddenChip.from_seed(4, 2)
    return SimulatedQDevilQDAC2("q", chip, {k: k for k in range(loads)}), chip


def ask(session, *lines):
    return [session.receive(line.encode() + b"\n") for line in lines]


def settings(session, channel):
    return session.receive(SETTINGS.replace(b"{n}", str(channel).encode()) + b"\n")


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("syst:err?", NO_ERROR),
        ("syst:err:all?", NO_ERROR),
        ("SYSTEM:ERROR:NEXT?", NO_ERROR),
        ("syst:err:coun?", b"0\n"),
        ("syst:comm:lan:mac?", b'"049162C01016"\n'),
        ("sour1:volt?", b"0\n"),
        ("sour24:volt:mode?", b"fix\n"),
        ("sour1:rang?", b"high\n"),
        ("sour1:rang:low:max?;:sour1:rang:high:min?", b"2;-10\n"),
        ("sens1:nplc?", b"1\n"),
        ("sens3:data:last?", b"9.91E+37\n"),
        ("sens3:data:poin?", b"0\n"),
        ("sour:volt? (@1,3:4)", b"0,0,0\n"),
        ("*opc?", b"1\n"),
    ],
)
def test_replies_after_power_on(command, reply):
    assert ask(qdac()[0].open_session(), command) == [reply]


def test_identity_has_the_form_of_the_hardware():
    (reply,) = ask(qdac()[0].open_session(), "*idn?")
    assert reply == b"QDevil, QDAC-II, 12, 11-1.14\n"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("sour1:volt 10.1", b'-222, "Data out of range"\n'),
        ("sour1:rang low;:sour1:volt 2.1", b'-222, "Data out of range"\n'),
        ("sour25:volt 1", b'-114, "Header suffix out of range"\n'),
        ("sour:volt 1,(@0)", b'-114, "Header suffix out of range"\n'),
        ("sour1:volt 0,5", b'-108, "Parameter not allowed"\n'),
        ("sour1:volt x", b'-104, "Data type error"\n'),
        ("sour1:volt", b'-109, "Missing parameter"\n'),
        ("sour1:volt:mode fast", b'-224, "Illegal parameter value"\n'),
        ("sour1:rang mid", b'-224, "Illegal parameter value"\n'),
        ("sens:rang low,(@1,x)", b'-108, "Parameter not allowed"\n'),
        ("sens:rang low,(@1,)", b'-224, "Illegal parameter value"\n'),
        ("sour1:volt 1;sour2:volt 1", b'-113, "Undefined header"\n'),
        ("nonsense", b'-113, "Undefined header"\n'),
    ],
)
def test_errors_wait_in_the_queue_and_the_command_is_silent(command, error):
    session = qdac()[0].open_session()
    assert ask(session, command, "syst:err:all?", "syst:err:all?") == [b"", error, NO_ERROR]


def test_voltages_and_currents_of_the_chip():
    instrument, chip = qdac()
    session = instrument.open_session()
    assert ask(session, "sour1:volt 2.5;:sour2:volt -1.25", "sour3:volt 500mv") == [b"", b""]
    assert [chip.heater_voltage(k) for k in range(3)] == pytest.approx([2.5, 1.25, 0.5], abs=1e-5)
    (reply,) = ask(session, "read? (@1,2,5)")
    currents = [float(text) for text in reply.split(b",")]
    assert currents[:2] == pytest.approx([chip.heater_current(0), -chip.heater_current(1)], abs=2e-7)
    assert abs(currents[2]) < 2e-7
    assert ask(session, "fetc1?") == [f"{currents[0]:.6e}\n".encode()]


def test_a_sensor_in_the_low_range_is_over_range_above_200_na():
    session = qdac()[0].open_session()
    ask(session, "sour1:volt 1", "sens:rang low,(@1,2)")
    over, open_end = ask(session, "read1?", "read2?")
    assert over == b"9.9E+37\n"
    assert abs(float(open_end)) < 200e-9


def test_ten_milliamperes_are_the_most():
    instrument, chip = qdac()
    session = instrument.open_session()
    ask(session, "sour1:volt 5")
    chip.inject(ShortedHeater(chip.layout.heaters[0], resistance_ohm=50.0))
    (reply,) = ask(session, "read1?")
    assert float(reply) == pytest.approx(10e-3, rel=1e-3)
    assert chip.heater_voltage(0) == pytest.approx(0.5, rel=2e-3)
    assert ask(session, "sour1:volt?") == [b"5\n"]
    chip.heal()
    ask(session, "read1?")
    assert chip.heater_voltage(0) == pytest.approx(5.0, abs=1e-4)


def test_counts_of_readings_and_their_removal():
    session = qdac()[0].open_session()
    ask(session, "sens2:coun 3")
    read, points, fetched, removed, left = ask(
        session, "read2?", "sens2:data:poin?", "fetc2?", "sens2:data:rem?", "sens2:data:poin?"
    )
    assert len(read.split(b",")) == 3
    assert points == b"3\n"
    assert read == fetched == removed
    assert left == b"0\n"


@given(st.integers(-10_000_000, 10_000_000))
def test_voltages_within_a_step(microvolt):
    """20 bits over 20 V are 19 uV; six digits of a reply are 10 uV at 10 V."""
    instrument, chip = qdac(loads=1)
    session = instrument.open_session()
    volts = microvolt * 1e-6
    (reply,) = ask(session, f"sour1:volt {volts:.6f};:sour1:volt?")
    assert float(reply) == pytest.approx(volts, abs=1e-5)
    assert chip.heater_voltage(0) == pytest.approx(abs(volts), abs=1e-5)


def test_a_trigger_brings_the_next_voltage():
    instrument, chip = qdac()
    session = instrument.open_session()
    ask(session, "sour1:volt:trig 1.5", "sour2:volt:trig 0.5")
    assert chip.heater_voltage(0) == 0.0
    ask(session, "sour1:dc:init")
    assert chip.heater_voltage(0) == pytest.approx(1.5, abs=1e-5)
    ask(session, "*trg")
    assert chip.heater_voltage(1) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("way", ["restart", "*rst"])
def test_restart_and_reset_are_a_fresh_instrument(way):
    instrument, chip = qdac()
    session = instrument.open_session()
    ask(session, "sour:volt 1.5,(@1:4)", "sour1:volt:mode list", "sour1:rang low", "sens1:rang low", "sens1:nplc 3")
    ask(session, "sour1:volt:slew 2", "sour1:filt dc", "read1?", "sens1:coun 2", "sens1:aper 0.1", "sens1:del 1")
    fresh = qdac()[0].open_session()
    assert settings(session, 1) != settings(fresh, 1)
    if way == "restart":
        assert instrument.flood_errors(2) == b""
        instrument.restart()
    else:
        ask(session, way)
    for channel in (1, 2, 24):
        assert settings(session, channel) == settings(fresh, channel)
    assert ask(session, "syst:err:all?", "fetc1?") == ask(fresh, "syst:err:all?", "fetc1?")
    assert not any(chip.heater_voltage(k) for k in range(4))


def test_a_flood_of_errors_fills_the_queue_to_its_depth():
    instrument, _ = qdac()
    session = instrument.open_session()
    assert instrument.flood_errors(100) == b""
    (reply,) = ask(session, "syst:err:all?")
    assert reply.endswith(b'-350, "Queue overflow"\n')
    assert reply.count(b"-310") == 29
    assert ask(session, "syst:err:coun?") == [b"0\n"]


def test_benches_with_too_many_channels_are_refused():
    chip = HiddenChip.from_seed(4, 2)
    specs = (InstrumentSpec("q", "qdevil_qdac2", 25), InstrumentSpec("laser", "santec_tsl570"))
    with pytest.raises(ConfigurationError, match="24 channels"):
        SimulatedBench(chip, specs, BenchWiring({}, {}, "laser"), chip.clock)
    with pytest.raises(ConfigurationError, match="channel 24"):
        SimulatedQDevilQDAC2("q", chip, {24: 0})
