"""Faults between transport and instrument: which command is hit, and what its client gets to see."""

import re
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Literal

from optinc_hw.clock import Clock
from simulated_instruments._fault_kinds import (
    Dropped,
    ErrorFlood,
    Glued,
    Late,
    LinkFault,
    LostReply,
    Restarted,
    Split,
    fault_name,
)
from simulated_instruments._fault_rules import Hit, Injection, altered
from simulated_instruments._session import BusSession, Session, SimulatedInstrument

_KEPT_HITS = 1000
_BINARY = 0x80  # first byte of a frame of the protocols that have frames beside lines


class FaultyInstrument:
    """A simulated instrument behind a link on which faults happen; implements ``SimulatedInstrument``.

    Parameters
    ----------
    instrument
        The instrument, which knows nothing of it.
    clock
        Time of the bench.
    command_ends
        Characters that end a command.
    """

    def __init__(self, instrument: SimulatedInstrument, clock: Clock, command_ends: bytes = b"\r\n") -> None:
        self.instrument = instrument
        self.command_ends = command_ends
        self.counts: Counter[str] = Counter()
        """How often each kind of fault has happened."""
        self.hits: deque[Hit] = deque(maxlen=_KEPT_HITS)
        """The latest faults that have happened."""
        self.disturbed = False
        """Whether a fault is in wait."""
        self.closing = threading.Event()
        """Set when nobody waits for late replies any more."""
        self._clock = clock
        self._lock = threading.RLock()
        self._struck = threading.Condition(self._lock)
        self._injections: list[Injection] = []
        self._sessions: weakref.WeakSet[FaultySession] = weakref.WeakSet()

    def open_session(self) -> "FaultySession":
        """Return a session for a new client; raises ConnectionRefusedError where a fault refuses it."""
        if self.disturbed and self.strike("connection", b"") is not None:
            raise ConnectionRefusedError("a fault refuses this client")
        session = FaultySession(self)
        with self._lock:
            self._sessions.add(session)
        return session

    def restart(self) -> None:
        """Let the power fail for a moment; connections stay."""
        self.instrument.restart()
        self.begin_anew()

    def flood_errors(self, count: int) -> bytes:
        """Let errors happen inside the instrument; return the lines that all clients get."""
        return self.instrument.flood_errors(count)

    def add(self, injection: Injection) -> None:
        """Let a fault lie in wait; of several that want a command, the first added hits it."""
        with self._lock:
            self._injections.append(injection)
            self.disturbed = True

    def open(self) -> None:
        """Take clients, who may have to wait for late replies."""
        self.closing.clear()

    def close(self) -> None:
        """Keep nobody waiting for a late reply any more."""
        self.closing.set()

    def clear(self) -> None:
        """Let no fault lie in wait any more."""
        with self._lock:
            self._injections.clear()
            self.disturbed = False

    def strike(
        self, hits: Literal["reply", "command", "connection"], command: bytes, reply: bytes = b""
    ) -> LinkFault | None:
        """Return the fault that hits ``command``, whose genuine reply is ``reply``, if any."""
        with self._lock:
            now = self._clock.now()
            self._injections = [injection for injection in self._injections if not injection.spent(now)]
            self.disturbed = bool(self._injections)
            eager = [i for i in self._injections if i.fault.hits == hits and i.wants(command, now)]
            if not eager:
                return None
            eager[0].hits += 1
            fault = eager[0].fault
            self.counts[fault_name(fault)] += 1
            self.hits.append(Hit(fault, command, reply))
            self._struck.notify_all()
            return fault

    def wait_for(self, count: int, timeout_s: float) -> bool:
        """Wait until faults have happened ``count`` times in all; return whether they have, within ``timeout_s`` s."""
        with self._struck:
            return self._struck.wait_for(lambda: self.counts.total() >= count, timeout_s)

    def send_unasked(self, data: bytes, *, but: "FaultySession | None" = None) -> None:
        """Send bytes to all clients that are connected, ``but`` one."""
        for session in self._open_sessions():
            if session is not but:
                session.send_unasked(data)

    def drop(self) -> None:
        """Cut all clients off."""
        for session in self._open_sessions():
            session.cut()

    def swap(self, other: "FaultyInstrument") -> None:
        """Exchange the instruments behind two links; their clients are cut off, as by pulling plugs."""
        self.instrument, other.instrument = other.instrument, self.instrument
        for link in (self, other):
            link.drop()
            link.begin_anew()

    def begin_anew(self) -> None:
        """Let all sessions forget the bytes of unfinished commands and held replies."""
        for session in self._open_sessions():
            session.begin_anew()

    def _open_sessions(self) -> "list[FaultySession]":
        with self._lock:
            return list(self._sessions)


