"""Compiled kernels: light through a mesh, MZI by MZI, and gradients back through it.

An MZI is six real numbers, its couplings ``(ci, si, gu, hu, gl, hl)``: cosine and sine of the first coupler, and
cosine and sine of the second times the field transmission of the upper and of the lower arm,

    T = [[gu, i hl], [i hu, gl]] diag(E, 1) [[ci, i si], [i si, ci]] diag(F, 1),   E = exp(i theta), F = exp(i phi).

Backward passes keep no columns: they undo the MZIs one by one.  Where an MZI cannot be undone (a dead arm, much
loss) its two inputs were saved on the way.  Gradients follow torch: ``G = dL/dRe + i dL/dIm``.

Fields lie in rows ``[mode, real or imaginary, vector]``; nothing here checks its arguments.
"""

# The loops name each real number of a 2x2 product: numba vectorises them so, and only so.

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

OPTIONS: dict[str, Any] = {  # what numba's decorator takes
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}


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
def _cell(er, ei, fr, fi, c):
    """Real and imaginary parts of T, row by row."""
    ci, si, gu, hu, gl, hl = c[0], c[1], c[2], c[3], c[4], c[5]
    ar, ai = gu * ci * er - hl * si, gu * ci * ei
    cr, cj = -hu * ci * ei, hu * ci * er + gl * si
    return (
        ar * fr - ai * fi, ar * fi + ai * fr, -gu * si * ei, gu * si * er + hl * ci,
        cr * fr - cj * fi, cr * fi + cj * fr, gl * ci - hu * si * er, -hu * si * ei,
    )  # fmt: skip


@njit(**OPTIONS)
def _inverse(t, er, ei, fr, fi, c):
    """Real and imaginary parts of the inverse of T, whose determinant is (gu gl + hu hl) E F."""
    size = c[2] * c[4] + c[3] * c[5]
    dr, di = (er * fr - ei * fi) / size, -(er * fi + ei * fr) / size
    ar, ai, br, bi, cr, ci, wr, wi = t
    return (
        wr * dr - wi * di, wr * di + wi * dr, bi * di - br * dr, -br * di - bi * dr,
        ci * di - cr * dr, -cr * di - ci * dr, ar * dr - ai * di, ar * di + ai * dr,
    )  # fmt: skip


@njit(**OPTIONS)
def _multiply(t, ur, ui, lr, li):
    """Put two rows through a 2x2."""
    ar, ai, br, bi, cr, ci, dr, di = t
    for j in range(len(ur)):
        a, b, c, d = ur[j], ui[j], lr[j], li[j]
        ur[j] = ar * a - ai * b + br * c - bi * d
        ui[j] = ar * b + ai * a + br * d + bi * c
        lr[j] = cr * a - ci * b + dr * c - di * d
        li[j] = cr * b + ci * a + dr * d + di * c


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
        state[:] = 0
        for i in range(ports):
            state[i, 0, i] = 1
        for k in range(len(table)):
            m, lo, hi = table[k, 0], table[k, 1], table[k, 2]
            if slots[k] >= 0:
                saved[b, slots[k]] = state[m : m + 2]
            t = _cell(cos_theta[b, k], sin_theta[b, k], cos_phi[b, k], sin_phi[b, k], cells[k])
            _multiply(t, state[m, 0, lo:hi], state[m, 1, lo:hi], state[m + 1, 0, lo:hi], state[m + 1, 1, lo:hi])
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
    zero, one = state.dtype.type(0), state.dtype.type(1)
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
            t = _cell(er, ei, fr, fi, cells[k])
            if slots[k] >= 0:
                state[m : m + 2] = saved[b, slots[k]]
                undo = (one, zero, zero, zero, zero, zero, one, zero)
            else:
                undo = _inverse(t, er, ei, fr, fi, cells[k])
            d = _undo_and_pull(
                t, undo, state[m, 0, lo:hi], state[m, 1, lo:hi], state[m + 1, 0, lo:hi], state[m + 1, 1, lo:hi],
                pull[m, 0, lo:hi], pull[m, 1, lo:hi], pull[m + 1, 0, lo:hi], pull[m + 1, 1, lo:hi],
            )  # fmt: skip
            _cell_vjp(d, t, er, ei, fr, fi, cells[k], b, k, d_theta, d_phi, d_couplings)


