"""What a method is made of, and what the engine asks of it."""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from in2r.encoders import DualEncoder
from in2r.memory import MemoryBank, Neighbors

ENDLESS = 10**9
"""an epoch that comes after any warm-up"""


@dataclass(frozen=True)
class Batch:
    """B pairs, ready for the encoders."""

    pairs: Tensor
    """(B,) int64, which training pairs these are"""
    groups: Tensor
    """(B,) int64, the image of each pair as given (after any injected noise)"""
    images: Tensor
    """(B, regions, dim) float32"""
    image_mask: Tensor | None
    """(B, regions) bool, None = all are real"""
    texts: Tensor
    """(B, tokens) int64 word ids, or (B, 1, dim) float32 caption vectors"""
    text_mask: Tensor | None
    """(B, tokens) bool, None = all are real"""
    elite: Tensor | None = None
    """(B,) bool, clean probability above τ_dyn; None outside a clean set"""
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
        """Return the unit-norm image and text embeddings v, u, each (B, D), of one forward pass."""
        v = self.encoder.encode_images(batch.images, batch.image_mask)
        u = self.encoder.encode_texts(batch.texts, batch.text_mask)
        return v, u


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
