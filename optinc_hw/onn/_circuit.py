"""Compiler from integer arithmetic to network layers.

A `Value` is an affine combination of network inputs and step units whose noise-free values lie on a grid of spacing 1.
`Circuit.divide` adds the step units of an integer division; `Circuit.layers` puts every unit into the earliest layer
that its value allows and passes on, as one linear signal each, the part of a value that is known before all of it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

import numpy as np

from optinc_hw.onn._network import Activation, Layer

UnitKind = Literal["clip01", "relu"]
_Terms = tuple[tuple[int, float], ...]
_Key = tuple[str, int | _Terms]
"""Name of a signal of a layer: ``("unit", node)``, ``("part", terms)`` or ``("output", index)``."""


_CONSTANT = -1
"""Node whose value is 1."""


@dataclass(frozen=True)
class Value:
    """Linear combination of nodes, never negative.

    Parameters
    ----------
    terms
        (node, weight) in the order of the nodes.
    tops
        Largest value of the terms of depth 0, of depth at most 1, and so on up to all of them.
    """

    terms: _Terms = ()
    tops: tuple[float, ...] = (0.0,)

    @classmethod
    def constant(cls, number: float) -> "Value":
        """Return a value that does not depend on inputs."""
        return cls(((_CONSTANT, number),), (number,))

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
        return Value(tuple(sorted((node, weight) for node, weight in weights.items() if weight)), tops)

    def scaled(self, factor: float) -> "Value":
        """Multiply by a factor above 0."""
        terms = tuple((node, factor * weight) for node, weight in self.terms)
        return Value(terms, tuple(factor * top for top in self.tops))


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

    @property
    def depth(self) -> int:
        """Number of the layer that it is in, from 1."""
        return self.value.depth + 1


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
        ``"clip01"``, one saturating unit a step, or ``"relu"``, the difference of two ReLUs.
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
        """Return ``value // divisor`` and ``value % divisor``; values are integers plus the value's constant part."""
        grid = value.offset % 1.0
        steps = int(value.top // divisor)
        if not steps:
            return Value(), value
        terms: list[tuple[int, float]] = []
        for k in range(1, steps + 1):
            lowest = math.ceil(k * divisor - grid) + grid
            terms += self._step_unit(value, lowest - 0.5)
        quotient = Value(tuple(terms), (0.0,) * (value.depth + 1) + (float(steps),))
        rest = value.terms + tuple((node, -divisor * weight) for node, weight in terms)
        return quotient, Value(rest, (*value.tops, math.ceil(divisor - grid) + grid - 1.0))

    def split(self, value: Value, count: int) -> list[Value]:
        """Return the ``count`` base-4 digits of a value below ``4**count``, least significant first."""
        digits = []
        for position in range(count - 1, 0, -1):
            digit, value = self.divide(value, 4**position)
            digits.append(digit)
        return [value, *reversed(digits)]

    def _step_unit(self, value: Value, threshold: float) -> list[tuple[int, float]]:
        """Terms of the unit that is 1 where ``value`` exceeds ``threshold`` and 0 elsewhere."""
        gain = self._slope
        bias = 0.5 - gain * threshold
        if self._kind == "clip01":
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
        kind: Activation = "linear" if self._kind == "clip01" else "relu"
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
            low=np.zeros(len(names)),
            high=np.array([unit.top for unit in before] if depth > 1 else self._high),
            step=np.array([unit.step for unit in before] if depth > 1 else self._step),
            slack=np.array([unit.slack for unit in here]),
        )


def _like_first(layer: dict[_Key, _Unit]) -> dict[_Key, _Unit]:
    """Put passed parts that units of the layer read too, and so are one optical row with them, behind the units."""
    read = {unit.value.terms for (kind, _), unit in layer.items() if kind == "unit"}
    return dict(sorted(layer.items(), key=lambda item: item[0][0] == "part" and item[1].value.terms not in read))
