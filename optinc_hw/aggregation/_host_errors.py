"""The error of requests to a chip host."""

from typing import Literal

from optinc_hw.errors import AggregationError

Outcome = Literal["not_done", "failed", "unknown"]


class ChipHostError(AggregationError):
    """A request to a chip host that has no answer.

    Parameters
    ----------
    message
        What happened, and what to do.
    outcome
        ``"not_done"``: nothing of it has run on the chip, nor will; it can be sent again.  ``"failed"``: it began, and
        the executor failed.  ``"unknown"``: it may have run or may be running, and its answer is lost.
    """

    def __init__(self, message: str, outcome: Outcome = "unknown") -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
