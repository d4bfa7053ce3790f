"""Networks of the table of tolerances: constructed of each kind of units, in each form, and trained."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from optinc_hw.onn import (
    SCENARIOS,
    CellChain,
    Form,
    OpticalNetwork,
    UnitKind,
    build_cell,
    build_exact,
    enumerate_inputs,
    load_trained,
    widen_to_sigma_u,
)

SLOPE = 8.0
SLOPES: dict[UnitKind, float] = {"clip01": SLOPE, "relu": 2.0, "sin2": SLOPE, "fold": SLOPE}
"""Slopes of steps: noise of a pair of ReLUs grows with theirs."""
FORMS: tuple[Form, ...] = ("svd", "re_u", "sigma_u")
NAMES: dict[Form, str] = {"svd": "U Sigma V", "re_u": "Re(U)", "sigma_u": "Sigma U"}
UNITS: dict[UnitKind, str] = {
    "clip01": "saturating", "relu": "ReLU", "sin2": "sin^2", "fold": "sin^2 and limiters",
}  # fmt: skip
WIDTHS: dict[UnitKind, int] = {"clip01": 12, "relu": 21, "sin2": 13, "fold": 12}
"""Least width at which a constructed network for 4 servers and 8 bits is in blocks ``Sigma U``."""
CELLS: dict[UnitKind, tuple[int, ...]] = {
    "clip01": (2, 8, 2), "relu": (2, 14, 2), "sin2": (2, 8, 2), "fold": (2, 6, 6, 2),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Entry:
    """A row of the table.

    Parameters
    ----------
    kind
        What the network is made of.
    network
        The network or chain.
    form, copies
        See `optinc_hw.onn.simulate_chips`.
    goal
        Whether it is to reach the goal of issue 6.
    quick
        Whether quick runs have it.
    """

    kind: str
    network: OpticalNetwork | CellChain
    form: Form = "sigma_u"
    copies: int = 1
    goal: bool = False
    quick: bool = False

    @property
    def layers(self) -> str:
        """Sizes of the layers, and how many cells or copies."""
        times = [self.network.count] if isinstance(self.network, CellChain) else []
        times += [self.copies] if self.copies > 1 else []
        return " x ".join([*map(str, times), "-".join(map(str, self.network.sizes))])

    @property
    def name(self) -> str:
        """Name of the row."""
        return f"{self.kind}, {self.network.servers} servers, {NAMES[self.form]}, {self.layers}"


def entries(quick: bool) -> Iterator[Entry]:
    """Rows of the table, for 8 bits; fewer of them in quick runs."""
    for entry in (*networks(), *chains(), *many_servers(), *trained()):
        if entry.quick or not quick:
            yield entry
    if not quick:
        network = build_exact(4, 8, slope=SLOPES["relu"], unit="relu")
        yield Entry("ReLU, widened", widen_to_sigma_u(network, SCENARIOS[0].sizes))
        yield Entry("trained, published sizes", published_sizes()[0])


def networks() -> Iterator[Entry]:
    """One network from unit P to the receivers, 4 servers."""
    for unit, kind in UNITS.items():
        network = build_exact(4, 8, slope=SLOPES[unit], unit=unit)
        width, depth = WIDTHS[unit], len(network.sizes) - 2
        wide = widen_to_sigma_u(network, (4, *([width] * depth), 4))
        for form in FORMS:
            few = unit == "clip01" and form == "svd"
            yield Entry(f"{kind}, network", wide if form == "sigma_u" else network, form, quick=few)
    network = build_exact(4, 8, slope=SLOPE)
    yield Entry(f"{UNITS['clip01']}, network", network, "svd", 4, goal=True)
    yield Entry(f"{UNITS['clip01']}, network", network, "re_u", 6)


def chains() -> Iterator[Entry]:
    """Chains of constructed cells, 4 servers."""
    for unit, kind in UNITS.items():
        cell = build_cell(slope=SLOPES[unit], unit=unit)
        for form in FORMS:
            one = CellChain(widen_to_sigma_u(cell, CELLS[unit]) if form == "sigma_u" else cell, 4, 8)
            yield Entry(f"{kind}, chain", one, form, goal=unit != "relu" and form != "sigma_u", quick=form == "re_u")


def constructed_chain() -> CellChain:
    """Return four cells of four saturating units, every layer in blocks of two ports."""
    return CellChain(widen_to_sigma_u(build_cell(slope=SLOPE), CELLS["clip01"]), 4, 8)


def many_servers() -> Iterator[Entry]:
    """Networks and chains for 8 and 16 servers without a tree."""
    for unit in ("clip01", "sin2", "fold"):
        kind = UNITS[unit]
        for servers in (8, 16):
            yield Entry(f"{kind}, network", build_exact(servers, 8, slope=SLOPE, unit=unit), "re_u")
        cell = build_cell(16, slope=SLOPE, unit=unit)
        for form in ("svd", "re_u"):
            yield Entry(f"{kind}, chain", CellChain(cell, 16, 8), form, quick=form == "re_u" and unit == "fold")
        if unit != "clip01":
            yield Entry(f"{kind}, chain", CellChain(widen_to_sigma_u(cell, CELLS[unit]), 16, 8))


def trained() -> Iterator[Entry]:
    """Networks that come with the package."""
    for name in ("cell-4", "cell-4-small", "cell-4-tiny", "network-4"):
        network, _ = load_trained(name)
        yield Entry(name, network, goal=name in ("cell-4", "cell-4-small"), quick=name == "cell-4-tiny")


@cache
def published_sizes() -> tuple[OpticalNetwork, float]:
    """Network of the published sizes of scenario 1, trained in blocks with noise; and the CPU time in s, minutes."""
    from optinc_hw.onn.training import TrainingSettings, train_network

    begun = time.process_time()
    settings = TrainingSettings(SCENARIOS[0].sizes, epochs=500, rate=2e-3, noise=0.01)
    network = train_network(SCENARIOS[0].space, settings).network
    spent = time.process_time() - begun
    return replace(network, margin=enumerate_inputs(network).margin), spent  # looks of the training were noisy
