"""Memory that the ranks of one machine share."""

import contextlib
import mmap
import os
import secrets
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optinc_hw.aggregation._transfers import Group, Transfers

Bytes = NDArray[np.uint8]

_PROCESSES = Path("/proc")
_NAME = "optinc"  # of the memory in listings of a process's open files; it is in no folder
_TOKEN = 16
_PAGE = mmap.PAGESIZE


class CommonMemory:
    """Rows of bytes that all ranks of a group see, one for each rank's codes and one for the answers.

    The memory belongs to no file: it ends with the last process that has it, however ranks end.

    Parameters
    ----------
    rows
        Bytes (ranks + 1, capacity).
    """

    def __init__(self, rows: Bytes) -> None:
        self._rows = rows

    @property
    def capacity(self) -> int:
        """Bytes of a row."""
        return int(self._rows.shape[1])

    @property
    def codes(self) -> Bytes:
        """Codes (ranks, capacity)."""
        return self._rows[:-1]

    @property
    def answers(self) -> Bytes:
        """Answers (capacity,)."""
        return np.asarray(self._rows[-1])

    @classmethod
    def shared(cls, group: Group, size: int) -> "CommonMemory | None":
        """Make rows of at least ``size`` bytes for the ranks of a group, which must all call this.

        Returns
        -------
        CommonMemory or None
            None on all ranks if one of them does not see the memory of the first, or there is not enough.
        """
        ranks, mine = group.size(), group.rank()
        shape = ranks + 1, -(-size // _PAGE) * _PAGE
        place = np.zeros(2 + _TOKEN, dtype=np.int64)  # process, descriptor and bytes that the first rank has drawn
        memory, descriptor = None, -1
        try:
            transfers = Transfers(group)
            if mine == 0:
                token = np.frombuffer(secrets.token_bytes(_TOKEN), dtype=np.uint8)
                memory, descriptor = _made(token, shape)
                place[:] = os.getpid(), descriptor, *token
                for rank in range(1, ranks):
                    transfers.send(place, rank)
            else:
                transfers.receive(place, 0)
            transfers.wait()
            if mine != 0:
                memory = _found(place, shape)
            seen = np.zeros((ranks, 1), dtype=np.uint8)
            seen[mine] = memory is not None
            transfers = Transfers(group)
            transfers.swap(seen)
            transfers.wait()
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return cls(memory) if memory is not None and seen.all() else None


def _made(token: Bytes, shape: tuple[int, int]) -> tuple[Bytes | None, int]:
    """Make memory with the token at its beginning; return it and its descriptor, or None and -1."""
    if not hasattr(os, "memfd_create"):  # not on Linux
        return None, -1
    size, descriptor = shape[0] * shape[1], -1
    try:
        descriptor = os.memfd_create(_NAME)
        os.posix_fallocate(descriptor, 0, size)  # memory with holes would end the process once memory is used up
        rows = np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8).reshape(shape)
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        return None, -1
    rows[0, :_TOKEN] = token
    return rows, descriptor


def _found(place: NDArray[np.int64], shape: tuple[int, int]) -> Bytes | None:
    """Open the memory of the first rank; None if this process does not see it."""
    process, opened, *token = place.tolist()
    path, size = _PROCESSES / f"{process}/fd/{opened}", shape[0] * shape[1]
    with contextlib.suppress(OSError):
        if opened < 0 or not str(path.readlink()).startswith(f"/memfd:{_NAME}"):
            return None  # with other numbers of processes this is another one's, and opening it might do something
        descriptor = os.open(path, os.O_RDWR)
        try:
            if os.fstat(descriptor).st_size != size:
                return None
            rows = np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8).reshape(shape)
        finally:
            os.close(descriptor)
        return rows if rows[0, :_TOKEN].tolist() == token else None
    return None
