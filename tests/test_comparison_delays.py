"""Delays of a comparison by hand: what a byte and a megabyte take on each kind of network."""

import pytest

from optinc_hw.interconnect.comparison import Network, build_systems

US = 1e-6
LIGHT, CONVERSION, SWITCH, MESSAGE = 5e-9, 20e-9, 0.6e-6, 2e-6
"""Of a link; of its two ends; of a packet switch; of software and card."""


def time(name, nodes, payload, **changes):
    (system,) = build_systems(nodes, Network(**changes), [name])
    return system.time(payload)


def test_from_server_to_server_a_packet_takes_two_links_and_a_switch():
    hop = MESSAGE + SWITCH + 2 * (LIGHT + CONVERSION)
    assert hop == pytest.approx(2.65e-6)
    assert time("ring", 8, 1.0) == pytest.approx(14 * hop, rel=1e-4)
    assert time("doubling", 8, 1.0) == pytest.approx(3 * hop, rel=1e-4)


def test_a_switch_that_adds_takes_no_longer_than_one_that_does_not():
    """Up and down are two links through one switch: as a message from server to server."""
    assert time("switch", 8, 1.0) == pytest.approx(2.65e-6, rel=1e-4)
    assert time("switch", 8, 1.0, switch_s=5e-6) == pytest.approx(2.65e-6 + 4.4e-6, rel=1e-4)


def test_switches_of_two_levels_are_crossed_three_times():
    """128 servers on 64 ports: through the lower switch, the upper one, and a lower one again, over four links."""
    assert time("switch", 128, 1.0) == pytest.approx(MESSAGE + 3 * SWITCH + 4 * (LIGHT + CONVERSION), rel=1e-4)


@pytest.mark.parametrize(("nodes", "name", "links"), [(4, "optinc", 2), (16, "optinc-cascade", 4)])
def test_light_is_converted_at_servers_only(nodes, name, links):
    """Through one network or three, one transmitter and one receiver."""
    assert time(name, nodes, 1.0) == pytest.approx(MESSAGE + CONVERSION + links * LIGHT, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "nodes", "by_hand"),
    [
        # 22 steps of a twelfth: 1.667 us each on the way; 11 of them add it in 0.083 us.
        ("ring", 12, 22 * (2.65 * US + 1e6 / 12 * 20e-12) + 11 * 1e6 / 12 * 1e-12),
        # On a WDM ring one link without a switch, and circuits that are set once.
        ("wdm-ring", 12, 25 * US + 22 * (2.025 * US + 1e6 / 12 * 20e-12) + 11 * 1e6 / 12 * 1e-12),
        ("switch", 12, 2.65 * US + 20 * US),
        # Halves, quarters, quarters, halves; both lasers are tuned before the first two steps, then not waited for.
        ("oddl", 4, 2.5 * US + 4 * 2.025 * US + (10 + 5 + 5 + 10) * US + (0.5 + 0.25) * US),
    ],
)
def test_a_megabyte_by_hand(name, nodes, by_hand):
    assert time(name, nodes, 1e6) == pytest.approx(by_hand, rel=1e-6)
