"""Compiled kernels: light through a mesh, MZI by MZI, and gradients back through it.

An MZI is six real numbers, its couplings ``(ci, si, gu, hu, gl, hl)``: cosine and sine of the first coupler, and
cosine and sine of the second times the field transmission of the upper and of the lower arm,

    T = [[gu, i hl], [i hu, gl]] diag(E, 1) [[ci, i si], [i si, ci]] diag(F, 1),   E = exp(i theta), F = exp(i phi).

Backward passes keep no columns: they undo the MZIs one by one.  Where an MZI cannot be undone (a dead arm, much
loss) its two inputs were saved on the way.  Gradients follow torch: ``G = dL/dRe + i dL/dIm``.

Fields lie in rows ``[mode, real or imaginary, vector]``; nothing here checks its arguments.
"""

# The loops name each real number of a 2x2 product: numba vectorises them so, and only so.  In `transfer` they take a
# flat array and the places where rows begin: a slice for each row costs two atomic reference counts, as much time as
# arithmetic on 30 numbers.  The places are unsigned, or each index would be tested for being negative.

import math
from typing import Any

import numpy as np
from numba import njit

OPTIONS: dict[str, Any] = {  # what numba's decorator takes
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}


_LARGEST_ANGLE = 1e5  # rad; `sincos` is exact below
_EXACT: dict[str, Any] = {**OPTIONS, "fastmath": {"contract", "nsz"}}  # sums keep their order


@njit(**_EXACT)
def sincos(angle, cosine, sine):
    """Cosines and sines of flat arrays of angles in rad up to 1e5, right to 2e-16.

    Cody and Waite's reduction to pi/4 with pi/2 in three parts, then polynomials of degree 13 and 14 (minimax, as in
    Sun's fdlibm); eight times faster than two library calls, because one loop of plain arithmetic gives both.
    """
    for i in range(len(angle)):
        x = np.float64(angle[i])
        turns = np.rint(x * 0.6366197723675814)
        r = ((x - turns * 1.5707963267341256) - turns * 6.077100506303966e-11) - turns * 2.0222662487959506e-21
        z = r * r
        s = -2.50507602534068634195e-08 + z * 1.58969099521155010221e-10
        s = -1.98412698298579493134e-04 + z * (2.75573137070700676789e-06 + z * s)
        s = r + r * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03 + z * s))
        c = 2.08757232129817482790e-09 + z * -1.13596475577881948265e-11
        c = 2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07 + z * c)
        c = 1.0 - 0.5 * z + z * z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * c))
        quarter = turns - 4.0 * np.floor(turns * 0.25)
        odd = (quarter == 1.0) | (quarter == 3.0)
        p, q = (s, c) if odd else (c, s)
        cosine[i] = -p if (quarter == 1.0) | (quarter == 2.0) else p
        sine[i] = -q if quarter >= 2.0 else q


@njit(**OPTIONS)
def unit(angle, cosine, sine):
    """Cosines and sines of flat arrays of any angles in rad."""
    far = 0
    for i in range(len(angle)):
        far += not abs(angle[i]) <= _LARGEST_ANGLE  # also where it is NaN
    if far == 0:
        sincos(angle, cosine, sine)
        return
    for i in range(len(angle)):
        cosine[i], sine[i] = math.cos(angle[i]), math.sin(angle[i])


@njit(**OPTIONS)
def plan_saves(modes, upper, lower, ports, allowance):
    """Say which MZIs must save their inputs so that undoing never multiplies round-off by more than ``allowance``.

    Parameters
    ----------
    modes
        Upper mode (K,) of each MZI.
    upper, lower
        Smallest field transmission (K,) of its arms in any setting.
    ports
        Number of modes.
    allowance
        Largest accepted growth of errors.

    Returns
    -------
    tuple
        Slots (K,), -1 where nothing is saved, and how many there are.
    """
    slots = np.full(len(modes), -1, np.int64)
    growth = np.ones(ports)
    count = 0
    for k in range(len(modes) - 1, -1, -1):
        m = modes[k]
        weakest = min(upper[k], lower[k])
        before = max(growth[m], growth[m + 1])
        if before > allowance * weakest:
            slots[k] = count
            count += 1
            growth[m] = growth[m + 1] = 1.0
        else:
            growth[m] = growth[m + 1] = before / weakest
    return slots, count


