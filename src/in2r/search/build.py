"""Make an index of a data folder, or add a folder's items to one, in a folder or in PostgreSQL."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import in2r
from in2r.data.encoder_record import SIDES
from in2r.data.pairs import DataSource, canonical_split
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.models.folder import load
from in2r.models.retrieval import RetrievalModel
from in2r.search.approximate import Kind
from in2r.search.base import Addition, Precision, Store, one_encoder
from in2r.search.connection import is_url
from in2r.search.fill import Progress, fill_vectors
from in2r.search.folder import Folder
from in2r.search.items import gather_items
from in2r.search.postgres import Postgres
from in2r.search.store import DataRef, IndexConfig, ModelRef, Side, require_same_data


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


def open_store(place: str | os.PathLike[str]) -> Store:
    """Return the place of an index: a folder, or `postgresql://USER@HOST/DATABASE#NAME`.

    Raises:
        InputError: a URL that cannot be read; psycopg is not installed.
    """
    return Postgres(place) if isinstance(place, str) and is_url(place) else Folder(Path(place))


def build_index(
    model: Path,
    data: DataOptions,
    out: str | os.PathLike[str],
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
        out: the folder of the index, or the URL of a PostgreSQL database.
        side: what is indexed.
        kind: exact; hnsw of FAISS or of pgvector; or ivf of FAISS.
        precision: of the vectors where they are kept.
        network: which of the model's.
        device: where the model computes.
        force: replace an index that is there.
        progress: is told how many of how many items are encoded.

    Raises:
        InputError: no model or data, features of another encoder, equal ids, FAISS or psycopg is not installed, `out`
            is taken, the database does not answer.
    """
    store = open_store(out)
    loaded = load(model, device, network)
    trained = loaded.info.get("protocol", {}).get("data", {}).get("encoder") or {}
    reference = str(os.path.abspath(model)) if model.exists() else str(model)
    empty = IndexConfig(
        in2r=in2r.__version__, generation=0, side=side, metric="inner product", kind=kind, count=0, dim=loaded.dim,
        interacts=loaded.interacts, model=ModelRef(reference, network, loaded.fingerprint),
        encoder={name: trained.get(name) for name in SIDES}, columns=(), caption_column=None, data=(), files={},
        versions={},
    )  # fmt: skip
    store.require_room(empty, force)
    return store.create(empty, _gather(data, empty, loaded, progress), precision, force)


def add_to_index(
    index: str | os.PathLike[str],
    data: DataOptions,
    *,
    model: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> IndexConfig:
    """Add the items of a data folder to an index; a process that is killed leaves the index as it was.

    Args:
        index: the folder of the index, or its URL.
        data: the folder, and how it is read.
        model: where the model is now, if not where it was.
        device: where the model computes.
        progress: as in `build_index`.

    Raises:
        InputError: as in `build_index`; another model than the index's; an id that the index has.
    """
    store = open_store(index)
    config = store.read_config()
    require_same_data(config)
    loaded = load_model(store.place, config, model, device)
    return store.add(config, _gather(data, config, loaded, progress))


def load_model(index: str, config: IndexConfig, model: Path | None, device: str) -> RetrievalModel:
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


def _gather(data: DataOptions, config: IndexConfig, model: RetrievalModel, progress: Progress | None) -> Addition:
    """Read a data folder; nothing is written or encoded."""
    source, splits = data.open(config.side == "captions" and model.reads == "vectors")
    one_encoder(config, source)
    items = gather_items(source, splits, config.side)
    fill = partial(fill_vectors, model, items.parts, config.side, source, progress)
    return Addition(items, source, _reference(data, source, splits), fill)


def _reference(data: DataOptions, source: DataSource, splits: Sequence[str]) -> DataRef:
    found = source.fingerprint()["splits"]
    files = {name: value for split in splits for name, value in found[split]["files"].items()}
    path = os.path.abspath(data.path)
    return DataRef(path, data.layout, data.caption_vectors, data.split_seed, data.skip_missing, tuple(splits), files)
