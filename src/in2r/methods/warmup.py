"""The losses of a warm-up, on all pairs: symmetric cross-entropy (Eq. 1), or the hinge averaged over all negatives."""

from dataclasses import dataclass

from torch import Tensor

from in2r.losses import sce_loss, triplet_loss
from in2r.methods.base import Step
from in2r.methods.network import Batch, Net


@dataclass(frozen=True)
class SceWarmup:
    """L_robust = ½ [L_sce(y, p_i2t) + L_sce(y, p_t2i)] (Eq. 1)."""

    temperature: float
    """τ"""
    ce_weight: float
    """α"""
    rce_weight: float
    """β"""
    epsilon: float
    """ε"""
    mask_same_image: bool = False
    """pairs of one image, or of the same words, are no negatives of each other"""

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the loss of one batch."""
        images, texts = net.encode(batch)[0]
        ignore = same_image(batch) if self.mask_same_image else None
        robust = sce_loss(
            net.score(images, texts), self.temperature, self.ce_weight, self.rce_weight, self.epsilon, ignore=ignore
        )
        return Step({"sce": robust, "total": robust})


@dataclass(frozen=True)
class HingeWarmup:
    """The hinge of Eq. 2, averaged over all negatives: an untrained network does not collapse by it."""

    margin: float
    """m"""

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the loss of one batch."""
        images, texts = net.encode(batch)[0]
        loss = triplet_loss(net.score(images, texts), self.margin, negatives="mean")
        return Step({"inter": loss, "total": loss})


def same_image(batch: Batch) -> Tensor:
    """Return (B, B) bool: which pairs have one image, or captions of the same words where that column is there."""
    alike = batch.groups[:, None] == batch.groups[None, :]
    if "words" not in batch.columns:
        return alike
    words = batch.column("words")
    return alike | (words[:, None] == words[None, :])
