"""Compiled kernels for lossless meshes: half the arithmetic of the general ones.

A lossless MZI, whatever its couplers, is phases around a real rotation,

    T = diag(e^{iu}, e^{il}) [[s, c], [-c, s]] diag(e^{ia} F, 1),   F = exp(i phi).

The phases behind it are carried along as one number a mode, ``y = D z``: what is left for the rows ``z`` is a phase
``alpha`` on the upper one and a real rotation. A backward pass, in ``_similarity_kernels``, takes the same numbers.

Rows are cut into blocks of `WIDTH` inputs, and the rows of an MZI lie side by side, as far apart as the compiler knows:
so nothing has to be checked for overlap.
"""

# Places in rows are unsigned, or each would be tested for being negative.

import numpy as np
from numba import njit

from optinc_hw.photonics._kernels import OPTIONS, unit

WIDTH = 128
"""Inputs in a block."""
_PLANE = np.uint64(WIDTH + 8)  # no power of two, which would put all rows into the same cache lines
_ROW = np.uint64(2) * _PLANE
_EIGHT, _ONE = np.uint64(8), np.uint64(1)
_SMALLEST = 1e-30


@njit(**OPTIONS)
def _factor(cos_theta, sin_theta, cells, parts):
    """Factor MZIs without phi: s, c, e^{iu} and e^{il} of one setting, (6, K)."""
    one = parts.dtype.type(1)
    for k in range(parts.shape[1]):
        own = min(k, len(cells) - 1)
        ci, si, co, so = cells[own, 0], cells[own, 1], cells[own, 2], cells[own, 3]
        er, ei = cos_theta[k], sin_theta[k]
        # Upper right and lower right entry: B = i (co si E + so ci), D = co ci - so si E.
        br, bi = -co * si * ei, co * si * er + so * ci
        dr, di = co * ci - so * si * er, -so * si * ei
        c2, s2 = br * br + bi * bi, dr * dr + di * di
        c, s = np.sqrt(c2), np.sqrt(s2)
        size = one - (c2 + s2 - one) / 2  # what rounding left of one
        # Where an entry vanishes its phase is free.
        to_unit, from_unit = one / max(c, _SMALLEST), one / max(s, _SMALLEST)
        parts[0, k], parts[1, k] = s * size, c * size
        parts[2, k], parts[3, k] = (br * to_unit, bi * to_unit) if c > _SMALLEST else (one, one - one)
        parts[4, k], parts[5, k] = (dr * from_unit, di * from_unit) if s > _SMALLEST else (one, one - one)


@njit(**OPTIONS)
def _to_circle(x, y):
    """Bring a number that round-off has moved off the unit circle back: else the errors of all columns add up."""
    off = (x * x + y * y - 1) / 2
    return x - x * off, y - y * off


@njit(**OPTIONS)
def turns(table, cos_theta, sin_theta, cos_phi, sin_phi, cells, cos_out, sin_out, turn, behind):
    """Write the numbers of every MZI of one setting.

    Parameters
    ----------
    table
        ``MeshLayout.table`` (K, 3).
    cos_theta, sin_theta, cos_phi, sin_phi
        (K,).
    cells
        Couplings (K or 1, 6), see ``_kernels``.
    cos_out, sin_out
        Of the output phases (n,).
    turn
        Receives s, c, cos alpha, sin alpha, and cos and sin of l - u, (6, K).
    behind
        Receives the numbers D of the outputs, output phases included, (n, 2).
    """
    _factor(cos_theta, sin_theta, cells, turn)
    behind[:, 0], behind[:, 1] = 1, 0
    for k in range(len(table)):
        m = table[k, 0]
        er, ei, ur, ui, lr, li = cos_theta[k], sin_theta[k], turn[2, k], turn[3, k], turn[4, k], turn[5, k]
        # The determinant, E, sets the phase in front: e^{ia} = E e^{-i(u + l)}.
        wr, wi = ur * lr - ui * li, ur * li + ui * lr
        ar, ai = er * wr + ei * wi, ei * wr - er * wi
        fr, fi = cos_phi[k] * ar - sin_phi[k] * ai, cos_phi[k] * ai + sin_phi[k] * ar
        pr, pi, qr, qi = behind[m, 0], behind[m, 1], behind[m + 1, 0], behind[m + 1, 1]
        gr, gi = fr * pr - fi * pi, fr * pi + fi * pr
        turn[2, k], turn[3, k] = _to_circle(gr * qr + gi * qi, gi * qr - gr * qi)
        turn[4, k], turn[5, k] = lr * ur + li * ui, li * ur - lr * ui
        behind[m, 0], behind[m, 1] = _to_circle(ur * qr - ui * qi, ur * qi + ui * qr)
        behind[m + 1, 0], behind[m + 1, 1] = _to_circle(lr * qr - li * qi, lr * qi + li * qr)
    for i in range(len(behind)):
        x, y = behind[i, 0], behind[i, 1]
        behind[i, 0], behind[i, 1] = cos_out[i] * x - sin_out[i] * y, cos_out[i] * y + sin_out[i] * x


