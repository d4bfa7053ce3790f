"""The SCPI parser that simulated instruments share."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulated_instruments._scpi import (
    LENGTH_UNITS,
    CommandTree,
    ErrorQueue,
    Quantity,
    ScpiError,
    ScpiInterpreter,
    block,
    exponential,
    number,
    plain,
    query,
)
from simulated_instruments._session import LineSession

PATTERNS = (
    "SENSe#[:CHANnel#]:POWer:WAVelength",
    "SENSe#[:CHANnel#]:POWer:WAVelength?",
    "*IDN?",
    "SYSTem:ERRor[:NEXT]?",
)


def tree():
    return CommandTree({pattern: (lambda s, a, p=pattern: p) for pattern in PATTERNS})


def any_case(text):
    return st.lists(st.booleans(), min_size=len(text), max_size=len(text)).map(
        lambda flags: "".join(c.upper() if f else c.lower() for c, f in zip(text, flags, strict=True))
    )


@st.composite
def headers(draw):
    """A header of the first pattern in some spelling, with the suffixes that it means."""
    slot = draw(st.one_of(st.none(), st.integers(1, 9999)))
    channel = draw(st.one_of(st.none(), st.just(""), st.integers(1, 9999)))
    nodes = [draw(st.sampled_from(["SENS", "SENSE"])) + ("" if slot is None else str(slot))]
    if channel is not None:
        nodes.append(draw(st.sampled_from(["CHAN", "CHANNEL"])) + str(channel))
    nodes.append(draw(st.sampled_from(["POW", "POWER"])))
    nodes.append(draw(st.sampled_from(["WAV", "WAVELENGTH"])))
    return draw(any_case(":".join(nodes))), (slot or 1, channel or 1)


@given(headers())
def test_all_spellings_of_a_header_are_found(spelling):
    header, suffixes = spelling
    for end in ("", "?"):
        handler, found = tree().find(header + end)
        assert handler(found, []) == "SENSe#[:CHANnel#]:POWer:WAVelength" + end
        assert found == suffixes


@pytest.mark.parametrize(
    "header", ["SEN:POW:WAV", "SENSE1:POWE:WAV", "SENS:POW", "SENS:POW:WAV:X", "IDN?", "*IDN", "", "?"]
)
def test_other_headers_are_undefined(header):
    with pytest.raises(ScpiError) as caught:
        tree().find(header)
    assert caught.value.code == -113


@given(st.text(max_size=30))
def test_no_header_breaks_the_tree(header):
    found, known = tree(), ("SENS", "*IDN", "SYST")
    if header.upper().startswith(known):
        header = "X" + header
    for _ in range(2):
        with pytest.raises(ScpiError) as caught:
            found.find(header)
        assert caught.value.code == -113


@given(st.floats(1e-12, 1e12), st.sampled_from(["", "nm", " NM", "  um", "pm"]))
def test_numbers_with_units(value, unit):
    parsed, name = number(f"{value!r}{unit}", LENGTH_UNITS)
    assert parsed == value * LENGTH_UNITS[unit.strip().upper()]
    assert name == unit.strip().upper()


@pytest.mark.parametrize(
    ("text", "code"), [("abc", -104), ("1.2.3", -104), ("1 furlong", -131), ("", -104), ("1e999", -222), ("--1", -104)]
)
def test_bad_numbers(text, code):
    with pytest.raises(ScpiError) as caught:
        number(text, LENGTH_UNITS)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["1550 nm"], 1550e-9), (["1.55e-6"], 1.55e-6), (["min"], 1e-6), (["MAXimum"], 2e-6), (["DEF"], 1.5e-6)],
)
def test_quantity(arguments, value):
    assert Quantity(1e-6, 2e-6, 1.5e-6, LENGTH_UNITS).parse(arguments) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(("arguments", "code"), [([], -109), (["1", "2"], -108), (["3 um"], -222), (["0"], -222)])
def test_bad_quantity(arguments, code):
    with pytest.raises(ScpiError) as caught:
        Quantity(1e-6, 2e-6, 1.5e-6, LENGTH_UNITS).parse(arguments)
    assert caught.value.code == code


@given(st.floats(-1e30, 1e30))
def test_exponential_form(value):
    text = exponential(value)
    assert text[0] in "+-"
    assert text[-5] == "E"
    assert text[-4] in "+-"
    assert float(text) == pytest.approx(value, rel=1e-8, abs=1e-300)


def test_exponential_form_is_that_of_the_manual():
    assert exponential(1.55e-6) == "+1.55000000E-006"
    assert exponential(-0.0) == "-0.00000000E+000"


def test_block_header():
    assert block(b"abc") == b"#13abc"
    assert block(b"x" * 32) == b"#232" + b"x" * 32


def echo():
    errors = ErrorQueue('%+d,"%s"', depth=3)
    values = {"wav": "1"}

    def set_wavelength(arguments):
        if arguments == ["9999"]:
            raise ScpiError(-222, "Data out of range")
        values["wav"] = "/".join(arguments)

    commands = {
        "SOURce:WAVelength": plain(set_wavelength),
        "SOURce:WAVelength?": query(lambda: values["wav"]),
        "SOURce:POWer?": query(lambda: "p"),
        "SOURce:DATA?": query(lambda: block(b";\n")),
        "*IDN?": query(lambda: "id"),
        "SYSTem:ERRor?": query(errors.pop),
    }
    return ScpiInterpreter(commands, errors, b"\n")


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("*idn?", b"id\n"),
        ("sour:wav 5;wav?", b"5\n"),
        ("sour:wav?;pow?", b"1;p\n"),
        (":sour:wav?;:sour:pow?", b"1;p\n"),
        ("sour:wav?;*IDN?;pow?", b"1;id;p\n"),
        ("sour:wav 'a;b',\"c,d\";wav?", b"'a;b'/\"c,d\"\n"),
        ("sour:data?;pow?", b"#12;\n;p\n"),
        ("  sour:wav \t 7 ;  wav?  ", b"7\n"),
        (";;*idn?;", b"id\n"),
        ("sour:wav 3", b""),
        ("sour:wav?;nonsense?;pow?", b"1\n"),
        ("sour:wav? 3", b""),
        ("sour:wav 9999;wav?", b"1\n"),  # a command that fails has still moved the path
        ("", b""),
    ],
)
def test_compound_messages(message, reply):
    assert echo().execute(message) == reply


def test_errors_queue_up_and_overflow():
    interpreter = echo()
    assert interpreter.execute("syst:err?") == b'+0,"No error"\n'
    for _ in range(5):
        assert interpreter.execute("foo") == b""
    replies = [interpreter.execute("syst:err?") for _ in range(4)]
    assert replies[:2] == [b'-113,"Undefined header"\n'] * 2
    assert replies[2:] == [b'-350,"Queue overflow"\n', b'+0,"No error"\n']


@given(
    st.lists(st.text(alphabet="abc?:;* 1", min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=5),
    st.sampled_from([b"\r", b"\n", b"\r\n"]),
    st.randoms(use_true_random=False),
)
def test_lines_survive_any_fragmentation(lines, terminator, random):
    seen = []

    def answer(line):
        seen.append(line)
        return f"{line}\n".encode()

    stream = b"".join(line.encode() + terminator for line in lines)
    session, replies = LineSession(answer), b""
    while stream:
        cut = random.randint(1, len(stream))
        replies += session.receive(stream[:cut])
        stream = stream[cut:]
    assert seen == [line.strip() for line in lines]
    assert replies == b"".join(f"{line}\n".encode() for line in seen)


def test_endless_line_is_forgotten():
    session = LineSession(lambda line: line.encode())
    assert session.receive(b"x" * 100_000) == b""
    assert session.receive(b"ok\n") == b"ok"


def test_bytes_that_are_not_ascii_do_not_break_a_session():
    interpreter = echo()
    session = interpreter.open_session()
    assert session.receive(bytes(range(128, 256)) + b"\n") == b""
    assert session.receive(b"syst:err?\n") == b'-113,"Undefined header"\n'


def test_infinite_numbers_are_out_of_range():
    with pytest.raises(ScpiError):
        number(str(math.inf), LENGTH_UNITS)
