"""Compiled kernels for gradients of lossless meshes: half of one matrix instead of fields and their gradients.

A change ``dU`` of an MZI changes the loss by ``Re tr(dU U^H W)``, where ``W = X Y^H`` comes of the fields X behind the
MZI and their gradients Y. In front of it ``W`` is ``U^H W U``; and ``dU U^H`` being anti-Hermitian, only
``A = (W - W^H) / 2`` counts, of which a triangle is kept. An MZI looks at its own two modes alone, so the further back,
the narrower the band around the diagonal that still matters.

As in ``_rotation_kernels`` each mode has a scale d: kept are numbers B with ``A_ij = d_i d_j B_ij``.

Mode m has row m + 1. A row has four parts: real and imaginary parts of its columns of even modes, then of odd ones.
Neighbouring pairs of columns lie in vectors then, whichever mode they begin with: among the columns mode 2j has place
j, and so has mode 2j - 1. MZIs on (2j, 2j + 1) are pair j of an even layer, MZIs on (2j - 1, 2j) pair j of an odd one.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

# Places are unsigned, or each would be tested for being negative.

import numpy as np
from numba import njit

from optinc_hw.photonics._kernels import OPTIONS
from optinc_hw.photonics._rotation_kernels import scale_limits
from optinc_hw.photonics._vector_kernels import fma, lanes, lined_up, load, spread, store

_ZERO, _ONE, _TWO, _THREE, _FOUR = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_FIVE, _SIX, _SEVEN = np.uint64(5), np.uint64(6), np.uint64(7)
_NUMBERS = np.uint64(8)
"""Of a pair of modes: what a row takes of its neighbour, upper and lower; tan alpha and its negative; for the entry of
A between them the scale before and one over the scale after; s and c."""


@njit(**OPTIONS)
def transfer_vjp(modes, order, starts, couplings, turn, behind, product, d_theta, d_phi, d_out):
    """Pull gradients of B matrices back to the phases.

    Parameters
    ----------
    modes
        ``MeshLayout.modes`` (K,).
    order, starts
        ``MeshLayout.layers``.
    couplings
        (B or 1, K or 1, 6), see ``_kernels``; lossless.
    turn, behind
        From ``_rotation_kernels.transfer``.
    product
        W behind the output phases (B, n, 2n), real and imaginary parts interleaved.
    d_theta, d_phi, d_out
        Receive the gradients (B, K), (B, K) and (B, n).
    """
    ports, step = np.uint64(d_out.shape[1]), lanes(product)
    length = (ports // _TWO + step) // step * step + step  # of a part of a row, and of numbers of a kind
    state = lined_up((ports + _TWO) * _FOUR * length, product.dtype)
    numbers = lined_up(_NUMBERS * length, product.dtype)
    mzis = np.full(length, -1, np.int64)  # of a layer, by pair of modes
    diagonal = np.empty(ports + _TWO, product.dtype)  # imaginary parts, the real ones are zero
    scales = np.empty((2, ports + _TWO), product.dtype)  # and their inverses
    least = scale_limits(product.itemsize)[1]
    for b in range(len(product)):
        cells = couplings[min(b, len(couplings) - 1)]
        mzi = (cells, turn[b], d_theta[b], d_phi[b])
        _load(behind[b], product[b], state, length, diagonal)
        scales[:] = 1
        for i in range(ports):
            d_out[b, i] = -diagonal[i + _ONE]
        for later in range(len(starts) - 2, -1, -1):
            members = order[starts[later] : starts[later + 1]]
            upper, lower = np.uint64(modes[members[0]] + 1), np.uint64(modes[members[-1]] + 1)
            smallest = _prepare(members, modes, turn[b], scales, numbers, length, mzis)
            _undo(state, numbers, length, ports, upper, lower, np.uint64(later), mzis, diagonal, mzi)
            if smallest < least:
                _multiply_out(scales, state, length)
            for k in members:
                pair = np.uint64(modes[k] + 1) // _TWO
                mzis[pair] = -1
                for part in range(_FOUR):
                    numbers[part * length + pair] = 0


@njit(**OPTIONS)
def _at(length, row, column):
    """Where the real part of a row and a column, a mode's row number, is; the imaginary part is ``length`` further."""
    return (row * _FOUR + _TWO * ((column + _ONE) % _TWO)) * length + column // _TWO


