"""Table executor: answers that were asked for once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.aggregation import _kernels
from optinc_hw.aggregation._executor import Answers, Executor, Progress, answer, answers_in_range, checked_out
from optinc_hw.aggregation._quantizer import Codes
from optinc_hw.errors import NetworkError
from optinc_hw.onn import InputSpace, check_codes, check_integers

_TABLE_LIMIT = 1 << 24
_PIECE = 1 << 15  # codes of a server that are copied at a time, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class _Fields:
    """Codes as at most four fields of equal width whose sums over the servers fit a byte each.

    Parameters
    ----------
    width
        Bits of a field, 2 or 4.
    strides
        Weight of each field (4,) in a point's index, the lowest field first.
    """

    width: int
    strides: NDArray[np.int32]

    @classmethod
    def of(cls, space: InputSpace) -> "_Fields | None":
        """Return the fields of a space's codes, or None if they have others."""
        width = 2 * space.group
        if width not in (2, 4) or space.inputs > 4 or max(space.levels) > 256:
            return None
        strides = np.zeros(4, dtype=np.int32)
        strides[: space.inputs] = np.cumprod((1, *space.levels[:0:-1]))
        return cls(width, strides)


class TableExecutor:
    """Precomputed answers over the whole input space of unit P: the fast path.

    Parameters
    ----------
    space
        The input space.
    table
        Answer (space.size,) to each point, in the order of ``space``; integers in 0 .. 2**bits - 1.

    Raises
    ------
    NetworkError
        If the table does not fit the space or the codes, or codes have more than 16 bits.
    """

    def __init__(self, space: InputSpace, table: ArrayLike) -> None:
        answers = check_integers(table, 1 << space.bits, "table answer")
        if answers.shape != (space.size,):
            raise NetworkError(f"a table of shape {answers.shape} does not fit an input space of {space.size} points")
        self._keys = space.keys.astype(np.int32)
        self._fields = _Fields.of(space)
        self._table = answers.astype(np.uint8 if space.bits <= 8 else np.uint16)
        self.space = space
        self.servers = space.servers
        self.bits = space.bits
        self.inputs = space.inputs
        self.batch_limit = None

    @classmethod
    def from_executor(cls, executor: Executor, progress: Progress | None = None) -> "TableExecutor":
        """Ask ``executor`` once for every point.

        Of an executor with noise this keeps one draw for good: equal inputs then get equal answers, wrong ones
        included, while the live executor would err afresh each time.

        Parameters
        ----------
        executor
            Where the answers come from.
        progress
            Called with (points done, points in all).

        Raises
        ------
        NetworkError
            If the space has more than 2**24 points (16 bits and 4 servers on K = 4 inputs, or 8 bits and 16
            servers, still fit), or an answer is no code.
        """
        space = InputSpace(executor.servers, executor.bits, executor.inputs)
        if space.size > _TABLE_LIMIT:
            raise NetworkError(
                f"a table for {space.servers} servers, {space.bits} bits and {space.inputs} inputs needs {space.size} "
                f"entries; the limit is {_TABLE_LIMIT}: use fewer inputs or run the executor itself"
            )
        table = np.empty(space.size, dtype=np.int64)
        stride = 1 << 20
        for start in range(0, space.size, stride):
            stop = min(start + stride, space.size)
            answer(executor, space.codes(np.arange(start, stop)), table[start:stop])
            if progress is not None:
                progress(stop, space.size)
        return cls(space, table)

    @answers_in_range
    def run(self, codes: ArrayLike, out: Answers | None = None) -> Answers:
        """Look up the answers (batch,) to the servers' codes (batch, servers), of type int64 or in ``out``.

        Fastest with unsigned 8- or 16-bit codes whose columns are contiguous.

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server, or ``out`` does not fit.
        """
        columns = check_codes(codes, self.servers, self.bits).T
        answers = np.empty(columns.shape[1], dtype=np.int64) if out is None else checked_out(out, columns.shape[1:])
        piece = len(answers) if columns.flags.c_contiguous else _PIECE
        for start in range(0, len(answers), max(1, piece)):
            self._look_up(np.ascontiguousarray(columns[:, start : start + piece]), answers[start : start + piece])
        return answers

    def _look_up(self, columns: Codes, answers: Answers) -> None:
        if self._fields is None:
            _kernels.look_up(columns, self._keys, self._table, answers)
        else:
            _kernels.look_up_fields(columns, self._fields.width, self._fields.strides, self._table, answers)
