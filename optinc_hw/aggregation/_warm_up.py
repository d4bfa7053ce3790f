"""Mean in floating point, for the first steps."""

import numpy as np

from optinc_hw.aggregation._carriers import Sockets
from optinc_hw.aggregation._quantizer import Floats
from optinc_hw.aggregation._transfers import Group


def float_mean(group: Group, vector: Floats, out: Floats) -> None:
    """Write the mean of the ranks' vectors (size,) to ``out``, which may be the vector; equal bits on all ranks.

    Every rank averages a part, in the vectors' own type and divided before it is summed, so that no sum overflows.
    """
    ranks, size, kind = group.size(), len(vector), vector.dtype
    sockets = Sockets(group, range(ranks))
    room = sockets.room(-(-size // ranks) * ranks * kind.itemsize).view(kind)
    room[:size], room[size:] = vector, 0.0
    gathered = sockets.collect()
    assert gathered is not None  # every rank has a part
    np.sum(gathered.view(kind) / kind.type(ranks), axis=0, out=sockets.own_answers().view(kind))
    out[:] = sockets.spread().view(kind)[:size]
