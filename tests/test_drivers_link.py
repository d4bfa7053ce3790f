"""The link's rules, byte by byte: framing, deadline, dirty link, unsolicited lines, blocks."""

import itertools
import re

import pytest
from _scripted_link import ScriptedPort, broken
from hypothesis import given
from hypothesis import strategies as st

from drivers._link import Dialect, Link
from drivers._parsing import parse_number
from optinc_hw.errors import DeviceError, InstrumentError, LinkError, LinkTimeoutError, ReplyError

PLAIN = Dialect(terminator=b"\n", resync_command="*IDN?", resync_reply=re.compile(rb"ACME,.*"))
EVENTS = Dialect(
    terminator=b"\n",
    resync_command="ID?",
    resync_reply=re.compile(rb"Q-\d+"),
    event=re.compile(rb"E\d\d:\d\d"),
    event_start=re.compile(rb"E(?:\d(?:\d(?::(?:\d\d?)?)?)?)?"),
)
RESYNC = (b"*IDN?\n", b"ACME,1,2,3\n")


def make(*exchanges, dialect=PLAIN):
    port = ScriptedPort(*exchanges)
    return Link(port, dialect, owner="box", timeout=5.0, shared_line=False), port


def test_reply_is_parsed_and_everything_is_used_up():
    link, port = make((b"POW?\n", b"1.5\n"), (b"SET 3\n", b""))
    assert link.query("POW?", parse_number) == 1.5
    link.write("SET 3")
    port.check_finished()


@given(st.lists(st.integers(min_value=0, max_value=40), max_size=6))
def test_any_splitting_of_the_bytes_gives_the_same_lines(cuts):
    stream = b"1.25\r\n-3.5E-2\n E\n+.5\n"
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    link, port = make((b"ALL?\n", chunks))
    assert link.query_lines("ALL?", 4, str) == ["1.25", "-3.5E-2", "E", "+.5"]
    port.check_finished()


def test_mixed_line_ends_leave_no_stray_byte():
    link, port = make((b"A?\n", b"a\r\nb\n\r\n"), (b"B?\n", b"\r\n7\n"))
    assert link.query_lines("A?", 2, str) == ["a", "b"]
    assert link.query("B?", parse_number) == 7.0
    port.check_finished()


def test_truncated_reply_raises_with_its_bytes_and_is_never_returned():
    link, port = make((b"POW?\n", b"1.2"), RESYNC, (b"WAV?\n", b"1550\n"))
    with pytest.raises(LinkTimeoutError, match=r"box.*b'1\.2'"):
        link.query("POW?", parse_number)
    assert link.dirty
    assert link.query("WAV?", parse_number) == 1550.0
    assert not link.dirty
    port.check_finished()


def test_late_reply_is_never_taken_for_the_next_one():
    link, port = make((b"POW?\n", b""), (b"*IDN?\n", [b"3.4", b"5\n", b"ACME,1,2,3\n"]), (b"WAV?\n", b"1550\n"))
    with pytest.raises(LinkTimeoutError):
        link.query("POW?", parse_number)
    assert link.query("WAV?", parse_number) == 1550.0
    assert port.abandoned == 1
    port.check_finished()


def test_late_identity_is_dropped_when_the_identity_was_the_lost_question():
    link, port = make(
        (b"*IDN?\n", b""),
        (b"*IDN?\n", [b"ACME,1,2,3\n", b"ACME,1,2,3\n"]),
        (b"WAV?\n", b"1550\n"),
    )
    with pytest.raises(LinkTimeoutError):
        link.query("*IDN?", str)
    assert link.query("WAV?", parse_number) == 1550.0
    port.check_finished()


def test_a_reply_that_is_there_counts_although_this_process_was_held_up(monkeypatch):
    link, port = make((b"POW?\n", b"1.5\n"), (b"WAV?\n", b""))
    now = iter(range(0, 1000, 10))  # 10 s from each look at the clock to the next, twice the timeout
    monkeypatch.setattr("drivers._link.time.monotonic", lambda: float(next(now)))
    assert link.query("POW?", parse_number) == 1.5
    with pytest.raises(LinkTimeoutError):
        link.query("WAV?", parse_number)
    port.check_finished()


