"""Whose channel each heater gets in a proposed chip.yaml: none of a short or of a stuck phase becomes another's."""

import itertools

import numpy as np
import pytest
from discovery_benches import mesh
from test_discovery_file import folder, found

from calibration._discovery import judge
from calibration._discovery_electrical import ElectricalFindings, Settling
from calibration._discovery_file import propose_chip_file
from calibration._discovery_run import discover
from optinc_hw.bench import read_description
from simulated_instruments.faults import ShortedHeater

__all__ = ["folder"]
HEATERS, SHORT = 12, 5


def proposed(folder, channel, shorts=(), ohm=20.0):
    """The discovery, and the channel of each heater in chip.yaml before and after."""
    before = found(channel)
    state = np.where(np.isin(np.arange(HEATERS), shorts), "short", "ok").tolist()
    nothing = np.zeros(4)
    electrical = ElectricalFindings(
        np.full(HEATERS, ohm), tuple(state), nothing, nothing, nothing, Settling(nothing, nothing), ()
    )
    discovery = judge(before.layout, before.map, electrical)
    names = before.layout.heaters
    old = read_description(folder).chip.heaters.entries
    proposal = propose_chip_file(folder, discovery)
    (folder / "chip.yaml").write_text(proposal.text)
    new = read_description(folder).chip.heaters.entries
    return discovery, [old[n].channel for n in names], [new[n].channel for n in names], proposal


@pytest.mark.parametrize("lost", [(1, 5), (5, 1), (1, 5, 2), (3, 5, 8)])
def test_a_lost_heater_keeps_its_own_channel_unless_another_one_hangs_there(folder, lost):
    """The first one's channel drives heater 9: it gets that of heater 9, and nobody else moves."""
    channel = np.arange(HEATERS)
    channel[list(lost)] = -1
    taken = lost[0] if lost[0] != SHORT else lost[1]
    channel[9] = taken
    _, old, new, _ = proposed(folder, channel, [SHORT])
    assert (new[9], new[taken]) == (old[taken], old[9])
    assert [k for k in range(HEATERS) if new[k] != old[k]] == sorted([9, taken])


@pytest.mark.parametrize("moved", list(itertools.permutations([2, 5, 9, 11], 3)))
def test_a_shorted_channel_is_nobody_elses_however_the_others_moved(folder, moved):
    """Of three heaters in a row, each on the channel of the next one, the last is lost; one channel may be a short."""
    first, second, last = moved
    channel = np.arange(HEATERS)
    channel[[first, second, last]] = second, last, -1
    discovery, old, new, proposal = proposed(folder, channel, [SHORT])
    assert sorted(new) == sorted(old)
    assert new[SHORT] == old[SHORT]
    if SHORT in moved:
        assert new == old
        assert "not moved: the channel of mzi_1_1_phi is shorted" in proposal.text
        assert f"never drive {'' if last == SHORT else 'the channel of '}mzi_1_1_phi" in discovery.summary
    else:
        assert [new[first], new[second], new[last]] == [old[second], old[last], old[first]]


@pytest.mark.parametrize("channels", [{5: 9, 9: 5}, {5: 9, 9: -1}, {9: 5, 5: -1}, {9: 1, 1: -1, 5: -1}])
def test_the_channel_of_a_stuck_phase_stays_where_it_is(folder, channels):
    text = (folder / "chip.yaml").read_text()
    (folder / "chip.yaml").write_text(text + "\nmesh:\n  stuck: {mzi_1_1: {phi_rad: 1.0}}\n")
    channel = np.arange(HEATERS)
    channel[list(channels)] = list(channels.values())
    _, old, new, _ = proposed(folder, channel)
    assert sorted(new) == sorted(old)
    assert new[5] == old[5]


@pytest.mark.parametrize("shorted", [0, 1])
def test_exchanged_heaters_of_which_one_is_a_short_are_found_and_left_to_the_user(shorted):
    """Through the instruments: what hangs on a channel is not the heater that chip.yaml has there."""
    pair = ("mzi_0_2_theta", "mzi_2_2_phi")
    truth = {"wires": {pair[0]: pair[1], pair[1]: pair[0]}}
    chip = {"version": 1, "ports": 4, "inputs": "ports", "receivers": "power", "truth": truth}
    with mesh(chip=chip) as (bench, watch):
        watch.faults.inject_on_chip(ShortedHeater(pair[shorted], 10.0))
        result = discover(bench)
        proposal = propose_chip_file(bench.folder, result)
        assert (watch.most_a <= bench.max_current).all()
        old = read_description(bench.folder).chip.heaters.entries
        (bench.folder / "chip.yaml").write_text(proposal.text)
        assert read_description(bench.folder).chip.heaters.entries == old
    states = {verdict.name: (verdict.state, verdict.driven_by) for verdict in result.heaters}
    # The electrical fault goes with the channel, the phase with the wire.
    assert states.pop(pair[shorted]) == ("swapped", pair[1 - shorted])
    assert states.pop(pair[1 - shorted]) == ("not found", None)
    assert {state for state, _ in states.values()} == {"ok"}
    assert f"never drive the channel of {pair[shorted]}" in result.summary
    assert f"not moved: the channel of {pair[shorted]} is shorted" in proposal.text
