"""Wavelength sweep of a simulated Keysight laser as a function of time alone, its checks and its log."""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulated_instruments._parameters import FloatArray

STEPPED, MANUAL, CONTINUOUS = range(3)
STOPPED, RUNNING, PAUSED = range(3)
SMALLEST_STEP_M = 0.1e-12

TUNING_START_S = 0.05
TUNING_SPEED_M_S = 200e-9
_STEP_SLACK = 1e-6  # a span of 100 steps of 0.1 nm is 100 steps whatever the rounding
_RIPPLE_M, _RIPPLE_PERIOD_M = 0.3e-12, 0.1e-9  # why lasers log wavelengths: no sweep is quite linear
_HIGHEST_TRIGGER_RATE_HZ, _MOST_TRIGGERS = 40e3, 100_001
_SHORTEST_SWEEP_S, _LONGEST_SWEEP_S = 1e-3, 1000.0


@dataclass(frozen=True)
class SweepSettings:
    """What the commands set; m, m/s, s. No cycles stand for a sweep without end."""

    start_m: float
    stop_m: float
    mode: int = STEPPED
    step_m: float = 1e-9
    speed_m_s: float = 40e-9
    dwell_s: float = 0.5
    cycles: int = 1
    two_way: bool = False
    logging: bool = False

    @property
    def span_m(self) -> float:
        """Distance between the ends."""
        return self.stop_m - self.start_m

    @property
    def points(self) -> int:
        """Number of points of one way."""
        return int(self.span_m / self.step_m + _STEP_SLACK) + 1

    @property
    def triggers(self) -> int:
        """Number of triggers of all cycles, of one if they have no end."""
        return self.points * (2 if self.two_way else 1) * max(self.cycles, 1)

    def problem(self, steps_are_triggered: bool) -> tuple[int, str]:
        """Return number and text of what keeps the sweep from starting; (0, "OK") if nothing does."""
        continuous = self.mode == CONTINUOUS
        way_s = self.span_m / self.speed_m_s
        rate_hz = self.speed_m_s / self.step_m
        multiple = self.step_m / SMALLEST_STEP_M
        checks = (
            (self.span_m <= 0.0, 368, "stop wavelength <= start wavelength"),
            (continuous and way_s < _SHORTEST_SWEEP_S, 369, "sweep time too small"),
            (continuous and way_s > _LONGEST_SWEEP_S, 370, "sweep time too big"),
            (continuous and steps_are_triggered and rate_hz > _HIGHEST_TRIGGER_RATE_HZ, 371, "trigger rate too large"),
            (self.step_m < SMALLEST_STEP_M * (1.0 - _STEP_SLACK), 372, "step too small"),
            (continuous and steps_are_triggered and self.triggers > _MOST_TRIGGERS, 373, "too many triggers"),
            (self.logging and not steps_are_triggered, 375, "lambda logging needs triggers at finished steps"),
            (self.logging and not continuous, 376, "lambda logging needs a continuous sweep"),
            (abs(multiple - round(multiple)) > 1e-3, 377, "step is no multiple of the smallest step"),
        )
        return next(((number, text) for failed, number, text in checks if failed), (0, "OK"))


