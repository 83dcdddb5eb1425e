"""Which images and captions belong together, where some are stored more than once, and what stands before them.

Copies are stored items that are identical. A caption belongs to an image if a pair says so of any copy of the one and
any copy of the other. The similarities of copies are equal too, so the first of them stands for all.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from in2r.processes import Processes

Ints = NDArray[np.int64]

Tile = tuple[slice, slice, Tensor]
"""rows, columns, both of distinct items, and the similarities (R, C) there"""


class Copies(NamedTuple):
    """Which stored items are copies of each other: two items are identical where their numbers are equal."""

    images: Ints
    """(N,) integers"""
    captions: Ints
    """(C,) integers"""


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct ones of N stored items, in the order in which they first occur.

    Attributes:
        first: (n,) int64, where each is stored first.
        item: (N,) int64, which one each stored item is, in 0..n-1.
        times: (n,) int64, how often each is stored.
    """

    first: Ints
    item: Ints
    times: Ints

    def __len__(self) -> int:
        return len(self.first)

    @property
    def has_copies(self) -> bool:
        """Whether any item is stored more than once."""
        return len(self.first) < len(self.item)

    def at(self, part: slice) -> slice | Ints:
        """Return where some of the distinct items are stored: the slice itself where there are no copies."""
        return self.first[part] if self.has_copies else part


@dataclass(frozen=True, eq=False)
class Relevance:
    """The right pairs of distinct items, each once.

    Attributes:
        images, captions: the distinct items.
        image: (P,) int64, the distinct image of each right pair; P is at most the number of stored captions.
        caption: (P,) int64, the distinct caption of each, ascending.
    """

    images: Distinct
    captions: Distinct
    image: Ints
    caption: Ints

    def counts(self) -> tuple[Ints, Ints]:
        """Return how many stored captions are right for each stored image (N,), and images for each caption (C,)."""
        captions = np.bincount(self.image, self.captions.times[self.caption], len(self.images))
        images = np.bincount(self.caption, self.images.times[self.image], len(self.captions))
        return captions.astype(np.int64)[self.images.item], images.astype(np.int64)[self.captions.item]


def checked_owner(image_of_caption: ArrayLike, images: int, captions: int) -> Ints:
    """Return the image of each caption (C,) as int64; `ValueError` where it is not one of 0..N-1 for each."""
    given = np.asarray(image_of_caption)
    if len(given) and given.dtype.kind not in "iu":
        raise ValueError(f"image_of_caption is {given.dtype}, expected integers")
    owner = given.astype(np.int64)
    if owner.shape != (captions,) or captions == 0:
        raise ValueError(f"image_of_caption has shape {owner.shape}, expected ({captions},), at least one")
    bad = np.flatnonzero((owner < 0) | (owner >= images))
    if len(bad):
        raise ValueError(f"image_of_caption[{bad[0]}] is {owner[bad[0]]}, expected 0..{images - 1}")
    return owner


def find_relevance(image_of_caption: Ints, images: int, copies: Copies | None) -> Relevance:
    """Return the right pairs of N images and C captions.

    Args:
        image_of_caption: (C,) int64, the image of each caption, in 0..N-1.
        images: N.
        copies: which items are identical; None = no copy is known, and each caption has its one image.

    Raises:
        ValueError: the numbers of the copies are not one integer for each item.
    """
    owner = image_of_caption
    if copies is None:
        return Relevance(_all_distinct(images), _all_distinct(len(owner)), owner, np.arange(len(owner)))
    distinct = _distinct("images", copies.images, images), _distinct("captions", copies.captions, len(owner))
    pairs = np.unique(distinct[1].item * len(distinct[0]) + distinct[0].item[owner])
    caption, image = np.divmod(pairs, len(distinct[0]))
    return Relevance(*distinct, image, caption)


def count_copies(image_of_caption: Ints, images: int, copies: Copies) -> dict[str, int]:
    """Return how many items have copies that can be right; where both numbers are 0, copies change no rank.

    Args:
        image_of_caption: (C,) int64, the image of each caption, in 0..N-1.
        images: N.
        copies: which items are identical.

    Returns:
        `images`: how many of the N images have a copy. `captions`: how many of the C captions have a copy that belongs
        to another image; copies within one image do not count, since all its captions are right for it anyway.
    """
    found = find_relevance(image_of_caption, images, copies)
    times, item = found.images.times, found.captions.item
    owned = np.unique(item * images + image_of_caption) // images  # a distinct caption, once for each image that has it
    several = np.bincount(owned, minlength=len(found.captions)) > 1
    return {"images": int(times[times > 1].sum()), "captions": int(several[item].sum())}


