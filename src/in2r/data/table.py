"""Anyone's pairs: a pair table (csv, tsv, jsonl or parquet) beside one feature file for all splits.

pairs.csv[.gz]       image, caption[, split]: one row a caption, any number of captions per image
images.npy           (images, regions, dim) or (images, dim)
image_lengths.npy    optional, (images,): how many of an image's regions are real
image_ids.txt        optional, one id a line in the order of images.npy; without it `image` is the row, from 0
captions.npy         optional, (table rows, dim): a caption as a vector
images/, captions/   in place of images.npy, captions.npy: pieces, npy files that are read as one array
data.json            optional, other names of files and columns, another encoding
image_verdicts.csv   optional, of `in2r features`: images that could not be read, whose rows are left out
encoder.json         optional, of `in2r features`: what made the features
"""

import logging
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.encoder_record import read_encoder
from in2r.data.features import Features, open_file_or_pieces
from in2r.data.fingerprint import fingerprint
from in2r.data.numbered import Numbered
from in2r.data.pairs import SPLITS, PairSet, canonical_split
from in2r.data.table_images import find_images, say_left_out
from in2r.data.table_layout import FILES, file_or_pieces, find_layout, read_image_ids, read_lengths
from in2r.data.table_rows import Rows, read_names, read_table, read_whole
from in2r.data.user_table import UserTable
from in2r.data.verdicts import FILE as VERDICTS
from in2r.data.verdicts import MISSING, read_verdicts
from in2r.errors import Faults, InputError
from in2r.seeds import numpy_generator

log = logging.getLogger(__name__)

OTHER_NAMES = {"val": "dev", "valid": "dev", "validation": "dev", "testall": "test"}
HELD_OUT = 10
"""Without a split column one image in ten is drawn for dev and one in ten for test."""


class TooFewToSplitError(InputError):
    """A table without splits has too few images to draw them from.

    Attributes:
        images: how many it has.
    """

    def __init__(self, images: int, table: Path) -> None:
        super().__init__(f"{table}: {images} images; a split can be drawn from 3 or more")
        self.images = images


