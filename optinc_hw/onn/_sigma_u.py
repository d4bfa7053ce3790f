"""Networks whose every layer is, exactly, made of the paper's approximated blocks ``Sigma U``.

In each square block the rows must be orthogonal to each other.  Any rows R can be made so with inputs that stay dark:
with unit rows and lambda the largest eigenvalue of R R^T, ``R R^T + X X^T = lambda 1`` has a solution X of as many
columns as lambda 1 - R R^T has rank; X multiplies the dark inputs, and the row lengths go into Sigma.  So a network
that is right in any arithmetic is right in blocks ``Sigma U`` too, if its layers are wide enough.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._cells import Cell
from optinc_hw.onn._checks import whole_number
from optinc_hw.onn._network import Layer, OpticalNetwork

_Real = NDArray[np.float64]
_Places = NDArray[np.intp]

_ZERO = 1e-9
"""Eigenvalue, in units of the largest, below which a Gram matrix is said to be singular."""
_DARK_BIAS = -1.0
"""Bias of units that are to stay at 0: noise below 1 does not light them."""


@overload
def widen_to_sigma_u(network: OpticalNetwork, sizes: Sequence[int]) -> OpticalNetwork: ...
@overload
def widen_to_sigma_u(network: Cell, sizes: Sequence[int]) -> Cell: ...
def widen_to_sigma_u(network: OpticalNetwork | Cell, sizes: Sequence[int]) -> OpticalNetwork | Cell:
    """Lay out a network or a cell in layers of given sizes, each of them exactly in blocks ``Sigma U``.

    Parameters
    ----------
    network
        Any network or cell whose hidden signals are not negative, such as of `build_exact` or `build_cell`.
    sizes
        Signals before the first and after each layer, as in Table I of OptINC: (4, 64, 128, 256, 128, 64, 4). More
        layers than the network has pass its inputs on first.

    Returns
    -------
    OpticalNetwork or Cell
        The same function; ``realise(layer.weight, "sigma_u")`` is exact for every layer. Units that are not needed
        have a bias that keeps them at 0.

    Raises
    ------
    NetworkError
        If the sizes do not begin and end as the network does, have fewer layers, or are too narrow; the message names
        the layer.
    """
    wanted = [int(size) for size in sizes if whole_number(size, 1)]
    if len(wanted) != len(sizes) or len(wanted) < len(network.sizes):
        raise NetworkError(f"sizes {tuple(sizes)} must be integers, at least {len(network.sizes)} of them")
    if (wanted[0], wanted[-1]) != (network.sizes[0], network.sizes[-1]):
        raise NetworkError(
            f"sizes {tuple(sizes)} must begin with the network's {network.sizes[0]} inputs and end with its "
            f"{network.sizes[-1]} outputs"
        )
    layers = [_passing(network.layers[0])] * (len(wanted) - len(network.sizes)) + list(network.layers)
    return replace(network, layers=_widened(layers, wanted))


def _widened(layers: list[Layer], sizes: list[int]) -> tuple[Layer, ...]:
    """Layers of the given sizes."""
    lit = np.arange(sizes[0])
    wide = []
    for number, layer in enumerate(layers):
        last = number == len(layers) - 1
        order = np.arange(sizes[-1]) if last else _spread(sizes[number + 1], sizes[number + 2])
        found = _blocks(layer.weight, lit, (sizes[number + 1], sizes[number]), order)
        if found is None:
            raise NetworkError(
                f"layer {number} of {sizes[number + 1]} outputs and {sizes[number]} inputs is too narrow for "
                f"{layer.weight.shape[0]} signals made of {layer.weight.shape[1]}; widen one of them"
            )
        weight, places = found
        wide.append(_placed(layer, weight, lit, places))
        lit = places
    return tuple(wide)


def _passing(layer: Layer) -> Layer:
    """Layer that hands the inputs of ``layer`` on."""
    count = layer.weight.shape[1]
    kind = "relu" if "relu" in layer.activation else "linear"
    return Layer(
        weight=np.eye(count),
        bias=np.zeros(count),
        activation=(kind,) * count,
        low=layer.low,
        high=layer.high,
        step=layer.step,
        slack=np.full(count, np.inf),
    )


def _spread(count: int, following: int) -> _Places:
    """Order in which ``count`` places are filled: one in every whole block of the following layer first."""
    side = min(count, following)
    blocks = count // side
    order = np.arange(blocks * side).reshape(blocks, side).T.reshape(-1)
    return np.concatenate([order, np.arange(blocks * side, count)])


def _blocks(weight: _Real, lit: _Places, shape: tuple[int, int], order: _Places) -> tuple[_Real, _Places] | None:
    """Matrix of the given shape in blocks that holds ``weight`` at the ``lit`` inputs; and the places of its rows."""
    rows, columns = shape
    whole = np.zeros(shape)
    if rows < len(weight):
        return None
    if rows >= columns:
        groups = _grouped(weight, columns - len(lit), -(-rows // columns))
        if groups is None:
            return None
        places = np.empty(len(weight), dtype=np.intp)
        for block, members in enumerate(groups):
            slots = order[order // columns == block]
            if len(slots) < len(members):
                return None
            places[members] = slots[: len(members)]
            if members:
                whole[places[members]] = _completed(weight[members], lit, columns)
        return whole, places
    places = order[: len(weight)]
    for start in range(0, columns, rows):
        inside = (lit >= start) & (lit < start + rows)
        part = weight[:, inside]
        used = np.flatnonzero(part.any(axis=1))
        width = min(rows, columns - start)
        if _rank(part[used]) > width - inside.sum():
            return None
        if len(used):
            whole[places[used], start : start + width] = _completed(part[used], lit[inside] - start, width)
    return whole, places


def _grouped(weight: _Real, dark: int, blocks: int) -> list[list[int]] | None:
    """Rows of each block, such that ``dark`` inputs make them orthogonal."""
    groups: list[list[int]] = [[] for _ in range(blocks)]
    for row in range(len(weight)):
        for members in groups:
            if len(members) < weight.shape[1] + dark and _rank(weight[[*members, row]]) <= dark:
                members.append(row)
                break
        else:
            return None
    return groups


def _gap(rows: _Real) -> tuple[_Real, _Real]:
    """Eigenvalues and vectors of ``lambda 1 - R R^T`` for unit rows R, over lambda."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(unit @ unit.T)
    return 1.0 - values / values[-1], vectors


