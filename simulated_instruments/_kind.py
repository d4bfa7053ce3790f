"""What a simulated bench needs to know of each kind of instrument."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from optinc_hw.clock import Clock
from simulated_instruments._session import SimulatedInstrument
from simulated_instruments.hidden_chip import HiddenChip

InstrumentRole = Literal["heaters", "laser", "meter", "switch"]
ServedLink = Literal["serial", "socket", "hislip"]


@dataclass(frozen=True)
class InstrumentSpec:
    """One instrument of a simulated bench.

    Parameters
    ----------
    name
        Its name, unique on the bench.
    kind
        Name of an ``InstrumentKind``, such as ``qontrol_q8iv``, ``santec_tsl570`` or ``keysight_n7745a``.
    size
        Modules of a heater driver, ports of a meter or switch, 1 for a laser.
    options
        What else its driver is constructed with and the instrument must know, such as ``{"model": "TSL-770"}``.
    """

    name: str
    kind: str
    size: int = 1
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Surroundings:
    """What an instrument is connected with.

    Parameters
    ----------
    chip
        The hidden chip.
    clock
        Time of the bench.
    channels
        Heater index per channel of a heater driver; detector index per port of a meter. The mapping of a meter behind
        an optical switch changes with the switch: look a port up when it is read, and keep no copy.
    """

    chip: HiddenChip
    clock: Clock
    channels: Mapping[int, int]


@dataclass(frozen=True)
class InstrumentKind:
    """A kind of simulated instrument.

    Parameters
    ----------
    name
        Value of ``InstrumentSpec.kind``.
    role
        What it does on a bench.
    build
        Makes one; raises ConfigurationError if size or options are not possible.
    link
        ``"serial"`` if clients reach it as a serial port (``socket://``, pseudo-terminal), ``"socket"`` for a VISA
        socket, ``"hislip"`` for a VISA resource with message ends, on which replies may hold any byte.
    command_ends
        Characters that end a command, for faults that hit single commands.
    """

    name: str
    role: InstrumentRole
    build: Callable[[InstrumentSpec, Surroundings], SimulatedInstrument]
    link: ServedLink = "socket"
    command_ends: bytes = b"\r\n"