@dataclass(frozen=True)
class SweepRun:
    """One sweep.

    Its own time stands still while it is paused, and always in a manual sweep; steps by hand put it forward.

    Parameters
    ----------
    settings
        As they were when it began.
    begun_s
        Time of the start command.
    from_m
        Wavelength at that time.
    waits
        Whether each cycle waits for a trigger.
    starts_s
        Own time of the trigger of each cycle so far; only if it waits.
    hold_s
        Time from which on the own time stands still.
    shift_s
        What the own time is ahead.
    stopped_s
        Time of the stop command.
    """

    settings: SweepSettings
    begun_s: float
    from_m: float
    waits: bool
    starts_s: tuple[float, ...] = ()
    hold_s: float = math.inf
    shift_s: float = 0.0
    stopped_s: float = math.inf

    @classmethod
    def begin(cls, settings: SweepSettings, now: float, from_m: float, *, waits: bool, by_hand: bool) -> Self:
        """Start a sweep; ``by_hand`` takes every step on command."""
        run = cls(settings, now, from_m, waits)
        return replace(run, hold_s=run.ready_s) if by_hand else run

    def pause(self, now: float) -> Self:
        """Hold the sweep."""
        return replace(self, hold_s=min(self.hold_s, now))

    def resume(self, now: float) -> Self:
        """Go on after a pause."""
        held_s = max(now - self.hold_s, 0.0)
        return replace(self, hold_s=math.inf, shift_s=self.shift_s - held_s)

    def stop(self, now: float) -> Self:
        """End the sweep."""
        return replace(self, stopped_s=min(self.stopped_s, now))

    def trigger(self, now: float) -> Self:
        """Start the cycle that is waiting."""
        return replace(self, starts_s=(*self.starts_s, self._own_time(now)))

    def step(self, count: int) -> Self:
        """Go ``count`` steps forward or, if negative, backward, but not before the first."""
        shift_s = self.shift_s + count * self._point_s
        if count < 0:
            first = self._first_start_s - min(self.hold_s, self.stopped_s)
            shift_s = max(shift_s, min(first, self.shift_s))
        return replace(self, shift_s=shift_s)

    def state(self, now: float) -> int:
        """Return the state as ``wav:swe?`` tells it."""
        if self.stopped_s <= now or self._own_time(now) >= self._end_s:
            return STOPPED
        return PAUSED if self.hold_s <= now and self.settings.mode != MANUAL else RUNNING

    def waiting(self, now: float) -> bool:
        """Tell whether the sweep waits for a trigger to begin a cycle."""
        return self.waits and self._ready_for(len(self.starts_s)) <= self._own_time(now) < self._end_s

    def flag(self, now: float) -> int:
        """Return what ``wav:swe:flag?`` tells: odd from waiting for a trigger on, even when a cycle's log is ready."""
        if self.settings.mode != CONTINUOUS or self.state(now) == STOPPED or self._own_time(now) < self.ready_s:
            return 0
        if self.waiting(now):
            return 2 * len(self.starts_s) + 1
        cycle, elapsed_s = self._cycle(now)
        return 2 * cycle + (2 if self._complete(elapsed_s) else 1)

    def wavelength_at(self, now: float) -> float:
        """Return the wavelength in m at a time."""
        own_s = self._own_time(now)
        if own_s < self.ready_s:
            return self.from_m
        if own_s < self._first_start_s:
            return self.settings.start_m
        cycle, elapsed_s = self._cycle(now)
        ended = self._complete(elapsed_s) and own_s < self._end_s
        if ended and own_s >= self._ready_for(cycle + 1):
            return self.settings.start_m
        return self._position(min(elapsed_s, self._scan_s))

    def log(self, now: float) -> FloatArray:
        """Return the wavelengths in m at the triggers of the latest complete cycle."""
        own_s = self._own_time(now)
        if not self.settings.logging or own_s < self._first_start_s:
            return np.empty(0)
        cycle, elapsed_s = self._cycle(now)
        if cycle == 0 and not self._complete(elapsed_s):
            return np.empty(0)
        count = self.settings.points
        times = np.arange(count) * (self.settings.step_m / self.settings.speed_m_s)
        if self.settings.two_way:
            times = np.concatenate([times, self._leg_s + times])
        return np.array([self._position(time) for time in np.minimum(times, self._scan_s)])

    def _own_time(self, now: float) -> float:
        return min(now, self.hold_s, self.stopped_s) + self.shift_s

    @property
    def ready_s(self) -> float:
        """Time at which it is at its first wavelength."""
        return self.begun_s + moving_time(self.from_m, self.settings.start_m)

    @property
    def _point_s(self) -> float:
        return moving_time(0.0, self.settings.step_m) + self.settings.dwell_s

    @property
    def _leg_s(self) -> float:
        settings = self.settings
        if settings.mode == CONTINUOUS:
            return settings.span_m / settings.speed_m_s
        return settings.points * self._point_s

    @property
    def _scan_s(self) -> float:
        return self._leg_s * (2 if self.settings.two_way else 1)

    @property
    def _return_s(self) -> float:
        return 0.0 if self.settings.two_way else moving_time(self.settings.stop_m, self.settings.start_m)

    @property
    def _first_start_s(self) -> float:
        if not self.waits:
            return self.ready_s
        return self.starts_s[0] if self.starts_s else math.inf

    @property
    def _end_s(self) -> float:
        cycles = self.settings.cycles
        if cycles == 0:
            return math.inf
        if self.waits:
            return self.starts_s[cycles - 1] + self._scan_s if len(self.starts_s) >= cycles else math.inf
        return self.ready_s + (cycles - 1) * (self._scan_s + self._return_s) + self._scan_s

    def _ready_for(self, cycle: int) -> float:
        """Own time at which a cycle may begin."""
        if cycle == 0:
            return self.ready_s
        if self.waits:
            return self.starts_s[cycle - 1] + self._scan_s + self._return_s
        return self.ready_s + cycle * (self._scan_s + self._return_s)

    def _cycle(self, now: float) -> tuple[int, float]:
        """Return the number of the latest cycle that has begun, and the time since then."""
        own_s = min(self._own_time(now), self._end_s)
        if self.waits:
            return len(self.starts_s) - 1, own_s - self.starts_s[-1]
        period_s = self._scan_s + self._return_s
        since_s = own_s - self.ready_s
        most = (self.settings.cycles or math.inf) - 1
        cycle = int(min(since_s // period_s, most))
        return cycle, since_s - cycle * period_s

    def _complete(self, elapsed_s: float) -> bool:
        """Tell whether a cycle has come to its end; sums of times are not exact."""
        return elapsed_s >= self._scan_s * (1.0 - _STEP_SLACK)

    def _position(self, elapsed_s: float) -> float:
        """Return the wavelength in m at a time after the start of a cycle."""
        settings = self.settings
        back = elapsed_s > self._leg_s
        on_leg_s = elapsed_s - self._leg_s if back else elapsed_s
        if settings.mode == CONTINUOUS:
            travelled = min(on_leg_s * settings.speed_m_s, settings.span_m)
            travelled += _RIPPLE_M * math.sin(2.0 * math.pi * travelled / _RIPPLE_PERIOD_M)
        else:
            travelled = min(int(on_leg_s / self._point_s + _STEP_SLACK), settings.points - 1) * settings.step_m
        return settings.stop_m - travelled if back else settings.start_m + travelled


def moving_time(from_m: float, to_m: float) -> float:
    """Return the time in s that going from one wavelength to another takes."""
    return TUNING_START_S + abs(to_m - from_m) / TUNING_SPEED_M_S
