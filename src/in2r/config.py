"""Configuration: frozen dataclasses of plain values, filled from nested mappings; all faults in one report."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from in2r.errors import InputError
from in2r.form import describe, matches, options

T = TypeVar("T")

Decides = Literal["learning", "main phase", "place", "computing", "keeping"]
"""What a key decides: what a run learns from its first step on; what it learns after the warm-up; where things lie, of
which only the content matters; how it computes, which moves roundings at most; how it is kept and shown."""


def key(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    decides: Decides | None = None,
) -> Any:
    """Declare one configuration key: its default, what it means and why, and the range of its values.

    Args:
        default: the value used when the key is not given.
        help: meaning, unit and the reason for the default; shown by `in2r config show`.
        low: smallest allowed value.
        high: largest allowed value.
        above: the value must be greater than this one.
        decides: what depends on its value; None = what its section says.
    """
    limits = {"low": low, "high": high, "above": above}
    return dataclasses.field(default=default, metadata={"help": help, **limits, "decides": decides})


def section(
    default: type[Any], *, decides: Decides = "learning", choose: Callable[[str], type[Any]] | None = None
) -> Any:
    """Declare a section: a configuration dataclass within another one.

    Args:
        default: its dataclass.
        decides: what depends on its keys, where a key does not say so itself.
        choose: name → dataclass, where the section's key `name` chooses among several; raises `InputError`.
    """
    return dataclasses.field(default_factory=default, metadata={"decides": decides, "choose": choose})


def deciding(config: Any, *kinds: Decides) -> dict[str, Any]:
    """Return the values of all keys, as `section.key`, that decide one of these things."""
    found: dict[str, Any] = {}
    for part in dataclasses.fields(config):
        values = getattr(config, part.name)
        for field in dataclasses.fields(values):
            if (field.metadata.get("decides") or part.metadata.get("decides")) in kinds:
                found[f"{part.name}.{field.name}"] = getattr(values, field.name)
    return found


def with_values(config: T, values: Mapping[str, Any]) -> T:
    """Return a configuration in which these keys, as `section.key`, have these values instead."""
    sections: dict[str, Any] = {}
    for name, value in values.items():
        part, _, last = name.partition(".")
        sections[part] = dataclasses.replace(sections.get(part, getattr(config, part)), **{last: value})
    return typing.cast(T, dataclasses.replace(typing.cast(Any, config), **sections))


def fill(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build a configuration dataclass from nested mappings.

    Args:
        cls: a dataclass whose fields are plain values or dataclasses.
        values: what the user gave; absent keys take their defaults.
        where: dotted prefix of the keys in messages.

    Raises:
        InputError: every unknown key (with the nearest valid one), wrong type and range, in one line.
    """
    faults: list[str] = []
    result = _fill(cls, values, where, faults, lambda: [_join(where, name) for name in _keys(cls, values)])
    if faults:
        raise InputError("configuration: " + "; ".join(faults))
    return typing.cast(T, result)


def _fill(cls: type[Any], values: Any, where: str, faults: list[str], known: Callable[[], list[str]]) -> Any:
    names = [field.name for field in dataclasses.fields(cls)]
    if not isinstance(values, Mapping):
        faults.append(f"`{where}` must be a section with keys ({', '.join(names)}), got {values!r}")
        return cls()
    hints = typing.get_type_hints(cls)
    for unknown in [str(name) for name in values if name not in names]:
        near = _nearest(unknown, where, names, known())
        hint = f"did you mean {' or '.join(near)}?" if near else f"valid keys: {', '.join(names)}"
        faults.append(f"unknown key `{_join(where, unknown)}`; {hint}")
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name, kind = _join(where, field.name), hints[field.name]
        if field.name not in values:
            if field.default is not dataclasses.MISSING and (fault := _fault(field.default, kind, field.metadata)):
                faults.append(f"the default of `{name}` must be {fault}, got {field.default!r}")
            elif field.default is field.default_factory is dataclasses.MISSING:
                faults.append(f"`{name}` is missing, and has no default")
                chosen[field.name] = None
            continue
        value = values[field.name]
        if dataclasses.is_dataclass(kind):
            inner, value = _chosen(field, kind, value, name, faults)
            chosen[field.name] = _fill(inner, value, name, faults, known)
            continue
        value = _coerce(value, kind)
        fault = _fault(value, kind, field.metadata)
        if fault:
            faults.append(f"`{name}` must be {fault}, got {value!r}")
        chosen[field.name] = value
    return cls(**chosen)


