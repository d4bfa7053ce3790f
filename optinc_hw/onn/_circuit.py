"""Compiler from integer arithmetic to network layers.

A `Value` is an affine combination of network inputs and step units whose noise-free values lie on a grid of spacing 1.
`Circuit.divide` adds the step units of an integer division; `Circuit.layers` puts every unit into the earliest layer
that its value allows and passes on, as one linear signal each, the part of a value that is known before all of it is.

Base-4 digits of long ranges can be folded instead of counted in steps.  With y = pi v / 2, at whole v,

    v mod 2 = sin^2 y,   v div 2 mod 2 = 1/2 - (cos y + sin y) / 2 = 1/2 - (cos^3 y + sin^3 y) / 2,

and each of the two forms of the second bit takes one unit sin^2(pi (v - 1/2) / 4), the flat one, of cubes, another
one of three times its frequency.  The quotient is (v - digit) / 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal, get_args

import numpy as np

from optinc_hw.onn._network import Activation, Layer

UnitKind = Literal["clip01", "relu", "sin2", "fold"]
UNITS: tuple[UnitKind, ...] = get_args(UnitKind)
_Terms = tuple[tuple[int, float], ...]
_Key = tuple[str, int | _Terms]
"""Name of a signal of a layer: ``("unit", node)``, ``("part", terms)`` or ``("output", index)``."""


_CONSTANT = -1
"""Node whose value is 1."""

_FEWEST_STEPS = 2
"""Fewest steps of a division by 4 that folding replaces."""
_FLAT_MARGIN = 0.275
"""Error of v with which 1 - cos^3 y - sin^3 y + sin^2 y, the digit of flat folding, is off by half a level."""


@dataclass(frozen=True)
class Value:
    """Linear combination of nodes, never negative.

    Parameters
    ----------
    terms
        (node, weight) in the order of the nodes.
    tops
        Largest value of the terms of depth 0, of depth at most 1, and so on up to all of them.
    grid
        Distance, 0 or more and below 1, of the noise-free values from the integers below them.
    """

    terms: _Terms = ()
    tops: tuple[float, ...] = (0.0,)
    grid: float = 0.0

    @classmethod
    def constant(cls, number: float) -> "Value":
        """Return a value that does not depend on inputs."""
        return cls(((_CONSTANT, number),), (number,), number % 1.0)

    @property
    def offset(self) -> float:
        """Constant part."""
        return dict(self.terms).get(_CONSTANT, 0.0)

    @property
    def top(self) -> float:
        """Largest value."""
        return self.tops[-1]

    @property
    def depth(self) -> int:
        """Depth of the last node that it needs."""
        return len(self.tops) - 1

    def __add__(self, other: "Value") -> "Value":
        pairs = zip_longest(self.tops, other.tops)
        tops = tuple((self.top if a is None else a) + (other.top if b is None else b) for a, b in pairs)
        weights = dict(self.terms)
        for node, weight in other.terms:
            weights[node] = weights.get(node, 0.0) + weight
        terms = tuple(sorted((node, weight) for node, weight in weights.items() if weight))
        return Value(terms, tops, (self.grid + other.grid) % 1.0)

    def scaled(self, factor: float) -> "Value":
        """Multiply by a factor above 0; a value that is to be divided, by an integer."""
        terms = tuple((node, factor * weight) for node, weight in self.terms)
        return Value(terms, tuple(factor * top for top in self.tops), factor * self.grid % 1.0)


@dataclass(frozen=True)
class _Unit:
    """Unit ``activation(gain * value + bias)``."""

    value: Value
    gain: float
    bias: float
    activation: Activation
    top: float
    step: float
    slack: float
    low: float = 0.0

    @property
    def depth(self) -> int:
        """Number of the layer that it is in, from 1."""
        return self.value.depth + 1


def unit_margin(unit: UnitKind, slope: float) -> float:
    """Error of a divided value that the units of a `Circuit` absorb, or that leaves every digit right."""
    steps = 0.5 - 0.5 / slope
    return min(steps, _FLAT_MARGIN) if unit == "sin2" else steps


class Circuit:
    """Network under construction.

    Parameters
    ----------
    high
        Largest value (K,) of each network input; the smallest is 0.
    step
        Distance (K,) of the levels of each input.
    slope
        Gain g of a step unit ``clip(g (v - threshold) + 1/2, 0, 1)``, above 1.
    unit
        ``"clip01"``, one saturating unit a step; ``"relu"``, the difference of two ReLUs; ``"sin2"`` and ``"fold"``,
        saturating units too, but sin^2 units where base-4 digits would take several steps.
    """

    def __init__(self, high: Sequence[float], step: Sequence[float], slope: float, unit: UnitKind) -> None:
        self._high = tuple(float(top) for top in high)
        self._step = tuple(float(distance) for distance in step)
        self._slope = slope
        self._kind: UnitKind = unit
        self._units: dict[int, _Unit] = {}

    def input(self, index: int, gain: float) -> Value:
        """Return network input ``index`` times the ``gain`` that makes it an integer."""
        return Value(((index, gain),), (gain * self._high[index],))

    def divide(self, value: Value, divisor: int) -> tuple[Value, Value]:
        """Return ``value // divisor`` and ``value % divisor``."""
        grid = value.grid
        steps = int(value.top // divisor)
        if not steps:
            return Value(), value
        if self._folds and grid == 0.0 and divisor == 4 and steps >= _FEWEST_STEPS:
            return self._folded(value)
        terms: list[tuple[int, float]] = []
        for k in range(1, steps + 1):
            lowest = math.ceil(k * divisor - grid) + grid
            terms += self._step_unit(value, lowest - 0.5)
        quotient = Value(tuple(terms), (0.0,) * (value.depth + 1) + (float(steps),))
        rest = value.terms + tuple((node, -divisor * weight) for node, weight in terms)
        return quotient, Value(rest, (*value.tops, math.ceil(divisor - grid) + grid - 1.0), grid)

    def digits(self, value: Value, count: int) -> tuple[Value, list[Value]]:
        """Return ``value // 4**count`` and the ``count`` base-4 digits below, least significant first."""
        if not self._folds:
            rest, low = self.divide(value, 4**count)
            return rest, self.split(low, count)
        found = []
        for _ in range(count):
            value, digit = self.divide(value, 4)
            found.append(digit)
        return value, found

    def split(self, value: Value, count: int) -> list[Value]:
        """Return the ``count`` base-4 digits of a value below ``4**count``, least significant first."""
        if self._folds:
            rest, low = self.digits(value, count - 1)
            return [*low, rest]
        digits = []
        for position in range(count - 1, 0, -1):
            digit, value = self.divide(value, 4**position)
            digits.append(digit)
        return [value, *reversed(digits)]

    @property
    def _folds(self) -> bool:
        return self._kind in ("sin2", "fold")

    def _folded(self, value: Value) -> tuple[Value, Value]:
        """Return ``value // 4`` and ``value % 4`` by sin^2 units."""
        low, high = self._sin2_unit(value, 0.5, 0.0), self._sin2_unit(value, 0.25, -0.125)
        if self._kind == "fold":
            read, offset = Value(((self._copy(value, 0.0), 1.0),), (0.0,) * (value.depth + 1) + (value.top,)), 0.0
            units = [(self._limiter(low, 1.0), 1.0), (self._limiter(high, math.sqrt(2.0)), 2.0)]
        else:
            read, offset = value, 1.0 - math.sqrt(0.5)
            third = self._sin2_unit(value, 0.75, -0.375)
            units = [(low, 1.0), (high, 1.5 * math.sqrt(2.0)), (third, -math.sqrt(0.5))]
        rest = [(self._copy(read, offset), 0.25), *((node, -0.25 * weight) for node, weight in units)]
        before = (0.0,) * (read.depth + 1)
        quotient = Value(tuple(sorted(rest)), (*before, float(value.top // 4)))
        constant = Value.constant(offset) if offset else Value()
        return quotient, Value((*constant.terms, *units), (*(offset,) * len(before), 3.0))

    def _sin2_unit(self, value: Value, gain: float, bias: float) -> int:
        return self._add(_Unit(value, gain, bias, "sin2", 1.0, 0.0, math.inf))

    def _limiter(self, node: int, swing: float) -> int:
        """Step of a sin^2 unit at 1/2, as steep as one whose input changes by 1 where the unit does by 1 / swing."""
        value = Value(((node, 1.0),), (0.0,) * self._units[node].depth + (1.0,))
        gain = self._slope * swing
        return self._add(_Unit(value, gain, 0.5 - gain / 2.0, "clip01", 1.0, 1.0, (self._slope - 1.0) / 2.0))

    def _copy(self, value: Value, shift: float) -> int:
        """Linear unit that hands ``value`` on, less ``shift``."""
        return self._add(_Unit(value, 1.0, -shift, "linear", value.top - shift, 1.0, math.inf, -shift))

    def _step_unit(self, value: Value, threshold: float) -> list[tuple[int, float]]:
        """Terms of the unit that is 1 where ``value`` exceeds ``threshold`` and 0 elsewhere."""
        gain = self._slope
        bias = 0.5 - gain * threshold
        if self._kind != "relu":
            return [(self._add(_Unit(value, gain, bias, "clip01", 1.0, 1.0, (gain - 1.0) / 2.0)), 1.0)]
        top = gain * (value.top - threshold) + 0.5
        above = self._add(_Unit(value, gain, bias, "relu", top, 0.0, math.inf))
        return [(above, 1.0), (self._add(_Unit(value, gain, bias - 1.0, "relu", top - 1.0, 0.0, math.inf)), -1.0)]

    def _add(self, unit: _Unit) -> int:
        node = len(self._high) + len(self._units)
        self._units[node] = unit
        return node

    def layers(self, outputs: Sequence[Value]) -> tuple[Layer, ...]:
        """Lay out the units, and ``outputs`` as a last linear layer."""
        last = max(value.depth for value in outputs) + 1
        units: list[dict[_Key, _Unit]] = [{} for _ in range(last)]
        for node, unit in self._needed(outputs).items():
            units[unit.depth - 1][("unit", node)] = unit
        used = [unit for layer in units for unit in layer.values()]
        for value, depth in [(unit.value, unit.depth) for unit in used] + [(value, last) for value in outputs]:
            for before in range(1, depth):
                self._pass_on(units[before - 1], value, before)
        units = [_like_first(layer) for layer in units]
        passive = _Unit(Value(), 1.0, 0.0, "linear", 3.0, 1.0, 0.5)
        for index, value in enumerate(outputs):
            units[last - 1]["output", index] = replace(passive, value=value)
        return tuple(self._layer(units, depth) for depth in range(1, last + 1))

    def _needed(self, outputs: Sequence[Value]) -> dict[int, _Unit]:
        """Units that outputs are made of, and those that these are made of, in their order."""
        needed: set[int] = set()
        waiting = list(outputs)
        while waiting:
            for node, _ in waiting.pop().terms:
                if node in self._units and node not in needed:
                    needed.add(node)
                    waiting.append(self._units[node].value)
        return {node: unit for node, unit in self._units.items() if node in needed}

    def _pass_on(self, layer: dict[_Key, _Unit], value: Value, depth: int) -> None:
        """Let layer number ``depth`` pass on what is known of ``value`` before it."""
        part = self._part(value, depth)
        if not part:
            return
        tops = value.tops[:depth]
        kind: Activation = "relu" if self._kind == "relu" else "linear"
        passed = _Unit(Value(part, tops), 1.0, 0.0, kind, tops[-1], 1.0, math.inf)
        known = layer.get(("part", part), passed)
        layer["part", part] = min(known, passed, key=lambda unit: unit.top)

    def _depth(self, node: int) -> int:
        return self._units[node].depth if node in self._units else 0

    def _part(self, value: Value, depth: int) -> _Terms:
        """Terms of nodes of a smaller depth; the constant alone needs no signal."""
        terms = tuple((node, weight) for node, weight in value.terms if self._depth(node) < depth)
        return () if [node for node, _ in terms] == [_CONSTANT] else terms

    def _layer(self, units: list[dict[_Key, _Unit]], depth: int) -> Layer:
        """Dense layer number ``depth``."""
        before = list(units[depth - 2].values()) if depth > 1 else []
        names: list[_Key] = list(units[depth - 2]) if depth > 1 else [("unit", k) for k in range(len(self._high))]
        places = {name: index for index, name in enumerate(names)}
        here = list(units[depth - 1].values())
        weight, bias = np.zeros((len(here), len(places))), np.array([unit.bias for unit in here])
        for row, unit in enumerate(here):
            part = self._part(unit.value, depth - 1)
            if part:
                weight[row, places["part", part]] = unit.gain
            else:
                bias[row] += unit.gain * unit.value.offset
            for node, factor in unit.value.terms:
                if node != _CONSTANT and self._depth(node) == depth - 1:
                    weight[row, places["unit", node]] = unit.gain * factor
        return Layer(
            weight=weight,
            bias=bias,
            activation=tuple(unit.activation for unit in here),
            low=np.array([unit.low for unit in before] if depth > 1 else np.zeros(len(names))),
            high=np.array([unit.top for unit in before] if depth > 1 else self._high),
            step=np.array([unit.step for unit in before] if depth > 1 else self._step),
            slack=np.array([unit.slack for unit in here]),
        )


def _like_first(layer: dict[_Key, _Unit]) -> dict[_Key, _Unit]:
    """Put passed parts that units of the layer read too, and so are one optical row with them, behind the units."""
    read = {unit.value.terms for (kind, _), unit in layer.items() if kind == "unit"}
    return dict(sorted(layer.items(), key=lambda item: item[0][0] == "part" and item[1].value.terms not in read))
