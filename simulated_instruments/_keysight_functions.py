"""Functions of a simulated Keysight power meter: logging, stability, and minimum and maximum."""

import math
import threading
from dataclasses import dataclass, field

import numpy as np

from optinc_hw.clock import Clock
from simulated_instruments._keysight_ports import MeterPort, MeterPorts
from simulated_instruments._parameters import FloatArray
from simulated_instruments._scpi import ScpiError
from simulated_instruments.hidden_chip import HiddenChip

LOGGING, STABILITY, MINMAX = "LOGG", "STAB", "MINM"
MOST_SAMPLES = 1_000_000

SETTINGS_CONFLICT = (-221, "Settings conflict")
STALE = (-230, "Data corrupt or stale")

_SINGLE, _AT_ONCE = "SME", "IGN"
_STEPS_OF_CHANGE = 20_000  # light or heat that changes during a log is followed in at most so many steps
_TIME_TOLERANCE_S = 1e-12
_MOST_AT_ONCE = 100_000  # of the samples of an endless function between two looks, so many are drawn


@dataclass(frozen=True)
class FunctionParameters:
    """What a function is to do: the same for all ports.

    Attributes
    ----------
    samples
        Number of samples; of minimum and maximum, the number of latest samples that count.
    averaging_s
        Averaging time of a sample in s; None for the port's own.
    period_s
        Time in s from sample to sample; None for one after the other.
    window
        Minimum and maximum only: ``CONT``, ``WIND`` or ``REFR``.
    """

    samples: int
    averaging_s: float | None = None
    period_s: float | None = None
    window: str = "CONT"


@dataclass
class _Run:
    """A function on one port, from its start on."""

    port: MeterPort
    function: str
    samples: int
    averaging_s: float
    period_s: float
    endless: bool
    values_w: list[FloatArray] = field(default_factory=list)
    taken: int = 0
    started_at: float | None = None
    """None until a trigger comes."""
    running: bool = True
    lowest_w: float = math.inf
    highest_w: float = -math.inf

    @property
    def complete(self) -> bool:
        return not self.endless and self.taken >= self.samples

    def sample_time(self) -> float:
        """When the next sample is finished; infinite if none is under way."""
        if self.started_at is None or self.complete or not self.running:
            return math.inf
        return self.started_at + self.taken * self.period_s + self.averaging_s

    def due_until(self, time_s: float) -> int:
        """Return the number of samples that are finished at a time in s and not taken yet."""
        if self.sample_time() > time_s + _TIME_TOLERANCE_S:
            return 0
        count = 1 + math.floor((time_s + _TIME_TOLERANCE_S - self.sample_time()) / self.period_s)
        return count if self.endless else min(count, self.samples - self.taken)

    def take(self, seen_w: FloatArray, count: int) -> None:
        """Take ``count`` samples, or some of so many, of what the photodiode sees."""
        values = self.port.digitise(seen_w)
        self.taken += count
        self.port.value_w = float(values[-1])
        if self.function == MINMAX:
            self.lowest_w = min(self.lowest_w, float(values.min()))
            self.highest_w = max(self.highest_w, float(values.max()))
            values = values[-self.samples :]
        self.values_w.append(values)
        if self.function == MINMAX and len(self.values_w) > 1:
            self.values_w = [np.concatenate(self.values_w)[-self.samples :]]


