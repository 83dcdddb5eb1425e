"""The field's *precomp* folders: `{split}_ims.npy` with `{split}_caps.txt` or, as CC152K, `_caps.tsv`."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import Features, open_array
from in2r.data.fingerprint import fingerprint
from in2r.data.numbered import Numbered
from in2r.data.pairs import SPLITS, PairSet, canonical_split
from in2r.data.rows import read_ids, read_lines, read_text, split_records
from in2r.errors import Faults, InputError, command_line

log = logging.getLogger(__name__)

CAPTIONS_PER_IMAGE = 5
"""The rule of `_caps.txt`: five consecutive lines describe one image; a tsv has one caption an image."""
DEV_IMAGES = 1000


@dataclass(frozen=True)
class _Captions:
    """Captions of one split as the file has them; texts and ids are None where the file has none."""

    place: Path
    count: int
    per_image: int
    texts: list[str] | None
    ids: list[str] | None
    lines: Sequence[int] = ()  # of each record of a tsv


class PrecompSource:
    """A precomp folder; images stored once per image or once per caption, judged for each split."""

    def __init__(self, path: Path, *, dev_rule: str = "scan", caption_vectors: str | bool | None = None) -> None:
        self.path = path
        self._dev_rule = dev_rule
        if isinstance(caption_vectors, bool):
            found = sorted(name.name for name in path.glob("*_*.npy") if not name.name.endswith("_ims.npy"))
            if caption_vectors:
                raise InputError(
                    f"{path}: caption_vectors needs the suffix of the files {{split}}_{{suffix}}.npy; found "
                    f"{', '.join(found) or 'none'}"
                )
            caption_vectors = None
        self._vectors = caption_vectors or None

    @property
    def split_names(self) -> tuple[str, ...]:
        """The splits that have features."""
        return tuple(name for name in SPLITS if self._file(name, "ims.npy").is_file())

    def split(self, name: str) -> PairSet:
        """Open one split; the test split is `testall_*` where that exists, else `test_*`.

        Raises:
            InputError: a file is missing, or the captions do not fit the features (both counts are named).
        """
        name = canonical_split(name)
        path = self._file(name, "ims.npy")
        array = open_array(path)
        vectors = self._open_vectors(name)
        captions = self._captions(name, None if vectors is None else len(vectors), len(array))
        if vectors is not None and len(vectors) != captions.count:
            raise InputError(f"{vectors.source}: {len(vectors)} rows but {captions.count} captions in {captions.place}")
        step = _row_step(path, array, captions)
        images = Features(array, np.arange(0, len(array), step, dtype=np.int64), source=path.name)
        image_of_caption = np.repeat(np.arange(len(images), dtype=np.int64), captions.per_image)
        ids = self._image_ids(name, captions, len(images))
        pairs = PairSet(name, images, image_of_caption, captions.texts, vectors, ids)
        return pairs.first(self._dev_captions(captions, step)) if name == "dev" else pairs

    def caption_places(self, name: str, captions: Sequence[int]) -> list[str]:
        """Return the file and line of some captions, for messages and lists."""
        path = self._captions_file(canonical_split(name))
        if path is None:
            file = self._file(name, f"{self._vectors}.npy").name
            return [f"{file} row {caption}" for caption in captions]
        if path.suffix == ".tsv":
            lines = _read_tsv(path).lines
            return [f"{path.name} line {lines[caption]}" for caption in captions]
        return [f"{path.name} line {caption + 1}" for caption in captions]

    def caption_rows(self, name: str) -> list[int]:
        """Return the row of each caption of a split in its caption file, from 0: they are in the file's order."""
        return list(range(len(self.split(name).image_of_caption)))

    def caption_columns(self, name: str, wanted: Sequence[str]) -> dict[str, list[str]]:
        """Refuse any column: there is no table.

        Raises:
            InputError: a column is wanted.
        """
        if wanted:
            raise InputError(
                f"{self.path}: a precomp folder has no column {wanted[0]!r}; only a pair table has columns"
            )
        return {}

    def user_table(self) -> None:
        """Return nothing: there is no table."""

    def images_in_several_splits(self) -> list[tuple[str, int]]:
        """Return nothing: images have no ids that are the same in several splits."""
        return []

    def unread_vectors(self) -> None:
        """Return None: a file of vectors is named by its suffix, which settings give."""

    def encoder(self) -> None:
        """Return None: these folders do not say what made their features."""

    def fingerprint(self, full: bool = False) -> dict[str, Any]:
        """Return the hashes of the files of each split that is there; see `fingerprint.fingerprint`."""
        return fingerprint({name: self._files(name) for name in self.split_names}, full=full)

    def _files(self, name: str) -> list[Path]:
        captions = self._captions_file(name)
        vectors = None if self._vectors is None else self._file(name, f"{self._vectors}.npy")
        return [path for path in (self._file(name, "ims.npy"), captions, vectors) if path is not None]

    def _file(self, name: str, ending: str) -> Path:
        if name == "test" and (self.path / "testall_ims.npy").is_file():
            name = "testall"
        return self.path / f"{name}_{ending}"

    def _captions_file(self, name: str) -> Path | None:
        files = [self._file(name, ending) for ending in ("caps.txt", "caps.tsv")]
        found = [path for path in files if path.is_file()]
        if len(found) == 2:
            raise InputError(f"{files[0]}: beside it lies {files[1].name}; keep the one that belongs to the features")
        return found[0] if found else None

    def _captions(self, name: str, vectors: int | None, rows: int) -> _Captions:
        path = self._captions_file(name)
        if path is None:
            missing = self._file(name, "caps.txt")
            if vectors is None:
                raise InputError(
                    f"{missing}: no such file; 0 pairs: {rows} rows of images without caption{self._way_out(name)}"
                )
            return _Captions(self._file(name, f"{self._vectors}.npy"), vectors, CAPTIONS_PER_IMAGE, None, None)
        if path.suffix == ".tsv":
            return _read_tsv(path)
        texts = read_lines(path)
        return _Captions(path, len(texts), CAPTIONS_PER_IMAGE, texts, None)

    def _way_out(self, name: str) -> str:
        """Say how captions that are there as vectors only are read; nothing where there are none."""
        start, images = self._file(name, ""), self._file(name, "ims.npy")
        files = sorted(path for path in self.path.glob(f"{start.name}*.npy") if path != images)
        if not files:
            return ""
        suffix = files[0].stem.removeprefix(start.name)
        setting, option = command_line(f"data.caption_vectors={suffix}"), command_line("--caption-vectors", suffix)
        return (
            f"; beside it lies {files[0].name}: if it holds captions as vectors, give {setting} "
            f"({option} where a verb takes no settings)"
        )

    def _open_vectors(self, name: str) -> Features | None:
        if self._vectors is None:
            return None
        path = self._file(name, f"{self._vectors}.npy")
        array = open_array(path)
        if array.shape[1] != 1:
            raise InputError(f"{path}: shape {array.shape}; caption vectors are (captions, dim)")
        return Features(array, np.arange(len(array), dtype=np.int64), source=path.name)

    def _image_ids(self, name: str, captions: _Captions, images: int) -> Sequence[str]:
        if captions.ids is not None:
            return captions.ids
        path = self._file(name, "ids.txt")
        if path.is_file():
            ids = read_ids(path)
            if len(ids) == images:
                return ids
            if len(ids) == captions.count:
                return ids[:: captions.per_image]
            log.warning(
                "%s: %d ids, but %d images with %d captions; not used, so the images are named %s:0, %s:1, ...",
                path, len(ids), images, captions.count, name, name,
            )  # fmt: skip
        return Numbered(np.arange(images), f"{name}:")

    def _dev_captions(self, captions: _Captions, step: int) -> int:
        """Return how many dev captions count: as SCAN has it (1000 images), as NCR (1000 rows), or all."""
        per_image = captions.per_image
        if self._dev_rule == "scan":
            return DEV_IMAGES * per_image
        return DEV_IMAGES * per_image // step if self._dev_rule == "ncr" else captions.count


