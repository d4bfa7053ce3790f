"""Entries of a YAML file exchanged in the user's own text: spaces, order, comments and line ends stay as they are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

Edit = tuple[int, int, str]
"""Where to begin, where to end, and what to write there."""

MARK = "# discovery: "
_NOTES = re.compile(rf"(?:[ \t]*{MARK}[^#\r\n]*)+(?=(#)?)")


class _NotPlainError(Exception):
    """An entry with anchors, aliases or merged keys: its text stands elsewhere too."""


def load(text: str) -> Any:  # Any: YAML content
    """Return the content of a YAML text as plain objects; raises YAMLError."""
    return YAML(typ="safe", pure=True).load(text)


def exchanged(text: str, section: str, chosen: Mapping[str, str], keys: Sequence[str]) -> str:
    """Give entries of a section the ``keys`` of other entries, as they were before.

    Parameters
    ----------
    text
        The YAML text.
    section
        Name of a mapping of mappings at the top of it.
    chosen
        Name of the entry whose keys it gets, by the name of each entry.
    keys
        Keys to exchange; one that the other entry lacks is taken away.
    """
    moved = {name: source for name, source in chosen.items() if source != name}
    if not moved:
        return text
    old, wanted = load(text)[section], load(text)
    _exchange(wanted[section], moved, keys)
    try:
        new = _apply(text, list(_edits(text, section, old, moved, keys)))
    except _NotPlainError:
        new = ""
    return new if new and load(new) == wanted else _dumped(text, section, moved, keys)


def _exchange(entries: Any, moved: Mapping[str, str], keys: Sequence[str]) -> None:
    given = {name: {key: entries[name][key] for key in keys if key in entries[name]} for name in moved.values()}
    for name, source in moved.items():
        for key in keys:
            if key in given[source]:
                entries[name][key] = given[source][key]
            elif key in entries[name]:
                del entries[name][key]


def _dumped(text: str, section: str, moved: Mapping[str, str], keys: Sequence[str]) -> str:
    """Write the whole text anew: the way for entries that share text with others."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    content = yaml.load(text)
    _exchange(content[section], moved, keys)
    stream = StringIO()
    yaml.dump(content, stream)
    ends = "\r\n" if "\r\n" in text else "\n"
    return stream.getvalue().replace("\n", ends)


def noted(text: str, section: str, names: Sequence[str], notes: Mapping[str, str]) -> str:
    """Put notes behind entries of a section, and take those of earlier discoveries away.

    Parameters
    ----------
    text, section
        As in `exchanged`.
    names
        Entries that a discovery told of.
    notes
        Note by the name of the entry.
    """
    whole = _section(text, section)
    edits: dict[int, Edit] = {}
    for key, entry in whole.value:
        if key.value not in names:
            continue
        first, last = key.start_mark.index, _end(entry)
        for start in _lines(text, first, last):
            end = _line_end(text, start)
            edits.setdefault(start, (start, end, _NOTES.sub(lambda found: "  " if found[1] else "", text[start:end])))
        if key.value in notes:
            start = max(begin for begin in _lines(text, first, last if entry.flow_style else first))
            what = f"{key.value}: {notes[key.value]}" if whole.flow_style else notes[key.value]
            edits[start] = (start, edits[start][1], f"{edits[start][2]}  {MARK}{what}")
    return _apply(text, list(edits.values()))


def _apply(text: str, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _section(text: str, section: str) -> MappingNode:
    root = YAML(typ="safe", pure=True).compose(text)
    found: MappingNode = next(value for key, value in root.value if key.value == section)
    return found


def _pairs(entry: MappingNode) -> dict[str, tuple[Node, Node]]:
    """Keys and values of an entry by key, if all of them stand in its own text."""
    for key, value in entry.value:
        inside = entry.start_mark.index <= value.start_mark.index and _end(value) <= entry.end_mark.index
        if key.value == "<<" or value.anchor is not None or not inside:
            raise _NotPlainError
    return {key.value: (key, value) for key, value in entry.value}


def _edits(text: str, section: str, old: Any, moved: Mapping[str, str], keys: Sequence[str]) -> Iterator[Edit]:
    entries = {key.value: value for key, value in _section(text, section).value}
    for name, source in moved.items():
        here, there = _pairs(entries[name]), _pairs(entries[source])
        for key in keys:
            if key in here and key in there and old[name][key] == old[source][key]:
                continue
            if key in here and key in there:
                value = here[key][1]
                yield value.start_mark.index, _end(value), _flow(text, there[key][1])
            elif key in there:
                yield _insertion(text, entries[name], f"{key}: {_flow(text, there[key][1])}")
            elif key in here:
                yield _deletion(text, entries[name], key)


def _flow(text: str, node: Node) -> str:
    """Text of a value on one line."""
    if isinstance(node, ScalarNode):
        return text[node.start_mark.index : node.end_mark.index]
    if isinstance(node, MappingNode):
        return "{" + ", ".join(f"{key}: {_flow(text, value)}" for key, (_, value) in _pairs(node).items()) + "}"
    raise _NotPlainError


def _end(node: Node) -> int:
    """Where the text of a node ends: that of a block ends with its last value, before comments and empty lines."""
    if isinstance(node, CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, MappingNode) else last)
    return int(node.end_mark.index)


def _insertion(text: str, entry: MappingNode, new: str) -> Edit:
    end = _end(entry.value[-1][1])
    if entry.flow_style:
        return end, end, f", {new}"
    end = _line_end(text, end)
    ends = "\r\n" if "\r\n" in text else "\n"
    return end, end, f"{ends}{' ' * entry.value[0][0].start_mark.column}{new}"


def _deletion(text: str, entry: MappingNode, key: str) -> Edit:
    names = [one.value for one, _ in entry.value]
    place = names.index(key)
    start, end = entry.value[place][0].start_mark.index, _end(entry.value[place][1])
    if not entry.flow_style:
        return text.rfind("\n", 0, start) + 1, min(text.find("\n", end) + 1 or len(text), len(text)), ""
    if place:
        return _end(entry.value[place - 1][1]), end, ""
    return start, entry.value[1][0].start_mark.index if len(names) > 1 else end, ""


def _lines(text: str, first: int, last: int) -> list[int]:
    """Where the lines begin that hold the text from ``first`` to ``last``."""
    starts = [text.rfind("\n", 0, first) + 1]
    while (following := text.find("\n", starts[-1], last)) >= 0:
        starts.append(following + 1)
    return starts


def _line_end(text: str, place: int) -> int:
    """Where the line of a place ends, before its line feed."""
    end = text.find("\n", place)
    end = len(text) if end < 0 else end
    return end - 1 if text[place:end].endswith("\r") else end
