"""Serial ports and pyserial URLs (``/dev/ttyUSB0``, ``COM3``, ``socket://host:port``)."""

import contextlib
import os
import select
import socket

import serial
from serial.urlhandler import protocol_socket

from optinc_hw.errors import LinkError

_CHUNK = 65536
_WRITE_TIMEOUT_S = 5.0


class _SocketSerial(protocol_socket.Serial):
    """pyserial's ``socket://`` port without its 0.3 s nap on closing, delayed small writes and extra polls."""

    _socket: socket.socket | None = None

    def send(self, data: bytes) -> None:
        """Send all of ``data``, at once if the socket takes it."""
        sent = 0 if self._socket is None else self._socket.send(data)
        if sent < len(data):
            self.write(data[sent:])

    def receive(self) -> bytes:
        """Return what is there; to be called when there is something, so that nothing means the end."""
        if self._socket is None:
            raise serial.PortNotOpenError
        data = self._socket.recv(_CHUNK)
        if not data:
            raise serial.SerialException("socket disconnected")
        return data

    def open(self) -> None:
        self._process = os.getpid()
        super().open()
        if self._socket is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        if self._socket is not None:
            if os.getpid() == self._process:  # a forked child must not end the connection of its parent
                with contextlib.suppress(OSError):  # the other side may be gone already
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        self.is_open = False


class SerialPort:
    """Byte stream over pyserial; implements :class:`drivers._ports.Port`.

    Parameters
    ----------
    address
        A device name or URL that ``serial.serial_for_url`` understands.
    baudrate
        Symbol rate in Bd; ignored by ``socket://``.

    Raises
    ------
    LinkError
        If the port cannot be opened.
    """

    def __init__(self, address: str, baudrate: int) -> None:
        self.address = address
        self._baudrate = baudrate
        self._serial = self._open()

    def _open(self) -> serial.SerialBase:
        make = _SocketSerial if self.address.lower().startswith("socket://") else serial.serial_for_url
        try:
            port = make(
                self.address,
                baudrate=self._baudrate,
                timeout=0.0,
                write_timeout=_WRITE_TIMEOUT_S,
                exclusive=True,
            )
        except (OSError, ValueError) as error:
            raise LinkError(
                f"{self.address}: cannot open the port ({error}); check the address, the cable, the power and that "
                f"no other program holds it"
            ) from error
        try:
            self._fileno: int | None = port.fileno()
        except OSError:  # Windows COM ports, loop:// and rfc2217:// have none
            self._fileno = None
        return port

    def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        try:
            if isinstance(self._serial, _SocketSerial):
                self._serial.send(data)
            else:
                self._serial.write(data)
        except OSError as error:
            raise LinkError(f"{self.address}: the link broke while sending {data!r} ({error})") from error

    def receive(self, wait: float) -> bytes:
        """Return what is there, waiting up to ``wait`` s for the first byte."""
        try:
            if self._fileno is None:
                return self._receive_without_select(wait)
            ready, _, _ = select.select([self._fileno], [], [], wait)
            if not ready:
                return b""
            port = self._serial
            return port.receive() if isinstance(port, _SocketSerial) else port.read(_CHUNK)
        except OSError as error:
            raise LinkError(f"{self.address}: the link broke while receiving ({error})") from error

    def _receive_without_select(self, wait: float) -> bytes:
        self._serial.timeout = wait
        first = self._serial.read(1)
        self._serial.timeout = 0.0
        return first + self._serial.read(_CHUNK) if first else b""

    def abandon(self) -> None:
        """Do nothing: a serial line has no device clear."""

    def reopen(self) -> None:
        """Close and open the port."""
        self.close()
        self._serial = self._open()

    def close(self) -> None:
        """Close the port."""
        with contextlib.suppress(OSError):  # an unplugged adapter may fail to restore its settings
            self._serial.close()
