"""Compiled kernel: unitaries into the phases of a mesh, by rotations that null one element after the other.

A rotation is ``V(s, c, p) = [[conj(p) s, c], [conj(p) c, -s]]`` with s = sin(theta/2), c = cos(theta/2) and
p = exp(-i phi): an ideal MZI without its common factor, ``T = i exp(i theta/2) V``, and real for real matrices.  The
trigonometry and the common factors wait until all elements are nulled, which leaves O(n^2) of both.

The matrix lies in rows ``[row, real or imaginary, column]``; nothing here checks its arguments.
"""

import math
from typing import Any

import numpy as np
from numba import njit

_OPTIONS: dict[str, Any] = {  # what numba's decorator takes
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}

_PI = math.pi
_TWO_PI = 2.0 * math.pi
_ZERO = 1e-280  # squares below it have lost digits: such an element is zero, to 1e-140
_EXACT = 3e-16  # an MZI so near the bar or the cross state is in it: theta would be rounded to that anyway
_TAN_PI_8 = math.tan(math.pi / 8.0)


@njit(**_OPTIONS)
def phases_of(matrices, steps, transposed, modes, theta, phi, output):
    """Decompose B unitaries.

    Parameters
    ----------
    matrices
        (B, n, n) complex128.
    steps
        (K, 4) int64, in the order of nulling: whether the rotation acts from the left, its upper mode, the line (from
        the left the column, from the right the row) in which it nulls an element, and the MZI that it becomes.
    transposed
        Whether to work on transposed matrices, where rotations from the right turn rows, which is faster.
    modes
        Upper mode (K,) of each MZI in the order of the light.
    theta, phi, output
        (B, K), (B, K) and (B, n), filled in rad: theta in [0, pi], the others in [0, 2 pi).
    """
    n = matrices.shape[1]
    mzis = len(modes)
    # An odd number of cache lines a row: columns would otherwise fall on few places of the cache.
    quarter = (n + 3) // 4
    work = np.zeros((n, 2, 4 * (quarter + 1 - quarter % 2)))
    turns = np.empty((4, mzis))
    diagonal, carried = np.empty((2, n)), np.empty((2, n))
    for b in range(len(matrices)):
        _load(matrices[b], transposed, work)
        _null(work, steps, transposed, turns)
        for m in range(n):
            size = math.sqrt(work[m, 0, m] ** 2 + work[m, 1, m] ** 2)
            diagonal[0, m], diagonal[1, m] = work[m, 0, m] / size, work[m, 1, m] / size
        _push_left_factors(steps, turns, diagonal)
        _carry(modes, turns, diagonal, carried)
        _angles(turns[0], turns[1], theta[b])
        for k in range(mzis):
            theta[b, k] *= 2.0
        _angles(-turns[3], turns[2], phi[b])
        _angles(diagonal[1], diagonal[0], output[b])


@njit(**_OPTIONS)
def _load(matrix, transposed, work):
    n = len(matrix)
    for i in range(n):
        for j in range(n):
            value = matrix[j, i] if transposed else matrix[i, j]
            work[i, 0, j], work[i, 1, j] = value.real, value.imag


@njit(**_OPTIONS)
def _null(work, steps, transposed, turns):
    """Make the matrix diagonal, leaving alone what is nulled already; ``turns`` gets s, c, Re p and Im p."""
    n = len(work)
    for i in range(len(steps)):
        left, m, line, k = steps[i, 0] == 1, steps[i, 1], steps[i, 2], steps[i, 3]
        if left:
            s, c, pr, pi = _rotation(work[m + 1, 0, line], work[m + 1, 1, line], work[m, 0, line], work[m, 1, line])
            _turn_rows(work[m, 0, line:n], work[m, 1, line:n], work[m + 1, 0, line:n], work[m + 1, 1, line:n],
                       s, c, pr, -pi)  # fmt: skip
        elif transposed:
            s, c, pr, pi = _rotation(work[m, 0, line], work[m, 1, line], work[m + 1, 0, line], work[m + 1, 1, line])
            pr, pi = -pr, -pi
            end = line + 1
            _turn_rows(work[m, 0, :end], work[m, 1, :end], work[m + 1, 0, :end], work[m + 1, 1, :end], s, c, pr, pi)
        else:
            s, c, pr, pi = _rotation(work[line, 0, m], work[line, 1, m], work[line, 0, m + 1], work[line, 1, m + 1])
            pr, pi = -pr, -pi
            _turn_columns(work[: line + 1, :, m : m + 2], s, c, pr, pi)
        turns[0, k], turns[1, k], turns[2, k], turns[3, k] = s, c, pr, pi


@njit(**_OPTIONS)
def _rotation(ur, ui, vr, vi):
    """``|v|/h, |u|/h`` and ``conj(u) v / |u||v|``, h = hypot(|u|, |v|): what nulls u; (1, 0) if u is zero."""
    uu, vv = ur * ur + ui * ui, vr * vr + vi * vi
    if uu < _ZERO:
        return 1.0, 0.0, 1.0, 0.0
    if vv < _ZERO:
        return 0.0, 1.0, 1.0, 0.0
    u, v = math.sqrt(uu), math.sqrt(vv)
    scale, unit = 1.0 / math.sqrt(uu + vv), 1.0 / (u * v)
    return v * scale, u * scale, (ur * vr + ui * vi) * unit, (ur * vi - ui * vr) * unit


