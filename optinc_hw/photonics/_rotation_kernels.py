"""Compiled kernels for lossless meshes: a quarter of the arithmetic of the general ones.

A lossless MZI, whatever its couplers, is phases around a real rotation,

    T = diag(e^{iu}, e^{il}) [[s, c], [-c, s]] diag(e^{ia} F, 1),   F = exp(i phi).

The phases behind it are carried along as one number a mode, ``y = D z``: what is left for the rows ``z`` is a phase
``alpha`` on the upper one and a real rotation. A scale of each mode is carried along, too, ``z = d x``: a turn and a
rotation then take one multiplication and addition a number instead of two (fast Givens rotations). Scales only shrink;
before they become too small they are multiplied out. A backward pass, in ``_similarity_kernels``, does likewise.

Rows are cut into blocks of `WIDTH` inputs. MZIs come in the order of ``MeshLayout.strips``; where one begins at the
lower mode of the one before, both are done in one pass over three rows.
"""

# Places in rows are unsigned, or each would be tested for being negative.

import numpy as np
from numba import njit

from optinc_hw.photonics._kernels import OPTIONS, unit
from optinc_hw.photonics._vector_kernels import fma, lanes, lined_up, load, spread, store

WIDTH = 128
"""Inputs in a block."""
KEPT = 8
"""Numbers of an MZI for a backward pass: s, c, cos and tan of alpha, cos and sin of l - u, 1 / s, 1 / cos alpha."""
_STEP = 5
"""Numbers of an MZI on the way forward: tan alpha; what a row takes of its neighbour, upper and lower; factors of both
rows afterwards, 1 where scales are not multiplied out."""
_PLANE = np.uint64(WIDTH + 8)  # no power of two, which would put all rows into the same cache lines
_ROW = np.uint64(2) * _PLANE
_SMALLEST = 1e-30
_CHUNK = np.uint64(64)  # MZIs whose numbers are made together
_ZERO, _ONE, _TWO, _THREE, _FOUR = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
# Where the numbers of a chunk lie.
_CELL, _TRIG, _S, _C, _OVER_S, _COS, _TAN, _OVER_COS, _U, _L, _A, _DIFFERENCE, _ALPHA, _END = (
    np.uint64(place) * _CHUNK for place in (0, 4, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 22, 24)
)


@njit(**OPTIONS)
def scale_limits(itemsize):
    """Return what smaller s and cosines are raised to, less than round-off, and the least scale to go on with."""
    return (1e-20, 1e-80) if itemsize == 8 else (1e-7, 1e-5)


@njit(**OPTIONS)
def _factor(x, small):
    """Factor a chunk of MZIs."""
    one = x.dtype.type(1)
    for i in range(_CHUNK):
        ci, si, co, so = (
            x[_CELL + i],
            x[_CELL + _CHUNK + i],
            x[_CELL + _TWO * _CHUNK + i],
            x[_CELL + _THREE * _CHUNK + i],
        )
        er, ei, fr, fi = (
            x[_TRIG + i],
            x[_TRIG + _CHUNK + i],
            x[_TRIG + _TWO * _CHUNK + i],
            x[_TRIG + _THREE * _CHUNK + i],
        )
        # Upper right and lower right entry: B = i (co si E + so ci), D = co ci - so si E.
        br, bi = -co * si * ei, co * si * er + so * ci
        dr, di = co * ci - so * si * er, -so * si * ei
        c2, s2 = br * br + bi * bi, dr * dr + di * di
        c, s = np.sqrt(c2), np.sqrt(s2)
        size = one - (c2 + s2 - one) / 2  # what rounding left of one
        # Where an entry vanishes its phase is free.
        to_unit, from_unit = one / max(c, _SMALLEST), one / max(s, _SMALLEST)
        ur, ui = (br * to_unit, bi * to_unit) if c > _SMALLEST else (one, one - one)
        lr, li = (dr * from_unit, di * from_unit) if s > _SMALLEST else (one, one - one)
        # The determinant, E, sets the phase in front: e^{ia} = E e^{-i(u + l)}.
        wr, wi = ur * lr - ui * li, ur * li + ui * lr
        ar, ai = er * wr + ei * wi, ei * wr - er * wi
        s = max(s * size, small)
        x[_S + i], x[_C + i], x[_OVER_S + i] = s, c * size, one / s
        x[_U + i], x[_U + _CHUNK + i], x[_L + i], x[_L + _CHUNK + i] = ur, ui, lr, li
        x[_A + i], x[_A + _CHUNK + i] = fr * ar - fi * ai, fr * ai + fi * ar
        x[_DIFFERENCE + i], x[_DIFFERENCE + _CHUNK + i] = lr * ur + li * ui, li * ur - lr * ui


@njit(**OPTIONS)
def _to_circle(x, y):
    """Bring a number that round-off has moved off the unit circle back: else the errors of all columns add up."""
    off = (x * x + y * y - 1) / 2
    return x - x * off, y - y * off


