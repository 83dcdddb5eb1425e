"""Make an index of a data folder, or add a folder's items to one: a new generation of files, then config.json."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import in2r
from in2r.data.encoder_record import SIDES, other_encoders
from in2r.data.features import create_npy
from in2r.data.fingerprint import file_hash
from in2r.data.pairs import DataSource, canonical_split
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.files import atomic_path, require_free_space
from in2r.models.folder import load
from in2r.models.retrieval import BLOCK, RetrievalModel
from in2r.search.approximate import Kind, build_approximate, require_faiss
from in2r.search.fill import Progress, fill_vectors
from in2r.search.items import Gathered, gather_items
from in2r.search.store import (
    CONFIG,
    DataRef,
    IndexConfig,
    Items,
    ModelRef,
    Side,
    file_name,
    open_vectors,
    read_config,
    require_same_data,
    write_config,
    writing,
)

Precision = Literal["float32", "float16"]


@dataclass(frozen=True)
class DataOptions:
    """How a data folder is read; the keys of section `data` of a run's settings."""

    path: Path
    split: str | None = None
    layout: str = "auto"
    caption_vectors: str | None = None
    split_seed: int = 0
    skip_missing: bool = False

    def open(self, vectors: bool) -> tuple[DataSource, list[str]]:
        """Open the folder; return it and the splits that are indexed.

        Args:
            vectors: whether captions are needed as vectors: a pair table's own file, unless another is named.
        """
        chosen = None if self.split is None else [canonical_split(self.split)]
        wanted: str | bool | None = self.caption_vectors if vectors else None
        wanted = True if vectors and wanted in (None, "auto") else wanted
        source = open_data(
            self.path,
            layout=self.layout,
            dev_rule="full",
            caption_vectors=wanted,
            split_seed=None if self.split is None else self.split_seed,
            skip_missing=self.skip_missing,
        )
        return source, chosen or list(source.split_names)


def build_index(
    model: Path,
    data: DataOptions,
    out: Path,
    *,
    side: Side = "images",
    kind: Kind = "exact",
    precision: Precision = "float32",
    network: Literal["ensemble", "A", "B"] = "ensemble",
    device: str = "auto",
    force: bool = False,
    progress: Progress | None = None,
) -> IndexConfig:
    """Encode the images or captions of a data folder by a model and write an index, whole or not at all.

    Args:
        model: a model folder or a run folder.
        data: the folder, and how it is read.
        out: the folder of the index.
        side: what is indexed.
        kind: exact, or hnsw or ivf of FAISS.
        precision: of the vectors on the disk.
        network: which of the model's.
        device: where the model computes.
        force: replace an index that is there.
        progress: is told how many of how many items are encoded.

    Raises:
        InputError: no model or data, features of another encoder, equal ids, FAISS is not installed, `out` is taken.
    """
    if kind != "exact":
        require_faiss()
    if (out / CONFIG).is_file() and not force:
        raise InputError(f"{out}: holds an index; `in2r index add` adds to it, --force replaces it")
    loaded = load(model, device, network)
    trained = loaded.info.get("protocol", {}).get("data", {}).get("encoder") or {}
    reference = str(os.path.abspath(model)) if model.exists() else str(model)
    empty = IndexConfig(
        in2r=in2r.__version__, generation=0, side=side, metric="inner product", kind=kind, count=0, dim=loaded.dim,
        interacts=loaded.interacts, model=ModelRef(reference, network, loaded.fingerprint),
        encoder={name: trained.get(name) for name in SIDES}, columns=(), caption_column=None, data=(), files={},
        versions={},
    )  # fmt: skip
    new = _gather(data, empty, loaded)
    with writing(out):
        before = json.loads((out / CONFIG).read_text(encoding="utf-8")) if (out / CONFIG).is_file() else {}
        return _write(
            out, replace(empty, generation=int(before.get("generation", 0))), loaded, new, precision, progress
        )


def add_to_index(
    index: Path, data: DataOptions, *, model: Path | None = None, device: str = "auto", progress: Progress | None = None
) -> IndexConfig:
    """Add the items of a data folder to an index; a process that is killed leaves the index as it was.

    Vectors and items are appended; the FAISS index of hnsw and ivf is built anew of all vectors.

    Args:
        index: the folder of the index.
        data: the folder, and how it is read.
        model: where the model is now, if not where it was.
        device: where the model computes.
        progress: as in `build_index`.

    Raises:
        InputError: as in `build_index`; another model than the index's; an id that the index has.
    """
    config = read_config(index)
    loaded = load_model(index, config, model, device)
    new = _gather(data, config, loaded)
    with writing(index):
        config = read_config(index)
        require_same_data(config)
        precision: Precision = "float16" if open_vectors(index, config).itemsize == 2 else "float32"
        return _write(index, config, loaded, new, precision, progress)


