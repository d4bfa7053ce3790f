"""Spot checks: a share of what a fast executor answers also goes through the bench, and drift raises an alarm."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.aggregation._executor import (
    Answers,
    ExactExecutor,
    Executor,
    answer,
    answers_in_range,
    checked_out,
)
from optinc_hw.aggregation._table import TableExecutor
from optinc_hw.aggregation._tiled import TwinExecutor
from optinc_hw.errors import CalibrationError, NetworkError
from optinc_hw.onn import check_codes, encode_pam4

Codes = NDArray[np.integer[Any]]


class AnalogExecutor(Executor, Protocol):
    """An executor whose symbols can be seen before the receivers' decision: a twin, a bench."""

    def run_analog(self, codes: ArrayLike) -> NDArray[np.float64]:
        """Return analogue symbols (batch, M) for codes (batch, servers)."""


@dataclass(frozen=True)
class Checked:
    """What a spot check compares.

    Parameters
    ----------
    fast
        Answers: a table, a twin, or the bench itself.
    twin
        Predicts the bench's analogue symbols; without noise.
    bench
        Measures them.
    fast_uses_bench
        Whether the fast executor uses the instruments of the bench, itself or through others, so that it must not run
        while they are calibrated.  None: unless it is an `ExactExecutor`, a `TableExecutor` or a `TwinExecutor`.
    """

    fast: Executor
    twin: AnalogExecutor
    bench: AnalogExecutor
    fast_uses_bench: bool | None = None

    @property
    def answers_wait(self) -> bool:
        """Whether there are no answers while the bench is calibrated."""
        if self.fast_uses_bench is None:
            return type(self.fast) not in (ExactExecutor, TableExecutor, TwinExecutor)
        return self.fast_uses_bench


