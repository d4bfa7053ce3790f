"""What a network does on many imperfect chips: symbol error rates of simulated meshes."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._area import Form, count_mzis
from optinc_hw.onn._cells import Cell, CellChain
from optinc_hw.onn._checks import whole_number
from optinc_hw.onn._codec import encode_pam4, quantised_mean
from optinc_hw.onn._network import Multiply, OpticalNetwork, frozen_array
from optinc_hw.onn._tiling import LayerPlan, Tile, TilePlan, centred, tile

if TYPE_CHECKING:
    from optinc_hw.photonics import MeshPhases

_Real = NDArray[np.float64]
_Complex = NDArray[np.complex128]

_EXACT = 1e-6
"""Residual of a realisation below which it is the matrix."""


@dataclass(frozen=True)
class ChipErrors:
    """Errors of simulated chips; every number is the standard deviation of a Gaussian unless it says otherwise.

    Parameters
    ----------
    phase_rad
        Static error of every phase (theta, phi and output phases of meshes, attenuators), in rad.
    coupler_rad
        Static error of every coupler's splitting angle in rad.
    crosstalk
        Share of a phase that arrives at the next MZI; falls with the distance d in MZIs as exp(1 - d).
    dac_bits
        Steps of the phases, ``2 pi / 2**dac_bits``; None for none.
    amplitude
        Relative error of every amplitude that is sent and of every amplitude that is received, new for each symbol.
    """

    phase_rad: float = 0.0
    coupler_rad: float = 0.0
    crosstalk: float = 0.0
    dac_bits: int | None = None
    amplitude: float = 0.0

    def __post_init__(self) -> None:
        for name in ("phase_rad", "coupler_rad", "crosstalk", "amplitude"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0.0):
                raise NetworkError(f"{name} must be finite and not negative, got {value!r}")
        if self.dac_bits is not None and not whole_number(self.dac_bits, 1):
            raise NetworkError(f"dac_bits must be an integer of at least 1, or None, got {self.dac_bits!r}")


@dataclass(frozen=True, eq=False)
class SimulatedChips:
    """Symbol error rates of a network on simulated chips.

    Parameters
    ----------
    form
        Realisation of the layers.
    mzis
        MZIs of all layers and copies, meshes and attenuators.
    columns
        Optical depth: MZI columns that light crosses from the first to the last layer.
    rates
        Symbol error rate (chips,) of each chip.
    symbols
        Number of symbols that each rate is of.
    """

    form: Form
    mzis: int
    columns: int
    rates: _Real
    symbols: int

    @property
    def rate(self) -> float:
        """Symbol error rate of all chips together."""
        return float(self.rates.mean())

    def __str__(self) -> str:
        """Summarise for people."""
        return (
            f"{self.form}, {self.mzis} MZIs, {self.columns} columns: symbol error rate {self.rate:.1e} "
            f"(worst of {len(self.rates)} chips {self.rates.max():.1e}, {self.symbols} symbols each)"
        )


def simulate_chips(
    network: OpticalNetwork | CellChain,
    errors: ChipErrors,
    form: Form = "svd",
    *,
    chips: int = 100,
    inputs: int = 2000,
    copies: int = 1,
    seed: int = 0,
) -> SimulatedChips:
    """Run a network on simulated meshes with errors that nobody corrects.

    Every layer is one optical product, conditioned as by `tile`: signed fields around the middle of the inputs' ranges,
    rows of full length, one row for units that look at the same product.  ``"sigma_u"`` keeps the layer's matrix as it
    is, in which all inputs have one scale, since other scales would spoil its blocks.  Receivers read real parts.

    Parameters
    ----------
    network
        The network; for ``"sigma_u"`` one of `widen_to_sigma_u` or trained. Every cell of a chain has chips of its own.
    errors
        Errors of the chips.
    form
        Realisation of the layers, see `optinc_hw.photonics.realise`.
    chips, inputs
        Number of chips, and of random codes that each is given.
    copies
        Meshes that do the same product; their outputs are averaged after detection.
    seed
        Of errors and codes.

    Raises
    ------
    NetworkError
        If a count is below 1, the form is unknown, or ``"sigma_u"`` is asked of a network that is not in blocks.
    """
    for name, count in (("chips", chips), ("inputs", inputs), ("copies", copies)):
        if not whole_number(count, 1):
            raise NetworkError(f"{name} must be an integer of at least 1, got {count!r}")
    rng = np.random.default_rng(seed)
    unit, cells = (network.cell, network.count) if isinstance(network, CellChain) else (network, 1)
    plan = _uniform(unit) if form == "sigma_u" else tile(unit, max(2, *unit.sizes))
    codes = rng.integers(0, 1 << network.bits, (inputs, network.servers))
    symbols, averages = encode_pam4(quantised_mean(codes, network.rounding), network.bits), network.prepare(codes)
    optics = [_Optics(part.matrix, form, errors) for part in plan.tiles]
    drawn = [part.draw(chips * copies, rng) for _ in range(cells) for part in optics]
    made = [matrices.reshape(chips, copies, *matrices.shape[1:]) for matrices in drawn]
    rates = np.empty(chips)
    for chip in range(chips):

        def multiply(index: int, signals: _Real, chip: int = chip) -> _Real:
            cell, layer = divmod(index, len(unit.layers))

            def forward(part: int, amplitudes: _Real) -> _Real:
                sent = _noisy(np.broadcast_to(amplitudes, (copies, *amplitudes.shape)), errors, rng)
                matrices = made[cell * len(optics) + part][chip]
                return np.asarray(_noisy(sent @ matrices.swapaxes(-1, -2), errors, rng).mean(axis=0))

            return plan.run_layer(layer, signals, forward)

        received = network.decode(network.forward(averages, multiply))
        rates[chip] = np.mean(encode_pam4(received, network.bits) != symbols)
    mzis = copies * cells * sum(count_mzis(part.shape, form) for part in plan.tiles)
    columns = cells * sum(_depth(part.shape, form) for part in plan.tiles)
    return SimulatedChips(form, mzis, columns, rates, symbols.size)


def mesh_products(network: OpticalNetwork | CellChain, form: Form = "sigma_u") -> Multiply:
    """Return products as perfect meshes do them: every layer factored, its MZIs' phases found, and multiplied again.

    Parameters
    ----------
    network
        The network, or a chain, whose cells are alike.
    form
        Realisation of the layers, see `optinc_hw.photonics.realise`.

    Returns
    -------
    Multiply
        For `OpticalNetwork.forward` or `enumerate_inputs`.

    Raises
    ------
    NetworkError
        If the form is unknown, or ``"sigma_u"`` is asked of a network that is not in blocks.
    """
    layers = network.cell.layers if isinstance(network, CellChain) else network.layers
    perfect, rng = ChipErrors(), np.random.default_rng(0)
    matrices = [_Optics(layer.weight, form, perfect).draw(1, rng)[0] for layer in layers]
    return lambda index, signals: np.asarray(signals @ matrices[index % len(matrices)].T)


def _arriving(phases: _Real, places: NDArray[np.intp], crosstalk: float) -> _Real:
    """Phases (..., mzis) that heat of others adds, at places (mzis, 2) in columns and ports; an MZI is two ports high.

    What arrives depends on differences of places only, so it is a convolution.
    """
    from scipy.signal import fftconvolve  # here: networks are built without scipy

    reach = np.max(places, axis=0, initial=0)
    columns, ports = (np.arange(-most, most + 1.0) for most in reach)
    distance = np.hypot(columns[:, None], ports / 2.0)
    kernel = np.where(distance > 0.0, crosstalk * np.exp(1.0 - distance), 0.0)
    board = np.zeros((*phases.shape[:-1], *(reach + 1)))
    board[..., places[:, 0], places[:, 1]] = phases
    leading = (1,) * (phases.ndim - 1)
    heat = fftconvolve(board, kernel.reshape(*leading, *kernel.shape), mode="full", axes=(-2, -1))
    return np.asarray(heat[..., reach[0] + places[:, 0], reach[1] + places[:, 1]])


def _noisy(amplitudes: _Real, errors: ChipErrors, rng: np.random.Generator) -> _Real:
    return amplitudes * (1.0 + errors.amplitude * rng.standard_normal(amplitudes.shape))


def _depth(shape: tuple[int, int], form: Form) -> int:
    """Columns of MZIs: one mesh of p ports has p, attenuators one."""
    rows, columns = shape
    return {"svd": rows + columns + 1, "sigma_u": min(shape) + 1, "re_u": max(shape)}[form]


class _Optics:
    """Meshes and attenuators of one matrix, and what errors make of them."""

    def __init__(self, matrix: _Real, form: Form, errors: ChipErrors) -> None:
        from optinc_hw.photonics import realise  # here: networks are built without the torch of photonics

        self._errors = errors
        self._made = realise(matrix, form)
        if self._made.residual > _EXACT:
            raise NetworkError(
                f"a layer of shape {matrix.shape} is off blocks Sigma U by {self._made.residual:.1e} of its norm; lay "
                "the network out in blocks first, see widen_to_sigma_u"
            )
        self._form = form
        self._phases = self._made.meshes()

    def draw(self, chips: int, rng: np.random.Generator) -> _Real:
        """Matrices (chips, m, n) that receivers of real parts see."""
        from optinc_hw.photonics import BlockRealisation, SvdRealisation

        meshes, made = [self._mesh(phases, chips, rng) for phases in self._phases], self._made
        rows, columns = made.shape
        if isinstance(made, SvdRealisation):
            right, left = meshes
            count = len(made.sigma)
            sigma = self._attenuators(made.sigma, chips, rng)
            product = (left[:, :, :count] * sigma[:, None, :]) @ right[:, :count]
        elif isinstance(made, BlockRealisation):
            sigma = self._attenuators(made.sigma, chips, rng)
            blocks = [sigma[:, k, :, None] * mesh for k, mesh in enumerate(meshes)]
            product = np.concatenate(blocks, axis=2 if columns > rows else 1)[:, :rows, :columns]
        else:
            product = meshes[0][:, :rows, :columns]
        return np.asarray(made.scale * product.real)

    def _phase(self, phases: _Real, chips: int, rng: np.random.Generator) -> _Real:
        """Phases (chips, ...) as drivers and errors make them."""
        if self._errors.dac_bits is not None:
            step = 2.0 * np.pi / 2**self._errors.dac_bits
            phases = np.round(phases / step) * step
        return phases + self._errors.phase_rad * rng.standard_normal((chips, *phases.shape))

    def _attenuators(self, sigma: _Real, chips: int, rng: np.random.Generator) -> _Complex:
        """Transmissions of MZIs whose bar states are the attenuations."""
        ideal = 2.0 * np.arcsin(sigma)
        theta = self._phase(ideal, chips, rng)
        return np.asarray(np.sin(theta / 2.0) * np.exp(0.5j * (theta - ideal)))

    def _mesh(self, phases: "MeshPhases", chips: int, rng: np.random.Generator) -> _Complex:
        from optinc_hw.photonics import MeshImperfections, MeshPhases, mesh_matrix

        layout = phases.layout
        both = self._phase(np.stack([phases.theta, phases.phi]), chips, rng)
        if self._errors.crosstalk:
            both = both + _arriving(both, np.array(layout.mzis, dtype=np.intp).reshape(-1, 2), self._errors.crosstalk)
        output = self._phase(phases.output, chips, rng)
        eta = np.pi / 4 + self._errors.coupler_rad * rng.standard_normal((2, chips, len(layout.mzis)))
        flaws = MeshImperfections(eta[0], eta[1], np.ones(len(layout.mzis)))
        return mesh_matrix(MeshPhases(layout, both[:, 0], both[:, 1], output), flaws)


def _uniform(network: OpticalNetwork | Cell) -> TilePlan:
    """Plan of one product a layer in which all inputs have one scale, and rows that of their largest attenuation."""
    tiles, plans, spare = [], [], np.zeros(network.inputs)
    folded = np.zeros(network.inputs, dtype=bool)
    for index, layer in enumerate(network.layers):
        centre, half = centred(layer, spare)
        # Most signals of trained ReLUs are small, and noise is a part of what is sent: so they are sent from 0 up.
        bare = (layer.step == 0.0) & ~folded
        centre, half = np.where(bare, layer.low, centre), np.where(bare, layer.high - layer.low + spare, half)
        width = np.full(len(half), half.max())
        rows, columns = layer.weight.shape
        side = min(rows, columns)
        edges = [*range(0, columns, side), columns]
        parts = [np.linalg.norm(layer.weight[:, start:stop], axis=1) for start, stop in pairwise(edges)]
        scale = np.max(parts, axis=0)
        lit = np.where(scale > 0.0, scale, 1.0)
        matrix = frozen_array(layer.weight / lit[:, None], 2, "tile matrix")
        tiles.append(
            Tile(index, slice(0, rows), slice(0, columns), matrix, frozen_array(scale * half.max(), 1, "row scale"))
        )
        plans.append(LayerPlan((index,), layer.weight, np.arange(rows), np.ones(rows), centre, width))
        folded = layer.folding
        spare = np.where(layer.saturating | folded, 0.0, 0.5)
    return TilePlan(network, max(network.sizes), tuple(tiles), tuple(plans))
