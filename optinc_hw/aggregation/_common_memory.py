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

_FOLDER = Path("/dev/shm")  # files there are memory
_PREFIX = "optinc-"
_TOKEN = 16
_PAGE = mmap.PAGESIZE


class CommonMemory:
    """Rows of bytes that all ranks of a group see, one for each rank's codes and one for the answers.

    The file behind them has no name any more as soon as all ranks have it, so that nothing stays behind however ranks
    end.

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
        token = np.zeros(_TOKEN, dtype=np.uint8)
        memory = None
        try:
            transfers = Transfers(group)
            if mine == 0:
                token[:] = np.frombuffer(secrets.token_bytes(_TOKEN), dtype=np.uint8)
                memory = _made(token, shape)
                for rank in range(1, ranks):
                    transfers.send(token, rank)
            else:
                transfers.receive(token, 0)
            transfers.wait()
            if mine != 0:
                memory = _found(token, shape)
            seen = np.zeros((ranks, 1), dtype=np.uint8)
            seen[mine] = memory is not None
            transfers = Transfers(group)
            transfers.swap(seen)
            transfers.wait()
        finally:
            if mine == 0 and memory is not None:
                _path(token).unlink(missing_ok=True)
        return cls(memory) if memory is not None and seen.all() else None


def _path(token: Bytes) -> Path:
    return _FOLDER / f"{_PREFIX}{token.tobytes().hex()}"


def _made(token: Bytes, shape: tuple[int, int]) -> Bytes | None:
    """Make the file and write the token to its beginning; None if that is not possible."""
    size = shape[0] * shape[1]
    with contextlib.suppress(OSError):
        descriptor = os.open(_path(token), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)  # a file with holes would end the process once memory is used up
            rows = np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8).reshape(shape)
        except OSError:
            _path(token).unlink()
            raise
        finally:
            os.close(descriptor)
        rows[0, :_TOKEN] = token
        return rows
    return None


def _found(token: Bytes, shape: tuple[int, int]) -> Bytes | None:
    """Open the file with this token; None if this process does not see it."""
    size = shape[0] * shape[1]
    with contextlib.suppress(OSError):
        descriptor = os.open(_path(token), os.O_RDWR | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size != size:
                return None
            rows = np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8).reshape(shape)
        finally:
            os.close(descriptor)
        return rows if np.array_equal(rows[0, :_TOKEN], token) else None
    return None
