"""Injected time: settling, ramps and the simulated chip's heat share one clock."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Source of time in seconds; ``sleep`` waits, or lets simulated time pass."""

    def now(self) -> float:
        """Return seconds since an arbitrary origin; never decreases."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` (>= 0) pass."""
        ...


class WallClock:
    """Real time, for hardware."""

    def now(self) -> float:
        """Return the monotonic time in s."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block for ``seconds``."""
        time.sleep(seconds)


class SimulatedClock:
    """Time that passes only when somebody waits; shared by benches and simulated instruments."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the simulated time in s."""
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the simulated time by ``seconds`` at once."""
        if seconds < 0.0:
            raise ValueError(f"cannot sleep {seconds} s; the time must not be negative")
        with self._lock:
            self._now += seconds
