"""The exact network: rounding the mean is base-4 carry propagation, and a carry is a staircase of clips.

With the sums s_j of the servers' symbols (position j, least significant 0) and N = 4**p, the mean's digits are the
digits p, p+1, ... of sum_j s_j 4**j plus half of 4**p for round-half-up.  One layer handles one position:

    v = s + carry,   u_k = clip(g (v - 4 k + 1/2) + 1/2, 0, 1) for 4, 8, 12, ...,   carry' = sum_k u_k,
    digit = v - 4 carry'  (formed by the following layer from v and the u_k)

N = 2 * 4**(p - 1) doubles all sums first.  Integers v sit half a level from the steps, so an error of v below
1/2 - 1/(2 g) of a level leaves every u_k at exactly 0 or 1: carries are regenerated, not degraded.  For N = 4, B = 8
this is a 4-6-6-6-6-4 network of three saturating units and linear by-passes a layer.
"""

from dataclasses import dataclass, field

import numpy as np

from optinc_hw.errors import NetworkError
from optinc_hw.onn._checks import Rounding, check_bits, check_rounding, symbol_count, whole_number
from optinc_hw.onn._network import Activation, Layer, OpticalNetwork

_Row = dict[int, float]
"""A linear form: weight by index of the signal of the previous layer."""


@dataclass
class _LayerSketch:
    """Layer under construction: rows with bias, activation, range and slack of each new signal."""

    high: list[float]
    step: list[float]
    rows: list[_Row] = field(default_factory=list)
    bias: list[float] = field(default_factory=list)
    activation: list[Activation] = field(default_factory=list)
    top: list[float] = field(default_factory=list)
    slack: list[float] = field(default_factory=list)

    def add(self, row: _Row, bias: float, kind: Activation, top: float, slack: float) -> int:
        """Append a signal with range 0..``top``; returns its index."""
        self.rows.append(row)
        self.bias.append(bias)
        self.activation.append(kind)
        self.top.append(top)
        self.slack.append(slack)
        return len(self.rows) - 1

    def build(self) -> Layer:
        """Dense layer of the rows."""
        weight = np.zeros((len(self.rows), len(self.high)))
        for i, row in enumerate(self.rows):
            for j, value in row.items():
                weight[i, j] = value
        return Layer(
            weight=weight,
            bias=np.array(self.bias),
            activation=tuple(self.activation),
            low=np.zeros(len(self.high)),
            high=np.array(self.high),
            step=np.array(self.step),
            slack=np.array(self.slack),
        )


def _scaled(row: _Row, factor: float) -> _Row:
    return {index: factor * value for index, value in row.items()}


def _dropped_digits(servers: int) -> tuple[int, int]:
    """(p, factor) with servers * factor = 4**p; factor 2 for odd powers of two."""
    exponent = int(servers).bit_length() - 1 if whole_number(servers, 2) else 0
    if exponent == 0 or servers != 1 << exponent:
        raise NetworkError(
            f"no exact network for {servers!r} servers: the carry chain needs a power of two (2, 4, 8, 16, ...); "
            "use such a number, or the exact executor"
        )
    return (exponent + 1) // 2, 1 + exponent % 2


def build_exact(servers: int, bits: int, rounding: Rounding = "half_up", *, slope: float = 4.0) -> OpticalNetwork:
    """Build the carry-chain network, exact on every input by construction.

    Parameters
    ----------
    servers
        Number N of servers, a power of two from 2.
    bits
        Width B of a code; the network has K = M = ceil(B / 2) inputs and outputs.
    rounding
        ``"half_up"`` or ``"floor"``.
    slope
        Gain g of a step, above 1.  The gain is digital, after detection, so it costs no optical noise.  With
        Gaussian errors of rms 1.0 % of full scale on every output of the tiles for 8 ports (N = 4, B = 8, uniform
        codes) the symbol error rate is 4.5e-3, 2.0e-3, 1.1e-3, 1.0e-3, 1.0e-3 for g = 1.5, 2, 4, 8, 64: 4 has
        nearly all there is to gain, and retraining still finds a gradient on the slope.

    Returns
    -------
    OpticalNetwork
        M + p layers (4**p = N, or 2 N for odd powers of two): N = 4, B = 8 gives 4-6-6-6-6-4.

    Raises
    ------
    NetworkError
        If N is no power of two, or bits, rounding or slope are out of range.
    """
    bits = check_bits(bits)
    check_rounding(rounding)
    if not (np.isfinite(slope) and slope > 1.0):
        raise NetworkError(f"slope must be a finite number above 1 (steps would overlap), got {slope!r}")
    dropped, factor = _dropped_digits(servers)
    symbols = symbol_count(bits)
    first = 1 if bits % 2 else 3  # highest value of the most significant symbol
    tops = [float(factor * servers * 3)] * (symbols - 1) + [float(factor * servers * first)]
    sums: dict[int, _Row] = {j: {symbols - 1 - j: float(factor * servers)} for j in range(symbols)}
    digits: dict[int, _Row] = {}
    carry: _Row = {}
    carry_top = 0.0
    high = [float(first), *([3.0] * (symbols - 1))]
    step = [1.0 / servers] * symbols
    layers: list[Layer] = []
    for position in range(symbols + dropped - 1):
        sketch = _LayerSketch(high, step)
        offset = 2.0 if rounding == "half_up" and position == dropped - 1 else 0.0
        value = {**sums.pop(position, {}), **carry}
        value_top = (tops[position] if position < symbols else 0.0) + carry_top + offset
        carry_top = float(value_top // 4.0)
        units = [
            sketch.add(_scaled(value, slope), slope * (offset - 4.0 * k + 0.5) + 0.5, "clip01", 1.0, (slope - 1.0) / 2)
            for k in range(1, int(carry_top) + 1)
        ]
        kept = {}
        if position >= dropped:
            passed = sketch.add(value, offset, "linear", value_top, np.inf)
            kept[position] = {passed: 1.0, **dict.fromkeys(units, -4.0)}
        sums = {j: {sketch.add(row, 0.0, "linear", tops[j], np.inf): 1.0} for j, row in sums.items()}
        kept |= {j: {sketch.add(row, 0.0, "linear", 3.0, np.inf): 1.0} for j, row in digits.items()}
        digits = kept
        carry = dict.fromkeys(units, 1.0)
        layers.append(sketch.build())
        high, step = sketch.top, [1.0] * len(sketch.top)
    digits[symbols + dropped - 1] = carry
    last = _LayerSketch(high, step)
    for position in range(symbols + dropped - 1, dropped - 1, -1):
        last.add(digits[position], 0.0, "linear", 3.0, 0.5)
    layers.append(last.build())
    return OpticalNetwork(int(servers), bits, rounding, tuple(layers), margin=0.5 - 0.5 / slope)
