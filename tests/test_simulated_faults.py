"""Link faults byte by byte, with a plain socket, on a small instrument that is none of ours."""

import sys
import threading
from pathlib import Path

import pytest
from fault_boxes import Box, NoChip, Served, ask, check_in_step, hung_up, read, refused
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from simulated_instruments._fault_link import FaultyInstrument
from simulated_instruments._hislip import HislipServer
from simulated_instruments._pty import PtyServer
from simulated_instruments.faults import (
    BenchFaults,
    Doubled,
    Dropped,
    ErrorFlood,
    FlippedBit,
    Frozen,
    Garbled,
    Glued,
    Hit,
    Late,
    LostReply,
    LostWrite,
    Refused,
    Restarted,
    Split,
    Stuttered,
    Truncated,
    Unasked,
    WrongIdentity,
)


@pytest.fixture
def served():
    running = Served("box", "other")
    yield running
    running.close()


@pytest.fixture
def client(served):
    return served.connect()


REPLIES = [
    (Truncated(), b"123"),  # half of b"12345\r\n"
    (Truncated(keep=6), b"12345\r"),
    (Truncated(keep=99), b"12345\r"),
    (Split(), b"12345\r\n"),
    (Split(piece=3, pause_s=0.001), b"12345\r\n"),
    (Doubled(), b"12345\r\n12345\r\n"),
    (Garbled(), b"\xff2345\r\n"),
    (Garbled(at=-3, byte=0x00), b"1234\x00\r\n"),
    (Garbled(at=8, byte=0x41), b"1A345\r\n"),
    (FlippedBit(at=1), b"1\xb2345\r\n"),
    (FlippedBit(at=0, bit=1), b"32345\r\n"),
    (Stuttered(times=3), b"1112345\r\n"),
    (LostReply(), b""),
    (Unasked(b"\x00!\n"), b"\x00!\n12345\r\n"),
    (Unasked(b"*", where="after"), b"12345\r\n*"),
    (WrongIdentity(b"x,y"), b"x,y\r\n"),
    (Late(seconds=0.001), b"12345\r\n"),
    (ErrorFlood(2), b"ERR\nERR\n12345\r\n"),
]


@pytest.mark.parametrize(("fault", "expected"), REPLIES, ids=lambda value: str(value)[:40])
def test_one_reply_is_hit_and_the_next_is_whole(served, client, fault, expected):
    served.box.value = 12345
    served.faults.inject("box", fault, match=b"GET")
    ask(client, b"GET?\n", expected)
    check_in_step(client, 12345)


def test_late_reply_comes_when_the_next_command_has_arrived(served, client):
    served.faults.inject("box", Late(), match=b"GET")
    client.sendall(b"GET?\n")
    ask(client, b"SET 5\n", b"0\r\n")
    check_in_step(client, 5)


def test_glued_reply_comes_in_one_piece_with_the_next(served, client):
    served.faults.inject("box", Glued(), match=b"GET")
    client.sendall(b"GET?\n")
    ask(client, b"*IDN?\n", b"0\r\nAcme,box,1,2\r\n")
    check_in_step(client, 0)


def test_lost_write_never_reaches_the_instrument(served, client):
    served.faults.inject("box", LostWrite(), match=b"SET", after=1)
    client.sendall(b"SET 1\nSET 2\n")
    check_in_step(client, 1)
    client.sendall(b"SET 3\n")
    check_in_step(client, 3)


@pytest.mark.parametrize(
    ("when", "received", "heard"),
    [("unheard", b"", False), ("before", b"", True), ("within", b"Acme,b", True), ("after", b"Acme,box,1,2\r\n", True)],
)
def test_connection_breaks_around_a_reply(served, client, when, received, heard):
    received = received if when != "within" else b"Acme,box,1,2\r\n"[:7]
    served.faults.inject("box", Dropped(when))
    client.sendall(b"*IDN?\nSET 7\n")
    assert read(client, len(received)) == received
    assert hung_up(client)
    again = served.connect()
    check_in_step(again, 0)
    assert ("*IDN?" in served.box.heard) == heard


