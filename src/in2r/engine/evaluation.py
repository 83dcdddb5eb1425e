"""Recall of a split: network A, network B, and their ensemble, always as three rows."""

import logging
import math
from typing import Any

import torch
from torch import Tensor

from in2r.data.features import Features
from in2r.data.pairs import PairSet
from in2r.data.vocabulary import PackedTokens
from in2r.encode import encode_images, encode_texts
from in2r.encoders import DualEncoder
from in2r.errors import InputError
from in2r.metrics import five_folds, fold_mean, is_collapsed, ranks_from_embeddings, recalls_from_ranks

log = logging.getLogger(__name__)

Rows = dict[str, dict[str, float]]
"""A, B, ensemble → recalls"""


def evaluate_split(
    encoders: dict[str, DualEncoder],
    split: PairSet,
    texts: Features | PackedTokens,
    device: torch.device,
    folds: int = 1,
) -> tuple[Rows, dict[str, Any]]:
    """Return recalls per row, and the health figures of the embeddings.

    The ensemble's similarity is the mean of both networks', as inner products of one vector per item: both
    embeddings side by side, over √2.

    Args:
        encoders: the networks by name.
        split: the images and captions.
        texts: the split's captions as the encoders take them.
        device: where to compute.
        folds: 1 = all at once; 5 = the mean over five contiguous folds (COCO 1K).

    Raises:
        InputError: an embedding is not finite; named by network, split and item.
    """
    images = {name: encode_images(encoder, split.images, device) for name, encoder in encoders.items()}
    captions = {name: encode_texts(encoder, texts, device) for name, encoder in encoders.items()}
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
        images["ensemble"] = _side_by_side(images[a], images[b])
        captions["ensemble"] = _side_by_side(captions[a], captions[b])
    owners = torch.as_tensor(split.image_of_caption)
    rows = {name: _recalls(images[name], captions[name], owners, folds) for name in images}
    return rows, health


def _require_finite(what: str, embeddings: Tensor) -> None:
    bad = ~embeddings.isfinite().all(dim=1)
    if bad.any():
        raise InputError(f"{what} {int(bad.nonzero()[0])} has an embedding that is not finite")


def _side_by_side(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], dim=1) / math.sqrt(2)


def _recalls(images: Tensor, captions: Tensor, owners: Tensor, folds: int) -> dict[str, float]:
    if images.device.type == "mps":  # ranks are counted in float64, which MPS lacks
        images, captions = images.cpu(), captions.cpu()
    parts = five_folds(images, captions, owners, folds)
    return fold_mean([recalls_from_ranks(*ranks_from_embeddings(*part)) for part in parts])
