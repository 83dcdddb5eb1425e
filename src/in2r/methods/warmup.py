"""The losses of a warm-up, on all pairs: symmetric cross-entropy (Eq. 1), or the hinge averaged over all negatives."""

from dataclasses import dataclass

from torch import Tensor

from in2r.losses import group_sce_loss, sce_loss, triplet_loss
from in2r.methods.base import Method, Step, Warmup
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
    views: bool = False
    """also between two dropout views of the images, and of the captions (released code)"""

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the loss of one batch."""
        (images, texts), *again = net.encode(batch, batch) if self.views else net.encode(batch)
        if batch.owner is None:
            ignore = no_negatives(batch, self.mask_same_image)
            robust = sce_loss(net.logits(images, texts), *self._numbers, ignore=ignore)
        else:
            first, owner = batch.alike()
            robust = group_sce_loss(net.logits(images[first], texts), owner, *self._numbers)
        losses = {"sce": robust, "total": robust}
        for v, u in again:
            losses |= self._between_views(batch, (images.vector, texts.vector), (v.vector, u.vector))
            losses["total"] = robust + losses["sce_images"] + losses["sce_texts"]
        return Step(losses)

    @property
    def _numbers(self) -> tuple[float, float, float, float]:
        return self.temperature, self.ce_weight, self.rce_weight, self.epsilon

    def _between_views(
        self, batch: Batch, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """Return Eq. 1 between two views of each image, and of each caption; each is (images, texts), (B, D) each."""
        ignore = no_negatives(batch, self.mask_same_image or batch.owner is not None)
        (v, u), (v_drop, u_drop) = one, other
        if batch.owner is not None:  # each image once
            first, _ = batch.alike()
            images = sce_loss(v[first] @ v_drop[first].T, *self._numbers)
        else:
            images = sce_loss(v @ v_drop.T, *self._numbers, ignore=ignore)
        return {"sce_images": images, "sce_texts": sce_loss(u @ u_drop.T, *self._numbers, ignore=ignore)}


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


COMMON_WARMUP = SceWarmup(temperature=0.05, ce_weight=1.0, rce_weight=1.0, epsilon=1e-7)
"""of `method.common_warmup`: IN²R's own with its defaults, so that IN²R itself needs no other one"""


def warmup_of(method: Method) -> tuple[int, Warmup | None]:
    """Return the epochs and the loss of a run's warm-up: the common one where it is asked for, else the method's own.

    In the main phase, epochs without a division have the loss of the method's own warm-up in either case.
    """
    epochs: int | None = method.config.common_warmup
    return method.warmup() if epochs is None else (epochs, COMMON_WARMUP)