@njit(**_OPTIONS)
def _turn_rows(ur, ui, lr, li, s, c, pr, pi):
    for j in range(len(ur)):
        x, y, z, w = ur[j], ui[j], lr[j], li[j]
        tr, ti = pr * x - pi * y, pr * y + pi * x
        ur[j] = s * tr + c * z
        ui[j] = s * ti + c * w
        lr[j] = c * tr - s * z
        li[j] = c * ti - s * w


@njit(**_OPTIONS)
def _turn_columns(pair, s, c, pr, pi):
    for j in range(len(pair)):
        x, z, y, w = pair[j, 0, 0], pair[j, 0, 1], pair[j, 1, 0], pair[j, 1, 1]
        tr, ti = pr * x - pi * y, pr * y + pi * x
        pair[j, 0, 0], pair[j, 0, 1] = s * tr + c * z, c * tr - s * z
        pair[j, 1, 0], pair[j, 1, 1] = s * ti + c * w, c * ti - s * w


@njit(**_OPTIONS)
def _push_left_factors(steps, turns, diagonal):
    """Rewrite ``V(s, c, p)^dagger D = D' V(s, c, p')``, last rotation from the left first."""
    for i in range(len(steps) - 1, -1, -1):
        if steps[i, 0] != 1:
            continue
        m, k = steps[i, 1], steps[i, 3]
        pr, pi = turns[2, k], turns[3, k]
        ur, ui, lr, li = diagonal[0, m], diagonal[1, m], diagonal[0, m + 1], diagonal[1, m + 1]
        turns[2, k], turns[3, k] = ur * lr + ui * li, ur * li - ui * lr
        diagonal[0, m], diagonal[1, m] = pr * lr - pi * li, pr * li + pi * lr


@njit(**_OPTIONS)
def _carry(modes, turns, diagonal, carried):
    """Turn rotations into MZIs, ``V = T / (i exp(i theta/2))``: the factors go along with the light to the outputs.

    An MZI in the bar or the cross state gets phi = pi, whatever else it was passes as well.  Factors are kept as
    numbers on the unit circle: sums of angles would lose digits at every multiple of 2 pi.
    """
    carried[0], carried[1] = 1.0, 0.0
    for k in range(len(modes)):
        m = modes[k]
        s, c, pr, pi = turns[0, k], turns[1, k], turns[2, k], turns[3, k]
        ur, ui, lr, li = carried[0, m], carried[1, m], carried[0, m + 1], carried[1, m + 1]
        if c < _EXACT:  # V = diag(conj(p), -1), T(pi, pi) = 1
            s, c = 1.0, 0.0
            ur, ui = _times(ur, ui, pr, -pi)
            lr, li = -lr, -li
            pr, pi = -1.0, 0.0
        elif s < _EXACT:  # V = [[0, 1], [conj(p), 0]], T(0, pi) = [[0, i], [-i, 0]]
            s, c = 0.0, 1.0
            qr, qi = _times(ur, ui, pr, -pi)
            ur, ui, lr, li = li, -lr, -qi, qr
            pr, pi = -1.0, 0.0
        else:
            pr, pi = _times(pr, pi, lr * ur + li * ui, li * ur - lr * ui)
            lr, li = _times(lr, li, -s, -c)
            ur, ui = lr, li
        turns[0, k], turns[1, k], turns[2, k], turns[3, k] = s, c, pr, pi
        carried[0, m], carried[1, m], carried[0, m + 1], carried[1, m + 1] = ur, ui, lr, li
    for m in range(carried.shape[1]):
        diagonal[0, m], diagonal[1, m] = _times(diagonal[0, m], diagonal[1, m], carried[0, m], carried[1, m])


@njit(**_OPTIONS)
def _times(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


@njit(**_OPTIONS)
def _angles(y, x, out):
    """``atan2(y, x)`` in [0, 2 pi) to about 4e-16; unlike the C library's it runs over whole vectors.

    Beyond tan(pi/8) the tangent is taken relative to pi/4; the polynomial interpolates atan at Chebyshev's nodes.
    """
    for k in range(len(out)):
        across, along = abs(x[k]), abs(y[k])
        low, high = min(across, along), max(across, along)
        far = low > _TAN_PI_8 * high
        t = (low - high if far else low) / (low + high if far else high)
        z = t * t
        p = 0.039231646190551486 - 0.019176872294336067 * z
        p = 0.05858148832731273 + z * (-0.05085449318930035 + z * p)
        p = 0.07692183190171728 + z * (-0.06664511438164644 + z * p)
        p = 0.11111111015255669 + z * (-0.09090904578095735 + z * p)
        p = 0.1999999999999552 + z * (-0.14285714284666534 + z * p)
        angle = t + t * z * (-0.3333333333333333 + z * p)
        angle = 0.25 * _PI + angle if far else angle
        angle = 0.5 * _PI - angle if along > across else angle
        angle = _PI - angle if x[k] < 0.0 else angle
        angle = _TWO_PI - angle if y[k] < 0.0 else angle
        out[k] = angle if angle < _TWO_PI else 0.0
