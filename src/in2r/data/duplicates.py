"""Which items of a split are stored more than once: their copies can be told apart by no model."""

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from in2r.data.features import Features
from in2r.data.text.tokenizer import tokenize
from in2r.metrics import Copies


def find_copies(images: Features, captions: Features | Sequence[str]) -> Copies:
    """Tell which items of a split are identical in what a model reads of them; features are read block by block.

    Image ids are not looked at: a pair table has each once, and those of the field's folders need not name images.

    Args:
        images: two images are identical if all their real regions have the same values in the same order.
        captions: two texts are identical if they have the same words (`tokenize`), two vectors if they have the same
            values.
    """
    same_captions = (
        _digests(captions) if isinstance(captions, Features) else (tuple(tokenize(text)) for text in captions)
    )
    return Copies(numbered(_digests(images)), numbered(same_captions))


def _digests(features: Features) -> Iterator[bytes]:
    """Yield a hash of each item's values; regions beyond an item's length are no part of it."""
    item = 0
    for _, values in features.blocks():
        for value in values:
            real = value if features.lengths is None else value[: features.lengths[item]]
            yield hashlib.blake2b(real, digest_size=16).digest()
            item += 1


def numbered(items: Iterable[Hashable]) -> NDArray[np.int64]:
    """Return a number for each item, (items,) int64 from 0 in the order of first sight; equal ones share theirs."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(item, len(numbers)) for item in items], dtype=np.int64)
