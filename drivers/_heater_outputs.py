"""Outputs of a heater bank below its QCoDeS face: what is known of them, how they move, and what a wire must do."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from drivers._heater_limits import HeaterLimits, resistance_of
from drivers._link import Link
from drivers._ramp import ramp_steps
from optinc_hw.clock import Clock
from optinc_hw.errors import DeviceError, InstrumentError, LimitError

_log = logging.getLogger(__name__)

_READBACK_NOISE_V = 1e-3
_SAFE_V = 0.1
_MOST_PLANS = 200
"""How often a ramp to 0 V starts anew from what is measured, however often errors come: it must end."""

Quantity = Literal["V", "I"]
"""What can be read of a channel: its voltage in V or its current in A."""


@dataclass(frozen=True)
class Pace:
    """How fast voltages may move: at most ``step`` V, then ``interval`` s on ``clock`` until the next step."""

    step: float
    interval: float
    clock: Clock


class HeaterWire(ABC):
    """Wire protocol of one heater bank: the part of a driver that knows its commands; callers hold the link's lock.

    Methods raise what the link raises, and DeviceError for what the instrument itself reports. With
    ``tolerate_errors`` they log errors that the instrument reports of single channels and go on: that is how outputs
    are brought to 0 V in spite of them.

    Attributes
    ----------
    channel_count
        Number of channels.
    full_voltage, full_current
        Full scale in V and A.
    min_voltage
        Lowest voltage in V that the hardware can have on an output: below 0 V if it is bipolar, although this
        package never asks for less than 0 V.
    tells_voltage
        Whether voltages can be read. If not, a channel starts from the voltage last set or declared, or not at all.
    start_tolerance
        Largest difference in V between the voltage last set and the one that is read when the next ramp starts; a
        channel further away starts from what is read. None where an instrument cannot restart unnoticed.
    has_switches
        Whether outputs must be switched on, with :meth:`enable`, before they are driven.
    """

    channel_count: int
    full_voltage: float
    full_current: float
    min_voltage: float = 0.0
    tells_voltage: bool = True
    start_tolerance: float | None = None
    has_switches: bool = False

    @abstractmethod
    def read(self, quantity: Quantity, channel: int) -> float:
        """Read the voltage in V or the current in A of one channel."""

    def read_some(self, channels: Sequence[int]) -> list[float]:
        """Read the voltages in V of some channels; one by one unless overridden."""
        return [self.read("V", channel) for channel in channels]

    @abstractmethod
    def read_all(self, quantity: Quantity, *, tolerate_errors: bool = False) -> list[float]:
        """Read the voltages in V or the currents in A of all channels, with as few exchanges as possible."""

    @abstractmethod
    def send(self, voltages: Mapping[int, float], *, tolerate_errors: bool = False) -> None:
        """Set the channels of one of the :meth:`groups` to voltages in V at once, and see it acknowledged if it is."""

    def groups(
        self,
        moves: Mapping[int, float],
        known: Sequence[float],  # noqa: ARG002 - for commands that set more than what moves
    ) -> Iterable[dict[int, float]]:
        """Cut ``moves`` into groups of channels that one command sets; one group a channel unless overridden.

        A group may hold channels that do not move, at their ``known`` voltage in V, but none whose voltage is not
        known (NaN).
        """
        return ({channel: moves[channel]} for channel in sorted(moves))

    def check(self, channels: Iterable[int]) -> None:  # noqa: B027 - most instruments are always ready
        """Raise DeviceError if channels are in no state to be driven; only asks, and is called before every ramp."""

    def enable(self, channels: Iterable[int]) -> Iterable[int]:  # noqa: ARG002 - most have nothing to switch on
        """Switch outputs on that are off, at 0 V and without a jump; called before a ramp if ``has_switches``.

        Returns the channels that were off; they are at 0 V now.
        """
        return ()

    def finish(self, voltages: Mapping[int, float]) -> None:  # noqa: B027 - needed where commands are not acknowledged
        """Raise DeviceError if a ramp to ``voltages`` in V did not go well; called at the end of every ramp."""

    def disable(self) -> None:  # noqa: B027 - most instruments have nothing to switch off
        """Switch outputs off that :meth:`enable` switched on; called when all of them are at 0 V."""


class _GroupError(Exception):
    """A command of a ramp to 0 V failed, for reason ``problem``; the others can go on without its ``channels``."""

    def __init__(self, problem: InstrumentError, channels: set[int]) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.channels = channels


class HeaterOutputs:
    """The outputs at the far end of a ``wire``; callers hold ``link.lock``.

    Parameters
    ----------
    wire
        Wire protocol of the instrument.
    link
        Its link.
    owner
        Name of the instrument, for messages.
    """

    def __init__(self, wire: HeaterWire, link: Link, owner: str) -> None:
        self.wire = wire
        self.link = link
        self.driven = False
        """Whether this session has sent anything that changes an output."""
        self.known = [math.nan] * wire.channel_count
        """Set voltage of each channel in V, NaN where it is not known for sure."""
        self.limits = HeaterLimits(owner, wire.channel_count, wire.full_voltage, wire.full_current)
        self._owner = owner
        self._last_step: tuple[Clock, float] | None = None
        self._mishaps = link.mishaps

    def forget(self) -> None:
        """Take no set voltage for granted any more, so that the next ramp starts from voltages that are read."""
        self.known[:] = [math.nan] * len(self.known)

    def doubt_after_mishaps(self) -> None:
        """Forget set voltages if the link had a mishap since they were set: the instrument may have restarted."""
        if self.link.mishaps != self._mishaps:
            self._mishaps = self.link.mishaps
            self.forget()

    @contextmanager
    def doubting_after_errors(self) -> Iterator[None]:
        """Forget set voltages if the instrument reports an error: it may have switched an output off, or restarted."""
        try:
            yield
        except DeviceError:
            self.forget()
            raise

    def read(self, quantity: Quantity, channel: int) -> float:
        """Read ``V`` (in V) or ``I`` (in A) of one channel."""
        self.doubt_after_mishaps()
        if quantity == "V" and not self.wire.tells_voltage:
            return self.known[channel]
        with self.doubting_after_errors():
            return self.wire.read(quantity, channel)

    def read_all(self, quantity: Quantity, *, tolerate_errors: bool = False) -> list[float]:
        """Read ``V`` (in V) or ``I`` (in A) of all channels; a voltage that the instrument cannot tell is NaN."""
        self.doubt_after_mishaps()
        if quantity == "V" and not self.wire.tells_voltage:
            return list(self.known)
        with self.doubting_after_errors():
            values = self.wire.read_all(quantity, tolerate_errors=tolerate_errors)
        if quantity == "I":
            self.limits.learn(self.known, values)
        return values

    def check_targets(self, targets: Mapping[int, float]) -> dict[int, float]:
        """Check targets in V against the limits and free them of read-back noise; raises LimitError."""
        checked = {channel: float(volts) for channel, volts in targets.items()}
        for channel in self.limits.breached(checked):
            checked[channel] = self._checked(channel, checked[channel])
        return checked

    def _checked(self, channel: int, volts: float) -> float:
        highest = self.limits.max_voltage(channel)
        if not 0.0 <= volts <= highest:
            # A value that was read back is a valid target although noise put it just outside the limits.
            nearest = min(max(volts, 0.0), highest)
            if abs(volts - nearest) <= _READBACK_NOISE_V:
                volts = nearest
        self.limits.check_voltage(channel, volts)
        self.limits.check_load(channel, volts)
        return volts

    def ramp(self, targets: Mapping[int, float], pace: Pace) -> None:
        """Ramp to checked ``targets`` in V; channels that are known to be there are left alone.

        Raises LimitError, with the first step taken back, if a resistance that had to be measured first puts a target
        beyond a limit; otherwise raises what the wire raises, with a note on how far the ramp got.
        """
        self.doubt_after_mishaps()
        moving = {channel: volts for channel, volts in targets.items() if volts != self.known[channel]}
        if moving:
            self._make_ready(moving)
        start = self._start(moving)
        unproven = set(self.limits.unproven(moving))
        try:
            self._follow(start, moving, pace, unproven)
        except LimitError:
            self._follow({channel: self.known[channel] for channel in moving}, start, pace, set())
            self._finish(start)
            raise
        self._finish(moving)

    def _finish(self, voltages: Mapping[int, float]) -> None:
        try:
            with self.doubting_after_errors():
                self.wire.finish(voltages)
        except InstrumentError as error:
            error.add_note(f"{self._owner}: the ramp stopped in its check at the end")
            raise

    def _make_ready(self, moving: Mapping[int, float]) -> None:
        with self.doubting_after_errors():
            self.wire.check(moving)
            if self.wire.has_switches:
                self.driven = True
                were_off = tuple(self.wire.enable(moving))
                if any(self.known[channel] > 0.0 for channel in were_off):
                    self.forget()  # it has restarted, and the other channels fell too
                for channel in were_off:
                    self.known[channel] = 0.0

    def _start(self, moving: Mapping[int, float]) -> dict[int, float]:
        """Where channels start: at the voltage last set or declared, else at the one that is read; in V."""
        self._confirm(moving)
        start = {channel: self.known[channel] for channel in moving}
        if any(map(math.isnan, start.values())):
            unknown = [channel for channel, volts in start.items() if math.isnan(volts)]
            if not self.wire.tells_voltage:
                raise LimitError(
                    f"{self._owner}: the voltages of channels {unknown} are not known and the instrument cannot tell "
                    f"them, so a ramp could jump. Nothing was moved; say with declare_voltages() what they are"
                )
            measured = self.read_all("V")
            unread = [channel for channel in unknown if math.isnan(measured[channel])]
            if unread:
                raise self.link.device_error(
                    f"the voltages of channels {unread} are out of the range of its reading, so a ramp could jump; "
                    f"nothing was moved"
                )
            start |= {channel: max(self.wire.min_voltage, measured[channel]) for channel in unknown}
        return start

    def _confirm(self, moving: Mapping[int, float]) -> None:
        """Forget set voltages if channels do not have them any more, where an instrument can restart unnoticed."""
        tolerance = self.wire.start_tolerance
        if tolerance is None:
            return
        known = [channel for channel in moving if not math.isnan(self.known[channel])]
        if not known:
            return
        with self.doubting_after_errors():
            actual = self.wire.read_some(known)
        for channel, volts in zip(known, actual, strict=True):
            if not abs(volts - self.known[channel]) <= tolerance:
                _log.warning(
                    "%s: channel %d was set to %g V but is at %g V now",
                    self._owner,
                    channel,
                    self.known[channel],
                    volts,
                )
                self.forget()  # after a restart the others fell too
                return

    def _follow(self, start: Mapping[int, float], targets: Mapping[int, float], pace: Pace, unproven: set[int]) -> None:
        """Send the steps of a ramp; measure the resistance of the ``unproven`` channels on the way."""
        step = 0
        try:
            for moves in ramp_steps(start, targets, pace.step):
                self._await_turn(pace)
                step += 1
                with self._timed(pace):
                    for group in self.wire.groups(moves, self.known):
                        self._send(group)
                unproven -= self._prove(unproven, targets)
        except InstrumentError as error:
            error.add_note(f"{self._owner}: the ramp stopped in step {step}; last set: {self._last_set(targets)}")
            if isinstance(error, DeviceError):
                self.forget()
            raise

    @contextmanager
    def _timed(self, pace: Pace) -> Iterator[None]:
        """Note when a step was made; of one that was broken off nobody knows when the instrument takes it up."""
        self._last_step = pace.clock, math.nan
        yield
        self._last_step = pace.clock, pace.clock.now()

    def _await_turn(self, pace: Pace) -> None:
        """Wait until the interval since the last step is over; it may have been the last one of an earlier ramp."""
        if self._last_step is None or self._last_step[0] is not pace.clock:
            return
        now, made = pace.clock.now(), self._last_step[1]
        # A broken-off step was made at the latest when the voltages were read to start from, which is over now.
        remaining = (now if math.isnan(made) else made) + pace.interval - now
        pace.clock.sleep(max(0.0, remaining))

    def _prove(self, unproven: set[int], targets: Mapping[int, float]) -> set[int]:
        """Measure resistances of channels with enough voltage on them, and check their targets with these."""
        ripe = {channel for channel in unproven if self.limits.ripe(self.known[channel], targets[channel])}
        if ripe:
            currents = self.read_all("I")
            for channel in ripe:
                if math.isnan(currents[channel]):
                    raise LimitError(
                        f"{self._owner}: the current of channel {channel} is out of the range of its reading, so its "
                        f"limits cannot be checked; choose a higher range, or leave limits of current and power out"
                    )
                resistance = resistance_of(self.known[channel], currents[channel])
                self.limits.check_load(channel, targets[channel], resistance)
        return ripe

    def ramp_to_zero(self, pace: Pace) -> None:
        """Ramp everything to 0 V in spite of errors of single channels, and verify it; raises the last error.

        A channel whose voltage neither this session nor the instrument knows goes to 0 V at once: no ramp can be
        made for it, and cold heaters are safer than hot ones.
        """
        problem: InstrumentError | None = None
        failed: set[int] = set()
        for _ in range(_MOST_PLANS):
            start = {channel: volts for channel, volts in self._measured_or_zero().items() if channel not in failed}
            try:
                if self._follow_to_zero(start, pace):
                    break
            except _GroupError as error:
                problem = error.problem
                failed |= error.channels
        if problem is not None:
            raise problem
        left = self.read_all("V", tolerate_errors=True)
        stuck = {channel: volts for channel, volts in enumerate(left) if not abs(volts) <= _SAFE_V}
        if stuck:
            raise self.link.device_error(f"these channels do not go to 0 V: {stuck} (V); switch the supply off")

    def _measured_or_zero(self) -> dict[int, float]:
        measured = self.read_all("V", tolerate_errors=True)
        return {channel: 0.0 if math.isnan(volts) else volts for channel, volts in enumerate(measured)}

    def _follow_to_zero(self, start: Mapping[int, float], pace: Pace) -> bool:
        """Ramp from ``start`` in V to 0 V; stop and return False after an error that has come beside a reply.

        After it channels may be at 0 V, as in a restart, and the next command could raise them. Raises _GroupError if
        a command failed; where all go to 0 V in one step, what it raised, after the other commands.
        """
        problem: InstrumentError | None = None
        for moves in ramp_steps(start, dict.fromkeys(start, 0.0), pace.step):
            last = not any(moves.values())
            self._await_turn(pace)
            with self._timed(pace):
                for group in self.wire.groups(moves, self.known):
                    mishaps = self.link.mishaps
                    try:
                        self._send(group, tolerate_errors=True)
                    except InstrumentError as error:
                        if self.link.broken:
                            raise
                        if not last:
                            raise _GroupError(error, set(group)) from error
                        problem = error
                    if self.link.mishaps != mishaps and not last:
                        return False
        if problem is not None:
            raise problem
        return True

    def _send(self, group: Mapping[int, float], *, tolerate_errors: bool = False) -> None:
        """Send one command; until it is acknowledged the voltages of its channels are unknown."""
        self.driven = True
        for channel in group:
            self.known[channel] = math.nan
        self.wire.send(group, tolerate_errors=tolerate_errors)
        for channel, volts in group.items():
            self.known[channel] = volts

    def _last_set(self, targets: Mapping[int, float]) -> str:
        parts = (f"{channel}: {self.known[channel]:.4f} V" for channel in sorted(targets))
        return ", ".join(parts).replace("nan V", "unknown")
