"""Scripts of the Qontrol driver's conversations, byte for byte."""

import contextlib

from _scripted_link import ScriptServer

from drivers import QontrolQ8iv
from optinc_hw.clock import SimulatedClock

OK = b"OK\n"
FIRMWARE = (b"FIRMWARE?\n", b"v2.4.1\n")
FIND = [(b"ID?\n", b"Q8iv-0001\n"), FIRMWARE]


def chain_steps(modules=1, kind=b"Q8iv", full=b"+24.0000 mA\n"):
    chain = b"".join(b"%s-%04X: %d\n" % (kind, module + 1, module) for module in range(modules))
    scale = [(b"VFULLALL?\n", b"+12.0000 V\n" * modules), (b"IFULLALL?\n", full * modules)]
    return [(b"NUPALL?\n", chain), *scale, (b"NUPALL?\n", chain)]


def connect_steps(modules=1):
    return [*FIND, *chain_steps(modules)]


def lines(values, unit, count=8):
    values = dict(enumerate(values)) if not isinstance(values, dict) else values
    return b"".join(b"%+.4f %s\n" % (values.get(channel, 0.0), unit) for channel in range(count))


def vall(*values, count=8):
    return (b"VALL?\n", lines(values, b"V", count))


def iall(*values, count=8):
    return (b"IALL?\n", lines(values, b"mA", count))


ZEROS = ",".join(["0.00000"] * 8)


def vvec(text, reply=OK):
    return (f"VVEC{text}\n".encode(), reply)


@contextlib.contextmanager
def chain_on(*steps, modules=1, timeout=5.0, driver=QontrolQ8iv, connect=None, **kwargs):
    """A connected driver with a script behind it; leaving closes the driver and checks the script."""
    with ScriptServer(*(connect or connect_steps(modules)), *steps) as server:
        chain = driver("heaters", server.serial_url, modules=modules, timeout=timeout, **kwargs)
        chain.clock = SimulatedClock()
        try:
            yield chain
        finally:
            chain.close()


SAFE = [vall(), vvec(f"0={ZEROS}"), vall()]
"""Leaving the session when the outputs read 0 V already."""
