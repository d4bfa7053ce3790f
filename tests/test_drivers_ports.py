"""Ports over real transports: sockets, pseudo terminals, pyvisa-py; dropped links, refused links, threads."""

import os
import re
import socket
import threading
from pathlib import Path

import pytest
from _scripted_link import SHORT_S, HangUp, ScriptServer

from drivers._link import Dialect, Link
from drivers._parsing import parse_number
from drivers._serial_port import SerialPort
from drivers._visa_port import VisaPort
from optinc_hw.errors import LinkError, LinkTimeoutError, ReplyError

DIALECT = Dialect(terminator=b"\n", resync_command="*IDN?", resync_reply=re.compile(rb"ACME,.*"))
KINDS = ["serial", "visa", "visa-message"]


def open_port(kind, server):
    if kind == "serial":
        return SerialPort(server.serial_url, 115200)
    if kind == "visa":
        return VisaPort(server.visa_address, "@py", b"\n")
    # The same server as a serial VISA resource, whose socket the port does not see.
    return VisaPort(f"ASRL{server.serial_url}::INSTR", "@py", b"\n")


def open_link(kind, server, timeout=5.0):
    return Link(open_port(kind, server), DIALECT, owner="box", timeout=timeout, shared_line=False)


@pytest.mark.parametrize("kind", KINDS)
def test_lines_and_blocks_go_through(kind):
    block = b"#18\n\x00\xff\r\n#1\n\n"
    with ScriptServer((b"A?\n", b"1.5\n"), (b"SET\n", None), (b"D?\n", [block[:3], block[3:]])) as server:
        link = open_link(kind, server)
        assert link.query("A?", parse_number) == 1.5
        link.write("SET")
        assert link.query_block("D?", bytes) == block[3:-1]
        link.close()


@pytest.mark.parametrize("kind", KINDS)
def test_late_reply_over_a_real_transport(kind):
    late = threading.Event()
    script = [(b"POW?\n", [late, b"7\n"]), (b"*IDN?\n", b"ACME,1,2,3\n"), (b"WAV?\n", b"1550\n")]
    with ScriptServer(*script) as server:
        link = open_link(kind, server, timeout=0.05)
        with pytest.raises(LinkTimeoutError):
            link.query("POW?", parse_number)
        link.timeout = 5.0
        late.set()
        assert link.query("WAV?", parse_number) == 1550.0
        link.close()


def ask_twice(link):
    link.query("A?", parse_number)
    link.query("B?", parse_number)  # a transport that stops at line ends notices an extra line only here


@pytest.mark.parametrize("kind", KINDS)
def test_extra_line_is_never_the_next_answer(kind):
    script = [(b"A?\n", b"1\n9\n"), (b"*IDN?\n", b"ACME,1,2,3\n"), (b"B?\n", b"2\n")]
    with ScriptServer(*script) as server:
        link = open_link(kind, server)
        with pytest.raises(ReplyError, match="belong to no question"):
            ask_twice(link)
        assert link.query("B?", parse_number) == 2.0
        link.close()


@pytest.mark.parametrize("kind", ["serial", "visa"])
def test_partial_reply_is_in_the_message(kind):
    with ScriptServer((b"POW?\n", b"1.2")) as server:
        link = open_link(kind, server, timeout=SHORT_S)
        with pytest.raises(LinkTimeoutError, match=r"received only b'1\.2'"):
            link.query("POW?", parse_number)
        link.close()


@pytest.mark.parametrize("kind", ["serial", "visa"])
def test_dropped_link_is_noticed_at_once_and_can_be_reopened(kind):
    script = [(b"POW?\n", [b"1.", HangUp()]), (b"*IDN?\n", b"ACME,1,2,3\n"), (b"POW?\n", b"2\n")]
    with ScriptServer(*script) as server:
        link = open_link(kind, server, timeout=60.0)
        with pytest.raises(LinkError, match="broke") as caught:
            link.query("POW?", parse_number)
        assert not isinstance(caught.value, LinkTimeoutError)
        assert link.broken
        link.reopen()
        assert link.query("POW?", parse_number) == 2.0
        link.close()


