"""A whole data set through a backbone: eval mode, no gradient, ordered, in batches."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from in2r.data.features import Features
from in2r.data.text.vocabulary import PackedTokens
from in2r.models.base import Backbone, Items
from in2r.processes import ALONE, Processes

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


def encode_images(
    backbone: Backbone,
    images: Features,
    device: torch.device,
    items: Tensor | None = None,
    processes: Processes = ALONE,
) -> Items:
    """Return all images encoded, or the chosen ones (k,) int64, in their order, on the device.

    Where several processes ask for the same ones, each encodes its share of them.
    """
    if items is None:
        items = torch.arange(len(images))
    shared = processes.share(len(items))
    own = items[processes.rows(len(items))] if shared else items
    with evaluating(backbone):
        found = Items.cat([backbone.encode_images(*images.gather(some, device)) for some in torch.split(own, BATCH)])
        return found.over(processes, [len(items)]) if shared else found


def encode_texts(
    backbone: Backbone,
    texts: Features | PackedTokens,
    device: torch.device,
    items: Tensor | None = None,
    processes: Processes = ALONE,
) -> Items:
    """Return all captions encoded, or the chosen ones (k,) int64, in their order, on the device.

    Word sequences run sorted by length, so that little of a batch is padding. Where several processes ask for the same
    ones, each encodes its share of them, of short ones and of long ones.
    """
    if items is None:
        items = torch.arange(len(texts))
    order = torch.arange(len(items))
    if isinstance(texts, PackedTokens):
        offsets = torch.as_tensor(texts.offsets)
        order = torch.argsort(offsets[items + 1] - offsets[items], stable=True)
    shared, own = processes.share(len(items)), order
    if shared:
        order = torch.cat([order[number :: processes.count] for number in range(processes.count)])
        own = order[processes.rows(len(items))]
    with evaluating(backbone):
        found = Items.cat(
            [backbone.encode_texts(*texts.gather(items[some], device)) for some in torch.split(own, BATCH)]
        )
        if shared:
            found = found.over(processes, [len(items)])
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return found[back.to(device)]


def side_by_side(networks: Sequence[Tensor]) -> Tensor:
    """Return the ensemble's vectors (N, n D): those of n networks, each (N, D), side by side over √n.

    Of unit norm where they are; an inner product is the mean of the networks' similarities.
    """
    return torch.cat([*networks], dim=1) / math.sqrt(len(networks))