@njit(**OPTIONS)
def _load(behind, product, state, length, diagonal):
    """Take A from W, with the numbers ``behind`` of both modes taken out."""
    half = product.dtype.type(0.5)
    diagonal[0] = diagonal[-1] = 0
    for i in range(len(behind)):
        diagonal[i + 1] = product[i, 2 * i + 1]
        for parity in range(2):
            start = _at(length, np.uint64(i + 1), np.uint64(parity + 1))
            for place, j in enumerate(range(parity, i, 2)):
                real = half * (product[i, 2 * j] - product[j, 2 * i])
                imag = half * (product[i, 2 * j + 1] + product[j, 2 * i + 1])
                c = behind[i, 0] * behind[j, 0] + behind[i, 1] * behind[j, 1]
                s = behind[i, 0] * behind[j, 1] - behind[i, 1] * behind[j, 0]
                at = start + np.uint64(place)
                state[at], state[at + length] = c * real - s * imag, c * imag + s * real


@njit(**OPTIONS)
def _prepare(members, modes, turn, scales, numbers, length, mzis):
    """Write the numbers of a layer, and the scales in front of it, of which the smallest is returned."""
    one = turn.dtype.type(1)
    smallest = one
    for member in members:
        k = np.uint64(member)
        row = np.uint64(modes[k] + 1)
        at, low = row // _TWO, row + _ONE
        s, c, cosine, tangent = turn[0, k], turn[1, k], turn[2, k], turn[3, k]
        over_s, over_cosine = turn[6, k], turn[7, k]
        d, e, over_d, over_e = scales[0, row], scales[0, low], scales[1, row], scales[1, low]
        ratio = c * over_s
        numbers[at], numbers[at + length] = -ratio * e * over_d, ratio * d * over_e
        numbers[at + _TWO * length], numbers[at + _THREE * length] = tangent, -tangent
        numbers[at + _FOUR * length] = d * e
        over_d, over_e = over_d * over_s, over_e * over_s
        numbers[at + _FIVE * length] = over_d * over_e
        numbers[at + _SIX * length], numbers[at + _SEVEN * length] = s, c
        mzis[row // _TWO] = member
        d, e, over_d = s * cosine * d, s * e, over_d * over_cosine
        smallest = min(smallest, abs(d), abs(e))
        scales[0, row], scales[0, low] = d, e
        # Inverses would drift away.
        scales[1, row], scales[1, low] = over_d + over_d * (one - d * over_d), over_e + over_e * (one - e * over_e)
    return smallest


@njit(**OPTIONS)
def _undo(state, numbers, length, ports, upper, lower, later, mzis, diagonal, mzi):
    """Go back through a layer.

    Parameters
    ----------
    state, numbers, length, ports, mzis, diagonal, mzi
        As in `transfer_vjp`.
    upper, lower
        Rows of the upper modes of the layer's first and last MZI.
    later
        Layers that remain: pairs of modes further apart than this do not matter any more.
    """
    stride, first, last, step = _FOUR * length, upper // _TWO, lower // _TWO, lanes(state)
    for row in range(upper, ports + _ONE, _TWO):
        pair = row // _TWO
        start, stop, k = first, min(pair, last + _ONE), mzis[pair]
        if k >= 0:  # else only columns with MZIs change
            start, stop = _ZERO, pair
        start = max(start, pair - min(pair, later)) // step * step
        left, right = row * stride, row * stride + _TWO * length + _ONE
        if row % _TWO == 0:
            left, right = right - _ONE, left
        below = left + stride + pair
        real, imag = state[below], state[below + length]
        if k >= 0:
            real, imag = _look(real, imag, diagonal, row, numbers, pair, length, mzi, np.uint64(k))
        _turn_block(state, numbers, left, right, stride, length, pair, start, stop)
        state[below], state[below + length] = real, imag


@njit(**OPTIONS)
def _look(real, imag, diagonal, row, numbers, at, length, mzi, k):
    """Read the gradients of an MZI off A; return what will be its entry of B left of the diagonal."""
    cells, turn, d_theta, d_phi = mzi
    own = min(k, np.uint64(len(cells)) - _ONE)
    size, s, c = numbers[at + _FOUR * length], numbers[at + _SIX * length], numbers[at + _SEVEN * length]
    co, so = cells[own, 2], cells[own, 3]
    real, imag, x, y = real * size, imag * size, diagonal[row], diagonal[row + _ONE]
    d_theta[k] = 2 * co * so * (turn[_FOUR, k] * real - turn[_FIVE, k] * imag) - co * co * x - so * so * y
    upper = s * (s * x - c * imag) + c * (c * y - s * imag)
    d_phi[k] = -upper
    diagonal[row], diagonal[row + _ONE] = upper, x + y - upper
    imag = s * c * (x - y) + (s * s - c * c) * imag
    size, tangent = numbers[at + _FIVE * length], numbers[at + _TWO * length]
    return size * (real - tangent * imag), size * (imag + tangent * real)


@njit(**OPTIONS)
def _turn_block(state, numbers, left, right, stride, length, pair, start, stop):
    """Go back through a layer in the two rows of a pair, from column pair ``start`` to ``stop``.

    Whole vectors: what is changed beyond the diagonal is never looked at.
    """
    step = lanes(state)
    ru, rl = spread(numbers[pair]), spread(numbers[pair + length])
    rt, rn = spread(numbers[pair + _TWO * length]), spread(numbers[pair + _THREE * length])
    left, right = left + start, right + start
    while start < stop:
        cu, cl = load(numbers, start), load(numbers, start + length)
        ct, cn = load(numbers, start + _TWO * length), load(numbers, start + _THREE * length)
        v, w = left + stride, right + stride
        p, q, r, t = load(state, left), load(state, left + length), load(state, right), load(state, right + length)
        e, f, g, h = load(state, v), load(state, v + length), load(state, w), load(state, w + length)
        # Columns: rotate, then turn the upper mode's.
        p, q, r, t = fma(cu, r, p), fma(cu, t, q), fma(cl, p, r), fma(cl, q, t)
        e, f, g, h = fma(cu, g, e), fma(cu, h, f), fma(cl, e, g), fma(cl, f, h)
        p, q, e, f = fma(cn, q, p), fma(ct, p, q), fma(cn, f, e), fma(ct, e, f)
        # Rows: the same, but the conjugate of the turn.
        p, q, e, f = fma(ru, e, p), fma(ru, f, q), fma(rl, p, e), fma(rl, q, f)
        r, t, g, h = fma(ru, g, r), fma(ru, h, t), fma(rl, r, g), fma(rl, t, h)
        store(fma(rt, q, p), state, left)
        store(fma(rn, p, q), state, left + length)
        store(fma(rt, t, r), state, right)
        store(fma(rn, r, t), state, right + length)
        store(e, state, v)
        store(f, state, v + length)
        store(g, state, w)
        store(h, state, w + length)
        left, right, start = left + step, right + step, start + step


@njit(**OPTIONS)
def _multiply_out(scales, state, length):
    """Put the scales into the numbers."""
    ports, step = np.uint64(scales.shape[1]) - _TWO, lanes(state)
    columns = np.zeros(_FOUR * length, scales.dtype)
    zero = spread(scales.dtype.type(0))
    for row in range(_ONE, ports + _ONE):
        columns[_at(length, _ZERO, row)] = scales[0, row]
    for row in range(_ONE, ports + _ONE):
        size = spread(scales[0, row])
        for part in range(_FOUR):
            for place in range(_ZERO, row // _TWO + _ONE, step):
                at = (row * _FOUR + part) * length + place
                column = fma(load(columns, part // _TWO * _TWO * length + place), size, zero)
                store(fma(load(state, at), column, zero), state, at)
    scales[:] = 1
