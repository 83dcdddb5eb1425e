"""Retrieval metrics by counting.

Ranks are 0-based counts of wrong items that stand before the best right one; no row is sorted.

Tie rule: a tie counts against us. The rank is the number of wrong items whose similarity is at least that of
the best right item, so it depends neither on the order of the items nor on the sort, and a collapsed model,
whose similarities are all equal, gets the worst ranks instead of arbitrary ones.

i2t: image → texts (the papers' text retrieval), best of the image's captions. t2i: text → images.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Ints = NDArray[np.int64]
Array = NDArray[np.floating] | Tensor

Tile = tuple[slice, slice | Tensor, Tensor]
"""rows, columns (a slice, or places (C,) int64), and the similarities (R, C) there"""

# Tiles keep memory at some tens of MB for any number of items, and stay in the cache while they are counted.
TILE_IMAGES = 256
TILE_CAPTIONS = 4096
# More than float32 rounding (about 1e-7) lets two encodings of one sample differ in a cosine.
SAME_SIMILARITY = 1e-6


def recall_at_k(similarity: Array, image_of_caption: ArrayLike, tolerance: float = 0.0) -> dict[str, float]:
    """Recalls, median and mean ranks and rSum of a similarity matrix, both directions.

    Args:
        similarity: (N, C) images × captions, numpy or tensor, without NaN.
        image_of_caption: (C,) the right image of each caption, in 0..N-1; images may own any number of
            captions.
        tolerance: a wrong item that is less similar by no more than this still counts as tied.

    Returns:
        `i2t_r1`, `i2t_r5`, `i2t_r10` (percent), `i2t_medr`, `i2t_meanr` (1-based; the median of an even
        number of ranks is rounded down, as is usual), the same for `t2i`, and `rsum`, the sum of the six
        recalls. An image without captions is left out of i2t, and stays a candidate in t2i.

    Raises:
        ValueError: for shapes that do not fit, an image index out of range, no captions, or NaN.
    """
    return recalls_from_ranks(*ranks_from_similarity(similarity, image_of_caption, tolerance))


def ranks_from_similarity(similarity: Array, image_of_caption: ArrayLike, tolerance: float = 0.0) -> tuple[Ints, Ints]:
    """Ranks of a similarity matrix; arguments and errors as in `recall_at_k`.

    Returns:
        i2t ranks (N,), -1 for an image without captions, and t2i ranks (C,), all 0-based.
    """
    if similarity.ndim != 2:
        raise ValueError(f"similarity must be images × captions, got shape {tuple(similarity.shape)}")
    images, captions = similarity.shape
    owner = _checked_owner(image_of_caption, images, captions)

    def numbers(values: Array) -> Tensor:
        values = _tensor(values)
        values = values.to(torch.float32 if values.is_floating_point() and values.itemsize <= 4 else torch.float64)
        if torch.isnan(values.amax()):  # NaN is the maximum wherever there is one
            raise ValueError("similarity holds NaN")
        return values

    def tiles() -> Iterator[Tile]:
        for columns in _slices(captions, TILE_CAPTIONS):
            for rows in _slices(images, TILE_IMAGES):
                yield rows, columns, numbers(similarity[rows, columns])

    parts = _slices(captions, TILE_CAPTIONS)
    own = torch.cat([numbers(similarity[owner[part], np.arange(part.start, part.stop)]) for part in parts])
    return _count(tiles(), own, owner, images, tolerance)


def ranks_from_embeddings(
    images: Array,
    captions: Array,
    image_of_caption: ArrayLike,
    tolerance: float = SAME_SIMILARITY,
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

    Returns:
        i2t ranks (N,), -1 for an image without captions, and t2i ranks (C,), all 0-based.

    Raises:
        ValueError: for shapes that do not fit, an image index out of range, no captions, or an embedding that
            is not finite (the first one is named).
    """
    v, u = _tensor(images), _tensor(captions)
    if v.ndim != 2 or u.ndim != 2 or v.shape[1] != u.shape[1]:
        raise ValueError(f"images {tuple(v.shape)} and captions {tuple(u.shape)} must be (N, D) and (C, D)")
    owner = _checked_owner(image_of_caption, len(v), len(u))
    for name, values in (("image", v), ("caption", u)):
        finite = torch.isfinite(values.amax(dim=1)) & torch.isfinite(values.amin(dim=1))  # NaN is both
        if not finite.all():
            raise ValueError(f"embedding of {name} {int((~finite).nonzero()[0])} is not finite")
    parts = _slices(len(u), TILE_IMAGES)  # small enough for the cache
    own = torch.cat([(v[owner[part]].double() * u[part].double()).sum(dim=1) for part in parts])

    def tiles() -> Iterator[Tile]:
        for columns in _slices(len(u), TILE_CAPTIONS):
            texts = u[columns].double().T
            for rows in _slices(len(v), TILE_IMAGES):
                yield rows, columns, v[rows].double() @ texts  # autocast leaves float64 alone

    return _count(tiles(), own, owner, len(v), tolerance)


