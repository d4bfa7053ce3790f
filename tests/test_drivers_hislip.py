"""Links over HiSLIP, with pyvisa-py as the backend: late, bad and lost replies, dropped connections."""

import contextlib
import gc
import logging
import re
import threading
import warnings

import pytest

from drivers._link import Dialect, Link
from drivers._parsing import parse_number
from drivers._visa_port import VisaPort
from optinc_hw.errors import LinkError, LinkTimeoutError, ReplyError
from simulated_instruments._hislip import HislipServer
from simulated_instruments._session import LineSession

DIALECT = Dialect(terminator=b"\n", resync_command="*IDN?", resync_reply=re.compile(rb"ACME,.*"))
ALL_BYTES = bytes(range(256))
MESSAGE_AVAILABLE = 16


class Box:
    """An instrument with fixed replies; an Event in place of one is waited for, an exception is raised."""

    def __init__(self, replies):
        self.replies = {"*IDN?": b"ACME,1,2,3\n", "B?": b"2\n", **replies}
        self.interruptions = 0

    def open_session(self):
        return BoxSession(self)

    def answer(self, line):
        replies = self.replies.get(line, b"")
        reply = b""
        for part in replies if isinstance(replies, list) else [replies]:
            if isinstance(part, threading.Event):
                assert part.wait(10.0)
            elif isinstance(part, Exception):
                raise part
            else:
                reply += part
        return reply


class BoxSession(LineSession):
    def __init__(self, box):
        super().__init__(box.answer)
        self.box = box

    def status_byte(self):
        return 0

    def interrupted(self):
        self.box.interruptions += 1


@contextlib.contextmanager
def linked(replies, timeout=5.0):
    box = Box(replies)
    with contextlib.closing(HislipServer(box, "box")) as server:
        port = VisaPort(f"TCPIP0::127.0.0.1::hislip0,{server.port}::INSTR", "@py", b"\n")
        with contextlib.closing(Link(port, DIALECT, owner="box", timeout=timeout, shared_line=False)) as link:
            yield link, box


@contextlib.contextmanager
def backend_leaks_sockets():
    """Where pyvisa-py cannot open a HiSLIP connection, it leaves the socket to its log and the garbage collector."""
    log = logging.getLogger("pyvisa")
    log.disabled = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
    log.disabled = False


def timeout_for(error):
    """A short one only where it must pass."""
    return 0.2 if error is LinkTimeoutError else 5.0


def block(data):
    size = str(len(data)).encode()
    return b"#" + str(len(size)).encode() + size + data + b"\n"


def test_lines_and_blocks_of_any_bytes_and_any_length():
    """Replies need not be text (S-04)."""
    long = ALL_BYTES * 1024
    with linked({"A?": b"1.5\n", "D?": block(ALL_BYTES), "L?": block(long), "E?": block(b"\n" * 65527)}) as (link, box):
        assert link.query("A?", parse_number) == 1.5
        link.write("SET")
        assert link.query_block("D?", bytes) == ALL_BYTES
        assert link.query_block("L?", bytes) == long
        assert link.query_block("E?", bytes) == b"\n" * 65527  # the reply ends where the port's read ends
        assert link.query("B?", parse_number) == 2.0
        assert box.interruptions == 0


@pytest.mark.parametrize("arrives", ["before the next question", "after the device clear", "never"])
def test_late_replies_are_cleared_away(arrives):
    late = threading.Event()
    with linked({"A?": [] if arrives == "never" else [late, b"7\n"]}, timeout=0.05) as (link, box):
        with pytest.raises(LinkTimeoutError):
            link.query("A?", parse_number)
        link.timeout = 5.0
        late.set()
        if arrives == "before the next question":
            resource = link._port._resource
            resource.timeout = 5000  # the link has left a short one
            while not resource.read_stb() & MESSAGE_AVAILABLE:
                pass
        assert link.query("B?", parse_number) == 2.0
        assert link.query("B?", parse_number) == 2.0
        assert box.interruptions == 0


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"1,5\n", ReplyError),
        (b"\xff\xfe\n", ReplyError),
        (b"1\n9\n", ReplyError),
        (b"1", LinkTimeoutError),
    ],
)
def test_bad_replies_raise_and_the_next_one_is_right(reply, error):
    with linked({"A?": reply}, timeout=timeout_for(error)) as (link, box):
        with pytest.raises(error):
            link.query("A?", parse_number)
        link.timeout = 5.0
        assert link.query("B?", parse_number) == 2.0
        assert box.interruptions == 0


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"+1.0E-3\n", ReplyError),
        (b"#0" + ALL_BYTES * 1024 + b"\n", ReplyError),  # most of it is still unread
        (block(ALL_BYTES)[:-100], LinkTimeoutError),
        (block(ALL_BYTES) + b"1\n", ReplyError),
    ],
)
def test_bad_blocks_raise_and_the_next_reply_is_right(reply, error):
    with linked({"D?": reply}, timeout=timeout_for(error)) as (link, box):
        with pytest.raises(error):
            link.query_block("D?", bytes)
        link.timeout = 5.0
        assert link.query("B?", parse_number) == 2.0
        assert box.interruptions == 0


def test_dropped_link_is_noticed_at_once_and_can_be_reopened():
    with linked({"A?": ConnectionResetError("pulled")}, timeout=60.0) as (link, _):
        with pytest.raises(LinkError, match="broke") as caught:
            link.query("A?", parse_number)
        assert not isinstance(caught.value, LinkTimeoutError)
        assert link.broken
        with pytest.raises(LinkError, match="down"):
            link.query("B?", parse_number)
        link.reopen()
        assert link.query("B?", parse_number) == 2.0


def test_no_server():
    with backend_leaks_sockets(), pytest.raises(LinkError, match="cannot open"):
        VisaPort("TCPIP0::127.0.0.1::hislip0,1::INSTR", "@py", b"\n")


def test_a_server_that_stops_after_a_lost_reply():
    box = Box({"A?": b""})
    server = HislipServer(box, "box")
    port = VisaPort(f"TCPIP0::127.0.0.1::hislip0,{server.port}::INSTR", "@py", b"\n")
    with contextlib.closing(Link(port, DIALECT, owner="box", timeout=0.05, shared_line=False)) as link:
        with pytest.raises(LinkTimeoutError):
            link.query("A?", parse_number)
        server.close()
        for _ in range(2):
            with backend_leaks_sockets(), pytest.raises(LinkError, match="cannot open"):
                link.query("B?", parse_number)
