"""A whole data set through an encoder: eval mode, no gradient, ordered, in batches."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from in2r.data.features import Features
from in2r.data.vocabulary import PackedTokens
from in2r.encoders import DualEncoder

BATCH = 256
"""Items in one forward pass; embeddings do not depend on it."""


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Hold a module in eval mode without gradients, then give it back its mode."""
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(was_training)


def encode_images(encoder: DualEncoder, images: Features, device: torch.device) -> Tensor:
    """Return the unit-norm embeddings (images, D) of all items, on the device."""
    with evaluating(encoder):
        parts = [
            encoder.encode_images(*images.gather(items, device))
            for items in torch.split(torch.arange(len(images)), BATCH)
        ]
    return torch.cat(parts)


def encode_texts(
    encoder: DualEncoder, texts: Features | PackedTokens, device: torch.device, items: Tensor | None = None
) -> Tensor:
    """Return the unit-norm embeddings (captions, D) of all captions, or of the chosen items, in their order.

    Word sequences run sorted by length, so that little of a batch is padding.
    """
    if items is None:
        items = torch.arange(len(texts))
    order = torch.arange(len(items))
    if isinstance(texts, PackedTokens):
        offsets = torch.as_tensor(texts.offsets)
        order = torch.argsort(offsets[items + 1] - offsets[items], stable=True)
    with evaluating(encoder):
        parts = [encoder.encode_texts(*texts.gather(items[some], device)) for some in torch.split(order, BATCH)]
    result = torch.empty_like(parts[0]).new_empty(len(items), parts[0].shape[1])
    result[order.to(device)] = torch.cat(parts)
    return result


def side_by_side(networks: Sequence[Tensor]) -> Tensor:
    """Return the ensemble's vectors (N, n D): those of n networks, each (N, D), side by side over √n.

    Of unit norm where they are; an inner product is the mean of the networks' similarities.
    """
    return torch.cat([*networks], dim=1) / math.sqrt(len(networks))
