"""What searches and writers ask of the place where an index is kept: a folder, or a table of PostgreSQL."""

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

import in2r
from in2r.data.encoder_record import SIDES, other_encoders
from in2r.data.pairs import DataSource
from in2r.errors import InputError
from in2r.search.items import Gathered
from in2r.search.store import DataRef, IndexConfig

Precision = Literal["float32", "float16"]
Item = dict[str, Any]
"""id (text), columns (name → values), at (number of the data, split, place in it)"""


@dataclass(frozen=True)
class Candidates:
    """Items among which the nearest of one query are.

    Attributes:
        items: (m,) of them.
        scores: (m,) inner products with the query, as `nearest.exact_scores` has them.
    """

    items: list[Item]
    scores: NDArray[np.float64]


class View(Protocol):
    """An index as it was at one moment; what others write afterwards is not in it."""

    @property
    def config(self) -> IndexConfig:
        """What the index is."""

    @property
    def vectors(self) -> NDArray[Any]:
        """(N, D) of `dtype`; row i is item i of `blocks`."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """float16 or float32."""

    def nearest(
        self, queries: NDArray[np.float32], k: int, where: Mapping[str, str] | None
    ) -> tuple[int, Iterator[Candidates]]:
        """Return how many items are searched, and candidates of each query.

        An exact index, and any search with `where`, has certainly the k nearest among them; another one has the same
        candidates for every k.

        Args:
            queries: (n, D) of unit norm.
            k: from 1.
            where: name of a column → value; None = all items.
        """

    def find(self, name: str) -> tuple[Item, NDArray[Any]] | None:
        """Return the item of an id and its vector (D,); None where no item has it."""

    def blocks(self) -> Iterator[tuple[list[Item], NDArray[Any]]]:
        """Yield all items (n of them) and their vectors (n, D), some at a time: `TOGETHER`, the last time fewer."""


@dataclass(frozen=True)
class Addition:
    """Items of a data folder that are to be written.

    Attributes:
        items: the items.
        source: the data.
        reference: how they were read.
        fill: writes the vectors to an array (n, D).
    """

    items: Gathered
    source: DataSource
    reference: DataRef
    fill: Callable[[NDArray[Any]], None]


class Store(Protocol):
    """A place where an index is, or will be. What is written is written whole or not at all."""

    @property
    def place(self) -> str:
        """How messages name it; without a password."""

    def read_config(self) -> IndexConfig:
        """Return the description of the index.

        Raises:
            InputError: there is no index, or it is not whole.
        """

    def reading(self) -> AbstractContextManager[View]:
        """Look at the index.

        Raises:
            InputError: there is no index, or it is not whole.
        """

    def require_room(self, empty: IndexConfig, force: bool) -> None:
        """Refuse what cannot be written here, before anything is computed.

        Args:
            empty: a new index without items.
            force: replace an index that is there.

        Raises:
            InputError: there is an index and `force` is not given; such an index cannot be kept here.
        """

    def create(self, empty: IndexConfig, new: Addition, precision: Precision, force: bool) -> IndexConfig:
        """Write a new index.

        Raises:
            InputError: as `require_room`.
        """

    def add(self, seen: IndexConfig, new: Addition) -> IndexConfig:
        """Add items to the index.

        Args:
            seen: the index as it was read; since then others may have added to it.
            new: the items.

        Raises:
            InputError: an id that the index has; an encoder that is not the index's.
        """


def grown(config: IndexConfig, new: Addition) -> IndexConfig:
    """Return the description of an index with more items.

    Raises:
        InputError: the data are of another encoder than the index's.
    """
    return replace(
        config,
        in2r=in2r.__version__,
        count=config.count + len(new.items.ids),
        columns=tuple(dict.fromkeys([*config.columns, *new.items.columns])),
        caption_column=config.caption_column or new.items.caption,
        data=(*config.data, new.reference),
        encoder=one_encoder(config, new.source),
        versions={"python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy")},
    )


def one_encoder(config: IndexConfig, source: DataSource) -> dict[str, object]:
    """Return which encoders made the features of the index; refuse data of another one."""
    side = SIDES[0] if config.side == "images" else SIDES[1]
    found = source.encoder() or {}
    known: Any = config.encoder
    changed = other_encoders(known, found, (side,))
    if changed:
        raise InputError(
            f"{source.path}: not from the encoder that the model was trained with: {' and '.join(changed)}"
        )
    return {**known, side: known.get(side) or found.get(side)}


def taken(place: str) -> InputError:
    """Return the error of a place that has an index."""
    return InputError(f"{place}: holds an index; `in2r index add` adds to it, --force replaces it")


def known_already(place: str, name: str) -> InputError:
    """Return the error of an id that an index has."""
    return InputError(f"{place}: has an item {name!r} already; add new items only, or index all data again")
