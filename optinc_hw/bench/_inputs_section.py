"""The inputs in ``chip.yaml``: modulators on the chip, or ways of the laser's light to one input port at a time."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from optinc_hw.bench._problems import Name, Problems

MODULATORS = "modulators"


class SwitchEntry(BaseModel):
    """A way through an optical switch; light may take it in either direction."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    instrument: Name = Field(description="the name of a switch in station.yaml")
    input: Annotated[int, Field(ge=0)] = Field(description="the input port of that switch, counted from 0")
    output: Annotated[int, Field(ge=0)] = Field(default=0, description="its output port, counted from 0")

    def collides(self, other: "SwitchEntry") -> bool:
        """Tell whether the two ways need the same port of one switch."""
        return self.instrument == other.instrument and (self.input == other.input or self.output == other.output)

    def __str__(self) -> str:
        return f"{self.instrument}[{self.input} -> {self.output}]"


class InputEntry(BaseModel):
    """How the laser's light gets to one input port of the mesh."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    switch: SwitchEntry | None = Field(
        default=None,
        description="a mapping with instrument, input, output: the way through a switch to that port; none if the "
        "laser is fixed to it",
    )


def _ways_or_modulators(value: Any) -> Any:  # Any: whatever YAML can hold
    if value == MODULATORS:
        return None
    if not isinstance(value, dict):
        raise ValueError("is neither modulators nor a mapping")
    return value


Inputs = Annotated[
    dict[Annotated[int, Field(ge=0)], InputEntry] | None,
    BeforeValidator(_ways_or_modulators),
    Field(
        description="modulators, or a mapping from input port (counted from 0) to its entry, such as "
        "0: {switch: {instrument: input_switch, input: 0, output: 0}}",
    ),
]
"""Entry of each port that can be lit; None for a chip with input modulators."""


def check_inputs(
    ways: Mapping[int, InputEntry], detectors: Mapping[str, SwitchEntry], ports: int, path: Path, problems: Problems
) -> None:
    """Check that exactly one port at a time can be lit by each of ``ways``, and that no detector needs their places.

    Parameters
    ----------
    ways
        Entries by input port.
    detectors
        Way through a switch of each detector that has one.
    ports
        Ports of the chip.
    path
        The chip file.
    problems
        Gets what is wrong.
    """
    if not ways:
        problems.add(path, "inputs", "no port can be lit", f"add an entry for each port, or write {MODULATORS}")
    for port in ways:
        if port >= ports:
            problems.add(
                path, f"inputs.{port}", f"a chip of {ports} ports has no input port {port}",
                f"give a port from 0 to {ports - 1}",
            )  # fmt: skip
    fixed = [port for port, entry in ways.items() if entry.switch is None]
    for port in fixed if len(ways) > 1 else ():
        problems.add(
            path,
            f"inputs.{port}",
            "the laser cannot be fixed to this port and reach others too",
            "add the way through the switch (switch: instrument, input, output), or remove all other ports",
        )
    switched = {port: entry.switch for port, entry in ways.items() if entry.switch is not None}
    _check_exclusive(switched, path, problems)
    for port, way in switched.items():
        for name, other in detectors.items():
            if way.collides(other):
                problems.add(
                    path,
                    f"inputs.{port}.switch",
                    f"{way} needs a port of the switch that detectors.{name} needs too ({other})",
                    "give each its own ports of the switch, or a switch of its own",
                )
                break


def _check_exclusive(ways: Mapping[int, SwitchEntry], path: Path, problems: Problems) -> None:
    """Ways to different ports differ, and have the port of one switch in common that the laser is on."""
    for (first, one), (second, other) in combinations(sorted(ways.items()), 2):
        if one == other:
            problems.add(
                path, f"inputs.{second}.switch", f"{other} is already used by inputs.{first}",
                "give each port of the chip its own port of the switch",
            )  # fmt: skip
    shared_input = len({(way.instrument, way.input) for way in ways.values()}) == 1
    shared_output = len({(way.instrument, way.output) for way in ways.values()}) == 1
    if ways and not (shared_input or shared_output):
        problems.add(
            path,
            "inputs",
            f"the ways {', '.join(str(way) for way in list(ways.values())[:3])}"
            f"{', ...' if len(ways) > 3 else ''} have no port of a switch in common, on which the laser could be",
            "let all ways begin at one port: the same instrument and the same input, or the same output",
        )
