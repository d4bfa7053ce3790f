"""Compiled kernels for gradients of lossless meshes: half of one matrix instead of fields and their gradients.

A change ``dU`` of an MZI changes the loss by ``Re tr(dU U^H W)``, where ``W = X Y^H`` comes of the fields X behind the
MZI and their gradients Y. In front of it ``W`` is ``U^H W U``; and ``dU U^H`` being anti-Hermitian, only
``A = (W - W^H) / 2`` counts, of which a triangle is kept. An MZI looks at its own two modes alone, so the further back,
the narrower the band around the diagonal that still matters.

Columns of even and of odd modes are kept apart, so are real and imaginary parts: neighbouring pairs of columns lie in
vectors then, whichever mode they begin with. Mode m has row m + 1; among the columns mode 2j has place j, and so has
mode 2j - 1. MZIs on (2j, 2j + 1) are pair j of an even layer, MZIs on (2j - 1, 2j) pair j of an odd one.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

# Even and odd columns are two arrays: the compiler does not vectorise where stores and loads of one array are neither
# whole vectors nor thousands of bytes apart. Places are unsigned, or each would be tested for being negative.

import numpy as np
from numba import njit

from optinc_hw.photonics._kernels import OPTIONS

PANEL = 64
"""Columns of one kind that lie side by side; others are in further panels."""
_PLANE = np.uint64(PANEL + 8)  # with room for the first column of the next panel, as a guest
_ROW = np.uint64(2) * _PLANE
_NUMBERS = np.uint64(6) * _PLANE  # s, c, cos alpha, sin alpha of the pairs of a panel, and their entry of A to come
_PANEL, _ZERO, _ONE, _TWO = np.uint64(PANEL), np.uint64(0), np.uint64(1), np.uint64(2)
_VECTOR_BYTES = 32


@njit(**OPTIONS)
def transfer_vjp(table, order, starts, couplings, turn, behind, product, d_theta, d_phi, d_out):
    """Pull gradients of B matrices back to the phases.

    Parameters
    ----------
    table
        ``MeshLayout.table`` (K, 3).
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
    ports = np.uint64(d_out.shape[1])
    places = ports // _TWO + _ONE
    # The last mode is no column left of the diagonal.
    even = np.zeros(((ports - _ONE) // _TWO // _PANEL + _ONE) * (ports + _TWO) * _ROW, product.dtype)
    odd = np.zeros_like(even)
    diagonal = np.empty(ports + _TWO, product.dtype)  # imaginary parts, the real ones are zero
    present = np.zeros(places, np.bool_)  # the pairs of modes that are MZIs of the layer
    numbers = np.zeros((places // _PANEL + _ONE) * _NUMBERS, product.dtype)
    for i in range(places):
        _rest(numbers, i)
    for b in range(len(product)):
        cells = couplings[min(b, len(couplings) - 1)]
        _load(behind[b], product[b], even, odd, diagonal)
        for i in range(ports):
            d_out[b, i] = -diagonal[i + _ONE]
        for later in range(len(starts) - 2, -1, -1):
            members, reach = order[starts[later] : starts[later + 1]], np.uint64(later)
            first, last = np.uint64(table[members[0], 0] + 1) // _TWO, np.uint64(table[members[-1], 0] + 1) // _TWO
            left, right, shift = (odd, even, _ZERO) if table[members[0], 0] % 2 else (even, odd, _ONE)
            _look(left, shift, members, table, cells, turn[b], numbers, present, diagonal, d_theta[b], d_phi[b])
            _undo(left, right, shift, ports, numbers, present, first, last, reach)
            for k in members:
                place = np.uint64(table[k, 0] + 1) // _TWO
                present[place] = False
                _rest(numbers, place)


@njit(**OPTIONS)
def _rest(numbers, place):
    """Let a pair of modes alone."""
    at = place // _PANEL * _NUMBERS + place % _PANEL
    numbers[at] = numbers[at + _ROW] = 1
    numbers[at + _PLANE] = numbers[at + _ROW + _PLANE] = 0


@njit(**OPTIONS)
def _load(behind, product, even, odd, diagonal):
    """Take A from W, with the numbers ``behind`` of both modes taken out."""
    ports = len(behind)
    diagonal[0] = diagonal[-1] = 0
    for i in range(ports):
        diagonal[i + 1] = product[i, 2 * i + 1]
        _load_row(behind, product, i, 0, even)
        _load_row(behind, product, i, 1, odd)


@njit(**OPTIONS)
def _load_row(behind, product, i, parity, columns):
    """Take the columns of one kind, left of the diagonal."""
    half = product.dtype.type(0.5)
    ports = np.uint64(len(behind))
    for j in range(parity, i, 2):
        real, imag = (
            half * (product[i, 2 * j] - product[j, 2 * i]),
            half * (product[i, 2 * j + 1] + product[j, 2 * i + 1]),
        )
        c = behind[i, 0] * behind[j, 0] + behind[i, 1] * behind[j, 1]
        s = behind[i, 0] * behind[j, 1] - behind[i, 1] * behind[j, 0]
        at = _at(ports, np.uint64(i + 1), np.uint64(j + 1) // _TWO)
        columns[at], columns[at + _PLANE] = c * real - s * imag, c * imag + s * real


@njit(**OPTIONS)
def _at(ports, row, place):
    """Where a real part lies; the imaginary part is a plane further."""
    return (place // _PANEL * (ports + _TWO) + row) * _ROW + place % _PANEL


@njit(**OPTIONS)
def _look(left, shift, members, table, cells, turn, numbers, present, diagonal, d_theta, d_phi):
    """Read the gradients of a layer's MZIs off A; write the numbers of their pairs of modes, and the new diagonal.

    Parameters
    ----------
    left, shift
        As for `_undo`.
    members
        The layer's MZIs.
    table, cells, turn, diagonal, d_theta, d_phi
        Of the setting.
    numbers, present
        Receive what `_undo` needs.
    """
    ports = np.uint64(len(diagonal)) - _TWO
    for k in members:
        pair = np.uint64(table[k, 0] + 1) // _TWO
        row = _TWO * pair + shift
        below = _at(ports, row + _ONE, pair)
        co, so = cells[min(k, len(cells) - 1), 2], cells[min(k, len(cells) - 1), 3]
        s, c, ar, ai = turn[0, k], turn[1, k], turn[2, k], turn[3, k]
        real, imag, x, y = left[below], left[below + _PLANE], diagonal[row], diagonal[row + _ONE]
        d_theta[k] = 2 * co * so * (turn[4, k] * real - turn[5, k] * imag) - co * co * x - so * so * y
        upper = s * (s * x - c * imag) + c * (c * y - s * imag)
        imag = s * c * (x - y) + (s * s - c * c) * imag
        d_phi[k] = -upper
        diagonal[row], diagonal[row + _ONE] = upper, x + y - upper
        present[pair] = True
        at = pair // _PANEL * _NUMBERS + pair % _PANEL
        numbers[at], numbers[at + _PLANE], numbers[at + _ROW], numbers[at + _ROW + _PLANE] = s, c, ar, ai
        numbers[at + _ROW + _ROW] = ar * real - ai * imag
        numbers[at + _ROW + _ROW + _PLANE] = ar * imag + ai * real


@njit(**OPTIONS)
def _undo(left, right, shift, ports, numbers, present, first, last, reach):
    """Go back through a layer.

    Parameters
    ----------
    left, right, shift
        Columns of upper modes, of lower modes, and by how much the place of a lower mode is greater.
    ports
        Number of modes.
    numbers, present
        Of the layer's pairs of modes, from `_look`.
    first, last
        Its first and last pair that is an MZI.
    reach
        Layers that remain: pairs of modes further apart than this do not matter any more.
    """
    part = np.uint64(_VECTOR_BYTES // left.itemsize - 1)  # of a vector, a power of two
    for pair in range(first, (ports + _TWO - shift) // _TWO):
        # Without an MZI on the rows, only columns with MZIs change.
        start, stop = (_ZERO, pair) if present[pair] else (first, min(pair, last + _ONE))
        start = max(start, pair - min(pair, reach))
        start -= start & part
        row = _TWO * pair + shift
        at = pair // _PANEL * _NUMBERS + pair % _PANEL
        su, cu, xr, xi = numbers[at], numbers[at + _PLANE], numbers[at + _ROW], numbers[at + _ROW + _PLANE]
        for panel in range(start // _PANEL, (stop + _PANEL - _ONE) // _PANEL):
            begin = max(start, panel * _PANEL) - panel * _PANEL
            count = min(stop - panel * _PANEL, _PANEL) - begin
            base, numbered = _at(ports, row, panel * _PANEL), panel * _NUMBERS
            visited = count + begin + shift > _PANEL  # the last pair has its lower mode in the next panel
            guest, home = base + _PANEL, _at(ports, row, (panel + _ONE) * _PANEL)
            if visited:
                _move(right, home, guest)
            # Whole vectors: what is changed beyond the diagonal is never looked at.
            for i in range(count + ((_ZERO - count) & part)):
                j = begin + i
                u, o = numbered + j, base + j
                v, w = o + _ROW, o + shift
                z = w + _ROW
                s, c, ar, ai = numbers[u], numbers[u + _PLANE], numbers[u + _ROW], numbers[u + _ROW + _PLANE]
                p, q, r, t = left[o], left[o + _PLANE], right[w], right[w + _PLANE]
                e, f, g, h = left[v], left[v + _PLANE], right[z], right[z + _PLANE]
                # Columns: rotate, then turn the upper mode's.
                p, q, r, t = s * p - c * r, s * q - c * t, c * p + s * r, c * q + s * t
                e, f, g, h = s * e - c * g, s * f - c * h, c * e + s * g, c * f + s * h
                p, q, e, f = ar * p - ai * q, ar * q + ai * p, ar * e - ai * f, ar * f + ai * e
                # Rows: the same, but the conjugate of the turn.
                p, q, e, f = su * p - cu * e, su * q - cu * f, cu * p + su * e, cu * q + su * f
                r, t, g, h = su * r - cu * g, su * t - cu * h, cu * r + su * g, cu * t + su * h
                left[o], left[o + _PLANE] = xr * p + xi * q, xr * q - xi * p
                right[w], right[w + _PLANE] = xr * r + xi * t, xr * t - xi * r
                left[v], left[v + _PLANE], right[z], right[z + _PLANE] = e, f, g, h
            if visited:
                _move(right, guest, home)
        if present[pair]:
            below = _at(ports, row + _ONE, pair)
            left[below], left[below + _PLANE] = numbers[at + _ROW + _ROW], numbers[at + _ROW + _ROW + _PLANE]


@njit(**OPTIONS)
def _move(columns, start, end):
    """Copy numbers of two rows from one place to another."""
    for part in range(4):
        columns[end + np.uint64(part) * _PLANE] = columns[start + np.uint64(part) * _PLANE]
