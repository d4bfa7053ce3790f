"""Links over HiSLIP, with pyvisa-py as the backend: late, bad and lost replies, dropped connections."""

import contextlib
import functools
import logging
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import pyvisa

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


@pytest.fixture
def quiet_backend(monkeypatch):
    """Where pyvisa-py cannot open a HiSLIP connection, it also writes into its log."""
    monkeypatch.setattr(logging.getLogger("pyvisa"), "disabled", True)


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


@pytest.mark.usefixtures("quiet_backend")
def test_no_server():
    with pytest.raises(LinkError, match="cannot open"):
        VisaPort("TCPIP0::127.0.0.1::hislip0,1::INSTR", "@py", b"\n")


@pytest.mark.usefixtures("quiet_backend")
def test_a_server_that_stops_after_a_lost_reply():
    box = Box({"A?": b""})
    server = HislipServer(box, "box")
    port = VisaPort(f"TCPIP0::127.0.0.1::hislip0,{server.port}::INSTR", "@py", b"\n")
    with contextlib.closing(Link(port, DIALECT, owner="box", timeout=0.05, shared_line=False)) as link:
        with pytest.raises(LinkTimeoutError):
            link.query("A?", parse_number)
        server.close()
        for _ in range(2):
            with pytest.raises(LinkError, match="cannot open"):
                link.query("B?", parse_number)


INITIALIZED = bytes.fromhex("4853 01 00 0100 0001 0000000000000000")  # IVI-6.1, table 4: HS, kind 1, version 1.0, id 1
REFUSED = bytes.fromhex("4853 02 03 00000000 0000000000000000")  # kind 2, FatalError; code 3, too many clients


@contextlib.contextmanager
def half_server(answers, then=lambda: None):
    """Take one connection for each answer, give it after the first message, and then keep the connection.

    Yields its address and a function that waits until the client has closed every connection.
    """
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(10.0)

        def serve():
            links = []
            for answer in answers:
                links.append(stack.enter_context(listener.accept()[0]))
                links[-1].settimeout(10.0)
                assert links[-1].recv(1024).startswith(b"HS")
                links[-1].sendall(answer)
            then()
            for link in links:
                with contextlib.suppress(ConnectionResetError):  # closed before it had read all
                    while link.recv(1024):
                        pass

        served = pool.submit(serve)
        yield f"TCPIP0::127.0.0.1::hislip0,{listener.getsockname()[1]}::INSTR", lambda: served.result(20.0)


@pytest.mark.usefixtures("quiet_backend")
@pytest.mark.parametrize("answers", [[REFUSED], [b"GET / HTTP/1.1\r\n\r\n"], [INITIALIZED, REFUSED]])
def test_what_could_not_be_opened_is_closed_at_once(answers):
    """An instrument that serves one client would be taken for as long as somebody holds the error."""
    with half_server(answers) as (address, all_closed):
        with pytest.raises(LinkError, match="cannot open") as caught:
            VisaPort(address, "@py", b"\n")
        all_closed()
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("answers", [[b""], [INITIALIZED, b""]])
def test_an_interrupted_opening_is_closed_at_once(answers):
    interrupt = functools.partial(signal.pthread_kill, threading.main_thread().ident, signal.SIGINT)
    with half_server(answers, then=interrupt) as (address, all_closed):
        with pytest.raises(KeyboardInterrupt) as caught:
            VisaPort(address, "@py", b"\n")
        all_closed()
    assert caught.value.__traceback__ is not None


@pytest.mark.usefixtures("quiet_backend")
def test_a_failed_opening_leaves_other_connections_alone():
    with linked({}) as (link, _):
        link._port._resource.timeout = 1
        try:
            link._port._resource.read_raw()  # nothing was asked: the traceback of the timeout leads through the backend
        except pyvisa.Error:
            with half_server([REFUSED]) as (address, _), pytest.raises(LinkError, match="cannot open"):
                VisaPort(address, "@py", b"\n")
        assert link.query("B?", parse_number) == 2.0
