"""From scores to verdicts: what each row of the table is called, and what may be kept of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.audit.evidence import EvidenceBase
from in2r.audit.judge import Judgement
from in2r.audit.pairs import EMPTY, AuditPairs
from in2r.audit.settings import AuditConfig
from in2r.evidence import LinearMaps, by_folds, cosines_with
from in2r.seeds import torch_generator

VERDICTS = {
    "ok": "the caption fits its image",
    "suspect": "more likely wrong than right",
    "mismatch": "the caption surely describes another image",
    "vague": "fits, but fits many other images as well",
    "duplicate": "a copy of this pair stands in an earlier row",
    "empty": "the caption has no words",
    "unreadable": "the image has no features: image_verdicts.csv says why",
}
"""Each verdict and what it means."""
KEPT = ("ok", "vague")
"""The verdicts of rows that stay in the cleaned table."""
LOOK_ALIKES = 10
"""The nearest other images with which a pair is compared. Where look-alikes have exchanged their captions, fewer tell
more; where captions are from anywhere, more do."""
STRANGERS = 64
"""Random images by which it is told how much a caption says."""
BLOCK = 4096
"""Captions compared at a time."""
TELLS_NOTHING = 0.55
"""AUROC between given pairs and pairs mismatched on purpose, below which the evidence tells nothing; more by 1 / √N: of
few pairs, random features reach 0.58 (150 pairs) and 0.54 (900)."""


@dataclass(frozen=True)
class Verdicts:
    """What is said of each of R rows of the table.

    Attributes:
        names: (R,) one of `VERDICTS`.
        score: (R,) in [0, 1]; NaN where the pair was not judged.
        percentile: (R,) share of judged pairs, 0 to 100, whose score is no higher.
        components: name → (R,) in [0, 1], NaN where not known.
        strangers: (R,) share of random images that fit the caption as well as its own.
        look_alikes: (R,) how often the nearest other pairs fit as well: `look_alikes_that_fit`.
        kept: (R,) bool, rows of the cleaned table.
        told: whether the evidence tells anything; if not, no pair is called a suspect.
    """

    names: NDArray[np.str_]
    score: NDArray[np.float64]
    percentile: NDArray[np.float64]
    components: dict[str, NDArray[np.float64]]
    strangers: NDArray[np.float64]
    look_alikes: NDArray[np.float64]
    kept: NDArray[np.bool_]
    told: bool


def decide(pairs: AuditPairs, base: EvidenceBase, judgement: Judgement, config: AuditConfig | None = None) -> Verdicts:
    """Give every row of the table its verdict.

    A pair is a mismatch below `sure` and a suspect below `cut`. If it is neither, it is a duplicate where a copy of its
    image has a caption of the same words in an earlier row, and vague where too many random images fit as well.

    Args:
        pairs: the table.
        base: the data set as witness.
        judgement: of the pairs.
        config: what holds the cuts; None: that of `base`.
    """
    config, rows = config or base.config, len(pairs.images)
    score = judgement.score.double().numpy()
    told = judgement.separation >= TELLS_NOTHING + 1 / math.sqrt(len(base.witness.image_of_pair))
    strangers = strangers_that_fit(base, judgement.maps)
    names = np.full(len(score), "ok", dtype=object)
    names[strangers > config.vague] = "vague"
    names[copies(pairs)] = "duplicate"
    if told:
        names[score < config.cut] = "suspect"
        names[score < config.sure] = "mismatch"
    below = torch.searchsorted(judgement.log_odds.sort().values, judgement.log_odds, right=True)
    percentile = 100 * below.double() / max(1, len(score))
    whole = np.full(rows, "unreadable", dtype=object)
    for row, why in pairs.unjudged.items():
        whole[row] = "empty" if why == EMPTY else "unreadable"
    whole[pairs.judged] = names

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        full = np.full(rows, np.nan)
        full[pairs.judged] = values
        return full

    components = judgement.components.double().numpy()
    return Verdicts(
        names=whole.astype(str),
        score=spread(score),
        percentile=spread(percentile.numpy()),
        components={name: spread(components[:, column]) for column, name in enumerate(base.names)},
        strangers=spread(strangers),
        look_alikes=spread(look_alikes_that_fit(base, judgement.maps).double().numpy()),
        kept=np.isin(whole.astype(str), KEPT),
        told=told,
    )


def strangers_that_fit(base: EvidenceBase, maps: Sequence[LinearMaps]) -> NDArray[np.float64]:
    """Return (N,) how large a share of random images is at least as alike to each caption as its own image is."""
    data, fits = base.data, torch.zeros(len(base.data.image_of_pair), dtype=torch.float64)
    others = base.witness.images
    drawn = torch.randint(len(others), (STRANGERS,), generator=torch_generator(base.config.seed, "strangers"))
    fold_of_pair = base.fold_of_image[data.image_of_pair]
    for fold, of_fold in enumerate(maps):
        random = of_fold.embed_images(others[drawn])
        for some in torch.split((fold_of_pair == fold).nonzero().squeeze(1), BLOCK):
            u = of_fold.embed_texts(data.texts[some])
            own = (u * of_fold.embed_images(data.images[data.image_of_pair[some]])).sum(dim=1, keepdim=True)
            fits[some] = (u @ random.T >= own).double().mean(dim=1)
    return fits.numpy()


def look_alikes_that_fit(base: EvidenceBase, maps: Sequence[LinearMaps]) -> Tensor:
    """Return (N,) in [0, 1], how often look-alikes fit as well; NaN where an image has none.

    Exchanged captions of similar images are found by it. The mean of two shares, by the linear maps: of the images most
    like the pair's own, those that fit its caption at least as well; of these images' captions, those that fit its
    image at least as well.
    """
    data, witness = base.data, base.witness
    near, known = base.look_alikes(LOOK_ALIKES)

    def judge(of_fold: LinearMaps, pairs: Tensor, v: Tensor, u: Tensor) -> Tensor:
        image = data.image_of_pair[pairs]
        other, place = torch.unique(near[image], return_inverse=True)
        images = of_fold.embed_images(witness.images[witness.image_of_pair[other]])
        texts = of_fold.embed_texts(witness.texts[other])
        own = (v * u).sum(dim=1, keepdim=True)
        fits = [cosines_with(one, others, place) >= own for one, others in ((u, images), (v, texts))]
        return (torch.stack(fits) & known[image]).float().sum(dim=(0, 2)) / (2 * known[image].sum(dim=1))

    every = torch.arange(len(data.image_of_pair))
    return by_folds(judge, maps, base.fold_of_image, data.images, data.texts, data.image_of_pair, every)


def copies(pairs: AuditPairs) -> NDArray[np.bool_]:
    """Return (N,) bool: whether an earlier pair has a copy of the image and the same words."""
    first = np.unique(copy_groups(pairs), return_index=True)[1]
    copies = np.ones(len(pairs.judged), dtype=bool)
    copies[first] = False
    return copies


def copy_groups(pairs: AuditPairs) -> NDArray[np.int64]:
    """Return (N,) int64, equal for judged pairs of copies of one image and the same words."""
    image = pairs.vectors.group_of_image[pairs.vectors.image_of_pair].numpy()
    groups = np.unique(np.stack([image, pairs.same_caption], axis=1), axis=0, return_inverse=True)[1]
    return groups.reshape(-1).astype(np.int64)


def counts(verdicts: Verdicts) -> dict[str, int]:
    """Return verdict → how many rows have it, in the order of `VERDICTS`."""
    found, number = np.unique(verdicts.names, return_counts=True)
    known = dict(zip(found.tolist(), number.tolist(), strict=True))
    return {name: known.get(name, 0) for name in VERDICTS}
