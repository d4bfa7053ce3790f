"""What discovery found: a verdict on every heater and detector, and what the chip can still do."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_channels import POOR
from calibration._discovery_electrical import ElectricalFindings
from calibration._discovery_heat import HEARD_CHI, SILENT_CHI
from calibration._discovery_map import ChannelMap
from calibration._discovery_steps import EXPLAINED, LOG_LIKELIHOOD, MARGIN
from optinc_hw.photonics import ChipLayout

HeaterState = Literal["ok", "swapped", "open", "short", "no effect", "not found", "undecided"]
DetectorState = Literal["ok", "permuted", "dead", "untested"]
CRITERIA = (
    f"a rough twin without crosstalk must predict random settings that it has not seen to a mean total variation "
    f"distance of {POOR:g}; otherwise nothing is decided",
    f"a channel moves a phase if that phase leaves less than {EXPLAINED:g} of the squared effect of the channel's "
    f"steps unexplained, and every other phase at least {MARGIN:g} times more and is less likely by "
    f"{LOG_LIKELIHOOD:g} in the logarithm, counting half of the powers read as independent",
    "a channel that chip.yaml has elsewhere must pass the same in settings that no fit has seen",
    f"a channel does nothing if its effect is below {SILENT_CHI:g} times the noise, and something above {HEARD_CHI:g}",
    "external phases of the first column turn all the light of one input, which powers do not show: their channels "
    f"must warm the mesh, and not be likelier by {LOG_LIKELIHOOD:g} in the logarithm at another place",
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
        "short", "no effect": its own channel does nothing, and no other was found; "not found": its own channel moves
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
    if channel < 0 and electrical is not None and electrical.state[heater] != "ok":
        return electrical.state[heater]
    if found.undecided[heater]:
        return "undecided"
    if channel == heater:
        return "ok"
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
    layout, lost = discovery.layout, set(discovery.lost)
    fixed = np.array([name in lost for name in layout.heaters])
    lines = [f"{len(fixed) - int(fixed.sum())} of {len(fixed)} phases can be moved"]
    for k, (column, mode) in enumerate(layout.mesh.mzis):
        if fixed[layout.mesh_theta[k]]:
            lines.append(f"mzi_{column}_{mode} has a fixed split between modes {mode} and {mode + 1}")
        if fixed[layout.mesh_phi[k]]:
            lines.append(f"mzi_{column}_{mode} has a fixed external phase")
    lines.append(_reach(layout, fixed))
    dark = [v.name for v in discovery.detectors if v.state == "dead"]
    lines += [f"the output of {name} is not seen; the others' readings tell the rest" for name in dark]
    undecided = [v.name for v in discovery.heaters if v.state == "undecided"]
    if undecided:
        lines.append(
            f"{len(undecided)} heaters are undecided: discover again with another seed, which takes other settings, "
            "before their wiring is changed"
        )
    if lost:
        lines.append(
            "state them under mesh.stuck in chip.yaml once calibration has found their phases: programming then "
            "works around them"
        )
    return lines


def _reach(layout: ChipLayout, fixed: NDArray[np.bool_]) -> str:
    """Say which unitaries can still be programmed."""
    block = intact_block(layout, fixed)
    if block == (0, layout.ports - 1):
        return "every unitary can be programmed, up to phases of the ports"
    if block is None:
        return "no unitary of two ports or more can be relied on; others only as far as the moving phases reach"
    return (
        f"every unitary on ports {block[0]} to {block[1]} can be programmed, up to phases of the ports; on all ports "
        "only what the fixed phases leave"
    )


def intact_block(layout: ChipLayout, fixed: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Find the largest block of neighbouring ports on which every unitary can be programmed, up to phases of the ports.

    Some neighbouring columns must hold a whole mesh of the block's modes whose phases move (external phases of its
    first column are those of its ports), and MZIs at the block's edges must be able to keep light in. What else is
    inside may stand still: then the phases that a mesh leaves open do the rest, in all cases that were tried; there
    is no proof.

    Parameters
    ----------
    layout
        The chip.
    fixed
        Heaters (H,) whose phases do not move.

    Returns
    -------
    tuple or None
        First and last port of the block.
    """
    mzis = list(enumerate(layout.mesh.mzis))
    theta, phi = fixed[layout.mesh_theta], fixed[layout.mesh_phi]
    for size in range(layout.ports, 1, -1):
        for low in range(layout.ports - size + 1):
            high = low + size - 1
            if any(theta[k] for k, (_, m) in mzis if m in (low - 1, high)):
                continue
            inside = [(k, column) for k, (column, m) in mzis if low <= m < high]
            for first in range(layout.mesh.depth - size + 1 if size > 2 else layout.mesh.depth):
                mesh = [(k, c) for k, c in inside if first <= c < first + size]
                broken = any(theta[k] or (phi[k] and c > first) for k, c in mesh)
                if len(mesh) == size * (size - 1) // 2 and not broken:
                    return low, high
    return None
