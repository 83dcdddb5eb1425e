"""Similarity of whole splits in blocks of bounded memory, and ranks that are counted block by block."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional

from in2r.errors import InputError
from in2r.metrics.ranks import TILE_CAPTIONS, ranks_from_embeddings
from in2r.metrics.relevance import Copies, Ints, WrongCount, checked_owner, find_relevance
from in2r.models.base import Backbone, Items
from in2r.models.encode import evaluating, side_by_side
from in2r.processes import ALONE, Processes
from in2r.transfer import send

BUDGET = 256 * 2**20
"""Bytes that scoring one block may need, beside the encoded items, unless the caller says otherwise."""

CPU_BUDGET = 32 * 2**20
"""The same on a CPU. Larger blocks take twice the time there: malloc asks the system each time for more than 32 MB."""

SAME_LOG_ODDS = 1e-5
"""More than float32 rounding lets the log-odds of one pair, of the order of 10, differ from block to block."""

MOST_IMAGES = 128
"""Images in a block. More captions instead of more images would mix lengths, and pad the shorter ones."""

RIGHT_PAIRS = 8
"""Images whose right pairs are scored together: fewer calls than one by one, at eight times the few pairs needed."""

Means = Sequence[Sequence[int]]
"""Places of backbones whose similarities are averaged."""

Block = tuple[slice, Tensor, Tensor]
"""rows (images), columns (captions; int64 on the CPU), and what belongs to them: (..., rows, columns)"""


def score_blocks(backbone: Backbone, images: Items, texts: Items, budget: int | None = None) -> Iterator[Block]:
    """Yield the similarity S of all images × texts in blocks; every pair is in exactly one of them.

    Args:
        backbone: taken in eval mode, without gradient.
        images: n images, encoded.
        texts: m texts, encoded. They come sorted by length, the longest first, and cut to the longest of a block:
            columns are therefore places, not a slice.
        budget: bytes that a block may need (`Backbone.pair_bytes` of each pair); one pair is the least. None =
            `BUDGET`, or `CPU_BUDGET`.

    Yields:
        rows, columns (k,) and S[rows, columns] on the device.

    Raises:
        InputError: a similarity is not finite.
    """
    for rows, columns, logits in logit_blocks([backbone], [images], [texts], budget):
        yield rows, columns, mean_score(logits, backbone.bounded)


def logit_blocks(
    backbones: Sequence[Backbone],
    images: Sequence[Items],
    texts: Sequence[Items],
    budget: int | None = None,
    processes: Processes = ALONE,
) -> Iterator[Block]:
    """Yield the logits (backbones, rows, columns) of several backbones over the same items, as in `score_blocks`.

    Of several processes each yields its share of the blocks.
    """
    if budget is None:
        budget = CPU_BUDGET if images[0].vector.device.type == "cpu" else BUDGET
    words = torch.stack([_words(items) for items in texts]).amax(0)
    order = _longest_first(texts)
    start = number = 0
    while start < len(order):
        longest = int(words[order[start]])
        pairs = max(1, budget // max(backbone.pair_bytes(longest) for backbone in backbones))
        height = min(len(images[0]), MOST_IMAGES, pairs)
        columns = order[start : start + min(pairs // height, TILE_CAPTIONS)]
        chosen = [_shortened(_rows(items, columns), longest) for items in texts]
        for top in range(0, len(images[0]), height):
            rows = slice(top, min(top + height, len(images[0])))
            number += 1
            if number % processes.count != processes.number:
                continue
            with evaluating(*backbones):
                each = zip(backbones, images, chosen, strict=True)
                logits = torch.stack([backbone.logits(some[rows], captions) for backbone, some, captions in each])
            _require_finite(logits, rows, columns)
            yield rows, columns, logits
        start += len(columns)


def mean_score(logits: Tensor, bounded: bool) -> Tensor:
    """Return the mean similarity (rows, columns) of several backbones, from logits (backbones, rows, columns)."""
    return (logits.sigmoid() if bounded else logits).mean(0)


def log_odds(logits: Tensor) -> Tensor:
    """Return log(p / (1 - p)) of the mean p of several sigmoids, (rows, columns) from (backbones, rows, columns).

    It orders as p does, and still tells two pairs apart where p is so near 1 that float32 has no number between. Of one
    backbone it is the logit.
    """
    if len(logits) == 1:
        return logits[0]
    return functional.logsigmoid(logits).logsumexp(0) - functional.logsigmoid(-logits).logsumexp(0)


def ranks_of(
    backbones: Sequence[Backbone],
    images: Sequence[Items],
    texts: Sequence[Items],
    image_of_caption: ArrayLike,
    budget: int | None = None,
    copies: Copies | None = None,
) -> tuple[Ints, Ints]:
    """Return the ranks of a split by one backbone, or by the mean similarity of several; see `ranks_of_each`."""
    if len(backbones) > 1 and not backbones[0].interacts:
        _require_one_kind(backbones)
        v, u = (side_by_side([items.vector for items in side]) for side in (images, texts))
        return ranks_from_embeddings(v, u, image_of_caption, copies=copies)
    return ranks_of_each(backbones, images, texts, image_of_caption, budget, copies)[-1]


def ranks_of_each(
    backbones: Sequence[Backbone],
    images: Sequence[Items],
    texts: Sequence[Items],
    image_of_caption: ArrayLike,
    budget: int | None = None,
    copies: Copies | None = None,
    means: Means | None = None,
    processes: Processes = ALONE,
) -> list[tuple[Ints, Ints]]:
    """Return the ranks of a split by each backbone and, of several, by their mean similarity.

    Dual encoders: by inner products in float64 (`ranks_from_embeddings`). Interaction backbones: the right pairs are
    scored first, then every block once, and counted at once. The order is that of the mean similarity; bounded ones are
    compared by its log-odds. The tie rule is that of `metrics.ranks`, also for log-odds: two pairs are tied if these
    differ by no more than `SAME_LOG_ODDS`.

    Args:
        backbones: of one kind.
        images: per backbone, the N images, encoded; for dual encoders on a device that has float64.
        texts: per backbone, the C captions, encoded.
        image_of_caption: (C,) the right image of each caption, in 0..N-1.
        budget: as in `score_blocks`.
        copies: which items are identical, so that every copy of a right item is right; None = a copy is a wrong item.
        means: of which backbones the mean is taken, one after the other; None = of all, if they are several. A backbone
            that is named twice counts twice.
        processes: those that call this together; of interaction backbones each scores its share of the blocks.

    Returns:
        For each backbone, and then for each of `means`: i2t ranks (N,), -1 for an image without captions, and t2i ranks
        (C,), all 0-based.

    Raises:
        InputError: backbones of several kinds, or a similarity that is not finite.
        ValueError: as in `ranks_from_embeddings`.
    """
    _require_one_kind(backbones)
    if means is None:
        means = [range(len(backbones))] if len(backbones) > 1 else []
    if not backbones[0].interacts:
        vectors = [(v.vector, u.vector) for v, u in zip(images, texts, strict=True)]
        for chosen in means:
            v, u = zip(*(vectors[place] for place in chosen), strict=True)
            vectors.append((side_by_side(v), side_by_side(u)))
        return [ranks_from_embeddings(v, u, image_of_caption, copies=copies) for v, u in vectors]
    owner = checked_owner(image_of_caption, len(images[0]), len(texts[0]))
    order = _longest_first(texts)  # so that the columns of a block are a slice
    if copies is not None:
        copies = Copies(copies.images, copies.captions[order.numpy()])
    right = find_relevance(owner[order.numpy()], len(images[0]), copies)
    distinct_images = [_rows(items, torch.from_numpy(right.images.first)) for items in images]
    distinct_texts = [_rows(items, order[torch.from_numpy(right.captions.first)]) for items in texts]
    own = _right_pairs(backbones, distinct_images, distinct_texts, right.image, right.caption, budget, means)
    counts = [WrongCount(values, right, SAME_LOG_ODDS) for values in own]
    for rows, columns, several in _tiles(backbones, distinct_images, distinct_texts, budget, means, processes):
        for count, values in zip(counts, several, strict=True):
            count.add(rows, columns, values)
    if processes.count > 1:
        for count in counts:
            count.over(processes)
    return [_in_order(*count.ranks(), order) for count in counts]


def _in_order(i2t: Ints, t2i: Ints, order: Tensor) -> tuple[Ints, Ints]:
    """Bring the ranks of captions that were sorted back into the captions' order."""
    of_caption = np.empty_like(t2i)
    of_caption[order.numpy()] = t2i
    return i2t, of_caption


