"""Which heater, detector and laser hangs on which instrument of a simulated bench."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from optinc_hw.errors import ConfigurationError
from simulated_instruments._kind import InstrumentRole, InstrumentSpec
from simulated_instruments._kinds import KINDS
from simulated_instruments._light_paths import ConnectsPorts, LightPath, SeenDetectors, SwitchPath

Way = tuple[int, SwitchPath | None]
"""Index of a heater or detector, and its way through a switch."""


@dataclass(frozen=True)
class BenchWiring:
    """What hangs on what; channels and ports are 0-based.

    Parameters
    ----------
    heaters
        (instrument, channel) of each heater name. A heater left out stays cold.
    detectors
        (instrument, port) of each detector name. A detector left out is not read.
    laser
        Name of the laser that lights the chip.
    switched
        The way through an optical switch of each detector name that has a switch before its port. Detectors may share
        a port if their ways through one switch differ.
    """

    heaters: Mapping[str, tuple[str, int]]
    detectors: Mapping[str, tuple[str, int]]
    laser: str
    switched: Mapping[str, SwitchPath] = field(default_factory=dict)


def by_name(instruments: Sequence[InstrumentSpec]) -> dict[str, InstrumentSpec]:
    """Return specifications by name; raise ConfigurationError if a name occurs twice or a kind is unknown."""
    specs = {spec.name: spec for spec in instruments}
    if len(specs) != len(instruments):
        raise ConfigurationError("simulated bench: two instruments have the same name")
    for spec in instruments:
        if spec.kind not in KINDS:
            raise ConfigurationError(
                f"simulated bench: instrument {spec.name!r} of kind {spec.kind!r} is not possible; kinds are "
                f"{', '.join(sorted(KINDS))}"
            )
    return specs


def check_laser(name: str, specs: Mapping[str, InstrumentSpec]) -> None:
    """Raise ConfigurationError unless ``name`` is the only laser."""
    lasers = [spec.name for spec in specs.values() if KINDS[spec.kind].role == "laser"]
    if lasers != [name]:
        raise ConfigurationError(
            f"simulated bench: laser {name!r} must be the one laser of the bench; its lasers are {lasers}"
        )


def wired_channels(
    what: str,
    wiring: Mapping[str, tuple[str, int]],
    names: Sequence[str],
    specs: Mapping[str, InstrumentSpec],
    role: InstrumentRole,
    switched: Mapping[str, SwitchPath],
) -> dict[str, dict[int, list[Way]]]:
    """Turn wiring by name into, per instrument, the chip's indices on each channel."""
    index = {name: k for k, name in enumerate(names)}
    for name, way_in in switched.items():
        if name not in wiring:
            raise ConfigurationError(f"simulated bench: switched {what} {name!r} is not wired")
        if way_in.switch not in specs or KINDS[specs[way_in.switch].kind].role != "switch":
            raise ConfigurationError(f"simulated bench: {what} {name} is behind {way_in.switch!r}, which is no switch")
    result: dict[str, dict[int, list[Way]]] = {}
    for name, (instrument, channel) in wiring.items():
        if name not in index:
            raise ConfigurationError(f"simulated bench: the chip has no {what} {name!r}")
        if instrument not in specs or KINDS[specs[instrument].kind].role != role:
            raise ConfigurationError(
                f"simulated bench: {what} {name} hangs on {instrument!r}, which is no instrument for {what}s"
            )
        ways = result.setdefault(instrument, {}).setdefault(channel, [])
        way = (index[name], switched.get(name))
        for other, path in ways:
            if not _exclusive(way[1], path):
                raise ConfigurationError(
                    f"simulated bench: {what}s {names[other]} and {name} share channel {channel} of {instrument}"
                )
        ways.append(way)
    return result


def _exclusive(one: SwitchPath | None, other: SwitchPath | None) -> bool:
    """Tell whether two ways to one port cannot be open together."""
    return one is not None and other is not None and one.switch == other.switch and one != other


def seen_detectors(ports: Mapping[int, list[Way]], switches: Mapping[str, ConnectsPorts]) -> Mapping[int, int]:
    """Detector index by port of a meter: fixed, or as switches stand at the moment."""
    if all(path is None for ways in ports.values() for _, path in ways):
        return {port: detector for port, [(detector, _)] in ports.items()}
    return SeenDetectors(
        {
            port: [
                LightPath(detector, path, None if path is None else switches[path.switch]) for detector, path in ways
            ]
            for port, ways in ports.items()
        }
    )
