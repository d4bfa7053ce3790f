"""Faults on demand: late, broken and lost replies, broken links, and what goes wrong on the chip, scripted in time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from simulated_instruments._fault_kinds import (
    FAULTS,
    ChipFault,
    DeadDetector,
    Doubled,
    DriftingHeater,
    Dropped,
    ErrorFlood,
    Fault,
    FlippedBit,
    Frozen,
    Garbled,
    Glued,
    Late,
    LinkFault,
    LostReply,
    LostWrite,
    ModeHop,
    OffsetDetector,
    OpenHeater,
    PowerDrop,
    Refused,
    Restarted,
    SaturatedDetector,
    ShortedHeater,
    Split,
    Stuttered,
    Truncated,
    Unasked,
    WrongIdentity,
    fault_fields,
    fault_name,
)
from simulated_instruments._fault_link import FaultyInstrument
from simulated_instruments._fault_rules import Hit, Injection

__all__ = [
    "BenchFaults",
    "ChipFault",
    "DeadDetector",
    "Doubled",
    "DriftingHeater",
    "Dropped",
    "ErrorFlood",
    "Fault",
    "FaultScript",
    "FaultStep",
    "FlippedBit",
    "Frozen",
    "Garbled",
    "Glued",
    "Hit",
    "Late",
    "LinkFault",
    "LostReply",
    "LostWrite",
    "ModeHop",
    "OffsetDetector",
    "OpenHeater",
    "PowerDrop",
    "Refused",
    "Restarted",
    "SaturatedDetector",
    "ShortedHeater",
    "Split",
    "Stuttered",
    "Truncated",
    "Unasked",
    "WrongIdentity",
]

_STEP_KEYS = ("fault", "instrument", "match", "after", "count", "after_s", "for_s")


class SuffersFaults(Protocol):
    """What the faults of a bench need of its chip."""

    def inject(self, fault: ChipFault, *, after_s: float = 0.0, for_s: float = math.inf) -> None:
        """Let a fault begin ``after_s`` s from now and last for ``for_s`` s."""
        ...

    def heal(self) -> None:
        """End all faults, and forget those to come."""
        ...


@dataclass(frozen=True)
class FaultStep:
    """One fault of a script.

    Parameters
    ----------
    fault
        What happens.
    instrument
        Name of the instrument whose link it happens on; None for faults of the chip, which need none.
    match
        Regular expression searched in commands without their terminator; None for the fault's own, which is most
        often any command.
    after
        Matching commands that pass unharmed first.
    count
        Commands to hit; None hits all.
    after_s, for_s
        Seconds on the bench's clock from now until the fault lies in wait (or begins, on the chip), and how long.

    Raises
    ------
    ConfigurationError
        If these do not fit together.
    """

    fault: Fault
    instrument: str | None = None
    match: bytes | None = None
    after: int = 0
    count: int | None = 1
    after_s: float = 0.0
    for_s: float = math.inf

    def __post_init__(self) -> None:
        name = fault_name(self.fault)
        if isinstance(self.fault, LinkFault):
            if self.instrument is None:
                raise ConfigurationError(f"fault {name} happens on a link; name its instrument")
        elif self.instrument is not None or self.match is not None or self.after != 0 or self.count != 1:
            raise ConfigurationError(
                f"fault {name} happens on the chip, in time only; leave instrument, match, after and count out"
            )
        if not (0.0 <= self.after_s < math.inf and self.for_s > 0.0):
            raise ConfigurationError(
                f"fault {name}: after {self.after_s!r} s, for {self.for_s!r} s is no span of time to come"
            )


@dataclass(frozen=True)
class FaultScript:
    """Faults of several instruments and of the chip; times count from when the script is played."""

    steps: tuple[FaultStep, ...] = ()

    @classmethod
    def from_dicts(cls, steps: Sequence[Mapping[str, Any]]) -> Self:  # Any: whatever YAML can hold
        """Build a script from plain values, as YAML and JSON hold them.

        Parameters
        ----------
        steps
            A mapping per step: ``fault`` is a name such as ``late`` or ``open_heater``; ``instrument``, ``match``
            (text), ``after``, ``count``, ``after_s``, ``for_s`` are those of :class:`FaultStep`; every other key is a
            parameter of the fault (bytes as text in Latin-1).

        Raises
        ------
        ConfigurationError
            If a key or value is not possible; the message names the step.
        """
        return cls(tuple(_step(index, step) for index, step in enumerate(steps)))


class BenchFaults:
    """Inject faults into the links and the chip of a simulated bench; attribute ``faults`` of the bench.

    Parameters
    ----------
    links
        Link of each instrument.
    chip
        The hidden chip.
    clock
        Time of the bench.
    """

    def __init__(self, links: Mapping[str, FaultyInstrument], chip: SuffersFaults, clock: Clock) -> None:
        self._links = links
        self._chip = chip
        self._clock = clock

    def inject(
        self,
        instrument: str,
        fault: LinkFault,
        *,
        match: bytes | None = None,
        after: int = 0,
        count: int | None = 1,
        after_s: float = 0.0,
        for_s: float = math.inf,
    ) -> None:
        """Let a fault lie in wait on the link of an instrument; the parameters are those of :class:`FaultStep`.

        A command is hit by one fault at most: of several that want it, the first injected hits, and the others wait
        for the next one.

        Raises
        ------
        ConfigurationError
            If there is no such instrument, or the parameters do not fit together.
        """
        self.play(FaultScript((FaultStep(fault, instrument, match, after, count, after_s, for_s),)))

    def inject_on_chip(self, fault: ChipFault, *, after_s: float = 0.0, for_s: float = math.inf) -> None:
        """Let a fault of the chip begin ``after_s`` s from now and last for ``for_s`` s of the bench's clock.

        Raises
        ------
        ConfigurationError
            If the chip has no such heater or detector, or this is no span of time.
        """
        self.play(FaultScript((FaultStep(fault, after_s=after_s, for_s=for_s),)))

    def play(self, script: FaultScript) -> None:
        """Start a script now; its steps add to what lies in wait already.

        Raises
        ------
        ConfigurationError
            If a step names an instrument, heater or detector that is not there; steps before it are in force then.
        """
        now = self._clock.now()
        for step in script.steps:
            if isinstance(step.fault, LinkFault):
                match = step.fault.default_match if step.match is None else step.match
                span = (now + step.after_s, now + step.after_s + step.for_s)
                self._link(step.instrument).add(Injection(step.fault, match, step.after, step.count, *span))
            else:
                self._chip.inject(step.fault, after_s=step.after_s, for_s=step.for_s)

    def clear(self) -> None:
        """Let nothing lie in wait any more, and heal the chip."""
        for link in self._links.values():
            link.clear()
        self._chip.heal()

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how often each kind of fault has happened, by its name, for each instrument."""
        return {name: dict(link.counts) for name, link in self._links.items()}

    def hits(self, instrument: str) -> tuple[Hit, ...]:
        """Return the latest faults that happened to an instrument, up to 1000: what was hit and what was genuine."""
        return tuple(self._link(instrument).hits)

    def wait_for(self, instrument: str, count: int, timeout_s: float) -> bool:
        """Wait until faults have happened to an instrument ``count`` times in all.

        Parameters
        ----------
        instrument
            Its name.
        count
            Faults of all kinds, those before this call included.
        timeout_s
            Longest wait in s of real time: clients are other threads or programs.

        Returns
        -------
        bool
            Whether they have happened.
        """
        return self._link(instrument).wait_for(count, timeout_s)

    def send_unasked(self, instrument: str, data: bytes) -> None:
        """Send bytes to all clients of an instrument now; message-based clients get them with the next reply."""
        self._link(instrument).send_unasked(data)

    def drop(self, instrument: str) -> None:
        """Break the connections of all clients of an instrument now."""
        self._link(instrument).drop()

    def restart(self, instrument: str, *, drop: bool = True) -> None:
        """Let the power of an instrument fail for a moment now; ``drop`` breaks the connections of its clients."""
        self._link(instrument).restart()
        if drop:
            self._link(instrument).drop()

    def swap(self, instrument: str, other: str) -> None:
        """Exchange the addresses of two instruments now, as by swapped plugs; their clients are cut off."""
        self._link(instrument).swap(self._link(other))

    def _link(self, instrument: str | None) -> FaultyInstrument:
        if instrument is None or instrument not in self._links:
            raise ConfigurationError(
                f"faults: there is no instrument {instrument!r}; there are {', '.join(self._links)}"
            )
        return self._links[instrument]


def _step(index: int, step: Mapping[str, Any]) -> FaultStep:  # Any: whatever YAML can hold
    where = f"fault script, step {index}"
    kind = FAULTS.get(str(step.get("fault")))
    if kind is None:
        raise ConfigurationError(f"{where}: fault {step.get('fault')!r} is none of {', '.join(FAULTS)}")
    own = fault_fields(kind)
    unknown = [key for key in step if key not in _STEP_KEYS and key not in own]
    if unknown:
        raise ConfigurationError(f"{where}: {', '.join(unknown)} cannot be given for fault {step['fault']}")
    try:
        rule = {key: _plain(value, key == "match") for key, value in step.items() if key in _STEP_KEYS[1:]}
        values = {key: _plain(value, key in _BYTES) for key, value in step.items() if key in own}
        return FaultStep(kind(**values), **rule)
    except (TypeError, ValueError, ConfigurationError) as error:
        raise ConfigurationError(f"{where}: {error}") from error


_BYTES = ("data", "reply")


def _plain(value: Any, is_bytes: bool) -> Any:  # Any: whatever YAML can hold
    return value.encode("latin-1") if is_bytes and isinstance(value, str) else value
