"""Simulated DiCon MEMS 1xN switch module on a serial line.

Commands end with CR. A reply starts with a newline, then the line follows. Where nothing is known of the hardware this
simulator decides: replies end with CR LF, and a command that it does not understand is ignored.
"""

import re
import threading

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._session import LineSession

_SWITCHING_S = 0.02
_SELECT = re.compile(r"I1\s+(\d{1,4})")
_LARGEST = 128


class SimulatedDiCon1xN:
    """A switch that brings one of N channels, or none, to a common port.

    Parameters
    ----------
    channels
        Number of channels N, 1..128.
    clock
        The mirror needs 20 ms on it; until then the common port is dark.

    Raises
    ------
    ConfigurationError
        If the number of channels is not possible.
    """

    def __init__(self, channels: int, clock: Clock) -> None:
        if not 1 <= channels <= _LARGEST:
            raise ConfigurationError(f"simulated DiCon switch: {channels} channels are not in 1..{_LARGEST}")
        self._channels = channels
        self._clock = clock
        self._lock = threading.RLock()
        self.restart()

    def open_session(self) -> LineSession:
        """Return a session for a new client."""
        return LineSession(self._answer)

    def restart(self) -> None:
        """Power up: parked."""
        self._position = 0
        self._ready_at = self._clock.now()

    def flood_errors(self, count: int) -> bytes:
        """Do nothing: the module has neither an error queue nor error lines for ``count`` errors."""
        del count
        return b""

    def passes(self, input_port: int, output_port: int) -> bool:
        """Tell whether light passes from a channel to the common port 0 now."""
        return output_port == 0 and self._position == input_port + 1 and self._clock.now() >= self._ready_at

    def _answer(self, line: str) -> bytes:
        command = line.upper()
        with self._lock:
            select = _SELECT.fullmatch(command)
            if select is not None and 1 <= int(select[1]) <= self._channels:
                self._move(int(select[1]))
            elif command == "PK":
                self._move(0)
            replies = {
                "ID?": f"DiCon Fiberoptics Inc, MEMS 1x{self._channels} Switch, firmware 1.05",
                "CF?": f"MEMS,1x{self._channels},{self._channels}",
                "I1?": str(self._position),
            }
        reply = replies.get(command)
        return b"" if reply is None else f"\n{reply}\r\n".encode("ascii")

    def _move(self, position: int) -> None:
        if position != self._position:
            self._position = position
            self._ready_at = self._clock.now() + _SWITCHING_S


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedDiCon1xN:
    return SimulatedDiCon1xN(spec.size, at.clock)


KIND = InstrumentKind("dicon_1xn", "switch", _build, "serial")
