"""The vectors of all items of a data folder, encoded block by block into the file of an index."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.pairs import DataSource
from in2r.errors import InputError
from in2r.models.retrieval import RetrievalModel
from in2r.search.items import Part
from in2r.search.store import Side

Progress = Callable[[int, int], None]


def fill_vectors(
    model: RetrievalModel,
    parts: Sequence[Part],
    side: Side,
    source: DataSource,
    progress: Progress | None,
    out: NDArray[Any],
) -> None:
    """Encode the items of a data folder into an array, block by block.

    Args:
        model: what encodes.
        parts: the items.
        side: what they are.
        source: the data, for messages.
        progress: is told how many of the n items are done.
        out: (n, D), of any floating-point type; row i is item i.

    Raises:
        InputError: what the model raises; captions as vectors for a model that reads words.
    """
    done = 0
    try:
        for part in parts:
            for count, encode in _blocks(model, part, side):
                encode(out[done : done + count])
                done += count
                if progress is not None:
                    progress(done, len(out))
    except InputError as error:
        raise InputError(f"{source.path}: {error}") from None


def _blocks(model: RetrievalModel, part: Part, side: Side) -> Iterator[tuple[int, Callable[[NDArray[Any]], Any]]]:
    """Yield the size of each block of a part's items, and what writes their vectors to (size, D)."""
    pairs, coarse = part.pairs, model.interacts
    if side == "captions" and model.reads == "words":
        if pairs.captions is None:
            raise InputError(f"{pairs.name} has caption vectors only, and the model reads words")
        texts = [pairs.captions[place] for place in part.chosen]
        yield len(texts), lambda out: model.encode_captions(texts, out=out, coarse=coarse)
        return
    features = pairs.images if side == "images" else pairs.caption_vectors
    assert features is not None  # the data were opened with them
    features, done = features.select(np.array(part.chosen, np.int64)), 0
    for _, values in features.blocks():
        some = slice(done, done + len(values))
        done += len(values)
        if side == "images":
            lengths = None if features.lengths is None else features.lengths[some]
            yield len(values), partial(_encode_images, model, values, lengths)
        else:
            yield len(values), partial(_encode_vectors, model, values[:, 0])


def _encode_images(model: RetrievalModel, values: Any, lengths: Any, out: NDArray[Any]) -> None:
    model.encode_images(values, lengths, out=out, coarse=model.interacts)


def _encode_vectors(model: RetrievalModel, values: Any, out: NDArray[Any]) -> None:
    model.encode_captions(values, out=out)
