"""A corrected ``chip.yaml`` as a proposal: the user's own file with other channels and ports, and a diff."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml.error import YAMLError

from calibration._discovery import Discovery
from calibration._discovery_text import exchanged, load, noted
from optinc_hw._files import write_text
from optinc_hw.bench.chip_file import CHIP_FILE
from optinc_hw.errors import ConfigurationError

_WIRE = {"heaters": ("instrument", "channel"), "detectors": ("instrument", "port", "switch")}


@dataclass(frozen=True)
class Proposal:
    """A corrected ``chip.yaml``; nothing is written.

    Parameters
    ----------
    text
        The whole corrected file; comments, order and line ends as in the user's.
    diff
        Unified diff against the user's file; empty if nothing changes.
    """

    text: str
    diff: str

    def save(self, path: str | Path) -> None:
        """Write the text to a new file.

        Raises
        ------
        ConfigurationError
            If the file exists already, or cannot be written.
        """
        path = _path(path, "the name of a new file")
        try:
            if path.exists() or path.is_symlink():
                raise ConfigurationError(f"{path} exists already and is not overwritten; choose another file")
            write_text(path, self.text)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path}: cannot be written ({error}); choose another place") from error


def propose_chip_file(bench_folder: str | Path, discovery: Discovery) -> Proposal:
    """Propose a ``chip.yaml`` with the wiring that was found.

    Heaters and detectors that were found elsewhere change their places.  Those without a channel get what is left
    over, so that every channel keeps one owner, and a comment.  Comments of earlier proposals go.

    Parameters
    ----------
    bench_folder
        Folder with the user's ``chip.yaml``, which stays as it is.
    discovery
        What was found.

    Raises
    ------
    ConfigurationError
        If the file cannot be read, or its heaters or detectors are not those of the discovery.
    """
    if not isinstance(discovery, Discovery):
        raise ConfigurationError(
            f"a proposal needs a Discovery, got {type(discovery).__name__}; give what discover found"
        )
    path = _path(bench_folder, "the folder of a bench") / CHIP_FILE
    try:
        old = path.read_bytes().decode("utf-8")
        content = load(old)
    except (OSError, ValueError, YAMLError, RecursionError) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error}); give the folder of a bench") from error
    never_moved = _never_moved(content, discovery)
    # Heaters of stuck phases may hang on no channel.
    wired = content.get("heaters") if isinstance(content, dict) else None
    heaters = [
        v for v in discovery.heaters if v.name not in never_moved or (isinstance(wired, dict) and v.name in wired)
    ]
    sources = {verdict.name: verdict.driven_by for verdict in heaters}
    chosen, kept = _chosen(sources, never_moved)
    notes = {v.name: str(v.state) for v in heaters if v.driven_by is None and v.state != "stuck"}
    notes |= {name: f"hangs on the channel of {sources[name]}, not moved: {why}" for name, why in kept.items()}
    seen = {verdict.name: verdict.seen_by for verdict in discovery.detectors}
    dead = {v.name: str(v.state) for v in discovery.detectors if v.seen_by is None}
    text = old
    for section, wires, words in (("heaters", chosen, notes), ("detectors", _chosen(seen, {})[0], dead)):
        _check_entries(content, section, wires, path)
        text = noted(exchanged(text, section, wires, _WIRE[section]), section, list(wires), words)
    lines = old.splitlines(True), text.splitlines(True)
    diff = "".join(difflib.unified_diff(*lines, f"{CHIP_FILE}", f"{CHIP_FILE} (proposed)"))
    return Proposal(text, diff)


def _path(value: str | Path, what: str) -> Path:
    if not isinstance(value, str | Path):
        raise ConfigurationError(f"{value!r} is no path; give {what}")
    return Path(value)


def _check_entries(content: Any, section: str, names: Iterable[str], path: Path) -> None:  # Any: YAML content
    entries = content.get(section) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise ConfigurationError(f"{path}: {section} is missing; give the bench folder that was discovered")
    for name in names:
        if name not in entries:
            raise ConfigurationError(
                f"{path}: {section}.{name} is missing; the discovery was made on another chip. Give its folder"
            )
        if not isinstance(entries[name], dict):
            raise ConfigurationError(
                f"{path}: {section}.{name} is {entries[name]!r}, and no mapping; correct the file (optinc check)"
            )


def _never_moved(content: Any, discovery: Discovery) -> dict[str, str]:
    """Heaters whose channels must never become those of others, which are driven, and why."""
    electrical = discovery.electrical
    states = () if electrical is None else electrical.state
    names = zip(discovery.layout.heaters, states, strict=False)
    reasons = {name: f"the channel of {name} is shorted" for name, state in names if state == "short"}
    mesh = content.get("mesh") if isinstance(content, dict) else None
    stuck = mesh.get("stuck") if isinstance(mesh, dict) else None
    for mzi, entry in stuck.items() if isinstance(stuck, dict) else ():
        phases = [kind for kind in ("theta", "phi") if isinstance(entry, dict) and entry.get(f"{kind}_rad") is not None]
        reasons |= {f"{mzi}_{kind}": f"{mzi}_{kind} is stuck (mesh.stuck)" for kind in phases}
    return reasons


def _chosen(
    sources: dict[str, str | None], never_moved: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:  # fmt: skip
    """Choose whose entry in chip.yaml each name gets, every entry once.

    One that lost its entry to another keeps it if nobody else needs it; otherwise it gets the one that is left over at
    the end of the row of those that move up.

    Returns
    -------
    tuple
        Name of the entry by name, and of the names found elsewhere that stay because an entry among those that would
        change places must not, why.
    """
    taker = {source: name for name, source in sources.items() if source is not None}
    chosen: dict[str, str] = {}
    for name, source in sources.items():
        end = name
        while source is None and end in taker:
            end = taker[end]
        chosen[name] = end if source is None else source
    kept: dict[str, str] = {}
    for fixed, why in never_moved.items():
        one = fixed
        while one in chosen and chosen[one] != one:
            other, chosen[one] = chosen[one], one
            if sources[one] is not None:
                kept[one] = why
            one = other
    return chosen, kept
