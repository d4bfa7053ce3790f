"""A client's link to a chip host, and the session that outlives links."""

import contextlib
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._host_frames import (
    PREFIX_SIZE,
    Bytes,
    Prefix,
    ProtocolError,
    read_prefix,
    read_rest,
    write_head,
)
from optinc_hw.clock import Clock
from optinc_hw.errors import AggregationError

Connect = Callable[[tuple[str, int], float], socket.socket]
"""``connect((name, port), timeout_s)``: opens a link."""

M = TypeVar("M", bound=messages.Message)

_LOGIN_S = 10.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


def open_link(where: tuple[str, int], timeout_s: float) -> socket.socket:
    """Open a TCP link whose messages leave at once, and which is lost when the other machine is."""
    link = socket.create_connection(where, timeout_s)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return link


class LinkDownError(AggregationError):
    """A link to a chip host was lost or not found; another one may do."""


class NoHostError(LinkDownError):
    """No link to a chip host could be opened in the time that there was."""


class TurnedAwayError(AggregationError):
    """A chip host and this client cannot work together; another link would not do either."""


@dataclass(frozen=True)
class Peer:
    """Where a chip host is, and how links to it are made.

    Parameters
    ----------
    where
        Name and port.
    token
        Secret that both sides know; None where the host has none.
    clock
        Time for deadlines and pauses.
    connect
        Opens a link.
    """

    where: tuple[str, int]
    token: str | None = field(repr=False)
    clock: Clock
    connect: Connect


class Link:
    """An open link, logged in.

    Parameters
    ----------
    peer
        The host.
    session
        Random name of the session that the link continues.
    until
        Time of the clock by which it must be open.

    Attributes
    ----------
    instance : str
        Which life of the host this is.
    welcome : Welcome
        What the host serves.
    accepted : int
        Number of requests that the host has accepted, as far as it is known.

    Raises
    ------
    LinkDownError
        If the host is not found, or has no room.
    TurnedAwayError
        If token or version differ, or the other side is no chip host.
    """

    def __init__(self, peer: Peer, session: str, until: float) -> None:
        self._clock = peer.clock
        self._bytes = bytearray(PREFIX_SIZE)
        self._filled = 0
        self._prefix: Prefix | None = None
        self.payload_limit = 0
        now = peer.clock.now()
        until = min(until, now + _LOGIN_S)
        try:
            self._socket = peer.connect(peer.where, until - now)
        except OSError as error:
            raise LinkDownError(f"connecting failed: {error}") from error
        try:
            self._log_in(peer.token, session, until)
        except BaseException:
            self.close()
            raise

    def send(self, message: messages.Message, until: float, payload: Bytes = b"") -> None:
        """Send a message.

        Raises
        ------
        LinkDownError
            If it has not left by then, or the link is lost; part of it may have arrived.
        """
        try:
            self._socket.settimeout(max(0.001, until - self._clock.now()))
            self._socket.sendall(write_head(message, payload))
            if payload:
                self._socket.sendall(payload)
        except OSError as error:
            raise LinkDownError(f"the link was lost while sending: {error}") from error

    def receive(self, until: float) -> tuple[messages.Message, memoryview] | None:
        """Return the next message; None if none is complete by then.  What is here already is always read.

        Raises
        ------
        LinkDownError
            If the link is lost.
        TurnedAwayError
            If the host sent the client away for good.
        ProtocolError
            If what came is no message.
        """
        while self._filled < len(self._bytes):
            try:
                self._socket.settimeout(max(0.0, until - self._clock.now()))
                with memoryview(self._bytes) as view, view[self._filled :] as rest:
                    got = self._socket.recv_into(rest)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError as error:
                raise LinkDownError(f"the link was lost: {error}") from error
            if got == 0:
                raise LinkDownError("the host closed the link")
            self._filled += got
            if self._filled == PREFIX_SIZE:
                self._prefix = read_prefix(self._bytes, self.payload_limit)
                self._bytes.extend(bytes(self._prefix.rest))
        return self._message()

    def close(self) -> None:
        """End the link."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _message(self) -> tuple[messages.Message, memoryview]:
        assert self._prefix is not None  # set once the first bytes are there
        message, payload = read_rest(self._prefix, memoryview(self._bytes)[PREFIX_SIZE:])
        self._bytes, self._filled, self._prefix = bytearray(PREFIX_SIZE), 0, None
        if isinstance(message, messages.Goodbye):
            raise (LinkDownError if message.again else TurnedAwayError)(message.reason)
        return message, payload

    def _log_in(self, token: str | None, session: str, until: float) -> None:
        greeting = self._expected(messages.Greeting, until)
        if greeting.token_needed != (token is not None):
            needed = "needs a token; give it" if greeting.token_needed else "has no token; give none"
            raise TurnedAwayError(f"the chip host {needed} to RemoteExecutor")
        nonce = secrets.token_hex(16)
        signed = messages.proof(token, "client", greeting, nonce, session)
        self.send(messages.Login(nonce=nonce, session=session, proof=signed), until)
        welcome = self._expected(messages.Welcome, until)
        if not messages.same(welcome.proof, messages.proof(token, "host", greeting, nonce, session)):
            raise TurnedAwayError("what answers there does not know the token; check the address")
        self.instance = greeting.instance
        self.welcome = welcome
        self.accepted = welcome.accepted

    def _expected(self, kind: type[M], until: float) -> M:
        """Return the next message, which must be of a kind; errors as for the class."""
        try:
            received = self.receive(until)
        except ProtocolError as error:
            raise TurnedAwayError(str(error)) from error
        if received is None:
            raise LinkDownError("the host did not greet in time")
        if not isinstance(received[0], kind):
            raise TurnedAwayError(f"the host sent {type(received[0]).__name__} in place of {kind.__name__}")
        return received[0]


class Session:
    """What outlives links: the host ends a former link of a session before it takes a new one.

    Parameters
    ----------
    peer
        The host.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._name = secrets.token_hex(16)
        self._link: Link | None = None
        self._pause_s = 0.0
        self._cause: Exception | None = None

    def link(self, until: float) -> Link:
        """Return the open link, or try to open one, with growing pauses between the attempts.

        Raises
        ------
        NoHostError
            If none could be opened by then; with the last cause.
        TurnedAwayError
            As `Link`.
        """
        clock = self._peer.clock
        while self._link is None:
            if clock.now() + self._pause_s >= until:
                raise NoHostError(str(self._cause or "no time was left to connect")) from self._cause
            clock.sleep(self._pause_s)
            try:
                self._link = Link(self._peer, self._name, until)
            except LinkDownError as error:
                self.drop(error)
        return self._link

    def fresh_link(self, until: float) -> Link:
        """Return a link as `link`, but none that the host has closed meanwhile."""
        if self._link is not None:
            try:
                while self._link.receive(self._peer.clock.now()) is not None:
                    pass
            except (LinkDownError, TurnedAwayError, ProtocolError):
                self.close()
        return self.link(until)

    def heard(self) -> None:
        """Take note that the link is of use."""
        self._pause_s = 0.0

    def drop(self, cause: Exception) -> None:
        """End a link that is of no use; the next one is opened after a pause."""
        self.close()
        self._cause = cause
        self._pause_s = min(max(_FIRST_PAUSE_S, 2.0 * self._pause_s), _LONGEST_PAUSE_S)

    def close(self) -> None:
        """End the link, if there is one."""
        if self._link is not None:
            self._link.close()
        self._link = None
