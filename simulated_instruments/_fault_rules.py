"""Which commands a fault hits, and what it makes of the bytes of a reply."""

import re
from dataclasses import dataclass

from optinc_hw.errors import ConfigurationError
from simulated_instruments._fault_kinds import (
    Doubled,
    FlippedBit,
    Garbled,
    LinkFault,
    Stuttered,
    Truncated,
    Unasked,
    WrongIdentity,
    fault_name,
)

_REPLY_ENDS = b"\r\n;"


@dataclass(frozen=True)
class Hit:
    """A fault that happened.

    Attributes
    ----------
    fault
        What it was.
    command
        The command that it hit, without terminator; empty for a client that connected.
    reply
        The genuine reply; empty if the instrument did not get to it.
    """

    fault: LinkFault
    command: bytes
    reply: bytes


class Injection:
    """A link fault in wait: hits matching commands from the ``after``-th on, ``count`` times, in a span of time.

    Parameters
    ----------
    fault
        What happens.
    match
        Regular expression searched in commands without their terminator.
    after
        Matching commands that pass unharmed first.
    count
        Commands to hit; None hits all.
    from_s, until_s
        Span of the bench's time in which commands count.
    """

    def __init__(
        self, fault: LinkFault, match: bytes, after: int, count: int | None, from_s: float, until_s: float
    ) -> None:
        try:
            self._search = re.compile(match).search
        except re.error as error:
            raise ConfigurationError(f"fault {fault_name(fault)}: match {match!r} is no pattern: {error}") from error
        if after < 0 or (count is not None and count < 1) or not from_s <= until_s:
            raise ConfigurationError(
                f"fault {fault_name(fault)}: after={after!r}, count={count!r}, from {from_s!r} s until {until_s!r} s "
                f"is no rule; give after >= 0, count >= 1 or none, and an end behind the start"
            )
        self.fault = fault
        self.hits = 0
        """Commands that were hit so far."""
        self._unharmed = after
        self._count = count
        self._span = (from_s, until_s)

    def spent(self, now: float) -> bool:
        """Tell whether nothing can be hit any more."""
        return now >= self._span[1] or (self._count is not None and self.hits >= self._count)

    def wants(self, command: bytes, now: float) -> bool:
        """Tell whether ``command`` is to be hit; counts it if it passes unharmed."""
        if not self._span[0] <= now < self._span[1] or self._search(command) is None:
            return False
        if self._unharmed > 0:
            self._unharmed -= 1
            return False
        return True


def altered(fault: LinkFault, reply: bytes) -> bytes:
    """Return what arrives of ``reply`` under a fault that changes its bytes and not its time."""
    match fault:
        case Truncated(keep=keep):
            return reply[: len(reply) // 2 if keep is None else min(keep, len(reply) - 1)]
        case Doubled():
            return reply + reply
        case Garbled(at=at, byte=byte):
            return _with_byte(reply, at, byte)
        case FlippedBit(at=at, bit=bit):
            return _with_byte(reply, at, reply[at % len(reply)] ^ (1 << bit))
        case Stuttered(times=times):
            return reply[:1] * (times - 1) + reply
        case Unasked(data=data, where="before"):
            return data + reply
        case Unasked(data=data):
            return reply + data
        case WrongIdentity(reply=identity):
            return identity + reply[len(reply.rstrip(_REPLY_ENDS)) :]
        case _:
            raise ConfigurationError(f"fault {fault_name(fault)} does not change the bytes of a reply")


def _with_byte(reply: bytes, at: int, byte: int) -> bytes:
    place = at % len(reply)
    return reply[:place] + bytes([byte]) + reply[place + 1 :]
