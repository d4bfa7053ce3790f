"""Codes as bytes, as they travel between processes."""

import numpy as np
from numpy.typing import NDArray

from optinc_hw.aggregation import _kernels
from optinc_hw.aggregation._quantizer import Codes

GROUP = 8  # codes that fill whole bytes at any width


def packed_size(count: int, bits: int) -> int:
    """Return the bytes that ``count`` codes take, a multiple of 8 codes."""
    return count * bits // 8


def pack(codes: Codes, bits: int) -> NDArray[np.uint8]:
    """Return codes (count,) as bytes (count bits / 8,), the first code lowest; ``count`` is a multiple of 8.

    Codes of 8 and 16 bits are not copied.
    """
    if bits in (8, 16):
        return codes.view(np.uint8)
    packed = np.empty(packed_size(len(codes), bits), dtype=np.uint8)
    _kernels.pack(codes, bits, packed)
    return packed


def unpack(packed: NDArray[np.uint8], bits: int) -> Codes:
    """Return the codes (count,) of bytes that `pack` made, uint8 or uint16."""
    if bits in (8, 16):
        return packed.view(np.uint8 if bits == 8 else np.uint16)
    codes: Codes = np.empty(len(packed) * 8 // bits, dtype=np.uint8 if bits <= 8 else np.uint16)
    _kernels.unpack(packed, bits, codes)
    return codes
