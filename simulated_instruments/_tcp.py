"""TCP server on the loopback interface, a thread per client: the shortest way from a line to its answer."""

import contextlib
import socket
import struct
import threading

from simulated_instruments._fault_link import FaultySession, is_over
from simulated_instruments._session import SimulatedInstrument

_HOST = "127.0.0.1"
_CHUNK = 4096  # small, so that closing never waits for many commands
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger: do linger, for 0 s


class TcpServer:
    """Serve one simulated instrument to any number of clients on a free port of 127.0.0.1.

    Parameters
    ----------
    instrument
        Its state outlives connections: a new client resets nothing.
    name
        Name for the threads.
    """

    def __init__(self, instrument: SimulatedInstrument, name: str) -> None:
        self._instrument = instrument
        self._name = name
        self._lock = threading.Lock()
        self._closing = False
        self._clients: dict[threading.Thread, socket.socket] = {}
        self._listener = socket.create_server((_HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name=f"{name} listener", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Cut all clients off and end all threads; may be called twice."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        # A connection of our own ends accept() on every platform; closing the listener alone does not.
        with contextlib.suppress(OSError), socket.create_connection((_HOST, self.port)):
            self._acceptor.join()
        self._listener.close()
        with self._lock:
            clients = dict(self._clients)
        for client in clients.values():
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in clients:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except ConnectionError:
                continue  # the client gave up before it was served
            thread = threading.Thread(target=self._serve, args=(client,), name=f"{self._name} client", daemon=True)
            with self._lock:
                if self._closing:
                    client.close()
                    return
                self._clients[thread] = client
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._converse(client)
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        except OSError:
            pass  # the client broke the connection; the instrument does not care
        finally:
            client.close()
            with self._lock:
                del self._clients[threading.current_thread()]

    def _converse(self, client: socket.socket) -> None:
        """Answer a client until it hangs up; OSError ends the connection."""
        session = self._instrument.open_session()
        if isinstance(session, FaultySession):
            session.attach(cut=lambda: _cut(client), send=lambda data: _send(client, data))
        while data := client.recv(_CHUNK):
            reply = session.receive(data)
            if reply:
                client.sendall(reply)
            if is_over(session):
                return


def _send(client: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the client is gone
        client.sendall(data)


def _cut(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