def test_a_reply_without_an_end_is_given_up_although_bytes_keep_coming(monkeypatch):
    link, _ = make((b"POW?\n", [b"1"] * 50))
    now = iter(range(0, 1000, 2))
    monkeypatch.setattr("drivers._link.time.monotonic", lambda: float(next(now)))
    with pytest.raises(LinkTimeoutError, match="no complete reply"):
        link.query("POW?", parse_number)


def test_silent_instrument_stays_dirty_and_keeps_raising():
    link, port = make((b"POW?\n", b""), (b"*IDN?\n", b""), (b"*IDN?\n", b""))
    for _ in range(3):
        with pytest.raises(LinkTimeoutError):
            link.query("POW?", parse_number)
    port.check_finished()


@pytest.mark.parametrize("reply", [b"1.5\n2.5\n", b"1.5\n2."])
def test_extra_bytes_raise_and_the_number_is_not_returned(reply):
    link, port = make((b"POW?\n", reply), RESYNC, (b"POW?\n", b"3\n"))
    with pytest.raises(ReplyError, match="belong to no question"):
        link.query("POW?", parse_number)
    assert link.query("POW?", parse_number) == 3.0
    port.check_finished()


def test_extra_line_that_comes_later_raises_before_the_next_command_goes_out():
    link, port = make((b"POW?\n", b"1.5\n"), RESYNC, (b"WAV?\n", b"1550\n"))
    assert link.query("POW?", parse_number) == 1.5
    port.arrive(b"1.5\n")
    with pytest.raises(ReplyError, match=r"1\.5"):
        link.query("WAV?", parse_number)
    assert port.sent == [b"POW?\n"]
    assert link.query("WAV?", parse_number) == 1550.0
    port.check_finished()


@pytest.mark.parametrize("reply", [b"\xff1.5\n", b"0,5\n", b"-0.-1\n", b"KKK\n"])
def test_garbled_reply_raises_with_its_bytes(reply):
    link, port = make((b"POW?\n", reply), RESYNC, (b"POW?\n", b"1\n"))
    with pytest.raises(ReplyError) as caught:
        link.query("POW?", parse_number)
    assert repr(reply)[2:-3] in str(caught.value)
    assert link.query("POW?", parse_number) == 1.0
    port.check_finished()


def test_endless_line_is_bounded():
    link, _ = make((b"POW?\n", [b"1" * 5000] * 20))
    with pytest.raises(ReplyError, match="no end of line"):
        link.query("POW?", parse_number)


def test_endless_stale_lines_are_bounded():
    link, _ = make((b"POW?\n", b""), (b"*IDN?\n", [b"1\n" * 40000] * 20))
    with pytest.raises(LinkTimeoutError):
        link.query("POW?", parse_number)
    with pytest.raises(ReplyError, match="stale"):
        link.query("POW?", parse_number)


@pytest.mark.parametrize("command", ["", "A?\nB?", "A?\r", "µ?"])
def test_a_command_is_one_ascii_line(command):
    link, port = make()
    with pytest.raises(InstrumentError, match="did not send"):
        link.query(command, str)
    assert port.sent == []


def test_interrupted_exchange_leaves_the_link_dirty():
    link, port = make((b"POW?\n", [KeyboardInterrupt()]), (b"*IDN?\n", [b"9\nACME,1,2,3\n"]), (b"WAV?\n", b"1550\n"))
    with pytest.raises(KeyboardInterrupt):
        link.query("POW?", parse_number)
    assert link.query("WAV?", parse_number) == 1550.0
    port.check_finished()


def test_broken_link_raises_until_it_is_reopened():
    link, port = make((b"POW?\n", [b"1.", broken()]), RESYNC, (b"POW?\n", b"2\n"))
    with pytest.raises(LinkError, match=r"unplugged.*b'1\.'.*reconnect") as caught:
        link.query("POW?", parse_number)
    assert not isinstance(caught.value, LinkTimeoutError)
    with pytest.raises(LinkError, match="reconnect"):
        link.query("POW?", parse_number)
    link.reopen()
    assert port.reopened == 1
    assert link.query("POW?", parse_number) == 2.0
    port.check_finished()


