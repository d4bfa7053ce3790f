"""What can go wrong between a client and a simulated instrument, and on the chip behind it."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from optinc_hw.errors import ConfigurationError


@dataclass(frozen=True)
class LinkFault:
    """Something that goes wrong between a client and an instrument, each time a command or a reply is hit.

    Attributes
    ----------
    hits
        ``"reply"`` if the fault hits commands that are answered, ``"command"`` if it hits any command,
        ``"connection"`` if it hits clients that connect.
    default_match
        Regular expression of the commands that the fault hits where the script does not say.
    """

    hits: ClassVar[Literal["reply", "command", "connection"]] = "reply"
    default_match: ClassVar[bytes] = b""


@dataclass(frozen=True)
class Late(LinkFault):
    """The reply is held back until the next command has arrived, or for a time.

    Parameters
    ----------
    seconds
        Wall-clock time in s by which the reply is late; None holds it until the next command.
    """

    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            _check("seconds", self.seconds, 0.0, 600.0)


@dataclass(frozen=True)
class Truncated(LinkFault):
    """Only the first ``keep`` bytes of the reply arrive; half of them where left out."""

    keep: int | None = None

    def __post_init__(self) -> None:
        if self.keep is not None:
            _check("keep", self.keep, 0, math.inf)


@dataclass(frozen=True)
class Split(LinkFault):
    """The reply arrives in pieces.

    Parameters
    ----------
    piece
        Bytes per piece.
    pause_s
        Wall-clock time in s between two pieces.
    """

    piece: int = 1
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        _check("piece", self.piece, 1, math.inf)
        _check("pause_s", self.pause_s, 0.0, 600.0)


@dataclass(frozen=True)
class Glued(LinkFault):
    """The reply is held back and arrives in one piece with the next reply."""


@dataclass(frozen=True)
class Doubled(LinkFault):
    """The reply arrives twice, in one piece."""


@dataclass(frozen=True)
class Garbled(LinkFault):
    """One byte of the reply is replaced.

    Parameters
    ----------
    at
        Position of the byte, counted on from the start again beyond the end; negative counts from the end.
    byte
        What arrives instead, 0..255; 255 is no character in any encoding that instruments use.
    """

    at: int = 0
    byte: int = 0xFF

    def __post_init__(self) -> None:
        _check("byte", self.byte, 0, 255)


@dataclass(frozen=True)
class FlippedBit(LinkFault):
    """One bit of the reply is flipped.

    Parameters
    ----------
    at
        Position of its byte, counted on from the start again beyond the end; negative counts from the end.
    bit
        0..7; with 7 no text remains text.
    """

    at: int = 0
    bit: int = 7

    def __post_init__(self) -> None:
        _check("bit", self.bit, 0, 7)


@dataclass(frozen=True)
class Stuttered(LinkFault):
    """The first character of the reply arrives ``times`` times."""

    times: int = 4

    def __post_init__(self) -> None:
        _check("times", self.times, 2, 1000)


@dataclass(frozen=True)
class LostReply(LinkFault):
    """The command is carried out and its reply never arrives."""


@dataclass(frozen=True)
class Unasked(LinkFault):
    """Bytes that nobody asked for arrive in one piece with the reply.

    Parameters
    ----------
    data
        The bytes.
    where
        ``"before"`` or ``"after"`` the reply.
    """

    data: bytes = b"\x00"
    where: Literal["before", "after"] = "before"

    def __post_init__(self) -> None:
        _check_choice("where", self.where, ("before", "after"))


@dataclass(frozen=True)
class WrongIdentity(LinkFault):
    """Another identity is told; hits identity queries unless told otherwise.

    Parameters
    ----------
    reply
        What is told instead, without terminator.
    """

    default_match: ClassVar[bytes] = rb"(?i)(\*?IDN?|NUPALL|MOD)\?"

    reply: bytes = b"Acme,Toaster,0,1.0"


@dataclass(frozen=True)
class LostWrite(LinkFault):
    """The command never reaches the instrument."""

    hits: ClassVar[Literal["command"]] = "command"


@dataclass(frozen=True)
class Dropped(LinkFault):
    """The connection breaks.

    Parameters
    ----------
    when
        ``"unheard"``: before the instrument gets the command; ``"before"``, ``"within"`` (half of the bytes arrive)
        or ``"after"`` its reply.
    """

    hits: ClassVar[Literal["command"]] = "command"

    when: Literal["unheard", "before", "within", "after"] = "before"

    def __post_init__(self) -> None:
        _check_choice("when", self.when, ("unheard", "before", "within", "after"))


@dataclass(frozen=True)
class Refused(LinkFault):
    """A client that connects is cut off at once."""

    hits: ClassVar[Literal["connection"]] = "connection"


@dataclass(frozen=True)
class Frozen(LinkFault):
    """The instrument takes commands and does nothing."""

    hits: ClassVar[Literal["command"]] = "command"


@dataclass(frozen=True)
class Restarted(LinkFault):
    """The power fails for a moment: settings and outputs are at their start values, and the command is lost.

    Parameters
    ----------
    drop
        Whether the connections of all clients break, as with a network plug of the instrument's own; without, as
        with an adapter that has power of its own.
    """

    hits: ClassVar[Literal["command"]] = "command"

    drop: bool = True


@dataclass(frozen=True)
class ErrorFlood(LinkFault):
    """``errors`` errors happen inside the instrument before it carries the command out."""

    hits: ClassVar[Literal["command"]] = "command"

    errors: int = 50

    def __post_init__(self) -> None:
        _check("errors", self.errors, 1, 1_000_000)


@dataclass(frozen=True)
class ChipFault:
    """Something that is wrong with the chip or its light for a time; it changes only what instruments measure."""


@dataclass(frozen=True)
class OpenHeater(ChipFault):
    """No current flows through ``heater`` (its name in the layout), which gives off no heat."""

    heater: str


@dataclass(frozen=True)
class ShortedHeater(ChipFault):
    """``heater`` has ``resistance_ohm`` instead of its own, whatever its power; its source runs into its limit."""

    heater: str
    resistance_ohm: float = 1.0

    def __post_init__(self) -> None:
        _check("resistance_ohm", self.resistance_ohm, 1e-3, 1e9)


@dataclass(frozen=True)
class DriftingHeater(ChipFault):
    """The cold resistance of ``heater`` grows by the fraction ``per_s`` of its nominal value every second."""

    heater: str
    per_s: float

    def __post_init__(self) -> None:
        _check("per_s", self.per_s, -1.0, 1e3)


@dataclass(frozen=True)
class DeadDetector(ChipFault):
    """``detector`` sees no light; its dark offset and noise remain."""

    detector: str


@dataclass(frozen=True)
class SaturatedDetector(ChipFault):
    """``detector`` drives its amplifier to the rail, beyond every range, by light above ``above_w`` W."""

    detector: str
    above_w: float = 0.0

    def __post_init__(self) -> None:
        _check("above_w", self.above_w, 0.0, math.inf)


@dataclass(frozen=True)
class OffsetDetector(ChipFault):
    """``detector`` reads ``offset_w`` W more."""

    detector: str
    offset_w: float

    def __post_init__(self) -> None:
        _check("offset_w", self.offset_w, -1.0, 1.0)


@dataclass(frozen=True)
class ModeHop(ChipFault):
    """The light has a wavelength that is ``shift_m`` m longer than the laser believes."""

    shift_m: float

    def __post_init__(self) -> None:
        _check("shift_m", self.shift_m, -100e-9, 100e-9)


@dataclass(frozen=True)
class PowerDrop(ChipFault):
    """The light has the fraction ``factor`` of the power that the laser believes."""

    factor: float

    def __post_init__(self) -> None:
        _check("factor", self.factor, 0.0, 1.0)


Fault = LinkFault | ChipFault

_LINK_FAULTS: tuple[type[LinkFault], ...] = (
    Late, Truncated, Split, Glued, Doubled, Garbled, FlippedBit, Stuttered, LostReply, Unasked, WrongIdentity,
    LostWrite, Dropped, Refused, Frozen, Restarted, ErrorFlood,
)  # fmt: skip
_CHIP_FAULTS: tuple[type[ChipFault], ...] = (
    OpenHeater, ShortedHeater, DriftingHeater, DeadDetector, SaturatedDetector, OffsetDetector, ModeHop, PowerDrop,
)  # fmt: skip


def fault_name(fault: Fault) -> str:
    """Name of a fault in scripts: ``LostReply`` is ``lost_reply``."""
    return _name_of(type(fault))


def _name_of(kind: type[Fault]) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("_")


_KINDS: tuple[type[Fault], ...] = (*_LINK_FAULTS, *_CHIP_FAULTS)
FAULTS = {_name_of(kind): kind for kind in _KINDS}
"""Every kind of fault by its name in scripts."""


def fault_fields(kind: type[Fault]) -> tuple[str, ...]:
    """Names of the parameters of a kind of fault."""
    return tuple(field.name for field in fields(kind))


def _check(name: str, value: float, lowest: float, highest: float) -> None:
    whole = isinstance(lowest, int)
    right_type = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right_type or not lowest <= value <= highest:
        kind = "an integer" if whole else "a number"
        raise ConfigurationError(f"fault: {name} cannot be {value!r}; give {kind} from {lowest:g} to {highest:g}")


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigurationError(f"fault: {name} cannot be {value!r}; it is one of {', '.join(allowed)}")
