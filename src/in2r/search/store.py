"""The files of an index, in generations: a writer makes the files of the next one, then config.json names them.

config.json         format, side, kind, model, data, encoder, versions, and the hash of each file; written last
vectors-G.npy       (N, D) float32 or float16, unit norm; row i is item i
items-G.jsonl       one line an item: id, columns of the user's table, place in the data
lines-G.npy         (N + 1,) int64: where each line begins in items-G.jsonl
faiss-G.index       hnsw and ivf: what FAISS reads
lock                held by a writer

A reader that opened a generation keeps it, and a killed writer leaves the one before.
"""

import fcntl
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import in2r
from in2r.data.features import open_npy, require_whole
from in2r.data.fingerprint import content_hash, file_hash
from in2r.data.table_layout import file_or_pieces
from in2r.errors import InputError
from in2r.files import read_json, remove_temporaries, write_json
from in2r.form import read

FORMAT = {"format": "in2r-index", "format_version": 1}
CONFIG = "config.json"
LOCK = "lock"
TOGETHER = 4096
"""items that are read at a time"""
_OWN = re.compile(r"(vectors|lines)-\d+\.npy|items-\d+\.jsonl|faiss-\d+\.index|\.tmp-.*")

Side = Literal["images", "captions"]


@dataclass(frozen=True)
class ModelRef:
    """The model that made the vectors: where it was, which networks, and its fingerprint."""

    path: str
    network: Literal["ensemble", "A", "B"]
    fingerprint: str


@dataclass(frozen=True)
class DataRef:
    """A data folder that was indexed: where it was, how it was read, and the hash of each file by name."""

    path: str
    layout: str
    caption_vectors: str | None
    split_seed: int
    skip_missing: bool
    splits: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True)
class IndexConfig:
    """The content of config.json.

    Attributes:
        in2r: the version that wrote it.
        generation: G in the names of files.
        side: what the items are.
        metric: of vectors of unit norm, so a cosine; of an ensemble the mean of the networks' cosines.
        kind: exact, hnsw or ivf.
        count: N.
        dim: D.
        interacts: whether the vectors are an interaction model's global ones, and results are scored again.
        model: what made the vectors.
        encoder: image → record, text → record (see data/encoder_record.py); None where nothing says.
        columns: of the user's tables, in their order.
        caption_column: the one that holds the captions, where there is one.
        data: what was indexed, in its order.
        files: file name → hash.
        versions: of the packages at that time.
    """

    in2r: str
    generation: int
    side: Side
    metric: Literal["inner product"]
    kind: Literal["exact", "hnsw", "ivf"]
    count: int
    dim: int
    interacts: bool
    model: ModelRef
    encoder: dict[str, object]
    columns: tuple[str, ...]
    caption_column: str | None
    data: tuple[DataRef, ...]
    files: dict[str, str]
    versions: dict[str, str]

    def name(self, part: str) -> str:
        """Return the name of a file: of "vectors", "lines", "items" or "faiss"."""
        return file_name(part, self.generation)


def file_name(part: str, generation: int) -> str:
    """Return the name of a part's file in a generation."""
    endings = {"vectors": "npy", "lines": "npy", "items": "jsonl", "faiss": "index"}
    return f"{part}-{generation}.{endings[part]}"


def description(config: IndexConfig) -> dict[str, Any]:
    """Return what is kept of a description, as JSON has it."""
    return {**FORMAT, **asdict(config)}


def described(record: Any, place: str) -> IndexConfig:
    """Read what `description` returned.

    Args:
        record: of JSON.
        place: where it is, for messages.

    Raises:
        InputError: something else, or of another version.
    """
    if not isinstance(record, dict) or record.get("format") != FORMAT["format"]:
        raise InputError(f"{place}: not the description of an index; `in2r index` makes one")
    if record.get("format_version") != FORMAT["format_version"]:
        found, known = record.get("format_version"), FORMAT["format_version"]
        raise InputError(f"{place}: format version {found}; this in2r {in2r.__version__} reads {known}")
    return read(IndexConfig, {key: value for key, value in record.items() if key not in FORMAT}, place)


