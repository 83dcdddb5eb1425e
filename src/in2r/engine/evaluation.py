"""Recall of a split: network A, network B, and their ensemble, always as three rows."""

import logging
from typing import Any

import torch
from torch import Tensor

from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.vocabulary import PackedTokens
from in2r.encode import encode_images, encode_texts, side_by_side
from in2r.encoders import DualEncoder
from in2r.errors import InputError
from in2r.metrics import fold_mean, ranks_from_embeddings, recalls_from_ranks, split_folds

log = logging.getLogger(__name__)

Rows = dict[str, dict[str, float]]
"""A, B, ensemble → recalls"""

COLLAPSED = 0.9999
"""Mean cosine above which embeddings are one vector; an untrained encoder may well stand at 0.99 and still rank."""

AT_CHANCE = 0.4
"""Place of the right image, from 0 (always first) to 1 (always last), from which a network ranks as if at random: a
random order has 0.5; unlike recall at 10 this does not depend on the number of images."""
ADVICE = "train anew with a smaller train.learning_rate, or with a longer warm-up (method.warmup_epochs)"


def evaluate_split(
    encoders: dict[str, DualEncoder],
    split: PairSet,
    texts: Features | PackedTokens,
    device: torch.device,
    folds: int = 1,
) -> tuple[Rows, dict[str, Any]]:
    """Return recalls per row, and the health figures of the embeddings.

    The ensemble's similarity is the mean of both networks', as inner products of one vector per item (`side_by_side`).

    Args:
        encoders: the networks by name.
        split: the images and captions.
        texts: the split's captions as the encoders take them.
        device: where to compute.
        folds: 1 = all at once; 5 = the mean over five contiguous folds (COCO 1K).

    Raises:
        InputError: an embedding is not finite; named by network, split and item.
    """
    images = {name: _countable(encode_images(encoder, split.images, device)) for name, encoder in encoders.items()}
    captions = {name: _countable(encode_texts(encoder, texts, device)) for name, encoder in encoders.items()}
    for name in encoders:
        _require_finite(f"network {name}: {split.name} image", images[name])
        _require_finite(f"network {name}: {split.name} caption", captions[name])
    health: dict[str, Any] = {}
    for name in encoders:
        health[f"collapsed_{name}"] = is_collapsed(images[name]) or is_collapsed(captions[name])
        if health[f"collapsed_{name}"]:
            log.warning("network %s is collapsed: (nearly) all embeddings of a modality are equal; %s", name, ADVICE)
    if len(encoders) == 2:
        a, b = encoders
        health["peer_similarity_image"] = float((images[a] * images[b]).sum(1).mean())
        health["peer_similarity_text"] = float((captions[a] * captions[b]).sum(1).mean())
        images["ensemble"] = side_by_side([images[a], images[b]])
        captions["ensemble"] = side_by_side([captions[a], captions[b]])
    owners = torch.as_tensor(split.image_of_caption)
    rows = {name: _recalls(images[name], captions[name], owners, folds) for name in images}
    for name in encoders:
        health[f"at_chance_{name}"] = is_at_chance(rows[name], len(split.images) // folds)
    return rows, health


def is_at_chance(recalls: dict[str, float], images: int) -> bool:
    """Tell whether the right image stands no better among `images` (2 or more) than in a random order, on average.

    Its mean place is (t2i_meanr - 1) / (images - 1): 0.5 for a random order, 1 for a collapsed network, since a tie
    counts against it.
    """
    return (recalls["t2i_meanr"] - 1) / (images - 1) >= AT_CHANCE


def failures(health: dict[str, Any]) -> list[str]:
    """Say which networks have learnt nothing, and what to do about it; nothing where all went well.

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


def _countable(embeddings: Tensor) -> Tensor:
    """Return the embeddings where float64 is to be had, in which ranks are counted: MPS lacks it."""
    return embeddings.cpu() if embeddings.device.type == "mps" else embeddings


def _require_finite(what: str, embeddings: Tensor) -> None:
    bad = ~embeddings.isfinite().all(dim=1)
    if bad.any():
        raise InputError(f"{what} {int(bad.nonzero()[0])} has an embedding that is not finite")


def _recalls(images: Tensor, captions: Tensor, owners: Tensor, folds: int) -> dict[str, float]:
    parts = split_folds(images, captions, owners, folds)
    return fold_mean([recalls_from_ranks(*ranks_from_embeddings(*part)) for part in parts])
