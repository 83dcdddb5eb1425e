"""Retrieval metrics by counting.

Ranks are 0-based counts of wrong items that stand before the best right one; no row is sorted.

Tie rule: a tie counts against us. The rank is the number of wrong items whose similarity is at least that of
the best right item, so it depends neither on the order of the items nor on the sort, and a collapsed model,
whose similarities are all equal, gets the worst ranks instead of arbitrary ones.

Copies: which items are right is what the stored pairs say, and a copy of the right item is a wrong one, as the
literature counts. Where `copies` says which items are identical, every copy of a right item is right; a wrong item
counts as often as it is stored.

i2t: image → texts (the papers' text retrieval), best of the image's captions. t2i: text → images.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from in2r.metrics.relevance import Copies, Ints, Tile, checked_owner, count_wrong, find_relevance

Array = NDArray[np.floating] | Tensor
Images = TypeVar("Images", bound=Array | Ints)
Captions = TypeVar("Captions", bound=Array | Ints)

# Tiles keep memory at some tens of MB for any number of items, and stay in the cache while they are counted.
TILE_IMAGES = 256
TILE_CAPTIONS = 4096
# More than float32 rounding (about 1e-7) lets two encodings of one sample differ in a cosine.
SAME_SIMILARITY = 1e-6


def recall_at_k(
    similarity: Array, image_of_caption: ArrayLike, tolerance: float = 0.0, copies: Copies | None = None
) -> dict[str, float]:
    """Recalls, median and mean ranks and rSum of a similarity matrix, both directions.

    Args:
        similarity: (N, C) images × captions, numpy or tensor, without NaN.
        image_of_caption: (C,) the right image of each caption, in 0..N-1; images may own any number of
            captions.
        tolerance: a wrong item that is less similar by no more than this still counts as tied.
        copies: which images and captions are identical; every copy of a right item is then right, and the similarities
            of the first copy stand for all. None = each item is taken as one of its own.

    Returns:
        `i2t_r1`, `i2t_r5`, `i2t_r10` (percent), `i2t_medr`, `i2t_meanr` (1-based; the median of an even
        number of ranks is rounded down, as is usual), the same for `t2i`, and `rsum`, the sum of the six
        recalls. An image without captions is left out of i2t, and stays a candidate in t2i.

    Raises:
        ValueError: for shapes that do not fit, an image index out of range, no captions, or NaN.
    """
    return recalls_from_ranks(*ranks_from_similarity(similarity, image_of_caption, tolerance, copies))


def ranks_from_similarity(
    similarity: Array, image_of_caption: ArrayLike, tolerance: float = 0.0, copies: Copies | None = None
) -> tuple[Ints, Ints]:
    """Ranks of a similarity matrix; arguments and errors as in `recall_at_k`.

    Returns:
        i2t ranks (N,), -1 for an image without a right caption, and t2i ranks (C,), all 0-based.
    """
    if similarity.ndim != 2:
        raise ValueError(f"similarity must be images × captions, got shape {tuple(similarity.shape)}")
    right = find_relevance(checked_owner(image_of_caption, *similarity.shape), len(similarity), copies)
    images, captions = right.images, right.captions

    def numbers(values: Array) -> Tensor:
        values = _tensor(values)
        values = values.to(torch.float32 if values.is_floating_point() and values.itemsize <= 4 else torch.float64)
        if torch.isnan(values.amax()):  # NaN is the maximum wherever there is one
            raise ValueError("similarity holds NaN")
        return values

    def tiles() -> Iterator[Tile]:
        for columns in _slices(len(captions), TILE_CAPTIONS):
            for rows in _slices(len(images), TILE_IMAGES):
                yield rows, columns, numbers(similarity[images.at(rows)][:, captions.at(columns)])

    image, caption = images.first[right.image], captions.first[right.caption]
    parts = _slices(len(image), TILE_CAPTIONS)
    own = torch.cat([numbers(similarity[image[part], caption[part]]) for part in parts])
    return count_wrong(tiles(), own, right, tolerance)


def ranks_from_embeddings(
    images: Array,
    captions: Array,
    image_of_caption: ArrayLike,
    tolerance: float = SAME_SIMILARITY,
    copies: Copies | None = None,
) -> tuple[Ints, Ints]:
    """Ranks by dot product, without ever holding the similarity matrix.

    Products are taken in float64 and in tiles of a fixed size, so a rank depends neither on the caller's
    batches nor on the precision that a device uses for float32. Two dual encoders as an ensemble: pass
    both embeddings side by side, divided by sqrt(2) (`in2r.models.encode.side_by_side`).

    Args:
        images: (N, D) embeddings, of unit norm for cosines.
        captions: (C, D) embeddings.
        image_of_caption: (C,) the right image of each caption, in 0..N-1.
        tolerance: a wrong item that is less similar by no more than this still counts as tied; the default is
            the rounding of float32 embeddings, so identical items tie even if encoded in different batches.
        copies: as in `recall_at_k`.

    Returns:
        i2t ranks (N,), -1 for an image without a right caption, and t2i ranks (C,), all 0-based.

    Raises:
        ValueError: for shapes that do not fit, an image index out of range, no captions, or an embedding that
            is not finite (the first one is named).
    """
    v, u = _tensor(images), _tensor(captions)
    if v.ndim != 2 or u.ndim != 2 or v.shape[1] != u.shape[1]:
        raise ValueError(f"images {tuple(v.shape)} and captions {tuple(u.shape)} must be (N, D) and (C, D)")
    right = find_relevance(checked_owner(image_of_caption, len(v), len(u)), len(v), copies)
    for name, values in (("image", v), ("caption", u)):
        finite = torch.isfinite(values.amax(dim=1)) & torch.isfinite(values.amin(dim=1))  # NaN is both
        if not finite.all():
            raise ValueError(f"embedding of {name} {int((~finite).nonzero()[0])} is not finite")
    image, caption = right.images.first[right.image], right.captions.first[right.caption]
    parts = _slices(len(image), TILE_IMAGES)  # small enough for the cache
    own = torch.cat([(v[image[part]].double() * u[caption[part]].double()).sum(dim=1) for part in parts])

    def tiles() -> Iterator[Tile]:
        for columns in _slices(len(right.captions), TILE_CAPTIONS):
            texts = u[right.captions.at(columns)].double().T
            for rows in _slices(len(right.images), TILE_IMAGES):
                yield rows, columns, v[right.images.at(rows)].double() @ texts  # autocast leaves float64 alone

    return count_wrong(tiles(), own, right, tolerance)


def recalls_from_ranks(i2t: Ints, t2i: Ints) -> dict[str, float]:
    """Turn 0-based ranks into the dictionary of `recall_at_k`, without the i2t ranks of -1 (no caption)."""
    result: dict[str, float] = {}
    for direction, ranks in (("i2t", i2t[i2t >= 0]), ("t2i", t2i)):
        for at in (1, 5, 10):
            result[f"{direction}_r{at}"] = 100.0 * float(np.mean(ranks < at))
        result[f"{direction}_medr"] = float(np.floor(np.median(ranks)) + 1)
        result[f"{direction}_meanr"] = float(np.mean(ranks) + 1)
    result["rsum"] = _rsum(result)
    return result


def chance_recalls(image_of_caption: ArrayLike, images: int, copies: Copies | None = None) -> dict[str, float]:
    """Return the recalls that a random order is expected to have, in percent, and their rsum.

    A query with r right items among n candidates finds one of them among the first k with probability
    1 - Π_{j<k} (n - r - j) / (n - j). As in `recall_at_k`, an image without captions is a candidate and no query.

    Args:
        image_of_caption: (C,) int64, the image of each caption.
        images: N.
        copies: as in `recall_at_k`.
    """
    owner = np.asarray(image_of_caption)
    right_captions, right_images = find_relevance(owner, images, copies).counts()
    found = {}
    for direction, right, candidates in (
        ("i2t", right_captions[right_captions > 0], len(owner)),
        ("t2i", right_images, images),
    ):
        for k in (1, 5, 10):
            missed = np.ones(len(right))
            for drawn in range(min(k, candidates)):
                missed *= np.maximum(candidates - right - drawn, 0) / (candidates - drawn)
            found[f"{direction}_r{k}"] = float(100 * (1 - missed).mean())
    return {**found, "rsum": _rsum(found)}


def fold_mean(folds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Average every metric over folds (COCO 1K); rSum is taken from the mean recalls."""
    mean = {name: float(np.mean([fold[name] for fold in folds])) for name in folds[0]}
    mean["rsum"] = _rsum(mean)
    return mean


