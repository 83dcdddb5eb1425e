"""Plain values, as a JSON file holds them, against types: which keys, which kinds of value."""

import dataclasses
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from in2r.errors import InputError

T = TypeVar("T")

_WORDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null",
}  # fmt: skip


def options(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or a type alone."""
    # a union with Literal is typing's own kind of union before Python 3.14
    is_union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    return typing.get_args(kind) if is_union else (kind,)


def matches(value: Any, option: Any) -> bool:
    """Say whether a value is of a type, or one of a Literal's; true and false are no numbers."""
    if typing.get_origin(option) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in typing.get_args(option))
    if isinstance(value, bool):
        return option is bool
    return isinstance(value, option)


def describe(option: Any) -> str:
    """Name a type as messages do."""
    if typing.get_origin(option) is Literal:
        return "one of " + ", ".join(str(choice) for choice in typing.get_args(option))
    return _WORDS.get(option, str(option))


def read(kind: type[T], value: Any, source: str, key: str = "") -> T:
    """Make a value of a type from plain values, as a JSON file holds them.

    Args:
        kind: str, int, bool, float (any finite number), object (anything), a Literal, `X | None`, `dict[str, X]`,
            `tuple[X, ...]` (a list), or a dataclass. A field without a default must be there; keys that the dataclass
            does not have are ignored.
        value: what was read.
        source: where it was read from, such as the file.
        key: where it stands in there; empty = it is the whole.

    Raises:
        InputError: source, key, what was expected, what was found.
    """
    return typing.cast(T, _read(kind, value, source, key))


def _read(kind: Any, value: Any, source: str, key: str) -> Any:
    place = f"{source}: {key}" if key else source
    if types.NoneType in options(kind):
        (kind,) = (option for option in options(kind) if option is not types.NoneType)
        if value is None:
            return None
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, source, key)
    if typing.get_origin(kind) is dict:
        _require(isinstance(value, Mapping), value, "keys and values", place)
        entry_kind = typing.get_args(kind)[1]
        return {name: _read(entry_kind, entry, source, _inner(key, name)) for name, entry in value.items()}
    if typing.get_origin(kind) is tuple:
        _require(isinstance(value, list), value, "a list", place)
        return tuple(_read(typing.get_args(kind)[0], entry, source, f"{key}[{n}]") for n, entry in enumerate(value))
    if kind is float:
        _require(type(value) in (int, float) and math.isfinite(value), value, "a finite number", place)
        return float(value)
    _require(kind is object or matches(value, kind), value, describe(kind), place)
    return value


def _read_dataclass(kind: Any, value: Any, source: str, key: str) -> Any:
    place = f"{source}: {key}" if key else source
    _require(isinstance(value, Mapping), value, "keys and values", place)
    found, hints = {}, typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in value:
            found[field.name] = _read(hints[field.name], value[field.name], source, _inner(key, field.name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{place}: no `{field.name}`")
    return kind(**found)


def _inner(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _require(right: bool, value: Any, expected: str, place: str) -> None:
    if not right:
        raise InputError(f"{place}: expected {expected}, got {reprlib.repr(value)}")
