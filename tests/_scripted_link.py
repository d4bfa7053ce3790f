"""Byte-exact scripts for driver tests: an in-process port, and a TCP server, which both fail on any other byte."""

import contextlib
import socket
import threading
from collections import deque

import pytest

from optinc_hw.errors import LinkError, LinkTimeoutError

_PATIENCE_S = 10.0
SHORT_S = 0.4
"""Timeout where one must pass, and yet the exchanges before it, or part of a reply, must arrive in time."""


@contextlib.contextmanager
def raises_in_time(error, instrument, **kwargs):
    """Expect an error of a driver, whose timeout is short only meanwhile, and only if it must pass."""
    patient = instrument.timeout()
    if issubclass(error, LinkTimeoutError):
        instrument.timeout(SHORT_S)
    with pytest.raises(error, **kwargs) as caught:
        yield caught
    instrument.timeout(patient)


class HangUp:
    """Script step: close the connection."""


class ScriptedPort:
    """Port that plays (bytes out, chunks in) pairs; a chunk that is an exception is raised.

    ``receive`` never waits: when the script has no more chunks for the last command, time is up.
    """

    address = "scripted"

    def __init__(self, *exchanges):
        self._exchanges = deque(exchanges)
        self._incoming = deque()
        self.sent = []
        self.reopened = 0
        self.abandoned = 0
        self.closed = False

    def arrive(self, *chunks):
        """Let bytes arrive unasked."""
        self._incoming.extend(chunks)

    def send(self, data):
        assert self._exchanges, f"unexpected command {data!r}"
        expected, chunks = self._exchanges.popleft()
        assert data == expected
        self.sent.append(data)
        chunks = [chunks] if isinstance(chunks, bytes) else chunks
        self._incoming.extend(chunk for chunk in chunks if chunk != b"")

    def receive(self, wait):
        if not self._incoming:
            return b""
        chunk = self._incoming.popleft()
        if isinstance(chunk, BaseException):
            raise chunk
        return chunk

    def abandon(self):
        self.abandoned += 1

    def reopen(self):
        self.reopened += 1
        self._incoming.clear()

    def close(self):
        self.closed = True

    def check_finished(self):
        """Assert that every command was sent and every chunk was read."""
        assert not self._exchanges, f"never sent: {list(self._exchanges)}"
        assert not self._incoming, f"never read: {list(self._incoming)}"


def broken():
    """Make the error of a transport that is down."""
    return LinkError("unplugged")


class ScriptServer:
    """TCP server on 127.0.0.1 that plays a script to its clients, one connection after the other.

    Steps are (bytes out of the driver, reply) pairs. Either may be None. A reply may be bytes, a HangUp, a
    threading.Event to wait for, or a list of these. After a HangUp the next connection goes on with the script.
    Leaving the context fails the test if the driver sent another byte, too few or too many.
    """

    def __init__(self, *steps):
        self._steps = steps
        self._failure = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_PATIENCE_S)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def serial_url(self):
        return f"socket://127.0.0.1:{self.port}"

    @property
    def visa_address(self):
        return f"TCPIP0::127.0.0.1::{self.port}::SOCKET"

    def __enter__(self):
        return self

    def wait_until_finished(self):
        """Wait for the end of the script."""
        self._thread.join(_PATIENCE_S)

    def __exit__(self, kind, error, trace):
        self.wait_until_finished()
        self._listener.close()
        if kind is None:
            assert not self._thread.is_alive(), "the driver did not close its connection"
            if self._failure is not None:
                raise self._failure

    def _run(self):
        connection = None
        try:
            for expected, reply in self._steps:
                if connection is None:
                    connection = self._accept()
                if expected is not None:
                    self._expect(connection, expected)
                for part in reply if isinstance(reply, list) else [reply]:
                    if isinstance(part, HangUp):
                        connection.close()
                        connection = None
                    elif isinstance(part, threading.Event):
                        assert part.wait(_PATIENCE_S), "the test never set the event"
                    elif part is not None:
                        connection.sendall(part)
            if connection is not None:
                rest = connection.recv(65536)
                assert rest == b"", f"the driver sent {rest!r} after the end of the script"
        except (AssertionError, OSError) as error:
            self._failure = AssertionError(f"script failed: {error}")
        finally:
            if connection is not None:
                connection.close()

    def _accept(self):
        connection, _ = self._listener.accept()
        connection.settimeout(_PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    @staticmethod
    def _expect(connection, expected):
        received = b""
        while len(received) < len(expected):
            chunk = connection.recv(len(expected) - len(received))
            assert chunk, f"the driver hung up after {received!r}; expected {expected!r}"
            received += chunk
            assert expected.startswith(received), f"the driver sent {received!r}; expected {expected!r}"
