"""Compiled kernels: light of one lit port through a mesh, and derivatives of its outputs forwards and backwards.

Each reading has one lit port, so one field runs through the mesh and what it meets is kept: phase factors ``E`` =
exp(i theta) and ``F`` = exp(i phi) with the arms' extra loss in them, and the two fields before each MZI. Changes then
pass forwards (`push`) or backwards (`pull`) at the cost of one propagation, whatever the number of parameters; MZIs
that the light does not reach are skipped.

Couplers of MZI k are the row ``(cos eta_in, sin eta_in, cos eta_out, sin eta_out)``, ``loss`` its field transmission.
Derivatives use ``dC/d eta = i [[0, 1], [1, 0]] C``. Nothing here checks its arguments.

Readings are handled in groups of ``LANES``, real and imaginary parts apart: arrays of phases are ``(H, G LANES)``,
fields ``(G, n, 2, LANES)``, and a record of an MZI and a group has ``RECORD`` rows of lanes: E, F, upper and lower
field.

All arrays of real numbers that one kernel takes are of one type, float64 or float32.
"""

# Flat pieces and offsets that are constants: so LLVM proves that rows of lanes do not overlap, and vectorises.

from typing import Any

import numpy as np
from numba import njit

OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
LANES = 16
RECORD = 8
SLOTS = 7
"""Derivatives of an MZI: theta, phi, both arms' loss exponents, eta_in, eta_out, log transmission."""
_W = LANES


@njit(**OPTIONS)
def propagate(modes, couplers, loss, lit, record, reach, out):
    """Light a port in each reading.

    Parameters
    ----------
    modes
        Upper mode (K,) of each MZI, in the order of the light.
    couplers, loss
        (K, 4) and (K,).
    lit
        Lit port (G, LANES) of each reading, -1 for none.
    record
        (G, K, RECORD LANES): E and F on entry, the fields too on return.
    reach
        Receives whether light reaches an MZI in a group (G, K).
    out
        Receives the output fields (G, n, 2 LANES).
    """
    ports = out.shape[1]
    bright = np.zeros(ports, dtype=np.bool_)
    for g in range(len(lit)):
        fields = out[g].reshape(-1)
        fields[:] = 0.0
        bright[:] = False
        for w in range(_W):
            if lit[g, w] >= 0:
                fields[2 * lit[g, w] * _W + w] = 1.0
                bright[lit[g, w]] = True
        for k in range(len(modes)):
            m = modes[k]
            reach[g, k] = bright[m] or bright[m + 1]
            if reach[g, k]:
                bright[m : m + 2] = True
                _forward(record[g, k], fields[2 * m * _W : (2 * m + 4) * _W], couplers[k], loss[k])


@njit(**OPTIONS)
def _forward(r, s, c, t):
    ci, si, co, so = c[0], c[1], t * c[2], t * c[3]
    for w in range(_W):
        ur, ui, lr, li = s[w], s[_W + w], s[2 * _W + w], s[3 * _W + w]
        r[4 * _W + w], r[5 * _W + w], r[6 * _W + w], r[7 * _W + w] = ur, ui, lr, li
        er, ei, fr, fi = r[w], r[_W + w], r[2 * _W + w], r[3 * _W + w]
        pr, pi = fr * ur - fi * ui, fr * ui + fi * ur
        ar, ai = ci * pr - si * li, ci * pi + si * lr
        qr, qi = ci * lr - si * pi, ci * li + si * pr
        rr, ri = er * ar - ei * ai, er * ai + ei * ar
        s[w], s[_W + w] = co * rr - so * qi, co * ri + so * qr
        s[2 * _W + w], s[3 * _W + w] = co * qr - so * ri, co * qi + so * rr


@njit(**OPTIONS)
def push(modes, theta, phi, couplers, loss, record, reach, d_phase, d_arm, d_eta, d_loss, out):
    """Carry changes of the elements to the output fields.

    ``d_phase`` (H, G LANES) belongs to readings, rows ``theta`` and ``phi`` (K,); ``d_arm`` (K, 2) are loss exponents,
    ``d_eta`` (K, 2) and ``d_loss`` (K,) angles and logarithms of transmissions. ``out`` receives the changes
    (G, n, 2 LANES).
    """
    element = np.empty(5, dtype=out.dtype)
    for g in range(len(out)):
        fields = out[g].reshape(-1)
        fields[:] = 0.0
        for k in range(len(modes)):
            if reach[g, k]:
                m = modes[k]
                element[0], element[1], element[2] = d_arm[k, 0], d_arm[k, 1], d_eta[k, 0]
                element[3], element[4] = d_eta[k, 1], d_loss[k]
                inner = d_phase[theta[k], g * _W : (g + 1) * _W]
                outer = d_phase[phi[k], g * _W : (g + 1) * _W]
                s = fields[2 * m * _W : (2 * m + 4) * _W]
                _push_cell(record[g, k], s, inner, outer, element, couplers[k], loss[k])