def _rank(rows: _Real) -> int:
    """Return the number of dark inputs that make rows, none of them zero, orthogonal."""
    return int(np.sum(_gap(rows)[0] > _ZERO)) if len(rows) else 0


def _completed(rows: _Real, lit: _Places, columns: int) -> _Real:
    """Orthogonal rows (k, columns) that are ``rows`` (k, m) at the lit inputs."""
    gap, vectors = _gap(rows)
    lengths = np.linalg.norm(rows, axis=1)
    scale = lengths * np.sqrt(np.linalg.norm(rows / lengths[:, None], 2) ** 2)
    dark = np.setdiff1d(np.arange(columns), lit)
    needed = np.flatnonzero(gap > _ZERO)
    whole = np.zeros((len(rows), columns))
    whole[:, lit] = rows
    whole[:, dark[: len(needed)]] = scale[:, None] * vectors[:, needed] * np.sqrt(gap[needed])
    return whole


def _placed(layer: Layer, weight: _Real, lit: _Places, places: _Places) -> Layer:
    """Layer with its inputs and outputs at their places, and dark ones elsewhere."""
    rows, columns = weight.shape
    hidden = "relu" if "relu" in layer.activation else "clip01"
    activation = np.full(rows, hidden, dtype=object)
    activation[places] = layer.activation
    return Layer(
        weight=weight,
        bias=_at(places, layer.bias, rows, _DARK_BIAS),
        activation=tuple(activation),
        low=_at(lit, layer.low, columns, 0.0),
        high=_at(lit, layer.high, columns, 0.0),
        step=_at(lit, layer.step, columns, 0.0),
        slack=_at(places, layer.slack, rows, -_DARK_BIAS),
    )


def _at(places: _Places, values: _Real, count: int, elsewhere: float) -> _Real:
    whole = np.full(count, elsewhere)
    whole[places] = values
    return whole
