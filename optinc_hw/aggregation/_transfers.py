"""Messages between ranks, over groups of their own.

Every exchange runs on CPU tensors and groups of its own: one for the maxima, and one for each of the lanes in which
buckets take turns.  So each group sees its exchanges in the same order on every rank, although maxima are agreed ahead
of the codes and one lane computes while the other waits.
"""

import contextlib
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_process_group_store

from optinc_hw.aggregation._quantizer import Floats
from optinc_hw.errors import AggregationError

LANES = 2


class Group(Protocol):
    """Connections of a rank to the others, of which the calls below are used."""

    def rank(self) -> int:
        """Return this rank's number in the group."""

    def size(self) -> int:
        """Return the number of ranks."""

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> dist.Work:
        """Begin to send a tensor."""

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> dist.Work:
        """Begin to receive a tensor."""


class Transfers:
    """Messages between the ranks of a group, under way.

    They go from rank to rank, without the library's collectives: each of those has ranks that hear of a lost rank only
    when their wait ends.

    Parameters
    ----------
    group
        Group whose numbers of ranks count.
    """

    def __init__(self, group: Group) -> None:
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
        ranks, mine = len(table), self._group.rank()
        for shift in range(1, ranks):
            self.receive(table[(mine - shift) % ranks], (mine - shift) % ranks)
            self.send(table[mine], (mine + shift) % ranks)

    def wait(self) -> None:
        """Wait until all have arrived."""
        for work in self._works:
            work.wait()


def told_by_all(group: Group, value: Any) -> list[Any]:  # Any: what JSON can hold
    """Tell all ranks a value; return the values of all, in the order of ranks."""
    told = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
    sizes = np.zeros((group.size(), 1), dtype=np.int64)
    sizes[group.rank()] = len(told)
    _swapped(group, sizes)
    table = np.zeros((group.size(), int(sizes.max())), dtype=np.uint8)
    table[group.rank(), : len(told)] = told
    _swapped(group, table)
    return [json.loads(row.tobytes().rstrip(b"\0")) for row in table]


def _swapped(group: Group, table: NDArray[Any]) -> None:
    transfers = Transfers(group)
    transfers.swap(table)
    transfers.wait()


@dataclass(frozen=True)
class Groups:
    """Connections of the hook.

    Parameters
    ----------
    maxima
        For the handshake and the largest values of blocks.
    lanes
        For codes and answers.
    health
        For finding out who does not answer any more.
    """

    maxima: Group
    lanes: tuple[Group, ...]
    health: Group

    @classmethod
    def beside(cls, group: dist.ProcessGroup | None, timeout_s: float) -> "Groups":
        """Connect the ranks of ``group``; every one of its ranks must call this.  They end with the last reference.

        They are no groups of torch's own kind, which only all ranks of a job can make: names of those made by some
        ranks count the groups of each process, in which the ranks may differ.

        Raises
        ------
        AggregationError
            If a rank does not come within the time.
        """
        base = dist.group.WORLD if group is None else group
        assert base is not None  # there is a default group, or there would be no gradients of several ranks
        store, rank, ranks = _get_process_group_store(base), base.rank(), base.size()
        timeout = timedelta(seconds=timeout_s)
        prefix = f"optinc/{store.add(f'optinc/rank {rank}', 1)}"  # each rank counts the same calls for this group
        here = [f"{prefix}/rank {other}" for other in range(ranks)]
        try:
            store.set(here[rank], "here")
            store.wait(here, timeout)
            maxima, health, *lanes = (
                cast(Group, dist.ProcessGroupGloo(PrefixStore(f"{prefix}/{index}", store), rank, ranks, timeout))
                for index in range(2 + LANES)
            )
        except RuntimeError as error:
            who = _absent(store, here) or "the ranks found no way to one another"
            raise AggregationError(
                f"rank {rank}: {who} within {timeout_s:.6g} s; all ranks must make the same steps; give a longer "
                "timeout_s if one may come later, and name the network interface that all reach in GLOO_SOCKET_IFNAME "
                f"({str(error).strip().splitlines()[0]})"
            ) from error
        return cls(maxima, tuple(lanes), health)


def _absent(store: Store, here: list[str]) -> str:
    """Say which ranks have not left their key; nothing if all have, or the store is gone."""
    with contextlib.suppress(RuntimeError):
        absent = [rank for rank, key in enumerate(here) if not store.check([key])]
        return f"{' and '.join(f'rank {rank}' for rank in absent)} did not come to the step" if absent else ""
    return ""


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
    def begin(cls, group: Group, maxima: Floats) -> "SharedMaxima":
        """Begin to tell all ranks this rank's maxima (blocks,)."""
        table = np.empty((group.size(), len(maxima)), dtype=maxima.dtype)
        table[group.rank()] = np.where(np.isfinite(maxima), maxima, np.inf)
        transfers = Transfers(group)
        transfers.swap(table)
        return cls(table, transfers)

    def wait(self) -> Floats:
        """Return the largest values (blocks,) of all ranks."""
        self.transfers.wait()
        return np.asarray(self.table.max(axis=0))