@dataclass(frozen=True)
class SpotCheckSettings:
    """How much is checked, and what counts as drift.

    Parameters
    ----------
    share
        Share of the elements that also go through the bench.
    batch
        Elements that go through together, since each batch programs all tiles.
    baseline
        Elements after a calibration by which the usual difference of bench and twin is learned: noise, and what the
        calibration left.
    window
        Elements that are judged together after that.
    excess
        Root mean square difference, in units of the usual one, beyond which there is drift ...
    chance
        ... if differences of the usual size would give it with less than this probability (F test; an element counts
        as one, since its symbols are not independent).

    Raises
    ------
    NetworkError
        If a setting is out of range.
    """

    share: float = 0.001
    batch: int = 16
    baseline: int = 64
    window: int = 64
    excess: float = 2.0
    chance: float = 1e-6

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise NetworkError(f"the share of checked elements must be above 0 and at most 1, got {self.share!r}")
        for name in ("batch", "baseline", "window"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise NetworkError(f"{name} must be an integer of at least 1 element, got {value!r}")
        if not self.excess > 1.0 or not 0.0 < self.chance < 1.0:
            raise NetworkError(f"excess must be above 1 and chance in (0, 1), got {self.excess!r}, {self.chance!r}")


@dataclass(frozen=True)
class DriftAlarm:
    """Bench and twin disagree beyond what noise explains.

    Parameters
    ----------
    checked
        Elements checked since the last calibration.
    rms, usual
        Root mean square difference of analogue symbols in the window and after the calibration, in PAM4 levels.
    wrong
        Share of the window's symbols that the bench decided otherwise than the fast executor.
    """

    checked: int
    rms: float
    usual: float
    wrong: float

    def __str__(self) -> str:
        return (
            f"drift: bench and twin differ by {self.rms:.3g} levels (rms), after the calibration they did by "
            f"{self.usual:.3g}; {self.wrong:.2%} of the symbols differ ({self.checked} elements checked)"
        )


class SpotCheckedExecutor:
    """Answers as a fast executor and checks a share of the elements on the bench.

    Parameters
    ----------
    checked
        What is compared.
    rng
        Chooses the elements.
    settings
        How much is checked, and what counts as drift.
    recalibrate
        Called after an alarm; returns what to use from then on.  It runs in a thread of its own while the old fast
        executor goes on answering and nothing is checked; where the fast executor uses the bench, answers wait.
        Without it, alarms are only counted.
    on_alarm
        Called with every alarm.

    Attributes
    ----------
    alarms : tuple[DriftAlarm, ...]
        All alarms so far.
    recalibrations : int
        Recalibrations that have come into use.

    Raises
    ------
    NetworkError
        If the three executors differ in servers or bits.
    """

    def __init__(
        self,
        checked: Checked,
        rng: np.random.Generator,
        settings: SpotCheckSettings | None = None,
        *,
        recalibrate: Callable[[], Checked] | None = None,
        on_alarm: Callable[[DriftAlarm], object] | None = None,
    ) -> None:
        self._rng = rng
        self._settings = SpotCheckSettings() if settings is None else settings
        self._recalibrate = recalibrate
        self._on_alarm = on_alarm
        self._thread: ThreadPoolExecutor | None = None
        self._coming: Future[Checked] | None = None
        self._waiting: list[Codes] = []
        self._usual: list[float] = []
        self._window: list[tuple[float, float]] = []
        self.alarms: tuple[DriftAlarm, ...] = ()
        self.recalibrations = 0
        self._use(checked)

    @property
    def servers(self) -> int:
        """Number N of servers."""
        return self._checked.fast.servers

    @property
    def bits(self) -> int:
        """Width B of a code."""
        return self._checked.fast.bits

    @property
    def inputs(self) -> int:
        """Number K of averages on which the answer depends."""
        return self._checked.fast.inputs

    @property
    def batch_limit(self) -> int | None:
        """That of the fast executor."""
        return self._checked.fast.batch_limit

    @property
    def recalibrating(self) -> bool:
        """Whether a recalibration is under way."""
        return self._coming is not None

    @answers_in_range
    def run(self, codes: ArrayLike, out: Answers | None = None) -> Answers:
        """Return the fast executor's answers (batch,) to codes (batch, servers).

        Raises
        ------
        NetworkError
            If codes are not integers in range or do not have one column a server, or the fast executor's answers are
            not codes.
        CalibrationError
            If the bench fails in a check, or the recalibration failed.
        """
        self._take_over()
        array = check_codes(codes, self.servers, self.bits)
        answers = np.empty(len(array), dtype=np.int64) if out is None else checked_out(out, (len(array),))
        answer(self._checked.fast, array, answers)
        if self._coming is None:
            chosen = np.flatnonzero(self._rng.random(len(array)) < self._settings.share)
            self._waiting.append(np.array(array[chosen]))
            if sum(map(len, self._waiting)) >= self._settings.batch:
                self._check(np.concatenate(self._waiting))
                self._waiting = []
        return answers

    def finish(self) -> None:
        """Wait for a recalibration that is under way and take it into use; before the bench is closed."""
        if self._coming is not None:
            self._coming.exception()
        self._take_over()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _use(self, checked: Checked) -> None:
        for other in (checked.twin, checked.bench):
            if (other.servers, other.bits) != (checked.fast.servers, checked.fast.bits):
                raise NetworkError(
                    f"the fast executor averages {checked.fast.servers} servers with {checked.fast.bits} bits, "
                    f"{type(other).__name__} {other.servers} with {other.bits}; check like with like"
                )
        self._checked, self._count = checked, 0
        self._waiting, self._usual, self._window = [], [], []

    def _take_over(self) -> None:
        """Use a finished recalibration."""
        if self._coming is None or not self._coming.done():
            return
        coming, self._coming = self._coming, None
        error = coming.exception()
        if error is not None:
            raise CalibrationError(f"the recalibration after a drift alarm failed: {error}") from error
        self._use(coming.result())
        self.recalibrations += 1

    def _check(self, codes: Codes) -> None:
        """Compare bench, twin and fast executor on some elements."""
        measured = self._checked.bench.run_analog(codes)
        squares = ((measured - self._checked.twin.run_analog(codes)) ** 2).mean(axis=1)
        levels = np.clip(np.floor(measured + 0.5), 0, 3).astype(np.int64)
        wrong = (levels != encode_pam4(self._checked.fast.run(codes), self.bits)).mean(axis=1)
        self._count += len(codes)
        for square, share in zip(squares.tolist(), wrong.tolist(), strict=True):
            if len(self._usual) < self._settings.baseline:
                self._usual.append(square)
            else:
                self._window.append((square, share))
        if len(self._window) >= self._settings.window:
            self._judge()
            self._window = []

    def _judge(self) -> None:
        from scipy.stats import f  # slow to import

        usual, (square, wrong) = float(np.mean(self._usual)), np.mean(self._window, axis=0).tolist()
        ratio = square / max(usual, np.finfo(float).tiny)
        chance = float(f.sf(ratio, len(self._window), len(self._usual)))
        if ratio <= self._settings.excess**2 or chance >= self._settings.chance:
            return
        alarm = DriftAlarm(self._count, float(np.sqrt(square)), float(np.sqrt(usual)), wrong)
        self.alarms += (alarm,)
        if self._on_alarm is not None:
            self._on_alarm(alarm)
        if self._recalibrate is not None:
            self._begin(self._recalibrate)

    def _begin(self, recalibrate: Callable[[], Checked]) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="optinc-recalibration")
        self._coming = self._thread.submit(recalibrate)
        if self._checked.answers_wait:
            self._coming.exception()
            self._take_over()
