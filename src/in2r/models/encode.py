"""A whole data set through a backbone: eval mode, no gradient, ordered, in batches."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from in2r.data.features import Features
from in2r.data.text.vocabulary import PackedTokens
from in2r.models.base import Backbone, Items

BATCH = 256
"""Items in one forward pass; embeddings do not depend on it."""


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Hold modules in eval mode without gradients, then give each its mode back."""
    modes = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.train(mode)


def encode_images(backbone: Backbone, images: Features, device: torch.device, items: Tensor | None = None) -> Items:
    """Return all images encoded, or the chosen ones (k,) int64, in their order, on the device."""
    if items is None:
        items = torch.arange(len(images))
    with evaluating(backbone):
        return Items.cat([backbone.encode_images(*images.gather(some, device)) for some in torch.split(items, BATCH)])


def encode_texts(
    backbone: Backbone, texts: Features | PackedTokens, device: torch.device, items: Tensor | None = None
) -> Items:
    """Return all captions encoded, or the chosen ones (k,) int64, in their order, on the device.

    Word sequences run sorted by length, so that little of a batch is padding.
    """
    if items is None:
        items = torch.arange(len(texts))
    order = torch.arange(len(items))
    if isinstance(texts, PackedTokens):
        offsets = torch.as_tensor(texts.offsets)
        order = torch.argsort(offsets[items + 1] - offsets[items], stable=True)
    with evaluating(backbone):
        found = [backbone.encode_texts(*texts.gather(items[some], device)) for some in torch.split(order, BATCH)]
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return Items.cat(found)[back.to(device)]


def side_by_side(networks: Sequence[Tensor]) -> Tensor:
    """Return the ensemble's vectors (N, n D): those of n networks, each (N, D), side by side over √n.

    Of unit norm where they are; an inner product is the mean of the networks' similarities.
    """
    return torch.cat([*networks], dim=1) / math.sqrt(len(networks))
