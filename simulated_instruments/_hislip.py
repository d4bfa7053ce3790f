"""HiSLIP server on the loopback interface: message ends, status byte, device clear, locks (IVI-6.1, version 1.0).

Synchronized mode only, and no service requests. Each client has two connections: one for its messages, one for what
must not wait for them. A message needs no terminator, and replies may hold any byte, because the protocol itself
carries their ends.
"""

import socket
import threading
from typing import BinaryIO

from simulated_instruments._hislip_channels import Channel, ControlChannel, HislipClient, MessageChannel
from simulated_instruments._hislip_locks import ClientLocks
from simulated_instruments._hislip_messages import (
    BAD_INITIALIZATION,
    TOO_MANY_CLIENTS,
    ClientError,
    FatalClientError,
    Kind,
    read_message,
    send_error,
)
from simulated_instruments._session import SimulatedInstrument
from simulated_instruments._tcp import TcpServer

_SUB_ADDRESSES = (b"", b"hislip0")
_MOST_CLIENTS = 64
_SESSION_IDS = 1 << 16


class HislipServer(TcpServer):
    """Serve one simulated instrument as ``hislip0`` to several clients on a free port of 127.0.0.1.

    Parameters
    ----------
    instrument
        Its state outlives connections. Sessions that are a ``BusSession`` also get status and interruptions.
    name
        Name for the threads.
    """

    def __init__(self, instrument: SimulatedInstrument, name: str) -> None:
        self._locks = ClientLocks()
        self._sessions: dict[int, HislipClient] = {}
        self._sessions_lock = threading.Lock()
        self._last_id = 0
        super().__init__(instrument, name)

    def close(self) -> None:
        """Cut all clients off and end all threads; may be called twice."""
        self._locks.close()
        super().close()

    def _converse(self, client: socket.socket) -> None:
        with client.makefile("rb") as stream:
            try:
                channel = self._open_channel(client, stream)
            except FatalClientError as error:
                send_error(client, error)
                return
            try:
                channel.run(client, stream)
            except FatalClientError as error:
                send_error(client, error)
            finally:
                self._end(channel.client)

    def _open_channel(self, connection: socket.socket, stream: BinaryIO) -> Channel:
        try:
            first = read_message(stream)
        except FatalClientError:
            raise
        except ClientError as error:
            raise FatalClientError(*BAD_INITIALIZATION) from error
        if first is None:
            raise ConnectionResetError("the client hung up before it said anything")
        if first.kind == Kind.INITIALIZE and first.payload in _SUB_ADDRESSES:
            return MessageChannel(self._new_client(connection), self._locks)
        if first.kind == Kind.ASYNC_INITIALIZE:
            return ControlChannel(self._client_of(first.parameter, connection), self._locks)
        raise FatalClientError(*BAD_INITIALIZATION)

    def _new_client(self, connection: socket.socket) -> HislipClient:
        with self._sessions_lock:
            if len(self._sessions) >= _MOST_CLIENTS:
                raise FatalClientError(*TOO_MANY_CLIENTS)
            self._last_id = (self._last_id + 1) % _SESSION_IDS
            while self._last_id in self._sessions:
                self._last_id = (self._last_id + 1) % _SESSION_IDS
            client = self._sessions[self._last_id] = HislipClient(self._last_id, self._instrument, connection)
            return client

    def _client_of(self, session_id: int, connection: socket.socket) -> HislipClient:
        with self._sessions_lock:
            client = self._sessions.get(session_id)
            if client is None or client.control is not None:
                raise FatalClientError(*BAD_INITIALIZATION)
            client.control = connection
            return client

    def _end(self, client: HislipClient) -> None:
        """End both channels of a client as soon as one of them has ended."""
        client.gone = True
        with self._sessions_lock:
            self._sessions.pop(client.id, None)
        self._locks.forget(client.id)
        client.hang_up()
