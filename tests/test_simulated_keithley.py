"""The simulated Keithley 2600B, byte for byte at its session, and its TSP."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, InstrumentSpec, SimulatedBench, SimulatedKeithley2600
from simulated_instruments.bench import BenchWiring

EMPTY = b"0.00000e+00\tQueue Is Empty\t0.00000e+00\t0.00000e+00\n"
SOURCE = ("func", "output", "levelv", "leveli", "limitv", "limiti", "rangev", "rangei", "autorangev", "autorangei")
MEASURE = ("nplc", "rangev", "autorangev", "autorangei", "count", "autozero")
ATTRIBUTES = (*(f"source.{name}" for name in SOURCE), *(f"measure.{name}" for name in MEASURE), "sense")


def keithley(model="2614B", loads=2):
    chip = HiddenChip.from_seed(4, 2)
    return SimulatedKeithley2600("k", model, chip, {k: k for k in range(loads)}), chip


def ask(session, *lines):
    return [session.receive(line.encode() + b"\n") for line in lines]


def settings(session, smu="smua"):
    return ask(session, f"print({', '.join(f'{smu}.{name}' for name in ATTRIBUTES)})")


def values(reply):
    assert reply.endswith(b"\n")
    return [float(text) for text in reply.decode().rstrip("\n").split("\t")]


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("*IDN?", b"Keithley Instruments Inc., Model 2614B, 1398687, 3.3.5\n"),
        ("*opc?", b"1\n"),
        ("print(localnode.model)", b"2614B\n"),
        ("print(localnode.linefreq)", b"5.00000e+01\n"),
        ("print(errorqueue.next())", EMPTY),
        ("print(errorqueue.count)", b"0.00000e+00\n"),
        ("print(smua.source.func)", b"1.00000e+00\n"),
        ("print(smub.source.output)", b"0.00000e+00\n"),
        ("print(smua.source.levelv, smua.source.limiti)", b"0.00000e+00\t1.00000e-01\n"),
        ("print(smua.source.compliance)", b"false\n"),
        ("print(smua.source.unheard_of)", b"nil\n"),
        ("print('a', \"b\", nil, true, -2)", b"a\tb\tnil\ttrue\t-2.00000e+00\n"),
        ("print(1) print(2);print(3)", b"1.00000e+00\n2.00000e+00\n3.00000e+00\n"),
        ("x = 0.5 print(x, -x)", b"5.00000e-01\t-5.00000e-01\n"),
        ("print(errorqueue.next(), 7)", b"0.00000e+00\t7.00000e+00\n"),
        ("format.asciiprecision=10 print(1)", b"1.000000000e+00\n"),
        ("print(smua.OUTPUT_DCVOLTS, smua.OUTPUT_OFF)", b"1.00000e+00\t0.00000e+00\n"),
        ("display.clear()", b""),
        ("smua.source.levelv=1", b""),
    ],
)
def test_replies(command, reply):
    assert ask(keithley()[0].open_session(), command) == [reply]


@pytest.mark.parametrize(
    ("chunk", "code", "message"),
    [
        ("print(", -285, "TSP Syntax error at line 1: unexpected symbol near `<eof>'"),
        ("smua.source.levelv=1 2", -285, "TSP Syntax error at line 1: unexpected symbol near `2'"),
        ("smua.source.levelv=0,5", -285, "TSP Syntax error at line 1: unexpected symbol near `,'"),
        ("*", -113, "Undefined header"),
        ("smuc.source.levelv=1", -286, None),
        ("print(smuc.source.levelv)", -286, None),
        ("smua.blow()", -286, None),
        ("smua.source.levelv='x'", -286, None),
        ("smua.source.compliance=1", -286, None),
        ("smua.source.levelv=203", 1102, "Parameter too big"),
        ("smua.source.levelv=-203", 1101, "Parameter too small"),
        ("smua.source.rangev=2 smua.source.levelv=3", 1102, "Parameter too big"),
        ("smua.source.limiti=2", 1102, "Parameter too big"),
        ("smua.source.limiti=1e-9", 1101, "Parameter too small"),
        ("smua.measure.v(1)", 1106, "Too many parameters"),
        ("format.asciiprecision=0", 1102, "Parameter out of range"),
        ("localnode.prompts=true", -286, None),
    ],
)
def test_errors_wait_in_the_queue_and_the_chunk_is_silent(chunk, code, message):
    session = keithley()[0].open_session()
    silent, error, empty = ask(session, chunk, "print(errorqueue.next())", "print(errorqueue.next())")
    fields = error.decode().rstrip("\n").split("\t")
    assert (silent, empty) == (b"", EMPTY)
    assert float(fields[0]) == code
    assert fields[1] == message if message else fields[1].startswith("TSP Runtime error")
    assert len(fields) == 4


def test_a_chunk_that_cannot_be_parsed_is_not_run_and_one_that_fails_stops_there():
    session = keithley()[0].open_session()
    ask(session, "smua.source.levelv=1; smua.source.levelv=2 =")
    assert ask(session, "print(smua.source.levelv)") == [b"0.00000e+00\n"]
    assert ask(session, "smua.source.levelv=1 print(3) nothing() smua.source.levelv=2") == [b"3.00000e+00\n"]
    assert ask(session, "print(smua.source.levelv)") == [b"1.00000e+00\n"]


def test_an_output_has_voltage_only_while_it_is_on():
    instrument, chip = keithley()
    session = instrument.open_session()
    ask(session, "smua.source.levelv=1.5")
    assert chip.heater_voltage(0) == 0.0
    ask(session, "smua.source.output=1")
    assert chip.heater_voltage(0) == pytest.approx(1.5, abs=1e-4)
    voltage, status = values(ask(session, "print(smua.measure.v(), status.measurement.instrument.smua.condition)")[0])
    current, again = values(ask(session, "print(smua.measure.iv())")[0])
    assert voltage == pytest.approx(1.5, abs=1e-3)
    assert again == pytest.approx(1.5, abs=1e-3)
    assert status == 0
    assert current == pytest.approx(chip.heater_current(0), rel=1e-3)
    resistance, power = values(ask(session, "print(smua.measure.r(), smua.measure.p())")[0])
    assert resistance == pytest.approx(1.5 / current, rel=1e-3)
    assert power == pytest.approx(1.5 * current, rel=1e-3)
    ask(session, "smua.source.output=0")
    assert chip.heater_voltage(0) == 0.0


def test_compliance_holds_the_voltage_back_and_shows_in_the_status():
    instrument, chip = keithley()
    session = instrument.open_session()
    ask(session, "smua.source.limiti=0.5e-3 smua.source.levelv=5 smua.source.output=1")
    assert chip.heater_current(0) == pytest.approx(0.5e-3, rel=1e-3)
    measured, status, compliance = (
        ask(session, "print(smua.measure.v(), status.measurement.instrument.smua.condition, smua.source.compliance)")[0]
        .decode()
        .split("\t")
    )
    assert float(measured) == pytest.approx(chip.heater_voltage(0), abs=1e-3)
    assert float(status) == 2.0
    assert compliance == "true\n"


def test_a_current_source_stops_at_its_voltage_limit():
    instrument, chip = keithley()
    session = instrument.open_session()
    ask(session, "smub.source.func=0 smub.source.leveli=1e-3 smub.source.output=1")
    assert chip.heater_current(1) == pytest.approx(1e-3, rel=1e-3)
    ask(session, "smub.source.limitv=0.5")
    assert chip.heater_voltage(1) == pytest.approx(0.5, abs=1e-3)
    assert values(ask(session, "print(status.measurement.instrument.smub.condition)")[0]) == [1.0]


def test_a_fixed_range_that_is_too_low_reads_the_overflow_code():
    session = keithley()[0].open_session()
    ask(session, "smua.source.levelv=5 smua.source.output=1 smua.measure.rangei=1e-6")
    reply = ask(session, "print(smua.measure.i(), status.measurement.instrument.smua.condition)")
    assert reply == [b"9.91000e+37\t1.28000e+02\n"]
    assert ask(session, "print(smua.measure.rangei, smua.measure.autorangei)") == [b"1.00000e-06\t0.00000e+00\n"]
    ask(session, "smua.measure.autorangei=1")
    assert values(ask(session, "print(smua.measure.i())")[0])[0] > 1e-3


@given(st.floats(-200.0, 200.0))
def test_levels_come_back_with_six_digits(level):
    session = keithley(loads=0)[0].open_session()
    (reply,) = ask(session, f"smua.source.levelv={level!r} print(smua.source.levelv)")
    assert float(reply) == pytest.approx(level, rel=5e-6, abs=1e-300)
    assert re.fullmatch(rb"-?\d\.\d{5}e[+-]\d{2,3}\n", reply)


@given(st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=60))
def test_any_line_is_answered_or_queued_and_harms_nothing(line):
    session = keithley()[0].open_session()
    session.receive(line.encode() + b"\n")
    assert ask(session, "format.asciiprecision=6 print(localnode.model)") == [b"2614B\n"]


@pytest.mark.parametrize("way", ["restart", "reset()", "*RST", "smua.reset()"])
def test_restart_and_reset_are_a_fresh_instrument(way):
    instrument, chip = keithley()
    session = instrument.open_session()
    ask(session, "smua.source.levelv=5 smua.source.output=1 smua.source.limiti=1e-3 smua.measure.nplc=5 smua.sense=1")
    ask(session, "smua.source.rangev=20 smua.measure.rangev=20 smua.source.func=0 x=3 format.asciiprecision=4")
    fresh = keithley()[0].open_session()
    if way == "restart":
        assert instrument.flood_errors(3) == b""
        instrument.restart()
        assert ask(session, "print(x)", "print(errorqueue.next())") == [b"nil\n", EMPTY]
    else:
        ask(session, way, "format.asciiprecision=6")
    assert settings(session) == settings(fresh)
    assert chip.heater_voltage(0) == 0.0


def test_a_flood_of_errors_fills_the_queue_to_its_depth():
    instrument, _ = keithley()
    session = instrument.open_session()
    assert instrument.flood_errors(1000) == b""
    entries = [ask(session, "print(errorqueue.next())")[0] for _ in range(65)]
    assert entries[-1] == EMPTY
    assert entries[-2].startswith(b"-3.50000e+02\tQueue overflow\t")
    ask(session, "nonsense(")
    assert ask(session, "errorqueue.clear() print(errorqueue.count)") == [b"0.00000e+00\n"]


@pytest.mark.parametrize(("model", "channels", "span"), [("2601B", 1, 40.0), ("2636B", 2, 200.0)])
def test_models_differ_in_channels_and_ranges(model, channels, span):
    session = keithley(model, loads=1)[0].open_session()
    ask(session, "smub.source.levelv=1", f"smua.source.levelv={span} print(smua.source.levelv)")
    assert values(ask(session, "print(errorqueue.count)")[0]) == [2.0 - channels]
    assert values(ask(session, "print(smua.source.rangev)")[0]) == [span]


def test_impossible_instruments_are_refused():
    chip = HiddenChip.from_seed(4, 2)
    with pytest.raises(ConfigurationError, match=r"2400.*2614B"):
        SimulatedKeithley2600("k", "2400", chip, {})
    specs = (InstrumentSpec("k", "keithley_2600", 2, {"model": "2601B"}), InstrumentSpec("laser", "santec_tsl570"))
    with pytest.raises(ConfigurationError, match="1 channels"):
        SimulatedBench(chip, specs, BenchWiring({}, {}, "laser"), chip.clock)
