"""The one-word commands of Santec's power meter mainframe: parsing, errors, the busy and the measuring state."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulated_instruments._scpi import ErrorQueue, Reply, ScpiError
from simulated_instruments._session import LineSession

INVALID_CHARACTER = (-101, "Invalid character")
SEPARATOR = (-103, "Invalid separator")
DATA_TYPE = (-104, "Data type error")
PARAMETER_COUNT = (-108, "Parameter not allowed")
HEADER_TOO_LONG = (-110, "Command header error")
UNDEFINED = (-113, "Undefined header")
CONFLICT = (-221, "Settings conflict")
OUT_OF_RANGE = (-222, "Data out of range")
BUSY = (-284, "Program currently running")
NO_MODULE = (-301, "Module does not exist")

_LONGEST_HEADER = 12


@dataclass(frozen=True)
class Word:
    """One command.

    Attributes
    ----------
    run
        Called with the arguments; returns a reply or nothing.
    counts
        Numbers of arguments that are allowed.
    sets
        Whether it changes a setting, which is refused while measuring.
    always
        Whether it works while the instrument is busy.
    """

    run: Callable[[list[str]], Reply]
    counts: tuple[int, ...] = (0,)
    sets: bool = False
    always: bool = False


class WordInterpreter:
    """Run one-word commands, in capitals, with arguments behind a blank and between commas.

    Parameters
    ----------
    words
        Command by its word; queries end with a question mark.
    errors
        Where errors go; an erroneous command gives no reply.
    busy, measuring
        Tell whether the instrument is busy, and whether it measures.
    """

    def __init__(
        self,
        words: Mapping[str, Word],
        errors: ErrorQueue,
        busy: Callable[[], bool],
        measuring: Callable[[], bool],
    ) -> None:
        self._words, self._errors, self._busy, self._measuring = words, errors, busy, measuring
        self._lock = threading.RLock()

    def open_session(self) -> LineSession:
        """Return a session that takes CR, LF or CRLF as the end of a command."""
        return LineSession(self.execute)

    def execute(self, line: str) -> bytes:
        """Run one command and return the reply with its CR, or nothing."""
        with self._lock:
            try:
                reply = self._run(line)
            except ScpiError as error:
                self._errors.push(error)
                return b""
            if reply is None:
                return b""
            return (reply.encode("ascii") if isinstance(reply, str) else reply) + b"\r"

    def _run(self, line: str) -> Reply:
        if not line.isascii() or not line.isprintable():
            raise ScpiError(*INVALID_CHARACTER)
        header, _, text = line.partition(" ")
        if len(header) > _LONGEST_HEADER:
            raise ScpiError(*HEADER_TOO_LONG)
        word = self._words.get(header)
        if word is None:
            raise ScpiError(*UNDEFINED)
        arguments = [argument.strip() for argument in text.split(",")] if text.strip() else []
        if any(not argument for argument in arguments):
            raise ScpiError(*SEPARATOR)
        if len(arguments) not in word.counts:
            raise ScpiError(*PARAMETER_COUNT)
        if self._busy() and not word.always:
            raise ScpiError(*BUSY)
        if self._measuring() and word.sets:
            raise ScpiError(*CONFLICT)
        return word.run(arguments)


def integer(text: str, lowest: int, highest: int) -> int:
    """Parse an integer in a range."""
    try:
        value = int(text)
    except ValueError:
        raise ScpiError(*DATA_TYPE) from None
    if not lowest <= value <= highest:
        raise ScpiError(*OUT_OF_RANGE)
    return value


def decimal(text: str, lowest: float, highest: float) -> float:
    """Parse a number in a range."""
    try:
        value = float(text)
    except ValueError:
        raise ScpiError(*DATA_TYPE) from None
    if not lowest <= value <= highest:
        raise ScpiError(*OUT_OF_RANGE)
    return value
