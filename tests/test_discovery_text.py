"""Proposed chip.yaml files of all styles: the user's text changes in nothing but what was found."""

import numpy as np
import pytest
from test_discovery_file import folder, found

from calibration._discovery_file import propose_chip_file
from calibration._discovery_text import exchanged, load, noted
from optinc_hw.bench import read_description
from optinc_hw.errors import ConfigurationError

__all__ = ["folder"]
ENTRY = "mzi_0_2_theta: {instrument: heaters_0, channel: 2}"
STYLES = {
    "as written": lambda text: text,
    "limits and a comment": lambda text: text.replace(
        ENTRY, "mzi_0_2_theta: {max_power_w: 0.02,  instrument: heaters_0,channel: 2} # my {note}: a"
    ),
    "quoted": lambda text: text.replace(ENTRY, """mzi_0_2_theta: {"instrument": 'heaters_0', channel: 2}"""),
    "block": lambda text: text.replace(
        ENTRY, "mzi_0_2_theta:   # on top\n    # which\n    instrument: heaters_0\n    channel:   2   # last\n"
    ),
    "two lines": lambda text: text.replace(ENTRY, "mzi_0_2_theta: {instrument: heaters_0,  # first\n     channel: 2}"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CRLF, two lines": lambda text: text.replace(
        ENTRY, "mzi_0_2_theta: {instrument: heaters_0,\n     channel: 2}"
    ).replace("\n", "\r\n"),
    "no line feed at the end": lambda text: text.rstrip("\n"),
    "wide": lambda text: text.replace(ENTRY, f"mzi_0_2_theta: {{instrument: heaters_0, channel: 2}}  # {'x' * 5000}"),
    "another alphabet": lambda text: text.replace(ENTRY, f"{ENTRY}  # θ über 2 µ"),
    "document marks": lambda text: f"%YAML 1.2\n---\n{text}...\n",
}
SHARED = {
    "anchor": lambda text: text.replace(ENTRY, ENTRY.replace("{", "&w {")),
    "merged": lambda text: text.replace(ENTRY, ENTRY.replace("{", "&w {")).replace(
        "mzi_2_2_phi:   {instrument: heaters_0, channel: 9}", "mzi_2_2_phi: {<<: *w, channel: 9}"
    ),
    "alias": lambda text: text.replace(ENTRY, ENTRY.replace("heaters_0", "&h heaters_0")).replace(
        "mzi_2_2_phi:   {instrument: heaters_0", "mzi_2_2_phi: {instrument: *h"
    ),
}


def write(folder, style):
    path = folder / "chip.yaml"
    path.write_bytes({**STYLES, **SHARED}[style](path.read_text()).encode())
    return path


def text_of(path):
    return path.read_bytes().decode()


def swapped():
    channel = np.arange(12)
    channel[[2, 9]] = 9, 2
    return found(channel)


def dead(*heaters):
    channel, acts = np.arange(12), np.ones(12, dtype=bool)
    channel[list(heaters)], acts[list(heaters)] = -1, False
    return found(channel, acts=acts)


@pytest.mark.parametrize("style", [*STYLES, *SHARED])
def test_nothing_found_changes_nothing(folder, style):
    path = write(folder, style)
    proposal = propose_chip_file(folder, found())
    assert (proposal.text, proposal.diff) == (text_of(path), "")


@pytest.mark.parametrize("style", [*STYLES, *SHARED])
def test_swapped_heaters_change_places(folder, style):
    path = write(folder, style)
    old = read_description(folder).chip.heaters.entries
    proposal = propose_chip_file(folder, swapped())
    before = text_of(path)
    path.write_bytes(proposal.text.encode())
    new = read_description(folder).chip.heaters.entries
    assert (new["mzi_0_2_theta"].channel, new["mzi_2_2_phi"].channel) == (9, 2)
    assert all(new[name] == old[name] for name in old if name not in ("mzi_0_2_theta", "mzi_2_2_phi"))
    assert new["mzi_0_2_theta"].max_power_w == old["mzi_0_2_theta"].max_power_w
    if style in STYLES:
        lines = list(zip(before.split("\n"), proposal.text.split("\n"), strict=True))
        assert sum(one != other for one, other in lines) == 2
        assert all(len(one) == len(other) for one, other in lines)


@pytest.mark.parametrize("style", STYLES)
def test_notes_come_and_go_and_nothing_else_changes(folder, style):
    path = write(folder, style)
    before = text_of(path)
    first = propose_chip_file(folder, dead(2, 5))
    assert first.text.count("# discovery: no effect") == 2
    assert load(first.text) == load(before)
    path.write_bytes(first.text.encode())
    assert propose_chip_file(folder, dead(2, 5)).diff == ""
    other = propose_chip_file(folder, dead(5))
    assert other.text.count("# discovery: no effect") == 1
    path.write_bytes(other.text.encode())
    last = propose_chip_file(folder, found())
    assert last.text == before
    assert last.diff.count("\n-  mzi_") == 1