def test_closed_link_refuses_and_closing_twice_is_harmless():
    link, port = make()
    link.close()
    link.close()
    assert port.closed
    for action in (lambda: link.query("A?", str), link.take_events, link.reopen):
        with pytest.raises(LinkError, match="closed"):
            action()


def test_shared_line_finds_its_place_before_the_first_command():
    port = ScriptedPort((b"*IDN?\n", b"5 V\nACME,1,2,3\n"), (b"POW?\n", b"2\n"))
    link = Link(port, PLAIN, owner="box", timeout=5.0, shared_line=True)
    assert link.query("POW?", parse_number) == 2.0
    port.check_finished()


# Unsolicited lines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chunks",
    [
        [b"E01:03\n+1\n+2\n"],
        [b"+1\nE01:03\n+2\n"],
        [b"+1\n+2\nE01:03\n"],
        [b"E", b"01", b":03", b"\n+", b"1\n", b"+2\n"],
    ],
)
def test_error_line_around_the_data_raises_once_and_is_never_data(chunks):
    link, port = make((b"V?\n", chunks), (b"V?\n", b"+3\n+4\n"), dialect=EVENTS)
    with pytest.raises(DeviceError, match="E01:03"):
        link.query_lines("V?", 2, parse_number)
    assert link.query_lines("V?", 2, parse_number) == [3.0, 4.0]
    port.check_finished()


def test_error_line_whose_end_comes_later_is_reported_with_the_next_exchange():
    link, port = make((b"V?\n", b"+1\nE0"), (b"V?\n", b"+3\n"), dialect=EVENTS)
    assert link.query("V?", parse_number) == 1.0
    port.arrive(b"1:03\n")
    with pytest.raises(DeviceError, match="E01:03"):
        link.query("V?", parse_number)
    assert link.query("V?", parse_number) == 3.0
    port.check_finished()


def test_error_line_instead_of_the_reply_raises_and_the_late_reply_is_dropped():
    link, port = make((b"V=1\n", b"E10:00\n"), (b"ID?\n", b"OK\nQ-1\n"), (b"V?\n", b"+3\n"), dialect=EVENTS)
    with pytest.raises(DeviceError, match="E10:00"):
        link.query("V=1", str)
    assert link.query("V?", parse_number) == 3.0
    port.check_finished()


def test_error_line_of_an_earlier_command_stops_the_next_one_before_it_is_sent():
    link, port = make((b"V=1\n", b"OK\n"), (b"V=2\n", b"OK\n"), dialect=EVENTS)
    link.query("V=1", str)
    port.arrive(b"E02:01\nE30:00\n")
    with pytest.raises(DeviceError, match=r"E02:01.*E30:00.*not sent"):
        link.query("V=2", str)
    assert port.sent == [b"V=1\n"]
    link.query("V=2", str)
    port.check_finished()


def test_tolerated_error_lines_are_logged(caplog):
    link, port = make((b"V=1\n", b"E02:01\nOK\n"), dialect=EVENTS)
    port.arrive(b"E90:00\n")
    assert link.query_lines("V=1", 1, str, tolerate_events=True) == ["OK"]
    assert "E90:00" in caplog.text
    assert "E02:01" in caplog.text
    port.check_finished()


def test_take_events_sends_nothing_and_refuses_other_lines():
    link, port = make(dialect=EVENTS)
    assert link.take_events() == []
    port.arrive(b"E01:03\nE02:", b"04\n")
    assert link.take_events() == ["E01:03"]
    assert link.take_events() == ["E02:04"]
    port.arrive(b"+1.0 V\n")
    with pytest.raises(ReplyError):
        link.take_events()
    assert port.sent == []


def test_half_a_stale_line_cannot_become_part_of_the_next_answer():
    link, port = make((b"V?\n", b"+1\n+2"), (b"ID?\n", b".5\nQ-1\n"), (b"V?\n", b"+3\n"), dialect=EVENTS)
    with pytest.raises(ReplyError):
        link.query("V?", parse_number)
    assert link.query("V?", parse_number) == 3.0
    port.check_finished()


