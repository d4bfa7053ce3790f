"""``simulated://NUMBER``: a serial port of pyserial straight to an instrument of this process, without a socket.

Bytes, framing and faults are those of the other transports; only the way through the kernel and a server's thread is
missing, which takes longer than everything else on a bench whose time is simulated.
"""

import threading
import time
from typing import Any

import serial

from simulated_instruments._fault_link import FaultySession, is_over
from simulated_instruments._in_process import instrument_at
from simulated_instruments._session import Session


class Serial:
    """What pyserial's users need of a port; see ``serial.Serial`` for the meaning of names.

    Parameters
    ----------
    port
        The URL; ``serial.serial_for_url`` sets it afterwards.
    timeout
        Longest wait in s of `read`.
    **settings
        Settings of a real line, of which this one has none.
    """

    def __init__(
        self,
        port: str | None = None,
        timeout: float = 0.0,
        **settings: Any,  # Any: what pyserial takes
    ) -> None:
        del settings
        self.port = port
        self.timeout = timeout
        self.is_open = False
        self._news = threading.Condition()
        self._received = bytearray()
        self._cut_off = False
        self._session: Session | None = None

    def open(self) -> None:
        """Connect; raises SerialException if there is no such instrument, OSError if a fault refuses the client."""
        link = instrument_at(str(self.port))
        if link is None:
            raise serial.SerialException(f"no instrument of this process is at {self.port}")
        session = link.open_session()
        if isinstance(session, FaultySession):
            session.attach(cut=self._cut, send=self._arrive)
        self._received.clear()
        self._cut_off = False
        self._session = session
        self.is_open = True

    def close(self) -> None:
        """Hang up."""
        self._session = None
        self.is_open = False
        self._cut()

    def write(self, data: bytes) -> int:
        """Let the instrument answer; the reply is there when this returns."""
        if self._session is None:
            raise serial.PortNotOpenError
        if self._cut_off:
            raise serial.SerialException("the instrument hung up")
        session = self._session
        self._arrive(session.receive(data))
        if is_over(session):
            self._cut()
        return len(data)

    def read(self, size: int = 1) -> bytes:
        """Return up to ``size`` bytes, waiting up to ``timeout`` s for the first of them."""
        end = time.monotonic() + self.timeout if self.timeout else 0.0
        with self._news:
            while not self._received:
                if self._session is None:
                    raise serial.PortNotOpenError
                if self._cut_off:
                    raise serial.SerialException("the instrument hung up")
                remaining = end - time.monotonic() if self.timeout else 0.0
                if remaining <= 0.0:
                    return b""
                self._news.wait(remaining)
            taken = bytes(self._received[:size])
            del self._received[:size]
            return taken

    def fileno(self) -> int:
        """Raise OSError: there is nothing to select on."""
        raise OSError("a port within the process has no file number")

    def _arrive(self, data: bytes) -> None:
        if data:
            with self._news:
                self._received += data
                self._news.notify_all()

    def _cut(self) -> None:
        with self._news:
            self._cut_off = True
            self._news.notify_all()
