"""Codes of all ranks to where the executor is, and its answers back."""

import numpy as np
from numpy.typing import NDArray

from optinc_hw.aggregation._account import Account
from optinc_hw.aggregation._carriers import Carrier, SharedMemory, Sockets
from optinc_hw.aggregation._common_memory import CommonMemory
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._feeds import Feeds
from optinc_hw.aggregation._packing import GROUP, pack, packed_size, unpack
from optinc_hw.aggregation._quantizer import Codes
from optinc_hw.aggregation._transfers import Group, told_by_all
from optinc_hw.errors import AggregationError


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
    shared_memory
        Whether ranks of one machine hand codes over in memory.
    """

    def __init__(
        self,
        group: Group,
        executor: Executor | None,
        chip_host: int | None,
        feeds: Feeds,
        account: Account,
        *,
        shared_memory: bool,
    ) -> None:
        self._group = group
        self._executor = executor
        self._holders = range(feeds.ranks) if chip_host is None else (chip_host,)
        self._feeds = feeds
        self._account = account
        self._shared_memory = shared_memory
        self._carrier: Carrier = Sockets(group, self._holders)
        self._type = np.dtype(np.uint8 if feeds.bits <= 8 else np.uint16)
        self._failure: BaseException | None = None

    @property
    def bytes_sent(self) -> int:
        """Bytes of codes and answers that this rank has handed to others over the present way."""
        return self._carrier.bytes_sent

    @property
    def way(self) -> str:
        """How bytes travel: ``"shared memory"`` or ``"sockets"``."""
        return "shared memory" if isinstance(self._carrier, SharedMemory) else "sockets"

    def codes(self, size: int) -> Codes:
        """Return an array for ``size`` codes and what fills the shares of all ranks up to whole bytes: codes of zero.

        It is used again: the codes and the answers of the exchange before are lost.
        """
        parts = len(self._holders)
        padded = -(-size // (parts * GROUP)) * GROUP * parts
        room = self._room(packed_size(padded, self._feeds.bits))
        codes: Codes = np.empty(padded, dtype=self._type) if self._packs else room.view(self._type)
        codes[size:] = 1 << (self._feeds.bits - 1)
        return codes

    def answers(self, codes: Codes) -> Codes:
        """Return the answers to this rank's `codes` and the other ranks'; equal bits on all ranks.

        Raises
        ------
        AggregationError
            If a rank's executor failed, or answered with code 0 alone: on all ranks, naming it and its error.
        """
        if self._packs:
            self._carrier.room(packed_size(len(codes), self._feeds.bits))[:] = pack(codes, self._feeds.bits)
        with self._account.phase("exchange"):
            gathered = self._carrier.collect()
        if gathered is not None:
            self._answer(gathered, self._carrier.own_answers())
        with self._account.phase("exchange"):
            answers = self._carrier.spread()
        if not all(part.any() for part in answers.reshape(len(self._holders), -1)):
            self._ask_for_failures(answers)  # on all ranks, as all have the same answers
        return unpack(answers, self._feeds.bits)

    @property
    def _packs(self) -> bool:
        """Whether codes as they are made are no whole bytes."""
        return self._feeds.bits not in (8, 16)

    def _room(self, size: int) -> NDArray[np.uint8]:
        """Return where packed codes (size,) are written; memory of all ranks is made anew when it is too small."""
        carrier = self._carrier
        if self._shared_memory and not (isinstance(carrier, SharedMemory) and size <= carrier.capacity):
            memory = CommonMemory.shared(self._group, size)
            self._shared_memory = memory is not None
            self._carrier = (
                Sockets(self._group, self._holders) if memory is None
                else SharedMemory(self._group, self._holders, memory)
            )  # fmt: skip
        return self._carrier.room(size)

    def _answer(self, packed: NDArray[np.uint8], answers: NDArray[np.uint8]) -> None:
        """Write the answers, packed, to the packed codes (ranks, bytes) of one share; zeros if the executor fails.

        Zeros alone are no answer: gradients have no code 0, so that no mean is 0.
        """
        assert self._executor is not None  # the handshake made sure
        bits = self._feeds.bits
        codes = unpack(packed.reshape(-1), bits).reshape(len(packed), -1) if self._packs else packed.view(self._type)
        found = np.empty(codes.shape[1], dtype=self._type) if self._packs else answers.view(self._type)
        try:
            with self._account.phase("executor"):
                self._feeds.run(self._executor, codes, found)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the other ranks wait for an answer
            self._failure = error
            answers[:] = 0
            return
        if self._packs:
            answers[:] = pack(found, bits)

    def _ask_for_failures(self, answers: NDArray[np.uint8]) -> None:
        """Tell all ranks what failed on which rank; without a failure an executor gave the zeros."""
        told = None if self._failure is None else f"{type(self._failure).__name__}: {self._failure}"
        messages: list[str | None] = told_by_all(self._group, told)
        failed = [f"rank {rank}: {message}" for rank, message in enumerate(messages) if message is not None]
        if failed:
            raise AggregationError(f"the executor failed on {'; '.join(failed)}") from self._failure
        parts = answers.reshape(len(self._holders), -1)
        dark = [str(rank) for rank, part in zip(self._holders, parts, strict=True) if not part.any()]
        raise AggregationError(
            f"the executor of rank {', '.join(dark)} answered with code 0 alone, which is no mean of gradients' codes, "
            "as they are never 0; check the chip's light and receivers"
        )
