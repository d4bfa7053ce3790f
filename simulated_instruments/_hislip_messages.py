"""Messages of HiSLIP 1.0 (IVI-6.1): a header of 16 bytes and a payload."""

import enum
import socket
import struct
from dataclasses import dataclass
from typing import BinaryIO

LARGEST_MESSAGE = 1 << 20
"""Longest payload that the server takes, in bytes; also what it tells its clients."""

_HEADER = struct.Struct("!2sBBIQ")
_PROLOGUE = b"HS"
_LONGEST_SKIPPED = 1 << 26  # a longer payload is no error in size but a header out of place
_SKIPPED_AT_ONCE = 65536


class Kind(enum.IntEnum):
    """Message types."""

    INITIALIZE = 0
    INITIALIZE_RESPONSE = 1
    FATAL_ERROR = 2
    ERROR = 3
    ASYNC_LOCK = 4
    ASYNC_LOCK_RESPONSE = 5
    DATA = 6
    DATA_END = 7
    DEVICE_CLEAR_COMPLETE = 8
    DEVICE_CLEAR_ACKNOWLEDGE = 9
    ASYNC_REMOTE_LOCAL_CONTROL = 10
    ASYNC_REMOTE_LOCAL_RESPONSE = 11
    TRIGGER = 12
    INTERRUPTED = 13
    ASYNC_INTERRUPTED = 14
    ASYNC_MAX_MSG_SIZE = 15
    ASYNC_MAX_MSG_SIZE_RESPONSE = 16
    ASYNC_INITIALIZE = 17
    ASYNC_INITIALIZE_RESPONSE = 18
    ASYNC_DEVICE_CLEAR = 19
    ASYNC_STATUS_QUERY = 21
    ASYNC_STATUS_RESPONSE = 22
    ASYNC_DEVICE_CLEAR_ACKNOWLEDGE = 23
    ASYNC_LOCK_INFO = 24
    ASYNC_LOCK_INFO_RESPONSE = 25


class ClientError(Exception):
    """A message that the server cannot use; the connection goes on after an Error message."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class FatalClientError(ClientError):
    """A message after which the connection is closed with a FatalError message."""


UNKNOWN_TYPE = (1, "Unrecognized Message Type")
UNKNOWN_CONTROL_CODE = (2, "Unrecognized control code")
UNKNOWN_VENDOR_MESSAGE = (3, "Unrecognized Vendor Defined Message")
TOO_LARGE = (4, "Message too large")

UNIDENTIFIED = (0, "Unidentified error")
BAD_HEADER = (1, "Poorly formed message header")
CHANNEL_MISSING = (2, "Attempt to use connection without both channels established")
BAD_INITIALIZATION = (3, "Invalid Initialization sequence")
TOO_MANY_CLIENTS = (4, "Server refused connection due to maximum number of clients exceeded")


@dataclass(frozen=True)
class Message:
    """A message; ``kind`` is a number, because clients may send any."""

    kind: int
    control: int
    parameter: int
    payload: bytes


def read_message(stream: BinaryIO) -> Message | None:
    """Read the next message; None at the end of the stream.

    Raises
    ------
    ClientError
        If the payload is too large; it was skipped.
    FatalClientError
        If this is no header.
    OSError
        If the connection broke.
    """
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    prologue, kind, control, parameter, length = _HEADER.unpack(header)
    if prologue != _PROLOGUE or length > _LONGEST_SKIPPED:
        raise FatalClientError(*BAD_HEADER)
    if length > LARGEST_MESSAGE:
        while length > 0:
            skipped = len(stream.read(min(length, _SKIPPED_AT_ONCE)))
            if not skipped:
                return None
            length -= skipped
        raise ClientError(*TOO_LARGE)
    payload = stream.read(length) if length else b""
    return Message(kind, control, parameter, payload) if len(payload) == length else None


def send_message(
    connection: socket.socket, kind: Kind, control: int = 0, parameter: int = 0, payload: bytes = b""
) -> None:
    """Send one message; raises OSError if the connection broke."""
    connection.sendall(_HEADER.pack(_PROLOGUE, kind, control, parameter, len(payload)) + payload)


def send_error(connection: socket.socket, error: ClientError) -> None:
    """Tell the client of its error; raises OSError if the connection broke."""
    kind = Kind.FATAL_ERROR if isinstance(error, FatalClientError) else Kind.ERROR
    send_message(connection, kind, error.code, 0, error.text.encode("ascii"))