def test_error_lines_found_while_finding_ones_place_are_reported():
    link, port = make((b"V?\n", b""), (b"ID?\n", [b"E90:00\nQ-1\nE01:0", b"0\n"]), (b"V?\n", b"+3\n"), dialect=EVENTS)
    with pytest.raises(LinkTimeoutError):
        link.query("V?", parse_number)
    with pytest.raises(DeviceError, match=r"E90:00.*E01:00"):
        link.query("V?", parse_number)
    assert link.query("V?", parse_number) == 3.0
    port.check_finished()


@given(
    st.lists(st.sampled_from([b"E01:03\n", b"E30:00\n"]), max_size=3),
    st.integers(min_value=0, max_value=3),
    st.lists(st.integers(min_value=0, max_value=60), max_size=5),
)
def test_data_are_right_wherever_error_lines_come(events, position, cuts):
    lines = [b"+1.5\n", b"-2.5\n", b"+3.5\n"]
    stream = b"".join([*lines[:position], *events, *lines[position:]])
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    link, port = make((b"V?\n", chunks), dialect=EVENTS)
    values = link.query_lines("V?", 3, parse_number, tolerate_events=True)
    assert values == [1.5, -2.5, 3.5]
    while port._incoming:
        link.take_events()
    link.take_events()


# Blocks ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300), st.lists(st.integers(min_value=0, max_value=400), max_size=5))
def test_blocks_hold_any_bytes_however_they_are_split(payload, cuts):
    size = str(len(payload)).encode()
    stream = b"#" + str(len(size)).encode() + size + payload + b"\n"
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    link, port = make((b"D?\n", chunks))
    assert link.query_block("D?", bytes) == payload
    port.check_finished()


@pytest.mark.parametrize(
    "reply",
    [b"+1.5\n", b"#0ab\n", b"#a1x\n", b"#1xa\n", b"#9999999999\n", b"#13abcd\n", b"#13abc;\n", b"#13abc\n\n7\n"],
)
def test_malformed_blocks_raise(reply):
    link, port = make((b"D?\n", reply), RESYNC, (b"D?\n", b"#12\x00\n\n"))
    with pytest.raises(ReplyError):
        link.query_block("D?", bytes)
    assert link.query_block("D?", bytes) == b"\x00\n"
    port.check_finished()


@pytest.mark.parametrize("reply", [b"#", b"#216abc", b"#13ab\n", b"#13abc"])
def test_short_blocks_raise_with_what_came(reply):
    link, _ = make((b"D?\n", reply), RESYNC)
    with pytest.raises(LinkTimeoutError) as caught:
        link.query_block("D?", bytes)
    assert repr(reply) in str(caught.value)
    assert link.dirty


def counted(head):
    """Size of a reply of a count, a comma and so many bytes."""
    count, comma, _ = head.partition(b",")
    return len(count) + 1 + int(count) if comma else None


@given(st.binary(min_size=1, max_size=60), st.lists(st.integers(min_value=0), max_size=4))
def test_sized_replies_hold_any_bytes_however_they_are_split(payload, cuts):
    stream = f"{len(payload)},".encode() + payload + b"\n"
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    link, port = make((b"ARR?\n", [stream[a:b] for a, b in itertools.pairwise(edges)]), (b"B?\n", b"7\n"))
    assert link.query_sized("ARR?", counted, bytes) == stream[:-1]
    assert link.query("B?", parse_number) == 7.0
    port.check_finished()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"40,abc", LinkTimeoutError),
        (b"3,abc", LinkTimeoutError),
        (b"3", LinkTimeoutError),
        (b"x,abc\n", ReplyError),
        (b"3,abcd\n", ReplyError),
        (b"-2,\n", ReplyError),
        (b"99999999,\n", ReplyError),
        (b"1" * 70000, ReplyError),
    ],
)
def test_sized_replies_that_are_short_long_or_malformed_raise(reply, error):
    link, _ = make((b"ARR?\n", reply), RESYNC, (b"B?\n", b"7\n"))
    with pytest.raises(error):
        link.query_sized("ARR?", counted, bytes)
    assert link.query("B?", parse_number) == 7.0


def test_transcript_of_a_long_reply_is_shortened():
    link, _ = make((b"D?\n", [b"x" * 3000 + b"\n"]))
    with pytest.raises(ReplyError, match="bytes left out") as caught:
        link.query("D?", parse_number)
    assert len(str(caught.value)) < 8000
