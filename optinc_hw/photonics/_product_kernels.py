"""Compiled products of complex matrices by three real ones instead of four.

With ``s = a_r + a_i`` and ``t = b_r + b_i``, ``a b = (p - q) + i (s t - p - q)`` where ``p = a_r b_r`` and
``q = a_i b_i``. Errors are, as usual, a few roundings of the sum of all ``|a| |b|``. One thread does it all.

Both factors are packed first: the right one in panels as wide as a vector, the left one in blocks of four rows; each
with real parts, imaginary parts and their sums.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

import numpy as np
from numba import njit

from optinc_hw.photonics import _vector_kernels as v
from optinc_hw.photonics._kernels import OPTIONS

_ZERO, _ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_ROWS = np.uint64(4)
_DEPTH = np.uint64(256)  # of a product with an adjoint done at a time, so that packed blocks stay in the cache


@njit(**OPTIONS)
def product(left, right, out):
    """Multiply matrices (n, k) and (k, w) into ``out`` (n, w); real and imaginary parts interleaved."""
    depth, width, step = np.uint64(len(right)), np.uint64(out.shape[1] // 2), v.lanes(out)
    blocks, panel, rows = _blocks(left, _ZERO, depth), v.lined_up(depth * step * _THREE, out.dtype), right.reshape(-1)
    for first in range(_ZERO, width, step):
        whole = first + step <= width
        for k in range(depth):
            at, start = k * step * _THREE, _TWO * (k * width + first)
            if whole:
                real, imag = v.load_pairs(rows, start)
                v.store(real, panel, at)
                v.store(imag, panel, at + step)
                v.store(v.plus(real, imag), panel, at + _TWO * step)
            else:
                for j in range(width - first):
                    x, y = rows[start + _TWO * j], rows[start + _TWO * j + _ONE]
                    panel[at + j], panel[at + step + j], panel[at + _TWO * step + j] = x, y, x + y
        _columns(blocks, panel, depth, out, first, False)


@njit(**OPTIONS)
def product_adjoint(left, right, out):
    """Multiply matrices (n, k) and (m, k), the adjoint of the second, into ``out`` (n, m); see `product`."""
    whole, width, step = np.uint64(right.shape[1] // 2), np.uint64(len(right)), v.lanes(out)
    panel, rows = v.lined_up(_DEPTH * step * _THREE, out.dtype), right.reshape(-1)
    for begin in range(_ZERO, whole, _DEPTH):
        depth = min(_DEPTH, whole - begin)
        blocks = _blocks(left, begin, depth)
        for first in range(_ZERO, width, step):
            for k in range(depth):
                at, start = k * step * _THREE, _TWO * (first * whole + begin + k)
                for j in range(min(step, width - first)):
                    x, y = rows[start + _TWO * whole * j], rows[start + _TWO * whole * j + _ONE]
                    panel[at + j], panel[at + step + j], panel[at + _TWO * step + j] = x, -y, x - y
            _columns(blocks, panel, depth, out, first, begin > _ZERO)


@njit(**OPTIONS)
def _blocks(left, begin, depth):
    """Pack columns of the left factor from ``begin`` on: (rows / 4, 3, depth, 4)."""
    rows, whole, step = np.uint64(len(left)), np.uint64(left.shape[1] // 2), v.lanes(left)
    numbers, part = left.reshape(-1), depth * _ROWS
    blocks = v.lined_up((rows + _ROWS - _ONE) // _ROWS * _THREE * part, left.dtype)
    for first in range(_ZERO, rows, _ROWS):
        start, at, k = _TWO * (first * whole + begin), first * depth * _THREE, _ZERO
        if first + _ROWS <= rows:
            while k + step <= depth:
                a, e = v.load_pairs(numbers, start + _TWO * k)
                b, f = v.load_pairs(numbers, start + _TWO * (whole + k))
                c, g = v.load_pairs(numbers, start + _TWO * (_TWO * whole + k))
                d, h = v.load_pairs(numbers, start + _TWO * (_THREE * whole + k))
                to = at + _ROWS * k
                _store_rows(a, b, c, d, blocks, to, step)
                _store_rows(e, f, g, h, blocks, to + part, step)
                _store_rows(v.plus(a, e), v.plus(b, f), v.plus(c, g), v.plus(d, h), blocks, to + _TWO * part, step)
                k += step
        while k < depth:
            for i in range(min(_ROWS, rows - first)):
                x, y = numbers[start + _TWO * (whole * i + k)], numbers[start + _TWO * (whole * i + k) + _ONE]
                to = at + _ROWS * k + i
                blocks[to], blocks[to + part], blocks[to + _TWO * part] = x, y, x + y
            k += _ONE
    return blocks


@njit(**OPTIONS)
def _store_rows(a, b, c, d, blocks, at, step):
    """Write four rows as columns."""
    low, high = v.zipped(a, c)
    low2, high2 = v.zipped(b, d)
    first, second = v.zipped(low, low2)
    third, fourth = v.zipped(high, high2)
    v.store(first, blocks, at)
    v.store(second, blocks, at + step)
    v.store(third, blocks, at + _TWO * step)
    v.store(fourth, blocks, at + _THREE * step)


@njit(**OPTIONS)
def _columns(blocks, panel, depth, out, first, more):
    """Write columns of the product, as many as a panel has, or add ``more`` to what is there."""
    rows, length, numbers, wide = np.uint64(len(out)), np.uint64(out.shape[1]), out.reshape(-1), _TWO * v.lanes(out)
    made = v.lined_up(_ROWS * wide, out.dtype)
    for row in range(_ZERO, rows, _ROWS):
        start = row * length + _TWO * first
        if row + _ROWS <= rows and _TWO * first + wide <= length:
            _tile(blocks, row * depth * _THREE, panel, depth, numbers, start, length, more)
        else:
            _tile(blocks, row * depth * _THREE, panel, depth, made, _ZERO, wide, False)
            for i in range(min(_ROWS, rows - row)):
                for j in range(min(wide, length - _TWO * first)):
                    at = start + i * length + j
                    numbers[at] = numbers[at] + made[i * wide + j] if more else made[i * wide + j]


@njit(**OPTIONS)
def _tile(blocks, at, panel, depth, out, start, length, more):
    """Multiply four rows and a panel, into rows of ``out`` that are ``length`` apart."""
    zero, step, part = v.spread(blocks.dtype.type(0)), v.lanes(blocks), depth * _ROWS
    p0, p1, p2, p3 = zero, zero, zero, zero
    q0, q1, q2, q3 = zero, zero, zero, zero
    s0, s1, s2, s3 = zero, zero, zero, zero
    place, end = _ZERO, depth * step * _THREE
    while place < end:
        x, y, z = v.load(panel, place), v.load(panel, place + step), v.load(panel, place + _TWO * step)
        p0, p1 = v.fma(v.spread(blocks[at]), x, p0), v.fma(v.spread(blocks[at + _ONE]), x, p1)
        p2, p3 = v.fma(v.spread(blocks[at + _TWO]), x, p2), v.fma(v.spread(blocks[at + _THREE]), x, p3)
        b = at + part
        q0, q1 = v.fma(v.spread(blocks[b]), y, q0), v.fma(v.spread(blocks[b + _ONE]), y, q1)
        q2, q3 = v.fma(v.spread(blocks[b + _TWO]), y, q2), v.fma(v.spread(blocks[b + _THREE]), y, q3)
        c = b + part
        s0, s1 = v.fma(v.spread(blocks[c]), z, s0), v.fma(v.spread(blocks[c + _ONE]), z, s1)
        s2, s3 = v.fma(v.spread(blocks[c + _TWO]), z, s2), v.fma(v.spread(blocks[c + _THREE]), z, s3)
        at, place = at + _ROWS, place + _THREE * step
    _store_sums(p0, q0, s0, out, start, step, more)
    _store_sums(p1, q1, s1, out, start + length, step, more)
    _store_sums(p2, q2, s2, out, start + _TWO * length, step, more)
    _store_sums(p3, q3, s3, out, start + _THREE * length, step, more)


@njit(**OPTIONS)
def _store_sums(p, q, s, out, at, step, more):
    """Write, or add, real and imaginary parts in turn."""
    first, second = v.zipped(v.minus(p, q), v.minus(v.minus(s, p), q))
    if more:
        first, second = v.plus(first, v.load(out, at)), v.plus(second, v.load(out, at + step))
    v.store(first, out, at)
    v.store(second, out, at + step)
