"""Ranks on the inputs of a network that may have more of them."""

from dataclasses import dataclass

import numpy as np

from optinc_hw.aggregation._executor import Answers, Executor, answer
from optinc_hw.aggregation._quantizer import Codes
from optinc_hw.errors import NetworkError


@dataclass(frozen=True)
class Feeds:
    """Which rank feeds which input of an executor: every rank equally many, the rest stay at zero.

    With 2 ranks on 4 inputs each rank feeds two, and the mean is the ranks' own.  With 3 ranks on 4 inputs one input
    stays at the code of zero; the mean is then 3/4 of the ranks' and `factor` 4/3, with steps coarser by as much.

    Parameters
    ----------
    ranks
        Number of ranks.
    servers
        Number N of inputs.
    bits
        Width of a code.

    Raises
    ------
    NetworkError
        If there are more ranks than inputs.
    """

    ranks: int
    servers: int
    bits: int

    def __post_init__(self) -> None:
        if self.ranks > self.servers:
            raise NetworkError(
                f"{self.ranks} ranks cannot feed {self.servers} inputs; give an executor for {self.ranks} servers, "
                "such as a tree of networks (build_cascade)"
            )

    @property
    def repeats(self) -> int:
        """Inputs that each rank feeds."""
        return self.servers // self.ranks

    @property
    def factor(self) -> float:
        """Mean of the ranks over the mean of the inputs."""
        return self.servers / (self.repeats * self.ranks)

    def columns(self, codes: Codes) -> Codes:
        """Return codes (ranks, batch) as codes (servers, batch)."""
        if self.ranks == self.servers:
            return codes
        fed = np.repeat(codes, self.repeats, axis=0)
        rest = np.full((self.servers - len(fed), codes.shape[1]), 1 << (self.bits - 1), dtype=codes.dtype)
        return np.concatenate([fed, rest])

    def run(self, executor: Executor, codes: Codes, out: Answers) -> None:
        """Write the executor's answers to codes (ranks, batch) into ``out`` (batch,).

        Raises
        ------
        NetworkError
            If an answer is no code.
        """
        columns = self.columns(codes)
        limit = executor.batch_limit or len(out)
        for start in range(0, len(out), max(1, limit)):
            piece = slice(start, start + limit)
            answer(executor, columns[:, piece].T, out[piece])
