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
_TIME_TOLERANCE_S = 1e-9  # far below the shortest averaging time
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
    waits_for_each: bool
    """Whether each sample waits for a trigger of its own."""
    _values_w: list[FloatArray] = field(default_factory=list)
    _seen_w: list[FloatArray] = field(default_factory=list)
    taken: int = 0
    started_at: float | None = None
    """None until a trigger comes."""
    running: bool = True
    lowest_w: float = math.inf
    highest_w: float = -math.inf

    @property
    def complete(self) -> bool:
        return not self.endless and self.taken >= self.samples

    def values_w(self) -> FloatArray:
        """Return the readings in W, of an endless function the latest."""
        self._values_w = [np.concatenate(self._values_w)]
        return self._values_w[0]

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
        self.taken += count
        self._seen_w.append(seen_w)
        if self.waits_for_each:
            self.started_at = None

    def keep(self) -> None:
        """Make readings of the samples that were taken."""
        if not self._seen_w:
            return
        values = self.port.digitise(np.concatenate(self._seen_w))
        self._seen_w.clear()
        self.port.value_w = float(values[-1])
        if self.function == MINMAX:
            self.lowest_w = min(self.lowest_w, float(values.min()))
            self.highest_w = max(self.highest_w, float(values.max()))
            self._values_w = [np.concatenate([*self._values_w, values])[-self.samples :]]
        else:
            self._values_w.append(values)


class MeterFunctions:
    """Functions of all ports.

    Samples are taken with hindsight: when somebody asks, and before anybody changes the light or a heater, so that
    each shows the chip as it was at the end of its averaging time. Only which way an optical switch connects is known
    for the present alone.

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
            single = port.trigger_input == _SINGLE and function != MINMAX
            run = _Run(
                port, function, wanted.samples, averaging_s, period_s, endless=function == MINMAX, waits_for_each=single
            )
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
                # With one sample at each trigger, the times of earlier samples do not matter for the next one.
                run.started_at = now - run.taken * run.period_s
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
            if run.function != MINMAX:
                return run.values_w()
            if self.parameters[MINMAX].window == "CONT":
                return np.array([run.lowest_w, run.highest_w])
            return np.array([run.values_w().min(), run.values_w().max()])

    def catch_up(self) -> None:
        """Take all samples that are finished by now."""
        if not self._runs:
            return
        with self._lock:
            now = self._clock.now()
            step_s: float | None = None
            while due := [run for run in self._runs.values() if run.due_until(now)]:
                first = min(run.sample_time() for run in due)
                step_s = (now - first) / _STEPS_OF_CHANGE if step_s is None else step_s
                last = max(min(self._chip.steady_until(first), now), min(first + step_s, now))
                self._take(due, first, last)
            for run in self._runs.values():
                run.keep()

    def _take(self, due: list[_Run], at_s: float, until_s: float) -> None:
        """Take the samples that are finished until a time in s, at light as it is at ``at_s``."""
        alike: dict[tuple[int, float], list[_Run]] = {}
        for run in due:
            count = run.due_until(until_s)
            if count:
                alike.setdefault((1 if run.waits_for_each else count, run.averaging_s), []).append(run)
        for (count, averaging_s), runs in alike.items():
            # The samples of an endless function may be too many to draw, and are not kept anyway.
            drawn = min(count, _MOST_AT_ONCE) if all(run.endless for run in runs) else count
            seen = self._ports.see_series([run.port for run in runs], averaging_s, at_s, drawn)
            for run, samples in zip(runs, seen, strict=True):
                run.take(samples, count)

    @staticmethod
    def _in_progress(run: _Run) -> bool:
        return run.running and not run.complete
