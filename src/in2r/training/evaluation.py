"""Recall of a split: one row per network, and one of their ensemble; a single network is its own ensemble."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import PackedTokens
from in2r.errors import InputError
from in2r.metrics import Copies, chance_recalls, fold_mean, recalls_from_ranks, split_copies, split_folds
from in2r.models.base import Backbone, Items
from in2r.models.blocks import Means, ranks_of_each
from in2r.models.encode import encode_images, encode_texts
from in2r.processes import ALONE, Processes
from in2r.transfer import send

log = logging.getLogger(__name__)

Rows = dict[str, dict[str, float]]
"""network or "ensemble" → recalls"""

COLLAPSED = 0.9999
"""Mean cosine above which embeddings are one vector; an untrained encoder may have 0.99 and still rank."""
AT_CHANCE = 0.4
"""Place of the right image, from 0 (always first) to 1 (always last), from which a network ranks as if at random: a
random order has 0.5; unlike recall at 10 this does not depend on the number of images."""
AT_MOST = 2.0
"""rSum of such a network, as a multiple of a random order's"""
ADVICE = (
    "train again with a smaller train.learning_rate, a longer warm-up if the method has one, more steps in an epoch "
    "(a smaller train.batch_size), or more pairs"
)


def evaluate_split(
    backbones: Mapping[str, Backbone],
    split: PairSet,
    texts: Features | PackedTokens,
    device: torch.device,
    folds: int = 1,
    copies: Copies | None = None,
    processes: Processes = ALONE,
) -> tuple[Rows, dict[str, Any]]:
    """Return recalls per row, and the health figures of the embeddings.

    The ensemble's similarity is the mean of the networks'; of one network it is that network's.

    Args:
        backbones: the networks by name.
        split: the images and captions.
        texts: the split's captions as the encoders take them.
        device: where to compute.
        folds: 1 = all at once; 5 = the mean over five contiguous folds (COCO 1K).
        copies: which items are identical, so that every copy of a right item is right; None = a copy is a wrong item.
        processes: those that evaluate it together.

    Raises:
        InputError: an embedding is not finite; named by network, split and item.
    """
    encoded = {name: encode_split(name, net, split, texts, device, processes) for name, net in backbones.items()}
    images, captions = ({name: both[side] for name, both in encoded.items()} for side in (0, 1))
    found = recalls_of(list(backbones.values()), list(encoded.values()), split, folds, copies, processes=processes)
    rows = dict(zip([*backbones, "ensemble"], [*found, dict(found[0])] if len(found) == 1 else found, strict=True))
    several = len(backbones) > 1
    in_fold, owners = len(split.images) // folds, np.asarray(split.image_of_caption)
    chance = chance_recalls(owners[owners < in_fold], in_fold)["rsum"]
    health: dict[str, Any] = {}
    for name in backbones:
        v, u = images[name].vector, captions[name].vector
        health[f"collapsed_{name}"] = is_collapsed(v) or is_collapsed(u)
        if health[f"collapsed_{name}"]:
            log.warning("network %s is collapsed: (nearly) all embeddings of a modality are equal; %s", name, ADVICE)
        health[f"at_chance_{name}"] = is_at_chance(rows[name], in_fold, chance)
    if several:
        for side, items in (("image", images), ("text", captions)):
            a, b = (items[name].vector for name in backbones)
            health[f"peer_similarity_{side}"] = float((a * b).sum(1).mean())
    return rows, health


def encode_split(
    name: str,
    backbone: Backbone,
    split: PairSet,
    texts: Features | PackedTokens,
    device: torch.device,
    processes: Processes = ALONE,
) -> tuple[Items, Items]:
    """Return all images and captions of a split, encoded where ranks can be counted.

    Raises:
        InputError: an embedding is not finite; named by network, split and item.
    """
    images = _countable(encode_images(backbone, split.images, device, processes=processes))
    captions = _countable(encode_texts(backbone, texts, device, processes=processes))
    _require_finite(f"network {name}: {split.name} image", images.vector)
    _require_finite(f"network {name}: {split.name} caption", captions.vector)
    return images, captions


