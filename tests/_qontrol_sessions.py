"""Sessions with a simulated Qontrol chain, without a transport."""

import re
import struct

import numpy as np

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, SimulatedQontrol

DAC_STEP_V = 12.0 / 0xFFFF


def chain(modules=2, loads=14, kind="Q8iv"):
    """A chain with heaters on its first channels and open channels behind them."""
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(4, 4, clock=clock)
    instrument = SimulatedQontrol("q", modules, chip, {k: k for k in range(loads)}, clock, kind)
    return instrument.open_session(), chip


def numbers(reply, unit):
    lines = reply.decode().splitlines()
    assert all(re.fullmatch(rf"[+-]\d+\.\d{{4}} {unit}", line) for line in lines)
    return np.array([float(line.split()[0]) for line in lines])


def frame(command, *, address=0, read=False, everywhere=False, words=(0,), extended=False):
    header = 0x80 | 0x20 * everywhere | 0x08 * read | 0x02 * extended
    header |= header.bit_count() % 2
    count = struct.pack(">H", len(words)) if extended else b""
    return bytes([header, command, 0]) + struct.pack(">H", address) + count + struct.pack(f">{len(words)}H", *words)
