"""The form of plain values, as a JSON file holds them: which keys, which types."""

import math
import reprlib
from collections.abc import Mapping
from typing import Any

from in2r.errors import InputError

_WORDS = {str: "text", int: "a whole number", bool: "true or false"}


def require_form(value: Any, form: Any, place: str) -> None:
    """Refuse plain values, as a JSON file holds them, that have another form.

    Args:
        value: what was read.
        form: a type (float: any finite number, object: anything); (form, None): that or null; [form]: a list;
            [form, form]: a list of two; {key: form}: keys that must be there (`key?`: may be); {str: form}: any keys.
        place: what messages call the value.

    Raises:
        InputError: the place within it, what was expected, what was found.
    """
    if isinstance(form, tuple):
        if value is not None:
            require_form(value, form[0], place)
    elif isinstance(form, dict):
        _require(isinstance(value, Mapping), value, "keys and values", place)
        for name, inner in form.items():
            _require_keys(value, name, inner, place)
    elif isinstance(form, list):
        _require(isinstance(value, list), value, "a list", place)
        _require(len(form) == 1 or len(value) == len(form), value, f"{len(form)} entries", place)
        for number, entry in enumerate(value):
            require_form(entry, form[0], f"{place}[{number}]")
    elif form is float:
        _require(type(value) in (int, float) and math.isfinite(value), value, "a finite number", place)
    elif form is not object:
        _require(type(value) is form, value, _WORDS[form], place)


def _require_keys(value: Mapping[str, Any], name: Any, form: Any, place: str) -> None:
    for key in value if name is str else [name.removesuffix("?")]:
        if key in value:
            require_form(value[key], form, f"{place}.{key}")
        elif key == name:
            raise InputError(f"{place}: no `{key}`")


def _require(right: bool, value: Any, expected: str, place: str) -> None:
    if not right:
        raise InputError(f"{place}: expected {expected}, got {reprlib.repr(value)}")
