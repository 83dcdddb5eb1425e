"""Configuration: frozen dataclasses of plain values, from YAML and `key=value`; all faults in one report."""

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from in2r.errors import InputError

T = TypeVar("T")


def key(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
) -> Any:
    """Declare one configuration key: its default, what it means and why, and the range of its values.

    Args:
        default: the value used when the key is not given.
        help: meaning, unit and the reason for the default; shown by `in2r config show`.
        low: smallest allowed value.
        high: largest allowed value.
        above: the value must be greater than this one.
    """
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high, "above": above})


def presets() -> list[str]:
    """Return the names of the settings that come with the package."""
    names = (str(item.name) for item in files("in2r").joinpath("presets").iterdir())
    return sorted(Path(name).stem for name in names if name.endswith(".yaml"))


def preset_file(name: str) -> Path:
    """Return the file of a preset."""
    return Path(str(files("in2r").joinpath("presets", f"{name}.yaml")))


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
    chosen = {}
    for field in dataclasses.fields(cls):
        if field.name not in values:
            continue
        name, value, kind = _join(where, field.name), values[field.name], hints[field.name]
        sections = [option for option in _options(kind) if dataclasses.is_dataclass(option)]
        if sections:
            section, value = _section(sections, value, name, faults)
            chosen[field.name] = _fill(section, value, name, faults, known)
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
    for name, kind in typing.get_type_hints(cls).items():
        given = values.get(name) if isinstance(values, Mapping) else None
        sections = [option for option in _options(kind) if dataclasses.is_dataclass(option)]
        inner = _keys(*_section(sections, given, name, [])) if sections else []
        found += [_join(name, key) for key in inner] or [name]
    return found


def _text_keys(cls: type[Any], where: str = "") -> Iterator[str]:
    """Yield the dotted names of the keys whose value is free text, a path say."""
    for name, kind in typing.get_type_hints(cls).items():
        options = _options(kind)
        if str in options and set(options) <= {str, types.NoneType}:
            yield _join(where, name)
        for section in options:
            if dataclasses.is_dataclass(section):
                yield from _text_keys(typing.cast(type[Any], section), _join(where, name))


def _nearest(unknown: str, where: str, names: list[str], known: list[str]) -> list[str]:
    """Return the keys that an unknown one may stand for: alike in its section, of its name in another, alike in one."""
    last = [key.rpartition(".")[2] for key in known]
    here = [_join(where, name) for name in difflib.get_close_matches(unknown, names, n=1, cutoff=0.5)]
    same = [key for key, name in zip(known, last, strict=True) if name == unknown]
    alike = difflib.get_close_matches(unknown, last, n=1, cutoff=0.75)
    found = [*here, *same] or [key for key, name in zip(known, last, strict=True) if name in alike]
    return [f"`{key}`" for key in dict.fromkeys(found)]


def _section(sections: list[Any], value: Any, where: str, faults: list[str]) -> tuple[Any, Any]:
    """Choose among alternative sections by their `name` key, which is taken away if it names none; return the values.

    The first section is the default.
    """
    if len(sections) == 1 or not isinstance(value, Mapping) or "name" not in value:
        return sections[0], value
    by_name = {section().name: section for section in sections}
    if not isinstance(value["name"], str) or value["name"] not in by_name:
        faults.append(f"`{where}.name` must be one of {', '.join(by_name)}, got {value['name']!r}")
        return sections[0], {name: entry for name, entry in value.items() if name != "name"}
    return by_name[value["name"]], value


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _options(kind: Any) -> tuple[Any, ...]:
    # a union with Literal is typing's own kind of union before Python 3.14
    is_union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    return typing.get_args(kind) if is_union else (kind,)


def _coerce(value: Any, kind: Any) -> Any:
    """Take 1 for 1.0, and the text 5e-4 (which YAML 1.1 reads as a string) for a number."""
    options = _options(kind)
    if float in options:
        if isinstance(value, int) and not isinstance(value, bool) and int not in options:
            return float(value)
        if isinstance(value, str) and str not in options:
            try:
                return float(value)
            except ValueError:
                return value
    return value


def _fault(value: Any, kind: Any, limits: Mapping[str, Any]) -> str:
    """Say what the value should have been, or return an empty string."""
    if not any(_matches(value, option) for option in _options(kind)):
        return " or ".join(_describe(option) for option in _options(kind))
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


def _matches(value: Any, option: Any) -> bool:
    if typing.get_origin(option) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in typing.get_args(option))
    if isinstance(value, bool):
        return option is bool
    return isinstance(value, option)


def _describe(option: Any) -> str:
    if typing.get_origin(option) is Literal:
        return "one of " + ", ".join(str(choice) for choice in typing.get_args(option))
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    return names.get(option, str(option))


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: a number is decimal, a date is text, and no key stands twice in a mapping.

    YAML 1.1, which PyYAML follows, takes 010 for 8 and 1:30 for 90, and the last of two equal keys. Here 010, 1:30 and
    0x1F are text, so that a key which needs a number refuses them.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping, unless a key comes twice."""
        self.flatten_mapping(node)
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, (key, (place, _)) in enumerate(zip(keys, node.value, strict=True)):
            if key in keys[:number]:
                raise yaml.constructor.ConstructorError(None, None, f"`{key}` stands twice", place.start_mark)
        return super().construct_mapping(node, deep)


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int | str:
    text = loader.construct_scalar(node)
    return int(text) if re.fullmatch("[-+]?(0|[1-9][0-9_]*)", text) else text


def _number(loader: _Loader, node: yaml.ScalarNode) -> float | str:
    text = loader.construct_scalar(node)
    return text if ":" in text else loader.construct_yaml_float(node)


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _text)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file that holds one mapping; `InputError` names file and line."""
    try:
        value = yaml.load(Path(path).read_bytes(), _Loader)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (yaml.YAMLError, ValueError) as error:  # not UTF-8, or a tag that the value does not fit
        raise InputError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected keys and values, found {type(value).__name__}")
    return value


def parse_overrides(pairs: Iterable[str], cls: type[Any] | None = None) -> dict[str, Any]:
    """Turn `a.b=1` strings into nested mappings; values are read as YAML.

    Args:
        pairs: what the user gave.
        cls: the configuration that they are for. The value of a key that holds text is taken as it stands, unless it
            is null or in quotes: "a #1" is a folder's name, not "a" with a comment, and 2024 no number.
    """
    result: dict[str, Any] = {}
    texts = set() if cls is None else set(_text_keys(cls))
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(f"`{pair}`: expected key=value, such as train.seed=1")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise InputError(f"`{name}`: {text!r} is not UTF-8; give the folder or file another name")
        if name in texts and text[:1] not in ("'", '"') and text not in ("null", "~", ""):
            nested: Any = text
        else:
            try:
                nested = yaml.load(text, _Loader)
            except (yaml.YAMLError, ValueError) as error:
                raise InputError(f"`{pair}`: the value is not valid YAML ({' '.join(str(error).split())})") from None
        for part in reversed(name.split(".")):
            nested = {part: nested}
        result = merge(result, nested)
    return result


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over` laid on top, section by section.

    Raises:
        InputError: a key is a value in `base` and a section in `over`, which would silently take its place.
    """
    result = dict(base)
    for name, value in over.items():
        before = result.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = merge(before, value)
        elif isinstance(value, Mapping) and before is not None:
            keys = ", ".join(f"{name}.{inner}" for inner in value)
            raise InputError(f"configuration: `{name}` is {before!r}, so there can be no {keys}")
        result[name] = value
    return result


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as nested plain dictionaries, every key resolved."""
    return dataclasses.asdict(config)
