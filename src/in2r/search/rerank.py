"""Exact scores of a few candidates by an interaction model, whose vectors only approximate them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from in2r.data.pairs import PairSet
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.models.retrieval import RetrievalModel
from in2r.search.base import Item
from in2r.search.queries import Queries
from in2r.search.store import IndexConfig

RERANKED = 100
"""Candidates that are scored again, whatever k is: so a larger k only makes a list longer. No result list is longer."""


class Reranker:
    """Scores items of an index by its model; features and captions are read from the data that were indexed.

    Args:
        model: an interaction model.
    """

    def __init__(self, model: RetrievalModel) -> None:
        self._model = model
        self._opened: dict[tuple[int, str], PairSet] = {}

    def scores(self, config: IndexConfig, queries: Queries, number: int, items: Sequence[Item]) -> NDArray[np.float32]:
        """Return (m,) exact similarities in (0, 1) of one query, of the other side, with some items.

        Args:
            config: the index; others may have added data to it since the last time.
            queries: texts for an index of images, images for one of captions.
            number: which of them.
            items: of the index.

        Raises:
            InputError: the data are not there any more.
        """
        if config.side == "images":
            assert queries.texts is not None
            values, lengths = self._images(config, items)
            sims = self._model.score(values, [queries.texts[number]], lengths)
        else:
            assert queries.features is not None
            texts = [(self._pairs(config, item).captions or ())[item["at"][2]] for item in items]
            sims = self._model.score(queries.features[number][None], texts)
        return sims.reshape(-1)

    def _images(self, config: IndexConfig, items: Sequence[Item]) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Return features (m, regions, d), zero beyond an image's own, and how many each has."""
        found, lengths = [], []
        for item in items:
            images = self._pairs(config, item).images
            values, _ = images.gather(torch.tensor([item["at"][2]]))
            found.append(values[0].numpy())
            lengths.append(images.regions if images.lengths is None else int(images.lengths[item["at"][2]]))
        longest = max(len(values) for values in found)
        padded = np.stack([np.pad(values, ((0, longest - len(values)), (0, 0))) for values in found])
        return padded, None if min(lengths) == longest else np.array(lengths, np.int64)

    def _pairs(self, config: IndexConfig, item: Item) -> PairSet:
        """Return the split that an item is of."""
        number, split, _ = item["at"]
        if (number, split) not in self._opened:
            data = config.data[number]
            try:
                source = open_data(
                    data.path, layout=data.layout, dev_rule="full", split_seed=data.split_seed,
                    skip_missing=data.skip_missing, announce=False,
                )  # fmt: skip
            except InputError as error:
                raise InputError(
                    f"this model compares words with regions, so a search reads its data: {error}"
                ) from None
            self._opened[number, split] = source.split(split)
        return self._opened[number, split]
