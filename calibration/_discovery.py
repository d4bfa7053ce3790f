"""What discovery found: a verdict on every heater and detector, and what the chip can still do."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from calibration._discovery_electrical import ElectricalFindings
from calibration._discovery_map import ChannelMap
from optinc_hw.photonics import ChipLayout

HeaterState = Literal["ok", "swapped", "open", "short", "no effect", "not found", "untested"]
DetectorState = Literal["ok", "permuted", "dead", "untested"]
CRITERIA = (
    "an internal phase is found if, where light enters its MZI by one arm, at least two sweeps agree on a power at "
    "which a change behind one output has no effect: below 0.15 of its effect elsewhere, fringe residual below 0.15",
    "an external phase is found if it moves at least 0.15 of the light where both ways of a loop are lit, and less "
    "than half as much where light takes one way only",
    "a channel that chip.yaml has elsewhere needs three such sweeps, or twice 0.3 of the light",
    "external phases of MZIs with one lit input cannot be seen in powers: their channels must warm their neighbours "
    "(seen above the noise) and do nothing else (below 0.12 of the light)",
    "a detector is dead if its largest reading in random settings is below 0.01 of the median detector's",
)


@dataclass(frozen=True)
class HeaterVerdict:
    """What became of one heater of the chip.

    Parameters
    ----------
    name
        Its name in the chip's layout.
    state
        "ok": chip.yaml's channel moves its phase; "swapped": the channel of the heater ``driven_by`` does; "open",
        "short", "no effect": its own channel does nothing, and no other was found; "not found": its own channel acts
        on something else, or on what could not be told; "untested": light could not be led to it, chip.yaml is
        believed.
    driven_by
        Heater to whose channel in chip.yaml it really hangs; None if no channel was found.
    resistance_ohm
        Resistance of its channel in chip.yaml; NaN if not measured.
    """

    name: str
    state: HeaterState
    driven_by: str | None
    resistance_ohm: float


@dataclass(frozen=True)
class DetectorVerdict:
    """What became of one detector of the chip.

    Parameters
    ----------
    name
        Its name in the chip's layout.
    state
        "ok", "permuted" (the port of ``seen_by`` in chip.yaml sees its output), "dead", or "untested" (chip.yaml is
        believed). The two outputs of one MZI look the same in powers: chip.yaml is believed about their order.
    seen_by
        Detector whose port in chip.yaml sees its output; None if none does.
    """

    name: str
    state: DetectorState
    seen_by: str | None


@dataclass(frozen=True)
class Discovery:
    """Result of a discovery, for all heaters and detectors in the layout's order.

    Parameters
    ----------
    layout
        The chip.
    heaters, detectors
        Verdicts.
    map
        What moves what, in arrays.
    electrical
        Resistances, noise, settling and light, where they were measured.
    criteria
        By which rules.
    """

    layout: ChipLayout
    heaters: tuple[HeaterVerdict, ...]
    detectors: tuple[DetectorVerdict, ...]
    map: ChannelMap
    electrical: ElectricalFindings | None
    criteria: tuple[str, ...] = CRITERIA

    @property
    def lost(self) -> tuple[str, ...]:
        """Heaters whose phases cannot be moved."""
        return tuple(heater.name for heater in self.heaters if heater.driven_by is None)

    def to_json_dict(self) -> dict[str, Any]:  # JSON content
        """Return verdicts and summary as JSON content, with null for resistances that were not measured or infinite."""
        heaters = [asdict(verdict) for verdict in self.heaters]
        for row in heaters:
            if not math.isfinite(row["resistance_ohm"]):
                row["resistance_ohm"] = None
        return {
            "heaters": heaters,
            "detectors": [asdict(verdict) for verdict in self.detectors],
            "summary": self.summary.splitlines(),
            "criteria": list(self.criteria),
            "readings": self.map.readings,
        }

    @property
    def summary(self) -> str:
        """What was found and what the chip can still do, as text."""
        return "\n".join((*_findings(self), *_abilities(self)))


def judge(layout: ChipLayout, found: ChannelMap, electrical: ElectricalFindings | None = None) -> Discovery:
    """Turn the maps of a discovery into verdicts.

    Parameters
    ----------
    layout
        The chip.
    found
        Which channel moves which phase.
    electrical
        What was found before, if anything.
    """
    names = layout.heaters
    nothing = np.full(len(names), np.nan)
    ohm = nothing if electrical is None else electrical.resistance_ohm
    heaters = []
    for k, name in enumerate(names):
        channel = int(found.channel[k])
        driven_by = names[channel] if channel >= 0 else None
        state = _heater_state(k, found, electrical)
        heaters.append(HeaterVerdict(name, state, driven_by, float(ohm[k])))
    return Discovery(layout, tuple(heaters), _detectors(layout, found), found, electrical)


def _heater_state(heater: int, found: ChannelMap, electrical: ElectricalFindings | None) -> HeaterState:
    channel = int(found.channel[heater])
    if channel >= 0 and channel != heater:
        return "swapped"
    if channel == heater:
        return "ok" if found.tested[heater] else "untested"
    if electrical is not None and electrical.state[heater] != "ok":
        return electrical.state[heater]
    return "not found" if found.acts[heater] else "no effect"


def _detectors(layout: ChipLayout, found: ChannelMap) -> tuple[DetectorVerdict, ...]:
    names, sees = layout.detectors, found.sees.tolist()
    verdicts = []
    for output, name in enumerate(names):
        state: DetectorState = "ok"
        seen_by: str | None = name
        if output in sees:
            seen_by = names[sees.index(output)]
            state = "ok" if seen_by == name else "permuted"
        elif found.dead_detectors[output] or sees[output] not in (-1, output):
            state, seen_by = "dead", None
        else:
            state = "untested"
        verdicts.append(DetectorVerdict(name, state, seen_by))
    return tuple(verdicts)


def _findings(discovery: Discovery) -> list[str]:
    lines = []
    for verdict in discovery.heaters:
        if verdict.state == "swapped":
            lines.append(f"{verdict.name}: swapped, it hangs on the channel of {verdict.driven_by}")
        elif verdict.state == "not found":
            lines.append(f"{verdict.name}: its channel acts on something else, and no channel was found that moves it")
        elif verdict.state == "no effect":
            lines.append(f"{verdict.name}: no effect, its channel moves no phase")
        elif verdict.state in ("open", "short"):
            lines.append(f"{verdict.name}: {verdict.state} ({verdict.resistance_ohm:.4g} ohm)")
        elif verdict.state == "untested":
            lines.append(f"{verdict.name}: could not be tested because of others; taken as in chip.yaml")
    for detector in discovery.detectors:
        if detector.state == "permuted":
            lines.append(f"{detector.name}: permuted, the port of {detector.seen_by} sees this output")
        elif detector.state != "ok":
            lines.append(f"{detector.name}: {detector.state}")
    if discovery.electrical is not None:
        lines += discovery.electrical.complaints
    return lines or ["everything is as chip.yaml says"]


def _abilities(discovery: Discovery) -> list[str]:
    layout = discovery.layout
    lost = set(discovery.lost)
    lines = [f"{len(layout.heaters) - len(lost)} of {len(layout.heaters)} phases can be moved"]
    thetas = []
    for k, (column, mode) in enumerate(layout.mesh.mzis):
        theta, phi = layout.heaters[layout.mesh_theta[k]], layout.heaters[layout.mesh_phi[k]]
        if theta in lost:
            thetas.append((column, mode))
            lines.append(f"mzi_{column}_{mode} has a fixed split between modes {mode} and {mode + 1}")
        if phi in lost:
            lines.append(f"mzi_{column}_{mode} has a fixed external phase")
    dark = [v.name for v in discovery.detectors if v.state == "dead"]
    lines += [f"the output of {name} is not seen; the others' readings tell the rest" for name in dark]
    if thetas or lost:
        lines.append(
            "state them under mesh.stuck in chip.yaml once calibration has found their phases: programming then "
            "works around them"
        )
    return lines
