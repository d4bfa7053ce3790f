"""The two connections of a HiSLIP client: messages in their order, and what must not wait for them."""

import contextlib
import socket
from abc import ABC, abstractmethod
from typing import BinaryIO

from simulated_instruments._fault_link import FaultySession, is_over
from simulated_instruments._hislip_locks import ClientLocks
from simulated_instruments._hislip_messages import (
    CHANNEL_MISSING,
    LARGEST_MESSAGE,
    TOO_LARGE,
    UNIDENTIFIED,
    UNKNOWN_CONTROL_CODE,
    UNKNOWN_TYPE,
    UNKNOWN_VENDOR_MESSAGE,
    ClientError,
    FatalClientError,
    Kind,
    Message,
    read_message,
    send_error,
    send_message,
)
from simulated_instruments._session import BusSession, Session, SimulatedInstrument

_VERSION = 0x0100
_HEADER_BYTES = 16
_SIZE_BYTES = 8
_REPLY_READ = 1  # control code of a message whose client has read the last reply to its end
_MESSAGE_AVAILABLE = 16
_FIRST_VENDOR_TYPE = 128
_REMOTE_LOCAL_CODES = range(7)
_RELEASE, _REQUEST = 0, 1
_MILLISECOND = 1e-3
_TRIGGER = b"*TRG\n"


