"""Which heater, detector and laser hangs on which instrument of a simulated bench."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._kind import InstrumentRole, InstrumentSpec
from simulated_instruments._kinds import KINDS
from simulated_instruments._light_paths import ConnectsPorts, LightPath, SeenDetectors, SwitchedInput, SwitchPath

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
    inputs
        Way from the laser to input ports of a chip without modulators: through an optical switch, or None for the one
        port to which the laser's fibre goes. A port left out stays dark.
    """

    heaters: Mapping[str, tuple[str, int]]
    detectors: Mapping[str, tuple[str, int]]
    laser: str
    switched: Mapping[str, SwitchPath] = field(default_factory=dict)
    inputs: Mapping[int, SwitchPath | None] = field(default_factory=dict)


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
        _check_switch(f"{what} {name}", way_in, specs)
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


def _check_switch(what: str, path: SwitchPath, specs: Mapping[str, InstrumentSpec]) -> None:
    if path.switch not in specs or KINDS[specs[path.switch].kind].role != "switch":
        raise ConfigurationError(f"simulated bench: {what} is behind {path.switch!r}, which is no switch")


def check_inputs(
    inputs: Mapping[int, SwitchPath | None], layout: ChipLayout, specs: Mapping[str, InstrumentSpec]
) -> None:
    """Raise ConfigurationError unless the laser can light the input ports of the chip one at a time."""
    if inputs and layout.modulators:
        raise ConfigurationError(
            "simulated bench: the chip has modulators, which the laser lights all at once; wire no input ports"
        )
    for port, path in inputs.items():
        if not 0 <= port < layout.ports:
            raise ConfigurationError(f"simulated bench: the chip has no input port {port!r}")
        if path is not None:
            _check_switch(f"input port {port}", path, specs)
    for one, other in combinations(inputs, 2):
        if not _share_a_mirror(inputs[one], inputs[other]):
            raise ConfigurationError(
                f"simulated bench: one laser cannot reach input ports {one} and {other}; give ways through one switch "
                f"that share its input or its output"
            )


def _share_a_mirror(one: SwitchPath | None, other: SwitchPath | None) -> bool:
    """Tell whether two ways begin or end at the same port of one switch, so that only one of them can be open."""
    return (
        _exclusive(one, other)
        and one is not None
        and other is not None
        and (one.input == other.input or one.output == other.output)
    )


def input_course(
    inputs: Mapping[int, SwitchPath | None], switches: Mapping[str, ConnectsPorts]
) -> SwitchedInput | None:
    """Return what tells which input port is lit as the switch stands; None if there is no switch on the way."""
    paths = [(port, path) for port, path in inputs.items() if path is not None]
    return SwitchedInput(paths, switches[paths[0][1].switch]) if paths else None


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