def load_model(index: Path, config: IndexConfig, model: Path | None, device: str) -> RetrievalModel:
    """Load the model that made an index, from its place or from another one.

    Raises:
        InputError: it is not there, or is not the one that made the vectors.
    """
    path = Path(config.model.path) if model is None else model
    try:
        loaded = load(path, device, config.model.network)
    except InputError as error:
        raise InputError(f"the model of {index}: {error}; name its place with --model") from None
    if loaded.fingerprint != config.model.fingerprint:
        raise InputError(
            f"{path}: not the model that made the vectors of {index} (fingerprint {loaded.fingerprint[:12]}, expected "
            f"{config.model.fingerprint[:12]}); name that one with --model, or index again"
        )
    return loaded


@dataclass(frozen=True)
class _New:
    """What is added: the items of a data folder, how it was read, and the encoders that are known with it."""

    items: Gathered
    source: DataSource
    reference: DataRef
    encoder: dict[str, object]


def _gather(data: DataOptions, config: IndexConfig, model: RetrievalModel) -> _New:
    """Read a data folder; nothing is written."""
    source, splits = data.open(config.side == "captions" and model.reads == "vectors")
    encoder = _one_encoder(config, source, "image" if config.side == "images" else "text")
    return _New(gather_items(source, splits, config.side), source, _reference(data, source, splits), encoder)


def _write(
    folder: Path,
    config: IndexConfig,
    model: RetrievalModel,
    new: _New,
    precision: Precision,
    progress: Progress | None,
) -> IndexConfig:
    """Write the next generation: what the index has, and what is added."""
    old, items = Items(folder, config) if config.count else (), new.items
    _require_new_ids(folder, old, set(items.ids))
    count = config.count + len(items.ids)
    generation = config.generation + 1
    require_free_space(folder, (3 if config.kind != "exact" else 2) * count * config.dim * np.dtype(precision).itemsize)
    with atomic_path(folder / file_name("vectors", generation)) as temporary:
        out = create_npy(temporary, precision, (count, config.dim))
        if config.count:
            _copy(open_vectors(folder, config), out)
        fill_vectors(model, items.parts, config.side, out[config.count :], new.source, progress)
        out.flush()
    names = ["vectors", "items", "lines"]
    _write_items(folder, generation, chain(old, items.records(len(config.data))), count)
    if config.kind != "exact":
        with atomic_path(folder / file_name("faiss", generation)) as temporary:
            build_approximate(config.kind, np.asarray(out), temporary)
        names.append("faiss")
    files = {file_name(name, generation): file_hash(folder / file_name(name, generation)) for name in names}
    written = replace(
        config,
        in2r=in2r.__version__,
        generation=generation,
        count=count,
        columns=tuple(dict.fromkeys([*config.columns, *items.columns])),
        caption_column=config.caption_column or items.caption,
        data=(*config.data, new.reference),
        encoder=new.encoder,
        files=files,
        versions={"python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy")},
    )
    write_config(folder, written)
    return written


def _one_encoder(config: IndexConfig, source: DataSource, side: str) -> dict[str, object]:
    """Return which encoders made the features of the index; refuse data of another one."""
    found = source.encoder() or {}
    known: Any = config.encoder
    changed = other_encoders(known, found, (side,))
    if changed:
        raise InputError(
            f"{source.path}: not from the encoder that the model was trained with: {' and '.join(changed)}"
        )
    return {**known, side: known.get(side) or found.get(side)}


def _require_new_ids(folder: Path, old: Iterable[dict[str, Any]], new: set[str]) -> None:
    twice = next((item["id"] for item in old if item["id"] in new), None)
    if twice is not None:
        raise InputError(f"{folder}: has an item {twice!r} already; add new items only, or index all data again")


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


def _reference(data: DataOptions, source: DataSource, splits: Sequence[str]) -> DataRef:
    found = source.fingerprint()["splits"]
    files = {name: value for split in splits for name, value in found[split]["files"].items()}
    path = os.path.abspath(data.path)
    return DataRef(path, data.layout, data.caption_vectors, data.split_seed, data.skip_missing, tuple(splits), files)
