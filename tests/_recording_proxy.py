"""A TCP proxy on 127.0.0.1 that notes what a client sends to a simulated instrument."""

import contextlib
import re
import socket
import struct
import threading

_HISLIP_HEADER = struct.Struct("!2sBBIQ")
_HISLIP_DATA = (6, 7)
_PORT = r"(127\.0\.0\.1(?:::hislip0,|::|:))(\d+)"


class RecordingProxy:
    """Stand between a client and the server at ``address``, passing bytes both ways.

    The address is a socket:// URL or a VISA socket, or a HiSLIP resource, of which only the messages are noted.
    """

    def __init__(self, address):
        self._target = int(re.search(_PORT, address)[2])
        self._in_messages = "hislip" in address
        self._sockets = []
        self._threads = []
        self.sent = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.address = re.sub(_PORT, rf"\g<1>{port}", address)
        self._start(self._accept)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def _start(self, run, *arguments):
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._sockets.append(end)
                self._start(self._pump, client, server, True)
                self._start(self._pump, server, client, False)

    def _pump(self, source, target, from_client):
        rest = b""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if from_client and self._in_messages:
                    payloads, rest = _messages(rest + data)
                    self.sent += payloads
                elif from_client:
                    self.sent += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def _messages(received):
    """Payloads of the HiSLIP messages that are data, and the beginning of a message that is not complete."""
    payloads = b""
    while len(received) >= _HISLIP_HEADER.size:
        _, kind, _, _, length = _HISLIP_HEADER.unpack_from(received)
        end = _HISLIP_HEADER.size + length
        if len(received) < end:
            break
        payloads += received[_HISLIP_HEADER.size : end] if kind in _HISLIP_DATA else b""
        received = received[end:]
    return payloads, received