class TableSource:
    """A pair table with its features; the table is read once, features stay on disk."""

    def __init__(
        self,
        path: Path,
        *,
        dev_rule: str = "scan",
        caption_vectors: str | bool | None = None,
        split_seed: int | None = 0,
        skip_missing: bool = False,
        announce: bool = True,
    ) -> None:
        if dev_rule == "ncr":
            raise InputError(f"{path}: dev_rule=ncr belongs to precomp folders; a pair table's dev split is used whole")
        self.path = path
        self.skipped: list[str] = []
        """rows that are left out, because their image is not there: line and id of each"""
        self.unreadable: list[str] = []
        """rows that are left out, because image_verdicts.csv says why their image has no features: line, id, verdict"""
        self._layout = find_layout(path)
        self._array = open_file_or_pieces(self._layout.features)
        rows = self._open_files(caption_vectors)
        self._match_rows(rows, split_seed, skip_missing)
        if announce and self._drawn_from is not None:
            self._say_drawn("an empty" if self._layout.columns["split"] in rows.columns else "no")
        if announce:
            say_left_out(self._layout.table.name, len(self._lines), self.skipped, self.unreadable)

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have a row in the table."""
        return tuple(name for number, name in enumerate(SPLITS) if (self._splits == number).any())

    def split(self, name: str) -> PairSet:
        """Return one split: images in the order of the feature file, the captions of each in table order.

        Raises:
            InputError: no row of the table belongs to the split, or a file does not fit.
        """
        name = canonical_split(name)
        chosen = self._rows_of(name)
        if len(chosen) == 0:
            raise InputError(f"{self._layout.table}: no row belongs to {name}; there are {', '.join(self.split_names)}")
        rows, image_of_caption = np.unique(self._image_rows[chosen], return_inverse=True)
        lengths = None if self._lengths is None else self._lengths[rows]
        images = Features(self._array, rows, lengths, self._layout.features.name)
        captions = None if self._captions is None else [self._captions[row] for row in chosen.tolist()]
        ids = Numbered(rows) if self._ids is None else [self._ids[row] for row in rows.tolist()]
        image_of_caption = image_of_caption.astype(np.int64)
        vectors = None if self._vectors is None else self._vectors.select(chosen)
        return PairSet(name, images, image_of_caption, captions, vectors, ids)

    def caption_places(self, name: str, captions: Sequence[int]) -> list[str]:
        """Return the file and line (Parquet: the row, from 1) of some captions of a split."""
        rows = self._rows_of(canonical_split(name))
        return [f"{self._layout.table.name} line {self._lines[rows[caption]]}" for caption in captions]

    def caption_rows(self, name: str) -> list[int]:
        """Return the row of each caption of a split in the table, from 0; a record counts once, however many lines."""
        rows: list[int] = self._rows_of(canonical_split(name)).tolist()
        return rows

    def caption_columns(self, name: str, wanted: Sequence[str]) -> dict[str, list[str]]:
        """Return other columns of the table as text, a value for each caption of a split.

        Raises:
            InputError: the table has no such column.
        """
        columns = read_table(self._layout.table, list(wanted), [], self._layout.encoding).columns
        return {column: [values[row] for row in self.caption_rows(name)] for column, values in columns.items()}

    def user_table(self) -> UserTable:
        """Return the whole table: all rows and columns as they stand, and why some rows have no features."""
        layout, path = self._layout, self._layout.table
        names = read_names(path, layout.encoding)
        known = [_own_name(layout.columns[name], names) for name in ("image", "caption", "split")]
        columns = read_table(path, [], [name for name in known if name is not None], layout.encoding).columns
        try:
            columns = read_whole(path, layout.encoding).columns | columns
        except InputError as error:  # two columns of one name
            log.warning("%s; only the columns of image, caption and split are carried along", error)
        image, caption, _ = known
        assert image is not None  # the table was read by it
        named, left_out = columns[image], np.flatnonzero(self._image_rows < 0).tolist()
        file = self.path / VERDICTS
        verdicts = read_verdicts(file) if left_out and file.is_file() else {}
        why = {name: one.verdict for name, one in verdicts.items() if not one.encoded}
        reasons = {row: why.get(named[row], MISSING) for row in left_out}
        return UserTable(path, layout.encoding, columns, image, caption, self._lines.tolist(), reasons)

    def images_in_several_splits(self) -> list[tuple[str, int]]:
        """Return (image, a row of the table) of images whose captions lie in more than one split."""
        rows = np.flatnonzero(self._splits >= 0)
        first = np.full(len(self._array), -1)
        first[self._image_rows[rows[::-1]]] = self._splits[rows[::-1]]
        other = rows[self._splits[rows] != first[self._image_rows[rows]]]
        images, at = np.unique(self._image_rows[other], return_index=True)
        names = [str(row) if self._ids is None else self._ids[row] for row in images.tolist()]
        return list(zip(names, [self._lines[row] for row in other[at].tolist()], strict=True))

    def unread_vectors(self) -> Path | None:
        """Return the file of caption vectors that lies there and is not read; None where there is none."""
        file = self._layout.caption_vectors
        return file if self._vector_file is None and file.exists() else None

    def encoder(self) -> dict[str, Any] | None:
        """Return the record of what made the features that are read; None where the folder has none."""
        record = read_encoder(self.path)
        if record is not None and self._vector_file != file_or_pieces(self.path / FILES["caption_vectors"]):
            return {**record, "text": None}
        return record

    def images_without_caption(self) -> int:
        """Return how many rows of the feature file no row of the table names."""
        return len(self._array) - len(self._images())

    def fingerprint(self, full: bool = False) -> dict[str, Any]:
        """Return the hashes of the files, the same for every split; see `fingerprint.fingerprint`."""
        layout = self._layout
        files = [layout.table, layout.features, layout.lengths, layout.image_ids, self._vector_file]
        present = [path for path in files if path is not None]
        facts: dict[str, Any] = {"columns": layout.columns, "split_seed": self._drawn_from}
        if layout.encoding is not None:
            facts["encoding"] = layout.encoding
        if self.skipped:
            facts["skipped"] = len(self.skipped)
        if self.unreadable:
            facts["unreadable"] = len(self.unreadable)
        return fingerprint(dict.fromkeys(self.split_names, present), full=full, **facts)

    def _rows_of(self, name: str) -> NDArray[np.int64]:
        chosen = np.flatnonzero(self._splits == SPLITS.index(name))
        return chosen[np.argsort(self._image_rows[chosen], kind="stable")]

    def _open_files(self, caption_vectors: str | bool | None) -> Rows:
        """Read all but the features, and the table itself; what does not depend on one another is all looked at."""
        faults = Faults()
        with faults.gather():
            self._lengths = read_lengths(self._layout, len(self._array), self._array.shape[1])
        with faults.gather():
            self._ids = read_image_ids(self._layout, len(self._array))
        with faults.gather():
            rows = self._read_rows(wants_captions=not caption_vectors)
        faults.settle()
        self._captions = rows.columns.get(self._layout.columns["caption"])
        self._lines = array("q", rows.lines)
        self._vector_file = self._choose_vectors(caption_vectors)
        return rows

    def _match_rows(self, rows: Rows, split_seed: int | None, skip_missing: bool) -> None:
        """Find the image, the vector and the split of each row; a row that is left out has the split -1."""
        faults = Faults()
        with faults.gather():
            self._vectors = self._open_vectors()
        with faults.gather():
            named = rows.columns[self._layout.columns["image"]]
            found = find_images(self._layout, self._ids, len(self._array), named, self._lines, skip_missing)
            self._image_rows, self.skipped, self.unreadable = found.rows, found.skipped, found.unreadable
        given = rows.columns.get(self._layout.columns["split"], [])
        drawn = not any(given)  # a table that was joined of several may have a column of nulls
        if not drawn:
            with faults.gather():
                self._splits = self._read_split(given)
        faults.settle()
        self._drawn_from = split_seed if drawn else None
        if drawn:
            self._splits = self._draw_split(split_seed)
        self._splits[self._image_rows < 0] = -1

    def _read_rows(self, wants_captions: bool) -> Rows:
        layout = self._layout
        image, caption, split = (layout.columns[name] for name in ("image", "caption", "split"))
        needed = [image, caption] if wants_captions and not layout.caption_vectors.exists() else [image]
        rows = read_table(layout.table, needed, [caption, split], layout.encoding)
        if not rows.lines:
            raise InputError(f"{layout.table}: 0 pairs: {len(self._array)} images without caption")
        return rows

    def _choose_vectors(self, asked: str | bool | None) -> Path | None:
        if isinstance(asked, str):
            return self.path / asked if asked.endswith(".npy") else file_or_pieces(self.path / f"{asked}.npy")
        return self._layout.caption_vectors if asked or self._captions is None else None

    def _open_vectors(self) -> Features | None:
        file, rows = self._vector_file, len(self._lines)
        if file is None:
            return None
        array = open_file_or_pieces(file)
        if array.shape[:2] != (rows, 1):
            raise InputError(
                f"{file}: shape {array.shape}; expected one vector for each of the {rows} rows of "
                f"{self._layout.table.name}"
            )
        return Features(array, np.arange(rows, dtype=np.int64), source=file.name)

    def _images(self) -> NDArray[np.int64]:
        """Return the rows of the feature file that the table names, each once."""
        return np.unique(self._image_rows[self._image_rows >= 0])

    def _read_split(self, given: list[str]) -> NDArray[np.int64]:
        number_of = {name: SPLITS.index(OTHER_NAMES.get(name, name)) for name in [*SPLITS, *OTHER_NAMES]}
        faults = Faults()
        for line, name in zip(self._lines, given, strict=True):
            if name.casefold() not in number_of:
                faults.add(f"{self._layout.table}: line {line}: split {name!r}; expected {', '.join(SPLITS)}")
        faults.settle()
        return np.array([number_of[name.casefold()] for name in given], dtype=np.int64)

    def _draw_split(self, seed: int | None) -> NDArray[np.int64]:
        if seed is None:
            return np.full(len(self._image_rows), SPLITS.index("train"))
        images = self._images()
        if len(images) < len(SPLITS):
            raise TooFewToSplitError(len(images), self._layout.table)
        held_out = max(1, len(images) // HELD_OUT)
        drawn = numpy_generator(seed, "split").permutation(images)
        split_of_row = np.zeros(len(self._array), dtype=np.int64)
        split_of_row[drawn[:held_out]] = SPLITS.index("dev")
        split_of_row[drawn[held_out : 2 * held_out]] = SPLITS.index("test")
        chosen: NDArray[np.int64] = split_of_row[self._image_rows]
        return chosen

    def _say_drawn(self, found: str) -> None:
        counts = [len(np.unique(self._image_rows[self._splits == number])) for number in range(len(SPLITS))]
        log.info(
            "%s has %s split column: drew %d images for train, %d for dev, %d for test (split_seed %d)",
            self._layout.table.name, found, *counts, self._drawn_from,
        )  # fmt: skip


def _own_name(wanted: str, names: Sequence[str]) -> str | None:
    """Return the table's own name of a column, as `read_table` finds it; None where there is none."""
    same = [name for name in names if name == wanted] or [n for n in names if n.casefold() == wanted.casefold()]
    return same[0] if same else None
