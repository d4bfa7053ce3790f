"""Continuous wavelength sweeps of tunable SCPI lasers: the plan, its checks, arming, triggering and the log."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._laser import LaserInstrument
from drivers._parsing import parse_integer
from drivers._scpi import ScpiInstrument
from drivers._sweep_log import SweepLog, log_problem, points_of
from optinc_hw.errors import LimitError, OptincError

LOG_BYTES_PER_S = 1e5
"""The slowest that a log comes in, for the time that its blocks may take."""

_ARMING_S = 60.0
_SWEEP_MARGIN_S = 20.0
_SLACK = 1e-9
"""Relative; the smallest step itself must pass after a conversion of units."""


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep that is asked for; m and m/s."""

    start_m: float
    stop_m: float
    speed_m_s: float
    step_m: float

    @property
    def span_m(self) -> float:
        """Distance in m of its ends."""
        return abs(self.stop_m - self.start_m)

    @property
    def duration_s(self) -> float:
        """Time in s from the trigger to the end."""
        return self.span_m / self.speed_m_s


@dataclass(frozen=True)
class SweepCommands:
    """Commands that drive a sweep whose settings are made."""

    start: str
    stop: str
    trigger: str
    ignore_trigger: str


class SweepingLaser(LaserInstrument, ScpiInstrument):
    """A tunable SCPI laser that sweeps and logs what it passed; see :class:`drivers._laser.LaserInstrument`."""

    _sweep_commands: SweepCommands

    _smallest_step_m: ClassVar[float]
    """Smallest step in m of a log."""

    _longest_log: ClassVar[int]
    """Highest number of points of a log."""

    def __init__(self, name: str, max_power: float, **kwargs: Unpack[InstrumentBaseKWArgs]) -> None:
        super().__init__(name, max_power, **kwargs)
        self._armed: PlannedSweep | None = None

    def sweep(self, start_m: float, stop_m: float, speed_m_s: float, step_m: float) -> SweepLog:
        """Run one continuous wavelength sweep and return its log.

        Parameters
        ----------
        start_m, stop_m
            Wavelengths in m at which it begins and ends.
        speed_m_s
            Speed in m/s, such as 10e-9.
        step_m
            Distance in m of the points of the log, and of the triggers that go out.

        Raises
        ------
        LimitError
            If the laser cannot sweep like this, or would emit more than ``max_power``; no sweep was started.
        DeviceError
            If the laser refuses, does not start or end in time, or logged another sweep; the sweep is stopped.
        """
        self.arm_sweep(start_m, stop_m, speed_m_s, step_m)
        return self.finish_sweep()

    def arm_sweep(self, start_m: float, stop_m: float, speed_m_s: float, step_m: float) -> None:
        """Set a sweep up, tune to its start and wait there for a trigger; arguments and errors as for sweep()."""
        planned = PlannedSweep(start_m, stop_m, speed_m_s, step_m)
        self._check_sweep(planned)
        with self._live_link().lock:
            self._require_no_sweep()
            self._check_emission()
            self._driven = True
            self._set_up_sweep(planned)
            self._target_wavelength = None
            self._armed = planned
        try:
            # Nobody waits at the lock while the laser tunes: make_safe() must get through.
            self._write_checked(self._sweep_commands.start)
            self._wait_until(self._waits_for_trigger, _ARMING_S, "come to 'waiting for trigger'")
        except BaseException:
            self._abandon_sweep()
            raise

    def finish_sweep(self, *, trigger: bool = True) -> SweepLog:
        """Trigger the sweep that is armed, wait for its end, and return its log; errors as for sweep().

        Parameters
        ----------
        trigger
            False leaves the trigger to whoever is connected with the trigger input (``trigger_input``).
        """
        planned = self._armed
        if planned is None:
            raise LimitError(f"{self.name}: no sweep is armed; call arm_sweep() first. Nothing was changed")
        try:
            if trigger:
                self.trigger_sweep()
            self._wait_for_sweep_end(planned.duration_s + _SWEEP_MARGIN_S)
        except BaseException:
            self._abandon_sweep()
            raise
        self._armed = None
        self._write_checked(self._sweep_commands.ignore_trigger)
        log = self.read_sweep_log()
        problem = log_problem(log.wavelength_m, planned.start_m, planned.stop_m, planned.step_m)
        if problem is not None:
            raise self._live_link().device_error(f"the sweep is not the one that was asked for: {problem}; repeat it")
        return log

    def stop_sweep(self) -> None:
        """Stop whatever sweep runs or waits; the laser stays at the wavelength that it has.

        Raises
        ------
        DeviceError
            If the laser refuses or does not stop.
        """
        self._armed = None
        self._write_checked(self._sweep_commands.stop, self._sweep_commands.ignore_trigger)
        self._wait_for_sweep_end(_ARMING_S)

    def trigger_sweep(self) -> None:
        """Give the software trigger to a sweep that waits for one; raises DeviceError if none does."""
        self._write_checked(self._sweep_commands.trigger)

    @abstractmethod
    def read_sweep_log(self) -> SweepLog:
        """Read the log of the latest sweep."""

    def _check_sweep(self, planned: PlannedSweep) -> None:
        self._check_wavelength(planned.start_m)
        self._check_wavelength(planned.stop_m)
        self._check_sweep_speed(planned)
        smallest, span_m = self._smallest_step_m, planned.span_m
        fits = smallest * (1.0 - _SLACK) <= planned.step_m <= span_m
        if not (fits and points_of(0.0, span_m, planned.step_m) <= self._longest_log):
            raise LimitError(
                f"{self.name}: a sweep over {span_m:g} m cannot have steps of {planned.step_m} m; steps are {smallest} "
                f"m or more, at most the sweep itself, and at most {self._longest_log} in number. Nothing was changed"
            )

    def _require_no_sweep(self) -> None:
        state = self._ask_sweep_state()
        if state != "stopped":
            raise self._live_link().device_error(f"a sweep is {state} already; wait for its end or call stop_sweep()")

    def _wait_for_sweep_end(self, deadline_s: float) -> None:
        self._wait_until(lambda: self._ask_sweep_state() == "stopped", deadline_s, "come to 'stopped'")

    def _abandon_sweep(self) -> None:
        """Stop a sweep after an error, which a second error must not hide."""
        self._armed = None
        try:
            self._live_link().write(self._sweep_commands.stop)
        except OptincError as error:
            self.log.error("%s may still be sweeping: %s", self.name, error)

    def _ask_log_points(self, query: str) -> int:
        """Ask for the number of points of the log; raise DeviceError if there is none."""
        link = self._live_link()
        points = link.query(query, parse_integer)
        if not 0 < points <= self._longest_log:
            raise link.device_error(f"the log of the sweep has {points} points; nothing was logged")
        return points

    @abstractmethod
    def _check_sweep_speed(self, planned: PlannedSweep) -> None:
        """Raise LimitError for a speed or direction that the laser cannot have."""

    @abstractmethod
    def _set_up_sweep(self, planned: PlannedSweep) -> None:
        """Make the settings of one sweep that waits for a trigger, and check what depends on them."""

    @abstractmethod
    def _ask_sweep_state(self) -> str:
        """Ask what the sweep does; ``"stopped"`` is none."""

    @abstractmethod
    def _waits_for_trigger(self) -> bool:
        """Ask whether the sweep waits for its trigger."""
