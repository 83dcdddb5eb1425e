"""Plain values read as types: what is there is converted, what is not is named with source and key."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from in2r.errors import InputError
from in2r.form import read


@dataclass(frozen=True)
class Part:
    share: float
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    name: str
    parts: dict[str, Part]
    count: int | None
    phase: Literal["first", "second"] = "first"
    anything: object = None
    done: bool = False
    sizes: tuple[int, ...] = field(default_factory=tuple)


def test_what_is_there_is_read_and_what_is_unknown_is_ignored() -> None:
    values = {
        "name": "x",
        "parts": {"a": {"share": 1, "words": ["red"]}, "b": {"share": 0.5, "more": 3}},
        "count": None,
        "anything": [True],
        "done": True,
        "other": 1,
    }
    found = read(Whole, values, "file")
    assert found == Whole("x", {"a": Part(1.0, ("red",)), "b": Part(0.5)}, None, "first", [True], True)
    assert type(found.parts["a"].share) is float


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": 3}, "file: name: expected text, got 3"),
        ({"name": ...}, "file: no `name`"),
        ({"count": True}, "file: count: expected a whole number, got True"),
        ({"count": 1.0}, "file: count: expected a whole number, got 1.0"),
        ({"done": 1}, "file: done: expected true or false, got 1"),
        ({"phase": "third"}, "file: phase: expected one of first, second, got 'third'"),
        ({"parts": []}, "file: parts: expected keys and values, got []"),
        ({"parts": {"a": {}}}, "file: parts.a: no `share`"),
        ({"parts": {"a": {"share": "1"}}}, "file: parts.a.share: expected a finite number, got '1'"),
        ({"parts": {"a": {"share": True}}}, "file: parts.a.share: expected a finite number, got True"),
        ({"parts": {"a": {"share": float("nan")}}}, "file: parts.a.share: expected a finite number, got nan"),
        ({"parts": {"a": {"share": 1, "words": "red"}}}, "file: parts.a.words: expected a list, got 'red'"),
        ({"parts": {"a": {"share": 1, "words": ["red", 2]}}}, "file: parts.a.words[1]: expected text, got 2"),
    ],
)
def test_what_is_of_another_type_is_named(changes: dict[str, Any], fault: str) -> None:
    values = {"name": "x", "parts": {}, "count": 1, **changes}
    with pytest.raises(InputError) as caught:
        read(Whole, {key: value for key, value in values.items() if value is not ...}, "file")
    assert str(caught.value) == fault


def test_the_whole_and_a_key_within_it_are_named() -> None:
    for value, key, fault in (([], "", "file: expected keys"), (3, "line 2", "file: line 2: expected keys")):
        with pytest.raises(InputError, match=f"^{fault} and values, got"):
            read(Whole, value, "file", key)
