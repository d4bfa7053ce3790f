"""Optical networks that nobody knows how to build are ideals: shown, but never chosen."""

from dataclasses import replace

import pytest

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect.comparison import (
    Network,
    NetworkDesign,
    Training,
    build_systems,
    compare,
    plot_energy,
    plot_times,
    plot_winners,
)

JOB = Training("net", 1_000_000, 1.0, 1e-3, bits=16, sample="token")
SMALL = NetworkDesign("small", 4, 16, (8, 8, 8), frozenset({1, 2}), 100)


def known(nodes, network):
    return {system.name: system.known for system in build_systems(nodes, network)}


def test_a_network_is_known_up_to_the_inputs_of_the_largest():
    assert known(4, Network(fan_in=4))["optinc"]
    assert not known(5, Network(fan_in=4))["optinc"]
    assert known(5, Network(fan_in=4))["optinc-cascade"]
    assert known(16, Network(fan_in=16))["optinc"]
    none = known(16, Network(fan_in=None))
    assert not none.pop("optinc")
    assert "optinc-cascade" not in none
    assert all(none.values())


@pytest.mark.parametrize("names", [("optinc", "ring"), ("optinc", "ring", "switch"), ("optinc", "optinc-cascade")])
def test_ideals_win_nothing(names):
    compared = compare(JOB, 64, names=names, design=SMALL)
    ideal = compared.rows[0]
    assert (ideal.name, ideal.known, ideal.energy, ideal.optics) == ("optinc", False, None, None)
    assert compared.best.name == names[-1]
    assert compared.verdict.split()[0] != "optinc"
    assert all(one.name != "optinc" for ranges in compared.ranges.values() for one in ranges)
    assert all(row.energy is not None for row in compared.rows[1:])


def test_with_ideals_alone_there_is_nothing_to_choose():
    compared = compare(JOB, 64, names=("optinc",))
    assert (compared.best, compared.gain, compared.ranges) == (compared.baseline, 0.0, {})
    assert "There is nothing to choose" in compared.verdict
    assert "the optical networks of optinc are ideals" in compared.verdict


def test_designs_fit_the_network_and_the_job():
    with pytest.raises(ComparisonError, match=r"small has 4 inputs, but fan_in of the network is 16.*fan_in=4"):
        compare(JOB, 64, Network(fan_in=16), design=SMALL)
    with pytest.raises(ComparisonError, match=r"small carries codes of 16 bits, but gradients of net have 32"):
        compare(replace(JOB, bits=32), 64, design=SMALL)


def servers(figure):
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def winners(figure):
    return {text.get_text() for text in figure.axes[0].texts}


def test_the_picture_of_winners_shows_servers_for_which_something_is_left():
    cascades = plot_winners(Network(fan_in=4), 1e8, ("optinc-cascade",))
    assert servers(cascades) == [str(1 << power) for power in range(3, 13)]
    assert winners(cascades) == {"optinc-cascade"}
    assert servers(plot_winners(Network(fan_in=4), 1e8, ("optinc",))) == ["2", "4"]
    assert winners(plot_winners(Network(fan_in=4), 1e8, ("ring", "optinc"))) == {"ring", "optinc"}
    assert winners(plot_winners(Network(fan_in=None), 1e8, ("ring", "optinc"))) == {"ring"}
    with pytest.raises(ComparisonError, match=r"no schedule of optinc, optinc-cascade can be built"):
        plot_winners(Network(fan_in=None), 1e8, ("optinc", "optinc-cascade"))


def test_pictures_of_times_mark_ideals_and_cut_nothing_off():
    """A ring of 1024 takes 2046 messages, a switch one: 2000 times as long for small payloads."""
    figure = plot_times(build_systems(1024, names=("ring", "switch", "optinc")), 1e8)
    absolute, relative = figure.axes
    assert [line.get_label() for line in absolute.lines][:3] == ["ring", "switch", "optinc (ideal)"]
    ring, switch, ideal = (line.get_ydata() for line in relative.lines[:3])
    low, high = relative.get_ylim()
    assert max(ring) > 1000
    assert (low < min(ideal), high > max(ring)) == (True, True)
    assert min(switch) == max(switch) == 1.0  # the fastest that can be built, though the ideal is faster


def test_the_picture_of_energies_names_what_it_leaves_out():
    compared = compare(JOB, 64, names=("ring", "optinc", "optinc-cascade"), design=SMALL)
    figure = plot_energy(compared)
    assert "not known: optinc" in figure.axes[0].get_xlabel()
    assert "heaters, carriers, gain, circuits" in [text.get_text() for text in figure.legends[0].texts]
    assert "not known" not in plot_energy(compare(JOB, 64, names=("ring",))).axes[0].get_xlabel()
    with pytest.raises(ComparisonError, match="no schedule has a known energy"):
        plot_energy(compare(JOB, 64, names=("optinc",)))