def test_a_comment_of_the_users_behind_a_note_stays(folder):
    path = folder / "chip.yaml"
    path.write_text(path.read_text().replace(ENTRY, f"{ENTRY}  # discovery: no effect  # seen by Bob"))
    text = propose_chip_file(folder, found()).text
    assert f"{ENTRY}  # seen by Bob\n" in text


SWITCHED = """\
detectors:
  a: {instrument: m, port: 0}
  b: {instrument: m, switch: {instrument: s, input: 1, output: 2}, port: 3}
  c:
    instrument: m
    port: 4  # c's
  d:
    switch:
      instrument: s
      input: 5
      output: 6
    instrument: n
    port: 7

other: 1
"""


@pytest.mark.parametrize("one", "abcd")
@pytest.mark.parametrize("other", "abcd")
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_ways_through_switches_go_with_their_ports(one, other, ends):
    text = SWITCHED.replace("\n", ends)
    keys = ("instrument", "port", "switch")
    new = exchanged(text, "detectors", {**{name: name for name in "abcd"}, one: other, other: one}, keys)
    old, now = load(text)["detectors"], load(new)["detectors"]
    assert (now[one], now[other]) == (old[other], old[one])
    assert all(now[name] == old[name] for name in "abcd" if name not in (one, other))
    assert new.count("\n") == new.count(ends)
    assert "# c's" in new
    assert new.endswith(f"{ends}other: 1{ends}")


def test_entries_in_one_line_get_notes_with_their_names():
    text = "detectors: {a: {port: 0}, b: {port: 1}}  # all\nother: 1\n"
    new = noted(text, "detectors", ["a", "b"], {"a": "dead", "b": "dead"})
    assert new == (
        "detectors: {a: {port: 0}, b: {port: 1}}  # all  # discovery: a: dead  # discovery: b: dead\nother: 1\n"
    )
    assert noted(new, "detectors", ["a", "b"], {}) == text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda text: text.replace(ENTRY, "mzi_0_2_theta: 5"), "mzi_0_2_theta is 5"),
        (lambda text: text.replace(ENTRY, "mzi_0_2_theta: null"), "mzi_0_2_theta is None"),
        (lambda text: text.replace(ENTRY, "mzi_0_2_theta: [a]"), "mzi_0_2_theta is \\['a'\\]"),
        (lambda text: text.replace(ENTRY, "mzi_0_2_theta: text"), "mzi_0_2_theta is 'text'"),
        (lambda text: text.replace("rx_1:          {instrument: meter_0, port: 1}", "rx_1: 2.5"), "rx_1 is 2.5"),
        (lambda text: text.replace(ENTRY, ""), "heaters.mzi_0_2_theta is missing"),
        (lambda text: f"{text}\nx: {'[' * 5000}", "cannot be read"),
        (lambda text: f"{text}\n---\na: 1\n", "cannot be read"),
        (lambda text: f"{text}\nname: twice\n", "cannot be read"),
        (lambda text: "- 1\n", "heaters is missing"),
        (lambda text: "heaters: [1]\ndetectors: {}\n", "heaters is missing"),
        (lambda text: "", "heaters is missing"),
    ],
)
@pytest.mark.parametrize("discovery", [found, swapped])
def test_files_that_are_no_chip_are_refused(folder, content, said, discovery):
    path = folder / "chip.yaml"
    path.write_text(content(path.read_text()))
    with pytest.raises(ConfigurationError, match=said):
        propose_chip_file(folder, discovery())


@pytest.mark.parametrize("place", [None, 5, "a\0b", "", "/nowhere", ["a"], "x" * 5000])
def test_folders_that_are_none_are_refused(place):
    with pytest.raises(ConfigurationError, match=r"cannot be read|is no path"):
        propose_chip_file(place, found())


@pytest.mark.parametrize("what", [None, "a discovery", 3])
def test_what_is_no_discovery_is_refused(folder, what):
    with pytest.raises(ConfigurationError, match="give what discover found"):
        propose_chip_file(folder, what)


def test_a_proposal_is_saved_where_nothing_is(folder, tmp_path):
    proposal = propose_chip_file(folder, swapped())
    for path in (tmp_path / "a.yaml", str(tmp_path / "b.yaml")):
        proposal.save(path)
        with pytest.raises(ConfigurationError, match="exists already"):
            proposal.save(path)
    assert (tmp_path / "b.yaml").read_text() == proposal.text
    link = tmp_path / "link.yaml"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigurationError, match="exists already"):
        proposal.save(link)
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "no/folder.yaml"])
def test_files_that_cannot_be_are_told(folder, tmp_path, name):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        propose_chip_file(folder, swapped()).save(tmp_path / name)


@pytest.mark.parametrize("place", [None, 5, ["a"]])
def test_names_that_are_no_paths_are_told(folder, place):
    with pytest.raises(ConfigurationError, match="is no path"):
        propose_chip_file(folder, swapped()).save(place)


def test_line_ends_are_saved_as_they_are(folder, tmp_path):
    write(folder, "CRLF")
    propose_chip_file(folder, swapped()).save(tmp_path / "new.yaml")
    assert (tmp_path / "new.yaml").read_bytes().count(b"\r\n") == (folder / "chip.yaml").read_bytes().count(b"\r\n")
