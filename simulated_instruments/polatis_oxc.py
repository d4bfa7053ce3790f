"""Simulated Polatis optical cross-connect: ``:OXC`` tree over a socket, light that passes after the switching time.

Commands end with LF or CRLF, set commands are silent, and ports are answered in quotes. Where no transcript is known
this simulator decides: the size reads ``24,24``, the state ``(@1,2),(@17,18)``, and adding a connection to a port in
use is refused with -224.
"""

import math
import re
from collections.abc import Callable, Mapping

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._scpi import (
    DATA_TYPE_ERROR,
    ILLEGAL_VALUE,
    MISSING_PARAMETER,
    OUT_OF_RANGE,
    ErrorQueue,
    Handler,
    Reply,
    ScpiError,
    ScpiInterpreter,
    one_argument,
    plain,
    query,
)
from simulated_instruments._session import LineSession

_SWITCHING_S = 0.02
_LISTS = re.compile(r"\(@([\d,\s:]+)\)\s*,\s*\(@([\d,\s:]+)\)")
_DEVICE_ERROR = (-300, "Device-specific error")
_LARGEST = 384


class SimulatedPolatisOXC:
    """A cross-connect of N inputs (ports 1..N) and N outputs (N+1..2N).

    Parameters
    ----------
    size
        Number of inputs and of outputs, 1..384.
    clock
        Mirrors need 20 ms on it; until then the new way is dark.
    before_change
        Called just before connections change.

    Raises
    ------
    ConfigurationError
        If the size is not possible.
    """

    def __init__(self, size: int, clock: Clock, before_change: Callable[[], None] | None = None) -> None:
        if not 1 <= size <= _LARGEST:
            raise ConfigurationError(f"simulated Polatis switch: size {size} is not in 1..{_LARGEST}")
        self._size = size
        self._clock = clock
        self._before_change = before_change
        self._errors = ErrorQueue('%d,"%s"')
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\n")
        self.restart()

    def open_session(self) -> LineSession:
        """Return a session for a new client."""
        return self._interpreter.open_session()

    def restart(self) -> None:
        """Power up: no connections, no errors."""
        self._outputs: dict[int, int] = {}
        self._ready_at: dict[int, float] = {}
        self._errors.clear()

    def flood_errors(self, count: int) -> bytes:
        """Queue ``count`` errors; nothing is sent unasked."""
        for _ in range(count):
            self._errors.push(ScpiError(*_DEVICE_ERROR))
        return b""

    @property
    def settled_at(self) -> float:
        """Time in s on the clock at which all mirrors have settled, or had."""
        return max(self._ready_at.copy().values(), default=0.0)

    def passes(self, input_port: int, output_port: int, at_s: float | None = None) -> bool:
        """Tell whether light passes from an input to an output (0-based), now or at a time since the last change."""
        now, ingress = self._clock.now() if at_s is None else at_s, input_port + 1
        connected = self._outputs.get(ingress) == self._size + output_port + 1
        return connected and now >= self._ready_at.get(ingress, math.inf)

    def _commands(self) -> Mapping[str, Handler]:
        return {
            "OXC:SWITch:SIZE?": query(lambda: f"{self._size},{self._size}"),
            "OXC:SWITch:CONNect:ADD": plain(self._add),
            "OXC:SWITch:CONNect:SUB": plain(self._subtract),
            "OXC:SWITch:CONNect:ONLY": plain(self._only),
            "OXC:SWITch:CONNect:STATe?": query(self._state),
            "OXC:SWITch:CONNect:PORT?": plain(self._peer),
            "OXC:SWITch:DISConnect:ALL": query(self._outputs_clear),
            "SYSTem:ERRor[:NEXT]?": query(self._errors.pop),
            "SYSTem:ERRor:ALL?": query(self._all_errors),
            "*IDN?": query(lambda: f"Polatis,I-OST-{self._size}x{self._size}-LU1-DMHNS,002414,6.5.2.18"),
            "*OPC?": query(lambda: str(int(self._clock.now() >= self.settled_at))),
            "*CLS": query(self._errors.clear),
            "*RST": query(self._outputs_clear),
        }

    def _lists(self, arguments: list[str]) -> list[tuple[int, int]]:
        if not arguments:
            raise ScpiError(*MISSING_PARAMETER)
        match = _LISTS.fullmatch(",".join(arguments))
        if match is None:
            raise ScpiError(*DATA_TYPE_ERROR)
        inputs, outputs = _ports(match[1]), _ports(match[2])
        right = all(1 <= port <= self._size for port in inputs) and all(
            self._size < port <= 2 * self._size for port in outputs
        )
        if not right or len(inputs) != len(outputs):
            raise ScpiError(*OUT_OF_RANGE)
        if len(set(inputs)) < len(inputs) or len(set(outputs)) < len(outputs):
            raise ScpiError(*ILLEGAL_VALUE)
        return list(zip(inputs, outputs, strict=True))

    def _add(self, arguments: list[str]) -> Reply:
        pairs = self._lists(arguments)
        taken = set(self._outputs.values())
        if any(ingress in self._outputs or egress in taken for ingress, egress in pairs):
            raise ScpiError(*ILLEGAL_VALUE)
        self._connect(pairs)
        return None

    def _subtract(self, arguments: list[str]) -> Reply:
        pairs = self._lists(arguments)
        if any(self._outputs.get(ingress) != egress for ingress, egress in pairs):
            raise ScpiError(*ILLEGAL_VALUE)
        self._announce()
        for ingress, _ in pairs:
            del self._outputs[ingress], self._ready_at[ingress]
        return None

    def _only(self, arguments: list[str]) -> Reply:
        pairs = self._lists(arguments)
        self._outputs_clear()
        self._connect(pairs)
        return None

    def _announce(self) -> None:
        if self._before_change is not None:
            self._before_change()

    def _connect(self, pairs: list[tuple[int, int]]) -> None:
        self._announce()
        for ingress, egress in pairs:
            self._outputs[ingress] = egress
            self._ready_at[ingress] = self._clock.now() + _SWITCHING_S

    def _outputs_clear(self) -> None:
        self._announce()
        self._outputs.clear()
        self._ready_at.clear()

    def _state(self) -> Reply:
        pairs = sorted(self._outputs.items())
        return ",".join("(@" + ",".join(str(pair[k]) for pair in pairs) + ")" for k in (0, 1))

    def _peer(self, arguments: list[str]) -> Reply:
        text = one_argument(arguments)
        if not text.isdigit():
            raise ScpiError(*DATA_TYPE_ERROR)
        port = int(text)
        if not 1 <= port <= 2 * self._size:
            raise ScpiError(*OUT_OF_RANGE)
        inputs = {egress: ingress for ingress, egress in self._outputs.items()}
        peer = self._outputs.get(port, inputs.get(port))
        return '""' if peer is None else f'"{peer}"'

    def _all_errors(self) -> Reply:
        entries = [self._errors.pop()]
        while not entries[-1].startswith("0,"):
            entries.append(self._errors.pop())
        return ",".join(entries[:-1]) or entries[0]


def _ports(text: str) -> list[int]:
    """Numbers of a channel list such as ``1,2`` or ``1:4``."""
    ports: list[int] = []
    for item in text.split(","):
        first, _, last = item.strip().partition(":")
        if not first.isdigit() or (last and not last.isdigit()) or len(first) > 4 or len(last) > 4:
            raise ScpiError(*DATA_TYPE_ERROR)
        ports += range(int(first), int(last or first) + 1)
    return ports


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedPolatisOXC:
    return SimulatedPolatisOXC(spec.size, at.clock, at.chip.announce_change)


KIND = InstrumentKind("polatis_oxc", "switch", _build)