@njit(**OPTIONS)
def _push_cell(r, s, d_theta, d_phi, element, c, t):
    ci, si, co, so = c[0], c[1], t * c[2], t * c[3]
    arm_in, arm_out, eta_in, eta_out, log_t = element[0], element[1], element[2], element[3], element[4]
    for w in range(_W):
        ur, ui, lr, li = r[4 * _W + w], r[5 * _W + w], r[6 * _W + w], r[7 * _W + w]
        er, ei, fr, fi = r[w], r[_W + w], r[2 * _W + w], r[3 * _W + w]
        pr, pi = fr * ur - fi * ui, fr * ui + fi * ur
        ar, ai = ci * pr - si * li, ci * pi + si * lr
        qr, qi = ci * lr - si * pi, ci * li + si * pr
        rr, ri = er * ar - ei * ai, er * ai + ei * ar
        xr, xi, yr, yi = co * rr - so * qi, co * ri + so * qr, co * qr - so * ri, co * qi + so * rr
        dr, di, vr, vi = s[w], s[_W + w], s[2 * _W + w], s[3 * _W + w]
        turn = d_phi[w]
        gr = fr * dr - fi * di - arm_out * pr - turn * pi
        gi = fr * di + fi * dr - arm_out * pi + turn * pr
        br, bi = ci * gr - si * vi - eta_in * qi, ci * gi + si * vr + eta_in * qr
        hr, hi = ci * vr - si * gi - eta_in * ai, ci * vi + si * gr + eta_in * ar
        turn = d_theta[w]
        zr = er * br - ei * bi - arm_in * rr - turn * ri
        zi = er * bi + ei * br - arm_in * ri + turn * rr
        s[w] = co * zr - so * hi - eta_out * yi + log_t * xr
        s[_W + w] = co * zi + so * hr + eta_out * yr + log_t * xi
        s[2 * _W + w] = co * hr - so * zi - eta_out * xi + log_t * yr
        s[3 * _W + w] = co * hi + so * zr + eta_out * xr + log_t * yi


@njit(**OPTIONS)
def _back(r, s, slots, c, t):
    """Carry covectors ``s`` back through an MZI and leave the derivatives of their real parts in ``slots``."""
    ci, si, co, so = c[0], c[1], t * c[2], t * c[3]
    for w in range(_W):
        ur, ui, lr, li = r[4 * _W + w], r[5 * _W + w], r[6 * _W + w], r[7 * _W + w]
        er, ei, fr, fi = r[w], r[_W + w], r[2 * _W + w], r[3 * _W + w]
        pr, pi = fr * ur - fi * ui, fr * ui + fi * ur
        ar, ai = ci * pr - si * li, ci * pi + si * lr
        qr, qi = ci * lr - si * pi, ci * li + si * pr
        rr, ri = er * ar - ei * ai, er * ai + ei * ar
        xr, xi, yr, yi = co * rr - so * qi, co * ri + so * qr, co * qr - so * ri, co * qi + so * rr
        cr, cj, kr, kj = s[w], s[_W + w], s[2 * _W + w], s[3 * _W + w]
        slots[5 * _W + w] = -(cr * yi + cj * yr + kr * xi + kj * xr)
        slots[6 * _W + w] = cr * xr - cj * xi + kr * yr - kj * yi
        zr, zi = co * cr - so * kj, co * cj + so * kr
        hr, hi = co * kr - so * cj, co * kj + so * cr
        slots[w] = -(zr * ri + zi * rr)
        slots[2 * _W + w] = -(zr * rr - zi * ri)
        br, bi = er * zr - ei * zi, er * zi + ei * zr
        slots[4 * _W + w] = -(br * qi + bi * qr + hr * ai + hi * ar)
        gr, gi = ci * br - si * hi, ci * bi + si * hr
        slots[_W + w] = -(gr * pi + gi * pr)
        slots[3 * _W + w] = -(gr * pr - gi * pi)
        s[w], s[_W + w] = fr * gr - fi * gi, fr * gi + fi * gr
        s[2 * _W + w], s[3 * _W + w] = ci * hr - si * bi, ci * hi + si * br


