"""All kinds of evidence for any pairs of one data set's images and captions, without training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from in2r.audit.settings import AuditConfig
from in2r.evidence import (
    LinearMaps,
    Side,
    agreement,
    closeness,
    cosines_with,
    fit_linear_maps,
    lemon,
    linear_similarity,
    nearest_references,
)
from in2r.evidence.vectors import Centred
from in2r.seeds import torch_generator

NAMES = ("own similarity", "image neighbours", "text neighbours", "other captions")
"""The kinds of evidence that need no training."""
LEMON = "lemon"
CHOSEN = {"all": NAMES, "own similarity": NAMES[:1], LEMON: (LEMON,)}
"""The kinds of each value of `AuditConfig.evidence`."""
MEANINGS = {
    "own similarity": "how alike image and caption are, by linear maps fitted on other images",
    "image neighbours": "how alike the caption is to captions of similar images",
    "text neighbours": "how alike the image is to images of similar captions",
    "other captions": "how alike the caption is to the image's other captions",
    LEMON: "LEMoN's fixed setting: image and caption, and those of the neighbours on both sides",
}
BELIEVED = 1e-6
"""Least weight of a pair in the linear maps, so that no fold is empty."""

BLOCK = 2**14
"""Rows that are looked at together: intermediate values of some 50 neighbours each stay within some MB."""

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
    """Who is asked about P pairs.

    Attributes:
        pair: (P, k) int32, the pairs that are asked.
        cosine: (P, k) what each says: how alike its own image or caption is to that which is judged.
        near: (P, k) cosine of both on the other side, the nearest first; -inf where it is not asked.
    """

    pair: Tensor
    cosine: Tensor
    near: Tensor


@dataclass(frozen=True)
class Seen:
    """Pairs that are asked about; of each block of them, the voices of image and text neighbours and other captions."""

    asked: Asked
    blocks: list[tuple[Voices, Voices, Voices]]


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
        self._v, self._u = Centred(data.images), Centred(data.texts)
        count = len(data.image_of_pair)
        groups = int(data.group_of_image.max()) + 1
        fold_of_group = torch.randperm(groups, generator=torch_generator(config.seed, "folds")) % config.folds
        self.fold_of_image = fold_of_group[data.group_of_image]
        self._group_of_pair = data.group_of_image[data.image_of_pair]
        drawn = torch.randperm(count, generator=torch_generator(config.seed, "references"))[: config.references]
        self.references = drawn.sort().values
        owner = data.image_of_pair[self.references]
        self._v_of_reference, self._u_of_reference = self._v[owner], self._u[self.references]
        self._near_image, self._cosine_image = _nearest(
            self._v, self._v_of_reference, data.group_of_image, data.group_of_image[owner], config.neighbors
        )
        pairs = torch.arange(count)  # a caption is no neighbour of itself
        self._near_text, self._cosine_text = _nearest(
            self._u, self._u_of_reference, pairs, self.references, config.neighbors
        )
        self._siblings = _table(self._group_of_pair, groups, config)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that `of` returns."""
        return (*CHOSEN[self.config.evidence], *self.scorers)

    def fit(self, trust: Tensor) -> list[LinearMaps]:
        """Fit the linear maps to the pairs as far as they are believed, (N,) in [0, 1]."""
        data = self.data
        folds = self.fold_of_image[data.image_of_pair]
        return fit_linear_maps(
            data.images, data.texts, data.image_of_pair, folds, self.config.folds, trust + BELIEVED, self.config.ridge
        )

    def look(self, asked: Asked) -> Seen:
        """Find who is asked about pairs and what they say; it does not depend on who is believed."""
        return Seen(asked, [self._voices(some) for some in _parts(asked)])

    def _voices(self, asked: Asked) -> tuple[Voices, Voices, Voices]:
        group, images = self._group_of_pair, self.data.group_of_image[asked.images]
        home = self.data.group_of_image[asked.siblings_of]

        def others(pair: Tensor) -> Tensor:
            """Tell which pairs belong to neither image; what has moved together does not speak for itself."""
            return (group[pair] != images[:, None]) & (group[pair] != home[:, None])

        u, v = self._u[asked.texts], self._v[asked.images]
        near = self._near_image[asked.images].long()
        pair = self.references[near]
        by_image = _voices(
            pair,
            cosines_with(u, self._u_of_reference, near),
            self._cosine_image[asked.images],
            others(pair) & (pair != asked.texts[:, None]),
        )
        near = self._near_text[asked.texts].long()
        pair = self.references[near]
        by_text = _voices(
            pair, cosines_with(v, self._v_of_reference, near), self._cosine_text[asked.texts], others(pair)
        )
        pair = self._siblings[home]
        known = (pair >= 0) & (pair != asked.texts[:, None]) & (pair != asked.instead_of[:, None])
        there, place = torch.unique(pair.clamp(min=0), return_inverse=True)
        siblings = cosines_with(u, self._u[there], place)
        return by_image, by_text, _voices(there[place], siblings, torch.zeros_like(siblings), known)

    def of(self, seen: Seen, maps: Sequence[LinearMaps], trust: Tensor) -> Tensor:
        """Return the evidence of pairs, (P, kinds) float32, larger = better, NaN where nobody can be asked.

        A pair's own image, its copies and the caption itself are never asked.

        Args:
            seen: P pairs, as `look` returns them.
            maps: as `fit` returns them.
            trust: (N,) in [0, 1], how far the given pairs are believed.
        """
        return torch.stack([self._of_kind(name, seen, maps, trust) for name in self.names], dim=1)

    def _of_kind(self, name: str, seen: Seen, maps: Sequence[LinearMaps], trust: Tensor) -> Tensor:
        asked = seen.asked
        if name in self.scorers:
            return self.scorers[name](asked.images, asked.texts).float()
        if name == LEMON:
            return self.lemon(seen, maps)
        if name == NAMES[0]:
            return self._similarity(maps, asked.images, asked.texts)
        side = NAMES.index(name) - 1
        temperature = self.config.temperature
        voices = (block[side] for block in seen.blocks)
        return torch.cat(
            [
                agreement(one.cosine, closeness(one.near, temperature) * trust[one.pair.long()], temperature)
                for one in voices
            ]
        )

    def lemon(self, seen: Seen, maps: Sequence[LinearMaps]) -> Tensor:
        """Return LEMoN's score of pairs (P,), in which the linear maps stand for the space that both sides share."""
        own = self._similarity(maps, seen.asked.images, seen.asked.texts)
        asked = self.references
        of_pair = torch.full((len(self._group_of_pair),), torch.nan)  # asked of references alone
        of_pair[asked] = self._similarity(maps, self.data.image_of_pair[asked], asked)
        sides = ([Side(one.near, one.cosine, of_pair[one.pair.long()]) for one in block[:2]] for block in seen.blocks)
        return torch.cat([lemon(part, *both) for part, both in zip(torch.split(own, BLOCK), sides, strict=True)])

    def _similarity(self, maps: Sequence[LinearMaps], images: Tensor, texts: Tensor) -> Tensor:
        data = self.data
        return linear_similarity(maps, self.fold_of_image, data.images, data.texts, images, texts)

    def neighbors(self, image: int, trust: Tensor, count: int) -> list[int]:
        """Return the pairs nearest to an image that are believed, one an image, the nearest first."""
        found: dict[int, int] = {}
        for pair in self.references[self._near_image[image].long()].tolist():
            if trust[pair] > self.config.cut and self._group_of_pair[pair] != self.data.group_of_image[image]:
                found.setdefault(int(self._group_of_pair[pair]), pair)
        return list(found.values())[:count]


def _parts(asked: Asked) -> Iterator[Asked]:
    """Yield blocks of pairs that are asked about."""
    columns = (asked.images, asked.texts, asked.siblings_of, asked.instead_of)
    for part in zip(*(torch.split(column, BLOCK) for column in columns), strict=True):
        yield Asked(*part)


def _voices(pair: Tensor, cosine: Tensor, near: Tensor, known: Tensor) -> Voices:
    return Voices(pair.int(), cosine, near.masked_fill(~known, -torch.inf))


def _nearest(
    queries: Centred, references: Tensor, group: Tensor, group_of_reference: Tensor, neighbors: int
) -> tuple[Tensor, Tensor]:
    """Return the nearest references of all queries (q, k) int32, and their cosines."""
    shape = (len(group), min(neighbors, len(references)))
    near, cosine = torch.empty(shape, dtype=torch.int32), torch.empty(shape)
    for start in range(0, len(group), BLOCK):
        rows = slice(start, start + BLOCK)
        near[rows], cosine[rows] = nearest_references(
            queries[rows], references, group[rows], group_of_reference, neighbors
        )
    return near, cosine


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
