"""What the tests of the chip host put on either side of it: executors that wait, bare clients, links that break."""

import contextlib
import select
import socket
import struct
import threading

import numpy as np

from optinc_hw.aggregation import ExactExecutor
from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._host_frames import PREFIX_SIZE, codes_to_wire, read_prefix, read_rest, write_head
from optinc_hw.aggregation._remote_link import open_link

TOKEN = "a token of enough characters"
REAL_WAIT_S = 60.0  # what a test waits for something that must come; never the length of a test that passes


class CountingExecutor(ExactExecutor):
    """The exact executor of 4 servers and 8 bits; lists the first code of each run, and waits if it is told to."""

    def __init__(self, waits=False):
        super().__init__(4, 8)
        self.runs = []
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.waits = waits

    def run(self, codes, out=None):
        self.runs.append(int(codes[0, 0]))
        self.started.release()
        if self.waits:
            assert self.gate.acquire(timeout=REAL_WAIT_S)
        return super().run(codes, out)

    def has_started(self):
        assert self.started.acquire(timeout=REAL_WAIT_S)


class SteppingExecutor(ExactExecutor):
    """Tells its progress in ten steps; `endless` goes on until it is stopped."""

    def __init__(self, endless=False):
        super().__init__(4, 8)
        self.progress = None
        self.endless = endless
        self.started = threading.Event()

    def run(self, codes, out=None):
        while self.endless:
            self.progress(1, 10)
            self.started.set()
        for step in range(1, 11):
            self.progress(step, 10)
        return super().run(codes, out)


def codes_of(first, elements=5):
    """Codes (elements, 4) that begin with ``first``."""
    codes = np.random.default_rng(first).integers(0, 256, (elements, 4), dtype=np.uint8)
    codes[0, 0] = first
    return codes


def name_of(number):
    return f"{number:032x}"


class BareClient:
    """Speaks frames to a host without the care that RemoteExecutor takes."""

    def __init__(self, address, session=None, token=None, log_in=True):
        name, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((name, int(port)), REAL_WAIT_S)
        if log_in:
            greeting = self.expect(messages.Greeting)
            session = name_of(id(self)) if session is None else name_of(session)
            proof = messages.proof(token, "client", greeting, name_of(7), session)
            self.send(messages.Login(nonce=name_of(7), session=session, proof=proof))
            self.instance = greeting.instance
            self.welcome = self.expect((messages.Welcome, messages.Goodbye))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, message, payload=b""):
        self.socket.sendall(write_head(message, payload) + bytes(payload))

    def submit(self, number, first, elements=5):
        payload = codes_to_wire(codes_of(first, elements).T, 8)
        self.send(messages.Submit(request=name_of(number), elements=elements), payload)

    def receive(self):
        """Return the next message and its payload."""
        prefix = read_prefix(self._exactly(PREFIX_SIZE), 1 << 20)
        return read_rest(prefix, self._exactly(prefix.rest))

    def expect(self, kind, **fields):
        """Return the next message of a kind (or of several), which must have these fields; skips states."""
        while True:
            message, _ = self.receive()
            if isinstance(message, kind) or not isinstance(message, messages.State):
                break
        assert isinstance(message, kind), message
        assert {name: getattr(message, name) for name in fields} == fields
        return message

    def ended(self):
        """Whether the host has closed the link, with nothing more to read."""
        return self.socket.recv(1) == b""

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            got = self.socket.recv(size - len(data))
            assert got, f"the host closed the link after {len(data)} of {size} bytes"
            data += got
        return data


class CutAt:
    """Opens links and cuts one of them at one of its operations, counted over all links."""

    def __init__(self, cut, after):
        self.cut = cut
        self.after = after
        self.operations = 0
        self.links = 0

    def __call__(self, where, timeout):
        self.links += 1
        return CutSocket(self, open_link(where, timeout))


class CutSocket:
    def __init__(self, plan, real):
        self._plan = plan
        self._real = real
        self.settimeout = real.settimeout
        self.close = real.close

    def sendall(self, data):
        self._operate(lambda: self._real.sendall(data))

    def recv_into(self, buffer):
        return self._operate(lambda: self._real.recv_into(buffer))

    def _operate(self, operation):
        number = self._plan.operations
        self._plan.operations += 1
        if number != self._plan.cut:
            return operation()
        if self._plan.after:
            with contextlib.suppress(BlockingIOError):
                operation()
        self._real.close()
        raise ConnectionResetError("cut by the test")


REPLIES = {messages.Login: 1, messages.Submit: 2, messages.Ask: 1, messages.Cancel: 1, messages.HealthAsked: 1}


class TimedLinks:
    """Opens links on which a wait for nothing lets simulated time pass at once.

    ``replies``: how many messages a host sends for each of the client's; as long as one is due, real time is waited.
    """

    def __init__(self, clock, replies=REPLIES):
        self.clock = clock
        self.replies = replies

    def __call__(self, where, timeout):
        return TimedSocket(self, open_link(where, REAL_WAIT_S))


class TimedSocket:
    def __init__(self, links, real):
        self._links = links
        self._real = real
        self._timeout = 0.0
        self._due = 1  # the greeting
        self._got = bytearray()
        self.close = real.close

    def settimeout(self, seconds):
        self._timeout = seconds

    def sendall(self, data):
        self._real.sendall(data)
        if data[:4] == b"OPTI":
            self._due += self._links.replies.get(messages.KINDS[data[5] - 1], 0)

    def recv_into(self, buffer):
        if self._due <= 0 and not select.select([self._real], [], [], 0.0)[0]:
            self._links.clock.sleep(self._timeout)
            raise TimeoutError
        count = self._real.recv_into(buffer)
        self._got += bytes(buffer[:count])
        while len(self._got) >= PREFIX_SIZE:
            header, payload = struct.unpack_from("!HI", self._got, 6)
            if len(self._got) < PREFIX_SIZE + header + payload:
                break
            del self._got[: PREFIX_SIZE + header + payload]
            self._due -= 1
        return count


def in_thread(call):
    """Start a call in a thread; returns what waits for its result or error."""
    found = []

    def run():
        try:
            found.append((call(), None))
        except Exception as error:  # noqa: BLE001 - for the test's own thread
            found.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join(REAL_WAIT_S)
        ((value, error),) = found
        if error is not None:
            raise error
        return value

    return result