@njit(**OPTIONS)
def _undo_and_pull(t, undo, ur, ui, lr, li, gr, gi, hr, hi):
    """Undo a 2x2 on fields, pull gradients through it, and return ``dL/dT`` = sum of g conj(field before)."""
    ar, ai, br, bi, cr, ci, dr, di = t
    xr, xi, yr, yi, zr, zi, wr, wi = undo
    zero = ur.dtype.type(0)
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
    for j in range(len(ur)):
        a, b, c, d = ur[j], ui[j], lr[j], li[j]
        p = xr * a - xi * b + yr * c - yi * d
        q = xr * b + xi * a + yr * d + yi * c
        r = zr * a - zi * b + wr * c - wi * d
        s = zr * b + zi * a + wr * d + wi * c
        ur[j], ui[j], lr[j], li[j] = p, q, r, s
        a, b, c, d = gr[j], gi[j], hr[j], hi[j]
        s0 += a * p + b * q
        s1 += b * p - a * q
        s2 += a * r + b * s
        s3 += b * r - a * s
        s4 += c * p + d * q
        s5 += d * p - c * q
        s6 += c * r + d * s
        s7 += d * r - c * s
        gr[j] = ar * a + ai * b + cr * c + ci * d
        gi[j] = ar * b - ai * a + cr * d - ci * c
        hr[j] = br * a + bi * b + dr * c + di * d
        hi[j] = br * b - bi * a + dr * d - di * c
    return s0, s1, s2, s3, s4, s5, s6, s7


@njit(**OPTIONS)
def _cell_vjp(d, t, er, ei, fr, fi, c, b, k, d_theta, d_phi, d_couplings):
    """Pull ``dL/dT`` back to the phases and couplings of one MZI."""
    ci, si, gu, hu, gl, hl = c[0], c[1], c[2], c[3], c[4], c[5]
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


def _at(value, j):
    """Only compiled: a number for all settings, or a row with one for each setting."""
    raise NotImplementedError


@overload(_at)
def _at_compiled(value, j):
    if isinstance(value, types.Array):
        return lambda value, j: value[j]
    return lambda value, j: value


@njit(**OPTIONS)
def settings(modes, cos_theta, sin_theta, cos_phi, sin_phi, couplings, slots, saved, state):
    """Carry w vectors through B settings of a mesh, in place.

    Parameters
    ----------
    modes
        Upper mode (K,) of each MZI.
    cos_theta, sin_theta, cos_phi, sin_phi
        (K, B).
    couplings
        (K, 6), or (K, 6, B) for settings with couplings of their own.
    slots, saved
        From `plan_saves`, and where the inputs go (w, slots, 2, 2, B).
    state
        Fields (w, n, 2, B).
    """
    for v in range(len(state)):
        for k in range(len(modes)):
            m, c = modes[k], couplings[k]
            if slots[k] >= 0:
                saved[v, slots[k]] = state[v, m : m + 2]
            _light(
                cos_theta[k], sin_theta[k], cos_phi[k], sin_phi[k], c[0], c[1], c[2], c[3], c[4], c[5],
                state[v, m, 0], state[v, m, 1], state[v, m + 1, 0], state[v, m + 1, 1],
            )  # fmt: skip


@njit(**OPTIONS)
def _light(er, ei, fr, fi, ci, si, gu, hu, gl, hl, ur, ui, lr, li):
    """Phase, coupler, phase, coupler on the two rows of an MZI."""
    for j in range(len(ur)):
        p, q = fr[j] * ur[j] - fi[j] * ui[j], fr[j] * ui[j] + fi[j] * ur[j]
        r, s = lr[j], li[j]
        a, b = _at(ci, j) * p - _at(si, j) * s, _at(ci, j) * q + _at(si, j) * r
        c, d = _at(ci, j) * r - _at(si, j) * q, _at(ci, j) * s + _at(si, j) * p
        x, y = er[j] * a - ei[j] * b, er[j] * b + ei[j] * a
        ur[j], ui[j] = _at(gu, j) * x - _at(hl, j) * d, _at(gu, j) * y + _at(hl, j) * c
        lr[j], li[j] = _at(gl, j) * c - _at(hu, j) * y, _at(gl, j) * d + _at(hu, j) * x


@njit(**OPTIONS)
def settings_vjp(
    modes, cos_theta, sin_theta, cos_phi, sin_phi, couplings, slots, saved, state, pull, d_theta, d_phi, d_couplings
):
    """Undo `settings` on ``state`` and pull gradients (w, n, 2, B) back, both in place.

    ``d_theta`` and ``d_phi`` (K, B) are added to; so is ``d_couplings`` (K, 6, B), or None where it is not asked for.
    """
    for v in range(len(state)):
        for k in range(len(modes) - 1, -1, -1):
            m, c = modes[k], couplings[k]
            ur, ui, lr, li = state[v, m, 0], state[v, m, 1], state[v, m + 1, 0], state[v, m + 1, 1]
            er, ei, fr, fi = cos_theta[k], sin_theta[k], cos_phi[k], sin_phi[k]
            kept = slots[k] >= 0
            if kept:
                state[v, m : m + 2] = saved[v, slots[k]]
                _between(er, ei, fr, fi, c[0], c[1], ur, ui, lr, li)
            _light_vjp(
                kept, er, ei, fr, fi, c[0], c[1], c[2], c[3], c[4], c[5], ur, ui, lr, li,
                pull[v, m, 0], pull[v, m, 1], pull[v, m + 1, 0], pull[v, m + 1, 1], d_theta[k], d_phi[k],
                _row(d_couplings, k),
            )  # fmt: skip