def test_refused_clients_are_cut_off_for_as_long_as_told(served):
    served.faults.inject("box", Refused(), count=2)
    for _ in range(2):
        assert refused(served)
    check_in_step(served.connect(), 0)
    served.faults.inject("box", Refused(), count=None, for_s=3.0)
    assert refused(served)
    served.clock.sleep(3.0)
    check_in_step(served.connect(), 0)


def test_frozen_instrument_takes_commands_and_does_nothing(served, client):
    served.faults.inject("box", Frozen(), count=None, after_s=1.0, for_s=2.0)
    client.sendall(b"SET 1\n")
    check_in_step(client, 1)
    served.clock.sleep(1.0)
    client.sendall(b"SET 2\nGET?\nGET?\n")
    served.wait_for("frozen", 3)
    assert not served.faults.wait_for("box", 4, timeout_s=0.05)
    served.clock.sleep(2.0)
    check_in_step(client, 1)


@pytest.mark.parametrize("drop", [True, False])
def test_restart_in_mid_run(served, client, drop):
    bystander = served.connect()
    check_in_step(bystander, 0)
    served.faults.inject("box", Restarted(drop=drop), match=b"GET")
    client.sendall(b"SET 9\nGET?\n")
    served.wait_for("restarted", 1)
    if drop:
        assert hung_up(client)
        assert hung_up(bystander)
        client = served.connect()
    check_in_step(client, 0)
    assert served.box.heard.count("GET?") == 2


def test_errors_reach_all_clients(served, client):
    bystander = served.connect()
    check_in_step(bystander, 0)
    served.faults.inject("box", ErrorFlood(1))
    ask(client, b"GET?\n", b"ERR\n0\r\n")
    ask(bystander, b"GET?\n", b"ERR\n0\r\n")


def test_wrong_identity_hits_identity_queries_only(served, client):
    served.faults.inject("box", WrongIdentity(b"Acme,Toaster,0,1"))
    check_in_step(client, 0)
    ask(client, b"*IDN?\n", b"Acme,Toaster,0,1\r\n")
    ask(client, b"*IDN?\n", b"Acme,box,1,2\r\n")


def test_swapped_addresses(served, client):
    check_in_step(client, 0)
    served.faults.swap("box", "other")
    assert hung_up(client)
    ask(served.connect(), b"*IDN?\n", b"Acme,other,1,2\r\n")
    ask(served.connect("other"), b"*IDN?\n", b"Acme,box,1,2\r\n")


def test_bytes_unasked_and_breaks_at_a_moment(served, client):
    check_in_step(client, 0)
    served.faults.send_unasked("box", b"\x80\x81")
    assert read(client, 2) == b"\x80\x81"
    check_in_step(client, 0)
    served.faults.drop("box")
    assert hung_up(client)
    client = served.connect()
    client.sendall(b"SET 3\n")
    check_in_step(client, 3)
    served.faults.restart("box")
    assert hung_up(client)
    check_in_step(served.connect(), 0)


def test_commands_count_one_by_one_however_they_arrive(served, client):
    served.faults.inject("box", LostReply(), match=rb"^GET\?$", after=2, count=2)
    for part in (b"GET?\nGE", b"T?\r", b"\nSET 1\n", b"GET?\n\n\nGET?", b"\nGET?\n"):
        client.sendall(part)
    assert read(client, 9) == b"0\r\n0\r\n1\r\n"
    check_in_step(client, 1)
    assert served.faults.counts() == {"box": {"lost_reply": 2}, "other": {}}
    assert served.faults.hits("box") == (
        Hit(LostReply(), b"GET?", b"1\r\n"),
        Hit(LostReply(), b"GET?", b"1\r\n"),
    )