def split_folds(
    images: Images, captions: Captions, image_of_caption: ArrayLike, folds: int
) -> Iterator[tuple[Images, Captions, Ints]]:
    """Yield contiguous folds as (images, captions, image_of_caption), the last one counted within the fold.

    Args:
        images: (N, D), N at least `folds`; sizes differ by one at most (five folds of 1,000 of COCO's 5,000).
        captions: (C, D).
        image_of_caption: (C,).
        folds: number of folds; 1 = everything at once.

    Raises:
        ValueError: for fewer images than folds, or as in `recall_at_k`.
    """
    owner = checked_owner(image_of_caption, len(images), len(captions))
    if not 1 <= folds <= len(images):
        raise ValueError(f"cannot make {folds} folds of {len(images)} images")
    borders = np.linspace(0, len(images), folds + 1).astype(np.int64)
    for start, stop in pairwise(borders):
        inside = np.flatnonzero((owner >= start) & (owner < stop))
        yield cast(Images, images[start:stop]), cast(Captions, captions[inside]), owner[inside] - start


def split_copies(copies: Copies | None, image_of_caption: ArrayLike, folds: int) -> list[Copies | None]:
    """Return which items are identical within each fold of `split_folds`; None for each where copies is None."""
    if copies is None:
        return [None] * folds
    return [Copies(*part[:2]) for part in split_folds(copies.images, copies.captions, image_of_caption, folds)]


def _tensor(values: Array) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))  # a copy only if it has to be one


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _rsum(metrics: dict[str, float]) -> float:
    return sum(metrics[f"{direction}_r{at}"] for direction in ("i2t", "t2i") for at in (1, 5, 10))
