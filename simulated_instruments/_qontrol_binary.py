"""Byte stream of a Qontrol client: text lines, and binary frames that begin with a byte of 0x80 or more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulated_instruments._qontrol_channels import (
    BUFFER_OVERFLOW,
    CHANNELS_PER_MODULE,
    FORBIDDEN,
    FULL_CURRENT_A,
    FULL_VOLTAGE_V,
    SERIAL_ERROR,
    UNKNOWN_COMMAND,
)

if TYPE_CHECKING:
    from simulated_instruments.qontrol_q8iv import SimulatedQontrolQ8iv

_BINARY, _ALL_CHANNELS, _BY_DEVICE, _READ, _EXTENDED = 0x80, 0x20, 0x10, 0x08, 0x02
_HEAD, _WORD = 5, 2
_FULL_SCALE = 0xFFFF
_LONGEST_LINE = 4096
_FRAMING = 1

_NAMES = {
    0x00: "V", 0x01: "I", 0x02: "VMAX", 0x03: "IMAX", 0x04: "VCAL", 0x05: "ICAL", 0x06: "VERR", 0x07: "IERR",
    0x0A: "VIP", 0x20: "VFULL", 0x21: "IFULL", 0x22: "NCHAN", 0x23: "FIRMWARE", 0x24: "ID", 0x25: "LIFETIME",
    0x27: "LOG", 0x31: "LED", 0x32: "NUP", 0x33: "ADCT", 0x34: "ADCN", 0x37: "OK", 0x42: "SAFE", 0x43: "ROCOM",
}  # fmt: skip
_FULL = {"V": FULL_VOLTAGE_V, "VMAX": FULL_VOLTAGE_V, "I": FULL_CURRENT_A, "IMAX": FULL_CURRENT_A}


class QontrolSession:
    """Cut one client's bytes into lines and frames and have the chain answer them.

    Parameters
    ----------
    chain
        The simulated instrument.
    """

    def __init__(self, chain: SimulatedQontrolQ8iv) -> None:
        self._chain = chain
        self._buffer = bytearray()

    def receive(self, data: bytes) -> bytes:
        """Answer all lines and frames that ``data`` completes."""
        buffer, replies = self._buffer, b""
        buffer += data
        while buffer:
            if buffer[0] & _BINARY:
                size = _frame_size(buffer)
                if size is None or len(buffer) < size:
                    break
                frame = bytes(buffer[:size])
                del buffer[:size]
                replies += self._answer_frame(frame)
                continue
            end = buffer.find(b"\n")
            if end < 0:
                if len(buffer) > _LONGEST_LINE:
                    buffer.clear()
                    replies += self._chain.error(BUFFER_OVERFLOW) + self._chain.error(SERIAL_ERROR)
                break
            line = buffer[:end].decode("ascii", errors="replace")
            del buffer[: end + 1]
            if line and not line.isspace():
                replies += self._chain.answer_line(line)
        return replies

    def _answer_frame(self, frame: bytes) -> bytes:
        header = frame[0]
        if header.bit_count() % 2:
            return self._chain.error(SERIAL_ERROR, _FRAMING)
        name = _NAMES.get(frame[1])
        if name is None or header & _BY_DEVICE:
            return self._chain.error(UNKNOWN_COMMAND)
        channel = int.from_bytes(frame[3:_HEAD], "big")
        everywhere = bool(header & _ALL_CHANNELS)
        if header & _READ:
            return self._chain.get(name, channel, everywhere=everywhere)
        if name == "NUP":
            return self._chain.renumber()
        if name not in _FULL:
            return self._chain.error(FORBIDDEN)
        start = _HEAD + _WORD if header & _EXTENDED else _HEAD
        words = [int.from_bytes(frame[k : k + _WORD], "big") for k in range(start, len(frame), _WORD)]
        values = [word * (_FULL[name] / _FULL_SCALE) for word in words]
        if everywhere:
            return self._chain.set_run(name, 0, values[:1] * self._chain.channels.count)
        return self._set_modules(name, channel, values)

    def _set_modules(self, name: str, first: int, values: list[float]) -> bytes:
        """Cut a run of channels at the modules' borders; each module answers for its own part."""
        replies = b""
        while values:
            size = CHANNELS_PER_MODULE - first % CHANNELS_PER_MODULE
            replies += self._chain.set_run(name, first, values[:size])
            first, values = first + size, values[size:]
        return replies


def _frame_size(buffer: bytearray) -> int | None:
    """Size of the frame at the start of ``buffer``; None while that cannot be told."""
    if not buffer[0] & _EXTENDED:
        return _HEAD + _WORD
    if len(buffer) < _HEAD + _WORD:
        return None
    return _HEAD + _WORD + _WORD * int.from_bytes(buffer[_HEAD : _HEAD + _WORD], "big")