def test_a_command_is_hit_by_one_fault_the_first_injected(served, client):
    served.faults.inject("box", Doubled(), match=b"GET")
    served.faults.inject("box", Stuttered(2), match=b"GET")
    ask(client, b"GET?\n", b"0\r\n0\r\n")
    ask(client, b"GET?\n", b"00\r\n")
    check_in_step(client, 0)


def test_cleared_faults_do_nothing(served, client):
    served.faults.inject("box", Frozen(), count=None)
    served.faults.clear()
    check_in_step(client, 0)
    assert served.faults.counts() == {"box": {}, "other": {}}


def test_binary_frames_pass_whole_through_a_link_with_faults():
    """Row S-04: bytes 0x80 to 0xFF, in both directions, with a fault in wait."""

    class Echo:
        def open_session(self):
            return self

        def receive(self, data):
            return data

    link = FaultyInstrument(Echo(), SimulatedClock())
    BenchFaults({"echo": link}, NoChip(), SimulatedClock()).inject("echo", LostReply(), match=b"never")
    frame = bytes(range(0x80, 0x100)) + b"\r\n" + bytes(range(0x80))
    assert link.open_session().receive(frame) == frame


@given(st.lists(st.sampled_from([b"GET?\n", b"SET 4\n", b"*IDN?\r\n", b"\n", b"junk\n"])), st.data())
def test_a_fault_in_wait_changes_nothing_for_other_commands(commands, data):
    """However the bytes are cut, the replies are those of a link without faults."""
    stream = b"".join(commands)
    link, plain = FaultyInstrument(Box(), SimulatedClock()), Box().open_session()
    BenchFaults({"box": link}, NoChip(), SimulatedClock()).inject("box", Frozen(), match=b"never")
    session, replies = link.open_session(), b""
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        replies += session.receive(stream[:size])
        stream = stream[size:]
    assert replies == plain.receive(b"".join(commands))


def test_waiting_for_a_late_reply_ends_with_the_bench(served, client):
    served.faults.inject("box", Late(seconds=300.0))
    client.sendall(b"GET?\n")
    served.wait_for("late", 1)
    closer = threading.Thread(target=served.close)
    closer.start()
    closer.join(10.0)
    assert not closer.is_alive()


def test_hislip_clients_suffer_too():
    link = FaultyInstrument(Box(), SimulatedClock())
    faults = BenchFaults({"box": link}, NoChip(), SimulatedClock())
    server = HislipServer(link, "box")
    try:
        import pyvisa

        address = f"TCPIP0::127.0.0.1::hislip0,{server.port}::INSTR"
        with pyvisa.ResourceManager("@py").open_resource(address, timeout=5000) as device:
            faults.inject("box", Garbled())
            device.write_raw(b"*IDN?\n")
            assert device.read_raw() == b"\xffcme,box,1,2\r\n"
            assert device.query("GET?") == "0\r\n"
            faults.inject("box", Dropped("within"))
            device.write_raw(b"*IDN?\n")
            assert device.read_raw() == b"Acme,bo"
    finally:
        server.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_pseudo_terminals_suffer_what_a_serial_line_can():
    link = FaultyInstrument(Box(), SimulatedClock())
    faults = BenchFaults({"box": link}, NoChip(), SimulatedClock())
    faults.inject("box", Refused())
    with pytest.raises(ConnectionRefusedError):
        PtyServer(link, "box")
    server = PtyServer(link, "box")
    try:
        with Path(server.path).open("r+b", buffering=0) as terminal:
            faults.inject("box", Garbled())
            terminal.write(b"GET?\n")
            assert _read(terminal, 3) == b"\xff\r\n"
            faults.inject("box", Dropped("within"))
            faults.send_unasked("box", b"!")
            terminal.write(b"*IDN?\n")
            assert _read(terminal, 8) == b"!Acme,bo"
            terminal.write(b"GET?\nGET?\n")
            assert _read(terminal, 6) == b"0\r\n0\r\n"
    finally:
        server.close()


def _read(terminal, count):
    data = b""
    while len(data) < count:
        data += terminal.read(count - len(data))
    return data
