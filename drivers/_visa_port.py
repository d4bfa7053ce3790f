"""VISA resources through pyvisa (``TCPIP0::host::port::SOCKET``, HiSLIP, USB-TMC, GPIB)."""

import contextlib
import select
import socket
import traceback

import pyvisa
from pyvisa import constants
from pyvisa.resources import MessageBasedResource, SerialInstrument, TCPIPInstrument, TCPIPSocket

from optinc_hw.errors import LinkError

_CHUNK = 65536
_OPEN_TIMEOUT_MS = 5000
_CLEAR_TIMEOUT_MS = 1000
_WRITE_TIMEOUT_S = 5.0
_BROKEN = (OSError, pyvisa.Error, RuntimeError, AssertionError)
"""What backends raise on a broken link; the HiSLIP of pyvisa-py also raises bare errors and failed assertions."""
_TIMEOUT_CODES = (constants.StatusCode.error_timeout,)
_HARMLESS = (constants.StatusCode.success_device_not_present, constants.StatusCode.success_max_count_read)


class VisaPort:
    """Byte stream over a VISA resource; implements :class:`drivers._ports.Port`.

    On a TCP socket of pyvisa-py the port sends and reads on the socket itself. Left to itself, pyvisa-py loses a
    partial reply on a timeout, spins until the timeout when the other side has hung up, and takes much longer.

    Parameters
    ----------
    address
        VISA resource name.
    visalib
        pyvisa library, such as ``"@py"`` or ``"@ivi"``.
    terminator
        Last byte of a reply, at which backends without a visible socket stop reading.

    Raises
    ------
    LinkError
        If the resource cannot be opened.
    """

    def __init__(self, address: str, visalib: str, terminator: bytes) -> None:
        self.address = address
        self._visalib = visalib
        self._terminator = terminator.decode("ascii")
        self._resource, self._socket = self._open()
        self._is_stream = isinstance(self._resource, SerialInstrument | TCPIPSocket)

    def _open(self) -> tuple[MessageBasedResource, socket.socket | None]:
        try:
            # The manager is shared by every VISA user of the process and stays open: closing it would close
            # the sessions of all the others.
            manager = pyvisa.ResourceManager(self._visalib)
            resource = manager.open_resource(self.address, open_timeout=_OPEN_TIMEOUT_MS)
        except BaseException as error:
            _close_what_never_opened(error)
            if not isinstance(error, Exception):
                raise
            # pyvisa-py reports a failed connection as a bare Exception
            raise LinkError(self._cannot_open(error)) from error
        if not isinstance(resource, MessageBasedResource):
            resource.close()
            raise LinkError(self._cannot_open("it is no message-based resource"))
        connection = _socket_of(resource)
        try:
            if connection is None:
                resource.read_termination = self._terminator
            else:
                connection.getpeername()  # pyvisa-py takes a refused connection for an open one
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(_WRITE_TIMEOUT_S)
        except (OSError, pyvisa.Error) as error:
            resource.close()
            raise LinkError(self._cannot_open(error)) from error
        return resource, connection

    def _cannot_open(self, reason: object) -> str:
        return (
            f"{self.address}: cannot open the VISA resource with {self._visalib!r} ({reason}); check the address, "
            f"the cable and the power"
        )

    def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        try:
            if self._socket is not None:
                self._socket.sendall(data)
            else:
                self._resource.timeout = 1e3 * _WRITE_TIMEOUT_S  # what the last receive() left may be a moment
                self._resource.write_raw(data)
        except _BROKEN as error:
            raise LinkError(f"{self.address}: the link broke while sending {data!r} ({error})") from error

    def receive(self, wait: float) -> bytes:
        """Return what is there, waiting up to ``wait`` s for the first byte."""
        try:
            if self._socket is not None:
                return self._receive_from_socket(self._socket, wait)
            return self._receive_message(wait)
        except _BROKEN as error:
            raise LinkError(f"{self.address}: the link broke while receiving ({error})") from error

    def _receive_from_socket(self, connection: socket.socket, wait: float) -> bytes:
        ready, _, _ = select.select([connection], [], [], wait)
        if not ready:
            return b""
        data = connection.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the instrument closed the connection")
        return data

    def _receive_message(self, wait: float) -> bytes:
        if wait <= 0.0 and not self._is_stream:
            # Asking a message-based device that has nothing to say would put an error into its queue;
            # such devices drop an unread reply by themselves when the next command comes.
            return b""
        self._resource.timeout = max(1.0, 1e3 * wait)
        try:
            # A backend may lose a partial chunk on a timeout, but never a single byte.
            return self._read(_CHUNK if wait > 0.0 else 1)
        except pyvisa.VisaIOError as error:
            if error.error_code in _TIMEOUT_CODES:
                return b""
            raise

    def _read(self, count: int) -> bytes:
        with self._resource.ignore_warning(*_HARMLESS):
            data, _ = self._resource.visalib.read(self._resource.session, count)
        return bytes(data)

    def abandon(self) -> None:
        """Clear the device, which drops its unfinished reply; a TCP socket has no such thing.

        Raises
        ------
        LinkError
            If a network instrument could be neither cleared nor connected anew.
        """
        if self._socket is not None:
            return
        try:
            if not self._is_stream:
                self._resource.timeout = _CLEAR_TIMEOUT_MS
            self._resource.clear()
        except _BROKEN:
            # Not every bus can clear, and the link resynchronises anyway. But pyvisa-py gives up a HiSLIP clear
            # when it meets a late reply, and then it has lost its place in the stream.
            if isinstance(self._resource, TCPIPInstrument):
                self.reopen()

    def reopen(self) -> None:
        """Close and open the resource."""
        self.close()
        self._resource, self._socket = self._open()

    def close(self) -> None:
        """Close the resource, and nothing of the manager that others share."""
        with contextlib.suppress(*_BROKEN):
            self._resource.close()


def _socket_of(resource: MessageBasedResource) -> socket.socket | None:
    """Find the TCP socket below a pyvisa-py ``SOCKET`` resource; None for other backends and buses."""
    sessions = getattr(resource.visalib, "sessions", None)
    if not isinstance(sessions, dict) or not isinstance(resource, TCPIPSocket):
        return None
    interface = getattr(sessions.get(resource.session), "interface", None)
    return interface if isinstance(interface, socket.socket) else None


def _close_what_never_opened(error: BaseException) -> None:
    """Close the sockets of connections that pyvisa-py gave up half way.

    It leaves them to the garbage collector, and the error itself keeps them from it. Meanwhile an instrument that
    serves one client only is taken. An object that appears in a traceback within its ``__init__`` was never handed
    to anybody, so nobody else's connection can be meant, whatever errors are being handled around this one.
    """
    link: BaseException | None = error
    while link is not None:
        for frame, _ in traceback.walk_tb(link.__traceback__):
            code, module = frame.f_code.co_name, str(frame.f_globals.get("__name__"))
            if code == "__init__" and module.startswith("pyvisa_py."):
                for value in vars(frame.f_locals["self"]).values():
                    if isinstance(value, socket.socket):
                        value.close()
        link = link.__cause__ or link.__context__
