"""All kinds of evidence for any pairs of one data set's images and captions, without training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from in2r.audit.settings import AuditConfig
from in2r.audit.voices import BLOCK, Voices, nearest
from in2r.evidence import (
    LinearMaps,
    Side,
    by_folds,
    cosines_with,
    fit_linear_maps,
    lead_over_strangers,
    lemon,
    linear_similarity,
)
from in2r.evidence.vectors import Centred
from in2r.seeds import torch_generator

NAMES = ("own similarity", "lead over strangers", "image neighbours", "text neighbours", "other captions")
"""The kinds of evidence that need no training; the last three are what other pairs say."""
TRAINED = ("trained similarity", "trained lead")
"""The kinds of evidence of trained runs."""
LEMON = "lemon"
CHOSEN = {"all": NAMES, "own similarity": NAMES[:1], LEMON: (LEMON,)}
"""The kinds of each value of `AuditConfig.evidence`."""
MEANINGS = {
    "own similarity": "how alike image and caption are, by linear maps fitted on other images",
    "lead over strangers": "how much more alike they are than random captions and images are to them",
    "image neighbours": "how alike the caption is to captions of similar images",
    "text neighbours": "how alike the image is to images of similar captions",
    "other captions": "how alike the caption is to the image's other captions",
    LEMON: "LEMoN's fixed setting: image and caption, and those of the neighbours on both sides",
    TRAINED[0]: "how alike networks find them that were not trained on them",
    TRAINED[1]: "how much more alike than random captions and images these networks find them",
}
SAME = 1 - 1e-5
"""Cosine from which another caption of the image is a copy of the judged one, and so no witness; it rounds to less than
1. Captions without a known word are all alike too."""
BELIEVED = 1e-6
"""Least weight of a pair in the linear maps, so that no fold is empty."""


class Scorer(Protocol):
    """Further evidence, such as that of trained runs."""

    @property
    def names(self) -> Sequence[str]:
        """Names of its kinds of evidence."""
        ...

    @property
    def runs(self) -> Sequence[str]:
        """The runs that it asks."""
        ...

    @property
    def model_of_image(self) -> Tensor:
        """(n,) int64, which of its models judges an image's pairs: one that was not trained on them."""
        ...

    def __call__(self, images: Tensor, texts: Tensor) -> Tensor:
        """Return the evidence of pairs of images (P,) and captions (P,), (P, kinds); NaN where it is not known."""
        ...


@dataclass(frozen=True)
class Vectors:
    """What an audit reads of the data.

    Attributes:
        images: (n, f) float32 or float16, a vector for each image.
        texts: (N, d), likewise, a vector for each pair's caption.
        image_of_pair: (N,) int64 in [0, n).
        group_of_image: (n,) int64; copies of an image share their number, and judge each other as little as themselves.
    """

    images: Tensor
    texts: Tensor
    image_of_pair: Tensor
    group_of_image: Tensor


@dataclass(frozen=True)
class Panel:
    """The pairs that are asked, where they are not those that are judged: pairs of an earlier audit.

    Attributes:
        vectors: theirs; copies of one image share their group number with the data's images too.
        fold_of_image: (n,) int64, of their images, as in that audit.
        folds: how many there were.
        references: (R,) int64, those that are asked as neighbours.
        itself: (N,) int64, of each pair of the data the panel's pair that is a copy of it; -1 where there is none.
    """

    vectors: Vectors
    fold_of_image: Tensor
    folds: int
    references: Tensor
    itself: Tensor


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

    def parts(self) -> Iterator["Asked"]:
        """Yield blocks of pairs."""
        columns = (self.images, self.texts, self.siblings_of, self.instead_of)
        for part in zip(*(torch.split(column, BLOCK) for column in columns), strict=True):
            yield Asked(*part)


def given_pairs(data: Vectors) -> Asked:
    """Ask about every pair as it is given."""
    every = torch.arange(len(data.image_of_pair))
    return Asked(data.image_of_pair, every, data.image_of_pair, every)


@dataclass(frozen=True)
class Seen:
    """Pairs that are asked about, what does not depend on who is believed, and who is asked.

    Attributes:
        asked: P pairs.
        blocks: of each block of pairs, image neighbours, text neighbours and other captions.
        further: (P, kinds) evidence of the `Scorer`.
    """

    asked: Asked
    blocks: list[tuple[Voices, Voices, Voices]]
    further: Tensor


