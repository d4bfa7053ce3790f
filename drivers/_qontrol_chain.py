"""A chain of Q8iv modules below its QCoDeS face: what is known of its outputs, and how they move."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivers._heater_limits import HeaterLimits, resistance_of
from drivers._link import Link
from drivers._qontrol_protocol import CHAIN_LINE, expect, parse_amperes, parse_ok, parse_volts
from drivers._ramp import CHANNELS_PER_MODULE, ramp_steps, vector_lines
from optinc_hw.clock import Clock
from optinc_hw.errors import DeviceError, IdentityError, InstrumentError, LimitError, LinkTimeoutError, ReplyError

_log = logging.getLogger(__name__)

_CHAIN_QUIET_S = 0.05
_READBACK_NOISE_V = 1e-3
_IMPLAUSIBLE = 2.0
_SAFE_V = 0.1


@dataclass(frozen=True)
class Pace:
    """How fast voltages may move: at most ``step`` V, then ``interval`` s on ``clock`` until the next step."""

    step: float
    interval: float
    clock: Clock


class Q8ivChain:
    """The modules at the far end of ``link``; callers hold ``link.lock``.

    Parameters
    ----------
    link
        Open link to the chain.
    owner
        Name of the instrument, for messages.
    modules
        Number of modules that the chain must have.

    Raises
    ------
    IdentityError
        If the chain is not ``modules`` Q8iv modules.
    """

    def __init__(self, link: Link, owner: str, modules: int) -> None:
        self.link = link
        self.channel_count = modules * CHANNELS_PER_MODULE
        self.driven = False
        """Whether this session has sent anything that changes an output."""
        self.known: NDArray[np.float64] = np.full(self.channel_count, np.nan)
        """Set voltage of each channel in V, NaN where it is not known for sure."""
        self._owner = owner
        self._modules = modules
        self.module_ids = self._ask_modules()
        full_voltage = link.query_lines("VFULL?", 1, parse_volts, tolerate_events=True)[0]
        full_current = link.query_lines("IFULL?", 1, parse_amperes, tolerate_events=True)[0]
        self.limits = HeaterLimits(owner, self.channel_count, full_voltage, full_current)

    def identify_again(self) -> None:
        """Check that the same modules answer, and take no set voltage for granted any more."""
        self.forget()
        ids = self._ask_modules()
        if ids != self.module_ids:
            raise IdentityError(
                f"{self._owner}: modules are {ids} now, but were {self.module_ids}; another chain answers "
                f"at this address"
            )

    def _ask_modules(self) -> tuple[str, ...]:
        self.link.synchronise()  # a port with nothing behind it is no chain of the wrong length
        parse = expect(CHAIN_LINE, "line like 'Q8iv-0001: 0'")
        try:
            lines = self.link.query_lines("NUPALL?", self._modules, parse, quiet=_CHAIN_QUIET_S, tolerate_events=True)
        except (LinkTimeoutError, ReplyError) as error:
            raise IdentityError(
                f"{self._owner}: the chain does not have exactly {self._modules} modules; correct the number of "
                f"modules or check the backplane ({error})"
            ) from error
        ids = tuple(line[1] for line in lines)
        if not all(module.startswith("Q8iv-") for module in ids):
            raise IdentityError(f"{self._owner}: modules are {ids}, but all must be of type Q8iv")
        return ids

    def read(self, channel: int, quantity: str) -> float:
        """Measure ``V`` (in V) or ``I`` (in A) of one channel."""
        return self._measure(f"{quantity}{channel}?", 1, quantity, tolerate_events=False)[0]

    def read_all(self, quantity: str, *, tolerate_events: bool = False) -> list[float]:
        """Measure ``V`` (in V) or ``I`` (in A) of all channels in one exchange."""
        values = self._measure(f"{quantity}ALL?", self.channel_count, quantity, tolerate_events=tolerate_events)
        if quantity == "I":
            self.limits.learn(self.known, np.array(values))
        return values

    def _measure(self, command: str, count: int, quantity: str, *, tolerate_events: bool) -> list[float]:
        try:
            return self.link.query_lines(command, count, self._parse(quantity), tolerate_events=tolerate_events)
        except DeviceError:
            self.forget()  # the module may have switched an output off
            raise

    def forget(self) -> None:
        """Take no set voltage for granted any more, so that the next ramp starts from measured ones."""
        self.known[:] = np.nan

    def check_targets(self, targets: Mapping[int, float]) -> dict[int, float]:
        """Check targets in V against the limits and free them of read-back noise; raises LimitError."""
        return {channel: self._checked(channel, float(volts)) for channel, volts in targets.items()}

    def _checked(self, channel: int, volts: float) -> float:
        # A value that was read back is a valid target although noise put it just outside the limits.
        nearest = min(max(volts, 0.0), self.limits.max_voltage(channel))
        if abs(volts - nearest) <= _READBACK_NOISE_V:
            volts = nearest
        self.limits.check_voltage(channel, volts)
        self.limits.check_load(channel, volts)
        return volts

    def ramp(self, targets: Mapping[int, float], pace: Pace) -> None:
        """Ramp to checked ``targets`` in V; channels that are known to be there are left alone.

        Raises LimitError, with the first step taken back, if a resistance that had to be measured first puts a target
        beyond a limit; otherwise raises what the link raises, with a note on how far the ramp got.
        """
        moving = {channel: volts for channel, volts in targets.items() if volts != self.known[channel]}
        start = {channel: float(self.known[channel]) for channel in moving}
        if any(np.isnan(volts) for volts in start.values()):
            measured = self.read_all("V")
            start = {
                channel: max(0.0, measured[channel]) if np.isnan(volts) else volts for channel, volts in start.items()
            }
        unproven = {channel for channel, volts in moving.items() if self.limits.unproven(channel, volts)}
        try:
            self._follow(start, moving, pace, unproven)
        except LimitError:
            self._follow({channel: float(self.known[channel]) for channel in moving}, start, pace, set())
            raise

    def _follow(self, start: Mapping[int, float], targets: Mapping[int, float], pace: Pace, unproven: set[int]) -> None:
        """Send the steps of a ramp; measure the resistance of the ``unproven`` channels on the way."""
        step = 0
        try:
            for moves in ramp_steps(start, targets, pace.step):
                if step:
                    pace.clock.sleep(pace.interval)
                step += 1
                for command, channels in vector_lines(moves, self.known):
                    self._send(command, channels, moves)
                unproven -= self._prove(unproven, targets)
        except InstrumentError as error:
            error.add_note(f"{self._owner}: the ramp stopped in step {step}; last set: {self._last_set(targets)}")
            if isinstance(error, DeviceError):
                self.forget()
            raise

    def _prove(self, unproven: set[int], targets: Mapping[int, float]) -> set[int]:
        """Measure resistances of channels with enough voltage on them, and check their targets with these."""
        ripe = {channel for channel in unproven if self.limits.ripe(float(self.known[channel]), targets[channel])}
        if ripe:
            currents = self.read_all("I")
            for channel in ripe:
                resistance = resistance_of(float(self.known[channel]), currents[channel])
                self.limits.check_load(channel, targets[channel], resistance)
        return ripe

    def ramp_to_zero(self, pace: Pace) -> None:
        """Ramp everything to 0 V in spite of errors of single modules, and verify it; raises the last error."""
        measured = self.read_all("V", tolerate_events=True)
        problem: InstrumentError | None = None
        zeros = dict.fromkeys(range(self.channel_count), 0.0)
        for step, moves in enumerate(ramp_steps(dict(enumerate(measured)), zeros, pace.step)):
            if step:
                pace.clock.sleep(pace.interval)
            for command, channels in vector_lines(moves, self.known):
                try:
                    self._send(command, channels, moves, tolerate_events=True)
                except InstrumentError as error:
                    if self.link.broken:
                        raise
                    problem = error
        if problem is not None:
            raise problem
        left = self.read_all("V", tolerate_events=True)
        stuck = {channel: volts for channel, volts in enumerate(left) if volts > _SAFE_V}
        if stuck:
            raise self.link.device_error(f"these channels do not go to 0 V: {stuck} (V); switch the supply off")

    def _send(
        self, command: str, channels: tuple[int, ...], moves: Mapping[int, float], *, tolerate_events: bool = False
    ) -> None:
        """Send one VVEC; until it is acknowledged the voltages of its channels are unknown."""
        where = list(channels)
        self.driven = True
        self.known[where] = np.nan
        self.link.query_lines(command, 1, parse_ok, tolerate_events=tolerate_events)
        self.known[where] = [moves[channel] for channel in channels]

    def _last_set(self, targets: Mapping[int, float]) -> str:
        parts = (f"{channel}: {self.known[channel]:.4f} V" for channel in sorted(targets))
        return ", ".join(parts).replace("nan V", "unknown")

    def _parse(self, quantity: str) -> Callable[[str], float]:
        """Make the parser of a measurement, which refuses values that the hardware cannot produce."""
        parse, full, unit = {
            "V": (parse_volts, self.limits.full_voltage, "V"),
            "I": (parse_amperes, self.limits.full_current, "A"),
        }[quantity]

        def parse_plausible(text: str) -> float:
            value = parse(text)
            if abs(value) > _IMPLAUSIBLE * full:
                raise ValueError(f"{text!r} is more than {_IMPLAUSIBLE:g} times full scale ({full:g} {unit})")
            return value

        return parse_plausible
