"""How an instrument frames its lines."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """How an instrument frames its lines, and how to find one's place in its stream.

    Attributes
    ----------
    terminator
        Ends every reply, and every command unless ``command_terminator`` is given.
    resync_command, resync_reply
        A question, and the form of its answer, which no other reply of the instrument has.
    event, event_start
        Form of lines that the instrument sends unasked, and of every beginning of such a line; None if it sends none.
    explain_events
        Puts such lines into words.
    command_terminator
        Ends every command.
    confirm_command, confirm_reply
        A second such question. With it no time is spent on waiting for another answer to the first one: the question
        whose answer went astray is not both of them, so the second answer is fresh.
    """

    terminator: bytes
    resync_command: str
    resync_reply: re.Pattern[bytes]
    event: re.Pattern[bytes] | None = None
    event_start: re.Pattern[bytes] | None = None
    explain_events: Callable[[list[str]], str] = ", ".join
    command_terminator: bytes | None = None
    confirm_command: str = ""
    confirm_reply: re.Pattern[bytes] | None = None

    @property
    def command_end(self) -> bytes:
        """What ends a command on the wire."""
        return self.terminator if self.command_terminator is None else self.command_terminator

    def encode(self, command: str | bytes) -> bytes:
        """Return the bytes of a command, those of a binary frame as they are; raises ValueError if it is no line."""
        if isinstance(command, bytes):
            return command
        if not command.isascii() or not command.isprintable() or not command:
            raise ValueError(f"did not send {command!r}; a command is one line of printable ASCII")
        return command.encode("ascii") + self.command_end
