"""Exchanges with one instrument: one lock, one absolute deadline, exact framing, and the dirty rule.

A link is *dirty* from the moment a command goes out until its reply has come in complete and well formed. Whatever
ends an exchange early (a timeout, a garbled reply, Ctrl-C) leaves it dirty, and a dirty link finds its place in the
stream again before the next command: it asks a question whose answer cannot be mistaken for any other, and drops
everything that comes before this answer. A late reply is therefore never taken for the next one.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from drivers._dialect import Dialect as Dialect
from drivers._ports import Port
from drivers._transcript import Transcript, shorten
from optinc_hw.errors import DeviceError, InstrumentError, LinkError, LinkTimeoutError, ReplyError

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MAX_LINE_BYTES = 65536
_MAX_BLOCK_BYTES = 1 << 24
_MAX_STALE_BYTES = 1 << 20
_RECOVERY_S = 2.0
_QUIET_S = 0.02
_EVENT_GRACE_S = 0.25


class Link:
    """The only way in which a driver talks to its instrument; safe to use from several threads.

    Parameters
    ----------
    port
        The open transport, which the link owns from now on.
    dialect
        Framing of the instrument.
    owner
        Name of the instrument, for messages.
    timeout
        Time in s that a complete reply may take.
    shared_line
        Whether bytes of an earlier session may still arrive (a serial line), so that the first exchange must find
        its place first.
    """

    def __init__(self, port: Port, dialect: Dialect, *, owner: str, timeout: float, shared_line: bool) -> None:
        self.lock = threading.RLock()
        self.timeout = timeout
        self.mishaps = 0
        """Failed exchanges, tolerated errors and reconnections; each puts in doubt what was known of the instrument."""
        self._port = port
        self._dialect = dialect
        self._owner = f"{owner} at {port.address}"
        self._dirty, self._broken, self._closed = shared_line, False, False
        self._process = os.getpid()
        self._allowed, self._deadline, self._looked_late = timeout, 0.0, False
        self._buffer, self._reply = bytearray(), bytearray()
        self._events: list[str] = []
        self._transcript = Transcript()

    @property
    def broken(self) -> bool:
        """Whether the transport is down; only :meth:`reopen` mends that."""
        return self._broken

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy of its parent's link, whose exchanges it would disturb."""
        return os.getpid() != self._process

    @property
    def dirty(self) -> bool:
        """Whether a reply went astray, so that the next exchange finds its place first."""
        return self._dirty

    def query(self, command: str, parse: Callable[[str], T], *, extra_time: float = 0.0) -> T:
        """Send ``command`` and parse its one reply line; ``extra_time`` in s lengthens the deadline.

        Raises
        ------
        LinkTimeoutError
            If no complete reply came in time.
        ReplyError
            If the reply was garbled, too long, or ``parse`` raised ValueError.
        LinkError
            If the transport broke.
        DeviceError
            If the instrument sent an unsolicited error line before, with or instead of the reply.
        """
        return self.query_lines(command, 1, parse, extra_time=extra_time)[0]

    def query_lines(
        self,
        command: str | bytes,
        count: int,
        parse: Callable[[str], T],
        *,
        extra_time: float = 0.0,
        quiet: float = 0.0,
        tolerate_events: bool = False,
    ) -> list[T]:
        """Send ``command`` and parse its ``count`` reply lines; raises like :meth:`query`.

        A ``command`` of bytes, a binary frame, goes out as it is. ``quiet`` is a time in s for which nothing more may
        arrive; ``tolerate_events`` logs error lines that come beside a complete reply instead of raising them.
        """
        with self._exchange(command, extra_time, tolerate_events):
            lines = [self._next_line() for _ in range(count)]
            if quiet > 0.0:
                self._append(self._receive(quiet))
            try:
                return [parse(line.decode("ascii")) for line in lines]
            except ValueError as error:
                raise self._bad_reply(error) from error

    def query_block(self, command: str, parse: Callable[[bytes], T], *, extra_time: float = 0.0) -> T:
        """Send ``command`` and parse its reply, an IEEE 488.2 definite-length block; raises like :meth:`query`."""
        with self._exchange(command, extra_time, tolerate_events=False):
            head = self._take(2)
            if head[:1] != b"#" or head[1:] not in b"123456789":
                raise self._bad_reply("it does not begin like a definite-length block (#<digits><length>)")
            length = self._take(int(head[1:]))
            if not length.isdigit() or int(length) > _MAX_BLOCK_BYTES:
                raise self._bad_reply(f"its block length {length!r} is no number up to {_MAX_BLOCK_BYTES} bytes")
            payload = self._take(int(length))
            if self._take(len(self._dialect.terminator)) != self._dialect.terminator:
                raise self._bad_reply(f"no terminator follows its block of {len(payload)} bytes")
            try:
                return parse(payload)
            except ValueError as error:
                raise self._bad_reply(error) from error

    def query_sized(
        self,
        command: str,
        size: Callable[[bytes], int | None],
        parse: Callable[[bytes], T],
        *,
        extra_time: float = 0.0,
    ) -> T:
        """Send ``command`` and parse its reply of a known number of bytes, which may be any; raises like :meth:`query`.

        ``size`` gets what has come and returns the size before the terminator, None for more, or raises ValueError.
        """
        with self._exchange(command, extra_time, tolerate_events=False):
            try:
                while (count := size(bytes(self._buffer))) is None and len(self._buffer) <= _MAX_LINE_BYTES:
                    self._more()
                if count is None or not 0 < count <= _MAX_BLOCK_BYTES:
                    raise self._bad_reply(f"its size in bytes is {count}; it must be in 1..{_MAX_BLOCK_BYTES}")
                payload = self._take(count)
                if self._take(len(self._dialect.terminator)) != self._dialect.terminator:
                    raise self._bad_reply(f"no terminator follows its {count} bytes")
                return parse(payload)
            except ValueError as error:
                raise self._bad_reply(error) from error

    def write(self, command: str) -> None:
        """Send a ``command`` that has no reply; raises LinkError, or ReplyError if stray bytes were waiting."""
        with self._exchange(command, 0.0, tolerate_events=False):
            pass

    def take_events(self) -> list[str]:
        """Return and forget the unsolicited lines so far; raises ReplyError if others are waiting, or LinkError."""
        with self.lock:
            self._require_usable()
            if not self._dirty:
                self._collect_unsolicited()
            events, self._events = self._events, []
            return events

    def synchronise(self) -> None:
        """Find the place in the stream again if a reply went astray; raises LinkTimeoutError if nothing answers."""
        with self.lock:
            self._require_usable()
            if self._dirty:
                self._resynchronise()

    def reopen(self) -> None:
        """Close the transport, open it anew, and distrust whatever arrives until the link found its place."""
        with self.lock:
            self._require_open()
            self.mishaps += 1
            self._broken = True  # stays so if the port cannot be opened
            self._port.reopen()
            self._buffer.clear()
            self._events.clear()
            self._broken = False
            self._dirty = True

    def drop(self) -> None:
        """Cut the transport off, so that nothing can be sent until :meth:`reopen`."""
        with self.lock:
            self._broken = True
            self._port.close()

    def close(self) -> None:
        """Close the transport; does nothing if it is closed, or if it is the parent's."""
        if not self.inherited:
            with self.lock:
                self._closed = True
                self._port.close()

    def device_error(self, problem: str) -> DeviceError:
        """Make an error about what the instrument itself reported, with the latest traffic."""
        return DeviceError(f"{self._owner}: {problem}. Latest traffic: {self._transcript.tail()}")

    @contextmanager
    def _exchange(self, command: str | bytes, extra_time: float, tolerate_events: bool) -> Iterator[None]:
        payload = self._encode(command)
        with self.lock:
            self.mishaps += 1  # until it has gone well
            self.synchronise()
            self._collect_unsolicited()
            if self._events:
                self._report_events(f"before {command!r}, which was not sent", tolerate_events)
            self._start(payload, self.timeout + extra_time)
            try:
                yield
                self._check_nothing_left()
            except (LinkTimeoutError, ReplyError) as error:
                if self._events:
                    raise self._event_error(f"after {command!r}, which it did not answer as it should") from error
                raise
            self._dirty = False
            if self._events:
                self._report_events(f"after {command!r}", tolerate_events)
            self.mishaps -= 1

    def _start(self, payload: bytes, time_allowed: float) -> None:
        self._dirty = True
        self._reply.clear()
        self._allowed = time_allowed
        self._deadline = time.monotonic() + time_allowed
        self._looked_late = False
        self._transcript.sent(payload)
        try:
            self._port.send(payload)
        except LinkError as error:
            raise self._break(error) from error

    def _encode(self, command: str | bytes) -> bytes:
        try:
            return self._dialect.encode(command)
        except ValueError as error:
            raise InstrumentError(f"{self._owner}: {error}") from error

    def _require_usable(self) -> None:
        self._require_open()
        if self._broken:
            raise LinkError(f"{self._owner}: the link is down; check cable and power, then call reconnect()")

    def _require_open(self) -> None:
        if self.inherited:
            raise LinkError(f"{self._owner}: this is a forked copy of the link; use it in the parent process")
        if self._closed:
            raise LinkError(f"{self._owner}: the link is closed; construct the instrument again")

    def _break(self, error: LinkError) -> LinkError:
        self._broken = True
        return LinkError(
            f"{self._owner}: {error}. Received of the current reply: {shorten(bytes(self._reply))}. "
            f"Latest traffic: {self._transcript.tail()}. Check cable and power, then call reconnect()"
        )

    def _receive(self, wait: float) -> bytes:
        try:
            chunk = self._port.receive(wait)
        except LinkError as error:
            raise self._break(error) from error
        if chunk:
            self._transcript.received(chunk)
        return chunk

    def _append(self, chunk: bytes) -> None:
        self._buffer += chunk
        self._reply += chunk

    def _more(self) -> None:
        """Wait for more bytes of the current reply."""
        remaining = self._deadline - time.monotonic()
        # What has arrived by a first look after the deadline still counts: this process may have been held up (a loaded
        # machine, a collection of garbage), not the instrument. A second look would wait for a stream without an end.
        chunk = self._receive(max(0.0, remaining)) if remaining > 0.0 or not self._looked_late else b""
        self._looked_late = remaining <= 0.0
        if not chunk:
            raise LinkTimeoutError(
                f"{self._owner}: no complete reply within {self._allowed:g} s; received only "
                f"{shorten(bytes(self._reply))}. Latest traffic: {self._transcript.tail()}. Check cable and power, "
                f"or give the instrument a longer timeout"
            )
        self._append(chunk)

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _complete_line(self) -> bytes | None:
        """Take one line that has come in as a whole, without its terminator and stray white space, if there is one."""
        end = self._buffer.find(self._dialect.terminator)
        return None if end < 0 else self._take(end + len(self._dialect.terminator))[:end].strip(b"\r\n ")

    def _raw_line(self) -> bytes:
        """Take one line; blank lines are skipped."""
        while not (line := self._complete_line()):
            if line is None and len(self._buffer) > _MAX_LINE_BYTES:
                raise self._bad_reply(f"no end of line within {_MAX_LINE_BYTES} bytes")
            if line is None:
                self._more()
        return line

    def _next_line(self) -> bytes:
        """Take one line of the reply; unsolicited lines are set aside, and shorten the wait for the reply."""
        while True:
            line = self._raw_line()
            if not self._set_aside_event(line):
                return line
            self._deadline = min(self._deadline, time.monotonic() + _EVENT_GRACE_S)

    def _set_aside_event(self, line: bytes) -> bool:
        event = self._dialect.event
        if event is None or event.fullmatch(line) is None:
            return False
        self._events.append(line.decode("ascii"))
        return True

    def _collect_unsolicited(self) -> None:
        """Take in what arrived unasked since the last exchange: error lines, or a late or extra reply."""
        self._reply.clear()
        self._append(self._receive(0.0))
        self._check_nothing_left()

    def _check_nothing_left(self) -> None:
        """Check that the buffer holds nothing but unsolicited lines, the last of which may be incomplete."""
        came = bytes(self._buffer)
        while (line := self._complete_line()) is not None:
            if line and not self._set_aside_event(line):
                raise self._bad_reply(f"bytes came that belong to no question: {shorten(came)}")
        rest = bytes(self._buffer).strip(b"\r\n ")
        start = self._dialect.event_start
        if not rest:
            self._buffer.clear()
        elif start is None or start.fullmatch(rest) is None:
            raise self._bad_reply(f"bytes came that belong to no question: {shorten(rest)}")

    def _bad_reply(self, reason: object) -> ReplyError:
        self._dirty = True
        return ReplyError(
            f"{self._owner}: bad reply {shorten(bytes(self._reply), 400)}: {reason}. "
            f"Latest traffic: {self._transcript.tail()}"
        )

    def _report_events(self, when: str, tolerate: bool) -> None:
        if not tolerate:
            raise self._event_error(when)
        self.mishaps += 1
        _log.warning("%s reported %s %s", self._owner, self._dialect.explain_events(self._events), when)
        self._events.clear()

    def _event_error(self, when: str) -> InstrumentError:
        events, self._events = self._events, []
        return self.device_error(f"the instrument reported {self._dialect.explain_events(events)} {when}")

    def _resynchronise(self) -> None:
        """Ask questions with unmistakable answers and drop everything that comes before the answers."""
        dialect = self._dialect
        self._port.abandon()
        self._buffer.clear()
        self._skip_to_answer(dialect.resync_command, dialect.resync_reply)
        if dialect.confirm_reply is not None:
            self._skip_to_answer(dialect.confirm_command, dialect.confirm_reply)
        else:  # the lost question may have been the same one; then its answer is still on the way
            while (chunk := self._receive(_QUIET_S)) and len(self._reply) <= _MAX_STALE_BYTES:
                self._append(chunk)
        for line in bytes(self._buffer).split(dialect.terminator):
            self._set_aside_event(line.strip(b"\r\n "))
        self._buffer.clear()
        self._dirty = False

    def _skip_to_answer(self, command: str, reply: re.Pattern[bytes]) -> None:
        self._start(self._encode(command), max(self.timeout, min(_RECOVERY_S, 10.0 * self.timeout)))
        dropped = bytearray()
        while reply.fullmatch(line := self._raw_line()) is None:
            if not self._set_aside_event(line):
                dropped += line + b"\n"
            if len(self._reply) > _MAX_STALE_BYTES:
                raise self._bad_reply(f"no answer to {command!r} among so many stale bytes")
        if dropped:
            _log.warning("%s: dropped stale bytes %s", self._owner, shorten(bytes(dropped)))