@njit(**OPTIONS)
def pull(modes, theta, phi, couplers, loss, record, reach, cotangent, g_phase, g_element):
    """Carry covectors of the outputs back: gradients of ``Re(cotangent . outputs)``.

    ``cotangent`` (G, n, 2 LANES) is overwritten; ``g_phase`` (H, G LANES) receives the gradients of each reading,
    ``g_element`` (K, 5) sums over readings: both loss exponents, eta_in, eta_out, log transmission.
    """
    slots = np.empty(SLOTS * _W, dtype=record.dtype)
    g_element[:] = 0.0
    for g in range(len(cotangent)):
        covector = cotangent[g].reshape(-1)
        for k in range(len(modes) - 1, -1, -1):
            inner = g_phase[theta[k], g * _W : (g + 1) * _W]
            outer = g_phase[phi[k], g * _W : (g + 1) * _W]
            if not reach[g, k]:
                inner[:] = 0.0
                outer[:] = 0.0
                continue
            m = modes[k]
            _back(record[g, k], covector[2 * m * _W : (2 * m + 4) * _W], slots, couplers[k], loss[k])
            for w in range(_W):
                inner[w] = slots[w]
            for w in range(_W):
                outer[w] = slots[_W + w]
            for i in range(5):
                total = 0.0
                for w in range(_W):
                    total += slots[(2 + i) * _W + w]
                g_element[k, i] += total


@njit(**OPTIONS)
def rows(modes, couplers, loss, record, reach, out, scale, jacobian):
    """Differentiate ``scale |out|^2`` of each output by all elements of the MZIs.

    Parameters
    ----------
    modes, couplers, loss, record, reach, out
        As `propagate` took and left them.
    scale
        Factors (G, n, LANES).
    jacobian
        Receives the derivatives (G, n, K, SLOTS LANES).
    """
    ports = out.shape[1]
    covector = np.empty(2 * ports * _W)
    for g in range(len(out)):
        for j in range(ports):
            covector[:] = 0.0
            for w in range(_W):
                covector[2 * j * _W + w] = 2.0 * scale[g, j, w] * out[g, j, w]
                covector[(2 * j + 1) * _W + w] = -2.0 * scale[g, j, w] * out[g, j, _W + w]
            for k in range(len(modes) - 1, -1, -1):
                if reach[g, k]:
                    m = modes[k]
                    _back(
                        record[g, k], covector[2 * m * _W : (2 * m + 4) * _W], jacobian[g, j, k], couplers[k], loss[k]
                    )
                else:
                    jacobian[g, j, k] = 0.0


@njit(**OPTIONS)
def sketch(modes, theta, phi, couplers, loss, record, reach, cotangent, first, into):
    """Differentiate ``Re(cotangent . outputs)`` of each reading by all elements of the MZIs.

    Parameters
    ----------
    modes, theta, phi, couplers, loss, record, reach
        As for `push`.
    cotangent
        Covectors (G, n, 2 LANES); overwritten.
    first
        First columns of eta (2K), log transmissions (K) and loss exponents (2K); phases (H) come first.
    into
        Receives a row (G LANES, ...) for each reading.
    """
    slots = np.empty(SLOTS * _W, dtype=record.dtype)
    for g in range(len(cotangent)):
        covector = cotangent[g].reshape(-1)
        part = into[g * _W : (g + 1) * _W]
        for k in range(len(modes) - 1, -1, -1):
            if reach[g, k]:
                m = modes[k]
                _back(record[g, k], covector[2 * m * _W : (2 * m + 4) * _W], slots, couplers[k], loss[k])
            else:
                slots[:] = 0.0
            eta, log_t, arm = first[0] + 2 * k, first[1] + k, first[2] + 2 * k
            for w in range(_W):
                part[w, theta[k]] = slots[w]
                part[w, phi[k]] = slots[_W + w]
                part[w, arm] = slots[2 * _W + w]
                part[w, arm + 1] = slots[3 * _W + w]
                part[w, eta] = slots[4 * _W + w]
                part[w, eta + 1] = slots[5 * _W + w]
                part[w, log_t] = slots[6 * _W + w]


@njit(**OPTIONS)
def add_bends(phases, own_square, own, neighbour_square, neighbours):
    """Add second-order heat to phases (H, G LANES): ``own`` (H,) per own square, ``neighbours`` per neighbours' one."""
    for h in range(len(phases)):
        for b in range(phases.shape[1]):
            phases[h, b] += own[h] * own_square[h, b] + neighbours * neighbour_square[h, b]


@njit(**OPTIONS)
def sum_bends(by_phase, own_square, neighbour_square, by_own):
    """Collect gradients (H, G LANES) of phases into those (H,) per own square; return that per neighbours' square."""
    by_neighbours = 0.0
    for h in range(len(by_phase)):
        total = 0.0
        for b in range(by_phase.shape[1]):
            total += by_phase[h, b] * own_square[h, b]
            by_neighbours += by_phase[h, b] * neighbour_square[h, b]
        by_own[h] = total
    return by_neighbours
