"""One client's link as the chip host sees it."""

import asyncio
import contextlib
import socket

from optinc_hw.aggregation._host_frames import PREFIX_SIZE, Bytes, ProtocolError, read_prefix, read_rest, write_head
from optinc_hw.aggregation._host_messages import Goodbye, Message, text

_LINGER_S = 2.0


class Connection:
    """A link to a client.

    Parameters
    ----------
    reader, writer
        The two directions of the link.
    idle_s
        Longest time in s that a message may take to come or to be taken.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._idle_s = idle_s
        self.ended = False
        self.session = ""
        link = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):  # where the client has left already
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, message: Message, payload: Bytes = b"") -> None:
        """Begin to send a message; one to a link that has ended is dropped."""
        if not self.ended:
            self._writer.write(write_head(message, payload))
            if payload:
                self._writer.write(payload)

    async def receive(self, payload_limit: int) -> tuple[Message, memoryview]:
        """Return the next message, once what was sent has been taken.

        Raises
        ------
        ProtocolError
            If what came is no message.
        EOFError, ConnectionError
            If the client has left.
        """
        try:
            async with asyncio.timeout(self._idle_s):
                await self._writer.drain()
                prefix = read_prefix(await self._reader.readexactly(PREFIX_SIZE), payload_limit)
                return read_rest(prefix, await self._reader.readexactly(prefix.rest))
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise
            raise ProtocolError(f"the link was closed after {len(error.partial)} bytes of a frame") from error
        except TimeoutError as error:
            raise IdleError(f"no complete message came or was taken for {self._idle_s:g} s") from error

    def abort(self) -> None:
        """End the link at once; nothing of it is read any more."""
        self.ended = True
        self._writer.transport.abort()

    def turn_away(self, reason: str) -> None:
        """Say goodbye, with the advice to come again, and end the link without waiting for anybody to hear it."""
        if self.ended:  # it has said goodbye, and waits for the other side to close
            self.abort()
            return
        self.send(Goodbye(reason=text(reason), again=True))
        self.ended = True
        self._writer.close()

    async def close(self, reason: str = "", *, again: bool = False, linger: bool = True) -> None:
        """Say goodbye, unless there is no reason to or nobody to hear it, and end the link.

        A link that is closed with bytes unread is reset, and the goodbye can be lost; ``linger`` waits for the client
        to close its side first.
        """
        if reason:
            self.send(Goodbye(reason=text(reason), again=again))
        self.ended = True
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                if linger:
                    self._writer.write_eof()
                    while await self._reader.read(1 << 16):
                        pass
                self._writer.close()
                await self._writer.wait_closed()
        self._writer.transport.abort()


class IdleError(Exception):
    """The client was silent for too long."""
