"""Ways of bytes between ranks: over sockets, or through memory that ranks of one machine share.

The packed codes of every rank are cut into equal parts, one for each rank that holds an executor; the answers to a part
go to all ranks.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from optinc_hw.aggregation._common_memory import CommonMemory
from optinc_hw.aggregation._transfers import Group, Transfers
from optinc_hw.errors import AggregationError

Bytes = NDArray[np.uint8]


class Carrier(Protocol):
    """Carries codes to the holders of executors and answers back; every call is made by all ranks in turn.

    Attributes
    ----------
    bytes_sent : int
        Bytes of codes and answers that this rank has handed to others.
    """

    bytes_sent: int

    def room(self, size: int) -> Bytes:
        """Return where this rank's packed codes (size,) are to be written; the exchange before is lost."""
        ...

    def collect(self) -> Bytes | None:
        """Hand the codes over; return all ranks' codes (ranks, part) of this rank's part, None if it answers none."""
        ...

    def own_answers(self) -> Bytes:
        """Return where the answers to this rank's part are to be written."""
        ...

    def spread(self) -> Bytes:
        """Hand the answers over and return those to all parts (size,)."""
        ...


class Sockets:
    """Carries all bytes over the process group.

    Parameters
    ----------
    group
        Group of the ranks.
    holders
        Ranks that hold an executor, in the order of their parts.
    """

    def __init__(self, group: Group, holders: Sequence[int]) -> None:
        self._group, self._holders = group, holders
        self._rank, self._ranks = group.rank(), group.size()
        self._arrays: dict[str, Bytes] = {}
        self._size = 0
        self.bytes_sent = 0

    def room(self, size: int) -> Bytes:
        """See `Carrier`."""
        self._size = size
        return self._array("codes", size)

    def collect(self) -> Bytes | None:
        """See `Carrier`."""
        transfers = Transfers(self._group)
        parts = self._array("codes", self._size).reshape(len(self._holders), -1)
        gathered = None
        if self._rank in self._holders:
            gathered = self._array("gathered", self._ranks * parts.shape[1]).reshape(self._ranks, -1)
            gathered[self._rank] = parts[self._holders.index(self._rank)]
        for shift in range(1, self._ranks):
            source, target = (self._rank - shift) % self._ranks, (self._rank + shift) % self._ranks
            if gathered is not None:
                transfers.receive(gathered[source], source)
            if target in self._holders:
                transfers.send(parts[self._holders.index(target)], target)
        self._wait(transfers)
        return gathered

    def own_answers(self) -> Bytes:
        """See `Carrier`."""
        return np.asarray(self._parts()[self._holders.index(self._rank)])

    def spread(self) -> Bytes:
        """See `Carrier`."""
        transfers, parts = Transfers(self._group), self._parts()
        for shift in range(1, self._ranks):
            source, target = (self._rank - shift) % self._ranks, (self._rank + shift) % self._ranks
            if source in self._holders:
                transfers.receive(parts[self._holders.index(source)], source)
            if self._rank in self._holders:
                transfers.send(self.own_answers(), target)
        self._wait(transfers)
        return parts.reshape(-1)

    def _parts(self) -> Bytes:
        return self._array("answers", self._size).reshape(len(self._holders), -1)

    def _wait(self, transfers: Transfers) -> None:
        transfers.wait()
        self.bytes_sent += transfers.bytes_sent

    def _array(self, name: str, size: int) -> Bytes:
        """Return bytes (size,) that live as long as the carrier: new memory would cost as much as the arithmetic."""
        if name not in self._arrays or len(self._arrays[name]) < size:
            self._arrays[name] = np.empty(size, dtype=np.uint8)
        return self._arrays[name][:size]


class SharedMemory:
    """Carries codes and answers through memory of all ranks; the process group carries notices that they are there.

    Codes are read where they were written.  They change only after all answers are there, and answers change only
    after all ranks have handed over their next codes, which they do when they have decoded the answers before.

    Parameters
    ----------
    group, holders
        As for `Sockets`.
    memory
        Memory of all ranks.
    """

    def __init__(self, group: Group, holders: Sequence[int], memory: CommonMemory) -> None:
        self._group, self._holders, self._memory = group, holders, memory
        self._rank, self._ranks = group.rank(), group.size()
        self._size = self._exchanges = 0
        self.bytes_sent = 0

    @property
    def capacity(self) -> int:
        """Most bytes of `room`."""
        return self._memory.capacity

    def room(self, size: int) -> Bytes:
        """See `Carrier`."""
        self._size = size
        return np.asarray(self._memory.codes[self._rank, :size])

    def collect(self) -> Bytes | None:
        """See `Carrier`."""
        self._exchanges += 1
        self._notify(range(self._ranks), self._holders)
        part = self._size // len(self._holders)
        self.bytes_sent += part * len([rank for rank in self._holders if rank != self._rank])
        if self._rank not in self._holders:
            return None
        first = self._holders.index(self._rank) * part
        return self._memory.codes[:, first : first + part]

    def own_answers(self) -> Bytes:
        """See `Carrier`."""
        return np.asarray(self._answers().reshape(len(self._holders), -1)[self._holders.index(self._rank)])

    def spread(self) -> Bytes:
        """See `Carrier`."""
        self._notify(self._holders, range(self._ranks))
        if self._rank in self._holders:
            self.bytes_sent += (self._ranks - 1) * len(self.own_answers())
        return self._answers()

    def _answers(self) -> Bytes:
        return np.asarray(self._memory.answers[: self._size])

    def _notify(self, writers: Sequence[int], readers: Sequence[int]) -> None:
        """Let writers tell readers that all is there."""
        notices = np.full((self._ranks, 1), self._exchanges)
        transfers = Transfers(self._group)
        for shift in range(1, self._ranks):
            source, target = (self._rank - shift) % self._ranks, (self._rank + shift) % self._ranks
            if self._rank in readers and source in writers:
                transfers.receive(notices[source], source)
            if self._rank in writers and target in readers:
                transfers.send(notices[self._rank], target)
        transfers.wait()
        late = np.flatnonzero(notices[:, 0] != self._exchanges)
        if len(late):
            raise AggregationError(
                f"rank {late[0]} is at exchange {notices[late[0], 0]} and rank {self._rank} at {self._exchanges}; all "
                "ranks must average the same buckets in the same order"
            )
