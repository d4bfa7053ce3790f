"""Which photodiode each port of a meter sees, and which input port of the chip is lit, with switches in between."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class ConnectsPorts(Protocol):
    """What a simulated switch offers to the light."""

    @property
    def settled_at(self) -> float:
        """Time in s on the clock at which all mirrors have settled, or had."""
        ...

    def passes(self, input_port: int, output_port: int, at_s: float | None = None) -> bool:
        """Tell whether light passes from an input to an output (0-based), now or at a time since the last change."""
        ...


@dataclass(frozen=True)
class SwitchPath:
    """A way through an optical switch.

    Parameters
    ----------
    switch
        Name of the switch.
    input, output
        0-based ports.
    """

    switch: str
    input: int
    output: int


@dataclass(frozen=True)
class LightPath:
    """One detector before a port: always, or while ``switch`` connects ``path``."""

    detector: int
    path: SwitchPath | None = None
    switch: ConnectsPorts | None = None

    @property
    def open(self) -> bool:
        """Whether light passes now."""
        return self.path is None or (self.switch is not None and self.switch.passes(self.path.input, self.path.output))


class SeenDetectors(Mapping[int, int]):
    """Detector index by port, of the ports that see one at the moment of looking.

    Parameters
    ----------
    paths
        Light paths that end at each port.
    """

    def __init__(self, paths: Mapping[int, Sequence[LightPath]]) -> None:
        self._paths = paths

    def __getitem__(self, port: int) -> int:
        for path in self._paths[port]:
            if path.open:
                return path.detector
        raise KeyError(port)

    def __iter__(self) -> Iterator[int]:
        return (port for port, paths in self._paths.items() if any(path.open for path in paths))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class SwitchedInput:
    """The input port of the chip that the laser lights, by the way through one optical switch to each.

    Parameters
    ----------
    paths
        Input port of the chip, input and output of the switch; of all ways one at most is open at a time.
    switch
        The switch.
    """

    paths: Sequence[tuple[int, SwitchPath]]
    switch: ConnectsPorts

    def lit_at(self, time_s: float) -> int | None:
        """Return the port that is lit at a time in s, not before the switch's last change; None if all are dark."""
        for port, path in self.paths:
            if self.switch.passes(path.input, path.output, time_s):
                return port
        return None

    def steady_until(self, time_s: float) -> float:
        """Return the time in s until which the light stays where it is at ``time_s``, if nobody moves the switch."""
        settled = self.switch.settled_at
        return settled if time_s < settled else math.inf
