"""Mean of the ranks' gradients: maxima are agreed, codes exchanged, answers decoded."""

import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch.distributed as dist

from optinc_hw.aggregation._account import Account
from optinc_hw.aggregation._agreement import agree, answer_time, failure, setup_of
from optinc_hw.aggregation._exchange import CodeExchange
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._feedback import Residuals
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._quantizer import Borders, Codes, Floats
from optinc_hw.aggregation._transfers import Groups, SharedMaxima
from optinc_hw.aggregation._warm_up import float_mean
from optinc_hw.errors import AggregationError, GradientError


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of parameters as one vector.

    Parameters
    ----------
    vector
        Values (size,), float32 or float64.
    names
        Name of each parameter.
    sizes
        Number of values of each parameter; they lie one behind the other.
    step
        Number of the step, from 0.
    """

    vector: Floats
    names: Sequence[str]
    sizes: Sequence[int]
    step: int


@dataclass(frozen=True, eq=False)
class Pending:
    """Gradients whose blocks' maxima are being agreed on.

    Parameters
    ----------
    gradients
        The rank's own gradients.
    corrected
        Their vector, with residuals of error feedback added.
    borders
        Borders of the blocks.
    maxima
        Largest values of the blocks; None in a step of the warm-up, which needs none.
    lane
        Lane in which the codes will travel.
    """

    gradients: Gradients
    corrected: Floats
    borders: Borders
    maxima: SharedMaxima | None
    lane: int


class Averager:
    """Averages gradients over the ranks of a group; every rank makes one at the same time.

    Parameters
    ----------
    group
        Ranks that take part; None: all.
    executor
        This rank's executor, or None.
    options
        Settings.
    residuals
        Residuals of error feedback; `finish` puts new ones aside.
    step
        Steps done so far.
    account
        Takes what averaging costs.

    Raises
    ------
    AggregationError
        If the ranks are set up differently, or one of them does not come.
    NetworkError
        If the network does not fit the codes or the ranks.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        executor: Executor | None,
        options: OptincOptions,
        residuals: Residuals,
        step: int,
        account: Account,
    ) -> None:
        self._options = options
        self._quantizer = options.quantizer()
        self._residuals = residuals
        self._account = account
        self._failing = threading.Lock()
        self._failed: AggregationError | None = None
        self._borders: dict[tuple[int, ...], Borders] = {}
        self._turns = 0
        self._groups = Groups.beside(group, options.timeout_s - answer_time(options.timeout_s))
        with self._named(step):
            feeds, lanes = agree(self._groups.maxima, setup_of(options, executor, step), options.chip_host)
        self._factor = feeds.factor
        self._lanes = [
            CodeExchange(lane, executor, options.chip_host, feeds, account, shared_memory=options.shared_memory)
            for lane in self._groups.lanes[:lanes]
        ]
        self._rank, self._ranks = self._groups.health.rank(), feeds.ranks

    def close(self) -> None:
        """End the connections; every rank must, and nothing can be averaged any more."""
        self._lanes.clear()
        del self._groups

    def begin(self, gradients: Gradients) -> Pending:
        """Begin to agree on the blocks' maxima; every rank calls this for the same parameters in the same order.

        Raises
        ------
        AggregationError
            As `finish`.
        GradientError
            If a residual does not fit its parameter.
        """
        if self._failed is not None:
            raise self._failed
        lane = self._turns % len(self._lanes)
        self._turns += 1
        sizes = tuple(gradients.sizes)
        if sizes not in self._borders:
            self._borders[sizes] = self._quantizer.borders(sizes)
        borders, corrected = self._borders[sizes], gradients.vector
        if gradients.step < self._options.warmup_steps:
            return Pending(gradients, corrected, borders, None, lane)
        if self._options.error_feedback:
            corrected = self._residuals.add_to(corrected, gradients.names, sizes)
        maxima = self._quantizer.block_maxima(corrected, borders)
        with self._named(gradients.step):
            shared = SharedMaxima.begin(self._groups.maxima, maxima)
        return Pending(gradients, corrected, borders, shared, lane)

    def finish(self, pending: Pending, out: Floats) -> None:
        """Write the mean into ``out`` (size,), which may be the gradients' own vector.

        Within a lane it is called in the order of `begin`, and lanes run beside one another.

        Raises
        ------
        AggregationError
            If a rank does not answer or an executor failed.  All later calls raise the same.
        GradientError
            If a block holds NaN or Inf and the options say so: on all ranks, which go on with the next gradients.
        """
        if self._failed is not None:
            raise self._failed
        with self._named(pending.gradients.step):
            if pending.maxima is None:
                self._finish_warm_up(pending, out)
                return
            with self._account.phase("maxima"):
                maxima = pending.maxima.wait()
            self._finish(pending, pending.maxima.transfers.bytes_sent, maxima, out)

    @contextmanager
    def _named(self, step: int) -> Iterator[None]:
        """Turn what torch raises for a broken or slow connection into an error that names the lost ranks."""
        try:
            yield
        except AggregationError as error:
            self._failed = error
            raise
        except RuntimeError as error:
            with self._failing:
                if self._failed is None:
                    self._failed = failure(self._groups, step, error, self._options.timeout_s)
            raise self._failed from error

    def _finish_warm_up(self, pending: Pending, out: Floats) -> None:
        float_mean(self._groups.lanes[pending.lane], pending.corrected, out)
        maxima = self._quantizer.block_maxima(out, pending.borders)
        if self._options.non_finite == "raise" and not np.isfinite(maxima).all():
            raise self._refusal(pending, int(np.argmin(np.isfinite(maxima))))

    def _finish(self, pending: Pending, sent: int, maxima: Floats, out: Floats) -> None:
        borders, values = pending.borders, pending.corrected
        lost = np.flatnonzero(~np.isfinite(maxima))
        if len(lost):
            if self._options.non_finite == "raise":
                raise self._refusal(pending, int(lost[0]))
            values = values.copy()
            for block in lost:
                values[borders[block] : borders[block + 1]] = 0.0
            maxima[lost] = 0.0
        size = len(values)
        exchange = self._lanes[pending.lane]
        codes = exchange.codes(size)
        with self._account.phase("quantise"):
            self._quantise(pending, values, maxima, codes[:size])
        before = exchange.bytes_sent
        answers = exchange.answers(codes)[:size]
        sent += exchange.bytes_sent - before
        self._account.add(self._ranks, size, self._options.bits, sent, exchange.way)
        if self._options.error_feedback:
            dropped = values - self._quantizer.dequantise(codes[:size], maxima, borders)
            for block in lost:
                dropped[borders[block] : borders[block + 1]] = np.nan
            raw = pending.gradients
            self._residuals.put_aside(raw.vector, dropped, raw.names, raw.sizes)
        with self._account.phase("dequantise"):
            self._quantizer.dequantise(answers, maxima, borders, out=out)
        if self._factor != 1.0:
            out *= out.dtype.type(self._factor)
        for block in lost:
            out[borders[block] : borders[block + 1]] = np.nan

    def _quantise(self, pending: Pending, values: Floats, maxima: Floats, codes: Codes) -> None:
        """Write the codes of the values; random roundings depend on rank, step, parameter and place alone."""
        if self._options.rounding != "stochastic":
            self._quantizer.quantise(values, maxima, pending.borders, out=codes)
            return
        start = block = 0
        for name, size in zip(pending.gradients.names, pending.gradients.sizes, strict=True):
            part, blocks = slice(start, start + size), self._quantizer.block_count(size)
            words = [self._options.seed, self._rank, pending.gradients.step, zlib.crc32(name.encode())]
            seed = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
            self._quantizer.quantise(values[part], maxima[block : block + blocks], seed=seed, out=codes[part])
            start, block = start + size, block + blocks

    def _refusal(self, pending: Pending, block: int) -> GradientError:
        """Return an error that says where the first block with NaN or Inf is, and whether it is this rank's."""
        place = int(pending.borders[block])
        ends = np.cumsum(pending.gradients.sizes)
        name = pending.gradients.names[int(np.searchsorted(ends, place, side="right"))]
        own = pending.gradients.vector[place : pending.borders[block + 1]]
        whose = "this rank's" if not np.isfinite(own).all() else "another rank's"
        return GradientError(
            f"step {pending.gradients.step}: {whose} gradient of {name} holds NaN or Inf; the step is lost on all "
            "ranks and no residual has changed: zero the gradients and skip it, or lower the loss scale"
        )
