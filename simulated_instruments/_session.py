"""What a transport needs from a simulated instrument: a session that turns received bytes into replies."""

import re
from collections.abc import Callable
from typing import Protocol, runtime_checkable

_LONGEST_MESSAGE = 65536


class Session(Protocol):
    """One client's conversation; holds the bytes of a message that has not ended yet."""

    def receive(self, data: bytes) -> bytes:
        """Take bytes as they arrive and return the bytes to send back, which may be none."""
        ...


@runtime_checkable
class BusSession(Session, Protocol):
    """A session on a bus with message ends and a status byte (HiSLIP), which both tell the instrument more."""

    def status_byte(self) -> int:
        """Return the instrument's bits of the status byte; the transport adds message available (16)."""
        ...

    def interrupted(self) -> None:
        """Take note that the client sent a message before it had read the reply to the last one."""
        ...


class SimulatedInstrument(Protocol):
    """An instrument whose state is shared by all its sessions."""

    def open_session(self) -> Session:
        """Return a session for a new client; changes nothing in the instrument.

        Raises ConnectionRefusedError if a fault cuts this client off.
        """
        ...

    def restart(self) -> None:
        """Let the power fail for a moment: everything that is not kept without power is at its start value."""
        ...

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` errors happen inside the instrument; return the lines that all clients get unasked."""
        ...


class LineSession:
    """Cut a byte stream into lines and answer each.

    Parameters
    ----------
    answer
        Called with each line (no terminator, not empty); returns the reply with its terminator, or nothing.
    terminators
        Regular expression of what ends a line.
    """

    def __init__(self, answer: Callable[[str], bytes], terminators: bytes = rb"[\r\n]") -> None:
        self._answer = answer
        self._split = re.compile(terminators).split
        self._rest = b""

    def receive(self, data: bytes) -> bytes:
        """Answer all lines that ``data`` completes."""
        *lines, rest = self._split(self._rest + data if self._rest else data)
        # A client that never ends its line must not fill the memory; real input buffers overflow as well.
        self._rest = rest if len(rest) <= _LONGEST_MESSAGE else b""
        if len(lines) == 1:
            return self._reply(lines[0])
        return b"".join([self._reply(line) for line in lines])

    def _reply(self, line: bytes) -> bytes:
        text = line.decode("ascii", errors="replace").strip()
        return self._answer(text) if text else b""
