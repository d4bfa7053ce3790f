"""SCPI as several simulated instruments speak it: command trees, numbers with units, the error queue."""

import math
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from simulated_instruments._session import LineSession

Reply = str | bytes | None
Handler = Callable[[tuple[int, ...], list[str]], Reply]

_CACHED_HEADERS = 4096
_FIRST_EXECUTION_ERROR = -200
_ERRORS_WAITING = 4

LENGTH_UNITS = {"": 1.0, "M": 1.0, "UM": 1e-6, "NM": 1e-9, "PM": 1e-12}
TIME_UNITS = {"": 1.0, "S": 1.0, "MS": 1e-3, "US": 1e-6, "NS": 1e-9}
SPEED_UNITS = {"": 1.0, "M/S": 1.0, "UM/S": 1e-6, "NM/S": 1e-9, "PM/S": 1e-12}
FREQUENCY_UNITS = {"": 1.0, "HZ": 1.0, "KHZ": 1e3, "MHZ": 1e6, "GHZ": 1e9, "THZ": 1e12}

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?)\s*([A-Z]*(?:/S)?)")


class ScpiError(Exception):
    """An entry for the error queue."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


QUERY_INTERRUPTED = (-410, "Query INTERRUPTED")
UNDEFINED_HEADER = (-113, "Undefined header")
PARAMETER_NOT_ALLOWED = (-108, "Parameter not allowed")
MISSING_PARAMETER = (-109, "Missing parameter")
DATA_TYPE_ERROR = (-104, "Data type error")
INVALID_SUFFIX = (-131, "Invalid suffix")
OUT_OF_RANGE = (-222, "Data out of range")
ILLEGAL_VALUE = (-224, "Illegal parameter value")


class ErrorQueue:
    """First-in first-out error queue; when it is full, the last entry becomes -350.

    Parameters
    ----------
    form
        Printf form of an entry, with the code and the text.
    depth
        Number of entries.
    """

    def __init__(self, form: str, depth: int = 30) -> None:
        self._form = form
        self._depth = depth
        self._entries: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, error: ScpiError) -> None:
        """Add an error."""
        if len(self._entries) == self._depth:
            self._entries[-1] = (-350, "Queue overflow")
        else:
            self._entries.append((error.code, error.text))

    def pop(self) -> str:
        """Take the oldest entry out, or tell that there is none."""
        return self._form % (self._entries.popleft() if self._entries else (0, "No error"))

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()


class CommandTree:
    """Find the handler of a header in short or long form, any case, with numeric suffixes.

    Parameters
    ----------
    commands
        Handler of each pattern such as ``SENSe#[:CHANnel#]:POWer:UNIT?``: capitals are the short form, brackets are
        optional, ``#`` stands for a numeric suffix that counts as 1 when left out.
    """

    def __init__(self, commands: Mapping[str, Handler]) -> None:
        self._commands = [(re.compile(_header_expression(pattern)), handler) for pattern, handler in commands.items()]
        self._cache: dict[str, tuple[Handler, tuple[int, ...]]] = {}

    def find(self, header: str) -> tuple[Handler, tuple[int, ...]]:
        """Return the handler of ``header`` (no leading colon) and its suffixes; raise ScpiError -113 if unknown."""
        found = self._cache.get(header)
        if found is not None:
            return found
        for expression, handler in self._commands:
            match = expression.fullmatch(header.upper())
            if match is not None:
                found = handler, tuple(int(suffix) if suffix else 1 for suffix in match.groups())
                if len(self._cache) < _CACHED_HEADERS:
                    self._cache[header] = found
                return found
        raise ScpiError(*UNDEFINED_HEADER)


def _header_expression(pattern: str) -> str:
    def node(match: re.Match[str]) -> str:
        short, rest = match.group(1), match.group(2)
        return f"{short}(?:{rest.upper()})?" if rest else short

    expression = pattern.replace("*", r"\*").replace("?", r"\?").replace("[", "(?:").replace("]", ")?")
    return re.sub(r"([A-Z]+)([a-z]*)", node, expression).replace("#", r"(\d{0,4})")


class ScpiInterpreter:
    """Run program messages against a command tree: compound commands, error queue, one lock for all clients.

    Parameters
    ----------
    commands
        See ``CommandTree``. A handler gets the suffixes and the arguments, and returns a reply or nothing.
    errors
        Where errors go; an erroneous command gives no reply.
    reply_terminator
        Ends each reply message.
    """

    def __init__(self, commands: Mapping[str, Handler], errors: ErrorQueue, reply_terminator: bytes) -> None:
        self._tree = CommandTree(commands)
        self._errors = errors
        self._terminator = reply_terminator
        self._lock = threading.RLock()

    def open_session(self) -> "ScpiSession":
        """Return a session that takes CR, LF or CRLF as the end of a message."""
        return ScpiSession(self.execute, self._errors)

    def execute(self, message: str) -> bytes:
        """Run one message and return the reply with its terminator, or nothing."""
        with self._lock:
            replies: list[bytes] = []
            path = ""
            for command in _split(message, ";"):
                header, *text = command.split(maxsplit=1) or ("",)
                if not header:
                    continue
                full, path = _resolved(header, path)  # the path moves on also where the command then fails
                try:
                    reply = self.run_command(full, text[0] if text else "")
                except ScpiError as error:
                    self._errors.push(error)
                    if error.code > _FIRST_EXECUTION_ERROR:
                        break  # a message with a command error is not understood from there on
                    continue
                if reply is not None:
                    replies.append(reply.encode("ascii") if isinstance(reply, str) else reply)
            return b";".join(replies) + self._terminator if replies else b""

    def run_command(self, header: str, text: str) -> Reply:
        """Run the command ``header`` (whole, no leading colon) with the argument text; raise ScpiError if it fails."""
        handler, suffixes = self._tree.find(header)
        arguments = [argument.strip() for argument in _split(text, ",")] if text else []
        return handler(suffixes, arguments)


def _resolved(header: str, path: str) -> tuple[str, str]:
    """Return the whole header under the current path, and the path for the next command."""
    if header[0] == "*":
        return header, path
    full = header[1:] if header[0] == ":" else path + header
    return full, full[: full.rfind(":") + 1]


class ScpiSession(LineSession):
    """One client of an interpreter, on a line or on a bus with message ends.

    Parameters
    ----------
    answer
        Runs a message.
    errors
        The instrument's error queue.
    """

    def __init__(self, answer: Callable[[str], bytes], errors: ErrorQueue) -> None:
        super().__init__(answer)
        self._errors = errors

    def status_byte(self) -> int:
        """Return 4 while errors are waiting."""
        return _ERRORS_WAITING if len(self._errors) else 0

    def interrupted(self) -> None:
        """Queue -410."""
        self._errors.push(ScpiError(*QUERY_INTERRUPTED))


def _split(text: str, separator: str) -> Sequence[str]:
    """Split at separators outside of quotes."""
    if '"' not in text and "'" not in text:
        return text.split(separator)
    return re.split(rf"""{separator}(?=(?:[^"']*["'][^"']*["'])*[^"']*$)""", text)


def plain(function: Callable[[list[str]], Reply]) -> Handler:
    """Return the handler of a header whose suffixes do not matter."""
    return lambda _suffixes, arguments: function(arguments)


def query(answer: Callable[[], Reply]) -> Handler:
    """Return the handler of a header without arguments whose suffixes do not matter."""

    def handler(_suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return answer()

    return handler


def no_arguments(arguments: list[str]) -> None:
    """Refuse arguments."""
    if arguments:
        raise ScpiError(*PARAMETER_NOT_ALLOWED)


def one_argument(arguments: list[str]) -> str:
    """Return the only argument in upper case."""
    if not arguments or not arguments[0]:
        raise ScpiError(*MISSING_PARAMETER)
    if len(arguments) > 1:
        raise ScpiError(*PARAMETER_NOT_ALLOWED)
    return arguments[0].upper()


def choice(arguments: list[str], values: Mapping[str, int]) -> int:
    """Return the value of a keyword argument."""
    try:
        return values[one_argument(arguments)]
    except KeyError:
        raise ScpiError(*ILLEGAL_VALUE) from None


SWITCH = {"0": 0, "1": 1, "OFF": 0, "ON": 1}


def number(text: str, units: Mapping[str, float]) -> tuple[float, str]:
    """Parse ``1550 nm``, ``1.55e-6``: the value in base units and the unit's name in capitals ("" if none)."""
    match = _NUMBER.fullmatch(text.strip().upper())
    if match is None:
        raise ScpiError(*DATA_TYPE_ERROR)
    factor = units.get(match.group(2))
    if factor is None:
        raise ScpiError(*INVALID_SUFFIX)
    value = float(match.group(1)) * factor
    if not math.isfinite(value):
        raise ScpiError(*OUT_OF_RANGE)
    return value, match.group(2)


class Quantity:
    """A numeric setting with limits: parses values with units, MIN, MAX and DEF.

    Parameters
    ----------
    minimum, maximum, default
        In base units.
    units
        Factor of each unit's name in capitals; "" for none.
    """

    def __init__(self, minimum: float, maximum: float, default: float, units: Mapping[str, float]) -> None:
        self.minimum, self.maximum, self.default = minimum, maximum, default
        self._units = units
        self._names = {
            "MIN": minimum,
            "MINIMUM": minimum,
            "MAX": maximum,
            "MAXIMUM": maximum,
            "DEF": default,
            "DEFAULT": default,
        }

    def parse(self, arguments: list[str]) -> float:
        """Return the value of the only argument in base units; raise ScpiError if it is out of range."""
        text = one_argument(arguments)
        value = self._names.get(text)
        if value is None:
            value, _ = number(text, self._units)
        # Decimal settings such as 1640 nm are not exact in base units; a limit itself must pass.
        slack = 1e-9 * max(abs(self.minimum), abs(self.maximum))
        if not self.minimum - slack <= value <= self.maximum + slack:
            raise ScpiError(*OUT_OF_RANGE)
        return value

    def query(self, arguments: list[str], present: float) -> float:
        """Return the present value, or the limit that a query such as ``WAV? MAX`` asks for."""
        if not arguments:
            return present
        try:
            return self._names[one_argument(arguments)]
        except KeyError:
            raise ScpiError(*ILLEGAL_VALUE) from None


def exponential(value: float) -> str:
    """Format as ``+1.55000000E-006``."""
    mantissa, _, exponent = f"{value:+.8E}".partition("E")
    return f"{mantissa}E{exponent[0]}{exponent[1:].zfill(3)}"


def block(data: bytes) -> bytes:
    """Frame ``data`` as a definite-length IEEE 488.2 block."""
    size = str(len(data)).encode()
    return b"#" + str(len(size)).encode() + size + data