def ranks_from_tiles(
    tiles: Iterable[Tile], right: Tensor, image_of_caption: ArrayLike, images: int, tolerance: float = SAME_SIMILARITY
) -> tuple[Ints, Ints]:
    """Ranks of similarities that come tile by tile, and are never together in memory.

    Args:
        tiles: every pair of image and caption in exactly one, without NaN, each of at most `TILE_IMAGES` ×
            `TILE_CAPTIONS`.
        right: (C,) the similarities of the right pairs, in the tiles' float type and on their device. They may differ
            from those in the tiles by less than `tolerance`.
        image_of_caption: (C,) the right image of each caption, in 0..images-1.
        images: N.
        tolerance: a wrong item that is less similar by no more than this still counts as tied.

    Returns:
        i2t ranks (N,), -1 for an image without captions, and t2i ranks (C,), all 0-based.

    Raises:
        ValueError: for shapes that do not fit, an image index out of range, or no captions.
    """
    return _count(tiles, right, _checked_owner(image_of_caption, images, len(right)), images, tolerance)


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


def chance_recalls(image_of_caption: ArrayLike, images: int) -> dict[str, float]:
    """Return the recalls that a random order is expected to have, in percent, and their rsum.

    A caption finds its one image among the first k of N with probability k / N; an image with c captions among M
    finds one of them with probability 1 - Π_{j<k} (M - c - j) / (M - j). As in `recall_at_k`, an image without
    captions is a candidate and no query.

    Args:
        image_of_caption: (M,) int64, the image of each caption.
        images: N.
    """
    owner = np.asarray(image_of_caption)
    own = np.bincount(owner).astype(np.float64)
    own = own[own > 0]
    found = {}
    for k in (1, 5, 10):
        missed = np.ones(len(own))
        for drawn in range(min(k, len(owner))):
            missed *= np.maximum(len(owner) - own - drawn, 0) / (len(owner) - drawn)
        found[f"i2t_r{k}"] = float(100 * (1 - missed).mean())
    found |= {f"t2i_r{k}": 100 * min(k, images) / images for k in (1, 5, 10)}
    return {**found, "rsum": _rsum(found)}


def fold_mean(folds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Average every metric over folds (COCO 1K); rSum is taken from the mean recalls."""
    mean = {name: float(np.mean([fold[name] for fold in folds])) for name in folds[0]}
    mean["rsum"] = _rsum(mean)
    return mean


def split_folds(
    images: Array, captions: Array, image_of_caption: ArrayLike, folds: int
) -> Iterator[tuple[Array, Array, Ints]]:
    """Yield contiguous folds as (images, captions, image_of_caption), the last one counted within the fold.

    Args:
        images: (N, D), N at least `folds`; sizes differ by one at most (five folds of 1,000 of COCO's 5,000).
        captions: (C, D).
        image_of_caption: (C,).
        folds: number of folds; 1 = everything at once.

    Raises:
        ValueError: for fewer images than folds, or as in `recall_at_k`.
    """
    owner = _checked_owner(image_of_caption, len(images), len(captions))
    if not 1 <= folds <= len(images):
        raise ValueError(f"cannot make {folds} folds of {len(images)} images")
    borders = np.linspace(0, len(images), folds + 1).astype(np.int64)
    for start, stop in pairwise(borders):
        inside = np.flatnonzero((owner >= start) & (owner < stop))
        yield images[start:stop], captions[inside], owner[inside] - start


def _count(tiles: Iterable[Tile], own: Tensor, owner: Ints, images: int, tolerance: float) -> tuple[Ints, Ints]:
    """Count the wrong items at or above the right one, for both directions in one pass over the tiles.

    All items are counted, and the image's own captions are taken off at the end: no tile has to be masked.
    `own` (C,) holds the similarities of the right pairs, in the tiles' float type.
    """
    column_owner = torch.from_numpy(owner).to(own.device)
    exact = own.double()
    best = exact.new_full((images,), float("-inf")).scatter_reduce(0, column_owner, exact, reduce="amax")
    row_bound, column_bound = (_rounded_up(right - tolerance, own.dtype) for right in (best, exact))
    i2t, t2i = exact.new_zeros(images), exact.new_zeros(len(owner))
    right = own.clone()  # as the tiles have it: a product may differ from `own` by rounding
    buffer = own.new_empty(min(images, TILE_IMAGES), min(len(owner), TILE_CAPTIONS))
    for rows, columns, sims in tiles:
        above = buffer[: len(sims), : sims.shape[1]]  # 0 or 1 as floats: compared and summed much faster than bools
        i2t[rows] += torch.ge(sims, row_bound[rows, None], out=above).sum(dim=1)
        t2i[columns] += torch.ge(sims, column_bound[columns], out=above).sum(dim=0)
        place = column_owner[columns] - rows.start
        inside = place.clamp(0, len(sims) - 1)
        right[columns] = torch.where(place == inside, sims.gather(0, inside[None])[0], right[columns])
    own_above = np.bincount(owner, (right >= row_bound[column_owner]).cpu().numpy(), images)
    t2i -= (right >= column_bound).double()
    i2t_ranks = np.where(np.bincount(owner, minlength=images) > 0, i2t.cpu().numpy() - own_above, -1)
    return i2t_ranks.astype(np.int64), t2i.cpu().numpy().astype(np.int64)


def _rounded_up(bound: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the smallest numbers of `dtype` that are not below the float64 bounds: the same items are above."""
    rounded = bound.to(dtype)
    return torch.where(rounded < bound, rounded.nextafter(rounded.new_tensor(float("inf"))), rounded)


def _checked_owner(image_of_caption: ArrayLike, images: int, captions: int) -> Ints:
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


def _tensor(values: Array) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))  # a copy only if it has to be one


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _rsum(metrics: dict[str, float]) -> float:
    return sum(metrics[f"{direction}_r{at}"] for direction in ("i2t", "t2i") for at in (1, 5, 10))
