"""Recall of a split: one row per network, and one of their ensemble; a single network is its own ensemble."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.text.vocabulary import PackedTokens
from in2r.errors import InputError
from in2r.metrics import Copies, fold_mean, ranks_from_embeddings, recalls_from_ranks, split_copies, split_folds
from in2r.models.base import Backbone
from in2r.models.encode import encode_images, encode_texts, side_by_side

log = logging.getLogger(__name__)

Rows = dict[str, dict[str, float]]
"""network or "ensemble" → recalls"""

COLLAPSED = 0.9999
"""Mean cosine above which embeddings are one vector; an untrained encoder may well stand at 0.99 and still rank."""


def evaluate_split(
    encoders: Mapping[str, Backbone],
    split: PairSet,
    texts: Features | PackedTokens,
    device: torch.device,
    folds: int = 1,
    copies: Copies | None = None,
) -> tuple[Rows, dict[str, Any]]:
    """Return recalls per row, and the health figures of the embeddings.

    The ensemble's similarity is the mean of both networks', as inner products of one vector per item (`side_by_side`).

    Args:
        encoders: the networks by name.
        split: the images and captions.
        texts: the split's captions as the encoders take them.
        device: where to compute.
        folds: 1 = all at once; 5 = the mean over five contiguous folds (COCO 1K).
        copies: which items are identical, so that every copy of a right item is right; None = a copy is a wrong item.

    Raises:
        InputError: an embedding is not finite; named by network, split and item.
    """
    images = {
        name: _countable(encode_images(encoder, split.images, device).vector) for name, encoder in encoders.items()
    }
    captions = {name: _countable(encode_texts(encoder, texts, device).vector) for name, encoder in encoders.items()}
    for name in encoders:
        _require_finite(f"network {name}: {split.name} image", images[name])
        _require_finite(f"network {name}: {split.name} caption", captions[name])
    health: dict[str, Any] = {}
    for name in encoders:
        health[f"collapsed_{name}"] = is_collapsed(images[name]) or is_collapsed(captions[name])
        if health[f"collapsed_{name}"]:
            log.warning("network %s is collapsed: (nearly) all embeddings of a modality are equal", name)
    if len(encoders) == 2:
        a, b = encoders
        health["peer_similarity_image"] = float((images[a] * images[b]).sum(1).mean())
        health["peer_similarity_text"] = float((captions[a] * captions[b]).sum(1).mean())
    images["ensemble"] = side_by_side([images[name] for name in encoders])
    captions["ensemble"] = side_by_side([captions[name] for name in encoders])
    owners = torch.as_tensor(split.image_of_caption)
    rows = {name: _recalls(images[name], captions[name], owners, folds, copies) for name in images}
    return rows, health


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


def _recalls(images: Tensor, captions: Tensor, owners: Tensor, folds: int, copies: Copies | None) -> dict[str, float]:
    parts = split_folds(images, captions, owners, folds)
    inside = split_copies(copies, owners, folds)
    ranks = (ranks_from_embeddings(*part, copies=own) for part, own in zip(parts, inside, strict=True))
    return fold_mean([recalls_from_ranks(*found) for found in ranks])
