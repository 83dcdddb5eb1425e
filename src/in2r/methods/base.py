"""What a method is made of, and what the engine asks of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from in2r.memory import MemoryBank, Neighbors
from in2r.models.dual import DualEncoder

ENDLESS = 10**9
"""an epoch that comes after any warm-up"""


@dataclass(frozen=True)
class Batch:
    """B pairs, ready for the encoders: values on the device, what is known of them without it on the CPU."""

    pairs: Tensor
    """(B,) int64, which training pairs these are"""
    groups: Tensor
    """(B,) int64, the image of each pair as given (after any injected noise)"""
    images: Tensor
    """(B, regions, dim) float32"""
    image_mask: Tensor | None
    """(B, regions) bool on the CPU, None = all are real"""
    texts: Tensor
    """(B, tokens) int64 word ids, or (B, 1, dim) float32 caption vectors"""
    text_mask: Tensor | None
    """(B, tokens) bool on the CPU, None = all are real"""
    elite: Tensor | None = None
    """(n,) int64, which rows have a clean probability above τ_dyn; None outside a clean set"""
    words: Tensor | None = None
    """(B,) int64, equal for captions of the same words; only with `method.mask_same_image`, and captions as words"""
    hidden: dict[str, tuple[Tensor, Tensor]] | None = None
    """"image" and "text" → groups (B,) and pairs (B, n) that such a query may not find (negative = none); only with
    `noise.hide_original`, an analysis that uses the truth"""


class Peer(nn.Module):
    """One of the two networks: encoders, and what a method keeps beside them."""

    def __init__(self, encoder: DualEncoder, refiners: nn.ModuleDict, memory: MemoryBank | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.refiners = refiners
        self.memory = memory

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the unit-norm image and text embeddings v, u, each (B, D)."""
        return self.embed_each(batch)[0]

    def embed_each(self, *batches: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return v, u of each batch, by one pass through each encoder; given twice, a batch has two dropout masks.

        In training each batch has its own batch statistics, as if they were embedded one after the other.
        """
        parts = [len(batch.pairs) for batch in batches]
        images = _joined([(batch.images, batch.image_mask) for batch in batches])
        texts = _joined([(batch.texts, batch.text_mask) for batch in batches])
        v, u = self.encoder.encode_images(*images, parts).vector, self.encoder.encode_texts(*texts, parts).vector
        return list(zip(torch.split(v, parts), torch.split(u, parts), strict=True))


def _joined(sets: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """Put sets (B, K, ...) of several batches below each other, padded to the largest K."""
    if len(sets) == 1:
        return sets[0]
    longest = max(values.shape[1] for values, _ in sets)
    masked = any(mask is not None or values.shape[1] < longest for values, mask in sets)
    masks = [torch.ones(values.shape[:2], dtype=torch.bool) if mask is None else mask for values, mask in sets]
    joined = torch.cat([_padded(values, longest) for values, _ in sets])
    return joined, torch.cat([_padded(mask, longest) for mask in masks]) if masked else None


def _padded(values: Tensor, length: int) -> Tensor:
    """Fill up the second dimension with zeros."""
    missing = length - values.shape[1]
    return values if missing == 0 else torch.cat([values, values.new_zeros(len(values), missing, *values.shape[2:])], 1)


@dataclass
class Step:
    """What one training step of one network gives back."""

    losses: dict[str, Tensor]
    """named losses, scalars; `total` is the one to minimise"""
    keep: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    """images, texts, pairs, groups to push into the network's own memory after the step"""
    near_images: Neighbors | None = None
    """neighbours found for the noisy images (their texts were fused)"""
    near_texts: Neighbors | None = None
    """neighbours found for the noisy texts (their images were fused)"""
    notes: dict[str, float | Tensor] = field(default_factory=dict)
    """counts for the health record, such as steps without rectification"""


class Method(Protocol):
    """The contract between a method and the engine.

    A method makes losses out of batches; it never reads files, steps an optimiser, or knows the truth.
    """

    name: str

    def parts(self, dim: int) -> tuple[nn.ModuleDict, MemoryBank | None]:
        """Make the refiners and the memory of one network."""
        ...

    def needs_partition(self, epoch: int) -> bool:
        """Say whether this epoch (from 0) trains on a clean and a noisy set, or on all pairs alike."""
        ...

    def warmup(self) -> tuple[int, dict[str, Any]]:
        """Return the number of warm-up epochs, and what decides their loss: methods that agree in it begin alike."""
        ...

    def all_pairs_step(self, net: Peer, batch: Batch, epoch: int) -> Step:
        """Make the losses of one batch drawn from all pairs."""
        ...

    def partition_step(self, net: Peer, peer: Peer, clean: Batch, noisy: Batch | None) -> Step:
        """Make the losses of one clean and one noisy batch."""
        ...

    def sample_losses(self, similarity: Tensor) -> dict[str, Tensor]:
        """Return the named per-sample losses (B,) of a batch (B, B); one of them makes the partition."""
        ...

    def prefill(self) -> Literal["elite", "clean"] | None:
        """Say which pairs of the first partition fill the memories; None = none."""
        ...
