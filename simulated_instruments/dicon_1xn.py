"""Simulated DiCon MEMS 1xN switch module on a serial line.

Commands end with CR. A reply starts with a newline, then the line follows. Where nothing is known of the hardware this
simulator decides: replies end with CR LF, and a command that it does not understand is ignored.
"""

import re
import threading
from collections.abc import Callable

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
    before_change
        Called just before the mirror moves.

    Raises
    ------
    ConfigurationError
        If the number of channels is not possible.
    """

    def __init__(self, channels: int, clock: Clock, before_change: Callable[[], None] | None = None) -> None:
        if not 1 <= channels <= _LARGEST:
            raise ConfigurationError(f"simulated DiCon switch: {channels} channels are not in 1..{_LARGEST}")
        self._channels = channels
        self._clock = clock
        self._before_change = before_change
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

    @property
    def settled_at(self) -> float:
        """Time in s on the clock at which the mirror has settled, or had."""
        return self._ready_at

    def passes(self, input_port: int, output_port: int, at_s: float | None = None) -> bool:
        """Tell whether light passes between a channel and the common port 0, now or at a time since the last move."""
        now = self._clock.now() if at_s is None else at_s
        return output_port == 0 and self._position == input_port + 1 and now >= self._ready_at

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
            if self._before_change is not None:
                self._before_change()
            self._position = position
            self._ready_at = self._clock.now() + _SWITCHING_S


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedDiCon1xN:
    return SimulatedDiCon1xN(spec.size, at.clock, at.chip.announce_change)


KIND = InstrumentKind("dicon_1xn", "switch", _build, "serial")