class HislipClient:
    """What the two channels of one client share.

    Parameters
    ----------
    session_id
        Number that joins the channels.
    instrument
        Where its messages go.
    messages
        Connection of the first channel.
    """

    def __init__(self, session_id: int, instrument: SimulatedInstrument, messages: socket.socket) -> None:
        self.id = session_id
        self.messages = messages
        self.control: socket.socket | None = None
        self.gone = False
        self.clearing = False
        self.reply_unread = False
        self.largest_reply = LARGEST_MESSAGE
        self._instrument = instrument
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget unfinished messages and unread replies."""
        self.session: Session = self._instrument.open_session()
        self.bus = self.session if isinstance(self.session, BusSession) else None
        if isinstance(self.session, FaultySession):
            self.session.attach(cut=self.hang_up)
        self.unfinished = bytearray()
        self.reply_unread = False
        self.clearing = False

    def hang_up(self) -> None:
        """Break both connections."""
        for connection in (self.messages, self.control):
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def acknowledge(self, control: int) -> None:
        """Take the control code of a message, which tells whether the last reply was read to its end."""
        if control == _REPLY_READ:
            self.reply_unread = False
        elif control:
            raise ClientError(*UNKNOWN_CONTROL_CODE)

    def status_byte(self) -> int:
        """Return the status byte."""
        status = 0 if self.bus is None else self.bus.status_byte()
        return status | (_MESSAGE_AVAILABLE if self.reply_unread else 0)

    def is_gone(self) -> bool:
        """Tell whether the client has hung up."""
        return self.gone


class Channel(ABC):
    """One of the two connections of a client.

    Parameters
    ----------
    client
        The client.
    locks
        Who holds the instrument.
    """

    def __init__(self, client: HislipClient, locks: ClientLocks) -> None:
        self.client = client
        self._locks = locks

    def run(self, connection: socket.socket, stream: BinaryIO) -> None:
        """Confirm the channel and answer messages until the client hangs up; raises FatalClientError or OSError."""
        self._confirm(connection)
        while True:
            try:
                message = read_message(stream)
                if message is None or message.kind == Kind.FATAL_ERROR:
                    return
                if message.kind != Kind.ERROR:
                    self._answer(connection, message)
            except FatalClientError:
                raise
            except ClientError as error:
                send_error(connection, error)

    @abstractmethod
    def _confirm(self, connection: socket.socket) -> None:
        """Tell the client that the channel is established."""

    @abstractmethod
    def _answer(self, connection: socket.socket, message: Message) -> None:
        """Do what a message asks for."""


class MessageChannel(Channel):
    """The synchronous channel: messages to the instrument and their replies."""

    def _confirm(self, connection: socket.socket) -> None:
        send_message(connection, Kind.INITIALIZE_RESPONSE, 0, (_VERSION << 16) | self.client.id)

    def _answer(self, connection: socket.socket, message: Message) -> None:
        client = self.client
        if client.control is None:
            raise FatalClientError(*CHANNEL_MISSING)
        if message.kind == Kind.DEVICE_CLEAR_COMPLETE:
            client.start_afresh()
            send_message(connection, Kind.DEVICE_CLEAR_ACKNOWLEDGE)
        elif message.kind in (Kind.DATA, Kind.DATA_END, Kind.TRIGGER):
            if not client.clearing and self._locks.wait_for_access(client.id, client.is_gone):
                self._take(connection, client.control, message)
        else:
            raise _unrecognised(message)

    def _take(self, connection: socket.socket, control: socket.socket, message: Message) -> None:
        client = self.client
        client.acknowledge(message.control)
        if client.reply_unread:
            client.reply_unread = False
            if client.bus is not None:
                client.bus.interrupted()
            send_message(connection, Kind.INTERRUPTED, 0, message.parameter)
            send_message(control, Kind.ASYNC_INTERRUPTED, 0, message.parameter)
        client.unfinished += message.payload
        if len(client.unfinished) > LARGEST_MESSAGE:
            client.unfinished.clear()
            raise ClientError(*TOO_LARGE)
        if message.kind == Kind.DATA:
            return
        program = _TRIGGER if message.kind == Kind.TRIGGER else bytes(client.unfinished)
        client.unfinished.clear()
        # The end of the message stands for the terminator; a second one is an empty line, which says nothing.
        self._send_reply(connection, client.session.receive(program + b"\n"), message.parameter)
        if is_over(client.session):
            client.hang_up()

    def _send_reply(self, connection: socket.socket, reply: bytes, message_id: int) -> None:
        client = self.client
        room = max(client.largest_reply - _HEADER_BYTES, 1)
        for start in range(0, len(reply), room):
            if client.clearing:
                return
            # Before it is sent: the client may read it and say so before this thread goes on.
            client.reply_unread = True
            kind = Kind.DATA if start + room < len(reply) else Kind.DATA_END
            send_message(connection, kind, 0, message_id, reply[start : start + room])


class ControlChannel(Channel):
    """The asynchronous channel: status, device clear, locks, sizes."""

    def _confirm(self, connection: socket.socket) -> None:
        send_message(connection, Kind.ASYNC_INITIALIZE_RESPONSE)

    def _answer(self, connection: socket.socket, message: Message) -> None:
        client = self.client
        match message.kind:
            case Kind.ASYNC_STATUS_QUERY:
                client.acknowledge(message.control)
                send_message(connection, Kind.ASYNC_STATUS_RESPONSE, client.status_byte())
            case Kind.ASYNC_DEVICE_CLEAR:
                client.clearing = True
                send_message(connection, Kind.ASYNC_DEVICE_CLEAR_ACKNOWLEDGE)
            case Kind.ASYNC_MAX_MSG_SIZE:
                if len(message.payload) != _SIZE_BYTES:
                    raise ClientError(*UNIDENTIFIED)
                client.largest_reply = int.from_bytes(message.payload, "big")
                size = LARGEST_MESSAGE.to_bytes(_SIZE_BYTES, "big")
                send_message(connection, Kind.ASYNC_MAX_MSG_SIZE_RESPONSE, payload=size)
            case Kind.ASYNC_LOCK:
                send_message(connection, Kind.ASYNC_LOCK_RESPONSE, self._lock(message))
            case Kind.ASYNC_LOCK_INFO:
                exclusive, holders = self._locks.holders()
                send_message(connection, Kind.ASYNC_LOCK_INFO_RESPONSE, int(exclusive), holders)
            case Kind.ASYNC_REMOTE_LOCAL_CONTROL:
                if message.control not in _REMOTE_LOCAL_CODES:
                    raise ClientError(*UNKNOWN_CONTROL_CODE)
                send_message(connection, Kind.ASYNC_REMOTE_LOCAL_RESPONSE)
            case _:
                raise _unrecognised(message)

    def _lock(self, message: Message) -> int:
        client = self.client
        if message.control == _RELEASE:
            return self._locks.release(client.id)
        if message.control != _REQUEST:
            raise ClientError(*UNKNOWN_CONTROL_CODE)
        timeout_s = message.parameter * _MILLISECOND
        return self._locks.request(client.id, message.payload, timeout_s, client.is_gone)


def _unrecognised(message: Message) -> ClientError:
    return ClientError(*(UNKNOWN_VENDOR_MESSAGE if message.kind >= _FIRST_VENDOR_TYPE else UNKNOWN_TYPE))
