"""Messages between ranks, over groups of their own.

Every exchange runs on CPU tensors and groups of its own: one for the maxima, and one for each of the lanes in which
buckets take turns.  So each group sees its exchanges in the same order on every rank, although maxima are agreed ahead
of the codes and one lane computes while the other waits.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from optinc_hw.aggregation._quantizer import Floats

LANES = 2


class Transfers:
    """Messages between the ranks of a group, under way.

    They go from rank to rank, without the library's collectives: each of those has ranks that hear of a lost rank only
    when their wait ends.

    Parameters
    ----------
    group
        Group whose numbers of ranks count.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._works: list[dist.Work] = []
        self.bytes_sent = 0

    def send(self, array: NDArray[Any], rank: int) -> None:
        """Begin to send a contiguous array, which must not change before `wait`."""
        self._works.append(self._group.send([torch.from_numpy(array)], rank, 0))
        self.bytes_sent += array.nbytes

    def receive(self, array: NDArray[Any], rank: int) -> None:
        """Begin to receive a contiguous array."""
        self._works.append(self._group.recv([torch.from_numpy(array)], rank, 0))

    def swap(self, table: NDArray[Any]) -> None:
        """Begin to give every rank all rows (ranks, ...) of a table of which each rank has its own."""
        ranks, mine = len(table), dist.get_rank(self._group)
        for shift in range(1, ranks):
            self.receive(table[(mine - shift) % ranks], (mine - shift) % ranks)
            self.send(table[mine], (mine + shift) % ranks)

    def wait(self) -> None:
        """Wait until all have arrived."""
        for work in self._works:
            work.wait()


@dataclass(frozen=True)
class Groups:
    """Process groups of the hook.

    Parameters
    ----------
    maxima
        For the largest values of blocks.
    lanes
        For codes and answers.
    health
        For finding out who does not answer any more.
    """

    maxima: dist.ProcessGroup
    lanes: tuple[dist.ProcessGroup, ...]
    health: dist.ProcessGroup

    @classmethod
    def beside(cls, group: dist.ProcessGroup | None, timeout_s: float) -> "Groups":
        """Make groups of the ranks of ``group``; every one of its ranks must call this."""
        ranks = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
        timeout = timedelta(seconds=timeout_s)
        # Torch names groups that only their ranks make after their ranks: one made after its like was closed would
        # find the old addresses.  Groups of all ranks are numbered.
        local = len(ranks) < dist.get_world_size()
        maxima, health, *lanes = (
            dist.new_group(ranks, timeout, "gloo", use_local_synchronization=local) for _ in range(2 + LANES)
        )
        return cls(maxima, tuple(lanes), health)

    def close(self) -> None:
        """End the groups' connections."""
        for group in (self.maxima, *self.lanes, self.health):
            dist.destroy_process_group(group)


@dataclass(frozen=True, eq=False)
class SharedMaxima:
    """Blocks' maxima on their way between the ranks.

    Parameters
    ----------
    table
        Maxima (ranks, blocks); Inf where a rank's block holds NaN or Inf.
    transfers
        What is under way.
    """

    table: Floats
    transfers: Transfers

    @classmethod
    def begin(cls, group: dist.ProcessGroup, maxima: Floats) -> "SharedMaxima":
        """Begin to tell all ranks this rank's maxima (blocks,)."""
        table = np.empty((dist.get_world_size(group), len(maxima)), dtype=maxima.dtype)
        table[dist.get_rank(group)] = np.where(np.isfinite(maxima), maxima, np.inf)
        transfers = Transfers(group)
        transfers.swap(table)
        return cls(table, transfers)

    def wait(self) -> Floats:
        """Return the largest values (blocks,) of all ranks."""
        self.transfers.wait()
        return np.asarray(self.table.max(axis=0))
