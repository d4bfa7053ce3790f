"""Byte stream of a Qontrol client: text lines, and binary frames that begin with a byte of 0x80 or more."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from simulated_instruments._qontrol_channels import (
    BUFFER_OVERFLOW,
    FORBIDDEN,
    SERIAL_ERROR,
    UNKNOWN_COMMAND,
)
from simulated_instruments._qontrol_modules import CHANNELS_PER_MODULE

if TYPE_CHECKING:
    from simulated_instruments.qontrol import SimulatedQontrol

_BINARY, _ALL_CHANNELS, _BY_DEVICE, _READ, _EXTENDED = 0x80, 0x20, 0x10, 0x08, 0x02
_HEAD, _WORD = 5, 2
_FULL_SCALE = 0xFFFF
_LONGEST_LINE = 4096
_FRAMING = 1

_NAMES = {
    0x00: "V", 0x01: "I", 0x02: "VMAX", 0x03: "IMAX", 0x04: "VCAL", 0x05: "ICAL", 0x06: "VERR", 0x07: "IERR",
    0x0A: "VIP", 0x20: "VFULL", 0x21: "IFULL", 0x22: "NCHAN", 0x23: "FIRMWARE", 0x24: "ID", 0x25: "LIFETIME",
    0x26: "NVM", 0x27: "LOG", 0x31: "LED", 0x32: "NUP", 0x33: "ADCT", 0x34: "ADCN", 0x37: "OK", 0x41: "HELP",
    0x42: "SAFE", 0x43: "ROCOM",
}  # fmt: skip
_READ_ONE, _READ_ALL, _WRITE_ONE, _WRITE_RUN, _WRITE_ALL = "read", "read all", "write", "write run", "write all"
_SETTABLE = frozenset((_READ_ONE, _READ_ALL, _WRITE_ONE, _WRITE_RUN, _WRITE_ALL))
_MODES = {
    **dict.fromkeys(("V", "I", "VMAX", "IMAX"), _SETTABLE),
    **dict.fromkeys(("VIP", "VFULL", "IFULL", "NCHAN"), frozenset((_READ_ALL,))),
    "NVM": frozenset((_READ_ALL, _WRITE_ALL)),
    "NUP": frozenset((_READ_ONE, _WRITE_ONE)),
}
_OTHER_MODES = frozenset((_READ_ONE, _READ_ALL))
_LONGEST_BACKLOG = 64


class QontrolSession:
    """Cut one client's bytes into lines and frames and have the chain answer them.

    Parameters
    ----------
    chain
        The simulated instrument.
    """

    def __init__(self, chain: SimulatedQontrol) -> None:
        self.pending: deque[bytes] = deque(maxlen=_LONGEST_BACKLOG)
        """Lines that nobody asked for; they come with the reply to the next command."""
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
                replies += self._unasked() + self._answer_frame(frame)
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
                replies += self._unasked() + self._chain.answer_line(line)
        return replies

    def _unasked(self) -> bytes:
        self._chain.notice_loads()
        lines = b""
        while self.pending:
            lines += self.pending.popleft()
        return lines

    def _answer_frame(self, frame: bytes) -> bytes:
        header = frame[0]
        if header.bit_count() % 2:
            return self._chain.error(SERIAL_ERROR, _FRAMING)
        name = _NAMES.get(frame[1])
        if name is None or header & _BY_DEVICE:
            return self._chain.error(UNKNOWN_COMMAND)
        mode = _mode(header)
        if mode not in _MODES.get(name, _OTHER_MODES):
            return self._chain.error(FORBIDDEN)
        channel = int.from_bytes(frame[3:_HEAD], "big")
        if header & _READ:
            return self._chain.get(name, channel, everywhere=mode == _READ_ALL)
        start = _HEAD + _WORD if header & _EXTENDED else _HEAD
        words = [int.from_bytes(frame[k : k + _WORD], "big") for k in range(start, len(frame), _WORD)]
        return self._write(name, channel, words, everywhere=mode == _WRITE_ALL)

    def _write(self, name: str, channel: int, words: list[int], *, everywhere: bool) -> bytes:
        if name == "NUP":
            return self._chain.renumber()
        if name == "NVM":
            self._chain.modules.store(words)
            return b"OK\n"
        kind = self._chain.kind
        full = kind.full_voltage_v if name in ("V", "VMAX") else kind.full_current_a
        values = [word * (full / _FULL_SCALE) for word in words]
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


def _mode(header: int) -> str:
    if header & _READ:
        return _READ_ALL if header & _ALL_CHANNELS else _READ_ONE
    if header & _ALL_CHANNELS:
        return _WRITE_ALL
    return _WRITE_RUN if header & _EXTENDED else _WRITE_ONE


def _frame_size(buffer: bytearray) -> int | None:
    """Size of the frame at the start of ``buffer``; None while that cannot be told."""
    if not buffer[0] & _EXTENDED:
        return _HEAD + _WORD
    if len(buffer) < _HEAD + _WORD:
        return None
    return _HEAD + _WORD + _WORD * int.from_bytes(buffer[_HEAD : _HEAD + _WORD], "big")
