"""The loss of trusted pairs: the field's hinge, or a softmax in which an image has several positives."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from in2r.config import key
from in2r.losses import image_targets, owner_targets, soft_contrast_loss, text_soft_targets, triplet_loss
from in2r.methods.network import Batch, Net
from in2r.models.base import Items

TEXT_VECTORS = "text_vectors"
"""the column that holds a vector of each caption's words"""


@dataclass(frozen=True)
class LossConfig:
    """Section `loss`: what a method that takes it from here asks of pairs that it trusts."""

    kind: Literal["hinge", "softmax"] = key(
        "hinge",
        "hinge: Eq. 2, with the hardest negative (the field's); softmax: cross-entropy over the images and over the "
        "captions of a batch, where all captions of an image are right. ncr, l2rm and sce keep their own losses",
    )
    temperature: float = key(0.05, "softmax: τ, held fast (docs/results/by-hand.md)", low=1e-3)
    text_softness: float = key(
        0.0, "softmax: share of a caption's target that goes to the images of captions like it", low=0, high=1
    )
    text_temperature: float = key(0.1, "softmax: τ of the cosines of caption vectors that say what is alike", low=1e-3)
    text_dim: int = key(
        256, "softmax: dimension of these vectors where captions are words: of TF-IDF after a truncated SVD", low=1
    )

    @property
    def compares_texts(self) -> bool:
        """Say whether captions are compared with each other."""
        return self.kind == "softmax" and self.text_softness > 0

    def beside(self, pairs: int) -> float:
        """Return what a sum over a batch of `pairs` is multiplied by, to stand beside `trusted_loss`.

        The hinge is a sum itself, the softmax a mean.
        """
        return 1.0 if self.kind == "hinge" else 1 / pairs


def trusted_loss(
    net: Net, batch: Batch, images: Items, texts: Items, loss: LossConfig, margin: float, ignore: Tensor | None
) -> Tensor:
    """Return the loss of a batch of pairs that all count as right.

    hinge: Eq. 2, a sum over the batch. softmax: -1/2 [mean_t q_t . log softmax_i(S_it / tau) + mean_i q_i . log
    softmax_t(S_it / tau)] over the n distinct images and the B captions, q_t of `soft_owners`, q_i uniform over what
    points to image i.

    Args:
        net: scores them.
        batch: B pairs.
        images: one for each pair, encoded.
        texts: likewise.
        loss: which loss.
        margin: m of the hinge.
        ignore: (B, B) bool, pairs that are no negatives of each other by the hinge; None: all are.

    Returns:
        A scalar.
    """
    if loss.kind == "hinge":
        return triplet_loss(net.score(images, texts), margin, ignore=ignore)
    first, owner = batch.alike()
    target = soft_owners(batch, owner, len(first), loss)
    logits = net.logits(images[first], texts)
    return soft_contrast_loss(logits, target, image_targets(target), loss.temperature)


def soft_owners(batch: Batch, owner: Tensor, images: int, loss: LossConfig, weights: Tensor | None = None) -> Tensor:
    """Return each caption's target over the images of its batch, Q = (1 - s) H + s K H, s = `text_softness`.

    H is one-hot at the caption's own image, K says which captions of the batch are alike (`text_soft_targets`).

    Args:
        batch: B pairs.
        owner: (B,) int64, each pair's image.
        images: how many there are.
        loss: how much of the target goes to the images of captions that are alike.
        weights: (B,) how much each pair is trusted; None: alike.

    Returns:
        (B, images) float32, each row of sum 1.
    """
    target = owner_targets(owner, images)
    if not loss.compares_texts:
        return target
    vectors = batch.texts[:, 0] if batch.texts.is_floating_point() else batch.column(TEXT_VECTORS)
    return text_soft_targets(target, vectors, loss.text_softness, loss.text_temperature, weights)


def no_negatives(batch: Batch, asked: bool) -> Tensor | None:
    """Return (B, B) bool: pairs that are no negatives of each other, where it is asked for or batches are of images."""
    return same_image(batch) if asked or batch.owner is not None else None


def same_image(batch: Batch) -> Tensor:
    """Return (B, B) bool: which pairs have one image, or captions of the same words where that column is there."""
    alike = batch.groups[:, None] == batch.groups[None, :]
    if "words" not in batch.columns:
        return alike
    words = batch.column("words")
    return alike | (words[:, None] == words[None, :])
