"""Frames of the chip host: what was written is read, and nothing else ever is."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._host_frames import (
    HEADER_LIMIT,
    PREFIX_SIZE,
    ProtocolError,
    codes_from_wire,
    codes_to_wire,
    read_prefix,
    read_rest,
    wire_size,
    write_head,
)

_names = st.integers(0, 2**128 - 1).map("{:032x}".format)
_counts = st.integers(0, 2**62)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
_messages = st.one_of(
    st.builds(messages.Greeting, instance=_names, nonce=_names, token_needed=st.booleans()),
    st.builds(messages.Submit, request=_names, elements=st.integers(1, 2**40)),
    st.builds(messages.Ask, request=_names, since=_counts),
    st.builds(messages.State, request=_names, state=st.sampled_from(["queued", "running", "unknown"]), ahead=_counts),
    st.builds(messages.Result, request=_names, accepted=_counts),
    st.builds(messages.Failed, request=_names, failure=st.sampled_from(["refused", "failed"]), reason=_texts),
    st.builds(messages.Goodbye, reason=_texts, again=st.booleans()),
    st.builds(messages.HealthAsked),
)


def frame_of(message, payload):
    payload = payload if message.carries_codes else b""
    return write_head(message, payload) + payload


def read(frame, limit=1 << 16):
    prefix = read_prefix(frame[:PREFIX_SIZE], limit)
    assert prefix.rest == len(frame) - PREFIX_SIZE
    message, payload = read_rest(prefix, frame[PREFIX_SIZE:])
    return message, bytes(payload)


def read_padded(frame):
    """Read a frame as from a link on which zeros follow."""
    prefix = read_prefix(frame[:PREFIX_SIZE], 1 << 16)
    return read_rest(prefix, frame[PREFIX_SIZE:][: prefix.rest].ljust(prefix.rest, b"\0"))


@given(_messages, st.binary(max_size=300))
def test_what_is_written_is_read(message, payload):
    assert read(frame_of(message, payload)) == (message, payload if message.carries_codes else b"")


@given(_messages, st.binary(min_size=1, max_size=40), st.data())
def test_a_changed_byte_is_never_read_as_a_message(message, payload, data):
    frame = bytearray(frame_of(message, payload))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ProtocolError):
        read_padded(bytes(frame))


@given(st.binary(min_size=PREFIX_SIZE, max_size=PREFIX_SIZE))
def test_random_bytes_begin_no_frame(data):
    with pytest.raises(ProtocolError):
        read_prefix(data, 1 << 30)


def by_hand(header, *, kind=5, version=1, payload=b"", magic=b"OPTI"):
    """A frame as its table in the module says, made without the module's code."""
    first = struct.pack("!4sBBHI", magic, version, kind, len(header), len(payload))
    return first + struct.pack("!I", zlib.crc32(first + header + payload)) + header + payload


def test_the_table_of_the_format_holds():
    ask = messages.Ask(request="0" * 32, since=3)
    assert frame_of(ask, b"") == by_hand(b'{"request":"' + b"0" * 32 + b'","since":3}')


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (by_hand(b"{}", magic=b"GET "), "no frame of a chip host"),
        (by_hand(b"{}", version=2), "version 2 .* this one version 1; install the same optinc-hw"),
        (by_hand(b"{}", kind=0), "no message of kind 0"),
        (by_hand(b"{}", kind=len(messages.KINDS) + 1), "no message of kind"),
        (by_hand(b" " * (HEADER_LIMIT + 1)), f"limit is {HEADER_LIMIT}"),
        (by_hand(b"{}", payload=b"1"), "1 bytes of codes in Ask are too many; the limit is 0"),
        (by_hand(b"{}", kind=4, payload=b"1" * 9), "9 bytes of codes in Submit are too many; the limit is 8"),
        (by_hand(b"{}"), "request of Ask: Field required"),
        (by_hand(b'{"request":"' + b"0" * 31 + b'","since":3}'), "request of Ask"),
        (by_hand(b'{"request":"' + b"0" * 32 + b'","since":-3}'), "since of Ask"),
        (by_hand(b'{"request":"' + b"0" * 32 + b'","since":"3"}'), "since of Ask"),
        (by_hand(b'{"request":"' + b"0" * 32 + b'","since":3,"x":1}'), "x of Ask"),
        (by_hand(b"\xff\xfe"), "header of Ask"),
        (by_hand(b"[" * 9000), "header of Ask"),
        (by_hand(b""), "header of Ask"),
    ],
)
def test_frames_that_are_none_say_why(frame, reason):
    with pytest.raises(ProtocolError, match=reason):
        read(frame, limit=8)


@given(st.integers(1, 16), st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_codes_travel_unchanged_in_the_bytes_they_need(bits, rows, elements, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (rows, elements))
    packed = codes_to_wire(codes, bits)
    assert len(packed) == wire_size(rows, elements, bits) == rows * -(-elements // 8) * bits
    found = codes_from_wire(bytes(packed), rows, elements, bits)
    assert np.array_equal(found, codes)
    with pytest.raises(ProtocolError, match="bytes came with them"):
        codes_from_wire(bytes(packed) + b"\0", rows, elements, bits)


def test_wide_codes_have_the_low_byte_first_on_any_machine():
    assert bytes(codes_to_wire(np.full((1, 8), 0x1234), 16)) == b"\x34\x12" * 8


def test_proofs_are_hmac_sha256_of_all_that_makes_a_link_unique():
    greeting = messages.Greeting(instance="1" * 32, nonce="2" * 32, token_needed=True)
    found = messages.proof("a secret of some length", "client", greeting, "3" * 32, "4" * 32)
    # printf 'optinc-host client 1..1 2..2 3..3 4..4' | openssl dgst -sha256 -hmac 'a secret of some length'
    assert found == "785df410e2e4d6ecb5308707b7a3154255075343ae0ecc67d61516700c9ac19d"
    others = [
        messages.proof("another secret of some length", "client", greeting, "3" * 32, "4" * 32),
        messages.proof("a secret of some length", "host", greeting, "3" * 32, "4" * 32),
        messages.proof("a secret of some length", "client", greeting, "5" * 32, "4" * 32),
        messages.proof("a secret of some length", "client", greeting, "3" * 32, "5" * 32),
    ]
    assert len({found, *others}) == 5
