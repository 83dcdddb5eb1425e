"""All kinds of evidence for any pairs of one data set's images and captions, without training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from in2r.audit.settings import AuditConfig
from in2r.evidence import (
    LinearMaps,
    agreement,
    closeness,
    cosines_with,
    fit_linear_maps,
    linear_similarity,
    nearest_references,
)
from in2r.evidence.vectors import centred
from in2r.seeds import torch_generator

NAMES = ("own similarity", "image neighbours", "text neighbours", "other captions")
"""The kinds of evidence that need no training."""
MEANINGS = {
    "own similarity": "how alike image and caption are, by linear maps fitted on other images",
    "image neighbours": "how alike the caption is to captions of similar images",
    "text neighbours": "how alike the image is to images of similar captions",
    "other captions": "how alike the caption is to the image's other captions",
}
BELIEVED = 1e-6
"""Least weight of a pair in the linear maps, so that no fold is empty."""

Scorer = Callable[[Tensor, Tensor], Tensor]
"""(P,) images, (P,) captions → (P,) evidence of the pairs, NaN where it is not known: such as that of a trained run."""


@dataclass(frozen=True)
class Vectors:
    """What an audit reads of the data.

    Attributes:
        images: (n, f) float32, a vector for each image.
        texts: (N, d) float32, a vector for each pair's caption.
        image_of_pair: (N,) int64 in [0, n).
        group_of_image: (n,) int64; copies of an image share their number, and judge each other as little as themselves.
    """

    images: Tensor
    texts: Tensor
    image_of_pair: Tensor
    group_of_image: Tensor


@dataclass(frozen=True)
class Asked:
    """Pairs that are asked about: any image with any caption.

    Attributes:
        images: (P,) int64.
        texts: (P,) int64, the number of the pair whose caption it is.
        siblings_of: (P,) int64, the image whose other captions are asked; the image itself, unless a whole group of
            captions has moved.
        instead_of: (P,) int64, the pair in whose place the caption stands, which is not asked either; the caption's own
            pair, unless it has moved alone.
    """

    images: Tensor
    texts: Tensor
    siblings_of: Tensor
    instead_of: Tensor


@dataclass(frozen=True)
class Voices:
    """Who is asked about P pairs: the pairs (P, k), what each says as a cosine, and how near it is, as a weight."""

    pair: Tensor
    cosine: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Seen:
    """Pairs that are asked about, and the voices of image neighbours, text neighbours and other captions."""

    asked: Asked
    voices: tuple[Voices, Voices, Voices]


@dataclass
class EvidenceBase:
    """The data set as witness: its folds, reference pairs, neighbours and other captions, found once.

    Attributes:
        data: the vectors.
        config: the settings.
        scorers: further evidence by name, such as that of a trained run.
    """

    data: Vectors
    config: AuditConfig
    scorers: Mapping[str, Scorer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data, config = self.data, self.config
        self._v, self._u = centred(data.images), centred(data.texts)
        count = len(data.image_of_pair)
        groups = int(data.group_of_image.max()) + 1
        folds = max(2, min(config.folds, groups // 2))  # of two images or more, which can be mismatched with each other
        fold_of_group = torch.randperm(groups, generator=torch_generator(config.seed, "folds")) % folds
        self.fold_of_image = fold_of_group[data.group_of_image]
        self._group_of_pair = data.group_of_image[data.image_of_pair]
        drawn = torch.randperm(count, generator=torch_generator(config.seed, "references"))[: config.references]
        self.references = drawn.sort().values
        owner = data.image_of_pair[self.references]
        self._near_image, cosine = nearest_references(
            self._v, self._v[owner], data.group_of_image, data.group_of_image[owner], config.neighbors
        )
        self._close_image = closeness(cosine, config.temperature)
        pairs = torch.arange(count)  # a caption is no neighbour of itself
        self._near_text, cosine = nearest_references(
            self._u, self._u[self.references], pairs, self.references, config.neighbors
        )
        self._close_text = closeness(cosine, config.temperature)
        self._siblings = _table(self._group_of_pair, groups, config)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that `of` returns."""
        return (*NAMES, *self.scorers)

    def fit(self, trust: Tensor) -> list[LinearMaps]:
        """Fit the linear maps to the pairs as far as they are believed, (N,) in [0, 1]."""
        data = self.data
        folds = self.fold_of_image[data.image_of_pair]
        return fit_linear_maps(
            data.images, data.texts, data.image_of_pair, folds, self.config.folds, trust + BELIEVED, self.config.ridge
        )

    def look(self, asked: Asked) -> "Seen":
        """Find who is asked about pairs and what they say; it does not depend on who is believed."""
        group, images = self._group_of_pair, self.data.group_of_image[asked.images]
        home = self.data.group_of_image[asked.siblings_of]

        def others(pair: Tensor) -> Tensor:
            """Tell which pairs belong to neither image; what has moved together does not speak for itself."""
            return (group[pair] != images[:, None]) & (group[pair] != home[:, None])

        u, v = self._u[asked.texts], self._v[asked.images]
        near = self._near_image[asked.images]
        by_image = self.references[near]
        image_side = Voices(
            by_image,
            cosines_with(u, self._u[self.references], near),
            self._close_image[asked.images] * others(by_image) * (by_image != asked.texts[:, None]),
        )
        near = self._near_text[asked.texts]
        by_text = self.references[near]
        text_side = Voices(
            by_text,
            cosines_with(v, self._v[self.data.image_of_pair[self.references]], near),
            self._close_text[asked.texts] * others(by_text),
        )
        pair = self._siblings[home]
        known = (pair >= 0) & (pair != asked.texts[:, None]) & (pair != asked.instead_of[:, None])
        pair = pair.clamp(min=0)
        return Seen(asked, (image_side, text_side, Voices(pair, cosines_with(u, self._u, pair), known.float())))

    def of(self, seen: "Seen", maps: Sequence[LinearMaps], trust: Tensor) -> Tensor:
        """Return the evidence of pairs, (P, kinds) float32, larger = better, NaN where nobody can be asked.

        A pair's own image, its copies and the caption itself are never asked.

        Args:
            seen: P pairs, as `look` returns them.
            maps: as `fit` returns them.
            trust: (N,) in [0, 1], how far the given pairs are believed.
        """
        data, asked = self.data, seen.asked
        columns = [
            linear_similarity(maps, self.fold_of_image, data.images, data.texts, asked.images, asked.texts),
            *(agreement(one.cosine, one.weight * trust[one.pair], self.config.temperature) for one in seen.voices),
            *(scorer(asked.images, asked.texts).float() for scorer in self.scorers.values()),
        ]
        return torch.stack(columns, dim=1)

    def neighbors(self, images: Tensor, trust: Tensor, count: int) -> list[list[int]]:
        """Return for each image, (P,) int64, the `count` nearest believed pairs, one an image, nearest first."""
        pairs = self.references[self._near_image[images]]
        groups = self._group_of_pair[pairs]
        asked = (trust[pairs] > self.config.cut) & (groups != self.data.group_of_image[images, None])
        found = []
        for row, group, known in zip(pairs.tolist(), groups.tolist(), asked.tolist(), strict=True):
            first: dict[int, int] = {}
            for pair, own, believed in zip(row, group, known, strict=True):
                if believed:
                    first.setdefault(own, pair)
            found.append(list(first.values())[:count])
        return found


def _table(group_of_pair: Tensor, groups: int, config: AuditConfig) -> Tensor:
    """Return up to `siblings` + 1 pairs of each group, drawn if there are more; -1 where there are fewer."""
    drawn = torch.randperm(len(group_of_pair), generator=torch_generator(config.seed, "siblings"))
    order = drawn[group_of_pair[drawn].argsort(stable=True)]
    group = group_of_pair[order]
    first = torch.searchsorted(group, torch.arange(groups))
    place = torch.arange(len(order)) - first[group]
    width = min(config.siblings + 1, int(place.max()) + 1)
    table = torch.full((groups, width), -1, dtype=torch.int64)
    kept = place < width
    table[group[kept], place[kept]] = order[kept]
    return table
