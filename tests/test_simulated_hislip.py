"""The HiSLIP server message by message, as IVI-6.1 words them; garbage; clients that hang up."""

import contextlib
import socket
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulated_instruments._hislip import HislipServer
from simulated_instruments._session import LineSession

HEADER = struct.Struct("!2sBBIQ")
INITIALIZE, INITIALIZE_RESPONSE, FATAL_ERROR, ERROR, LOCK, LOCK_RESPONSE, DATA, DATA_END = range(8)
CLEAR_COMPLETE, CLEAR_ACKNOWLEDGE, REMOTE_LOCAL, REMOTE_LOCAL_RESPONSE, TRIGGER = range(8, 13)
INTERRUPTED, ASYNC_INTERRUPTED, MAX_SIZE, MAX_SIZE_RESPONSE, ASYNC_INITIALIZE, ASYNC_INITIALIZE_RESPONSE = range(13, 19)
DEVICE_CLEAR, STATUS_QUERY, STATUS_RESPONSE, ASYNC_CLEAR_ACKNOWLEDGE, LOCK_INFO, LOCK_INFO_RESPONSE = 19, *range(21, 26)
EXCLUSIVE_GRANTED = SHARED_GRANTED = 1


class Echo:
    """An instrument that answers each line with itself, reversed; ``wait?`` waits for ``go``, ``-`` is silent."""

    def __init__(self):
        self.go = threading.Event()
        self.entered = threading.Event()
        self.lines = []
        self.interruptions = 0
        self.errors = False

    def open_session(self):
        return EchoSession(self)

    def answer(self, line):
        self.lines.append(line)
        if line == "wait?":
            self.entered.set()
            assert self.go.wait(10.0)
        return b"" if line.startswith("-") else line[::-1].encode("ascii", "replace") + b"\n"


class EchoSession(LineSession):
    def __init__(self, echo):
        super().__init__(echo.answer)
        self.echo = echo

    def status_byte(self):
        return 4 if self.echo.errors else 0

    def interrupted(self):
        self.echo.interruptions += 1


def send(connection, kind, control=0, parameter=0, payload=b""):
    connection.sendall(HEADER.pack(b"HS", kind, control, parameter, len(payload)) + payload)


def exactly(connection, count):
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        assert chunk, "the server hung up"
        data += chunk
    return data


def receive(connection):
    prologue, kind, control, parameter, length = HEADER.unpack(exactly(connection, HEADER.size))
    assert prologue == b"HS"
    return kind, control, parameter, exactly(connection, length)


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=10.0)


class Client:
    """Both channels of one client, opened as the specification says."""

    def __init__(self, server):
        self.messages = connect(server)
        send(self.messages, INITIALIZE, 0, 0x0100 << 16 | 0x7878, b"hislip0")
        kind, overlapped, parameter, payload = receive(self.messages)
        assert (kind, overlapped, payload) == (INITIALIZE_RESPONSE, 0, b"")
        assert parameter >> 16 == 0x0100
        self.id = parameter & 0xFFFF
        self.control = connect(server)
        send(self.control, ASYNC_INITIALIZE, 0, self.id)
        assert receive(self.control)[0] == ASYNC_INITIALIZE_RESPONSE

    def ask(self, text, message_id=0xFFFFFF00, read=1):
        send(self.messages, DATA_END, read, message_id, text)
        kind, control, parameter, payload = receive(self.messages)
        assert (kind, control, parameter) == (DATA_END, 0, message_id)
        return payload

    def request(self, kind, control=0, parameter=0, payload=b""):
        send(self.control, kind, control, parameter, payload)
        return receive(self.control)

    def status(self, read=0):
        kind, status, _, _ = self.request(STATUS_QUERY, read)
        assert kind == STATUS_RESPONSE
        return status

    def close(self):
        self.messages.close()
        self.control.close()


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def server(echo):
    with contextlib.closing(HislipServer(echo, "echo")) as running:
        yield running