@pytest.mark.parametrize("kind", ["serial", "visa"])
def test_link_dropped_between_exchanges(kind):
    gone = threading.Event()
    with ScriptServer((b"POW?\n", [b"1\n", gone, HangUp()])) as server:
        link = open_link(kind, server, timeout=5.0)
        assert link.query("POW?", parse_number) == 1.0
        gone.set()
        server.wait_until_finished()
        with pytest.raises(LinkError):
            link.query("POW?", parse_number)
        link.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    "opener",
    [
        lambda port: SerialPort(f"socket://127.0.0.1:{port}", 115200),
        lambda port: SerialPort("/dev/no-such-port", 115200),
        lambda port: SerialPort("socket://127.0.0.1", 115200),
        lambda port: SerialPort("nosuchscheme://x", 115200),
        lambda port: VisaPort(f"TCPIP0::127.0.0.1::{port}::SOCKET", "@py", b"\n"),
        lambda port: VisaPort("nonsense", "@py", b"\n"),
        lambda port: VisaPort("TCPIP0::127.0.0.1::1::SOCKET", "@nosuchbackend", b"\n"),
    ],
)
def test_unreachable_address_is_a_link_error(opener):
    with pytest.raises(LinkError, match="cannot open"):
        opener(free_port())


@pytest.mark.parametrize("kind", ["serial", "visa"])
def test_many_openings_leak_no_handles(kind):
    count = 40
    with ScriptServer(*[(b"A?\n", [b"1\n", HangUp()])] * count) as server:
        handles = set()
        for _ in range(count):
            link = open_link(kind, server)
            assert link.query("A?", parse_number) == 1.0
            link.close()
            link.close()
            handles.add(len(list(Path("/proc/self/fd").iterdir())))
    assert max(handles) - min(handles) <= 2  # the server's side may lag behind by one connection


def test_closing_one_visa_port_leaves_the_others_alone():
    with ScriptServer((None, None)) as one, ScriptServer((b"A?\n", b"1\n")) as two:
        first, second = open_link("visa", one), open_link("visa", two)
        first.close()
        assert second.query("A?", parse_number) == 1.0
        second.close()


def test_pseudo_terminal():
    master, slave = os.openpty()
    try:
        link = Link(SerialPort(os.ttyname(slave), 115200), DIALECT, owner="box", timeout=5.0, shared_line=False)
        answered = threading.Thread(
            target=lambda: os.write(master, b"2.5\n") if os.read(master, 3) == b"A?\n" else None
        )
        answered.start()
        assert link.query("A?", parse_number) == 2.5
        answered.join()
        link.close()
    finally:
        os.close(master)
        os.close(slave)


def test_port_without_a_file_number():
    port = SerialPort("loop://", 115200)
    assert port.receive(0.0) == b""
    port.send(b"abc")
    assert port.receive(1.0) == b"abc"
    port.abandon()
    port.reopen()
    port.close()
    port.close()


class Echo(threading.Thread):
    """Server that answers every line with the number in it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        self.serial_url, self.visa_address = f"socket://127.0.0.1:{port}", f"TCPIP0::127.0.0.1::{port}::SOCKET"

    def run(self):
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                connection.sendall(line.strip(b"?\n").rpartition(b" ")[2] + b"\n")


@pytest.mark.parametrize("kind", ["serial", "visa"])
def test_threads_get_their_own_answers(kind):
    server = Echo()
    server.start()
    link = open_link(kind, server)
    wrong = []

    def ask(offset):
        numbers = range(offset, offset + 400)
        wrong.extend(number for number in numbers if link.query(f"N {number}?", parse_number) != number)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in (0, 100000, 200000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    link.close()
    server.join()
    server.listener.close()
    assert wrong == []
