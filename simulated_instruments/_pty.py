"""Pseudo-terminal server: a serial port for clients that open nothing else (Linux and macOS)."""

import contextlib
import os
import select
import sys
import threading

from optinc_hw.errors import ConfigurationError
from simulated_instruments._session import Session, SimulatedInstrument

_CHUNK = 4096  # small, so that closing never waits for many commands


class PtyServer:
    """Serve one simulated instrument on a new pseudo-terminal, named by ``path``.

    Parameters
    ----------
    instrument
        Its state outlives clients: closing and opening the terminal resets nothing.
    name
        Name for the thread.

    Raises
    ------
    ConfigurationError
        On Windows, which has no pseudo-terminals.
    ConnectionRefusedError
        If a fault refuses clients.
    """

    def __init__(self, instrument: SimulatedInstrument, name: str) -> None:
        if sys.platform == "win32":
            raise ConfigurationError(f"simulated {name}: Windows has no pseudo-terminals; use its socket:// address")
        import tty

        session = instrument.open_session()  # first: a fault may refuse it
        self._master, self._slave = os.openpty()
        # Raw before any client comes, or the line discipline would echo and translate bytes.
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._serve, args=(session,), name=f"{name} pty", daemon=True)
        self._closed = False
        self._thread.start()

    def close(self) -> None:
        """End the thread and remove the terminal; may be called twice."""
        if self._closed:
            return
        self._closed = True
        os.close(self._wake_writer)
        self._thread.join()
        # The slave stays open until now: with no slave at all, reading the master fails between two clients.
        for descriptor in (self._master, self._slave, self._wake_reader):
            os.close(descriptor)

    def _serve(self, session: Session) -> None:
        while self._wait(writing=False):
            with contextlib.suppress(BlockingIOError):
                reply = session.receive(os.read(self._master, _CHUNK))
                while reply and self._wait(writing=True):
                    with contextlib.suppress(BlockingIOError):
                        reply = reply[os.write(self._master, reply) :]

    def _wait(self, *, writing: bool) -> bool:
        """Wait until the terminal is ready; False when it is being closed."""
        reading = [self._wake_reader] if writing else [self._wake_reader, self._master]
        ready, _, _ = select.select(reading, [self._master] if writing else [], [])
        return self._wake_reader not in ready
