"""Settings as a user writes them, YAML files and `key=value`, as nested mappings of plain values."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from in2r.config import text_keys
from in2r.errors import InputError


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
        cls: the configuration that they are for. The value of a key that holds text is taken as it is, unless it
            is null or in quotes: "a #1" is a folder's name, not "a" with a comment, and 2024 no number.
    """
    result: dict[str, Any] = {}
    texts = set() if cls is None else set(text_keys(cls))
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
