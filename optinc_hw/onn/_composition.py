"""Proof that cells compose: bounds on a cell's outputs over every error of its carry, not only sampled ones.

For each of the cell's inputs the carry is known up to an error e.  On a piece of the range of e every signal is
enclosed by ``p + q t`` within ``r``, t running from -1 to 1 over the piece.  Products map p and q by W and r by |W|.
An activation whose kinks lie outside the enclosure is linear, so nothing is lost; another one is replaced by its chord,
and r takes up the difference, which is largest at a kink, or where a sin^2 is parallel to the chord.  Pieces are halved
until r is negligible, or some other input is surely worse.

If carries that are wrong by at most E always lead to carries that are wrong by at most E, and to digits wrong by less
than half a level, then so does a chain of any length, by induction: its first carry is not wrong at all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn._cells import Cell, CellSpace
from optinc_hw.onn._checks import whole_number
from optinc_hw.onn._network import Layer

_Real = NDArray[np.float64]

_CHUNK = 1 << 11
_LOOSE = 1e-3
"""Part of a bound, in level distances, that enclosures may be to blame for."""
_HALVINGS = 12
_KINKS = (0.0, 1.0)
"""Where activations bend, apart from sin^2; places where some do not bend do no harm."""
_NOTHING = 1e-6
"""Least error of the carry that is looked at."""
_ROUNDING = 1e-9
"""Added to every bound: float64 errs by less than 1e-12 here."""


@dataclass(frozen=True)
class Composition:
    """What is proved about a cell for every error of its carry.

    Parameters
    ----------
    largest, least
        Largest and least error E of the carry, in distances of its levels, for which every digit is right and the carry
        out is wrong by at most E again; nan where there is none.
    digit_bounds, carry_bounds
        Bounds (pieces + 1,) of the errors of digits, in levels, and of the carry out, in distances of its levels, for
        carries wrong by at most ``edges``.
    edges
        Errors (pieces + 1,) of the carry, from nearly 0 to 1/2.
    limit
        What stops errors above ``largest``.
    """

    largest: float
    least: float
    edges: tuple[float, ...]
    digit_bounds: tuple[float, ...]
    carry_bounds: tuple[float, ...]
    limit: str

    @property
    def proved(self) -> bool:
        """Whether a chain of any length is right on all of its inputs."""
        return bool(self.largest >= 0.0)

    @property
    def margin(self) -> float:
        """What is left of half a level, or half a carry, at the worst output of a chain; 0 where nothing is proved."""
        if not self.proved:
            return 0.0
        place = self.edges.index(self.least)
        return 0.5 - max(self.digit_bounds[place], self.carry_bounds[place])

    def __str__(self) -> str:
        """Summarise for people."""
        if not self.proved:
            return f"not proved: {self.limit}"
        return (
            f"exact in chains of any length, margin {self.margin:.3f}; carries may be wrong by {self.largest:.3f} of a "
            f"carry: beyond, {self.limit}"
        )


def prove_composition(cell: Cell, pieces: int = 64, progress: Callable[[int, int], None] | None = None) -> Composition:
    """Bound a cell's outputs for every input and every error of its carry up to half a carry.

    Parameters
    ----------
    cell
        The cell, constructed or trained.
    pieces
        Number of errors of the carry, from 0 to 1/2, of which it is found out whether they are borne.
    progress
        Called with the numbers of inputs done and in all.

    Raises
    ------
    NetworkError
        If ``pieces`` is below 1.
    """
    if not whole_number(pieces, 1):
        raise NetworkError(f"pieces must be an integer of at least 1, got {pieces!r}")
    space = CellSpace(cell.divisor, cell.digits)
    found = _Worst(pieces)
    for start in range(0, space.size, _CHUNK):
        index = np.arange(start, min(start + _CHUNK, space.size))
        found.take(0, cell, space, index, -_NOTHING, _NOTHING)
        for piece in range(pieces):
            inner, outer = found.edges[piece], found.edges[piece + 1]
            for sign in (-1.0, 1.0):
                found.take(piece + 1, cell, space, index, sign * inner, sign * outer)
        if progress is not None:
            progress(start + len(index), space.size)
    return found.composition(space)


class _Worst:
    """Largest errors of each piece, and the inputs that have them."""

    def __init__(self, pieces: int) -> None:
        self.edges = np.linspace(0.0, 0.5, pieces + 1)
        self.edges[0] = _NOTHING
        self.bounds = np.zeros((2, pieces + 1))
        self.points = np.zeros((2, pieces + 1), dtype=np.int64)
        self._known = np.zeros((2, pieces + 1))

    def take(
        self, piece: int, cell: Cell, space: CellSpace, index: NDArray[np.int64], first: float, last: float
    ) -> None:
        """Bound the errors of points with the indices (batch,), for carry errors from ``first`` to ``last``.

        Pieces are halved as long as enclosures leave open whether they have the largest errors.
        """
        inputs, answers = space.signals(index), space.answers(index)
        middle, half = np.full(len(index), (first + last) / 2.0), abs(last - first) / 2.0
        for halving in range(_HALVINGS + 1):
            away, radius = _enclosed(cell, inputs, answers, middle, half)
            bounds, sure = (_by_kind(values) for values in (away, away - 2.0 * radius))
            self._known[:, piece] = np.maximum(self._known[:, piece], sure.max(axis=1))
            closed = np.all(bounds <= self._known[:, piece, None] + _LOOSE, axis=0) | (halving == _HALVINGS)
            self._keep(piece, index[closed], bounds[:, closed])
            if closed.all():
                return
            inputs, answers = (np.repeat(values[~closed], 2, axis=0) for values in (inputs, answers))
            index = np.repeat(index[~closed], 2)
            middle = (middle[~closed, None] + [-half / 2.0, half / 2.0]).reshape(-1)
            half /= 2.0

    def _keep(self, piece: int, index: NDArray[np.int64], bounds: _Real) -> None:
        for kind in range(2 if len(index) else 0):
            place = int(np.argmax(bounds[kind]))
            if bounds[kind, place] > self.bounds[kind, piece]:
                self.bounds[kind, piece] = bounds[kind, place]
                self.points[kind, piece] = index[place]

    def composition(self, space: CellSpace) -> Composition:
        digits, carries = np.maximum.accumulate(self.bounds, axis=1)
        borne = np.flatnonzero((digits < 0.5) & (carries <= self.edges))
        beyond = int(borne[-1]) + 1 if len(borne) else 0
        return Composition(
            largest=float(self.edges[borne[-1]]) if len(borne) else np.nan,
            least=float(self.edges[borne[0]]) if len(borne) else np.nan,
            edges=tuple(self.edges.tolist()),
            digit_bounds=tuple(digits.tolist()),
            carry_bounds=tuple(carries.tolist()),
            limit=self._limit(beyond, digits, carries, space),
        )

    def _limit(self, beyond: int, digits: _Real, carries: _Real, space: CellSpace) -> str:
        """Tell which output is too far off first, and at which input."""
        if beyond == len(self.edges):
            return "the carry itself is not decided"
        first = min(beyond, int(np.argmax(digits >= 0.5)) if digits[-1] >= 0.5 else beyond) or 1
        wrong = bool(digits[first] >= 0.5)
        kind, bounds = (0, digits) if wrong else (1, carries)
        culprit = int(np.argmax(self.bounds[kind, : first + 1]))
        sums, carry = space.states(self.points[kind, culprit])
        what = "a digit" if wrong else "the carry out"
        return (
            f"{what} may be off by {bounds[first]:.3f} for carries off by up to {self.edges[first]:.3f}, at sums "
            f"{sums.tolist()} and carry {int(carry)}"
        )


def _by_kind(away: _Real) -> _Real:
    """Largest errors (2, batch) of the digits and of the carry, of errors (batch, g + 1) of the outputs."""
    return np.stack([away[:, 1:].max(axis=1), away[:, 0]])


def _extremes(layer: Layer, chord: _Real, low: _Real) -> list[_Real]:
    """Places (batch, out) where activations can be furthest from chords (batch, out) that begin at ``low``.

    sin^2 is parallel to a chord of slope c where pi sin(2 pi z) = c, at two places of each period.
    """
    level = np.arcsin(np.clip(chord / np.pi, -1.0, 1.0)) / (2.0 * np.pi)
    parallel = [place + np.ceil(low - place) for place in (level, 0.5 - level)]
    return [np.where(layer.folding, place, kink) for place, kink in zip(parallel, _KINKS, strict=True)]


def _enclosed(cell: Cell, inputs: _Real, answers: _Real, middle: _Real, half: float) -> tuple[_Real, _Real]:
    """Bounds (batch, g + 1) of errors of the outputs, and the part of them that enclosures are to blame for."""
    centre, slope, radius = inputs.copy(), np.zeros_like(inputs), np.zeros_like(inputs)
    centre[:, -1] += middle * cell.carry_step
    slope[:, -1] = half * cell.carry_step
    for layer in cell.layers:
        centre, slope = centre @ layer.weight.T + layer.bias, slope @ layer.weight.T
        radius = radius @ np.abs(layer.weight.T)
        if set(layer.activation) == {"linear"}:
            continue
        reach = np.abs(slope) + radius
        low, high = centre - reach, centre + reach
        first = layer.activate(low)
        span = high - low
        chord = np.divide(layer.activate(high) - first, span, out=np.ones_like(span), where=span > 0.0)
        chord[layer.folding & (span >= 1.0)] = 0.0  # a whole period: no chord is better than the middle
        top = bottom = first - chord * low
        for place in _extremes(layer, chord, low):
            point = np.clip(place, low, high)
            away = layer.activate(point) - chord * point
            top, bottom = np.maximum(top, away), np.minimum(bottom, away)
        centre, slope = chord * centre + (top + bottom) / 2.0, chord * slope
        radius = np.abs(chord) * radius + (top - bottom) / 2.0
    steps = cell.steps
    away = (np.abs(centre - answers) + np.abs(slope) + radius) / steps + _ROUNDING
    return np.nan_to_num(away, nan=np.inf, posinf=np.inf), radius / steps
