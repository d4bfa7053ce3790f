"""A corrected ``chip.yaml`` as a proposal: the user's own file with other channels and ports, and a diff."""

import difflib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from calibration._discovery import Discovery
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
        The whole corrected file, comments and order as in the user's.
    diff
        Unified diff against the user's file; empty if nothing changes.
    """

    text: str
    diff: str

    def save(self, path: Path) -> None:
        """Write the text to a new file.

        Raises
        ------
        ConfigurationError
            If the file exists already, or cannot be written.
        """
        if path.exists():
            raise ConfigurationError(f"{path} exists already and is not overwritten; choose another file")
        try:
            write_text(path, self.text)
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be written ({error}); choose another place") from error


def propose_chip_file(bench_folder: str | Path, discovery: Discovery) -> Proposal:
    """Propose a ``chip.yaml`` with the wiring that was found.

    Heaters and detectors that were found elsewhere change their places.  Those without a channel get what is left
    over, so that every channel keeps one owner, and a comment.

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
    path = Path(bench_folder) / CHIP_FILE
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    try:
        old = path.read_text(encoding="utf-8")
        content = yaml.load(old)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error}); give the folder of a bench") from error
    plain = _dumped(yaml, content)
    never_moved = _never_moved(content, discovery)
    wired = _entries(content, "heaters", path)
    # Heaters of stuck phases may hang on no channel.
    sources = {v.name: v.driven_by for v in discovery.heaters if v.name in wired or v.name not in never_moved}
    chosen, kept = _chosen(sources, never_moved)
    notes: dict[str, dict[str, str]] = {}
    notes["heaters"] = {v.name: v.state for v in discovery.heaters if v.driven_by is None and v.state != "stuck"}
    notes["heaters"] |= {
        name: f"hangs on the channel of {sources[name]}, not moved: {why}" for name, why in kept.items()
    }
    _rewire(content, "heaters", chosen, path)
    seen = {verdict.name: verdict.seen_by for verdict in discovery.detectors}
    notes["detectors"] = {v.name: v.state for v in discovery.detectors if v.seen_by is None}
    _rewire(content, "detectors", _chosen(seen, {})[0], path)
    new = _dumped(yaml, content)
    text = _merged(old, plain, new, notes)
    diff = "".join(
        difflib.unified_diff(old.splitlines(True), text.splitlines(True), f"{CHIP_FILE}", f"{CHIP_FILE} (proposed)")
    )
    return Proposal(text, diff)


def _dumped(yaml: YAML, content: Any) -> str:  # a round-trip tree of ruamel
    stream = io.StringIO()
    yaml.dump(content, stream)
    return stream.getvalue()


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


def _entries(content: Any, section: str, path: Path) -> Any:  # Any: YAML content
    entries = content.get(section) if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise ConfigurationError(f"{path}: {section} is missing; give the bench folder that was discovered")
    return entries


def _rewire(content: Any, section: str, chosen: dict[str, str], path: Path) -> None:
    entries = _entries(content, section, path)
    absent = [name for name in chosen if name not in entries]
    if absent:
        raise ConfigurationError(
            f"{path}: {section}.{absent[0]} is missing; the discovery was made on another chip. Give its folder"
        )
    wires = {name: {key: entries[name][key] for key in _WIRE[section] if key in entries[name]} for name in chosen}
    for name, source in chosen.items():
        if source == name:
            continue
        for key in _WIRE[section]:
            if key in wires[source]:
                entries[name][key] = wires[source][key]
            elif key in entries[name]:
                del entries[name][key]


def _in_place(line: str, now: str) -> str:
    """Return the changed line with the spaces before its value as the user set them."""
    if "{" in line and "{" in now:
        return line[: line.index("{")] + now[now.index("{") :]
    return now


def _merged(old: str, plain: str, new: str, notes: dict[str, dict[str, str]]) -> str:
    """Carry the changes over to the user's own lines: a round trip may set spaces in other ways."""
    before, after, lines = plain.splitlines(), new.splitlines(), old.splitlines()
    if not len(before) == len(after) == len(lines):
        lines, before = list(after), list(after)
    merged, section = [], ""
    for line, was, now in zip(lines, before, after, strict=True):
        text = line if was == now else _in_place(line, now)
        if text[:1].strip() and not text.startswith("#"):
            section = text.split(":")[0]
        name = text.strip().split(":")[0]
        state = notes.get(section, {}).get(name)
        if state is not None and "# discovery:" not in text:
            text = f"{text}  # discovery: {state}"
        merged.append(text)
    return "\n".join(merged) + "\n"