@pytest.fixture
def new_client(server):
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Client(server)))


@pytest.fixture
def client(new_client):
    return new_client()


def test_a_message_ends_with_its_end_and_its_reply_has_its_number(client):
    assert client.ask(b"abc", 0xFFFFFF00) == b"cba\n"
    assert client.ask(b"abc\n", 0xFFFFFF02) == b"cba\n"
    send(client.messages, DATA, 1, 4, b"ab")
    send(client.messages, DATA, 0, 6, b"c\r")
    assert client.ask(b"\n", 8, read=0) == b"cba\n"
    send(client.messages, DATA_END, 1, 10, b"-silent")
    assert client.ask(b"x", 12) == b"x\n"


def test_large_messages_and_replies_in_parts(client):
    assert client.request(MAX_SIZE, payload=struct.pack("!Q", 16 + 10)) == (
        MAX_SIZE_RESPONSE,
        0,
        0,
        struct.pack("!Q", 1 << 20),
    )
    send(client.messages, DATA_END, 0, 2, b"0123456789abcdefghijklm")
    parts = [receive(client.messages) for _ in range(3)]
    assert parts == [(DATA, 0, 2, b"mlkjihgfed"), (DATA, 0, 2, b"cba9876543"), (DATA_END, 0, 2, b"210\n")]


def test_status_byte(client, echo):
    assert client.status() == 0
    echo.errors = True
    assert client.status() == 4
    client.ask(b"abc")
    assert client.status() == 4 + 16  # the server cannot know that we have read it
    assert client.status(read=1) == 4


def test_status_does_not_wait_for_the_instrument(client, echo):
    send(client.messages, DATA_END, 0, 2, b"wait?")
    assert echo.entered.wait(10.0)
    assert client.status() == 0
    echo.go.set()
    assert receive(client.messages)[3] == b"?tiaw\n"


def test_device_clear_drops_what_is_unfinished_and_unread(client, echo):
    send(client.messages, DATA_END, 0, 2, b"wait?")
    assert echo.entered.wait(10.0)
    assert client.request(DEVICE_CLEAR)[0] == ASYNC_CLEAR_ACKNOWLEDGE
    send(client.messages, DATA, 0, 4, b"lost ")
    send(client.messages, CLEAR_COMPLETE)
    echo.go.set()
    assert receive(client.messages) == (CLEAR_ACKNOWLEDGE, 0, 0, b"")
    assert client.ask(b"abc", read=0) == b"cba\n"
    assert (echo.lines, echo.interruptions) == (["wait?", "abc"], 0)
    client.request(DEVICE_CLEAR)
    send(client.messages, CLEAR_COMPLETE)
    receive(client.messages)
    assert client.status() == 0  # the unread reply went too


def test_interrupted_queries_are_reported_on_both_channels(client, echo):
    client.ask(b"abc", 2)
    send(client.messages, DATA_END, 0, 4, b"x")
    assert receive(client.messages) == (INTERRUPTED, 0, 4, b"")
    assert receive(client.control) == (ASYNC_INTERRUPTED, 0, 4, b"")
    assert receive(client.messages) == (DATA_END, 0, 4, b"x\n")
    assert echo.interruptions == 1


def test_trigger_is_the_common_command(client, echo):
    send(client.messages, TRIGGER, 0, 2)
    assert receive(client.messages) == (DATA_END, 0, 2, b"GRT*\n")
    assert echo.lines == ["*TRG"]


def test_remote_local(client):
    for code in range(7):
        assert client.request(REMOTE_LOCAL, code) == (REMOTE_LOCAL_RESPONSE, 0, 0, b"")
    assert client.request(REMOTE_LOCAL, 7)[:2] == (ERROR, 2)