@njit(**OPTIONS)
def transfer(table, theta, phi, output, couplings, turn, behind, out):
    """Matrices of B settings; ``turn`` (B, 6, K), ``behind`` (B, n, 2) and ``out`` are kept for gradients.

    Parameters
    ----------
    table, couplings, out
        As for ``_kernels.transfer``; the couplings lossless.
    theta, phi, output
        Phases (B, K), (B, K) and (B, n).
    turn, behind
        Receive what `turns` says.
    """
    ports = output.shape[1]
    trig, trig_out = np.empty((4, len(table)), out.dtype), np.empty((2, ports), out.dtype)
    z = np.empty(ports * _ROW, out.dtype)  # real and imaginary part of a row together
    for b in range(len(out)):
        cells = couplings[min(b, len(couplings) - 1)]
        unit(theta[b], trig[0], trig[1])
        unit(phi[b], trig[2], trig[3])
        unit(output[b], trig_out[0], trig_out[1])
        turns(table, trig[0], trig[1], trig[2], trig[3], cells, trig_out[0], trig_out[1], turn[b], behind[b])
        for first in range(0, ports, WIDTH):
            z[:] = 0
            width = min(WIDTH, ports - first)
            for j in range(width):
                z[np.uint64(first + j) * _ROW + np.uint64(j)] = 1
            for k in range(len(table)):
                low, high = max(table[k, 1] - first, 0), min(table[k, 2] - first, width)
                if low < high:
                    at = np.uint64(table[k, 0]) * _ROW + np.uint64(low)
                    # Whole vectors: beyond the last input there is nothing to rotate.
                    count = (np.uint64(high - low) + _EIGHT - _ONE) // _EIGHT * _EIGHT
                    _rotate(turn[b, 0, k], turn[b, 1, k], turn[b, 2, k], turn[b, 3, k], z, at, count)
            for i in range(ports):
                c, s = behind[b, i, 0], behind[b, i, 1]
                at = np.uint64(i) * _ROW
                for j in range(width):
                    x, y = z[at + np.uint64(j)], z[at + np.uint64(j) + _PLANE]
                    out[b, i, 2 * (first + j)] = c * x - s * y
                    out[b, i, 2 * (first + j) + 1] = c * y + s * x


@njit(**OPTIONS)
def _rotate(s, c, ar, ai, z, at, count):
    """Turn the upper of two rows by alpha, then rotate both."""
    for i in range(count):
        j = at + i
        k = j + _ROW
        x, y, a, b = z[j], z[j + _PLANE], z[k], z[k + _PLANE]
        p, q = ar * x - ai * y, ar * y + ai * x
        z[j], z[j + _PLANE] = s * p + c * a, s * q + c * b
        z[k], z[k + _PLANE] = s * a - c * p, s * b - c * q
