"""What light loses: reach on a ring, splitting and averaging, the depth of an optical network."""

import math
from dataclasses import dataclass
from itertools import pairwise

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect.comparison._checks import check_not_negative, check_positive, check_whole


@dataclass(frozen=True)
class LinkBudget:
    """Powers and losses of a wavelength on a ring.

    Defaults are illustrative; they give the reach of 8 segments of the WRHT author's later public study (LHAS:
    reference parameters), whose losses are not published.

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
        Insertion loss of a segment: its fibre and the node at its end.

    Raises
    ------
    ComparisonError
        If a power is not finite or a loss out of range.
    """

    laser_dbm: float = 10.0
    sensitivity_dbm: float = -14.0
    coupling_db: float = 5.0
    margin_db: float = 3.0
    node_db: float = 2.0

    def __post_init__(self) -> None:
        for name in ("laser_dbm", "sensitivity_dbm"):
            if not math.isfinite(getattr(self, name)):
                raise ComparisonError(f"{name} of a link must be finite, got {getattr(self, name)!r} dBm")
        for name in ("coupling_db", "margin_db"):
            check_not_negative(f"{name} of a link", getattr(self, name), " dB")
        check_positive("node_db of a link", self.node_db, " dB")

    @property
    def available_db(self) -> float:
        """What may be lost in segments."""
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
                f"{self.available_db:g} dB are left for segments of {self.node_db:g} dB: light reaches no neighbour; "
                "raise the laser's power or lower the losses"
            )
        return segments


def splitting_loss_db(branches: int) -> float:
    """Return 10 log10 N: what each of N outputs of a passive splitter, or input of a combiner, loses at least."""
    check_whole("branches of a splitter", branches, 1)
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

    Raises
    ------
    ComparisonError
        Naming the field that is out of range.
    """

    name: str
    servers: int
    bits: int
    sizes: tuple[int, ...]
    approximated: frozenset[int]
    mzis: int
    passes: int = 1

    def __post_init__(self) -> None:
        for name, least in (("servers", 2), ("bits", 1), ("mzis", 0), ("passes", 1)):
            check_whole(f"{name} of an optical network", getattr(self, name), least)
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise ComparisonError(
                f"sizes of an optical network must be two or more, each 1 or more, got {self.sizes!r}"
            )
        layers = range(1, len(self.sizes))
        if not self.approximated <= set(layers):
            raise ComparisonError(
                f"approximated layers must be among 1 to {layers[-1]}, got {sorted(self.approximated)}"
            )

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
        check_not_negative("column_db of a mesh", self.column_db, " dB")
        check_not_negative("budget_db of a mesh", self.budget_db, " dB")
        check_positive("gain_db of a stage", self.gain_db, " dB")

    def loss_db(self, design: NetworkDesign) -> float:
        """Return the loss of averaging N servers, of the layers, and of copying the result to N servers."""
        return self.column_db * design.columns + 2.0 * splitting_loss_db(design.servers)

    def gain_stages(self, design: NetworkDesign) -> int:
        """Return how many gain stages light must pass."""
        return max(0, math.ceil((self.loss_db(design) - self.budget_db) / self.gain_db - 1e-9))
