"""A small instrument that is none of ours, behind a link with faults, and a plain client."""

import socket

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments._fault_link import FaultyInstrument
from simulated_instruments._session import LineSession
from simulated_instruments._tcp import TcpServer
from simulated_instruments.faults import BenchFaults

_PATIENCE_S = 10.0


class Box:
    """``SET n`` keeps a number silently, ``GET?`` tells it, ``*IDN?`` tells a name, anything else nothing."""

    def __init__(self, name="box"):
        self.name, self.value, self.heard = name, 0, []

    def open_session(self):
        return LineSession(self._answer)

    def restart(self):
        self.value = 0

    def flood_errors(self, count):
        return b"ERR\n" * count

    def _answer(self, line):
        self.heard.append(line)
        if line.startswith("SET "):
            self.value = int(line[4:])
        return {"GET?": b"%d\r\n" % self.value, "*IDN?": b"Acme,%s,1,2\r\n" % self.name.encode()}.get(line, b"")


class NoChip:
    def inject(self, fault, *, after_s, for_s):
        raise ConfigurationError("no chip here")

    def heal(self):
        """Nothing is ill."""


class Served:
    """Boxes behind links on TCP."""

    def __init__(self, *names):
        self.clock = SimulatedClock()
        self.boxes = {name: Box(name) for name in names}
        self.links = {name: FaultyInstrument(box, self.clock) for name, box in self.boxes.items()}
        self.servers = {name: TcpServer(link, name) for name, link in self.links.items()}
        self.faults = BenchFaults(self.links, NoChip(), self.clock)
        self.box, self.clients = self.boxes[names[0]], []

    def connect(self, name="box"):
        client = socket.create_connection(("127.0.0.1", self.servers[name].port), timeout=5.0)
        self.clients.append(client)
        return client

    def wait_for(self, fault, hits):
        """Wait until faults, all of one kind, have hit the box as often as told."""
        assert self.faults.wait_for("box", hits, _PATIENCE_S), f"{fault} did not come {hits} times"
        assert self.faults.counts()["box"] == {fault: hits}

    def close(self):
        for client in self.clients:
            client.close()
        for name, server in self.servers.items():
            self.links[name].close()
            server.close()


def read(client, count):
    """Read exactly ``count`` bytes, and nothing of what may follow."""
    data = b""
    while len(data) < count:
        part = client.recv(count - len(data))
        assert part, f"the server hung up after {data!r}"
        data += part
    return data


def ask(client, command, expected):
    """Send a command and check every byte of what comes back, before the answer to a second one."""
    client.sendall(command)
    assert read(client, len(expected)) == expected


def check_in_step(client, value):
    """Check that nothing is left on the way: the next answer is the next answer."""
    ask(client, b"GET?\n", b"%d\r\n" % value)


def hung_up(client):
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


def refused(served):
    """Tell whether a new client is cut off, while or after it connects."""
    try:
        return hung_up(served.connect())
    except ConnectionError:
        return True
