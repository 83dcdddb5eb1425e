"""One index that is served: its queries page by page, and the pictures of its items."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from in2r.data.pictures import pictures_in, recorded_pictures
from in2r.errors import InputError
from in2r.search.approximate import FOUND
from in2r.search.index import Index, Results
from in2r.search.rerank import RERANKED
from in2r.search.store import Side
from in2r.serve.limits import FURTHEST, PAGE


@dataclass(frozen=True)
class Window:
    """Which of the results are asked for.

    Attributes:
        k: how many.
        offset: how many come before them.
        where: column → value, as `Index.search` takes it.
    """

    k: int = PAGE
    offset: int = 0
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """An item that was found; `picture` says whether a picture of it is known."""

    rank: int
    id: str
    score: float
    columns: dict[str, list[str]]
    picture: bool


@dataclass(frozen=True)
class Answer:
    """A page of results; `more` says whether there is another one."""

    side: Side
    how: str
    offset: int
    items: list[Item]
    more: bool


@dataclass(frozen=True)
class Ability:
    """Whether queries of a kind can be asked, and if not, why."""

    works: bool
    why: str = ""


@dataclass(frozen=True)
class IndexInfo:
    """What an index is, and what can be asked of it."""

    side: Side
    count: int
    kind: str
    dim: int
    model: str
    fingerprint: str
    columns: list[str]
    caption_column: str | None
    furthest: int
    pictures: int
    text_queries: Ability
    image_queries: Ability


class Catalogue:
    """An opened index with what a server needs beside: where the pictures of its items are.

    Opening asks one text and one image, so that the model is loaded, and it is known which queries can be answered.

    Args:
        index: the index.
        pictures: a folder of pictures by name; None: where image_verdicts.csv of the indexed data says.

    Raises:
        InputError: no such folder of pictures, or the model is not there or is another one.
    """

    def __init__(self, index: Index, pictures: Path | None = None) -> None:
        self._index, self.side = index, index.config.side
        self._known = self._recorded() if pictures is None else pictures_in(pictures)
        limits = [FURTHEST, *[FOUND] * (index.config.kind != "exact"), *[RERANKED] * index.config.interacts]
        self._furthest = min(limits)
        self._opened = self._info()

    @property
    def info(self) -> IndexInfo:
        """What the index is; of one that others add to, as the last search found it."""
        config = self._index.config
        return replace(self._opened, count=config.count, columns=list(config.columns))

    def by_text(self, text: str, window: Window) -> Answer:
        """Return a page of the items that are most similar to a text."""
        return self._page(lambda k: self._index.search([text], k, window.where), window)

    def by_image(self, content: bytes, window: Window) -> Answer:
        """Return a page of the items that are most similar to an image, given as a file's content."""
        return self._page(lambda k: self._index.search_images([content], k, window.where), window)

    def like(self, name: str, window: Window) -> Answer:
        """Return a page of the items that are most similar to one of them, without itself.

        Raises:
            KeyError: no item has this id.
        """
        _, vector = self._index.find(name)
        return self._page(lambda k: self._index.search(vector, k, window.where), window, without=name)

    def picture(self, name: str) -> Path | None:
        """Return the file of an item's picture; None where none is known.

        Raises:
            KeyError: no item has this id.
        """
        columns, _ = self._index.find(name)
        return self._picture_of(name, columns)

    def _picture_of(self, name: str, columns: Mapping[str, list[str]]) -> Path | None:
        values = [name] if self.side == "images" else _values(columns, self._index.config.caption_column)
        return next((self._known[value] for value in values if value in self._known), None)

    def _page(self, search: Callable[[int], Results], window: Window, without: str | None = None) -> Answer:
        """Ask for one item more than the page holds, so that it is known whether there is another one."""
        end = window.offset + window.k
        if end > self._furthest:
            raise InputError(f"offset + k is {end:,}; expected at most {self._furthest:,}")
        results = search(min(end + 1 + (without is not None), self._furthest))
        hits = [hit for hit in results.hits[0] if hit.id != without]
        items = [
            Item(rank, hit.id, hit.score, hit.columns, self._picture_of(hit.id, hit.columns) is not None)
            for rank, hit in enumerate(hits[window.offset : end], start=window.offset + 1)
        ]
        return Answer(self.side, results.how, window.offset, items, len(hits) > end)

    def _recorded(self) -> dict[str, Path]:
        """Return image → picture of all data folders, without names that two of them give to different files."""
        known: dict[str, Path] = {}
        twice: set[str] = set()
        for data in self._index.config.data:
            for name, file in recorded_pictures(Path(data.path)).items():
                if known.setdefault(name, file) != file:
                    twice.add(name)
        return {name: file for name, file in known.items() if name not in twice}

    def _info(self) -> IndexInfo:
        config, model = self._index.config, self._index.model
        return IndexInfo(
            side=self.side, count=config.count, kind=config.kind, dim=config.dim,
            model=repr(model), fingerprint=config.model.fingerprint, columns=list(config.columns),
            caption_column=config.caption_column, furthest=self._furthest, pictures=len(set(self._known.values())),
            text_queries=_try(lambda: self._index.search(["a"], 1)),
            image_queries=_try(lambda: self._index.search_images([_grey()], 1)),
        )  # fmt: skip


def _values(columns: Mapping[str, list[str]], caption: str | None) -> list[str]:
    """Return what the table says of a caption; one of the values may name its image."""
    return [value for column, values in columns.items() if column != caption for value in values]


def _try(query: Callable[[], object]) -> Ability:
    try:
        query()
    except InputError as error:
        return Ability(False, str(error))
    return Ability(True)


def _grey() -> bytes:
    """Return a small image file; nothing where Pillow is not installed, which the query then says."""
    try:
        from PIL import Image
    except ImportError:
        return b""
    written = io.BytesIO()
    Image.new("RGB", (64, 64), "grey").save(written, "PNG")
    return written.getvalue()
