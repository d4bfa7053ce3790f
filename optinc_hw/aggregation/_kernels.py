"""Compiled kernels of the quantiser, of tables and of packed codes; nothing here checks its arguments.

Block b of a vector holds the elements ``borders[b]`` to ``borders[b + 1]``.  Factors (3, blocks) are applied one after
the other, so that no product leaves the range of the floating-point type.
"""

from typing import Any

import numpy as np
from numba import njit

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}  # what numba's decorator takes
_CHUNK = 2048  # codes whose indices stay in the cache

NEAREST, HALF_UP, FLOOR, STOCHASTIC = range(4)


@njit(**OPTIONS)
def maxima(patterns, borders, mask, found):
    """Largest absolute values of the blocks of rows; ``patterns`` are the bits of floating-point numbers as integers.

    Bits without the sign have the order of absolute values, Inf above every number and NaN above Inf.
    """
    for row in range(len(patterns)):
        for block in range(len(borders) - 1):
            part = patterns[row, borders[block] : borders[block + 1]]
            largest = mask ^ mask
            for i in range(len(part)):
                largest = max(largest, part[i] & mask)
            found[row, block] = largest


@njit(inline="always")
def _uniform(key, index):
    """Return a number of [0, 1) in steps of 2**-24 for an element: splitmix64 of key and place."""
    x = key + np.uint64(index) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float32(np.int32((x ^ (x >> np.uint64(31))) >> np.uint64(40))) * np.float32(2.0**-24)


@njit(**OPTIONS)
def quantise(values, borders, factors, top, rule, keys, codes):
    """Codes of the rows' values; returns whether one was NaN.  ``keys`` (rows,) draw what is rounded up."""
    bad = False
    zero = top - top
    one = top / top
    half = one / (one + one)
    for row in range(len(values)):
        for block in range(len(borders) - 1):
            start = borders[block]
            part = values[row, start : borders[block + 1]]
            out = codes[row, start : borders[block + 1]]
            first, second, third = factors[0, block], factors[1, block], factors[2, block]
            if rule == NEAREST:
                for i in range(len(part)):
                    x = part[i] * first * second * third
                    bad |= x != x
                    out[i] = np.int32(min(max(np.rint(x), -top), top) + (top + one))
            elif rule == STOCHASTIC:
                for i in range(len(part)):
                    x = part[i] * first * second * third
                    bad |= x != x
                    x = min(max(x, -top), top)
                    low = np.floor(x)
                    up = one if _uniform(keys[row], start + i) < x - low else zero
                    out[i] = np.int32(low + up + (top + one))
            else:
                threshold = half if rule == HALF_UP else one
                for i in range(len(part)):
                    x = part[i] * first * second * third
                    bad |= x != x
                    x = min(max(x, -top), top)
                    low = np.floor(x)
                    up = one if x - low >= threshold else zero
                    out[i] = np.int32(low + up + (top + one))
    return bad


@njit(**OPTIONS)
def dequantise(codes, borders, factors, top, values):
    """Values of the rows' codes; code 0 means no more than code 1."""
    for row in range(len(codes)):
        for block in range(len(borders) - 1):
            part = codes[row, borders[block] : borders[block + 1]]
            out = values[row, borders[block] : borders[block + 1]]
            first, second, third = factors[0, block], factors[1, block], factors[2, block]
            for i in range(len(part)):
                out[i] = max(np.int32(part[i]) - np.int32(top + 1), np.int32(-top))  # as the type of the values
                out[i] = out[i] * first * second * third


@njit(**OPTIONS)
def look_up(codes, keys, table, answers):
    """Answers to codes (servers, batch): entries of the table at the sums of the servers' keys."""
    index = np.empty(_CHUNK, np.int32)
    for start in range(0, codes.shape[1], _CHUNK):
        part = codes[0, start : start + _CHUNK]
        out = answers[start : start + _CHUNK]
        for i in range(len(part)):
            index[i] = keys[part[i]]
        for server in range(1, len(codes)):
            part = codes[server, start : start + _CHUNK]
            for i in range(len(part)):
                index[i] += keys[part[i]]
        for i in range(len(part)):
            out[i] = table[index[i]]


@njit(**OPTIONS)
def look_up_fields(codes, width, strides, table, answers):
    """Answers to codes (servers, batch) of at most four fields of 2 or 4 bits, without a look-up for each code.

    The fields move into the bytes of 32 bits, where the servers' codes are added without carries; ``strides`` are the
    fields' weights in a point's index, the lowest field first.
    """
    sums = np.empty(_CHUNK, np.uint32)
    for start in range(0, codes.shape[1], _CHUNK):
        out = answers[start : start + _CHUNK]
        sums[:] = 0
        for server in range(len(codes)):
            part = codes[server, start : start + _CHUNK]
            if width == 2:
                for i in range(len(part)):
                    x = part[i]
                    x = (x | (x << 12)) & 0x000F000F
                    sums[i] += (x | (x << 6)) & 0x03030303
            else:
                for i in range(len(part)):
                    x = part[i]
                    x = (x | (x << 8)) & 0x00FF00FF
                    sums[i] += (x | (x << 4)) & 0x0F0F0F0F
        for i in range(len(out)):
            x = sums[i]
            low = (x & 255) * strides[0] + ((x >> 8) & 255) * strides[1]
            sums[i] = low + ((x >> 16) & 255) * strides[2] + ((x >> 24) & 255) * strides[3]
        for i in range(len(out)):
            out[i] = table[sums[i]]


@njit(**OPTIONS)
def pack(codes, bits, packed):
    """Write codes of ``bits`` bits, the first one lowest, as bytes; both arrays hold whole groups of 8 codes."""
    held = np.uint32(0)
    count = np.uint32(0)
    place = 0
    for code in codes:
        held |= np.uint32(code) << count
        count = np.uint32(count + np.uint32(bits))
        while count >= 8:
            packed[place] = np.uint8(held & np.uint32(255))
            held = np.uint32(held >> np.uint32(8))
            count = np.uint32(count - np.uint32(8))
            place += 1


@njit(**OPTIONS)
def unpack(packed, bits, codes):
    """Undo `pack`."""
    held = np.uint32(0)
    count = np.uint32(0)
    place = 0
    mask = np.uint32((1 << bits) - 1)
    for k in range(len(codes)):
        while count < bits:
            held |= np.uint32(packed[place]) << count
            count = np.uint32(count + np.uint32(8))
            place += 1
        codes[k] = held & mask
        held = np.uint32(held >> np.uint32(bits))
        count = np.uint32(count - np.uint32(bits))
