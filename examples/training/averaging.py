"""Ways to average gradients: plain all-reduce, and the hook with several executors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch.distributed as dist
from numpy.typing import ArrayLike, NDArray
from torch.nn.parallel import DistributedDataParallel

from optinc_hw.aggregation import (
    ExactExecutor,
    Executor,
    OptincOptions,
    OptincState,
    TableExecutor,
    TwinExecutor,
    register_optinc_hook,
)
from optinc_hw.errors import ConfigurationError
from optinc_hw.onn import InputSpace, build_exact

Source = Literal["float", "exact", "table", "twin"]
"""Where means come from: plain all-reduce, integer arithmetic, a table of it, or a table of a twin's answers."""


@dataclass(frozen=True)
class ErrorStatistics:
    """How often a network answers wrongly, and by how much.

    Parameters
    ----------
    rate
        Share of the answers that are wrong.
    shares
        Share of the wrong answers by their error, in units of the last bit.
    """

    rate: float
    shares: Mapping[int, float]


# Table II of arXiv 2603.28290: 16 bits, 4 servers, by approximated layers.  The rate is 1 - accuracy; +-1 is taken as
# equally often +1 and -1.  That "all of layers 4 to 6" makes no errors needs no row.
TABLE_II = {
    "4-7": ErrorStatistics(1.4e-6, {1: 0.45, -1: 0.45, -64: 0.1}),
    "4-8": ErrorStatistics(1e-7, {1024: 1.0}),
    "3-6": ErrorStatistics(1.109e-4, {1: 0.495, -1: 0.495, 1024: 0.0045, -1024: 0.0045, -4: 0.001}),
    "3-7": ErrorStatistics(6.4e-6, {4: 0.3975, -4: 0.3975, -16: 0.17, 12: 0.035}),
}


class InjectedErrors:
    """An executor some of whose answers are made wrong at random, as the paper does in its trainings.

    A real network errs at certain inputs and always in the same way; here each answer may err, whatever its input.
    Answers that an error would carry out of the range of codes stay at its end.

    Parameters
    ----------
    executor
        Whose answers are taken.
    errors
        How often and by how much they are made wrong.
    rng
        Draws the errors; every rank needs one of its own.

    Attributes
    ----------
    injected : int
        Answers made wrong so far.

    Raises
    ------
    ConfigurationError
        If an error is as large as the range of codes.
    """

    def __init__(self, executor: Executor, errors: ErrorStatistics, rng: np.random.Generator) -> None:
        self._top = (1 << executor.bits) - 1
        self._values, self._shares = np.array(list(errors.shares)), np.array(list(errors.shares.values()))
        if np.abs(self._values).max() > self._top:
            raise ConfigurationError(
                f"errors of up to {np.abs(self._values).max()} do not fit codes of {executor.bits} bits; those of "
                "Table II are for 16 bits"
            )
        self._executor, self._rate, self._rng = executor, errors.rate, rng
        self.servers = executor.servers
        self.bits = executor.bits
        self.inputs = executor.inputs
        self.batch_limit = executor.batch_limit
        self.injected = 0

    def run(self, codes: ArrayLike, out: NDArray[np.integer[Any]] | None = None) -> NDArray[np.integer[Any]]:
        """Answer codes (batch, servers) with codes (batch,), of type int64 or in ``out``."""
        answers = self._executor.run(codes, out)
        wrong = self._rng.binomial(len(answers), self._rate)
        places = self._rng.choice(len(answers), wrong, replace=False)
        errors = self._rng.choice(self._values, wrong, p=self._shares)
        answers[places] = np.clip(answers[places].astype(np.int64) + errors, 0, self._top)
        self.injected += wrong
        return answers


@dataclass(frozen=True)
class Averaging:
    """How the gradients of the ranks become their mean.

    Parameters
    ----------
    source
        Where means come from.
    options
        Of the hook.
    errors
        Errors to add to the answers; None: none.
    answers
        Of a twin to all inputs, see `twin_answers`.
    """

    source: Source = "table"
    options: OptincOptions = field(default_factory=OptincOptions)
    errors: ErrorStatistics | None = None
    answers: NDArray[np.integer[Any]] | None = None

    def executor(self, ranks: int, rank: int, seed: int) -> Executor:
        """Make the executor of a rank; ``seed`` is of the errors."""
        exact = ExactExecutor(ranks, self.options.bits)
        made: Executor = exact
        if self.source == "table":
            made = TableExecutor.from_executor(exact)
        elif self.source == "twin":
            if self.answers is None:
                raise ConfigurationError("averaging by a twin needs its answers; ask twin_answers for them")
            made = TableExecutor(InputSpace(ranks, exact.bits, exact.inputs), self.answers)
        if self.errors is None:
            return made
        return InjectedErrors(made, self.errors, np.random.default_rng([seed, rank]))

    def register(self, model: DistributedDataParallel, seed: int) -> OptincState | None:
        """Register the hook with a model; None for plain all-reduce."""
        if self.source == "float":
            return None
        executor = self.executor(dist.get_world_size(), dist.get_rank(), seed)
        return register_optinc_hook(model, executor, self.options)


def twin_answers(servers: int, bits: int, record: str | Path | None = None, seed: int = 0) -> NDArray[np.int64]:
    """Ask a calibrated twin once for each input that the network can get; its noise is drawn once for each.

    Parameters
    ----------
    servers
        Servers of the network.
    bits
        Width of a code.
    record
        Calibration record of a chip; None calibrates a simulated chip of 4 ports.
    seed
        Of the noise.
    """
    from optinc_hw.bench import CalibrationRecord, TwinTileRunner

    network = build_exact(servers, bits)
    found = _calibrated_chip() if record is None else CalibrationRecord.load(record)
    twin = TwinExecutor(network, TwinTileRunner(found, np.random.default_rng(seed)))
    space = InputSpace(twin.servers, twin.bits, twin.inputs)
    return twin.run(space.codes(np.arange(space.size)))


def _calibrated_chip() -> Any:  # Any: a record, whose module is not loaded unless it is used
    from calibration import calibrate
    from optinc_hw import Bench

    with Bench.simulated(ports=4, seed=1) as bench:
        return calibrate(bench, settings=150, held_out=40)
