"""Codes between ranks: to where the executor is and back, over the process group.

Every collective of this module runs on CPU tensors of two groups of its own, one for the maxima and one for the codes.
So each group sees its collectives in the same order on every rank, although maxima are agreed ahead of the codes.
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

_STATUS = 8  # bytes behind the answers that tell whether the executor failed; 8 keep 16-bit codes aligned


@dataclass(frozen=True)
class Groups:
    """Process groups of the hook.

    Parameters
    ----------
    maxima
        For the largest values of blocks.
    codes
        For codes and answers.
    health
        For finding out who does not answer any more.
    """

    maxima: dist.ProcessGroup
    codes: dist.ProcessGroup
    health: dist.ProcessGroup

    @classmethod
    def beside(cls, group: dist.ProcessGroup | None, timeout_s: float) -> "Groups":
        """Make groups of the ranks of ``group``; every one of its ranks must call this."""
        ranks = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
        timeout = timedelta(seconds=timeout_s)
        made = [dist.new_group(ranks, timeout, "gloo", use_local_synchronization=True) for _ in range(3)]
        return cls(*made)


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
        self._failure: Exception | None = None

    def padded(self, size: int) -> int:
        """Return how many codes travel for ``size`` of them: whole bytes for each rank."""
        parts = 1 if self._chip_host is not None else self._feeds.ranks
        share = -(-size // (parts * GROUP)) * GROUP
        return share * parts

    def answers(self, codes: Codes) -> Codes:
        """Return the answers (padded size,) to this rank's codes and the other ranks'; equal bits on all ranks.

        Raises
        ------
        AggregationError
            If a rank's executor failed: on all ranks, naming it and its error.
        """
        sent = torch.from_numpy(pack(codes, self._feeds.bits))
        received = self._by_shares(sent) if self._chip_host is None else self._by_host(sent, self._chip_host)
        if received[:, -1].any():
            self._raise_failures()
        return unpack(np.ascontiguousarray(received[:, :-_STATUS]).reshape(-1), self._feeds.bits)

    def _by_shares(self, sent: torch.Tensor) -> NDArray[np.uint8]:
        ranks = self._feeds.ranks
        shares = torch.empty_like(sent)
        dist.all_to_all_single(shares, sent, group=self._group)
        answer = self._answer(shares.reshape(ranks, -1).numpy())
        everything = torch.empty((ranks, len(answer)), dtype=torch.uint8)
        dist.all_gather(list(everything.unbind()), answer, group=self._group)
        return everything.numpy()

    def _by_host(self, sent: torch.Tensor, host: int) -> NDArray[np.uint8]:
        source = dist.get_global_rank(self._group, host)
        if self._rank != host:
            dist.gather(sent, None, source, group=self._group)
            answer = torch.empty(len(sent) + _STATUS, dtype=torch.uint8)
        else:
            gathered = torch.empty((self._feeds.ranks, len(sent)), dtype=torch.uint8)
            dist.gather(sent, list(gathered.unbind()), source, group=self._group)
            answer = self._answer(gathered.numpy())
        dist.broadcast(answer, source, group=self._group)
        return answer.numpy()[None]

    def _answer(self, packed: NDArray[np.uint8]) -> torch.Tensor:
        """Return the answers, packed, to the packed codes (ranks, bytes) of one share, and the status behind."""
        assert self._executor is not None  # the handshake made sure
        bits = self._feeds.bits
        codes = unpack(packed.reshape(-1), bits).reshape(len(packed), -1)
        answer = np.zeros(packed.shape[1] + _STATUS, dtype=np.uint8)
        answers = np.empty(codes.shape[1], dtype=codes.dtype)
        try:
            self._feeds.run(self._executor, codes, answers)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks wait for an answer
            self._failure = error
            answer[-1] = 1
        else:
            answer[:-_STATUS] = pack(answers, bits)
        return torch.from_numpy(answer)

    def _raise_failures(self) -> None:
        """Tell all ranks what failed on which."""
        told = None if self._failure is None else f"{type(self._failure).__name__}: {self._failure}"
        messages: list[str | None] = [None] * self._feeds.ranks
        dist.all_gather_object(messages, told, group=self._group)
        failed = "; ".join(f"rank {rank}: {message}" for rank, message in enumerate(messages) if message is not None)
        raise AggregationError(f"the executor failed on {failed}") from self._failure


def agree_maxima(group: dist.ProcessGroup, maxima: Floats) -> dist.Work:
    """Begin to replace ``maxima`` by the largest of all ranks; NaN counts as Inf."""
    np.copyto(maxima, np.inf, where=~np.isfinite(maxima))
    work: dist.Work = dist.all_reduce(torch.from_numpy(maxima), dist.ReduceOp.MAX, group=group, async_op=True)
    return work
