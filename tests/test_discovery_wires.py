"""Whose channel each heater gets in a proposed chip.yaml: none of a short or of a stuck phase becomes another's."""

import itertools

import numpy as np
import pytest
from test_discovery_file import folder, found

from calibration._discovery import judge
from calibration._discovery_electrical import ElectricalFindings, Settling
from calibration._discovery_file import propose_chip_file
from optinc_hw.bench import read_description

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