def _row(values, k):
    """Only compiled: row k, or None of None."""
    raise NotImplementedError


@overload(_row)
def _row_compiled(values, k):
    if isinstance(values, types.Array):
        return lambda values, k: values[k]
    return lambda values, k: None


def _add(sums, j, s0, s1, s2, s3, s4, s5):
    """Only compiled: add to six rows, or do nothing with None."""
    raise NotImplementedError


@overload(_add)
def _add_compiled(sums, j, s0, s1, s2, s3, s4, s5):
    def add(sums, j, s0, s1, s2, s3, s4, s5):
        sums[0, j] += s0
        sums[1, j] += s1
        sums[2, j] += s2
        sums[3, j] += s3
        sums[4, j] += s4
        sums[5, j] += s5

    if isinstance(sums, types.Array):
        return add
    return lambda sums, j, s0, s1, s2, s3, s4, s5: None


@njit(**OPTIONS)
def _between(er, ei, fr, fi, ci, si, ur, ui, lr, li):
    """Carry the inputs of an MZI to the middle: behind theta, before the second coupler."""
    for j in range(len(ur)):
        p, q = fr[j] * ur[j] - fi[j] * ui[j], fr[j] * ui[j] + fi[j] * ur[j]
        r, s = lr[j], li[j]
        a, b = _at(ci, j) * p - _at(si, j) * s, _at(ci, j) * q + _at(si, j) * r
        lr[j], li[j] = _at(ci, j) * r - _at(si, j) * q, _at(ci, j) * s + _at(si, j) * p
        ur[j], ui[j] = er[j] * a - ei[j] * b, er[j] * b + ei[j] * a


@njit(**OPTIONS)
def _light_vjp(middle, er, ei, fr, fi, ci, si, gu, hu, gl, hl, ur, ui, lr, li, gr, gi, hr, hi, d_theta, d_phi, d_cell):
    """Undo an MZI from its outputs, or from its middle, and pull gradients through it."""
    one, zero = ur.dtype.type(1), ur.dtype.type(0)
    for j in range(len(ur)):
        # The second coupler with its arms, undone; x and y are the upper arm behind theta, c and d the lower one.
        size = one if middle else one / (_at(gu, j) * _at(gl, j) + _at(hu, j) * _at(hl, j))
        g0, h0 = (one, zero) if middle else (_at(gl, j) * size, _at(hl, j) * size)
        g1, h1 = (one, zero) if middle else (_at(gu, j) * size, _at(hu, j) * size)
        x, y = g0 * ur[j] + h0 * li[j], g0 * ui[j] - h0 * lr[j]
        c, d = g1 * lr[j] + h1 * ui[j], g1 * li[j] - h1 * ur[j]
        a, b = er[j] * x + ei[j] * y, er[j] * y - ei[j] * x
        p, q = _at(ci, j) * a + _at(si, j) * d, _at(ci, j) * b - _at(si, j) * c
        r, s = _at(ci, j) * c + _at(si, j) * b, _at(ci, j) * d - _at(si, j) * a
        lr[j], li[j] = r, s
        ur[j], ui[j] = fr[j] * p + fi[j] * q, fr[j] * q - fi[j] * p
        xx, yy = _at(gu, j) * gr[j] + _at(hu, j) * hi[j], _at(gu, j) * gi[j] - _at(hu, j) * hr[j]
        cc, dd = _at(gl, j) * hr[j] + _at(hl, j) * gi[j], _at(gl, j) * hi[j] - _at(hl, j) * gr[j]
        d_theta[j] += yy * x - xx * y
        aa, bb = er[j] * xx + ei[j] * yy, er[j] * yy - ei[j] * xx
        _add(
            d_cell, j, aa * p + bb * q + cc * r + dd * s, bb * r - aa * s + dd * p - cc * q,
            gr[j] * x + gi[j] * y, hi[j] * x - hr[j] * y, hr[j] * c + hi[j] * d, gi[j] * c - gr[j] * d,
        )  # fmt: skip
        pp, qq = _at(ci, j) * aa + _at(si, j) * dd, _at(ci, j) * bb - _at(si, j) * cc
        hr[j], hi[j] = _at(ci, j) * cc + _at(si, j) * bb, _at(ci, j) * dd - _at(si, j) * aa
        d_phi[j] += qq * p - pp * q
        gr[j], gi[j] = fr[j] * pp + fi[j] * qq, fr[j] * qq - fi[j] * pp
