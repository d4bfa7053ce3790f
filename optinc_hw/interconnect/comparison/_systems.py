"""Schedules on the networks that they were made for: packet switches, WDM rings, circuits, optical networks."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect._fabrics import Crossbar, SwitchTree, WdmRing
from optinc_hw.interconnect._links import LinkParameters, Setup, step_time
from optinc_hw.interconnect._oddl import oddl
from optinc_hw.interconnect._rings import hierarchical_ring, ring
from optinc_hw.interconnect._schedule import Schedule
from optinc_hw.interconnect._switches import in_switch, optinc
from optinc_hw.interconnect._trees import binary_tree, halving_doubling, recursive_doubling
from optinc_hw.interconnect._wrht import wrht
from optinc_hw.interconnect.comparison._checks import check_not_negative, check_positive, check_whole

Kind = Literal["packet", "WDM ring", "circuits", "OptINC"]
Rated = Literal["link", "server"]


@dataclass(frozen=True)
class Network:
    """What there is to send over.  Delays are typical ones, to be replaced by those of your parts.

    Parameters
    ----------
    rate_bps
        Bits a second of a link: a network port, a wavelength, a circuit.
    rated
        ``"link"``: `rate_bps` is that of a link, and schedules may use several at a server at a time (`System.lanes`).
        ``"server"``: it is that of a server, shared by as many links as the schedule uses.
    wavelengths, reach
        Of a WDM ring, as in `WdmRing`.
    reconfiguration_s
        Of a WDM ring's circuits (25 us: thermal tuning of rings; LHAS reference parameters).
    tuning_s, control_s
        Of ODDL's lasers, and of a round of its control messages (reconstruction).
    setup
        As in `LinkParameters`: whether circuits that stay are paid for again in every step, as published formulas do.
    message_s
        Of software and network card for every message (2 us).
    switch_s
        Through a packet switch (0.6 us).  From server to server it takes two links and a switch.
    reduce_Bps
        Bytes a second that a server adds (1 TB/s: three accesses a byte to a memory of 3 TB/s).
    ports
        Children of a packet switch that adds.
    fan_in
        Inputs of the largest optical network that can be built, of which cascades are made; ``None`` if there is none.
        OptINC on more inputs is an ideal (`System.known`).

    Raises
    ------
    ComparisonError
        Naming the field that is out of range.
    """

    rate_bps: float = 400e9
    rated: Rated = "link"
    wavelengths: int = 64
    reach: int | None = None
    reconfiguration_s: float = 25e-6
    tuning_s: float = 1e-6
    control_s: float = 1.5e-6
    setup: Setup = "on_change"
    message_s: float = 2e-6
    switch_s: float = 0.6e-6
    reduce_Bps: float = 1e12  # noqa: N815 - bytes a second
    ports: int = 64
    fan_in: int | None = 4

    def __post_init__(self) -> None:
        for name, choices in (("rated", ("link", "server")), ("setup", ("every_step", "on_change"))):
            if getattr(self, name) not in choices:
                raise ComparisonError(
                    f"{name} of a network must be {choices[0]!r} or {choices[1]!r}, got {getattr(self, name)!r}"
                )
        check_positive("rate_bps of a network", self.rate_bps)
        if not self.reduce_Bps > 0.0:
            raise ComparisonError(
                f"reduce_Bps of a network must be positive, inf if adding takes no time, got {self.reduce_Bps!r}"
            )
        for name in ("reconfiguration_s", "tuning_s", "control_s", "message_s", "switch_s"):
            check_not_negative(f"{name} of a network", getattr(self, name))
        for name, least in (("wavelengths", 1), ("reach", 1), ("ports", 2), ("fan_in", 2)):
            value = getattr(self, name)
            if value is not None or name in ("wavelengths", "ports"):
                check_whole(f"{name} of a network", value, least)

    def links(self, kind: Kind, *, tree: bool = False) -> LinkParameters:
        """Return rates and delays of a kind of network.

        Parameters
        ----------
        kind
            Of the network.
        tree
            Whether transfers of packets go to or from a switch that adds, over one link, and not from server to server.
        """
        common = LinkParameters(
            rate_bps=self.rate_bps, reconfiguration_s=self.reconfiguration_s, setup=self.setup,
            message_s=self.message_s, reduce_Bps=self.reduce_Bps,
        )  # fmt: skip
        if kind == "WDM ring":
            return common
        if kind == "circuits":
            return replace(common, reconfiguration_s=self.tuning_s, control_s=self.control_s)
        common = replace(common, reconfiguration_s=0.0)
        if kind == "OptINC":
            # Light is converted once on its way from server to server, however many networks it crosses.
            return replace(common, conversion_s=0.0, message_s=self.message_s + common.conversion_s)
        if tree:
            return replace(common, switch_s=self.switch_s)
        way_s = 2.0 * common.segment_s + self.switch_s
        return replace(common, segment_s=way_s, conversion_s=2.0 * common.conversion_s)


@dataclass(frozen=True, eq=False)
class System:
    """A schedule on a network of some kind.

    Parameters
    ----------
    name
        As in `system_names`.
    kind
        Of the network.
    schedule
        What is sent.
    links
        Rates and delays.
    overlap
        Whether circuits are set while other transceivers send, as in `step_time`.
    known
        Whether its optical networks can be built; if not, its times are those of an ideal.
    """

    name: str
    kind: Kind
    schedule: Schedule
    links: LinkParameters
    overlap: bool = False
    known: bool = True

    @cached_property
    def lanes(self) -> int:
        """Most transfers that one server sends, or receives, at a time: so many links it needs."""
        return lanes(self.schedule)

    @property
    def adds_on_the_way(self) -> bool:
        """Whether switches or optical networks add, not servers."""
        return isinstance(self.schedule.fabric, SwitchTree)

    def time(self, payload_bytes: float) -> float:
        """Return the seconds of an all-reduce."""
        return step_time(self.schedule, payload_bytes, self.links, overlap=self.overlap)


def lanes(schedule: Schedule) -> int:
    """Return the most transfers that one server sends, or receives, in a step."""
    return max(
        int(np.bincount(side, minlength=schedule.nodes)[: schedule.nodes].max())
        for phase in schedule.phases
        for side in (phase.circuits.source, phase.circuits.target)
    )


_Build = Callable[[int, Network], Schedule]
CASCADE = "optinc-cascade"


def _wdm(network: Network) -> WdmRing:
    return WdmRing(network.wavelengths, network.reach)


_SYSTEMS: Mapping[str, tuple[Kind, _Build]] = {
    "ring": ("packet", lambda nodes, _: ring(nodes, Crossbar())),
    "tree": ("packet", lambda nodes, _: binary_tree(nodes, Crossbar())),
    "doubling": ("packet", lambda nodes, _: recursive_doubling(nodes, Crossbar())),
    "halving": ("packet", lambda nodes, _: halving_doubling(nodes, Crossbar())),
    "switch": ("packet", lambda nodes, network: in_switch(nodes, network.ports)),
    "wdm-ring": ("WDM ring", lambda nodes, network: ring(nodes, _wdm(network))),
    "wdm-hring": ("WDM ring", lambda nodes, network: hierarchical_ring(nodes, fabric=_wdm(network))),
    "wdm-slices": ("WDM ring", lambda nodes, network: hierarchical_ring(nodes, fabric=_wdm(network), inter="slices")),
    "wdm-tree": ("WDM ring", lambda nodes, network: binary_tree(nodes, _wdm(network))),
    "wdm-doubling": ("WDM ring", lambda nodes, network: recursive_doubling(nodes, _wdm(network))),
    "wdm-halving": ("WDM ring", lambda nodes, network: halving_doubling(nodes, _wdm(network))),
    "wrht": ("WDM ring", lambda nodes, network: wrht(nodes, network.wavelengths, reach=network.reach)),
    "oddl": ("circuits", lambda nodes, _: oddl(nodes)),
    "oddl-ring": ("circuits", lambda nodes, _: oddl(nodes, collective="ring")),
    "optinc": ("OptINC", lambda nodes, _: optinc(nodes)),
    CASCADE: ("OptINC", lambda nodes, network: optinc(nodes, network.fan_in)),
}
BASELINE = "ring"
"""What others are held against: a ring on packet switches, the usual way."""


def system_names() -> tuple[str, ...]:
    """Return the names of all systems: first those on packet switches, then WDM rings, circuits, OptINC."""
    return tuple(_SYSTEMS)


def system_kinds() -> tuple[Kind, ...]:
    """Return the network of each of `system_names`."""
    return tuple(kind for kind, _ in _SYSTEMS.values())


def build_systems(nodes: int, network: Network | None = None, names: Iterable[str] | None = None) -> tuple[System, ...]:
    """Build schedules for N servers on the networks that they were made for.

    Parameters
    ----------
    nodes
        Servers N, at least 2.
    network
        Rates and delays; the defaults of `Network` if ``None``.
    names
        Which of `system_names`; all if ``None``.  A cascade that would be one network, or has none to be made of, is
        left out.

    Raises
    ------
    ComparisonError
        If a name is unknown, or nothing is left.
    """
    network = Network() if network is None else network
    chosen = tuple(_SYSTEMS) if names is None else tuple(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in _SYSTEMS]
    if unknown:
        raise ComparisonError(f"there is no schedule {unknown[0]!r}; there are {', '.join(_SYSTEMS)}")
    fitting = [name for name in chosen if name != CASCADE or _cascades(nodes, network)]
    if not fitting:
        found = (
            "no optical network is known" if network.fan_in is None else f"one network of {network.fan_in} serves all"
        )
        why = f" ({found}: nothing to cascade)" if CASCADE in chosen else ""
        raise ComparisonError(
            f"no schedule is left of {', '.join(chosen) or 'none'} for {nodes} servers{why}; name others"
        )
    return tuple(_system(name, nodes, network) for name in fitting)


def known_systems(nodes: int, network: Network, names: Iterable[str] | None = None) -> tuple[System, ...]:
    """Build those of `build_systems` whose networks can be built; none may be left."""
    chosen = system_names() if names is None else tuple(names)
    if set(chosen) == {CASCADE} and not _cascades(nodes, network):
        return ()
    return tuple(system for system in build_systems(nodes, network, chosen) if system.known)


def _cascades(nodes: int, network: Network) -> bool:
    return network.fan_in is not None and nodes > network.fan_in


def _system(name: str, nodes: int, network: Network) -> System:
    kind, build = _SYSTEMS[name]
    schedule = build(nodes, network)
    links = network.links(kind, tree=isinstance(schedule.fabric, SwitchTree))
    if network.rated == "server":
        links = replace(links, rate_bps=links.rate_bps / lanes(schedule))
    known = kind != "OptINC" or name == CASCADE or (network.fan_in is not None and nodes <= network.fan_in)
    return System(name, kind, schedule, links, overlap=name == "oddl", known=known)


def log_payloads(low: float, high: float, a_decade: int = 3) -> list[float]:
    """Return payloads from ``low`` to ``high``, evenly spaced in their logarithm."""
    if not 0.0 < low < high < math.inf:
        raise ComparisonError(f"payloads must be positive and increase, got {low!r} and {high!r} bytes")
    count = max(2, 1 + math.ceil(a_decade * math.log10(high / low)))
    return [float(payload) for payload in np.geomspace(low, high, count)]
