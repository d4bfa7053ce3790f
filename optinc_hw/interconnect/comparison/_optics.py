"""What light loses: reach on a ring, splitting and averaging, the depth of an optical network."""

import math
from dataclasses import dataclass
from itertools import pairwise

from optinc_hw.errors import ComparisonError


@dataclass(frozen=True)
class LinkBudget:
    """Powers and losses of a wavelength on a ring.

    Defaults are illustrative; they give the reach of 8 nodes of the WRHT author's later public study (LHAS: reference
    parameters), whose losses are not published.

    Parameters
    ----------
    laser_dbm
        Launched power of a wavelength.
    sensitivity_dbm
        Least received power.
    coupling_db
        Of both ends together: modulator, couplers, drop filter.
    margin_db
        Kept for ageing and crosstalk.
    node_db
        Insertion loss of each node that is passed, with its segment of fibre.
    """

    laser_dbm: float = 10.0
    sensitivity_dbm: float = -14.0
    coupling_db: float = 5.0
    margin_db: float = 3.0
    node_db: float = 2.0

    def __post_init__(self) -> None:
        for name in ("coupling_db", "margin_db"):
            _loss(f"{name} of a link", getattr(self, name))
        if not 0.0 < self.node_db < math.inf:
            raise ComparisonError(f"node_db of a link must be positive and finite, got {self.node_db!r} dB")

    @property
    def available_db(self) -> float:
        """What may be lost in nodes."""
        return self.laser_dbm - self.sensitivity_dbm - self.coupling_db - self.margin_db

    @property
    def reach(self) -> int:
        """Segments that a wavelength can pass before it must be regenerated.

        Raises
        ------
        ComparisonError
            If it does not even get to the next node.
        """
        segments = math.floor(self.available_db / self.node_db + 1e-9)
        if segments < 1:
            raise ComparisonError(
                f"{self.available_db:g} dB are left for nodes of {self.node_db:g} dB: light reaches no neighbour; "
                "raise the laser's power or lower the losses"
            )
        return segments


def splitting_loss_db(branches: int) -> float:
    """Return 10 log10 N: what each of N outputs of a passive splitter, or input of a combiner, loses at least."""
    if branches < 1:
        raise ComparisonError(f"a splitter has 1 branch or more, got {branches!r}")
    return 10.0 * math.log10(branches)


@dataclass(frozen=True)
class NetworkDesign:
    """An optical network that averages, as optics see it.

    Parameters
    ----------
    name
        For tables.
    servers
        Inputs of the network: servers that it averages.
    bits
        Of a code, on M = ceil(bits / 2) PAM4 symbols that go side by side.
    sizes
        Signals before the first and after each layer.
    approximated
        Layers, from 1, in blocks of a diagonal times an orthogonal matrix.
    mzis
        Of the whole network (`optinc_hw.onn.count_mzis`).
    passes
        How often light is detected and sent anew through such layers, as by cells of a chain; their depth does not
        add up.
    """

    name: str
    servers: int
    bits: int
    sizes: tuple[int, ...]
    approximated: frozenset[int]
    mzis: int
    passes: int = 1

    @property
    def symbols(self) -> int:
        """M, lanes that one network serves at a time."""
        return -(-self.bits // 2)

    @property
    def columns(self) -> int:
        """Columns of MZIs that light crosses: m + n + 1 in a full layer, min(m, n) + 1 in an approximated one."""
        return sum(
            (min(pair) if layer in self.approximated else sum(pair)) + 1
            for layer, pair in enumerate(pairwise(self.sizes), 1)
        )

    @property
    def modes(self) -> int:
        """Waveguides of all layers, of every pass: what a gain stage between layers must amplify, on the whole."""
        return self.passes * sum(max(pair) for pair in pairwise(self.sizes))


@dataclass(frozen=True)
class MeshLoss:
    """What light loses in an optical network.

    Parameters
    ----------
    column_db
        Of a column of MZIs; 0.2 dB is optimistic.
    gain_db
        Of a gain stage (a semiconductor amplifier).
    budget_db
        Of loss that receivers bear without one.
    """

    column_db: float = 0.2
    gain_db: float = 20.0
    budget_db: float = 10.0

    def __post_init__(self) -> None:
        _loss("column_db of a mesh", self.column_db)
        _loss("budget_db of a mesh", self.budget_db)
        if not 0.0 < self.gain_db < math.inf:
            raise ComparisonError(f"gain_db of a stage must be positive and finite, got {self.gain_db!r} dB")

    def loss_db(self, design: NetworkDesign) -> float:
        """Return the loss of averaging N servers, of the layers, and of copying the result to N servers."""
        return self.column_db * design.columns + 2.0 * splitting_loss_db(design.servers)

    def gain_stages(self, design: NetworkDesign) -> int:
        """Return how many gain stages light must pass."""
        return max(0, math.ceil((self.loss_db(design) - self.budget_db) / self.gain_db - 1e-9))


def _loss(name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise ComparisonError(f"{name} must be 0 or more and finite, got {value!r} dB")
