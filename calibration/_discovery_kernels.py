"""Compiled kernels of discovery: light of one lit port split at each phase, and descent of one phase after the other.

All powers are ``A + Re(Z exp(i d))`` of a change ``d`` of a single phase, so a sum of squared residuals is a
trigonometric polynomial of degree 2 in it and its lowest point on the whole circle is found at once.

Couplers of MZI k are the row ``(cos eta_in, sin eta_in, cos eta_out, sin eta_out)``; ``factors`` (2 K, B) are
exp(i phase) of theta and phi alternating, as in the layout of a bare mesh. Nothing here checks its arguments.
"""

from typing import Any

import numpy as np
from numba import njit

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": True}
ANGLES = 180
_DARK = 1e-9


@njit(**OPTIONS)
def _pass(fields, first, modes, couplers, factors, b):
    """Lead fields (n,) through the MZIs from ``first`` on."""
    for k in range(first, len(modes)):
        m = modes[k]
        upper, lower = fields[m] * factors[2 * k + 1, b], fields[m + 1]
        ci, si, co, so = couplers[k, 0], couplers[k, 1], couplers[k, 2], couplers[k, 3]
        top = (ci * upper + 1j * si * lower) * factors[2 * k, b]
        low = 1j * si * upper + ci * lower
        fields[m], fields[m + 1] = co * top + 1j * so * low, 1j * so * top + co * low


@njit(**OPTIONS)
def _split(before, k, inner, modes, couplers, factors, b, still, moved):
    """Fields at the outputs of what does not pass the phase (``inner``: theta, else phi) of MZI k, and of what does."""
    m = modes[k]
    still[:], moved[:] = before, 0.0
    if inner:
        upper, lower = before[m] * factors[2 * k + 1, b], before[m + 1]
        ci, si, co, so = couplers[k, 0], couplers[k, 1], couplers[k, 2], couplers[k, 3]
        top = (ci * upper + 1j * si * lower) * factors[2 * k, b]
        low = 1j * si * upper + ci * lower
        still[m], still[m + 1] = 1j * so * low, co * low
        moved[m], moved[m + 1] = co * top, 1j * so * top
        first = k + 1
    else:
        moved[m], still[m] = before[m], 0.0
        first = k
    _pass(still, first, modes, couplers, factors, b)
    _pass(moved, first, modes, couplers, factors, b)


@njit(**OPTIONS)
def outputs(modes, couplers, factors, lit, ports):
    """Powers (B, n) at the outputs for unit light."""
    result = np.empty((len(lit), ports))
    fields = np.empty(ports, dtype=np.complex128)
    for b in range(len(lit)):
        fields[:] = 0.0
        fields[lit[b]] = 1.0
        _pass(fields, 0, modes, couplers, factors, b)
        for j in range(ports):
            result[b, j] = fields[j].real ** 2 + fields[j].imag ** 2
    return result


@njit(**OPTIONS)
def interferences(modes, couplers, factors, lit, ports):
    """``Z`` (2 K, B, n) of every phase: powers change by ``Re(Z (exp(i d) - 1))``."""
    result = np.zeros((2 * len(modes), len(lit), ports), dtype=np.complex128)
    before = np.empty(ports, dtype=np.complex128)
    still, moved = np.empty_like(before), np.empty_like(before)
    for b in range(len(lit)):
        before[:] = 0.0
        before[lit[b]] = 1.0
        for k in range(len(modes)):
            for inner in range(2):
                _split(before, k, inner == 0, modes, couplers, factors, b, still, moved)
                for j in range(ports):
                    result[2 * k + inner, b, j] = 2.0 * np.conj(still[j]) * moved[j]
            _pass(before, k, modes[: k + 1], couplers, factors, b)
    return result


@njit(**OPTIONS)
def descend(modes, couplers, factors, lit, readings, scale, free, prior, precision):
    """Set one free phase after the other, along the light, to where the sum of squares is lowest.

    Parameters
    ----------
    modes, couplers, factors, lit
        The mesh and its settings; ``factors`` is changed.
    readings, scale
        Readings (B, n), and what one unit of power at the outputs reads; both 0 where invalid.
    free
        Phases (2 K,) to set.
    prior
        How far (2 K,) each phase is above its prior mean, rad; changed.
    precision
        Precision (2 K,) of the priors in units of the sum of squares.

    Returns
    -------
    tuple
        Changes (2 K,) in rad, and the sum of squares with the last prior's share.
    """
    ports = readings.shape[1]
    fields = np.zeros((len(lit), ports), dtype=np.complex128)
    for b in range(len(lit)):
        fields[b, lit[b]] = 1.0
    still, moved = np.empty(ports, dtype=np.complex128), np.empty(ports, dtype=np.complex128)
    change, lowest = np.zeros(2 * len(modes)), 0.0
    for k in range(len(modes)):
        m = modes[k]
        for inner in (1, 0):
            phase = 2 * k + inner
            if not free[phase]:
                continue
            constant, once, twice = 0.0, 0.0 + 0.0j, 0.0 + 0.0j
            for b in range(len(lit)):
                bright = abs(fields[b, m]) > _DARK or abs(fields[b, m + 1]) > _DARK
                if not bright:
                    continue
                _split(fields[b], k, inner == 0, modes, couplers, factors, b, still, moved)
                for j in range(ports):
                    both = still[j].real ** 2 + still[j].imag ** 2 + moved[j].real ** 2 + moved[j].imag ** 2
                    miss = both * scale[b, j] - readings[b, j]
                    beat = 2.0 * scale[b, j] * np.conj(still[j]) * moved[j]
                    constant += miss * miss + 0.5 * (beat.real**2 + beat.imag**2)
                    once += 2.0 * miss * beat
                    twice += 0.5 * beat * beat
            best, found = np.inf, 0.0
            for step in range(ANGLES):
                angle = 2.0 * np.pi * step / ANGLES
                turn = np.exp(1j * angle)
                off = np.angle(np.exp(1j * (prior[phase] + angle)))
                cost = constant + (once * turn).real + (twice * turn * turn).real + precision[phase] * off * off
                if cost < best:
                    best, found = cost, angle
            if abs(once) + abs(twice) == 0.0 and precision[phase] == 0.0:
                continue
            lowest = best
            change[phase] = found
            prior[phase] += found
            factors[phase] *= np.exp(1j * found)
        for b in range(len(lit)):
            _pass(fields[b], k, modes[: k + 1], couplers, factors, b)
    return change, lowest