def write_config(folder: Path, config: IndexConfig) -> None:
    """Write config.json: from now on the index is what it says."""
    write_json(folder / CONFIG, description(config))


def read_config(folder: Path) -> IndexConfig:
    """Read config.json and look whether the files that it names are whole.

    Raises:
        InputError: no index, of another version, or a file that is gone or differs.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder}: no index here (no {CONFIG}); `in2r index` makes one")
    record = read_json(path)
    config = described(record, str(path))
    for name, expected in config.files.items():
        file = folder / name
        if not file.is_file():
            if read_json(path) != record:  # a writer has removed this generation since
                return read_config(folder)
            raise InputError(f"{file}: no such file, but {CONFIG} names it; copy the whole folder, or index again")
        if file_hash(file) != expected:
            raise InputError(
                f"{file}: not the file that was written with {CONFIG}; copy the whole folder, or index again"
            )
    return config


def require_same_data(config: IndexConfig) -> None:
    """Refuse an index whose data have changed since; data that are elsewhere now are not looked at.

    Raises:
        InputError: the folder, the file, and what to do.
    """
    for data in config.data:
        for name, expected in data.files.items():
            file = file_or_pieces(Path(data.path) / name)
            if file.exists() and content_hash(file) != expected:
                raise InputError(f"{file}: changed since it was indexed; index it again (`in2r index ... --force`)")


class Items:
    """Ids, columns and places of an index's items, read line by line from the disk.

    Args:
        folder: of the index.
        config: its description.

    Raises:
        InputError: the files do not belong together.
    """

    def __init__(self, folder: Path, config: IndexConfig) -> None:
        file = folder / config.name("items")
        self._text: NDArray[np.uint8] = np.asarray(np.memmap(file, np.uint8, "r"))  # held if a writer removes it
        self._starts = open_npy(folder / config.name("lines"))
        if self._starts.shape != (config.count + 1,) or self._starts[-1] != len(self._text):
            raise InputError(f"{file}: {len(self._text)} bytes; not the items of {config.count} vectors")

    def read(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return the items of some rows: id (text), columns (name → values), at (data, split, item)."""
        require_whole(self._text)
        return [json.loads(self._text[self._starts[row] : self._starts[row + 1]].tobytes()) for row in rows.tolist()]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield all items in their order."""
        for start in range(0, len(self._starts) - 1, TOGETHER):
            yield from self.read(np.arange(start, min(start + TOGETHER, len(self._starts) - 1)))


def open_vectors(folder: Path, config: IndexConfig) -> NDArray[Any]:
    """Memory-map the vectors (N, D).

    Raises:
        InputError: another shape than config.json says.
    """
    vectors = open_npy(folder / config.name("vectors"))
    if vectors.shape != (config.count, config.dim) or vectors.dtype.kind != "f":
        expected = f"{(config.count, config.dim)}, float"
        raise InputError(f"{folder / config.name('vectors')}: {vectors.shape}, {vectors.dtype}; expected {expected}")
    return vectors


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder for one writer; before and after, remove files of generations that config.json does not name.

    Raises:
        InputError: another process writes, the folder cannot be made, or holds what is no index's.
    """
    _require_own(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"{folder}: another process is writing this index; wait until it has ended") from None
            _remove_others(folder)
            try:
                yield
            finally:
                _remove_others(folder)
    except NotADirectoryError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror})") from None


def _require_own(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: a file; expected a folder for the index")
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    foreign = [name for name in names if name not in (CONFIG, LOCK) and not _OWN.fullmatch(name)]
    record = read_json(folder / CONFIG) if CONFIG in names else FORMAT
    if foreign or not isinstance(record, dict) or record.get("format") != FORMAT["format"]:
        raise InputError(f"{folder}: holds {(foreign or [CONFIG])[0]}, which is no index's; choose another --out")


def _remove_others(folder: Path) -> None:
    remove_temporaries(folder)
    named = read_json(folder / CONFIG).get("files", {}) if (folder / CONFIG).is_file() else {}
    for path in folder.iterdir():
        if path.name not in (CONFIG, LOCK) and path.name not in named:
            path.unlink(missing_ok=True)