def _require_one_kind(backbones: Sequence[Backbone]) -> None:
    if len({(backbone.interacts, backbone.bounded) for backbone in backbones}) > 1:
        raise InputError(
            "networks: a mean of cosines and of similarities in (0, 1) has no meaning; expected backbones of one kind"
        )


def _tiles(
    backbones: Sequence[Backbone],
    images: Sequence[Items],
    texts: Sequence[Items],
    budget: int | None,
    means: Means,
    processes: Processes = ALONE,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield what ranks are counted by, (backbones and means, rows, columns), on the CPU: it has float64.

    The texts are sorted by length, the longest first.
    """
    for rows, columns, logits in logit_blocks(backbones, images, texts, budget, processes):
        several = [logits[list(chosen)] for chosen in means]
        mean = [log_odds(some) if backbones[0].bounded else some.mean(0) for some in several]
        ranked = torch.cat([logits, torch.stack(mean)]) if mean else logits
        yield rows, slice(int(columns[0]), int(columns[-1]) + 1), ranked.cpu()


def _right_pairs(
    backbones: Sequence[Backbone],
    images: Sequence[Items],
    texts: Sequence[Items],
    image: Ints,
    caption: Ints,
    budget: int | None,
    means: Means,
) -> Tensor:
    """Return what the right pairs (image, caption), each (P,), are ranked by, (backbones and means, P)."""
    own = torch.full((len(backbones) + len(means), len(image)), torch.nan)
    for top in range(0, len(images[0]), RIGHT_PAIRS):
        places = np.flatnonzero((image >= top) & (image < top + RIGHT_PAIRS))
        if not len(places):
            continue
        some = [items[top : top + RIGHT_PAIRS] for items in images]
        captions, column = np.unique(caption[places], return_inverse=True)
        theirs = [_rows(items, torch.from_numpy(captions)) for items in texts]
        found = torch.empty(len(own), min(RIGHT_PAIRS, len(images[0]) - top), len(captions))
        for rows, columns, values in _tiles(backbones, some, theirs, budget, means):
            found[:, rows, columns] = values
        own[:, torch.from_numpy(places)] = found[:, torch.from_numpy(image[places] - top), torch.from_numpy(column)]
    return own


def _rows(items: Items, places: Tensor) -> Items:
    """Return items at places (k,) int64 on the CPU."""
    return items[send(places, items.vector.device)]


def _longest_first(texts: Sequence[Items]) -> Tensor:
    """Return the order of the texts by length, (m,) int64 on the CPU."""
    return torch.stack([_words(items) for items in texts]).amax(0).argsort(descending=True, stable=True)


def _words(texts: Items) -> Tensor:
    """Return how many places of each text are needed (m,), on the CPU: up to its last real part."""
    if texts.parts is None:
        return torch.zeros(len(texts), dtype=torch.int64)
    if texts.mask is None:
        return torch.full((len(texts),), texts.parts.shape[1])
    places = torch.arange(1, texts.mask.shape[1] + 1, device=texts.mask.device)
    return (texts.mask * places).amax(1).cpu()


def _shortened(texts: Items, words: int) -> Items:
    """Return the texts with their first `words` places only."""
    if texts.parts is None:
        return texts
    return Items(texts.vector, texts.parts[:, :words], None if texts.mask is None else texts.mask[:, :words])


def _require_finite(logits: Tensor, rows: slice, columns: Tensor) -> None:
    if not logits.isfinite().all():
        _, row, column = (~logits.isfinite()).nonzero()[0].tolist()
        raise InputError(f"the similarity of image {rows.start + row} and caption {int(columns[column])} is not finite")