class FaultySession:
    """One client's conversation with the instrument behind a :class:`FaultyInstrument`.

    A transport may attach how to send bytes at once and how to break the connection; without the first, pieces arrive
    joined and unasked bytes with the next reply. It breaks the connection itself, after the last reply, when ``over``.

    Parameters
    ----------
    link
        The link with the faults.
    """

    def __init__(self, link: FaultyInstrument) -> None:
        self._link = link
        ends = re.escape(link.command_ends)
        self._command = re.compile(b"[^" + ends + b"]*[" + ends + b"]+")
        self._inner: Session = link.instrument.open_session()
        self.over = False
        """Whether a fault breaks this connection now."""
        self._send: Callable[[bytes], None] | None = None
        self._cut: Callable[[], None] | None = None
        self._rest = b""
        self._held = b""
        self._glue = b""
        self._out = bytearray()

    def attach(self, *, cut: Callable[[], None], send: Callable[[bytes], None] | None = None) -> None:
        """Use a transport's ways to break the connection and to send bytes at once; both may come from any thread."""
        self._cut = cut
        self._send = send

    def status_byte(self) -> int:
        """Return the instrument's bits of the status byte."""
        return self._inner.status_byte() if isinstance(self._inner, BusSession) else 0

    def interrupted(self) -> None:
        """Take note that the client sent a message before it had read the reply to the last one."""
        if isinstance(self._inner, BusSession):
            self._inner.interrupted()

    def begin_anew(self) -> None:
        """Forget the bytes of unfinished commands and held replies; whoever is behind the link now answers."""
        self._inner = self._link.instrument.open_session()
        self._rest = self._held = self._glue = b""

    def cut(self) -> None:
        """Break the connection from outside."""
        if self._cut is not None:
            self._cut()

    def send_unasked(self, data: bytes) -> None:
        """Send bytes that nobody asked for."""
        if self._send is None:
            self._held += data
        else:
            self._send(data)

    def receive(self, data: bytes) -> bytes:
        """Take bytes as they arrive and return what is left to send back."""
        if not (self._link.disturbed or self._rest or self._held or self._glue):
            return self._inner.receive(data)
        self.over = False  # a transport that can break has done so
        self._rest += data
        for command in self._commands():
            self._answer(command)
            if self.over:
                self._rest = b""
        if not self._link.disturbed and self._rest:
            # Part of a command: nothing is in wait for its end.
            self._out += self._inner.receive(self._rest)
            self._rest = b""
        rest = bytes(self._out)
        self._out.clear()
        return rest

    def _commands(self) -> Iterator[bytes]:
        """Cut off whole commands: lines with their terminators, or whatever has come of a binary frame."""
        while self._rest:
            line = None if self._rest[0] & _BINARY else self._command.match(self._rest)
            if line is None and not self._rest[0] & _BINARY:
                return
            end = len(self._rest) if line is None else line.end()
            command, self._rest = self._rest[:end], self._rest[end:]
            yield command

    def _answer(self, command: bytes) -> None:
        if self._held:
            self._send_piece(self._held)
            self._held = b""
        text = command.rstrip(self._link.command_ends)
        if not text:
            self._out += self._inner.receive(command)
            return
        fault = self._link.strike("command", text)
        if fault is not None:
            self._disturb_command(fault, command)
            return
        reply = self._inner.receive(command)
        fault = self._link.strike("reply", text, reply) if reply else None
        reply, self._glue = self._glue + reply, b""
        if fault is None:
            self._out += reply
        else:
            self._disturb_reply(fault, reply)

    def _disturb_command(self, fault: LinkFault, command: bytes) -> None:
        match fault:
            case Dropped(when="unheard"):
                self.over = True
            case Dropped(when=when):
                reply = self._inner.receive(command)
                self._out += {"before": b"", "within": reply[: len(reply) // 2], "after": reply}[when]
                self.over = True
            case Restarted(drop=drop):
                self._link.restart()
                if drop:
                    self.over = True
                    self._link.drop()
            case ErrorFlood(errors=errors):
                lines = self._link.flood_errors(errors)
                self._link.send_unasked(lines, but=self)
                self._out += lines + self._inner.receive(command)
            case _:
                pass  # a lost write, or a frozen instrument

    def _disturb_reply(self, fault: LinkFault, reply: bytes) -> None:
        match fault:
            case Late(seconds=None):
                self._held = reply
            case Late(seconds=float() | int() as seconds):
                self._pause(seconds)
                self._out += reply
            case Glued():
                self._glue = reply
            case Split(piece=piece, pause_s=pause_s):
                for start in range(0, len(reply), piece):
                    if start:
                        self._pause(pause_s)
                    self._send_piece(reply[start : start + piece])
            case LostReply():
                pass
            case _:
                self._out += altered(fault, reply)

    def _send_piece(self, data: bytes) -> None:
        """Send data on their own, as far as the transport can."""
        self._out += data
        if self._send is not None and self._out:
            self._send(bytes(self._out))
            self._out.clear()

    def _pause(self, seconds: float) -> None:
        self._send_piece(b"")
        if seconds > 0.0:
            self._link.closing.wait(min(seconds, threading.TIMEOUT_MAX))


def is_over(session: Session) -> bool:
    """Tell whether a fault breaks this session's connection now that its last reply is out."""
    return isinstance(session, FaultySession) and session.over
