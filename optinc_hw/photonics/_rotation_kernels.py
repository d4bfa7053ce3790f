"""Compiled kernels for lossless meshes: half the arithmetic of the general ones.

A lossless MZI, whatever its couplers, is phases around a real rotation,

    T = diag(e^{iu}, e^{il}) [[s, c], [c, -s]] diag(e^{ia} F, 1),   F = exp(i phi).

The phases behind it are carried along as one number a mode, ``y = D z``: what is left for the rows ``z`` is a phase
``alpha`` on the upper one and a real rotation. A backward pass turns fields and gradients back with the same numbers.

Rows are cut into blocks of `WIDTH` inputs, a length that the compiler knows, and the rows of an MZI lie side by side:
so one slice serves an MZI, and nothing has to be checked for overlap.
"""

import numpy as np
from numba import njit

from optinc_hw.photonics._kernels import OPTIONS, unit

WIDTH = 32
"""Inputs in a block."""
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
        c, s, size = np.sqrt(c2), np.sqrt(s2), one / np.sqrt(c2 + s2)
        # Where an entry vanishes its phase is free.
        to_unit, from_unit = one / max(c, _SMALLEST), one / max(s, _SMALLEST)
        parts[0, k], parts[1, k] = s * size, c * size
        parts[2, k], parts[3, k] = (br * to_unit, bi * to_unit) if c > _SMALLEST else (one, one - one)
        parts[4, k], parts[5, k] = (-dr * from_unit, -di * from_unit) if s > _SMALLEST else (one, one - one)


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
        # The determinant, E, sets the phase in front: e^{ia} = -E e^{-i(u + l)}.
        wr, wi = ur * lr - ui * li, ur * li + ui * lr
        ar, ai = -(er * wr + ei * wi), -(ei * wr - er * wi)
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
    """Matrices of B settings; ``turn`` (B, 6, K), ``behind`` (B, n, 2) and ``out`` are kept for `transfer_vjp`.

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
    z = np.empty(2 * ports * WIDTH, out.dtype)  # real and imaginary part of a row together
    for b in range(len(out)):
        cells = couplings[min(b, len(couplings) - 1)]
        unit(theta[b], trig[0], trig[1])
        unit(phi[b], trig[2], trig[3])
        unit(output[b], trig_out[0], trig_out[1])
        turns(table, trig[0], trig[1], trig[2], trig[3], cells, trig_out[0], trig_out[1], turn[b], behind[b])
        for first in range(0, ports, WIDTH):
            z[:] = 0
            for i in range(first, min(first + WIDTH, ports)):
                z[2 * i * WIDTH + i - first] = 1
            for k in range(len(table)):
                if table[k, 1] < first + WIDTH and table[k, 2] > first:
                    start = 2 * table[k, 0] * WIDTH
                    _rotate(turn[b, 0, k], turn[b, 1, k], turn[b, 2, k], turn[b, 3, k], z[start : start + 4 * WIDTH])
            for i in range(ports):
                c, s = behind[b, i, 0], behind[b, i, 1]
                row = z[2 * i * WIDTH : 2 * (i + 1) * WIDTH]
                for j in range(min(WIDTH, ports - first)):
                    x, y = row[j], row[WIDTH + j]
                    out[b, i, 2 * (first + j)] = c * x - s * y
                    out[b, i, 2 * (first + j) + 1] = c * y + s * x


@njit(**OPTIONS)
def _rotate(s, c, ar, ai, z):
    """Turn the upper of two rows by alpha, then rotate both."""
    for j in range(WIDTH):
        x, y, a, b = z[j], z[WIDTH + j], z[2 * WIDTH + j], z[3 * WIDTH + j]
        p, q = ar * x - ai * y, ar * y + ai * x
        z[j], z[WIDTH + j] = s * p + c * a, s * q + c * b
        z[2 * WIDTH + j], z[3 * WIDTH + j] = c * p - s * a, c * q - s * b


@njit(**OPTIONS)
def transfer_vjp(table, couplings, turn, behind, made, grad, d_theta, d_phi, d_out):
    """Pull gradients of matrices ``made`` (B, n, 2n) back to the phases.

    A phase on a mode has the gradient ``G = Im sum conj(g) y`` there. An MZI without loss keeps the sum of G over its
    arms, so G of one input gives that of the other, and the gradient of theta follows from G behind the MZI and the
    overlaps of one arm's gradient with the other arm's field.
    """
    ports, mzis = d_out.shape[1], len(table)
    work = np.empty(4 * ports * WIDTH, made.dtype)
    sums = np.empty((mzis, 3), made.dtype)
    for b in range(len(grad)):
        cells = couplings[min(b, len(couplings) - 1)]
        sums[:] = 0
        d_out[b] = 0
        for first in range(0, ports, WIDTH):
            _load(behind[b], made[b], grad[b], first, work, d_out[b])
            for k in range(mzis - 1, -1, -1):
                if table[k, 1] < first + WIDTH and table[k, 2] > first:
                    start = 4 * table[k, 0] * WIDTH
                    x, y, a = _rotate_back(
                        turn[b, 0, k], turn[b, 1, k], turn[b, 2, k], turn[b, 3, k], work[start : start + 8 * WIDTH]
                    )
                    sums[k, 0] += x
                    sums[k, 1] += y
                    sums[k, 2] += a
        torque = d_out[b].copy()
        for k in range(mzis - 1, -1, -1):
            m, cell = table[k, 0], cells[min(k, len(cells) - 1)]
            co, so = cell[2], cell[3]
            cross = turn[b, 4, k] * sums[k, 0] - turn[b, 5, k] * sums[k, 1]
            d_theta[b, k] = co * co * torque[m] + so * so * torque[m + 1] + co * so * cross
            d_phi[b, k] = sums[k, 2]
            torque[m], torque[m + 1] = sums[k, 2], torque[m] + torque[m + 1] - sums[k, 2]


@njit(**OPTIONS)
def _load(behind, made, grad, first, work, d_out):
    """Put rows z of fields and of gradients, four parts a mode, side by side; add to gradients of output phases."""
    ports = len(behind)
    for i in range(ports):
        c, s = behind[i, 0], behind[i, 1]
        row = work[4 * i * WIDTH : 4 * (i + 1) * WIDTH]
        total = made.dtype.type(0)
        count = min(WIDTH, ports - first)
        row[:] = 0
        for j in range(count):
            x, y = made[i, 2 * (first + j)], made[i, 2 * (first + j) + 1]
            p, q = grad[i, 2 * (first + j)], grad[i, 2 * (first + j) + 1]
            row[j], row[WIDTH + j] = c * x + s * y, c * y - s * x
            row[2 * WIDTH + j], row[3 * WIDTH + j] = c * p + s * q, c * q - s * p
            total += q * x - p * y
        d_out[i] += total


@njit(**OPTIONS)
def _rotate_back(s, c, ar, ai, r):
    """Undo `_rotate` on fields and gradients; return the overlaps behind the MZI and G of its upper input."""
    real = imag = upper = r.dtype.type(0)
    for j in range(WIDTH):
        x, y, p, q = r[j], r[WIDTH + j], r[2 * WIDTH + j], r[3 * WIDTH + j]
        a, b, e, f = r[4 * WIDTH + j], r[5 * WIDTH + j], r[6 * WIDTH + j], r[7 * WIDTH + j]
        real += p * a + q * b - e * x - f * y
        imag += p * b - q * a + e * y - f * x
        u, v = s * x + c * a, s * y + c * b
        g, h = s * p + c * e, s * q + c * f
        r[4 * WIDTH + j], r[5 * WIDTH + j] = c * x - s * a, c * y - s * b
        r[6 * WIDTH + j], r[7 * WIDTH + j] = c * p - s * e, c * q - s * f
        upper += h * u - g * v
        r[j], r[WIDTH + j] = ar * u + ai * v, ar * v - ai * u
        r[2 * WIDTH + j], r[3 * WIDTH + j] = ar * g + ai * h, ar * h - ai * g
    return real, imag, upper
