"""Executor: the one interface behind which the mean of the servers' codes is found, and its reference."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    InputSpace,
    Rounding,
    check_codes,
    check_integers,
    check_rounding,
    quantised_mean,
    symbol_count,
)

Progress = Callable[[int, int], None]
"""``progress(done, total)``: called after each piece of work; the unit is one vector through one tile."""

Answers = NDArray[np.integer[Any]]

Run = TypeVar("Run", bound=Callable[..., Answers])

Codes = NDArray[np.integer[Any]]

CHUNK = 1 << 16  # elements whose temporaries stay in the cache
_USUAL_INPUTS = 4  # K of the paper's four scenarios


def placed(answers: Answers, out: Answers | None) -> Answers:
    """Return ``answers``, in ``out`` if it is given."""
    if out is None:
        return answers
    checked_out(out, answers.shape)[...] = answers
    return out


def checked_out(out: Answers, shape: tuple[int, ...]) -> Answers:
    """Return ``out`` if it can take answers of this shape."""
    if out.shape != shape or out.dtype.kind not in "iu":
        raise NetworkError(f"out has shape {out.shape} and dtype {out.dtype}; the answers are integers {shape}")
    return out


class Executor(Protocol):
    """Anything that answers servers' codes with the code of their mean."""

    @property
    def servers(self) -> int:
        """Number N of servers."""

    @property
    def bits(self) -> int:
        """Width B of a code."""

    @property
    def inputs(self) -> int:
        """Number K of unit P's averages on which alone the answer depends."""

    @property
    def batch_limit(self) -> int | None:
        """Batch that suits `run` best where many calls cost nothing; None if one call should take all."""

    def run(self, codes: ArrayLike, out: Answers | None = None) -> Answers:
        """Answer codes (batch, servers) with codes (batch,), of type int64 or in ``out``, which is returned then."""


def answers_in_range(run: Run) -> Run:
    """Mark a ``run`` whose answers are in range before they come into ``out``; one that overrides it is not marked.

    An answer that is out of range is still seen in int64, but no longer once it was written into 8 bits.
    """
    run.answers_in_range = True  # type: ignore[attr-defined] # functions take any attribute
    return run


def answer(executor: Executor, codes: Codes, out: Answers) -> None:
    """Write an executor's answers to codes (batch, servers) into ``out`` (batch,), which holds any code.

    Raises
    ------
    NetworkError
        If the answers are not one integer in range for each element; ``out`` is as it was unless the executor failed.
    """
    marked = getattr(executor.run, "answers_in_range", False) is True
    returned = executor.run(codes, out=out) if marked else executor.run(codes)
    who = type(executor).__name__
    found = check_integers(returned, 1 << executor.bits, f"{who}'s answer")
    if found.shape != out.shape:
        raise NetworkError(
            f"{who} answered {len(out)} elements with shape {found.shape}; run must return one integer for each"
        )
    if returned is not out:
        out[...] = found


class ExactExecutor:
    """Integer arithmetic: the reference.

    Parameters
    ----------
    servers
        Number N of servers, any from 1.
    bits
        Width B of a code.
    rounding
        ``"half_up"`` or ``"floor"``.

    Raises
    ------
    NetworkError
        If a parameter is out of range.
    """

    def __init__(self, servers: int, bits: int = 8, rounding: Rounding = "half_up") -> None:
        check_rounding(rounding)
        symbols = symbol_count(bits)
        group = -(-symbols // _USUAL_INPUTS)
        space = InputSpace(servers, bits, -(-symbols // group))
        self.servers = space.servers
        self.bits = space.bits
        self.inputs = space.inputs
        self.rounding: Rounding = rounding
        self.batch_limit = CHUNK

    @answers_in_range
    def run(self, codes: ArrayLike, out: Answers | None = None) -> Answers:
        """Return the mean (batch,) of the servers' codes (batch, servers), of type int64 or in ``out``.

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server.
        """
        return placed(quantised_mean(check_codes(codes, self.servers, self.bits), self.rounding), out)
