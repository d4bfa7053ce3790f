"""Frames of the chip host: 16 bytes of prefix, a JSON header, and packed codes.

====== ======================================================
bytes  content, numbers with the highest byte first
====== ======================================================
4      ``OPTI``
1      version of the protocol
1      kind of the message
2      length of the header
4      length of the payload
4      CRC-32 of the 12 bytes before, the header and the payload
====== ======================================================
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from optinc_hw.aggregation._host_messages import KINDS, Message
from optinc_hw.aggregation._packing import GROUP, pack, packed_size, unpack
from optinc_hw.aggregation._quantizer import Codes
from optinc_hw.errors import AggregationError

VERSION = 1
PREFIX_SIZE = 16
HEADER_LIMIT = 16384

_MAGIC = b"OPTI"
_PREFIX = struct.Struct("!4sBBHII")
_LARGEST_PAYLOAD = (1 << 32) - 1
_CHECKED = 12  # bytes of the prefix that the checksum covers

Bytes = bytes | bytearray | memoryview


class ProtocolError(AggregationError):
    """The other side of a link sent what is no message, or none that fits."""


@dataclass(frozen=True)
class Prefix:
    """What the first bytes of a frame say."""

    kind: type[Message]
    header_size: int
    payload_size: int
    checksum: int
    first: bytes

    @property
    def rest(self) -> int:
        """Bytes of the frame that follow."""
        return self.header_size + self.payload_size


def write_head(message: Message, payload: Bytes = b"") -> bytes:
    """Return prefix and header of a message; its payload follows them."""
    header = message.model_dump_json().encode("utf-8")
    first = _PREFIX.pack(_MAGIC, VERSION, KINDS.index(type(message)) + 1, len(header), len(payload), 0)[:_CHECKED]
    checksum = zlib.crc32(payload, zlib.crc32(header, zlib.crc32(first)))
    return first + checksum.to_bytes(4, "big") + header


def read_prefix(data: Bytes, payload_limit: int) -> Prefix:
    """Read the first 16 bytes of a frame.

    Raises
    ------
    ProtocolError
        If they begin no frame of this version, or one that is too long.
    """
    magic, version, kind, header_size, payload_size, checksum = _PREFIX.unpack(data)
    if magic != _MAGIC:
        raise ProtocolError(f"the other side sent {magic!r}..., which is no frame of a chip host; check the address")
    if version != VERSION:
        raise ProtocolError(
            f"the other side speaks version {version} of the chip host's protocol, this one version {VERSION}; "
            "install the same optinc-hw on both"
        )
    if not 1 <= kind <= len(KINDS):
        raise ProtocolError(f"there is no message of kind {kind}")
    message = KINDS[kind - 1]
    if header_size > HEADER_LIMIT:
        raise ProtocolError(f"a header of {header_size} bytes is too long; the limit is {HEADER_LIMIT}")
    allowed = payload_limit if message.carries_codes else 0
    if payload_size > allowed:
        raise ProtocolError(f"{payload_size} bytes of codes in {message.__name__} are too many; the limit is {allowed}")
    return Prefix(message, header_size, payload_size, checksum, bytes(data[:_CHECKED]))


def read_rest(prefix: Prefix, data: Bytes) -> tuple[Message, memoryview]:
    """Read header and payload.

    Raises
    ------
    ProtocolError
        If a byte was changed on the way, or the header is not as the message must be.
    """
    view = memoryview(data)
    if zlib.crc32(view, zlib.crc32(prefix.first)) != prefix.checksum:
        raise ProtocolError(f"a frame of {PREFIX_SIZE + len(view)} bytes was changed on the way: its checksum is wrong")
    header, payload = view[: prefix.header_size], view[prefix.header_size :]
    try:
        return prefix.kind.model_validate_json(bytes(header)), payload
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "header"
        raise ProtocolError(f"{where} of {prefix.kind.__name__}: {first['msg']}") from error


def wire_size(rows: int, elements: int, bits: int) -> int:
    """Return the bytes of codes (rows, elements) in a frame."""
    return rows * packed_size(_padded(elements), bits)


def check_wire_size(rows: int, elements: int, bits: int) -> None:
    """Check that codes (rows, elements) fit a frame.

    Raises
    ------
    AggregationError
        If they do not.
    """
    size = wire_size(rows, elements, bits)
    if size > _LARGEST_PAYLOAD:
        raise AggregationError(
            f"{elements} elements of {rows} servers and {bits} bits take {size} bytes; a message holds at most "
            f"{_LARGEST_PAYLOAD}: lower the limit of elements"
        )


def codes_to_wire(codes: NDArray[np.integer[Any]], bits: int) -> memoryview:
    """Return codes (rows, elements) as bytes: row after row, each filled up to 8 codes, little-endian."""
    rows, elements = codes.shape
    kind = np.uint8 if bits <= 8 else np.uint16
    filled: Codes = np.zeros((rows, _padded(elements)), dtype=kind)
    filled[:, :elements] = codes
    flat: Codes = filled.reshape(-1)
    return pack(flat.astype("<u2", copy=False) if bits == 16 else flat, bits).data


def codes_from_wire(payload: Bytes, rows: int, elements: int, bits: int) -> Codes:
    """Return the codes (rows, elements), uint8 or uint16, of bytes that `codes_to_wire` made.

    Raises
    ------
    ProtocolError
        If the bytes are too few or too many.
    """
    wanted = wire_size(rows, elements, bits)
    if len(payload) != wanted:
        raise ProtocolError(
            f"{rows} x {elements} codes of {bits} bits take {wanted} bytes, but {len(payload)} bytes came with them"
        )
    packed = np.frombuffer(payload, dtype=np.uint8)
    flat: Codes = packed.view("<u2").astype(np.uint16, copy=False) if bits == 16 else unpack(packed, bits)
    return flat.reshape(rows, -1)[:, :elements]


def _padded(elements: int) -> int:
    return -(-elements // GROUP) * GROUP