@njit(**OPTIONS)
def _cell(er, ei, fr, fi, cells, k):
    """Real and imaginary parts of T, row by row."""
    ci, si, gu, hu, gl, hl = cells[k, 0], cells[k, 1], cells[k, 2], cells[k, 3], cells[k, 4], cells[k, 5]
    ar, ai = gu * ci * er - hl * si, gu * ci * ei
    cr, cj = -hu * ci * ei, hu * ci * er + gl * si
    return (
        ar * fr - ai * fi, ar * fi + ai * fr, -gu * si * ei, gu * si * er + hl * ci,
        cr * fr - cj * fi, cr * fi + cj * fr, gl * ci - hu * si * er, -hu * si * ei,
    )  # fmt: skip


@njit(**OPTIONS)
def _inverse(t, er, ei, fr, fi, cells, k):
    """Real and imaginary parts of the inverse of T, whose determinant is (gu gl + hu hl) E F."""
    size = cells[k, 2] * cells[k, 4] + cells[k, 3] * cells[k, 5]
    dr, di = (er * fr - ei * fi) / size, -(er * fi + ei * fr) / size
    ar, ai, br, bi, cr, ci, wr, wi = t
    return (
        wr * dr - wi * di, wr * di + wi * dr, bi * di - br * dr, -br * di - bi * dr,
        ci * di - cr * dr, -cr * di - ci * dr, ar * dr - ai * di, ar * di + ai * dr,
    )  # fmt: skip


@njit(**OPTIONS)
def _adjoint(t):
    """Real and imaginary parts of the conjugate transpose of T."""
    ar, ai, br, bi, cr, ci, dr, di = t
    return ar, -ai, cr, -ci, br, -bi, dr, -di


@njit(**OPTIONS)
def _multiply(t, x, u, width, count):
    """Put two modes through a 2x2: four rows of x, ``width`` apart, the first beginning at u."""
    ar, ai, br, bi, cr, ci, dr, di = t
    v, p, q = u + width, u + width + width, u + width + width + width
    for j in range(count):
        a, b, c, d = x[u + j], x[v + j], x[p + j], x[q + j]
        x[u + j] = ar * a - ai * b + br * c - bi * d
        x[v + j] = ar * b + ai * a + br * d + bi * c
        x[p + j] = cr * a - ci * b + dr * c - di * d
        x[q + j] = cr * b + ci * a + dr * d + di * c


@njit(**OPTIONS)
def _dots(g, x, u, width, count):
    """``dL/dT`` = sum of g conj(x), with g behind an MZI, x before it, and rows as for `_multiply`."""
    zero = x.dtype.type(0)
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
    v, p, q = u + width, u + width + width, u + width + width + width
    for j in range(count):
        xr, xi, yr, yi = x[u + j], x[v + j], x[p + j], x[q + j]
        a, b, c, d = g[u + j], g[v + j], g[p + j], g[q + j]
        s0 += a * xr + b * xi
        s1 += b * xr - a * xi
        s2 += a * yr + b * yi
        s3 += b * yr - a * yi
        s4 += c * xr + d * xi
        s5 += d * xr - c * xi
        s6 += c * yr + d * yi
        s7 += d * yr - c * yi
    return s0, s1, s2, s3, s4, s5, s6, s7


@njit(**OPTIONS)
def transfer(table, cos_theta, sin_theta, cos_phi, sin_phi, couplings, cos_out, sin_out, slots, saved, states, out):
    """Matrices of B settings.

    Parameters
    ----------
    table
        ``MeshLayout.table`` (K, 3).
    cos_theta, sin_theta, cos_phi, sin_phi
        (B, K).
    couplings
        (B or 1, K, 6).
    cos_out, sin_out
        Of the output phases (B, n).
    slots, saved
        From `plan_saves`, and where the inputs go (B, slots, 2, 2, width).
    states
        Receives the fields before the output phases (B, n, 2, width); with one entry it is scratch.
    out
        Receives the matrices (B, n, 2n), real and imaginary parts interleaved.
    """
    ports = cos_out.shape[1]
    for b in range(len(out)):
        state = states[min(b, len(states) - 1)]
        cells = couplings[min(b, len(couplings) - 1)]
        flat, width = state.reshape(-1), state.shape[2]
        state[:] = 0
        for i in range(ports):
            state[i, 0, i] = 1
        for k in range(len(table)):
            m, lo, hi = table[k, 0], table[k, 1], table[k, 2]
            if slots[k] >= 0:
                saved[b, slots[k]] = state[m : m + 2]
            t = _cell(cos_theta[b, k], sin_theta[b, k], cos_phi[b, k], sin_phi[b, k], cells, k)
            _multiply(t, flat, np.uint64(2 * m * width + lo), np.uint64(width), np.uint64(hi - lo))
        for i in range(ports):
            c, s = cos_out[b, i], sin_out[b, i]
            for j in range(ports):
                x, y = state[i, 0, j], state[i, 1, j]
                out[b, i, 2 * j] = c * x - s * y
                out[b, i, 2 * j + 1] = c * y + s * x


