"""Binary frames to the simulated Qontrol chain."""

import pytest
from _qontrol_sessions import DAC_STEP_V, chain, frame, numbers
from hypothesis import given, settings
from hypothesis import strategies as st

from simulated_instruments import HiddenChip, SimulatedQontrol

CHIP = HiddenChip.from_seed(0, 2)
FORBIDDEN = b"E13:00\n"


def test_frames_are_those_of_the_programming_manual():
    assert frame(0, read=True) == bytes.fromhex("88000000000000")
    assert frame(0, read=True, everywhere=True) == bytes.fromhex("A9000000000000")
    assert frame(0, words=(0xE8D4,)) == bytes.fromhex("8100000000E8D4")
    assert frame(0, address=8, words=(1,) * 8, extended=True)[:7] == bytes.fromhex("82000000080008")


def test_binary_frames():
    session, chip = chain()
    assert session.receive(frame(0, words=(0xE8D4,))) == b"OK\n"
    assert chip.heater_voltage(0) == pytest.approx(0xE8D4 * DAC_STEP_V, abs=1e-9)
    assert numbers(session.receive(frame(0, read=True)), "V")[0] == pytest.approx(chip.heater_voltage(0), abs=1e-3)
    assert numbers(session.receive(frame(1, read=True, everywhere=True)), "mA").shape == (16,)
    assert session.receive(frame(0, address=4, words=tuple(range(1, 9)), extended=True)) == b"OK\nOK\n"
    assert [chip.heater_voltage(k) for k in (4, 11)] == pytest.approx([DAC_STEP_V, 8 * DAC_STEP_V])
    assert session.receive(frame(3, address=9, words=(0x8000,))) == b"OK\n"
    assert session.receive(frame(3, address=9, read=True)) == b"+12.0002 mA\n"
    assert session.receive(frame(0, words=(100,), everywhere=True)) == b"OK\n"
    assert chip.heater_voltage(13) == pytest.approx(100 * DAC_STEP_V)
    assert session.receive(frame(0x32)) == b"\x06OK\n" * 2
    assert session.receive(frame(0x20, read=True, everywhere=True)) == b"+12.0000 V\n" * 2
    assert session.receive(frame(0x20)) == b"E13:00\n"
    assert session.receive(frame(0x7E)) == b"E10:00\n"
    assert session.receive(bytes([0x80, 0, 0, 0, 0, 0, 0])) == b"E15:01\n"
    assert session.receive(frame(0, address=99)) == b"E12:03\n"


@given(st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_text_and_frames_mix_in_any_fragmentation(random):
    session, _ = chain()
    stream = b"ID?\n" + frame(0, words=(7,)) + b"V1=1\r\n" + frame(0, words=(1, 10, 13), extended=True) + b"NUP=0\n"
    replies = b""
    while stream:
        cut = random.randint(1, len(stream))
        replies += session.receive(stream[:cut])
        stream = stream[cut:]
    assert replies == b"Q8iv-0001\nOK\nOK\nOK\n\x06OK\n\x06OK\n"


@given(st.binary(max_size=64))
def test_garbled_frames_end_at_the_latest_after_their_longest_size(garbage):
    instrument = SimulatedQontrol("q", 1, CHIP, {0: 0}, CHIP.clock)
    session = instrument.open_session()
    session.receive(garbage + b"\n")
    session.receive(b" " * 131_077 + b"\n")
    assert session.receive(b"ID?\n") == b"Q8iv-0001\n"


@pytest.mark.parametrize("code", [0x00, 0x01, 0x02, 0x03])
def test_outputs_and_limits_can_be_read_and_written_in_every_mode(code):
    session, _ = chain(loads=16)
    unit = "mA" if code % 2 else "V"
    assert session.receive(frame(code, address=3, words=(0x1000,))) == b"OK\n"
    assert session.receive(frame(code, address=8, words=(0x1000,) * 8, extended=True)) == b"OK\n"
    assert session.receive(frame(code, words=(0x1000,), everywhere=True)) == b"OK\n"
    assert numbers(session.receive(frame(code, address=3, read=True)), unit).shape == (1,)
    assert numbers(session.receive(frame(code, read=True, everywhere=True)), unit).shape == (16,)


@pytest.mark.parametrize(("code", "lines"), [(0x0A, 16), (0x20, 2), (0x21, 2), (0x22, 2)])
def test_what_can_only_be_read_of_all_modules_at_once(code, lines):
    session, _ = chain()
    assert session.receive(frame(code, read=True, everywhere=True)).count(b"\n") == lines
    for other in (frame(code, read=True), frame(code), frame(code, everywhere=True)):
        assert session.receive(other) == FORBIDDEN


def test_memory_is_read_and_written_as_a_whole():
    session, _ = chain()
    erased = session.receive(frame(0x26, read=True, everywhere=True))
    assert erased == session.receive(b"NVMALL?\n")
    assert erased.count(b"\n") == 256
    assert session.receive(frame(0x26, words=(0x0001, 0xFF78), everywhere=True, extended=True)) == b"OK\n"
    assert session.receive(b"NVMALL?\n").startswith(b"00 : 0x0001,  01 : 0xFF78\n02 : ")
    for other in (frame(0x26, read=True), frame(0x26), frame(0x26, words=(1, 2), extended=True)):
        assert session.receive(other) == FORBIDDEN


def test_numbers_are_given_and_read_singly():
    session, _ = chain()
    assert session.receive(frame(0x32)) == b"\x06OK\n\x06OK\n"
    assert session.receive(frame(0x32, read=True)) == b"Q8iv-0001: 0\n"
    for other in (frame(0x32, read=True, everywhere=True), frame(0x32, everywhere=True)):
        assert session.receive(other) == FORBIDDEN


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0x04, b"VCAL0?"),
        (0x05, b"ICAL0?"),
        (0x06, b"VERR0?"),
        (0x07, b"IERR0?"),
        (0x23, b"FIRMWARE?"),
        (0x24, b"ID?"),
        (0x25, b"LIFETIME?"),
        (0x31, b"LED?"),
        (0x33, b"ADCT?"),
        (0x34, b"ADCN?"),
        (0x35, b"CCFN?"),
        (0x37, b"OK?"),
        (0x41, b"HELP?"),
        (0x42, b"SAFE?"),
        (0x43, b"ROCOM?"),
    ],
)
def test_frames_are_answered_like_the_text_command_of_their_code(code, text):
    session, _ = chain()
    assert session.receive(frame(code, read=True)) == session.receive(text + b"\n") != b""


@pytest.mark.parametrize("kind", ["Q8b", "Q8bi", "Q8a"])
def test_words_are_parts_of_the_full_scale_of_the_type(kind):
    session, _ = chain(kind=kind)
    full = {"Q8b": 250.0 / 3.0}.get(kind, 100.0)
    assert session.receive(frame(0x03, words=(0x8000,), address=2)) == b"OK\n"
    assert numbers(session.receive(b"IMAX2?\n"), "mA")[0] == pytest.approx(full * 0x8000 / 0xFFFF, abs=1e-4)
    assert session.receive(frame(0x00, words=(0xFFFF,), address=2)) in (b"OK\n", b"OK\nE02:02\n")