@dataclass
class EvidenceBase:
    """Who is asked about a data set's pairs: folds, reference pairs, neighbours and other captions, found once.

    Attributes:
        data: the vectors of what is judged.
        config: the settings.
        scorer: further evidence, such as that of trained runs.
        panel: the pairs that are asked; None: the data's own.
        witness: the vectors of what is asked.
        fold_of_image: (n,) int64, of the data's images: which maps judge them; the number of folds where the panel has
            no copy of an image, so that all maps may have been fitted without it.
        references: (R,) int64, the witness' pairs that are asked as neighbours.
        strangers: (S,) int64, the witness' pairs that are compared with every pair.
        stratum: (n,) int64: images that the same models judge. A pair that is mismatched on purpose is of one stratum,
            so that its judge has seen neither side of it with another one.
    """

    data: Vectors
    config: AuditConfig
    scorer: Scorer | None = None
    panel: Panel | None = None

    def __post_init__(self) -> None:
        data, config, panel = self.data, self.config, self.panel
        self.witness = witness = data if panel is None else panel.vectors
        self._v, self._u = Centred(data.images, witness.images), Centred(data.texts, witness.texts)
        self._witness_u = Centred(witness.texts)
        groups = int(torch.cat([data.group_of_image, witness.group_of_image]).max()) + 1
        if panel is None:
            self.fold_of_image = folds_of_images(data.group_of_image, config)
            self._folds = int(self.fold_of_image.max()) + 1
            count = len(data.image_of_pair)
            self._itself = torch.arange(count)
            drawn = torch.randperm(count, generator=torch_generator(config.seed, "references"))
            self.references = drawn[: config.references].sort().values
        else:
            fold_of_group = torch.full((groups,), panel.folds)
            fold_of_group[witness.group_of_image] = panel.fold_of_image
            self.fold_of_image, self._folds = fold_of_group[data.group_of_image], panel.folds
            self._itself, self.references = panel.itself, panel.references
        self.stratum = self.fold_of_image
        if self.scorer is not None:
            self.stratum = self.stratum + (self._folds + 1) * self.scorer.model_of_image
        drawn = torch.randperm(len(self.references), generator=torch_generator(config.seed, "strangers"))
        self.strangers = self.references[drawn[: config.strangers]]
        self._group_of_pair = witness.group_of_image[witness.image_of_pair]
        owner = witness.image_of_pair[self.references]
        self._reference_v, self._reference_u = Centred(witness.images)[owner], self._witness_u[self.references]
        self._near_image, self._cosine_image = nearest(
            self._v, self._reference_v, data.group_of_image, witness.group_of_image[owner], config.neighbors
        )
        self._near_text, self._cosine_text = nearest(  # a caption is no neighbour of itself
            self._u, self._reference_u, self._itself, self.references, config.neighbors
        )
        self._siblings = _table(self._group_of_pair, groups, config)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that `of` returns."""
        return (*CHOSEN[self.config.evidence], *(() if self.scorer is None else self.scorer.names))

    def fit(self, trust: Tensor) -> list[LinearMaps]:
        """Fit the linear maps to the pairs as far as they are believed, (N,) in [0, 1].

        Returns:
            Maps of each fold, and last those fitted on all pairs, which judge images of no fold.
        """
        data, config = self.data, self.config
        folds = self.fold_of_image[data.image_of_pair]
        return fit_linear_maps(
            data.images, data.texts, data.image_of_pair, folds, self._folds + 1, trust + BELIEVED, config.ridge
        )

    def look(self, asked: Asked) -> Seen:
        """Find who is asked about pairs and what they say; it does not depend on who is believed."""
        blocks = [self._voices(some) for some in asked.parts()]
        none = torch.empty(len(asked.images), 0)
        return Seen(asked, blocks, none if self.scorer is None else self.scorer(asked.images, asked.texts).float())

    def _voices(self, asked: Asked) -> tuple[Voices, Voices, Voices]:
        group, images = self._group_of_pair, self.data.group_of_image[asked.images]
        home = self.data.group_of_image[asked.siblings_of]
        itself, instead = self._itself[asked.texts, None], self._itself[asked.instead_of, None]

        def others(pair: Tensor) -> Tensor:
            """Tell which pairs belong to neither image; what has moved together does not speak for itself."""
            return (group[pair] != images[:, None]) & (group[pair] != home[:, None])

        u, v = self._u[asked.texts], self._v[asked.images]
        near = self._near_image[asked.images].long()
        pair, said = self.references[near], cosines_with(u, self._reference_u, near)
        by_image = Voices.of(pair, said, self._cosine_image[asked.images], others(pair) & (pair != itself))
        near = self._near_text[asked.texts].long()
        pair, said = self.references[near], cosines_with(v, self._reference_v, near)
        by_text = Voices.of(pair, said, self._cosine_text[asked.texts], others(pair))
        pair = self._siblings[home]
        known = (pair >= 0) & (pair != itself) & (pair != instead)
        there, place = torch.unique(pair.clamp(min=0), return_inverse=True)
        said = cosines_with(u, self._witness_u[there], place)
        known &= said < SAME
        return by_image, by_text, Voices.of(there[place], said, torch.zeros_like(said), known)

    def of(self, seen: Seen, maps: Sequence[LinearMaps], trust: Tensor) -> Tensor:
        """Return the evidence of pairs, (P, kinds) float32, larger = better, NaN where nobody can be asked.

        A pair's own image, its copies and the caption itself are never asked.

        Args:
            seen: P pairs, as `look` returns them.
            maps: as `fit` returns them.
            trust: (pairs of the witness,) in [0, 1], how far each is believed.
        """
        columns = [self._of_kind(name, seen, maps, trust) for name in CHOSEN[self.config.evidence]]
        return torch.cat([torch.stack(columns, dim=1), seen.further], dim=1)

    def _of_kind(self, name: str, seen: Seen, maps: Sequence[LinearMaps], trust: Tensor) -> Tensor:
        if name == LEMON:
            return self.lemon(seen, maps)
        if name == NAMES[0]:
            return self.similarity(maps, seen.asked)
        if name == NAMES[1]:
            return self._lead(maps, seen.asked)
        side = NAMES.index(name) - 2
        return torch.cat([block[side].agreement(trust, self.config.temperature) for block in seen.blocks])

    def similarity(self, maps: Sequence[LinearMaps], asked: Asked) -> Tensor:
        """Return the cosine of image and caption of pairs, (P,), by the linear maps."""
        data = self.data
        return linear_similarity(maps, self.fold_of_image, data.images, data.texts, asked.images, asked.texts)

    def lemon(self, seen: Seen, maps: Sequence[LinearMaps]) -> Tensor:
        """Return LEMoN's score of pairs, (P,); the linear maps stand for the space that both sides share."""
        witness, asked = self.witness, self.references
        fold = self.fold_of_image if self.panel is None else self.panel.fold_of_image
        of_pair = torch.full((len(witness.texts),), torch.nan)  # asked of references alone
        of_pair[asked] = linear_similarity(
            maps, fold, witness.images, witness.texts, witness.image_of_pair[asked], asked
        )
        own = torch.split(self.similarity(maps, seen.asked), BLOCK)
        sides = ([Side(one.near, one.cosine, of_pair[one.pair.long()]) for one in block[:2]] for block in seen.blocks)
        return torch.cat([lemon(part, *both) for part, both in zip(own, sides, strict=True)])

    def _lead(self, maps: Sequence[LinearMaps], asked: Asked) -> Tensor:
        """Return the lead over strangers by the linear maps."""
        data, witness, group = self.data, self.witness, self.data.group_of_image
        own_groups = torch.stack([group[asked.images], group[asked.siblings_of]], dim=1)
        strangers = self.strangers
        strange_group = self._group_of_pair[strangers]
        embedded: dict[int, tuple[Tensor, Tensor]] = {}

        def lead(of_fold: LinearMaps, pairs: Tensor, v: Tensor, u: Tensor) -> Tensor:
            if id(of_fold) not in embedded:
                embedded[id(of_fold)] = (
                    of_fold.embed_images(witness.images[witness.image_of_pair[strangers]]),
                    of_fold.embed_texts(witness.texts[strangers]),
                )
            return lead_over_strangers(
                v, u, own_groups[pairs], *embedded[id(of_fold)], strange_group, self.config.lead_temperature
            )

        return by_folds(lead, maps, self.fold_of_image, data.images, data.texts, asked.images, asked.texts)

    def with_siblings(self, pairs: Tensor) -> Tensor:
        """Return pairs of the witness and those that are asked as other captions of their images, ascending."""
        siblings = self._siblings[self._group_of_pair[pairs]].flatten()
        found: Tensor = torch.unique(torch.cat([pairs, siblings[siblings >= 0]]))
        return found

    def look_alikes(self, count: int) -> tuple[Tensor, Tensor]:
        """Return of each image the nearest pairs of other images, (n, count) int64, and which of them there are."""
        known = self._cosine_image[:, :count] > -torch.inf
        return self.references[self._near_image[:, :count].long()], known

    def neighbors(self, images: Tensor, trust: Tensor, count: int) -> list[list[int]]:
        """Return of each image (P,) int64 the `count` nearest believed pairs of the witness, one an image."""
        pairs = self.references[self._near_image[images].long()]
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
