"""Codes between ranks: to where the executor is and back, over the process group.

Every exchange runs on CPU tensors and groups of its own: one for the maxima, and one for each of the lanes in which
buckets take turns.  So each group sees its exchanges in the same order on every rank, although maxima are agreed ahead
of the codes and one lane computes while the other waits.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._feeds import Feeds
from optinc_hw.aggregation._packing import GROUP, pack, unpack
from optinc_hw.aggregation._quantizer import Codes, Floats
from optinc_hw.errors import AggregationError

LANES = 2


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
        maxima, health, *lanes = (
            dist.new_group(ranks, timeout, "gloo", use_local_synchronization=True) for _ in range(2 + LANES)
        )
        return cls(maxima, tuple(lanes), health)


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
    """

    def __init__(
        self, group: dist.ProcessGroup, executor: Executor | None, chip_host: int | None, feeds: Feeds
    ) -> None:
        self._group = group
        self._executor = executor
        self._chip_host = chip_host
        self._feeds = feeds
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
            failed = self._by_shares(sent, answers)
        else:
            failed = self._by_host(sent, answers, self._chip_host)
        if failed:
            self._raise_failures()
        return unpack(answers, self._feeds.bits)

    def _by_shares(self, sent: NDArray[np.uint8], answers: NDArray[np.uint8]) -> bool:
        """Fill ``answers``, each rank its share; return whether an executor failed."""
        ranks = self._feeds.ranks
        shares = self._array("shares", len(sent))
        dist.all_to_all_single(torch.from_numpy(shares), torch.from_numpy(sent), group=self._group)
        parts = answers.reshape(ranks, -1)
        failed = torch.zeros((ranks, 1), dtype=torch.uint8)
        failed[self._rank] = self._answer(shares.reshape(ranks, -1), parts[self._rank])
        self._gather([torch.from_numpy(parts), failed])
        return bool(failed.any())

    def _gather(self, tables: list[torch.Tensor]) -> None:
        """Give every rank all rows of tables of which it has its own; without the copies of ``all_gather``."""
        ranks, mine = self._feeds.ranks, self._rank
        transfers = []
        for shift in range(1, ranks):
            to = dist.get_global_rank(self._group, (mine + shift) % ranks)
            source = (mine - shift) % ranks
            for table in tables:
                transfers.append(dist.irecv(table[source], dist.get_global_rank(self._group, source), self._group))
                transfers.append(dist.isend(table[mine], to, self._group))
        for work in transfers:
            if work is not None:  # as it is on ranks outside the group only
                work.wait()

    def _by_host(self, sent: NDArray[np.uint8], answers: NDArray[np.uint8], host: int) -> bool:
        """Fill ``answers`` by the executor of the chip host; return whether it failed."""
        source = dist.get_global_rank(self._group, host)
        failed = torch.zeros(1, dtype=torch.uint8)
        if self._rank != host:
            dist.gather(torch.from_numpy(sent), None, source, group=self._group)
        else:
            gathered = self._array("gathered", self._feeds.ranks * len(sent)).reshape(-1, len(sent))
            dist.gather(torch.from_numpy(sent), list(torch.from_numpy(gathered)), source, group=self._group)
            failed[0] = self._answer(gathered, answers)
        dist.broadcast(failed, source, group=self._group)
        dist.broadcast(torch.from_numpy(answers), source, group=self._group)
        return bool(failed.any())

    def _answer(self, packed: NDArray[np.uint8], answers: NDArray[np.uint8]) -> bool:
        """Write the answers, packed, to the packed codes (ranks, bytes) of one share; return whether that failed."""
        assert self._executor is not None  # the handshake made sure
        bits = self._feeds.bits
        codes = unpack(packed.reshape(-1), bits).reshape(len(packed), -1)
        found = np.empty(codes.shape[1], dtype=self._type) if bits not in (8, 16) else answers.view(self._type)
        try:
            self._feeds.run(self._executor, codes, found)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks wait for an answer
            self._failure = error
            return True
        if bits not in (8, 16):
            answers[:] = pack(found, bits)
        return False

    def _raise_failures(self) -> None:
        """Tell all ranks what failed on which."""
        told = None if self._failure is None else f"{type(self._failure).__name__}: {self._failure}"
        messages: list[str | None] = [None] * self._feeds.ranks
        dist.all_gather_object(messages, told, group=self._group)
        failed = "; ".join(f"rank {rank}: {message}" for rank, message in enumerate(messages) if message is not None)
        raise AggregationError(f"the executor failed on {failed}") from self._failure

    def _array(self, name: str, size: int) -> NDArray[np.uint8]:
        """Return bytes (size,) that live as long as the exchange: new memory would cost as much as the arithmetic."""
        if name not in self._arrays or len(self._arrays[name]) < size:
            self._arrays[name] = np.empty(size, dtype=np.uint8)
        return self._arrays[name][:size]


def agree_maxima(group: dist.ProcessGroup, maxima: Floats) -> dist.Work:
    """Begin to replace ``maxima`` by the largest of all ranks; NaN counts as Inf."""
    np.copyto(maxima, np.inf, where=~np.isfinite(maxima))
    work: dist.Work = dist.all_reduce(torch.from_numpy(maxima), dist.ReduceOp.MAX, group=group, async_op=True)
    return work