@njit(**OPTIONS)
def _pass_phases(modes, first, count, x, behind):
    """Carry the numbers D of the modes through a chunk of MZIs, and find alpha."""
    for i in range(count):
        m = np.uint64(modes[first + i])
        n = m + _ONE
        ur, ui, lr, li = x[_U + i], x[_U + _CHUNK + i], x[_L + i], x[_L + _CHUNK + i]
        fr, fi = x[_A + i], x[_A + _CHUNK + i]
        pr, pi, qr, qi = behind[m, 0], behind[m, 1], behind[n, 0], behind[n, 1]
        gr, gi = fr * pr - fi * pi, fr * pi + fi * pr
        x[_ALPHA + i], x[_ALPHA + _CHUNK + i] = gr * qr + gi * qi, gi * qr - gr * qi
        behind[m, 0], behind[m, 1] = _to_circle(ur * qr - ui * qi, ur * qi + ui * qr)
        behind[n, 0], behind[n, 1] = _to_circle(lr * qr - li * qi, lr * qi + li * qr)


@njit(**OPTIONS)
def _tangents(x, small):
    """Find cosine and tangent of the alphas of a chunk."""
    one = x.dtype.type(1)
    for i in range(_CHUNK):
        cosine, sine = _to_circle(x[_ALPHA + i], x[_ALPHA + _CHUNK + i])
        cosine = cosine if abs(cosine) > small else one * small
        over = one / cosine
        x[_COS + i], x[_TAN + i], x[_OVER_COS + i] = cosine, sine * over, over


@njit(**OPTIONS)
def _pass_scales(modes, places, first, count, x, scales, steps, least):
    """Carry the scales of the modes, and their inverses, through a chunk of MZIs; write what rows are multiplied by."""
    one = x.dtype.type(1)
    for i in range(count):
        m, at = np.uint64(modes[first + i]), np.uint64(places[first + i])
        n = m + _ONE
        s, over_s = x[_S + i], x[_OVER_S + i]
        d, e, over_d, over_e = scales[0, m] * x[_COS + i], scales[0, n], scales[1, m] * x[_OVER_COS + i], scales[1, n]
        over_d += over_d * (one - d * over_d)  # inverses would drift away
        ratio = x[_C + i] * over_s
        steps[at, 0], steps[at, 1], steps[at, 2] = x[_TAN + i], ratio * e * over_d, -ratio * d * over_e
        d, e, over_d, over_e = d * s, e * s, over_d * over_s, over_e * over_s
        over_d, over_e = over_d + over_d * (one - d * over_d), over_e + over_e * (one - e * over_e)
        steps[at, 3] = steps[at, 4] = one
        if not min(abs(d), abs(e)) >= least:
            steps[at, 3], steps[at, 4] = d, e
            d = e = over_d = over_e = one
        scales[0, m], scales[0, n], scales[1, m], scales[1, n] = d, e, over_d, over_e


@njit(**OPTIONS)
def turns(modes, places, trig, trig_out, cells, turn, behind, steps):
    """Write the numbers of every MZI of one setting.

    Parameters
    ----------
    modes
        ``MeshLayout.modes`` (K,).
    places
        From ``MeshLayout.strips`` (K,).
    trig, trig_out
        Cosine and sine of theta, then of phi (4, K); of the output phases (2, n).
    cells
        Couplings (K or 1, 6), see ``_kernels``.
    turn
        Receives the `KEPT` numbers of each, (8, K).
    behind
        Receives the numbers D of the outputs, output phases included, (n, 2).
    steps
        Receives what `_carry` takes, (K, 5).

    Returns
    -------
    array
        Scales of the outputs (n,).
    """
    small, least = scale_limits(turn.itemsize)
    x = np.zeros(_END, turn.dtype)
    mzis = np.uint64(len(modes))
    scales = np.ones((2, len(behind)), turn.dtype)
    behind[:, 0], behind[:, 1] = 1, 0
    for first in range(_ZERO, mzis, _CHUNK):
        count = min(_CHUNK, mzis - first)
        for i in range(count):
            own = min(first + i, np.uint64(len(cells)) - _ONE)
            for part in range(_FOUR):
                x[_CELL + part * _CHUNK + i] = cells[own, part]
        for part in range(_FOUR):
            for i in range(count):
                x[_TRIG + part * _CHUNK + i] = trig[part, first + i]
        _factor(x, small)
        _pass_phases(modes, first, count, x, behind)
        _tangents(x, small)
        _pass_scales(modes, places, first, count, x, scales, steps, least * least)
        for row, start in enumerate((_S, _C, _COS, _TAN, _DIFFERENCE, _DIFFERENCE + _CHUNK, _OVER_S, _OVER_COS)):
            for i in range(count):
                turn[np.uint64(row), first + i] = x[start + i]
    for i in range(len(behind)):
        a, b = behind[i, 0], behind[i, 1]
        behind[i, 0], behind[i, 1] = trig_out[0, i] * a - trig_out[1, i] * b, trig_out[0, i] * b + trig_out[1, i] * a
    return scales[0]


