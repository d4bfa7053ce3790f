"""Collects everything wrong with a bench folder into one ConfigurationError, and reads YAML files strictly."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, StringConstraints, ValidationError
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from optinc_hw.errors import ConfigurationError

_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
Name = Annotated[str, StringConstraints(pattern=_NAME_PATTERN)]
"""Instrument and chip names: ASCII identifiers, because QCoDeS makes attributes of them."""

Model = TypeVar("Model", bound=BaseModel)

_NAME_RULE = "letters, digits and underscores only, not beginning with a digit"


class Problems:
    """Problems found so far; each names file, key path, offending value and remedy."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, path: Path, key: str, what: str, remedy: str) -> None:
        """Note one problem at ``key`` (dotted path, "" for the whole file) of ``path``."""
        place = f"{path}: {key}: " if key else f"{path}: "
        self._lines.append(f"{place}{what}; {remedy}")

    def raise_if_any(self) -> None:
        """Raise one ConfigurationError that lists all problems, or return if there is none."""
        if len(self._lines) == 1:
            raise ConfigurationError(self._lines[0])
        if self._lines:
            raise ConfigurationError("\n".join([f"{len(self._lines)} problems:", *(f"  {x}" for x in self._lines)]))


def suggest(word: str, known: Iterable[str]) -> str:
    """Remedy for an unknown word: the closest known one, or the list of all."""
    choices = list(known)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(choices)}" if choices else "remove it"


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one YAML 1.2 mapping from ``path``.

    Raises
    ------
    ConfigurationError
        If the file is missing, unreadable, not YAML, has a key twice, or is not a mapping.
    """
    data = _load(path)
    if not isinstance(data, dict):
        raise ConfigurationError(
            f"{path}: holds {type(data).__name__}, not a mapping of keys; write `key: value` lines"
        )
    return data


def read_yaml_list(path: Path) -> list[dict[str, Any]]:
    """Read a YAML 1.2 list of mappings from ``path``; raises ConfigurationError as `read_yaml`."""
    data = _load(path)
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise ConfigurationError(f"{path}: is no list of mappings; write `- {{key: value, ...}}` lines")
    return data


def _load(path: Path) -> Any:  # Any: whatever YAML can hold
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: file not found; a bench folder holds station.yaml and chip.yaml") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error}); check the path and the permissions") from error
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ConfigurationError(
            f"{path}: not valid YAML; correct the file at the place named here: {error}"
        ) from error


def parse(model: type[Model], data: Mapping[str, Any], path: Path) -> Model:
    """Validate ``data`` as ``model``; every fault goes into one ConfigurationError naming ``path``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = Problems()
        for fault in error.errors():
            loc = fault["loc"]
            what, remedy = _explain(model, fault["type"], loc, fault.get("input"), fault["msg"])
            problems.add(path, ".".join(str(part) for part in loc), what, remedy)
        problems.raise_if_any()
        raise  # unreachable: a ValidationError has at least one fault


def _explain(
    model: type[BaseModel], kind: str, loc: Sequence[str | int], value: object, message: str
) -> tuple[str, str]:
    if loc[-1:] == ("[key]",):  # the fault is a key of a mapping, not what it leads to
        loc = loc[:-2]
    parent = _at(model, loc[:-1])
    fields = parent.model_fields if parent is not None else {}
    last = str(loc[-1]) if loc else ""
    field = fields.get(last)
    if field is None:  # an entry of a list, or a part of one: its list tells what belongs there
        field = _list_around(model, loc)
    meaning = field.description if field is not None and field.description else ""
    if kind == "extra_forbidden":
        return f"unknown key (its value is {_short(value)})", suggest(last, fields)
    if kind == "missing":
        return "this key is missing", f"add it: {meaning}" if meaning else "add it"
    if kind == "string_pattern_mismatch" and _NAME_PATTERN in message:
        return f"{_short(value)} is not a name", f"use {_NAME_RULE}"
    if kind == "value_error":
        what = f"{_short(value)}: {message.removeprefix('Value error, ')}"
        return what, f"give {meaning}" if meaning else "correct this entry"
    complaint = message[:1].lower() + message[1:]
    return f"{_short(value)} is not allowed: {complaint}", f"give {meaning}" if meaning else "correct the value"


def _list_around(model: type[BaseModel], loc: Sequence[str | int]) -> FieldInfo | None:
    """Field of the list that the entry at ``loc`` belongs to, or None if it belongs to none."""
    outer = list(loc)
    while outer and isinstance(outer[-1], int):
        outer.pop()
    parent = _at(model, outer[:-1]) if outer and len(outer) < len(loc) else None
    return None if parent is None else parent.model_fields.get(str(outer[-1]))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel] | None:
    """Model class found at ``loc`` below ``model``, or None when the place is no model."""
    here: object = model
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            if field is not None:
                here = _without_none(field.annotation)
            else:  # a named entry of a model that keeps entries by name
                here = get_args(here.__annotations__.get("__pydantic_extra__"))[-1:]
                here = here[0] if here else None
        elif get_origin(here) is dict:
            here = get_args(here)[1]
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _without_none(annotation: object) -> object:
    """Return what an optional value is when it is there."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 else annotation
