"""The last traffic of a link, kept for error messages."""

from collections import deque

_KEPT_ENTRIES = 16
_KEPT_BYTES = 200


def shorten(data: bytes, limit: int = _KEPT_BYTES) -> str:
    """Write ``data`` as a bytes literal, with the middle left out if it is longer than ``limit``."""
    if len(data) <= limit:
        return repr(data)
    half = limit // 2
    return f"{data[:half]!r}...<{len(data) - 2 * half} bytes left out>...{data[-half:]!r}"


class Transcript:
    """A ring of the latest sends (``>``) and receives (``<``)."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str, bytes]] = deque(maxlen=_KEPT_ENTRIES)

    def sent(self, data: bytes) -> None:
        """Note bytes that went out."""
        self._entries.append((">", data))

    def received(self, data: bytes) -> None:
        """Note bytes that came in."""
        self._entries.append(("<", data))

    def tail(self, count: int = 6) -> str:
        """Write the last ``count`` entries on one line."""
        entries = list(self._entries)[-count:]
        return " ".join(f"{mark}{shorten(data)}" for mark, data in entries) or "(no traffic)"