def test_exclusive_lock_keeps_others_out_until_it_is_released(new_client, echo):
    first, second = new_client(), new_client()
    assert first.request(LOCK, 1, 0) == (LOCK_RESPONSE, EXCLUSIVE_GRANTED, 0, b"")
    assert first.request(LOCK, 1, 0)[1] == 3  # it has it already
    assert second.request(LOCK, 1, 1)[1] == 0
    assert second.request(LOCK, 1, 0, b"key")[1] == 0
    assert second.request(LOCK, 0)[1] == 3
    assert second.request(LOCK_INFO) == (LOCK_INFO_RESPONSE, 1, 1, b"")
    send(second.messages, DATA_END, 0, 2, b"second")
    assert first.ask(b"first") == b"tsrif\n"
    assert second.status() == 0
    assert echo.lines == ["first"]
    assert first.request(LOCK, 0)[1] == 1
    assert receive(second.messages)[3] == b"dnoces\n"
    assert second.request(LOCK_INFO) == (LOCK_INFO_RESPONSE, 0, 0, b"")


def test_shared_lock_is_for_those_with_its_key(new_client):
    first, second, third = new_client(), new_client(), new_client()
    assert first.request(LOCK, 1, 0, b"key")[1] == SHARED_GRANTED
    assert first.request(LOCK, 1, 0, b"key")[1] == 3
    assert second.request(LOCK, 1, 0, b"key")[1] == SHARED_GRANTED
    assert third.request(LOCK, 1, 1, b"other")[1] == 0
    assert third.request(LOCK, 1, 1)[1] == 0
    assert third.request(LOCK_INFO)[1:3] == (0, 2)
    assert second.ask(b"ab") == b"ba\n"
    assert first.request(LOCK, 1, 0)[1] == EXCLUSIVE_GRANTED  # a holder may go on to the exclusive lock
    assert third.request(LOCK_INFO)[1:3] == (1, 2)
    assert [first.request(LOCK, 0)[1] for _ in range(3)] == [1, 2, 3]
    assert second.request(LOCK, 0)[1] == 2
    assert third.request(LOCK, 1, 0)[1] == EXCLUSIVE_GRANTED
    assert third.request(LOCK, 2)[:2] == (ERROR, 2)


def test_locks_of_a_client_that_hangs_up_are_free(new_client):
    first, second = new_client(), new_client()
    first.request(LOCK, 1, 0)
    send(second.control, LOCK, 1, 10_000)
    first.messages.close()  # one channel is enough
    assert receive(second.control)[1] == EXCLUSIVE_GRANTED
    assert first.control.recv(1) == b""


def test_closing_ends_all_waits(echo):
    server = HislipServer(echo, "echo")
    clients = [Client(server) for _ in range(3)]
    clients[0].request(LOCK, 1, 0)
    send(clients[1].messages, DATA_END, 0, 2, b"abc")
    send(clients[2].control, LOCK, 1, 3_600_000)
    server.close()
    server.close()
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("channel", "message", "code"),
    [
        ("messages", (99, 0, 0, b"payload"), 1),
        ("messages", (LOCK, 0, 0, b""), 1),
        ("control", (DATA_END, 0, 0, b"abc"), 1),
        ("control", (DEVICE_CLEAR + 1, 0, 0, b""), 1),
        ("messages", (DATA_END, 2, 0, b"abc"), 2),
        ("control", (200, 0, 0, b""), 3),
        ("messages", (DATA_END, 0, 0, b"a" * ((1 << 20) + 1)), 4),
        ("control", (MAX_SIZE, 0, 0, b"1"), 0),
    ],
)
def test_mistakes_are_answered_and_do_no_harm(client, channel, message, code):
    connection = getattr(client, channel)
    send(connection, *message)
    kind, control, _, text = receive(connection)
    assert (kind, control) == (ERROR, code)
    assert text
    assert client.ask(b"abc") == b"cba\n"
    assert client.status(read=1) == 0


