"""Names that are numbers, made when they are asked for: a list of so many texts would take 60 bytes each."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray


class Numbered(Sequence[str]):
    """The names of numbers (n,): "7", or "train:7" with a prefix; equal to a list of the same texts."""

    def __init__(self, numbers: NDArray[np.int64], prefix: str = "") -> None:
        self._numbers, self._prefix = numbers, prefix

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> "Numbered": ...
    def __getitem__(self, place: int | slice) -> "str | Numbered":
        if isinstance(place, slice):
            return Numbered(self._numbers[place], self._prefix)
        return f"{self._prefix}{self._numbers[place]}"

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return (f"{self._prefix}{number}" for number in self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def number_of(name: str, count: int) -> int:
    """Return the number that a name is, if it is one of 0..count-1 as `str` writes it; else -1."""
    if not (name.isascii() and name.isdigit()) or len(name) > len(str(count)):
        return -1
    number = int(name)
    return number if number < count and str(number) == name else -1
