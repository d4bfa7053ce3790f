"""The part of TSP, Keithley's dialect of Lua, that drivers send: assignments, calls and print over a tree of names.

A chunk is one line of statements, which white space or semicolons divide. As in Lua, a chunk that cannot be parsed is
not run at all, and a chunk that fails stops at the statement that failed. Loops, operators and functions of the
client's own are left out.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Value = float | str | bool | None
Function = Callable[[list[Value]], Sequence[Value]]
_Expression = Callable[[], Sequence[Value]]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<string>\"[^\"]*\"|'[^']*')"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<sign>[=(),;-]))",
    re.ASCII,
)
_WORDS: Mapping[str, Value] = {"true": True, "false": False, "nil": None}
_SYNTAX_ERROR, _RUNTIME_ERROR = -285, -286


class TspError(Exception):
    """An entry for the error queue."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def syntax_error(near: str) -> TspError:
    """Make the error of a chunk that cannot be parsed."""
    return TspError(_SYNTAX_ERROR, f"TSP Syntax error at line 1: unexpected symbol near `{near}'")


def runtime_error(problem: str) -> TspError:
    """Make the error of a statement that cannot be run."""
    return TspError(_RUNTIME_ERROR, f"TSP Runtime error at line 1: {problem}")


@dataclass(frozen=True)
class Attribute:
    """A value with a name.

    Attributes
    ----------
    get
        Returns the value.
    put
        Takes a new one and raises TspError if it is not possible; None if the value can only be read.
    """

    get: Callable[[], Value]
    put: Callable[[Value], None] | None = None


def constant(value: Value) -> Attribute:
    """Make an attribute that never changes."""
    return Attribute(lambda: value)


class TspErrorQueue:
    """First-in first-out error queue; when it is full, the last entry becomes -350."""

    _DEPTH = 64
    _SEVERE = 20.0

    def __init__(self) -> None:
        self._entries: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, error: TspError) -> None:
        """Add an error."""
        if len(self._entries) == self._DEPTH:
            self._entries[-1] = (-350, "Queue overflow")
        else:
            self._entries.append((error.code, error.text))

    def next(self) -> Sequence[Value]:
        """Take the oldest entry out: code, message, severity, node."""
        if not self._entries:
            return 0.0, "Queue Is Empty", 0.0, 0.0
        code, text = self._entries.popleft()
        return float(code), text, self._SEVERE, 1.0

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()


class TspInterpreter:
    """Run chunks.

    Parameters
    ----------
    attributes
        Attribute of each name such as ``smua.source.levelv``.
    functions
        Function of each name such as ``smua.measure.v``.
    errors
        Where errors go.
    precision
        Returns the number of significant digits of printed numbers.
    """

    def __init__(
        self,
        attributes: Mapping[str, Attribute],
        functions: Mapping[str, Function],
        errors: TspErrorQueue,
        precision: Callable[[], int],
    ) -> None:
        self._attributes = attributes
        self._functions = {**functions, "print": self._print}
        self._errors = errors
        self._precision = precision
        self._globals: dict[str, Value] = {}
        self._printed: list[str] = []

    def execute(self, chunk: str) -> list[str]:
        """Run a chunk and return the lines that it prints; an error ends it."""
        self._printed = []
        try:
            for statement in _Parser(chunk, self._read, self._call, self._assign).statements():
                statement()
        except TspError as error:
            self._errors.push(error)
        return self._printed

    def forget(self) -> None:
        """Forget the client's own variables."""
        self._globals.clear()

    def _read(self, name: str) -> Value:
        if name in self._attributes:
            return self._attributes[name].get()
        table, _, field = name.rpartition(".")
        if table and not any(known.startswith(f"{table}.") for known in (*self._attributes, *self._functions)):
            raise runtime_error(f"attempt to index `{table}' (a nil value), field `{field}'")
        return self._globals.get(name)

    def _call(self, name: str, arguments: list[Value]) -> Sequence[Value]:
        function = self._functions.get(name)
        if function is None:
            raise runtime_error(f"attempt to call `{name}' (a nil value)")
        return function(arguments)

    def _assign(self, name: str, value: Value) -> None:
        attribute = self._attributes.get(name)
        if attribute is not None and attribute.put is not None:
            attribute.put(value)
        elif attribute is None and "." not in name:
            self._globals[name] = value
        else:
            raise runtime_error(f"`{name}' cannot be set")

    def _print(self, values: list[Value]) -> Sequence[Value]:
        self._printed.append("\t".join([self._text(value) for value in values]))
        return ()

    def _text(self, value: Value) -> str:
        if value is None:
            return "nil"
        if isinstance(value, bool):
            return str(value).lower()
        return value if isinstance(value, str) else f"{value:.{self._precision() - 1}e}"


class _Parser:
    """Turn a chunk into statements that can be run."""

    def __init__(
        self,
        chunk: str,
        read: Callable[[str], Value],
        call: Callable[[str, list[Value]], Sequence[Value]],
        assign: Callable[[str, Value], None],
    ) -> None:
        self._read, self._call, self._assign = read, call, assign
        self._tokens: deque[tuple[str, str]] = deque()
        position = 0
        chunk = chunk.strip()
        while position < len(chunk):
            match = _TOKEN.match(chunk, position)
            if match is None:
                raise syntax_error(chunk[position:].split()[0])
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind]))
            position = match.end()

    def statements(self) -> list[Callable[[], object]]:
        """Parse the whole chunk."""
        found: list[Callable[[], object]] = []
        while self._tokens:
            if not self._take_sign(";"):
                found.append(self._statement())
        return found

    def _statement(self) -> Callable[[], object]:
        name = self._name()
        if self._take_sign("="):
            value = self._expression()
            return lambda: self._assign(name, _first(value()))
        if self._take_sign("("):
            return self._called(name)
        raise syntax_error(self._next_text())

    def _called(self, name: str) -> _Expression:
        arguments: list[_Expression] = []
        if not self._take_sign(")"):
            arguments.append(self._expression())
            while self._take_sign(","):
                arguments.append(self._expression())
            if not self._take_sign(")"):
                raise syntax_error(self._next_text())
        return lambda: self._call(name, _values(arguments))

    def _expression(self) -> _Expression:
        if self._take_sign("-"):
            operand = self._expression()
            return lambda: (_negated(_first(operand())),)
        kind, text = self._tokens.popleft() if self._tokens else ("", "<eof>")
        if kind == "number":
            return lambda: (float(text),)
        if kind == "string":
            return lambda: (text[1:-1],)
        if kind != "name":
            raise syntax_error(text)
        if text in _WORDS:
            return lambda: (_WORDS[text],)
        if self._take_sign("("):
            return self._called(text)
        return lambda: (self._read(text),)

    def _name(self) -> str:
        kind, text = self._tokens.popleft()
        if kind != "name" or text in _WORDS:
            raise syntax_error(text)
        return text

    def _take_sign(self, sign: str) -> bool:
        if self._tokens and self._tokens[0] == ("sign", sign):
            self._tokens.popleft()
            return True
        return False

    def _next_text(self) -> str:
        return self._tokens[0][1] if self._tokens else "<eof>"


def _first(values: Sequence[Value]) -> Value:
    return values[0] if values else None


def _values(arguments: Sequence[_Expression]) -> list[Value]:
    """Evaluate arguments; of all but the last only the first value counts."""
    values: list[Value] = [_first(argument()) for argument in arguments[:-1]]
    if arguments:
        values += arguments[-1]()
    return values


def _negated(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise runtime_error("attempt to perform arithmetic on a value that is no number")
    return -value
