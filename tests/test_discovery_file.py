"""Proposals of a corrected chip.yaml, the picture, and discovery through instruments."""

import numpy as np
import pytest
from _discovery_chips import FaultyMesh

from calibration._discovery import judge
from calibration._discovery_figures import plot_discovery
from calibration._discovery_file import propose_chip_file
from calibration._discovery_map import ChannelMap
from calibration._discovery_run import discover
from optinc_hw.bench import Bench, instrument_names, read_description, write_bench_folder
from optinc_hw.errors import ConfigurationError


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "bench"
    addresses = {name: f"simulated:{name}" for name in instrument_names(4, "mesh")}
    write_bench_folder(place, 4, addresses, kind="mesh")
    return place


def found(channel=None, sees=None, acts=None):
    """A discovery of a mesh of four ports with what is asked for, all else in order."""
    chip = FaultyMesh(4, 0)
    heaters = len(chip.layout.heaters)
    channel = np.arange(heaters) if channel is None else channel
    sees = np.arange(4) if sees is None else sees
    acts = np.ones(heaters, dtype=bool) if acts is None else acts
    nothing = np.zeros(heaters, dtype=bool)
    ones = np.ones(heaters)
    maps = ChannelMap(channel, nothing, acts, sees, sees < 0, np.zeros(6), ones, ones, ones, 0.0, 0)
    return judge(chip.layout, maps)


def test_nothing_changes_where_all_is_well(folder):
    proposal = propose_chip_file(folder, found())
    assert proposal.diff == ""
    assert proposal.text == (folder / "chip.yaml").read_text()


def test_swapped_heaters_change_places_and_nothing_else_changes(folder):
    before = (folder / "chip.yaml").read_text()
    channel = np.arange(12)
    channel[[2, 9]] = 9, 2
    proposal = propose_chip_file(folder, found(channel))
    removed = [line[1:] for line in proposal.diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert [line.split(":")[0].strip() for line in removed] == ["mzi_0_2_theta", "mzi_2_2_phi"]
    assert (folder / "chip.yaml").read_text() == before
    old = read_description(folder).chip.heaters.entries
    (folder / "chip.yaml").write_text(proposal.text)
    new = read_description(folder).chip.heaters.entries
    assert new["mzi_0_2_theta"] == old["mzi_2_2_phi"]
    assert new["mzi_2_2_phi"] == old["mzi_0_2_theta"]
    assert proposal.text.count("#") == before.count("#")


def test_every_channel_keeps_one_owner_when_heaters_are_dead(folder):
    channel, acts = np.arange(12), np.ones(12, dtype=bool)
    channel[[3, 5]] = -1, 3  # the channel of heater 3 moves phase 5; the channel of heater 5 does nothing
    acts[5] = False
    proposal = propose_chip_file(folder, found(channel, acts=acts))
    old = read_description(folder).chip.heaters.entries
    (folder / "chip.yaml").write_text(proposal.text)
    new = read_description(folder).chip.heaters.entries
    assert new["mzi_1_1_phi"] == old["mzi_0_2_phi"]
    assert new["mzi_0_2_phi"] == old["mzi_1_1_phi"]
    assert "# discovery: not found" in proposal.text


def test_detectors_change_ports_and_dead_ones_are_marked(folder):
    proposal = propose_chip_file(folder, found(sees=np.array([3, 1, -1, 0])))
    old = read_description(folder).chip.detectors
    (folder / "chip.yaml").write_text(proposal.text)
    new = read_description(folder).chip.detectors
    assert (new["rx_0"].port, new["rx_3"].port) == (old["rx_3"].port, old["rx_0"].port)
    assert "# discovery: dead" in proposal.text


def test_another_chips_folder_is_refused(tmp_path, folder):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        propose_chip_file(tmp_path, found())
    text = (folder / "chip.yaml").read_text().replace("mzi_0_0_theta", "mzi_9_9_theta")
    (folder / "chip.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="mzi_0_0_theta is missing"):
        propose_chip_file(folder, found())


def test_the_picture_shows_every_heater_and_detector(tmp_path):
    channel = np.arange(12)
    channel[[2, 9]] = 9, 2
    figure = plot_discovery(found(channel, sees=np.array([3, 1, -1, 0])))
    figure.savefig(tmp_path / "discovery.png")
    axes = figure.axes[0]
    marks = [line for line in axes.lines if line.get_marker() in ("s", "o", "D") and len(line.get_xdata())]
    assert len(marks) == 12 + 4
    assert {text.get_text() for text in axes.texts} >= {"2_2φ", "0_2θ", "rx_3", "rx_0"}


def test_a_bench_is_discovered_through_its_instruments():
    truth = {
        "wires": {"mzi_1_1_theta": "mzi_3_3_phi", "mzi_3_3_phi": "mzi_1_1_theta"},
        "dead_heaters": ["mzi_2_2_phi"],
    }
    chip = {"version": 1, "ports": 6, "inputs": "ports", "receivers": "power", "truth": truth}
    with Bench.simulated(6, 1, kind="mesh", chip=chip) as bench:
        result = discover(bench)
        assert not bench.voltages.any()
        proposal = propose_chip_file(bench.folder, result)
    states = {verdict.name: (verdict.state, verdict.driven_by) for verdict in result.heaters}
    assert states["mzi_2_2_phi"] == ("open", None)
    assert states["mzi_1_1_theta"] == ("swapped", "mzi_3_3_phi")
    assert states["mzi_3_3_phi"] == ("swapped", "mzi_1_1_theta")
    assert sum(state == "ok" for state, _ in states.values()) == 27
    assert result.electrical is not None
    assert result.electrical.complaints == ()
    assert proposal.diff.count("\n-  mzi_") == 3
