"""What discovery found: a verdict on every heater and detector, and what the chip can still do."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from calibration._abilities import abilities
from calibration._discovery_channels import UNSHARP
from calibration._discovery_electrical import ElectricalFindings
from calibration._discovery_heat import HEARD_CHI, SILENT_CHI
from calibration._discovery_map import ChannelMap
from calibration._discovery_placing import HEAT_LIKELIHOOD
from calibration._discovery_resistances import LEAST_OHM
from calibration._discovery_steps import EXPLAINED, LOG_LIKELIHOOD, MARGIN
from optinc_hw.photonics import ChipLayout

HeaterState = Literal["ok", "swapped", "open", "short", "stuck", "no effect", "not found", "undecided"]
DetectorState = Literal["ok", "permuted", "dead", "untested"]
CRITERIA = (
    f"a twin with couplers, losses and crosstalk, fitted to what is believed, must predict random settings in which "
    f"all of that moves, and which it has not seen, to a mean total variation distance of {UNSHARP:g}; otherwise "
    "nothing is decided",
    f"a channel moves a phase if that phase leaves less than {EXPLAINED:g} of the squared effect of the channel's "
    f"steps unexplained, and every other phase at least {MARGIN:g} times more and is less likely by "
    f"{LOG_LIKELIHOOD:g} in the logarithm, counting half of the powers read as independent",
    "a channel that chip.yaml has elsewhere must pass the same in settings that no fit has seen",
    f"a channel does nothing if its effect is below {SILENT_CHI:g} times the noise, and something above {HEARD_CHI:g}",
    "external phases of the first column turn all the light of one input, which powers do not show: their channels "
    f"must warm the mesh, and not be likelier by {LOG_LIKELIHOOD:g} in the logarithm at another place; one that hangs "
    f"elsewhere must be likelier by {HEAT_LIKELIHOOD:g} there than at any other place that is left",
    "a detector is dead if its largest reading in random settings is below 0.01 of the median detector's, or if it "
    "reads the same in all of them",
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
        "short", "no effect": its own channel does nothing, and no other was found; "stuck": stated under mesh.stuck, so
        that its channel was not driven, and no other was found; "not found": its own channel moves
        another phase, and none was found that moves this one; "undecided": readings do not tell.
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
        believed, unless its detector was found elsewhere). The two outputs of one MZI look the same in powers:
        chip.yaml is believed about their order.
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
    if channel < 0 and electrical is not None and electrical.state[heater] != "ok":
        return electrical.state[heater]
    if found.undecided[heater]:
        return "undecided"
    if channel == heater:
        return "ok"
    return "not found" if found.acts[heater] else "no effect"


def _detectors(layout: ChipLayout, found: ChannelMap) -> tuple[DetectorVerdict, ...]:
    names, sees = layout.detectors, found.sees.tolist()
    exchanged = [d for d, output in enumerate(sees) if output == -1 and d in sees and not found.dead_detectors[d]]
    verdicts = []
    for output, name in enumerate(names):
        state: DetectorState = "ok"
        seen_by: str | None = name
        if output in sees:
            seen_by = names[sees.index(output)]
            state = "ok" if seen_by == name else "permuted"
        elif found.dead_detectors[output]:
            state, seen_by = "dead", None
        elif sees[output] not in (-1, output):  # the detector that changed places with its own
            state, seen_by = "untested" if exchanged else "dead", None
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
            ohm = verdict.resistance_ohm
            size = f"{ohm:.4g} ohm" if ohm > 0.0 else f"below {LEAST_OHM:g} ohm"
            lines.append(f"{verdict.name}: {verdict.state} ({size})")
        elif verdict.state == "undecided":
            left = "left as in chip.yaml" if verdict.driven_by is not None else "nothing was found that moves it"
            lines.append(f"{verdict.name}: undecided, {left}")
    for detector in discovery.detectors:
        if detector.state == "permuted":
            lines.append(f"{detector.name}: permuted, the port of {detector.seen_by} sees this output")
        elif detector.state != "ok":
            lines.append(f"{detector.name}: {detector.state}")
    if discovery.electrical is not None:
        lines += discovery.electrical.complaints
    return lines or ["everything is as chip.yaml says"]


def _abilities(discovery: Discovery) -> list[str]:
    layout, lost = discovery.layout, discovery.lost
    fixed = np.array([name in lost for name in layout.heaters])
    dark = [v.name for v in discovery.detectors if v.state == "dead"]
    lines = list(abilities(layout, fixed, dark))
    undecided = [v.name for v in discovery.heaters if v.state == "undecided"]
    if undecided:
        lines.append(
            f"{len(undecided)} heaters are undecided: discover again with another seed, which takes other settings, "
            "before their wiring is changed"
        )
    if lost:
        lines.append("calibration finds the phases at which they stand still, and programming works around them")
    shorted = [v.name for v in discovery.heaters if v.state == "short"]
    if shorted:
        lines.append(
            f"never drive {', '.join(shorted)}: state them under mesh.stuck in chip.yaml first, at any phase; "
            "calibration finds it"
        )
    lines += [
        f"never drive the channel of {name}, which is shorted, although {name} hangs elsewhere: exchange the channels "
        "by hand, and state the heater that gets this one under mesh.stuck in chip.yaml, at any phase"
        for name in _elsewhere_shorted(discovery)
    ]
    return lines


def _elsewhere_shorted(discovery: Discovery) -> list[str]:
    """Heaters that hang elsewhere, and whose channels in chip.yaml are shorted."""
    electrical = discovery.electrical
    if electrical is None:
        return []
    pairs = zip(discovery.heaters, electrical.state, strict=True)
    return [verdict.name for verdict, state in pairs if state == "short" and verdict.state != "short"]