def _keys(cls: type[Any], values: Any) -> list[str]:
    """Return the dotted names of all plain keys of a configuration dataclass, with those of the chosen sections."""
    found: list[str] = []
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind, name = hints[field.name], field.name
        if not dataclasses.is_dataclass(kind):
            found.append(name)
            continue
        given = values.get(name) if isinstance(values, Mapping) else None
        found += [_join(name, key) for key in _keys(*_chosen(field, kind, given, name, []))]
    return found


def text_keys(cls: type[Any], values: Any = None, where: str = "") -> Iterator[str]:
    """Yield the dotted names of the keys whose value is free text, a path say; sections are chosen by `values`."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind, name = hints[field.name], _join(where, field.name)
        if dataclasses.is_dataclass(kind):
            given = values.get(field.name) if isinstance(values, Mapping) else None
            yield from text_keys(_chosen(field, kind, given, name, [])[0], given, name)
        elif str in options(kind) and set(options(kind)) <= {str, types.NoneType}:
            yield name


def _nearest(unknown: str, where: str, names: list[str], known: list[str]) -> list[str]:
    """Return the keys that an unknown one may stand for: alike in its section, of its name in another, alike in one."""
    last = [key.rpartition(".")[2] for key in known]
    here = [_join(where, name) for name in difflib.get_close_matches(unknown, names, n=1, cutoff=0.5)]
    same = [key for key, name in zip(known, last, strict=True) if name == unknown]
    alike = difflib.get_close_matches(unknown, last, n=1, cutoff=0.75)
    found = [*here, *same] or [key for key, name in zip(known, last, strict=True) if name in alike]
    return [f"`{key}`" for key in dict.fromkeys(found)]


def _chosen(field: dataclasses.Field[Any], kind: Any, value: Any, where: str, faults: list[str]) -> tuple[Any, Any]:
    """Return a section's dataclass, which its key `name` may choose, and its values; none where it chooses nothing."""
    choose = field.metadata.get("choose")
    default = field.default_factory if field.default_factory is not dataclasses.MISSING else kind
    if choose is None or not isinstance(value, Mapping) or "name" not in value:
        return default, value
    try:
        return choose(str(value["name"])), value
    except InputError as error:
        faults.append(str(error).removeprefix("configuration: "))
        return default, {}  # which keys it may have is not known


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _coerce(value: Any, kind: Any) -> Any:
    """Take 1 for 1.0, and the text 5e-4 (which YAML 1.1 reads as a string) for a number."""
    allowed = options(kind)
    if float in allowed:
        if isinstance(value, int) and not isinstance(value, bool) and int not in allowed:
            return float(value)
        if isinstance(value, str) and str not in allowed:
            try:
                return float(value)
            except ValueError:
                return value
    return value


def _fault(value: Any, kind: Any, limits: Mapping[str, Any]) -> str:
    """Say what the value should have been, or return an empty string."""
    if not any(matches(value, option) for option in options(kind)):
        return " or ".join(describe(option) for option in options(kind))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    low, high, above = limits.get("low"), limits.get("high"), limits.get("above")
    if not math.isfinite(value):
        return "a finite number"
    if above is not None and value <= above:
        return f"greater than {above}"
    if (low is not None and value < low) or (high is not None and value > high):
        if high is None:
            return f"at least {low}"
        if low is None:
            return f"at most {high:g}"
        return f"in [{low}, {high}]"
    return ""


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as nested plain dictionaries, every key resolved."""
    return dataclasses.asdict(config)
