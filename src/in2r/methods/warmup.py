"""The losses of a warm-up, on all pairs: symmetric cross-entropy (Eq. 1), or the hinge averaged over all negatives."""

from dataclasses import dataclass

from in2r.losses import group_sce_loss, sce_loss, triplet_loss
from in2r.methods.base import Step
from in2r.methods.contrast import no_negatives
from in2r.methods.network import Batch, Net


@dataclass(frozen=True)
class SceWarmup:
    """L_robust = ½ [L_sce(y, p_i2t) + L_sce(y, p_t2i)] (Eq. 1); in batches of images each has several positives."""

    temperature: float
    """τ"""
    ce_weight: float
    """α"""
    rce_weight: float
    """β"""
    epsilon: float
    """ε"""
    mask_same_image: bool = False
    """in batches of pairs: pairs of one image, or of the same words, are no negatives of each other"""

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the loss of one batch."""
        images, texts = net.encode(batch)[0]
        numbers = self.temperature, self.ce_weight, self.rce_weight, self.epsilon
        if batch.owner is None:
            ignore = no_negatives(batch, self.mask_same_image)
            robust = sce_loss(net.score(images, texts), *numbers, ignore=ignore)
        else:
            first, owner = batch.alike()
            robust = group_sce_loss(net.score(images[first], texts), owner, *numbers)
        return Step({"sce": robust, "total": robust})


@dataclass(frozen=True)
class HingeWarmup:
    """The hinge of Eq. 2, averaged over all negatives: an untrained network does not collapse by it."""

    margin: float
    """m"""

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the loss of one batch."""
        images, texts = net.encode(batch)[0]
        ignore = no_negatives(batch, asked=False)
        loss = triplet_loss(net.score(images, texts), self.margin, negatives="mean", ignore=ignore)
        return Step({"inter": loss, "total": loss})
