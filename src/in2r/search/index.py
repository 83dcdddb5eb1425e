"""An index of images or captions, opened for searches."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.errors import InputError, UnavailableError, near
from in2r.models.retrieval import RetrievalModel
from in2r.search.approximate import FOUND
from in2r.search.base import Candidates, Store, View
from in2r.search.build import load_model, open_store
from in2r.search.nearest import best_first
from in2r.search.queries import Encoders, Queries, image_queries, text_queries, vector_queries
from in2r.search.rerank import RERANKED, Reranker
from in2r.search.store import require_same_data


@dataclass(frozen=True)
class Hit:
    """An item that was found.

    Attributes:
        id: of the image, or the row of the caption.
        score: its similarity with the query: a cosine, or of an interaction model a score in (0, 1).
        columns: what the user's table says of it: name → its different values.
    """

    id: str
    score: float
    columns: dict[str, list[str]]


@dataclass(frozen=True)
class Results:
    """What was found.

    Attributes:
        hits: for each query the best first; of equal scores the id that comes first as text.
        how: which items were compared, and whether anything was approximated.
    """

    hits: list[list[Hit]]
    how: str


class Index:
    """Images or captions by their vectors; made by `in2r index`, opened by `Index.open`.

    The model is loaded at the first text or image; vectors and items stay where they are kept. A result depends on the
    query's vector alone, not on k, on other vectors or on the number of threads: a smaller k gives the beginning of the
    same list. An index in a folder stays as it was opened. One in PostgreSQL has what was there when a search began.
    Several threads may search at once; one at a time uses the model and its encoders.

    Attributes:
        config: its description, as the last search had it.
    """

    def __init__(self, store: Store, model: str | os.PathLike[str] | None, encoder: str | None, device: str) -> None:
        self._store, self._place, self._device = store, model, device
        self._encoders = Encoders(encoder)
        self._computing = threading.RLock()
        with store.reading() as view:
            self.config = view.config
        require_same_data(self.config)
        self._loaded: tuple[RetrievalModel, Reranker] | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | None = None,
        encoder: str | None = None,
        device: str = "auto",
    ) -> "Index":
        """Open an index.

        Args:
            path: its folder, or `postgresql://USER@HOST/DATABASE#NAME`.
            model: where the model is now, if not where it was; it must be the same.
            encoder: `KIND:NAME`, where the encoder of texts or images is now, if not where it was; likewise.
            device: where models compute.

        Raises:
            InputError: no index, a file that is gone or differs, data that have changed since; the database does not
                answer.
        """
        return cls(open_store(path), model, encoder, device)

    def __len__(self) -> int:
        """Return the number of items."""
        return self.config.count

    def __iter__(self) -> Iterator[tuple[str, dict[str, list[str]]]]:
        """Yield (id, columns) of all items, in the order of `vectors`."""
        with self.reading() as view:
            for items, _ in view.blocks():
                for item in items:
                    yield item["id"], item["columns"]

    @property
    def vectors(self) -> NDArray[Any]:
        """(N, D) float16 or float32; row i is item i.

        Those of a folder are memory-mapped, those of PostgreSQL are read whole at each call.
        """
        with self.reading() as view:
            return view.vectors

    def find(self, name: str) -> tuple[dict[str, list[str]], NDArray[np.float32]]:
        """Return the columns of an item and its vector (1, D), as `search` takes it.

        Raises:
            KeyError: no item has this id.
        """
        with self.reading() as view:
            found = view.find(name)
        if found is None:
            raise KeyError(name)
        item, vector = found
        return item["columns"], vector[None].astype(np.float32)

    @contextmanager
    def reading(self) -> Iterator[View]:
        """Look at the index as it is at one moment.

        Raises:
            InputError: it was replaced since it was opened.
        """
        with self._store.reading() as view:
            if (view.config.generation, view.config.model) != (self.config.generation, self.config.model):
                raise UnavailableError(f"{self._store.place}: was replaced since it was opened; open it again")
            self.config = view.config
            yield view

    def search(self, queries: Sequence[str] | Any, k: int = 10, where: Mapping[str, str] | None = None) -> Results:
        """Return the k items that are most similar to each query.

        Args:
            queries: a list of n texts; or (n, D) vectors of unit norm, as the index's model makes them.
            k: from 1; fewer are found where there are fewer. At most 256 of an hnsw or ivf index, 100 of an interaction
                model.
            where: name of a column → value; of the items that have all of them; an image has those of all its rows.

        Raises:
            InputError: a query that cannot be used, no such column, k out of range, the model or the encoder is not
                there or is another one.
        """
        if isinstance(queries, str):
            raise InputError("queries: one text; expected a list of texts, such as [text]")
        if len(queries) and all(isinstance(query, str) for query in queries):
            with self._computing:
                made = text_queries(list(queries), self.model, self.config, self._encoders)
            return self._search(made, k, where)
        return self._search(vector_queries(queries, self.config), k, where)

    def search_images(
        self, files: Sequence[str | os.PathLike[str] | bytes], k: int = 10, where: Mapping[str, str] | None = None
    ) -> Results:
        """Return the k items that are most similar to each image; otherwise as `search`.

        Args:
            files: n image files; bytes are what such a file holds.
            k: as `search`.
            where: as `search`.

        Raises:
            InputError: as `search`; a file that is no image.
        """
        if isinstance(files, str | bytes) or not files:
            raise InputError("files: expected a list of at least one image file")
        images = [file if isinstance(file, bytes) else Path(file) for file in files]
        with self._computing:
            made = image_queries(images, self.model, self.config, self._encoders)
        return self._search(made, k, where)

    @property
    def model(self) -> RetrievalModel:
        """The model that made the vectors, loaded when it is first used.

        Raises:
            InputError: it is not there, or is another one.
        """
        return self._load()[0]

    def _load(self) -> tuple[RetrievalModel, Reranker]:
        with self._computing:
            if self._loaded is None:
                place = None if self._place is None else Path(self._place)
                model = load_model(self._store.place, self.config, place, self._device)
                self._loaded = model, Reranker(model)
            return self._loaded

    def _search(self, queries: Queries, k: int, where: Mapping[str, str] | None) -> Results:
        self._require_columns(where or {})
        again = (
            self.config.interacts and (queries.texts if self.config.side == "images" else queries.features) is not None
        )
        guided = self.config.kind != "exact" and not where
        with self.reading() as view:
            most = min([len(self), *[FOUND] * guided, *[RERANKED] * again])
            if k < 1 or (k > most and most < len(self)):
                raise InputError(f"k is {k}; expected 1 to {most}{self._why(most, again)}")
            count, found = view.nearest(queries.vectors, RERANKED if again else k, where or None)
            hits = [self._hits(queries, number, some, k, again) for number, some in enumerate(found)]
            return Results(hits, self._how(count if where else None, guided, again))

    def _hits(self, queries: Queries, number: int, candidates: Candidates, k: int, again: bool) -> list[Hit]:
        """Order the candidates of one query, and return the best."""
        items, scores = candidates.items, candidates.scores
        best = best_first(np.arange(len(items)), scores, [item["id"] for item in items], RERANKED if again else k)
        if again and best:
            items = [items[place] for place in sorted(place for place, _, _ in best)]
            with self._computing:
                sims = self._load()[1].scores(self.config, queries, number, items)
            best = best_first(np.arange(len(items)), sims, [item["id"] for item in items], k)
        return [Hit(name, score, items[place]["columns"]) for place, score, name in best]

    def _require_columns(self, where: Mapping[str, str]) -> None:
        for name in where:
            if name not in self.config.columns:
                known = ", ".join(self.config.columns) or "none"
                raise InputError(f"no column {name!r}; the index has {known}{near(name, self.config.columns)}")
            if not where[name]:
                raise InputError(f"column {name!r}: no value; an index keeps no empty values, so name one")

    def _why(self, most: int, again: bool) -> str:
        if again and most == RERANKED:
            return f": {RERANKED} candidates are scored again"
        return f": a search of an {self.config.kind} index finds {FOUND}" if most == FOUND else ""

    def _how(self, matching: int | None, guided: bool, again: bool) -> str:
        searched = f"{len(self):,} {self.config.side}"
        if matching is not None:
            searched = f"the {matching:,} of {searched} that match"
        how = f"approximate ({self.config.kind}) among {searched}" if guided else f"exact among {searched}"
        if again:
            return f"global vectors: {how}; the best {RERANKED} scored again by words and regions"
        return f"global vectors: {how}" if self.config.interacts else how
