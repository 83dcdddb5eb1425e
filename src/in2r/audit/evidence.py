"""All kinds of evidence for any pairs of one data set's images and captions, without training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from in2r.audit.settings import AuditConfig
from in2r.evidence import (
    LinearMaps,
    agreement,
    by_folds,
    closeness,
    cosines_with,
    fit_linear_maps,
    lead_over_strangers,
    linear_similarity,
    nearest_references,
)
from in2r.evidence.vectors import centred
from in2r.seeds import torch_generator

NAMES = ("own similarity", "lead over strangers", "image neighbours", "text neighbours", "other captions")
"""The kinds of evidence that need no training."""
MEANINGS = {
    "own similarity": "how alike image and caption are, by linear maps fitted on other images",
    "lead over strangers": "how much more alike they are than random captions and images are to them",
    "image neighbours": "how alike the caption is to captions of similar images",
    "text neighbours": "how alike the image is to images of similar captions",
    "other captions": "how alike the caption is to the image's other captions",
    "trained similarity": "how alike networks find them that were not trained on them",
    "trained lead": "how much more alike than random captions and images these networks find them",
}
BELIEVED = 1e-6
"""Least weight of a pair in the linear maps, so that no fold is empty."""


class Scorer(Protocol):
    """Further evidence, such as that of trained runs.

    Attributes:
        names: of its kinds of evidence.
        model_of_image: (n,) int64, which of its models judges an image's pairs: one that was not trained on them; -1:
            none.
    """

    names: Sequence[str]
    model_of_image: Tensor

    def __call__(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return the evidence of pairs of images (P,) and captions (P,), (P, kinds); NaN where it is not known."""
        ...


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
    """Pairs that are asked about, what does not depend on who is believed, and who is asked.

    Attributes:
        asked: P pairs.
        voices: image neighbours, text neighbours and other captions.
        further: (P, kinds) evidence of the `Scorer`.
    """

    asked: Asked
    voices: tuple[Voices, Voices, Voices]
    further: Tensor


@dataclass
class EvidenceBase:
    """The data set as witness: its folds, reference pairs, neighbours and other captions, found once.

    Attributes:
        data: the vectors.
        config: the settings.
        scorer: further evidence, such as that of trained runs.

    A pair may be mismatched on purpose within a `stratum` (n,) of images: those that the same models judge, which have
    seen neither side of it with another one.
    """

    data: Vectors
    config: AuditConfig
    scorer: Scorer | None = None

    def __post_init__(self) -> None:
        data, config = self.data, self.config
        self._v, self._u = centred(data.images), centred(data.texts)
        count = len(data.image_of_pair)
        groups = int(data.group_of_image.max()) + 1
        self.fold_of_image = folds_of_images(data.group_of_image, config)
        self.stratum = self.fold_of_image.clone()
        if self.scorer is not None:
            self.stratum += (int(self.fold_of_image.max()) + 1) * (self.scorer.model_of_image + 1)
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
        self.strangers = torch.randperm(count, generator=torch_generator(config.seed, "strangers"))[: config.strangers]
        self._siblings = _table(self._group_of_pair, groups, config)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that `of` returns."""
        return (*NAMES, *(() if self.scorer is None else self.scorer.names))

    def fit(self, trust: Tensor) -> list[LinearMaps]:
        """Fit the linear maps to the pairs as far as they are believed, (N,) in [0, 1]."""
        data = self.data
        folds = self.fold_of_image[data.image_of_pair]
        return fit_linear_maps(
            data.images, data.texts, data.image_of_pair, folds, int(self.fold_of_image.max()) + 1, trust + BELIEVED,
            self.config.ridge,
        )  # fmt: skip

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
        other_captions = Voices(pair, cosines_with(u, self._u, pair), known.float())
        further = u.new_empty(len(u), 0) if self.scorer is None else self.scorer(asked.images, asked.texts).float()
        return Seen(asked, (image_side, text_side, other_captions), further)

    def of(self, seen: "Seen", maps: Sequence[LinearMaps], trust: Tensor) -> Tensor:
        """Return the evidence of pairs, (P, kinds) float32, larger = better, NaN where nobody can be asked.

        A pair's own image, its copies and the caption itself are never asked.

        Args:
            seen: P pairs, as `look` returns them.
            maps: as `fit` returns them.
            trust: (N,) in [0, 1], how far the given pairs are believed.
        """
        columns = [
            *self._linear(maps, seen.asked),
            *(agreement(one.cosine, one.weight * trust[one.pair], self.config.temperature) for one in seen.voices),
        ]
        return torch.cat([torch.stack(columns, dim=1), seen.further], dim=1)

    def _linear(self, maps: Sequence[LinearMaps], asked: Asked) -> tuple[Tensor, Tensor]:
        """Return own similarity and lead over strangers by the linear maps."""
        data, group = self.data, self.data.group_of_image
        own_groups = torch.stack([group[asked.images], group[asked.siblings_of]], dim=1)
        strangers = self.strangers
        strange_group = self._group_of_pair[strangers]
        embedded: dict[int, tuple[Tensor, Tensor]] = {}

        def lead(of_fold: LinearMaps, pairs: Tensor, v: Tensor, u: Tensor) -> Tensor:
            if id(of_fold) not in embedded:
                embedded[id(of_fold)] = (
                    of_fold.embed_images(data.images[data.image_of_pair[strangers]]),
                    of_fold.embed_texts(data.texts[strangers]),
                )
            return lead_over_strangers(
                v, u, own_groups[pairs], *embedded[id(of_fold)], strange_group, self.config.lead_temperature
            )

        where = (maps, self.fold_of_image, data.images, data.texts, asked.images, asked.texts)
        return linear_similarity(*where), by_folds(lead, *where)

    def neighbors(self, image: int, trust: Tensor, count: int) -> list[int]:
        """Return the pairs nearest to an image that are believed, one an image, the nearest first."""
        found: dict[int, int] = {}
        for pair in self.references[self._near_image[image]].tolist():
            if trust[pair] > self.config.cut and self._group_of_pair[pair] != self.data.group_of_image[image]:
                found.setdefault(int(self._group_of_pair[pair]), pair)
        return list(found.values())[:count]


def folds_of_images(group_of_image: Tensor, config: AuditConfig) -> Tensor:
    """Return (n,) int64: the fold of each image; copies are in one fold, and each fold has two images or more.

    Args:
        group_of_image: (n,) int64; four groups or more.
        config: the settings.
    """
    groups = int(group_of_image.max()) + 1
    folds = max(2, min(config.folds, groups // 2))
    return (torch.randperm(groups, generator=torch_generator(config.seed, "folds")) % folds)[group_of_image]


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
