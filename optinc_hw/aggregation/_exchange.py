"""Codes between ranks: to where the executor is and back, over the process group.

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

from optinc_hw.aggregation._account import Account
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._feeds import Feeds
from optinc_hw.aggregation._packing import GROUP, pack, unpack
from optinc_hw.aggregation._quantizer import Codes, Floats
from optinc_hw.errors import AggregationError

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


class CodeExchange:
    """Answers of an executor to the codes of all ranks.

    Parameters
    ----------
    group
        Group of the ranks.
    executor
        This rank's executor; None where the chip host's is used.
    chip_host
        Rank in the group that holds the executor; None: every rank answers its share.
    feeds
        Which rank feeds which input.
    account
        Takes the time of the executor and of waiting.

    Attributes
    ----------
    bytes_sent : int
        Bytes of codes and answers that this rank has sent.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        executor: Executor | None,
        chip_host: int | None,
        feeds: Feeds,
        account: Account,
    ) -> None:
        self._group = group
        self._executor = executor
        self._chip_host = chip_host
        self._feeds = feeds
        self._account = account
        self.bytes_sent = 0
        self._rank = dist.get_rank(group)
        self._type = np.dtype(np.uint8 if feeds.bits <= 8 else np.uint16)
        self._arrays: dict[str, NDArray[np.uint8]] = {}
        self._failure: Exception | None = None

    def codes(self, size: int) -> Codes:
        """Return an array for ``size`` codes and what fills the shares of all ranks up to whole bytes: codes of zero.

        It is used again: the codes and the answers of the exchange before are lost.
        """
        parts = 1 if self._chip_host is not None else self._feeds.ranks
        padded = -(-size // (parts * GROUP)) * GROUP * parts
        codes: Codes = self._array("codes", padded * self._type.itemsize).view(self._type)
        codes[size:] = 1 << (self._feeds.bits - 1)
        return codes

    def answers(self, codes: Codes) -> Codes:
        """Return the answers to this rank's `codes` and the other ranks'; equal bits on all ranks.

        Raises
        ------
        AggregationError
            If a rank's executor failed: on all ranks, naming it and its error.
        """
        sent = pack(codes, self._feeds.bits)
        answers = self._array("answers", len(sent))
        if self._chip_host is None:
            doubtful = self._by_shares(sent, answers)
        else:
            doubtful = self._by_host(sent, answers, self._chip_host)
        if doubtful:  # on all ranks, as all have the same answers
            self._ask_for_failures()
        return unpack(answers, self._feeds.bits)

    def _by_shares(self, sent: NDArray[np.uint8], answers: NDArray[np.uint8]) -> bool:
        """Fill ``answers``, each rank its share; return whether one of them is nothing but zeros."""
        ranks, mine = self._feeds.ranks, self._rank
        own = sent.reshape(ranks, -1)
        shares = self._array("shares", len(sent)).reshape(ranks, -1)
        shares[mine] = own[mine]
        transfers = Transfers(self._group)
        for shift in range(1, ranks):
            transfers.receive(shares[(mine - shift) % ranks], (mine - shift) % ranks)
            transfers.send(own[(mine + shift) % ranks], (mine + shift) % ranks)
        self._wait(transfers)
        parts = answers.reshape(ranks, -1)
        self._answer(shares, parts[mine])
        transfers = Transfers(self._group)
        transfers.swap(parts)
        self._wait(transfers)
        return not all(part.any() for part in parts)

    def _by_host(self, sent: NDArray[np.uint8], answers: NDArray[np.uint8], host: int) -> bool:
        """Fill ``answers`` by the executor of the chip host; return whether they are nothing but zeros."""
        transfers = Transfers(self._group)
        if self._rank != host:
            transfers.send(sent, host)
            transfers.receive(answers, host)
            self._wait(transfers)
            return not answers.any()
        others = [rank for rank in range(self._feeds.ranks) if rank != host]
        gathered = self._array("gathered", self._feeds.ranks * len(sent)).reshape(-1, len(sent))
        gathered[host] = sent
        for rank in others:
            transfers.receive(gathered[rank], rank)
        self._wait(transfers)
        self._answer(gathered, answers)
        transfers = Transfers(self._group)
        for rank in others:
            transfers.send(answers, rank)
        self._wait(transfers)
        return not answers.any()

    def _wait(self, transfers: Transfers) -> None:
        with self._account.phase("exchange"):
            transfers.wait()
        self.bytes_sent += transfers.bytes_sent

    def _answer(self, packed: NDArray[np.uint8], answers: NDArray[np.uint8]) -> None:
        """Write the answers, packed, to the packed codes (ranks, bytes) of one share; zeros if the executor fails.

        Zeros alone are hardly ever an answer, since a mean of nothing but zero codes is no gradient's.
        """
        assert self._executor is not None  # the handshake made sure
        bits = self._feeds.bits
        codes = unpack(packed.reshape(-1), bits).reshape(len(packed), -1)
        found = np.empty(codes.shape[1], dtype=self._type) if bits not in (8, 16) else answers.view(self._type)
        try:
            with self._account.phase("executor"):
                self._feeds.run(self._executor, codes, found)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks wait for an answer
            self._failure = error
            answers[:] = 0
            return
        if bits not in (8, 16):
            answers[:] = pack(found, bits)

    def _ask_for_failures(self) -> None:
        """Tell all ranks what failed on which, if anything did."""
        told = None if self._failure is None else f"{type(self._failure).__name__}: {self._failure}"
        messages: list[str | None] = [None] * self._feeds.ranks
        dist.all_gather_object(messages, told, group=self._group)
        failed = [f"rank {rank}: {message}" for rank, message in enumerate(messages) if message is not None]
        if failed:
            raise AggregationError(f"the executor failed on {'; '.join(failed)}") from self._failure

    def _array(self, name: str, size: int) -> NDArray[np.uint8]:
        """Return bytes (size,) that live as long as the exchange: new memory would cost as much as the arithmetic."""
        if name not in self._arrays or len(self._arrays[name]) < size:
            self._arrays[name] = np.empty(size, dtype=np.uint8)
        return self._arrays[name][:size]


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
