"""What a link needs of a transport, whatever carries the bytes."""

from typing import Protocol


class Port(Protocol):
    """An open byte stream to one instrument; the link that owns it serialises all calls."""

    address: str

    def send(self, data: bytes) -> None:
        """Send all of ``data``; raises LinkError if the stream is broken."""
        ...

    def receive(self, wait: float) -> bytes:
        """Return the bytes that are there, waiting up to ``wait`` s for the first of them.

        Returns ``b""`` if none came; raises LinkError if the stream is broken or was closed by the other side.
        """
        ...

    def abandon(self) -> None:
        """Tell the instrument to drop an unfinished reply, on transports that can (a device clear)."""
        ...

    def reopen(self) -> None:
        """Close the stream if it is still open and open it anew; raises LinkError if that fails."""
        ...

    def close(self) -> None:
        """Close the stream; does nothing if it is closed, never raises."""
        ...
