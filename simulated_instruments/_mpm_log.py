"""The logging memory of Santec's power meter mainframe."""

from collections.abc import Callable, Sequence

from optinc_hw.clock import Clock

RUNNING, DONE, STOPPED = 0, 1, -1


class PowerLog:
    """Points that are logged while time passes, or with each trigger pulse.

    A point shows what there is to see when the log is next looked at.

    Parameters
    ----------
    clock
        Time that points are due on.
    sample
        Measures all ports, in W, for an averaging time in s.
    """

    def __init__(self, clock: Clock, sample: Callable[[float], Sequence[float]]) -> None:
        self._clock, self._sample = clock, sample
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._rows: list[Sequence[float]] = []
        self._points, self._interval_s, self._started_at = 0, 0.0, 0.0
        self._external = False
        self._state = STOPPED

    def start(self, points: int, interval_s: float, *, external: bool) -> None:
        """Log ``points`` points, ``interval_s`` s apart or with each pulse."""
        self._rows = []
        self._points, self._interval_s, self._external = points, interval_s, external
        self._started_at = self._clock.now()
        self._state = RUNNING

    def stop(self) -> None:
        """End logging; the points so far are kept."""
        self.advance()
        if self._state == RUNNING:
            self._state = STOPPED

    def advance(self) -> None:
        """Log the points that are due."""
        if self._state == RUNNING and not self._external:
            elapsed = self._clock.now() - self._started_at
            # A point is due at the end of its interval, whatever the last bit of the time says.
            self._take(int(elapsed / self._interval_s + 1e-6))

    def pulse(self, count: int) -> None:
        """Log a point for each of ``count`` trigger pulses, if external triggers are on."""
        if self._state == RUNNING and self._external:
            self._take(len(self._rows) + count)

    def _take(self, due: int) -> None:
        while len(self._rows) < min(due, self._points):
            self._rows.append(self._sample(self._interval_s))
        if len(self._rows) == self._points:
            self._state = DONE

    @property
    def state(self) -> int:
        """0 running, 1 done, -1 stopped or never started."""
        return self._state

    @property
    def count(self) -> int:
        """Number of points so far."""
        return len(self._rows)

    def column(self, index: int) -> list[float]:
        """Return the points of one port, in W."""
        return [row[index] for row in self._rows]
