"""Which photodiode each port of a meter sees, with or without an optical switch in between."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class ConnectsPorts(Protocol):
    """What a simulated switch offers to the light."""

    def passes(self, input_port: int, output_port: int) -> bool:
        """Tell whether light passes from an input to an output (0-based) at this moment."""
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
