"""Detectors behind optical switches: which of them can be read together, and the connections that they need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optinc_hw.bench.chip_file import DetectorEntry, SwitchEntry
from optinc_hw.errors import InstrumentError

if TYPE_CHECKING:
    from drivers.protocols import Switch


@dataclass(frozen=True)
class ReadingPass:
    """Detectors that are read at once, and what the switches must connect for that.

    Parameters
    ----------
    routes
        Connections that must stand.
    ports, elements
        By meter: ports to keep of its reading, and positions of their detectors in the layout's order, intp (k,).
    """

    routes: tuple[SwitchEntry, ...]
    ports: Mapping[str, NDArray[np.intp]]
    elements: Mapping[str, NDArray[np.intp]]


def plan_passes(detectors: Sequence[DetectorEntry]) -> tuple[ReadingPass, ...]:
    """Distribute detectors, in the layout's order, over as few readings as a greedy choice finds.

    Detectors without a switch are read in the first one. Two detectors share a reading if they need neither the same
    port of a meter nor the same port of a switch.
    """
    passes: list[tuple[set[tuple[str, ...]], list[int]]] = []
    for element, entry in enumerate(detectors):
        needed = _places(entry)
        for taken, members in passes:
            if not taken & needed:
                taken |= needed
                members.append(element)
                break
        else:
            passes.append((needed, [element]))
    return tuple(_reading_pass(detectors, members) for _, members in passes)


def _places(entry: DetectorEntry) -> set[tuple[str, ...]]:
    places: set[tuple[str, ...]] = {("meter", entry.instrument, str(entry.port))}
    if entry.switch is not None:
        places.add(("input", entry.switch.instrument, str(entry.switch.input)))
        places.add(("output", entry.switch.instrument, str(entry.switch.output)))
    return places


def _reading_pass(detectors: Sequence[DetectorEntry], members: Sequence[int]) -> ReadingPass:
    by_meter: dict[str, list[int]] = {}
    for element in members:
        by_meter.setdefault(detectors[element].instrument, []).append(element)
    return ReadingPass(
        tuple(route for element in members if (route := detectors[element].switch) is not None),
        {name: np.array([detectors[e].port for e in found], dtype=np.intp) for name, found in by_meter.items()},
        {name: np.array(found, dtype=np.intp) for name, found in by_meter.items()},
    )


class SwitchDrive:
    """Brings switches into the positions that a reading needs, and remembers how they stand.

    Parameters
    ----------
    switches
        Switches by instrument name.
    """

    def __init__(self, switches: "Mapping[str, Switch]") -> None:
        self._switches = switches
        self._standing: set[SwitchEntry] = set()

    def forget(self) -> None:
        """Take no connection for granted any more."""
        self._standing.clear()

    def connect(self, routes: Sequence[SwitchEntry]) -> None:
        """Make all ``routes`` stand; what stands already is not sent again.

        Raises
        ------
        InstrumentError
            If a switch failed; its connections then count as unknown.
        """
        for route in routes:
            if route in self._standing:
                continue
            # Connecting drops whatever either port was connected with.
            self._standing = {other for other in self._standing if not other.collides(route)}
            try:
                self._switches[route.instrument].connect(route.input, route.output)
            except InstrumentError:
                self._standing = {other for other in self._standing if other.instrument != route.instrument}
                raise
            self._standing.add(route)