def is_at_chance(recalls: dict[str, float], images: int, rsum_by_chance: float) -> bool:
    """Tell whether right items are found no better among `images` (2 or more) than in a random order.

    The mean place of a right image is (t2i_meanr - 1) / (images - 1): 0.5 for a random order, 1 for a collapsed
    network, since a tie counts against it. A network that finds the captions of an image may still place images badly,
    so rSum must be low, too.
    """
    badly_placed = (recalls["t2i_meanr"] - 1) / (images - 1) >= AT_CHANCE
    return badly_placed and recalls["rsum"] < AT_MOST * rsum_by_chance


def failures(health: dict[str, Any]) -> list[str]:
    """Name the networks that have learnt nothing, and what to do; an empty list if there is none.

    Args:
        health: of `evaluate_split`, or an epoch's record, which holds it.
    """
    collapsed = [name for name in "AB" if health.get(f"collapsed_{name}")]
    lost = [name for name in "AB" if health.get(f"at_chance_{name}") and name not in collapsed]
    found = [
        f"network {' and '.join(names)}: {what}"
        for names, what in ((collapsed, "collapsed, all embeddings are equal"), (lost, "no better than a random order"))
        if names
    ]
    return [f"NOTHING LEARNT: {'; '.join(found)}; {ADVICE}"] if found else []


def is_collapsed(embeddings: Tensor) -> bool:
    """Tell whether (nearly) all embeddings (N, D) are one vector, or zero; fewer than two rows never are."""
    nothing = embeddings.square().sum(1) < 0.5
    return mean_pairwise_cosine(embeddings) > COLLAPSED or float(nothing.double().mean()) > COLLAPSED


def mean_pairwise_cosine(embeddings: Tensor) -> float:
    """Return the mean cosine of all pairs of different rows, from the norm of the mean vector: O(N·D).

    Args:
        embeddings: (N, D) of unit norm.

    Returns:
        (|sum of rows|² - N) / (N (N - 1)), in [-1, 1]; NaN for fewer than two rows.
    """
    count = len(embeddings)
    if count < 2:
        return float("nan")
    total = embeddings.double().sum(dim=0)
    return (float(total @ total) - count) / (count * (count - 1))


def _countable(items: Items) -> Items:
    """Return the items where float64 is to be had, in which ranks are counted: MPS lacks it."""
    return items.to(torch.device("cpu")) if items.vector.device.type == "mps" else items


def _require_finite(what: str, embeddings: Tensor) -> None:
    bad = ~embeddings.isfinite().all(dim=1)
    if bad.any():
        raise InputError(f"{what} {int(bad.nonzero()[0])} has an embedding that is not finite")


def recalls_of(
    backbones: Sequence[Backbone],
    encoded: Sequence[tuple[Items, Items]],
    split: PairSet,
    folds: int,
    copies: Copies | None,
    means: Means | None = None,
    processes: Processes = ALONE,
) -> list[dict[str, float]]:
    """Return the recalls of each network, and then of each mean similarity.

    Args:
        backbones: the networks.
        encoded: each one's images and captions, from `encode_split`.
        split: the images and captions.
        folds: as in `evaluate_split`.
        copies: likewise.
        means: as in `ranks_of_each`.
        processes: likewise.
    """
    owners = np.asarray(split.image_of_caption)
    parts = split_folds(np.arange(len(split.images)), np.arange(len(owners)), owners, folds)
    found: list[list[dict[str, float]]] = []
    for (rows, columns, owner), own in zip(parts, split_copies(copies, owners, folds), strict=True):
        v, u = [_at(images, rows) for images, _ in encoded], [_at(captions, columns) for _, captions in encoded]
        each = ranks_of_each(backbones, v, u, owner, copies=own, means=means, processes=processes)
        found.append([recalls_from_ranks(*places) for places in each])
    return [fold_mean(list(row)) for row in zip(*found, strict=True)]


def _at(items: Items, places: NDArray[np.int64]) -> Items:
    """Return the items at ascending places (k,); all of them without a copy."""
    return items if len(places) == len(items) else items[send(torch.from_numpy(places), items.vector.device)]