def _row_step(path: Path, array: NDArray[Any], captions: _Captions) -> int:
    """Return the rows of one image: 1, or as many as it has captions (the row-redundancy rule)."""
    rows, count, per_image = len(array), captions.count, captions.per_image
    if rows == count and per_image > 1 and rows % per_image == 0:
        _require_repeated(path, array, per_image)
        return per_image
    if rows * per_image == count:
        return 1
    raise InputError(
        f"{path}: {rows} rows but {count} captions in {captions.place.name}; expected {per_image} "
        f"caption{'s' * (per_image > 1)} an image, with one row an image or one a caption"
    )


def _require_repeated(path: Path, array: NDArray[Any], repeats: int) -> None:
    """Look at 16 groups: the rows of one image must be the same, else the file means one caption an image."""
    for group in np.unique(np.linspace(0, len(array) // repeats - 1, 16).astype(np.int64)):
        first = int(group) * repeats
        rows = array[first : first + repeats]
        if not np.array_equal(rows, np.broadcast_to(rows[:1], rows.shape), equal_nan=True):
            raise InputError(
                f"{path}: as many rows as captions, but rows {first} to {first + repeats - 1} differ: "
                f"caps.txt means {repeats} captions an image; for one caption an image write "
                f"{path.name.removesuffix('ims.npy')}caps.tsv (image id, tab, caption)"
            )


def _read_tsv(path: Path) -> _Captions:
    """Read image id, tab, caption as the field does, quoting on; a record of which it would lose words is refused."""
    ids, texts, lines = [], [], []
    faults = Faults()
    for fields, first, last in split_records(read_text(path), path, "\t", strict=False):
        if last > first:
            faults.add(
                f"{path}: line {first}: a quote that opens here closes in line {last}; expected image id, tab, caption "
                "on one line (a caption that begins with a double quote: put it in double quotes, its own ones twice)"
            )
        elif len(fields) != 2:
            faults.add(
                f"{path}: line {first} has {len(fields)} field{'s' * (len(fields) > 1)}; expected two: image id, tab, "
                "caption (a caption that holds a tab in double quotes)"
            )
        else:
            ids.append(fields[0].strip())
            texts.append(fields[1].strip())
            lines.append(first)
    faults.settle()
    return _Captions(path, len(texts), 1, texts, ids, lines)
