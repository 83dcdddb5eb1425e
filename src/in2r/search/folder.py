"""An index in a folder: searched by NumPy or FAISS, written as a new generation of files and then config.json."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import create_npy, require_whole
from in2r.data.fingerprint import file_hash
from in2r.files import atomic_path, require_free_space
from in2r.models.retrieval import BLOCK
from in2r.search.approximate import Approximate, build_approximate, require_faiss
from in2r.search.base import Addition, Candidates, Item, Precision, grown, known_already, taken
from in2r.search.nearest import Rows, exact_scores, nearest_candidates
from in2r.search.store import (
    CONFIG,
    TOGETHER,
    IndexConfig,
    Items,
    file_name,
    open_vectors,
    read_config,
    require_same_data,
    write_config,
    writing,
)


class Folder:
    """A `Store`. Who looks at it keeps the generation that was there at the first look.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)

    def read_config(self) -> IndexConfig:
        """Return what config.json says."""
        return read_config(self._path)

    @contextmanager
    def reading(self) -> Iterator["FolderView"]:
        """Look at the index."""
        yield self._view

    @cached_property
    def _view(self) -> "FolderView":
        return FolderView(self._path)

    def require_room(self, empty: IndexConfig, force: bool) -> None:
        """Refuse to replace an index without being asked, and a kind that nothing can build."""
        if empty.kind != "exact":
            require_faiss()
        if (self._path / CONFIG).is_file() and not force:
            raise taken(self.place)

    def create(self, empty: IndexConfig, new: Addition, precision: Precision, force: bool) -> IndexConfig:
        """Write a new index."""
        with writing(self._path):
            self.require_room(empty, force)
            file = self._path / CONFIG
            before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            return _write(self._path, replace(empty, generation=int(before.get("generation", 0))), new, precision)

    def add(self, seen: IndexConfig, new: Addition) -> IndexConfig:
        """Add items; the FAISS index of hnsw and ivf is built anew of all vectors."""
        with writing(self._path):
            config = read_config(self._path)
            require_same_data(config)
            half = open_vectors(self._path, config).itemsize == 2
            return _write(self._path, config, new, "float16" if half else "float32")


class FolderView:
    """A `View` of one generation of files; vectors and items stay on the disk.

    Args:
        path: the folder.

    Raises:
        InputError: no index, a file that is gone or differs; FAISS is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.config = read_config(path)
        self.vectors = open_vectors(path, self.config)
        self.dtype = self.vectors.dtype
        self._items = Items(path, self.config)
        kind = self.config.kind
        self._approximate = None if kind == "exact" else Approximate(kind, path / self.config.name("faiss"))

    def nearest(
        self, queries: NDArray[np.float32], k: int, where: Mapping[str, str] | None
    ) -> tuple[int, Iterator[Candidates]]:
        """Return how many items are searched, and candidates of each query."""
        rows = None if where is None else self._matching(where)
        found: Iterator[Rows]
        if rows is None and self._approximate is not None:
            found = map(self._approximate.candidates, queries)
        else:
            found = nearest_candidates(self.vectors, queries, k, rows)
        candidates = (
            Candidates(self._items.read(some), exact_scores(self.vectors, query, some))
            for query, some in zip(queries, found, strict=True)
        )
        return self.config.count if rows is None else len(rows), candidates

    def find(self, name: str) -> tuple[Item, NDArray[Any]] | None:
        """Return the item of an id and its vector; the first call reads all ids."""
        row = self._row_of.get(name)
        if row is None:
            return None
        require_whole(self.vectors)
        return self._items.read(np.array([row]))[0], self.vectors[row]

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {item["id"]: row for row, item in enumerate(self._items)}

    def blocks(self) -> Iterator[tuple[list[Item], NDArray[Any]]]:
        """Yield all items and their vectors, some at a time, in the order of the data."""
        for start in range(0, self.config.count, TOGETHER):
            require_whole(self.vectors)
            vectors = self.vectors[start : start + TOGETHER]
            yield self._items.read(np.arange(start, start + len(vectors))), vectors

    def _matching(self, where: Mapping[str, str]) -> Rows:
        """Return the rows of the items whose columns have the values."""
        wanted = where.items()
        found = [
            row
            for row, item in enumerate(self._items)
            if all(value in item["columns"].get(name, ()) for name, value in wanted)
        ]
        return np.array(found, np.int64)


def _write(folder: Path, config: IndexConfig, new: Addition, precision: Precision) -> IndexConfig:
    """Write the next generation: what the index has, and what is added."""
    old, items = Items(folder, config) if config.count else (), new.items
    _require_new_ids(folder, old, set(items.ids))
    written = replace(grown(config, new), generation=config.generation + 1)
    generation, count = written.generation, written.count
    require_free_space(folder, (3 if config.kind != "exact" else 2) * count * config.dim * np.dtype(precision).itemsize)
    with atomic_path(folder / file_name("vectors", generation)) as temporary:
        out = create_npy(temporary, precision, (count, config.dim))
        if config.count:
            _copy(open_vectors(folder, config), out)
        new.fill(out[config.count :])
        out.flush()
    names = ["vectors", "items", "lines"]
    _write_items(folder, generation, chain(old, items.records(len(config.data))), count)
    if config.kind != "exact":
        with atomic_path(folder / file_name("faiss", generation)) as temporary:
            build_approximate(config.kind, np.asarray(out), temporary)
        names.append("faiss")
    files = {file_name(name, generation): file_hash(folder / file_name(name, generation)) for name in names}
    written = replace(written, files=files)
    write_config(folder, written)
    return written


def _require_new_ids(folder: Path, old: Iterable[Item], new: set[str]) -> None:
    twice = next((item["id"] for item in old if item["id"] in new), None)
    if twice is not None:
        raise known_already(str(folder), twice)


def _copy(old: NDArray[Any], out: NDArray[Any]) -> None:
    for start in range(0, len(old), BLOCK):
        some = slice(start, min(start + BLOCK, len(old)))
        out[some] = old[some]


def _write_items(folder: Path, generation: int, records: Any, count: int) -> None:
    starts = np.zeros(count + 1, np.int64)
    with atomic_path(folder / file_name("items", generation)) as temporary, temporary.open("wb") as file:
        for number, record in enumerate(records, start=1):
            starts[number] = starts[number - 1] + file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    with atomic_path(folder / file_name("lines", generation)) as temporary:
        np.save(temporary, starts)
