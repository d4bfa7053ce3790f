"""Cutting a network's layers into tiles that fit a chip, conditioned for noisy optics.

A chip of n ports multiplies field amplitudes |a_i| <= 1 by a passive matrix (spectral norm <= 1) and adds detection
noise of a fixed size.  So the plan keeps out of the optics what only costs dynamic range:

* inputs are centred, x = centre + half * a with a in [-1, 1]; W @ centre is a digital offset;
* the centre lies between two levels of an input, never on one: a modulator of finite extinction cannot send zero;
* rows of W that are multiples of one another become one optical row with a digital gain each (the carry chain's
  three steps look at one v);
* rows have unit length before the tile is scaled to spectral norm 1; both factors are digital, per row;
* blocks of zeros need no tile.

What the exact network for N = 4, B = 8, slope 4 then tolerates (errors in units of full scale, the largest input
amplitude; additive: Gaussian, fresh for each tile output; static: Gaussian error of every matrix entry, worst of 20
chips; symbol error rates over uniform codes):

=====  ===========  ===================  =============================================  ==========================
ports  `tolerance`  largest output gain  SER, additive rms 0.5 / 0.7 / 1.0 / 1.4 / 2 %  SER, static rms 0.3 / 0.5 %
=====  ===========  ===================  =============================================  ==========================
8      1.31 %       17.3 levels          0 / 8e-6 / 1e-3 / 1.6e-2 / 8e-2                0 / 6e-3 (mean 3e-4)
4      1.20 %       16.7 levels          0 / 4e-6 / 9e-4 / 1.5e-2 / 8e-2                0 / 0
=====  ===========  ===================  =============================================  ==========================

Additive noise of 0.1 to 0.3 % is thus far inside.  Entry errors count once for each lit input, entries that should
be zero included, so smaller tiles (``ports`` below the chip's) buy tolerance to a badly programmed matrix with more
tiles to program.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._cells import Cell
from optinc_hw.onn._checks import whole_number
from optinc_hw.onn._network import Layer, OpticalNetwork, frozen_array
from optinc_hw.onn._rows import distinct_rows

Forward = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]
"""``forward(tile_index, amplitudes (batch, cols)) -> (batch, rows)``: the optical product of one tile."""

_ON_LEVEL = 1e-6
_CONTRACTION = 1.0 - 1e-12  # keeps rounding from lifting a spectral norm above 1


@dataclass(frozen=True, eq=False)
class Tile:
    """One matrix for the chip.

    Parameters
    ----------
    layer
        Index of the layer.
    rows
        Slice of the layer's optical rows (`LayerPlan`), not of its units.
    cols
        Slice of the layer's inputs.
    matrix
        Target (rows, cols), float64, spectral norm at most 1.
    row_scale
        Digital factor (rows,) of each output: an error e of an output amplitude is an error ``row_scale * e`` of the
        product.
    """

    layer: int
    rows: slice
    cols: slice
    matrix: NDArray[np.float64]
    row_scale: NDArray[np.float64]

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols) of the matrix."""
        rows, cols = self.matrix.shape
        return int(rows), int(cols)


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """Digital part of one layer's product.

    Parameters
    ----------
    tiles
        Indices of the layer's tiles.
    base
        Optical rows (r, in): the distinct directions among the rows of W.
    unit_row, unit_gain
        For each output (out,): its optical row and the factor on it.
    centre, half
        Middle and half width (in,) of the input range that amplitudes -1..1 stand for.
    """

    tiles: tuple[int, ...]
    base: NDArray[np.float64]
    unit_row: NDArray[np.intp]
    unit_gain: NDArray[np.float64]
    centre: NDArray[np.float64]
    half: NDArray[np.float64]

    @cached_property
    def offset(self) -> NDArray[np.float64]:
        """Product (r,) of the optical rows with the centre of the range."""
        return np.asarray(self.base @ self.centre)

    def amplitudes(self, signals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Field amplitudes (batch, in) of the layer's inputs; what exceeds the range saturates at -1 or 1."""
        width = np.where(self.half > 0.0, self.half, 1.0)
        return np.clip((signals - self.centre) / width, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class TilePlan:
    """A network cut into tiles, with all that is needed to run it on a chip; made by `tile`.

    Parameters
    ----------
    network
        The network, or a cell.
    ports
        Ports of the chip; no tile is larger.
    tiles
        All tiles, by layer.
    layers
        Digital part of each layer.
    """

    network: OpticalNetwork | Cell
    ports: int
    tiles: tuple[Tile, ...]
    layers: tuple[LayerPlan, ...]

    def __str__(self) -> str:
        """List the tiles: layer, optical rows, inputs, and the part of the chip's matrix that each fills."""
        sizes = "-".join(map(str, self.network.sizes))
        lines = [
            f"{len(self.tiles)} tiles for a chip of {self.ports} ports, layers {sizes}; "
            f"{self.fill:.0%} of the chip's matrix used",
            "tile  layer  rows      inputs    filled",
        ]
        for index, part in enumerate(self.tiles):
            rows, cols = (f"{piece.start}-{piece.stop - 1}" for piece in (part.rows, part.cols))
            filled = part.matrix.size / self.ports**2
            lines.append(f"{index:4}  {part.layer:5}  {rows:<8}  {cols:<8}  {filled:6.0%}")
        return "\n".join(lines)

    @property
    def fill(self) -> float:
        """Part of the chip's n x n matrix that tiles use, in the mean."""
        return float(np.mean([part.matrix.size for part in self.tiles])) / self.ports**2

    def run_layer(self, layer: int, signals: NDArray[np.float64], forward: Forward) -> NDArray[np.float64]:
        """Product W x (batch, out) of one layer, its tiles multiplied by ``forward`` and added digitally.

        Parameters
        ----------
        layer
            Index of the layer.
        signals
            Inputs x (batch, in).
        forward
            Multiplies amplitudes (batch, cols) in [-1, 1] by the matrix of the tile with the given index.

        Raises
        ------
        NetworkError
            If ``forward`` returns another shape than (batch, rows).
        """
        plan = self.layers[layer]
        amplitudes = plan.amplitudes(signals)
        sums = np.tile(plan.offset, (len(signals), 1))
        for index in plan.tiles:
            part = self.tiles[index]
            product = forward(index, np.ascontiguousarray(amplitudes[:, part.cols]))
            if product.shape != (len(signals), part.shape[0]):
                raise NetworkError(
                    f"tile {index} of layer {layer} returned shape {product.shape}; expected "
                    f"{(len(signals), part.shape[0])}"
                )
            sums[:, part.rows] += product * part.row_scale
        return np.asarray(sums[:, plan.unit_row] * plan.unit_gain)

    def run(self, inputs: NDArray[np.float64], forward: Forward) -> NDArray[np.float64]:
        """Analogue symbols (batch, M) of the whole network for unit P's averages (batch, K); see `run_layer`."""
        return self.network.forward(inputs, lambda layer, signals: self.run_layer(layer, signals, forward))

    @cached_property
    def sensitivity(self) -> tuple[NDArray[np.float64], ...]:
        """Derivative (out, outputs of all tiles) of each layer's W x + bias by errors of tile outputs.

        Saturating units pass nothing on, as is true for errors within their slack.  Behind sin^2 units, whose
        derivative lies between -pi and pi, it is the largest size that the derivative can have.  A tile output's error
        is in units of the amplitude 1 that the inputs can have at most (full scale).
        """
        total = sum(part.shape[0] for part in self.tiles)
        starts = np.cumsum([0, *(part.shape[0] for part in self.tiles)])
        incoming, doubt = np.zeros((2, self.network.inputs, total))
        result = []
        for layer, plan in zip(self.network.layers, self.layers, strict=True):
            rows, spread = plan.base @ incoming, np.abs(plan.base) @ doubt
            for index in plan.tiles:
                part = self.tiles[index]
                places = np.arange(part.rows.start, part.rows.stop)
                rows[places, starts[index] + np.arange(len(places))] += part.row_scale
            gain = plan.unit_gain[:, None]
            units, doubt = rows[plan.unit_row] * gain, spread[plan.unit_row] * np.abs(gain)
            size = np.abs(units) + doubt
            result.append(np.where(doubt > 0.0, size, units))
            saturating, folding = layer.saturating[:, None], layer.folding[:, None]
            incoming = np.where(saturating | folding, 0.0, units)
            doubt = np.where(saturating, 0.0, np.where(folding, np.pi * size, doubt))
        return tuple(result)

    @property
    def noise_gain(self) -> tuple[NDArray[np.float64], ...]:
        """Per layer, rms error (out,) of W x + bias for independent tile output errors of rms 1, in the units of W x.

        The last entry is the noise amplification of the network's outputs in PAM4 level distances.
        """
        return tuple(np.sqrt((part**2).sum(axis=1)) for part in self.sensitivity)

    @property
    def tolerance(self) -> float:
        """Largest error of every tile output, whatever its sign, that provably changes no symbol.

        In units of full scale (input amplitude 1).  All errors conspire in this bound; independent errors of that size
        rarely do.
        """
        limits = []
        for layer, part in zip(self.network.layers, self.sensitivity, strict=True):
            reach = np.abs(part).sum(axis=1)
            unlimited = np.full(len(reach), np.inf)
            limits.append(float(np.divide(layer.slack, reach, out=unlimited, where=reach > 0.0).min()))
        return min(limits)


def _slices(length: int, ports: int) -> list[slice]:
    """Fewest slices of at most ``ports``, of nearly equal length."""
    edges = np.linspace(0, length, -(-length // ports) + 1).round().astype(int).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _cut(layer: int, block: NDArray[np.float64], rows: slice, cols: slice) -> Tile | None:
    """Tile of a block of scaled weights, or None if the block is zero."""
    part = block[rows, cols]
    lengths = np.linalg.norm(part, axis=1)
    if not lengths.any():
        return None
    unit = part / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    norm = float(np.linalg.norm(unit, 2)) / _CONTRACTION
    return Tile(
        layer,
        rows,
        cols,
        frozen_array(unit / norm, 2, "tile matrix"),
        frozen_array(lengths * norm, 1, "tile row scale"),
    )


def centred(layer: Layer, spare: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and half width (in,) of each input's amplitude range, the centre moved off a level by half a step."""
    middle, half = (layer.low + layer.high) / 2.0, (layer.high - layer.low) / 2.0
    levels = np.divide(half, layer.step, out=np.full(len(half), 0.5), where=layer.step > 0.0)
    shift = np.where(np.abs(levels - np.round(levels)) < _ON_LEVEL, layer.step / 2.0, 0.0)
    return middle + shift, half + shift + spare


def tile(network: OpticalNetwork | Cell, ports: int, *, headroom: float = 0.5) -> TilePlan:
    """Cut a network into tiles for a chip of ``ports`` ports.

    Parameters
    ----------
    network
        The network.
    ports
        Ports of the chip, at least 2.
    headroom
        Widening of the amplitude range of linear signals between layers, at each end, in their own unit (one PAM4 level
        for the exact network): room for errors.  Network inputs, saturating and sin^2 units need none.

    Returns
    -------
    TilePlan
        With an exact ``forward`` it reproduces the network to rounding error.

    Raises
    ------
    NetworkError
        If ``ports`` is below 2 or ``headroom`` is negative or not finite.
    """
    if not whole_number(ports, 2):
        raise NetworkError(f"a chip needs an integer number of at least 2 ports, got {ports!r}")
    if not (np.isfinite(headroom) and headroom >= 0.0):
        raise NetworkError(f"headroom must be finite and not negative, got {headroom!r}")
    tiles: list[Tile] = []
    plans: list[LayerPlan] = []
    spare = np.zeros(network.inputs)
    for index, layer in enumerate(network.layers):
        base, unit_row, unit_gain = distinct_rows(layer.weight)
        centre, half = centred(layer, spare)
        first = len(tiles)
        for rows in _slices(len(base), int(ports)):
            for cols in _slices(base.shape[1], int(ports)):
                part = _cut(index, base * half, rows, cols)
                if part is not None:
                    tiles.append(part)
        plans.append(
            LayerPlan(
                tiles=tuple(range(first, len(tiles))),
                base=frozen_array(base, 2, "optical rows"),
                unit_row=unit_row,
                unit_gain=frozen_array(unit_gain, 1, "unit gain"),
                centre=frozen_array(centre, 1, "input centre"),
                half=frozen_array(half, 1, "input half range"),
            )
        )
        spare = np.where(layer.saturating | layer.folding, 0.0, headroom)
    return TilePlan(network, int(ports), tuple(tiles), tuple(plans))
