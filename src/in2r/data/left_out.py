"""A data folder without some rows of its train split, such as those that an audit says to drop."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from in2r.data.pairs import DataSource, PairSet, canonical_split
from in2r.data.rows import read_lines
from in2r.data.user_table import UserTable
from in2r.errors import InputError

Value = TypeVar("Value")
DIGITS = 18
"""of a row number, at most: more do not fit into int64"""


def read_row_numbers(path: Path) -> NDArray[np.int64]:
    """Read a file of row numbers, one a line, as an audit's drop.txt.

    Raises:
        InputError: no such file, or a line that is no row number.
    """
    if path.name == "keep.txt":
        raise InputError(f"{path}: an audit's list of the rows that stay; give the rows to leave out, its drop.txt")
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        if not (line.isascii() and line.isdecimal() and len(line) <= DIGITS):
            raise InputError(f"{path}: line {number} is {line!r:.40}; expected a row number from 0, such as 17")
    return np.array(lines, dtype=np.int64)


class LeftOut:
    """A data folder without some rows of its train split; images that no row is left of are gone too.

    Args:
        source: the whole data folder.
        rows: (n,) row numbers as `caption_rows` counts them; those of other splits are not looked at.
        name: the file that names them, for messages.

    Raises:
        InputError: a row that the data does not have, or no pair is left.
    """

    def __init__(self, source: DataSource, rows: NDArray[np.int64], name: str) -> None:
        self.path, self._source, self._name = source.path, source, name
        self._hash = sha256(np.unique(rows).astype("<i8").tobytes()).hexdigest()
        _require_rows(source, rows, name)
        own = np.asarray(source.caption_rows("train"), dtype=np.int64)
        self._kept = np.flatnonzero(~np.isin(own, rows))
        if not len(self._kept):
            raise InputError(f"{name}: leaves none of the {len(own):,} training pairs of {source.path}")

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that are there."""
        return self._source.split_names

    def split(self, name: str) -> PairSet:
        """Open one split; of train what is left."""
        found = self._source.split(name)
        if found.name != "train":
            return found
        images, owner = np.unique(found.image_of_caption[self._kept], return_inverse=True)
        vectors = found.caption_vectors
        return replace(
            found,
            images=found.images.select(images),
            image_of_caption=owner.reshape(-1).astype(np.int64),
            captions=None if found.captions is None else [found.captions[caption] for caption in self._kept.tolist()],
            caption_vectors=None if vectors is None else vectors.select(self._kept),
            image_ids=[found.image_ids[image] for image in images.tolist()],
        )

    def caption_places(self, name: str, captions: Sequence[int]) -> list[str]:
        """Return the file and line of some captions that are left."""
        if canonical_split(name) == "train":
            captions = self._kept[np.asarray(captions, dtype=np.int64)].tolist()
        return self._source.caption_places(name, captions)

    def caption_rows(self, name: str) -> list[int]:
        """Return the row of each caption that is left."""
        return self._left(name, self._source.caption_rows(name))

    def caption_columns(self, name: str, wanted: Sequence[str]) -> dict[str, list[str]]:
        """Return other columns of the captions that are left."""
        columns = self._source.caption_columns(name, wanted)
        return {column: self._left(name, values) for column, values in columns.items()}

    def _left(self, name: str, values: list[Value]) -> list[Value]:
        if canonical_split(name) != "train":
            return values
        return [values[caption] for caption in self._kept.tolist()]

    def user_table(self) -> UserTable | None:
        """Return the whole table, with all of its rows."""
        return self._source.user_table()

    def images_in_several_splits(self) -> list[tuple[str, int]]:
        """Return what the whole folder says."""
        return self._source.images_in_several_splits()

    def unread_vectors(self) -> Path | None:
        """Return what the whole folder says."""
        return self._source.unread_vectors()

    def encoder(self) -> dict[str, Any] | None:
        """Return what the whole folder says."""
        return self._source.encoder()

    def fingerprint(self, full: bool = False) -> dict[str, Any]:
        """Return the folder's hashes; those of train and of the whole also tell which rows are left out."""
        found = self._source.fingerprint(full)
        train = found["splits"]["train"]
        train = {**train, "hash": self._with(train["hash"]), "left_out": self._hash}
        return {**found, "hash": self._with(found["hash"]), "splits": {**found["splits"], "train": train}}

    def _with(self, own: str) -> str:
        return sha256(f"{own} without {self._hash}".encode()).hexdigest()


def _require_rows(source: DataSource, rows: NDArray[np.int64], name: str) -> None:
    table = source.user_table()
    count = len(table) if table is not None else sum(len(source.caption_rows(split)) for split in source.split_names)
    beyond = np.flatnonzero(rows >= count)
    if len(beyond):
        raise InputError(
            f"{name}: line {beyond[0] + 1} is row {rows[beyond[0]]}; {source.path} has {count:,} rows, from 0; the "
            "file is that of other data"
        )