class MeterFunctions:
    """Functions of all ports.

    Samples are taken with hindsight: when somebody asks, and before anybody changes the light or a heater, so that
    each shows the chip as it was at the end of its averaging time. Two things are known for the present only: which
    way an optical switch connects, and heat that another reading has let relax further.

    Parameters
    ----------
    ports
        The ports.
    chip
        The chip that changes.
    clock
        Functions take time on it.
    """

    def __init__(self, ports: MeterPorts, chip: HiddenChip, clock: Clock) -> None:
        self._ports = ports
        self._chip = chip
        self._clock = clock
        self._lock = threading.RLock()
        self.reset()
        chip.watch_changes(self.catch_up)

    def reset(self) -> None:
        """Forget all results and parameters."""
        with self._lock:
            self._runs: dict[int, _Run] = {}
            self.parameters = {
                LOGGING: FunctionParameters(100, averaging_s=0.1),
                STABILITY: FunctionParameters(10, averaging_s=0.1, period_s=1.0),
                MINMAX: FunctionParameters(100),
            }

    def set_parameters(self, function: str, parameters: FunctionParameters) -> None:
        """Change what a function is to do, which no port may be doing just now."""
        with self._lock:
            self.catch_up()
            if any(self._in_progress(run) for run in self._runs.values()):
                raise ScpiError(*SETTINGS_CONFLICT)
            self.parameters[function] = parameters

    def start(self, port: MeterPort, function: str) -> None:
        """Start a function on a port, or let it wait for its trigger; range and averaging time stay until its end."""
        with self._lock:
            self.catch_up()
            wanted = self.parameters[function]
            averaging_s = port.averaging_s if wanted.averaging_s is None else wanted.averaging_s
            period_s = averaging_s if wanted.period_s is None else wanted.period_s
            run = _Run(port, function, wanted.samples, averaging_s, period_s, endless=function == MINMAX)
            if port.trigger_input == _AT_ONCE or function == MINMAX:
                run.started_at = self._clock.now()
            port.due = None
            self._runs[port.index] = run

    def stop(self, port: MeterPort) -> None:
        """End the function of a port, if any."""
        with self._lock:
            if port.index in self._runs:
                self.catch_up()
                self._runs[port.index].running = False

    def trigger(self, port: MeterPort) -> bool:
        """Take a trigger; False if no function of the port waits for one."""
        with self._lock:
            run = self._runs.get(port.index)
            if run is None or not self._in_progress(run):
                return False
            self.catch_up()
            if run.started_at is None:
                now = self._clock.now()
                # One sample at each trigger: the times of earlier samples do not matter for the next one.
                single = port.trigger_input == _SINGLE
                run.started_at = now - run.taken * run.period_s if single else now
            return True

    def in_progress(self, port: MeterPort) -> bool:
        """Tell whether a function is running or waiting for a trigger."""
        with self._lock:
            self.catch_up()
            run = self._runs.get(port.index)
            return run is not None and self._in_progress(run)

    def state(self, port: MeterPort) -> str:
        """Return the state in the words of the instrument."""
        with self._lock:
            progress = "PROGRESS" if self.in_progress(port) else "COMPLETE"
            run = self._runs.get(port.index)
            if run is None or not run.running:
                return "NONE,COMPLETE" if run is None or run.complete or run.endless else "NONE,PROGRESS"
            return f"{'MINMAX' if run.function == MINMAX else 'LOGGING_STABILITY'},{progress}"

    def result(self, port: MeterPort) -> FloatArray:
        """Return the samples in W, or the minimum and maximum; raises -230 if there are none (yet)."""
        with self._lock:
            self.catch_up()
            run = self._runs.get(port.index)
            if run is None or run.taken == 0 or not (run.complete or run.endless):
                raise ScpiError(*STALE)
            run.values_w = [np.concatenate(run.values_w)]
            if run.function != MINMAX:
                return run.values_w[0]
            if self.parameters[MINMAX].window == "CONT":
                return np.array([run.lowest_w, run.highest_w])
            return np.array([run.values_w[0].min(), run.values_w[0].max()])

    def catch_up(self) -> None:
        """Take all samples that are finished by now."""
        if not self._runs:
            return
        with self._lock:
            now = self._clock.now()
            step_s: float | None = None
            while True:
                due = [run for run in self._runs.values() if run.due_until(now)]
                if not due:
                    return
                first = min(run.sample_time() for run in due)
                step_s = (now - first) / _STEPS_OF_CHANGE if step_s is None else step_s
                last = max(min(self._chip.steady_until(first), now), min(first + step_s, now))
                for run in due:
                    self._take(run, first, run.due_until(last))

    def _take(self, run: _Run, at_s: float, count: int) -> None:
        if count:
            single = run.port.trigger_input == _SINGLE and run.function != MINMAX
            count = 1 if single else count
            drawn = min(count, _MOST_AT_ONCE) if run.endless else count
            run.take(self._ports.see_series(run.port, run.averaging_s, at_s, drawn), count)
            if single:
                run.started_at = None

    @staticmethod
    def _in_progress(run: _Run) -> bool:
        return run.running and not run.complete
