"""Exact networks: rounding a mean is digit-serial division, and a quotient digit is a staircase of steps.

With the sums s_j of the servers' symbols (position j, least significant 0) the mean is floor((sum_j s_j 4**j + h) / N),
h = N / 2 for round-half-up.

N = 4**p: carries go up, and the lowest p digits are dropped.  One layer handles one position:

    v = s + carry,   u_k = clip(g (v - 4 k + 1/2) + 1/2, 0, 1) for 4, 8, 12, ...,   carry' = sum_k u_k,
    digit = v - 4 carry'  (formed by the following layer from v and the u_k)

N = 2 * 4**(p - 1) doubles all sums first.  Any other N is divided by long division: remainders go down,

    v = 4 remainder + s,   u_k steps at the multiples of N,   quotient = sum_k u_k <= 6,   remainder' = v - N quotient,

the remainder made anew by steps at all integers, since its errors would be multiplied; and the quotients, digits with a
carry of at most 1, are added up.  The noise-free v lie half a level from the steps, so an error of v below 1/2 - 1/(2g)
of a level leaves every u_k at exactly 0 or 1: carries, quotients and remainders are regenerated, not degraded.  For
N = 4, B = 8 this is a 4-6-6-6-6-4 network of three saturating units and linear by-passes a layer.
"""

import numpy as np

from optinc_hw.errors import NetworkError
from optinc_hw.onn._checks import Rounding, check_bits, check_rounding, symbol_count, whole_number
from optinc_hw.onn._circuit import UNITS, Circuit, UnitKind, Value, unit_margin
from optinc_hw.onn._network import OpticalNetwork
from optinc_hw.onn._space import InputSpace


def build_exact(
    servers: int,
    bits: int,
    rounding: Rounding = "half_up",
    *,
    slope: float = 4.0,
    inputs: int | None = None,
    unit: UnitKind = "clip01",
) -> OpticalNetwork:
    """Build a network that is exact on every input by construction.

    Parameters
    ----------
    servers
        Number N of servers, from 2. Powers of two shift digits, others divide, which takes more layers.
    bits
        Width B of a code; the network has M = ceil(B / 2) outputs.
    rounding
        ``"half_up"`` or ``"floor"``.
    slope
        Gain g of a step, above 1.  The gain is digital, after detection, so it costs no optical noise.  With
        Gaussian errors of rms 1.0 % of full scale on every output of the tiles for 8 ports (N = 4, B = 8, uniform
        codes) the symbol error rate is 4.5e-3, 2.0e-3, 1.1e-3, 1.0e-3, 1.0e-3 for g = 1.5, 2, 4, 8, 64: 4 has
        nearly all there is to gain, and retraining still finds a gradient on the slope.
    inputs
        Number K of inputs from unit P, M by default. Fewer join neighbouring symbols: fewer and wider steps.
    unit
        ``"clip01"``: units that saturate at 0 and 1. ``"relu"``: two ReLUs a step, as in the paper's networks; ReLUs
        pass linear signals too. Where a division by 4 takes several steps, two more fold the range instead, so that
        their number does not grow with it: ``"sin2"``: three sin^2 units a digit, flat at whole numbers, but not far
        (see Notes). ``"fold"``: two sin^2 units, and behind them two that saturate, which make the digit anew; two
        layers a digit.

    Returns
    -------
    OpticalNetwork
        For N a power of two M + p layers (4**p = N, or 2 N for odd powers of two): N = 4, B = 8 gives 4-6-6-6-6-4. For
        other N 3 M - 1 layers. Folding takes more.

    Raises
    ------
    NetworkError
        If servers, bits, rounding, slope, inputs or unit are out of range.

    Notes
    -----
    Codes of odd width use the lower half of their first symbol only, so its sums are smaller.

    Other divisors than 4 are always counted in steps, so folding gains nothing where N is no power of two.  An error e
    of a folded value moves its digit by about 2.5 (pi e / 2)^2 with ``"sin2"``, half a level at e = 0.275, and by
    nothing with ``"fold"`` while a step would not move either.  A folded carry is (v - digit) / 4 and so keeps a
    quarter of the error, where steps keep nothing.
    """
    bits = check_bits(bits)
    check_rounding(rounding)
    if not whole_number(servers, 2):
        raise NetworkError(f"a mean needs an integer number of at least 2 servers, got {servers!r}")
    if not (np.isfinite(slope) and slope > 1.0):
        raise NetworkError(f"slope must be a finite number above 1 (steps would overlap), got {slope!r}")
    if unit not in UNITS:
        raise NetworkError(f"unit must be one of {', '.join(UNITS)}, got {unit!r}")
    space = InputSpace(int(servers), bits, symbol_count(bits) if inputs is None else inputs)
    circuit = Circuit(space.maxima, [1.0 / servers] * space.inputs, slope, unit)
    exponent = int(servers).bit_length() - 1
    if servers == 1 << exponent:
        digits = _shifted(circuit, space, exponent, rounding)
    else:
        digits = _divided(circuit, space, rounding)
    layers = circuit.layers(digits[::-1])
    return OpticalNetwork(int(servers), bits, rounding, layers, margin=unit_margin(unit, slope))


def _sums(circuit: Circuit, space: InputSpace, factor: int) -> list[Value]:
    """Return the sums over the servers times ``factor``, least significant first."""
    return [circuit.input(k, float(factor * space.servers)) for k in range(space.inputs - 1, -1, -1)]


def _shifted(circuit: Circuit, space: InputSpace, exponent: int, rounding: Rounding) -> list[Value]:
    """Digits of the mean for N = 2**exponent, least significant first."""
    dropped = (exponent + 1) // 2
    sums = _sums(circuit, space, 1 + exponent % 2)
    if rounding == "half_up":
        group, position = divmod(dropped - 1, space.group)
        while len(sums) <= group:
            sums.append(Value())
        sums[group] += Value.constant(2.0 * 4**position)
    return base4_digits(circuit, sums, space.group, symbol_count(space.bits) + dropped)[dropped:]


def _divided(circuit: Circuit, space: InputSpace, rounding: Rounding) -> list[Value]:
    """Digits of the mean by long division, least significant first."""
    sums = _sums(circuit, space, 1)
    if rounding == "half_up":
        sums[0] += Value.constant(space.servers / 2)
    quotients, rest = [], Value()
    for value in reversed(sums):
        quotient, remainder = circuit.divide(rest.scaled(4.0**space.group) + value, space.servers)
        quotients.append(quotient)
        rest, _ = circuit.divide(remainder, 1)  # steps at all integers: free of errors before it is multiplied
    return base4_digits(circuit, quotients[::-1], space.group, symbol_count(space.bits))


def base4_digits(circuit: Circuit, values: list[Value], length: int, count: int) -> list[Value]:
    """Return the ``count`` base-4 digits of ``sum_g values[g] 4**(length g)``, least significant first."""
    digits: list[Value] = []
    carry = Value()
    for value in values[:-1]:
        carry, found = circuit.digits(value + carry, length)
        digits += found
    return digits + circuit.split(values[-1] + carry, count - len(digits))