def test_parts_of_a_message_are_bounded_too(client):
    for _ in range(2):
        send(client.messages, DATA, 0, 2, b"a" * (1 << 20))
    assert receive(client.messages)[:2] == (ERROR, 4)
    assert client.ask(b"abc") == b"cba\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"XX" + bytes(14), 1),
        (HEADER.pack(b"HS", DATA, 0, 0, 1 << 40), 1),
        (HEADER.pack(b"HS", DATA_END, 0, 0, 0), 3),
        (HEADER.pack(b"HS", ASYNC_INITIALIZE, 0, 4711, 0), 3),
        (HEADER.pack(b"HS", INITIALIZE, 0, 0x01000000, 5) + b"inst0", 3),
        (HEADER.pack(b"HS", INITIALIZE, 0, 0x01000000, 1 << 20) + bytes(1 << 20), 3),
    ],
)
def test_fatal_mistakes_end_the_connection(server, data, code):
    with connect(server) as connection:
        connection.sendall(data)
        kind, control, _, text = receive(connection)
        assert (kind, control) == (FATAL_ERROR, code)
        assert text
        assert connection.recv(1) == b""


def test_messages_before_the_second_channel_are_fatal(server):
    with connect(server) as connection:
        send(connection, INITIALIZE, 0, 0x01000000, b"hislip0")
        receive(connection)
        send(connection, DATA_END, 0, 0, b"abc")
        assert receive(connection)[:2] == (FATAL_ERROR, 2)


def test_a_bad_header_ends_both_channels(client, server, new_client):
    client.control.sendall(b"garbage " * 2)
    assert receive(client.control)[:2] == (FATAL_ERROR, 1)
    assert client.control.recv(1) == client.messages.recv(1) == b""
    assert new_client().ask(b"abc") == b"cba\n"


def test_a_second_control_channel_is_refused(client, server):
    with connect(server) as connection:
        send(connection, ASYNC_INITIALIZE, 0, client.id)
        assert receive(connection)[:2] == (FATAL_ERROR, 3)
    assert client.ask(b"abc") == b"cba\n"


def test_no_more_clients_than_the_server_takes(server):
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            connection = stack.enter_context(connect(server))
            send(connection, INITIALIZE, 0, 0x01000000, b"hislip0")
            assert receive(connection)[0] == INITIALIZE_RESPONSE
        connection = stack.enter_context(connect(server))
        send(connection, INITIALIZE, 0, 0x01000000, b"hislip0")
        assert receive(connection)[:2] == (FATAL_ERROR, 4)


def test_client_errors_are_taken_note_of(client):
    send(client.messages, ERROR, 1, 0, b"what?")
    assert client.ask(b"abc") == b"cba\n"
    send(client.messages, FATAL_ERROR, 1, 0, b"no!")
    assert client.messages.recv(1) == client.control.recv(1) == b""


MESSAGE = st.builds(
    lambda kind, control, parameter, payload, length: (
        HEADER.pack(b"HS", kind, control, parameter, len(payload) if length is None else length) + payload
    ),
    st.integers(0, 255),
    st.integers(0, 3),
    st.sampled_from([0, 1, 2, 0xFFFFFFFF]),
    st.binary(max_size=20),
    st.one_of(st.none(), st.none(), st.integers(0, 2**64 - 1)),
)


@pytest.fixture(scope="module")
def busy_server():
    with contextlib.closing(HislipServer(Echo(), "busy")) as running:
        yield running


@settings(max_examples=60)
@given(
    st.lists(st.one_of(MESSAGE, st.binary(max_size=40)), max_size=4), st.sampled_from(["new", "messages", "control"])
)
def test_garbage_never_harms_the_next_client(busy_server, messages, where):
    client = Client(busy_server)
    with contextlib.closing(client), connect(busy_server) as fresh:
        connection = fresh if where == "new" else getattr(client, where)
        with contextlib.suppress(OSError):
            for message in messages:
                connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    with contextlib.closing(Client(busy_server)) as after:
        assert after.ask(b"abc") == b"cba\n"