@njit(**OPTIONS)
def transfer_vjp(
    table, cos_theta, sin_theta, cos_phi, sin_phi, couplings, cos_out, sin_out, slots, saved, states, grad,
    d_theta, d_phi, d_out, d_couplings,
):  # fmt: skip
    """Pull gradients of matrices (B, n, 2n) back to phases and couplings; ``states`` come from `transfer`.

    ``d_couplings`` (B, K, 6) may have no entries: then they are not asked for.
    """
    ports = cos_out.shape[1]
    state = np.empty_like(states[0])
    pull = np.zeros_like(state)
    flat, flat_pull, width = state.reshape(-1), pull.reshape(-1), np.uint64(state.shape[2])
    zero = state.dtype.type(0)
    for b in range(len(grad)):
        cells = couplings[min(b, len(couplings) - 1)]
        state[:] = states[b]
        for i in range(ports):
            c, s = cos_out[b, i], sin_out[b, i]
            total = zero
            for j in range(ports):
                x, y = grad[b, i, 2 * j], grad[b, i, 2 * j + 1]
                p, q = c * x + s * y, c * y - s * x
                pull[i, 0, j], pull[i, 1, j] = p, q
                total += q * state[i, 0, j] - p * state[i, 1, j]
            d_out[b, i] = total
        for k in range(len(table) - 1, -1, -1):
            m, lo, hi = table[k, 0], table[k, 1], table[k, 2]
            er, ei, fr, fi = cos_theta[b, k], sin_theta[b, k], cos_phi[b, k], sin_phi[b, k]
            t = _cell(er, ei, fr, fi, cells, k)
            first, count = np.uint64(2 * m * state.shape[2] + lo), np.uint64(hi - lo)
            if slots[k] >= 0:
                state[m : m + 2] = saved[b, slots[k]]
            else:
                _multiply(_inverse(t, er, ei, fr, fi, cells, k), flat, first, width, count)
            d = _dots(flat_pull, flat, first, width, count)
            _multiply(_adjoint(t), flat_pull, first, width, count)
            _cell_vjp(d, t, er, ei, fr, fi, cells, b, k, d_theta, d_phi, d_couplings)


@njit(**OPTIONS)
def _cell_vjp(d, t, er, ei, fr, fi, cells, b, k, d_theta, d_phi, d_couplings):
    """Pull ``dL/dT`` back to the phases and couplings of one MZI."""
    ci, si, gu, hu, gl, hl = cells[k, 0], cells[k, 1], cells[k, 2], cells[k, 3], cells[k, 4], cells[k, 5]
    d_phi[b, k] = d[1] * t[0] - d[0] * t[1] + d[5] * t[4] - d[4] * t[5]
    ar, ai = fr * d[0] + fi * d[1], fr * d[1] - fi * d[0]
    cr, cj = fr * d[4] + fi * d[5], fr * d[5] - fi * d[4]
    d_theta[b, k] = (
        gu * (ci * (ai * er - ar * ei) - si * (d[2] * er + d[3] * ei))
        - hu * (ci * (cr * er + cj * ei) + si * (d[7] * er - d[6] * ei))
    )  # fmt: skip
    if len(d_couplings):
        m0, m2 = ar * er + ai * ei, d[3] * er - d[2] * ei
        m4, m6 = cj * er - cr * ei, -(d[6] * er + d[7] * ei)
        d_couplings[b, k, 0] = m0 * gu + d[3] * hl + m4 * hu + d[6] * gl
        d_couplings[b, k, 1] = m2 * gu - ar * hl + m6 * hu + cj * gl
        d_couplings[b, k, 2] = m0 * ci + m2 * si
        d_couplings[b, k, 3] = m4 * ci + m6 * si
        d_couplings[b, k, 4] = cj * si + d[6] * ci
        d_couplings[b, k, 5] = d[3] * ci - ar * si
