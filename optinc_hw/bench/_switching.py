"""Detectors behind optical switches: which of them can be read together, and the connections that they need."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optinc_hw.bench._inputs_section import SwitchEntry
from optinc_hw.bench.chip_file import DetectorEntry
from optinc_hw.errors import DeviceError

if TYPE_CHECKING:
    from drivers.protocols import Switch

log = logging.getLogger(__name__)


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
        """Make all ``routes`` stand; what stands already is asked for and not sent again.

        A switch that has restarted, or that somebody else has used, would let dark ports be read as if they were lit.

        Raises
        ------
        InstrumentError
            If a switch failed; its connections then count as unknown.
        """
        self._confirm({route.instrument for route in routes if route in self._standing})
        for route in routes:
            if route in self._standing:
                continue
            # Connecting drops whatever either port was connected with.
            self._standing = {other for other in self._standing if not other.collides(route)}
            with self._doubting(route.instrument):
                self._switches[route.instrument].connect(route.input, route.output)
            self._standing.add(route)

    def disconnect(self, ways: Iterable[SwitchEntry]) -> None:
        """Let light pass none of the ``ways``, whatever has been known of them.

        Raises
        ------
        InstrumentError
            If a switch failed or lets light pass nevertheless.
        """
        wanted = set(ways)
        for way in sorted(self.standing(wanted), key=str):
            self._standing.discard(way)
            with self._doubting(way.instrument):
                self._switches[way.instrument].disconnect(way.input)
        left = self.standing(wanted)
        if left:
            raise DeviceError(
                f"{left[0].instrument}: light still passes {', '.join(map(str, left))} although that was disconnected; "
                f"check that nobody else uses the switch"
            )

    def standing(self, ways: Iterable[SwitchEntry]) -> list[SwitchEntry]:
        """Ask which of the ``ways`` stand at present."""
        wanted = list(ways)
        found: dict[str, Mapping[int, int]] = {}
        for name in sorted({way.instrument for way in wanted}):
            with self._doubting(name):
                found[name] = self._switches[name].connections()
        return [way for way in wanted if _stands(way, found[way.instrument])]

    def _confirm(self, names: set[str]) -> None:
        """Forget connections of switches that do not stand any more."""
        for name in sorted(names):
            with self._doubting(name):
                found = self._switches[name].connections()
            gone = {route for route in self._standing if route.instrument == name and not _stands(route, found)}
            if gone:
                shown = ", ".join(f"{route.input} to {route.output}" for route in sorted(gone, key=lambda r: r.input))
                log.warning("%s: connections do not stand any more (%s); they are made again", name, shown)
                self._standing -= gone

    @contextmanager
    def _doubting(self, name: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._standing = {other for other in self._standing if other.instrument != name}
            raise


def _stands(route: SwitchEntry, found: Mapping[int, int]) -> bool:
    return found.get(route.input) == route.output
