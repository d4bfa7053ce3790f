"""Instruments that are reached within this process, by a URL that pyserial resolves."""

import itertools
import threading

import serial

from simulated_instruments._session import SimulatedInstrument

_HANDLERS = "simulated_instruments._serial_urls"
_SCHEME = "simulated"

_lock = threading.Lock()
_numbers = itertools.count(1)
_instruments: dict[str, SimulatedInstrument] = {}  # what sockets are to processes: names that clients can find


class InProcessPort:
    """Makes one simulated instrument reachable at an URL until it is closed.

    Parameters
    ----------
    instrument
        Its state outlives connections.
    """

    def __init__(self, instrument: SimulatedInstrument) -> None:
        with _lock:
            if _HANDLERS not in serial.protocol_handler_packages:
                serial.protocol_handler_packages.append(_HANDLERS)
            self.url = f"{_SCHEME}://{next(_numbers)}"
            _instruments[self.url] = instrument

    def close(self) -> None:
        """Take the instrument away; may be called twice."""
        with _lock:
            _instruments.pop(self.url, None)


def instrument_at(url: str) -> SimulatedInstrument | None:
    """Return the instrument at an URL, None if there is none."""
    with _lock:
        return _instruments.get(url)
