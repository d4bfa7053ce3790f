"""Replies of Keysight's power meters; all parsers raise ValueError, which the link turns into a ReplyError."""

import struct

import numpy as np
from numpy.typing import NDArray

from drivers._parsing import parse_integer, parse_number

_FUNCTIONS = ("NONE", "LOGGING_STABILITY", "MINMAX")
_PROGRESS = {"PROGRESS": False, "COMPLETE": True}


def parse_slots(payload: bytes) -> list[tuple[int, int]]:
    """Parse the slot and channel of each port."""
    if len(payload) % 4:
        raise ValueError(f"{len(payload)} bytes are not pairs of slot and channel")
    return list(struct.iter_unpack("<HH", payload))


def parse_powers(payload: bytes, count: int) -> NDArray[np.float64]:
    """Parse exactly ``count`` numbers."""
    if len(payload) != 4 * count:
        raise ValueError(f"{len(payload)} bytes are not {count} numbers of 4 bytes")
    return np.frombuffer(payload, dtype="<f4").astype(np.float64)


def parse_log_parameters(text: str) -> tuple[int, float]:
    """Parse the number of points and the averaging time in s."""
    points, comma, averaging = text.partition(",")
    if not comma:
        raise ValueError(f"{text!r} is no pair of points and averaging time")
    return parse_integer(points), parse_number(averaging)


def parse_function_state(text: str) -> tuple[str, bool]:
    """Parse the name of a port's function, and whether it is complete."""
    function, _, progress = text.partition(",")
    if function not in _FUNCTIONS or progress not in _PROGRESS:
        raise ValueError(f"{text!r} is no state of a function such as LOGGING_STABILITY,PROGRESS")
    return function, _PROGRESS[progress]
