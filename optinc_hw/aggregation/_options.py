"""Settings of the hook."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Literal, get_args

from optinc_hw.aggregation._quantizer import BlockQuantizer, CodeRounding
from optinc_hw.errors import GradientError

NonFinite = Literal["propagate", "raise"]


@dataclass(frozen=True)
class OptincOptions:
    """Settings of `optinc_hook`, equal on all ranks.

    Parameters
    ----------
    bits
        Width B of a code, 2 to 16.
    block_size
        Elements that share a scale; blocks never reach over the border of a parameter.
    rounding
        Of values to codes, see `BlockQuantizer`.
    error_feedback
        Keep what quantisation dropped of each parameter's gradient and add it to the next one.
    chip_host
        Rank that holds the executor, such as one with a bench; None: every rank answers its share of the elements.
    non_finite
        What becomes of a block with NaN or Inf on any rank: ``"propagate"`` makes it NaN on all ranks, which
        ``GradScaler`` and clipping notice as they do without a hook; ``"raise"`` ends the step on all ranks.
    warmup_steps
        First steps whose gradients are averaged in floating point.
    timeout_s
        Longest time in s from the loss of a rank to the error on all others; an exchange, with the executor's work in
        it, may take three quarters of it.
    seed
        Of stochastic rounding.
    shared_memory
        Ranks that are all on one machine hand codes over in memory, without copies through sockets; with False, and
        wherever one of them does not see the others' memory, they use sockets.

    Raises
    ------
    GradientError
        If a setting has the wrong type or is out of range.
    """

    bits: int = 8
    block_size: int = 1024
    rounding: CodeRounding = "nearest"
    error_feedback: bool = False
    chip_host: int | None = None
    non_finite: NonFinite = "propagate"
    warmup_steps: int = 0
    timeout_s: float = 300.0
    seed: int = 0
    shared_memory: bool = True

    def __post_init__(self) -> None:
        self.quantizer()
        if self.non_finite not in get_args(NonFinite):
            raise GradientError(f"non_finite must be one of {get_args(NonFinite)}, got {self.non_finite!r}")
        for name in ("warmup_steps", "seed") + (() if self.chip_host is None else ("chip_host",)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise GradientError(f"{name} must be an integer of at least 0, got {value!r}")
        for name in ("error_feedback", "shared_memory"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise GradientError(f"{name} must be True or False, got {value!r} of type {type(value).__name__}")
        timed = isinstance(self.timeout_s, Real) and not isinstance(self.timeout_s, bool)
        if not timed or not 0.0 < self.timeout_s < math.inf:
            raise GradientError(f"timeout_s must be a positive, finite number of seconds, got {self.timeout_s!r}")

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> "OptincOptions":
        """Make options of a trainer's settings by name.

        Raises
        ------
        GradientError
            If a name is unknown or a value out of range.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise GradientError(
                f"unknown options of the OptINC hook: {', '.join(unknown)}; there are {', '.join(known)}"
            )
        return cls(**settings)

    def quantizer(self) -> BlockQuantizer:
        """Return the quantiser of these settings."""
        return BlockQuantizer(self.bits, self.block_size, self.rounding)