class WrongCount:
    """Counts the wrong items at or above the right one, for both directions, tile by tile.

    All items are counted, and the right ones are taken off at the end: no tile has to be masked.

    Args:
        own: (P,) the similarities of the right pairs, in the tiles' float type.
        right: the right pairs.
        tolerance: a wrong item that is less similar by no more than this is counted too.
    """

    def __init__(self, own: Tensor, right: Relevance, tolerance: float) -> None:
        self._right = right
        images, captions = right.images, right.captions
        self._row_of, self._column_of = (
            torch.from_numpy(items).to(own.device) for items in (right.image, right.caption)
        )
        self._row_bound = _bound(own, self._row_of, len(images), tolerance)
        self._column_bound = _bound(own, self._column_of, len(captions), tolerance)
        # as numbers of the tiles' type; None = 1 each, so that nothing has to be multiplied
        self._row_times, self._column_times = (
            torch.from_numpy(items.times).to(own) if items.has_copies else None for items in (images, captions)
        )
        self._i2t, self._t2i = (own.new_zeros(len(items), dtype=torch.float64) for items in (images, captions))
        # as the tiles have it: a product may differ from `own` by rounding
        self._own, self._seen = own, torch.full_like(own, -torch.inf)
        self._buffer = own.new_empty(0)

    def add(self, rows: slice, columns: slice, sims: Tensor) -> None:
        """Count a tile (R, C) of distinct images × captions."""
        if self._buffer.numel() < sims.numel():
            self._buffer = sims.new_empty(sims.numel())
        above = self._buffer[: sims.numel()].view(sims.shape)  # 0 or 1 as floats: compared and summed faster than bools
        torch.ge(sims, self._row_bound[rows, None], out=above)
        times = self._column_times
        self._i2t[rows] += (above if times is None else above * times[columns]).sum(dim=1)
        torch.ge(sims, self._column_bound[columns], out=above)
        times = self._row_times
        self._t2i[columns] += (above if times is None else above * times[rows, None]).sum(dim=0)
        pairs = slice(*np.searchsorted(self._right.caption, (columns.start, columns.stop)))
        place = self._row_of[pairs] - rows.start
        inside = place.clamp(0, len(sims) - 1)
        found = sims[inside, self._column_of[pairs] - columns.start]
        self._seen[pairs] = torch.where(place == inside, found, self._seen[pairs])

    def over(self, processes: Processes) -> None:
        """Add what other processes have counted: each tile was added by one of them."""
        self._i2t, self._t2i = processes.sum(self._i2t), processes.sum(self._t2i)
        self._seen = processes.maximum(self._seen)

    def ranks(self) -> tuple[Ints, Ints]:
        """Return the counts when all tiles were added.

        Returns:
            The number of wrong stored captions for each stored image (N,), -1 for an image without a right caption, and
            the number of wrong stored images for each stored caption (C,).
        """
        right, seen = self._right, torch.where(self._seen == -torch.inf, self._own, self._seen)
        images, captions = right.images, right.captions
        row_above = (seen >= self._row_bound[self._row_of]).cpu().numpy() * captions.times[right.caption]
        column_above = (seen >= self._column_bound[self._column_of]).cpu().numpy() * images.times[right.image]
        i2t = self._i2t.cpu().numpy() - np.bincount(right.image, row_above, len(images))
        t2i = self._t2i.cpu().numpy() - np.bincount(right.caption, column_above)
        i2t[np.bincount(right.image, minlength=len(images)) == 0] = -1
        return i2t.astype(np.int64)[images.item], t2i.astype(np.int64)[captions.item]


def count_wrong(tiles: Iterable[Tile], own: Tensor, right: Relevance, tolerance: float) -> tuple[Ints, Ints]:
    """Return the ranks that `WrongCount` counts over all tiles; arguments as there."""
    count = WrongCount(own, right, tolerance)
    for tile in tiles:
        count.add(*tile)
    return count.ranks()


def _bound(own: Tensor, items: Tensor, count: int, tolerance: float) -> Tensor:
    """Return what counts as above the best right pair of each of `count` items, in the type of `own`.

    The smallest numbers of that type that are not below the bounds in float64: the same items are above.
    """
    exact = own.double()
    bound = exact.new_full((count,), float("-inf")).scatter_reduce(0, items, exact, reduce="amax") - tolerance
    rounded = bound.to(own.dtype)
    return torch.where(rounded < bound, rounded.nextafter(rounded.new_tensor(float("inf"))), rounded)


def _all_distinct(count: int) -> Distinct:
    each = np.arange(count)
    return Distinct(each, each, np.ones(count, np.int64))


def _distinct(what: str, numbers: Ints, count: int) -> Distinct:
    given = np.asarray(numbers)
    if given.shape != (count,) or given.dtype.kind not in "iu":
        raise ValueError(f"copies of {what}: shape {given.shape}, dtype {given.dtype}; expected ({count},) integers")
    _, first, item, times = np.unique(given, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Distinct(first[order], place[item], times[order])
