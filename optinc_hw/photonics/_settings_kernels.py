"""Compiled kernels: a few vectors through each of many settings of a mesh, and gradients back through them.

Couplings, saved inputs and gradients are as in ``_kernels``. Fields lie in rows ``[vector, mode, real or imaginary,
setting]``: the settings are innermost. Nothing here checks its arguments.
"""

import numpy as np
from numba import njit, types
from numba.extending import overload

from optinc_hw.photonics._kernels import OPTIONS


def _at(value, j):
    """Entry of setting j: of a row with one for each setting, or a number for all."""
    return value[j] if np.ndim(value) else value


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
    """Row k, or None of None."""
    return None if values is None else values[k]


@overload(_row)
def _row_compiled(values, k):
    return _row


def _add(sums, j, s0, s1, s2, s3, s4, s5):
    """Add to column j of six rows, or do nothing with None."""
    if sums is not None:
        sums[0, j] += s0
        sums[1, j] += s1
        sums[2, j] += s2
        sums[3, j] += s3
        sums[4, j] += s4
        sums[5, j] += s5


@overload(_add)
def _add_compiled(sums, j, s0, s1, s2, s3, s4, s5):
    return _add


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
