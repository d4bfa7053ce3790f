"""Bytes of a journal: frames that are whole and in place, or are not read at all.

A journal is a row of frames, little-endian.  Each is::

    4 bytes   "OPTJ"
    8 bytes   run: the first of the SHA-256 of the first frame's content, so that frames of other runs are foreign
    4 bytes   index of the frame, from 0
    1 byte    kind: 0 header, 1 sweep, 2 result of a fit; 3 bytes 0
    8 bytes   length of the content
    4 bytes   CRC32 of the 28 bytes above and the content
    content   4 bytes length of the text, the text (JSON, UTF-8), then the arrays that it lists, in C order

Nothing in it is ever unpickled.
"""

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import CalibrationError

AnyArray = NDArray[Any]  # Any: float64, int64 or bool
_MARKER = b"OPTJ"
_HEAD = struct.Struct("<4s8sIB3xQ")
_CRC = struct.Struct("<I")
_TEXT = struct.Struct("<I")
_FRAME_BYTES = _HEAD.size + _CRC.size
DTYPES = {"f8": np.dtype("<f8"), "i8": np.dtype("<i8"), "b1": np.dtype("?")}
"""Types of arrays by the names that files give them."""


class FrameKind(IntEnum):
    """What a frame holds."""

    HEADER = 0
    STEP = 1
    RESULT = 2


@dataclass(frozen=True)
class Frame:
    """One entry of a journal.

    Parameters
    ----------
    kind
        What it holds.
    text
        Whatever JSON can hold, without the key "arrays".
    arrays
        Arrays by name: float64, int64 or bool.
    """

    kind: FrameKind
    text: dict[str, Any]  # Any: whatever JSON can hold
    arrays: dict[str, AnyArray]


@dataclass(frozen=True)
class Scan:
    """What `read_frames` found.

    Parameters
    ----------
    frames
        The frames that are whole and in place.
    end
        Bytes that they take; what follows is the torn last frame of a process that was killed.
    run
        Run that they belong to, for the frames to come.
    """

    frames: tuple[Frame, ...]
    end: int
    run: bytes


def plain_array(name: str, values: Any) -> AnyArray:  # Any: what numpy makes an array of
    """Return a copy of ``values`` as a C-ordered float64, int64 or bool array.

    Raises
    ------
    CalibrationError
        If they are complex, text or objects.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise CalibrationError(
            f"{name} has the type {array.dtype}; a journal keeps float64, int64 and bool (split complex numbers into "
            "real and imaginary part)"
        )
    kind = {"f": "f8", "b": "b1"}.get(array.dtype.kind, "i8")
    return np.array(array, dtype=DTYPES[kind], order="C", copy=True)


def encode_content(frame: Frame) -> bytes:
    """Text and arrays of a frame as bytes."""
    listed = [[name, array.dtype.str[1:], list(array.shape)] for name, array in frame.arrays.items()]
    text = json.dumps({**frame.text, "arrays": listed}, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_TEXT.pack(len(text)), text, *(array.tobytes() for array in frame.arrays.values())])


def run_of(content: bytes) -> bytes:
    """Mark of the run whose header has this content."""
    return hashlib.sha256(content).digest()[:8]


def encode_frame(run: bytes, index: int, kind: FrameKind, content: bytes) -> bytes:
    """Bytes of one frame."""
    head = _HEAD.pack(_MARKER, run, index, kind, len(content))
    return head + _CRC.pack(zlib.crc32(content, zlib.crc32(head))) + content


def read_frames(data: bytes, origin: str) -> Scan:
    """Read all frames of a journal; a torn last one is left out.

    Parameters
    ----------
    data
        Content of the file.
    origin
        Name of the file, for messages.

    Raises
    ------
    CalibrationError
        If the file does not begin with a whole header, or whole frames follow a damaged or foreign one.
    """
    if data[: len(_MARKER)] != _MARKER[: len(data)]:
        raise CalibrationError(f"{origin} is not the journal of a calibration; name the file that calibrate wrote")
    first = _whole(data, 0)
    if first is None:
        _require_nothing_behind(data, 1, 0, origin)
        raise CalibrationError(
            f"{origin} ends before the run had measured anything; remove it and start the calibration anew"
        )
    run, _, _, content = first
    if first[1:3] != (0, FrameKind.HEADER) or run != run_of(content):
        raise CalibrationError(f"{origin} does not begin with its header, so its beginning is lost; restore a copy")
    frames: list[Frame] = []
    position = 0
    while (found := _whole(data, position)) is not None and found[:2] == (run, len(frames)):
        frames.append(_decode(found[2], found[3], origin))
        position += _FRAME_BYTES + len(found[3])
    _require_nothing_behind(data, position, len(frames), origin)
    return Scan(tuple(frames), position, run)


_Whole = tuple[bytes, int, int, bytes]
"""Run, index, kind and content of a frame whose CRC is right."""


def _whole(data: bytes, position: int) -> _Whole | None:
    start = position + _FRAME_BYTES
    if start > len(data):
        return None
    marker, run, index, kind, length = _HEAD.unpack_from(data, position)
    if marker != _MARKER or length > len(data) - start:
        return None
    content = data[start : start + length]
    (stated,) = _CRC.unpack_from(data, position + _HEAD.size)
    if zlib.crc32(content, zlib.crc32(data[position : position + _HEAD.size])) != stated:
        return None
    return run, index, kind, content


def _require_nothing_behind(data: bytes, position: int, count: int, origin: str) -> None:
    """Refuse whole frames behind the last good one: a kill tears the last frame only."""
    behind = data.find(_MARKER, position)
    while behind >= 0:
        if _whole(data, behind) is not None:
            raise CalibrationError(
                f"{origin} is damaged or joined with another journal at byte {position}: {count} entries are good, and "
                f"whole ones follow at byte {behind}; restore a copy, or cut the file to {position} bytes to measure "
                "again from there"
            )
        behind = data.find(_MARKER, behind + 1)


def _decode(kind: int, content: bytes, origin: str) -> Frame:
    """Content whose CRC is right: what does not decode was written by other code."""
    try:
        (length,) = _TEXT.unpack_from(content)
        position = _TEXT.size + length
        text = json.loads(content[_TEXT.size : position])
        arrays = {}
        for name, dtype, shape in text.pop("arrays"):
            count = int(np.prod(shape, dtype=np.int64))
            flat = np.frombuffer(content, DTYPES[dtype], count, position)
            # Copied, so that arrays lie in memory as measured ones do: sums over others can differ in the last bit.
            arrays[str(name)] = flat.reshape(shape).copy()
            position += flat.nbytes
        if position != len(content):
            raise ValueError(f"{len(content) - position} bytes too many")
        return Frame(FrameKind(kind), text, arrays)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, struct.error, RecursionError) as error:
        raise CalibrationError(
            f"{origin} holds an entry of an unknown form ({error}); read it with the version that wrote it"
        ) from error