@njit(**OPTIONS)
def transfer(modes, strips, places, theta, phi, output, couplings, turn, behind, out):
    """Matrices of B settings; ``turn`` (B, 8, K), ``behind`` (B, n, 2) and ``out`` are kept for gradients.

    Parameters
    ----------
    modes
        ``MeshLayout.modes`` (K,).
    couplings, out
        As for ``_kernels.transfer``; the couplings lossless.
    strips, places
        ``MeshLayout.strips``.
    theta, phi, output
        Phases (B, K), (B, K) and (B, n).
    turn, behind
        Receive what `turns` says.
    """
    ports = output.shape[1]
    trig, trig_out = np.empty((4, len(modes)), out.dtype), np.empty((2, ports), out.dtype)
    steps = np.empty((len(modes), _STEP), out.dtype)
    z = lined_up(np.uint64(ports) * _ROW, out.dtype)  # real and imaginary part of a row together
    for b in range(len(out)):
        cells = couplings[min(b, len(couplings) - 1)]
        unit(theta[b], trig[0], trig[1])
        unit(phi[b], trig[2], trig[3])
        unit(output[b], trig_out[0], trig_out[1])
        scales = turns(modes, places, trig, trig_out, cells, turn[b], behind[b], steps)
        for first in range(0, ports, WIDTH):
            z[:] = 0
            width = min(WIDTH, ports - first)
            for j in range(width):
                z[np.uint64(first + j) * _ROW + np.uint64(j)] = 1
            _carry(strips, steps, z, first, width)
            for i in range(ports):
                c, s = behind[b, i, 0] * scales[i], behind[b, i, 1] * scales[i]
                at = np.uint64(i) * _ROW
                for j in range(width):
                    x, y = z[at + np.uint64(j)], z[at + np.uint64(j) + _PLANE]
                    out[b, i, 2 * (first + j)] = c * x - s * y
                    out[b, i, 2 * (first + j) + 1] = c * y + s * x


@njit(**OPTIONS)
def _carry(strips, steps, z, first, width):
    """Carry a block of inputs through the mesh."""
    i, count, one = _ZERO, np.uint64(len(strips)), z.dtype.type(1)
    while i < count:
        m, low, high = strips[i, 0], strips[i, 1], strips[i, 2]
        alone = i
        i += _ONE
        both = i < count and strips[i, 0] == m + 1 and steps[alone, 3] == one and steps[alone, 4] == one
        if both:
            low, high = min(low, strips[i, 1]), max(high, strips[i, 2])
        low, high = max(low - first, 0), min(high - first, width)
        at, end = np.uint64(m) * _ROW + np.uint64(low), np.uint64(m) * _ROW + np.uint64(max(low, high))
        if both:
            _rotate_twice(steps, alone, z, at, end)
            m, i = m + 1, i + _ONE
        else:
            _rotate(steps, alone, z, at, end)
        upper, lower = steps[i - _ONE, 3], steps[i - _ONE, 4]
        if upper != one or lower != one:
            start = np.uint64(m) * _ROW
            for j in range(_ROW):
                z[start + j] *= upper
            for j in range(_ROW, _ROW + _ROW):
                z[start + j] *= lower


@njit(**OPTIONS)
def _rotate(steps, i, z, at, end):
    """Turn the upper of two rows by alpha, then rotate both; whole vectors: beyond the last input all is zero."""
    tangent, back, up, low = spread(steps[i, 0]), spread(-steps[i, 0]), spread(steps[i, 1]), spread(steps[i, 2])
    while at < end:
        v = at + _ROW
        p, q, r, s = load(z, at), load(z, at + _PLANE), load(z, v), load(z, v + _PLANE)
        p, q = fma(back, q, p), fma(tangent, p, q)
        store(fma(up, r, p), z, at)
        store(fma(up, s, q), z, at + _PLANE)
        store(fma(low, p, r), z, v)
        store(fma(low, q, s), z, v + _PLANE)
        at += lanes(z)


@njit(**OPTIONS)
def _rotate_twice(steps, i, z, at, end):
    """Do the same with two MZIs, of which the second one begins at the lower row of the first."""
    j = i + _ONE
    tangent, back, up, low = spread(steps[i, 0]), spread(-steps[i, 0]), spread(steps[i, 1]), spread(steps[i, 2])
    tangent2, back2, up2, low2 = spread(steps[j, 0]), spread(-steps[j, 0]), spread(steps[j, 1]), spread(steps[j, 2])
    while at < end:
        v, w = at + _ROW, at + _ROW + _ROW
        p, q, r, s = load(z, at), load(z, at + _PLANE), load(z, v), load(z, v + _PLANE)
        e, f = load(z, w), load(z, w + _PLANE)
        p, q = fma(back, q, p), fma(tangent, p, q)
        store(fma(up, r, p), z, at)
        store(fma(up, s, q), z, at + _PLANE)
        r, s = fma(low, p, r), fma(low, q, s)
        r, s = fma(back2, s, r), fma(tangent2, r, s)
        store(fma(up2, e, r), z, v)
        store(fma(up2, f, s), z, v + _PLANE)
        store(fma(low2, r, e), z, w)
        store(fma(low2, s, f), z, w + _PLANE)
        at += lanes(z)
