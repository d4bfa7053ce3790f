"""Wavelength sweep of a simulated Santec laser as a function of time alone, and its log."""

import math
from dataclasses import dataclass, field

import numpy as np

from simulated_instruments._parameters import FloatArray

STOPPED, RUNNING, WAITING, PREPARING = 0, 1, 3, 4
STEP_ONE_WAY, CONTINUOUS_ONE_WAY, STEP_TWO_WAY, CONTINUOUS_TWO_WAY = range(4)
LONGEST_LOG = 500_000

TUNING_START_S = 0.05
TUNING_SPEED_M_S = 200e-9
_STEP_SLACK = 1e-6  # a span of 100 steps of 0.1 nm is 100 steps whatever the rounding


@dataclass
class SweepSettings:
    """What the commands set; m, m/s, s, Hz."""

    start_m: float
    stop_m: float
    step_m: float = 1e-9
    frequency_step_hz: float = 1e11
    speed_m_s: float = 10e-9
    mode: int = CONTINUOUS_ONE_WAY
    dwell_s: float = 0.0
    delay_s: float = 0.0
    cycles: int = 1
    trigger_step_m: float = 0.1e-9


@dataclass(frozen=True)
class SweepRun:
    """One run of scans.

    Parameters
    ----------
    begun_s
        Time of the start command.
    from_m
        Wavelength at that time.
    start_m, stop_m
        Ends of a scan.
    leg_s
        Time of one way of a scan.
    step_m
        Step of a stepped scan; None for a continuous one.
    two_way
        Whether a scan comes back.
    delay_s
        Time between scans.
    cycles
        Number of scans; infinite until stopped.
    trigger_step_m
        Distance of the points of the log; None keeps none.
    triggered_s
        Time of the trigger; infinite while waiting for it.
    stopped_s
        Time of the stop command.
    """

    begun_s: float
    from_m: float
    start_m: float
    stop_m: float
    leg_s: float
    step_m: float | None
    two_way: bool
    delay_s: float
    cycles: float
    trigger_step_m: float | None
    triggered_s: float
    stopped_s: float = field(default=math.inf)

    @classmethod
    def begin(
        cls, now: float, from_m: float, settings: SweepSettings, *, endless: bool, waits: bool, logs: bool
    ) -> "SweepRun":
        """Start a run with the present settings."""
        span = abs(settings.stop_m - settings.start_m)
        stepped = settings.mode in (STEP_ONE_WAY, STEP_TWO_WAY)
        if stepped:
            per_point = TUNING_START_S + settings.step_m / TUNING_SPEED_M_S + settings.dwell_s
            leg_s = _points(span, settings.step_m) * per_point
        else:
            leg_s = span / settings.speed_m_s
        return cls(
            begun_s=now,
            from_m=from_m,
            start_m=settings.start_m,
            stop_m=settings.stop_m,
            leg_s=leg_s,
            step_m=settings.step_m if stepped else None,
            two_way=settings.mode in (STEP_TWO_WAY, CONTINUOUS_TWO_WAY),
            delay_s=settings.delay_s,
            cycles=math.inf if endless else max(1, settings.cycles),
            trigger_step_m=settings.trigger_step_m if logs else None,
            triggered_s=math.inf if waits else now,
        )

    @property
    def _ready_s(self) -> float:
        return self.begun_s + TUNING_START_S + abs(self.start_m - self.from_m) / TUNING_SPEED_M_S

    @property
    def _scanning_s(self) -> float:
        """When the first scan starts."""
        return max(self._ready_s, self.triggered_s)

    @property
    def _scan_s(self) -> float:
        return self.leg_s * (2 if self.two_way else 1)

    @property
    def _period_s(self) -> float:
        way_back = 0.0 if self.two_way else TUNING_START_S + abs(self.stop_m - self.start_m) / TUNING_SPEED_M_S
        return self._scan_s + self.delay_s + way_back

    @property
    def _end_s(self) -> float:
        return self._scanning_s + (self.cycles - 1) * self._period_s + self._scan_s

    def state(self, now: float) -> int:
        """Return the state as ``:WAV:SWE?`` tells it."""
        if now >= min(self.stopped_s, self._end_s):
            return STOPPED
        if now < self._ready_s:
            return PREPARING
        return WAITING if now < self._scanning_s else RUNNING

    def wavelength_at(self, now: float) -> float:
        """Return the wavelength in m at a time."""
        now = min(now, self.stopped_s)
        if now < self._ready_s:
            return self.from_m
        if now <= self._scanning_s:
            return self.start_m
        _, elapsed = self._scan(now)
        return self._after(elapsed)

    def completed(self, now: float) -> int:
        """Return the number of scans that have come to their end."""
        if min(now, self.stopped_s) < self._scanning_s:
            return 0
        number, elapsed = self._scan(now)
        return number + (elapsed >= self._scan_s)

    def log(self, now: float) -> FloatArray:
        """Return the wavelengths in m of the triggers of the latest scan."""
        if self.trigger_step_m is None or min(now, self.stopped_s) < self._scanning_s:
            return np.empty(0)
        _, elapsed = self._scan(now)
        step = self.step_m if self.step_m is not None else self.trigger_step_m
        count = min(_points(abs(self.stop_m - self.start_m), step), LONGEST_LOG)
        grid = np.arange(count) * math.copysign(step, self.stop_m - self.start_m)
        per_point = self.leg_s / count if self.step_m is not None else self._seconds_per_metre * step
        times = np.arange(count) * per_point
        wavelengths = self.start_m + grid
        if self.two_way:
            wavelengths = np.concatenate([wavelengths, self.stop_m - grid])
            times = np.concatenate([times, self.leg_s + times])
        return np.asarray(wavelengths[times <= elapsed * (1.0 + _STEP_SLACK)][:LONGEST_LOG], dtype=np.float64)

    @property
    def _seconds_per_metre(self) -> float:
        return self.leg_s / abs(self.stop_m - self.start_m)

    def _scan(self, now: float) -> tuple[int, float]:
        """Return the number of the present scan and the time since its start, at most the time of a scan."""
        now = min(now, self.stopped_s)
        if now >= self._end_s:
            return int(self.cycles) - 1, self._scan_s
        since = now - self._scanning_s
        number = int(min(since // self._period_s, self.cycles - 1))
        return number, min(since - number * self._period_s, self._scan_s)

    def _after(self, elapsed_s: float) -> float:
        """Return the wavelength in m at a time after the start of a scan."""
        back = elapsed_s > self.leg_s
        share = (elapsed_s - self.leg_s if back else elapsed_s) / self.leg_s
        first, last = (self.stop_m, self.start_m) if back else (self.start_m, self.stop_m)
        if self.step_m is None:
            return first + share * (last - first)
        count = _points(abs(last - first), self.step_m)
        return first + min(int(share * count), count - 1) * math.copysign(self.step_m, last - first)


def _points(span_m: float, step_m: float) -> int:
    """Count the points from one end on."""
    return int(span_m / step_m + _STEP_SLACK) + 1
