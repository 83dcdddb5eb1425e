"""From a data folder to the items of an index: which they are, their ids, what the user's table says of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from in2r.data.pairs import DataSource, PairSet
from in2r.errors import InputError
from in2r.search.store import Side


@dataclass
class Part:
    """Items of one split.

    Attributes:
        pairs: the split.
        chosen: (n,) which of its images or captions they are, ascending.
        ids: (n,) of the items.
        rows: (n,) the rows of the table that speak of each.
    """

    pairs: PairSet
    chosen: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)

    def records(self, data: int, columns: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Yield what items.jsonl holds of each item.

        An image has the different values of all its rows, a caption those of its own; empty ones are left out.

        Args:
            data: the number of the folder among those of the index.
            columns: of the table.
        """
        for place, name, rows in zip(self.chosen, self.ids, self.rows, strict=True):
            said = {key: list(dict.fromkeys(column[row] for row in rows)) for key, column in columns.items()}
            said = {key: [value for value in values if value] for key, values in said.items()}
            yield {"id": name, "columns": said, "at": [data, self.pairs.name, place]}


@dataclass(frozen=True)
class Gathered:
    """The items of a data folder.

    Attributes:
        parts: by split; an image that several splits have is in the first of them.
        columns: of the table, as text.
        caption: the column that holds the captions; None where there is none.
    """

    parts: list[Part]
    columns: Mapping[str, Sequence[str]]
    caption: str | None

    @property
    def ids(self) -> list[str]:
        """The ids of all items."""
        return [name for part in self.parts for name in part.ids]

    def records(self, data: int) -> Iterator[dict[str, Any]]:
        """Yield what items.jsonl holds of all items; see `Part.records`."""
        for part in self.parts:
            yield from part.records(data, self.columns)


def gather_items(source: DataSource, splits: Sequence[str], side: Side) -> Gathered:
    """Return the items of some splits, and their columns.

    The id of an image is that of the data. The id of a caption is its row in the pair table, from 0; of a precomp
    folder, whose splits have files of their own, `split:row`. An image that is in several splits is one item.

    Raises:
        InputError: images of two splits have one id and are not the same; nothing to index.
    """
    user, opened = source.user_table(), [source.split(split) for split in splits]
    columns, caption = _columns_of(opened) if user is None else (user.columns, user.caption)
    gathered, offset = Gathered([Part(pairs) for pairs in opened], columns, caption), 0
    seen: dict[str, tuple[Part, int]] = {}
    for part in gathered.parts:
        pairs = part.pairs
        rows = (
            source.caption_rows(pairs.name) if user is not None else range(offset, offset + len(pairs.image_of_caption))
        )
        offset += len(rows)
        own = rows if user is not None else [f"{pairs.name}:{row}" for row in range(len(rows))]
        found = _images(pairs, rows) if side == "images" else ((n, str(own[n]), [row]) for n, row in enumerate(rows))
        for place, name, its in found:
            if name in seen:
                first, at = seen[name]
                _require_same_image(source, (first.pairs, first.chosen[at]), (pairs, place), name)
                first.rows[at] += its
                continue
            seen[name] = part, len(part.ids)
            part.chosen.append(place)
            part.ids.append(name)
            part.rows.append(its)
    if not seen:
        raise InputError(f"{source.path}: no item to index")
    return gathered


def _columns_of(opened: Sequence[PairSet]) -> tuple[dict[str, list[str]], str | None]:
    """Return as a table what a precomp folder says of each caption: its split, its image, its text."""
    columns: dict[str, list[str]] = {"split": [], "image": [], "caption": []}
    for pairs in opened:
        count = len(pairs.image_of_caption)
        columns["split"] += [pairs.name] * count
        columns["image"] += [pairs.image_ids[image] for image in pairs.image_of_caption.tolist()]
        columns["caption"] += [""] * count if pairs.captions is None else list(pairs.captions)
    return columns, "caption" if any(columns["caption"]) else None


def _images(pairs: PairSet, rows: Sequence[int]) -> Iterator[tuple[int, str, list[int]]]:
    """Yield number, id and the table's rows of each image."""
    ends = np.searchsorted(pairs.image_of_caption, np.arange(len(pairs.images) + 1)).tolist()
    for image, name in enumerate(pairs.image_ids):
        yield image, name, list(rows[ends[image] : ends[image + 1]])


def _require_same_image(source: DataSource, one: tuple[PairSet, int], other: tuple[PairSet, int], name: str) -> None:
    first, second = (_features(pairs, image) for pairs, image in (one, other))
    if not np.array_equal(first, second, equal_nan=True):
        splits = f"{one[0].name} and {other[0].name}"
        raise InputError(f"{source.path}: {splits} have different images of the id {name!r}; index one with --split")


def _features(pairs: PairSet, image: int) -> NDArray[Any]:
    values, _ = pairs.images.gather(torch.tensor([image]))
    return values.numpy()
