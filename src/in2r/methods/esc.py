"""ESC: exchanging the captions of two right pairs, or their images, must change the similarity alike.

"Robust Noisy Correspondence Learning with Equivariant Similarity Consistency", Yang et al., CVPR 2024. It is BiCro with
one term more. Read top to bottom: settings, warm-up, division, labels, steps. S is the similarity of a batch (B, B),
rows are images; m the margin; l_i the hinge of pair i averaged over its negatives; a the anchor, the pair of the
largest S_ii; e_i how far pair i is from consistent with it; y in [0, 1] a soft label. Equation numbers are those of
docs/methods/esc.md, which maps each to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from in2r.config import key
from in2r.layers.mlp import unit_norm
from in2r.layers.pooling import masked_mean
from in2r.losses import soft_margin_triplet_loss, triplet_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import Belief, Division, divide_by_mixture, exchange, fit_gaussians
from in2r.methods.network import Batch, Net
from in2r.models.base import Items
from in2r.models.encode import evaluating
from in2r.partition import Fit, fit_two_betas
from in2r.transfer import at_least_float32

DIVISION_LOSS = "hinge-and-equivariance"
"""the per-sample loss, Eq. 3"""
PAIRS_PER_ANCHOR = 10
"""one pair of ten, and one more, are anchors of the soft labels (released code)"""
EPSILON = 1e-8
"""added to the norm in Eq. 2 (released code)"""


@dataclass(frozen=True)
class EscConfig(MethodConfig):
    """Section `method` for name = esc."""

    name: str = key("esc", "the method")
    warmup_epochs: int = key(10, "epochs of warm-up on all pairs (BiCro's scripts; ESC has none)", low=0)
    warmup_rate: float = key(
        0.3,
        "share of a batch, the pairs of the lowest loss, that the warm-up learns from (BiCro's scripts for all data "
        "sets and all noise ratios)",
        above=0,
        high=1,
    )
    margin: float = key(0.2, "margin m of the hinge (BiCro)", above=0)
    curve_base: float = key(10.0, "base of the exponential curve by which a label becomes a margin (BiCro)", above=1)
    margins: Literal["own", "released"] = key(
        "own", "the margin of a hinge is that of its own pair, or that of its caption in both directions (released)"
    )
    mixture: Literal["beta", "gaussian"] = key(
        "beta", "the two components that are fitted to the losses (BiCro's scripts: Betas)"
    )
    division_weight: float = key(0.5, "weight of e_i in the loss that divides the pairs (released code)", low=0)
    regulariser: Literal["normalised", "hinged"] = key(
        "normalised",
        "what the third step minimises: e_i (released code), or [(S_ai - S_ia)^2 - tolerance]_+ (a later paper of the "
        "group)",
    )
    regulariser_weight: float = key(
        1.0, "weight of that step's loss (released code: 1; hinged: 0.2); 0: no step", low=0
    )
    tolerance: float = key(0.04, "regulariser hinged: squared difference that costs nothing (the later paper)", low=0)
    label_threshold: float = key(0.5, "soft labels up to this one become 0 (BiCro's scripts)", low=0, high=1)
    noisy_from: float = key(
        0.5, "share of the main phase after which noisy pairs are trained on too (released code: half)", low=0, high=1
    )


@dataclass(frozen=True)
class LowestHingesWarmup:
    """The sum of the lowest l_i of a batch (Eq. 1): wrong pairs mostly have higher ones."""

    margin: float
    """m"""
    rate: float
    """share of the batch that is kept, at least one pair"""

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the loss of one batch."""
        images, texts = net.encode(batch)[0]
        ignore = no_negatives(batch, asked=False)
        hinge = triplet_loss(net.score(images, texts), self.margin, negatives="mean", reduction="none", ignore=ignore)
        kept = max(1, int(self.rate * len(hinge)))
        loss = hinge.topk(kept, largest=False).values.sum()
        return Step({"inter": loss, "total": loss})


class Esc(Method):
    """Two networks; each divides the pairs for the other and gives it soft labels."""

    Config = EscConfig
    config: EscConfig
    networks = 2
    sets = (Walk("clean"), Walk("noisy"))
    one_sided = "e_i is normalised over the captions that an image is compared with, not over images (released code)"

    def warmup(self) -> tuple[int, LowestHingesWarmup]:
        """Return the warm-up: the lowest hinges of each batch (Eq. 1)."""
        return self.config.warmup_epochs, LowestHingesWarmup(self.config.margin, self.config.warmup_rate)

    # --- division: two components on hinge and deviation from equivariance; a network trains on its peer's

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return l_i + 0.5 e_i (Eq. 3)."""
        c, similarity = self.config, net.score(images, texts)
        hinge = triplet_loss(similarity, c.margin, negatives="mean", reduction="none")
        return {DIVISION_LOSS: hinge + c.division_weight * equivariance_error(similarity)}

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give each network its peer's clean and noisy set."""
        p, verdicts = self.partition, {}
        for name, own in seen.items():
            losses = own[DIVISION_LOSS]
            gaussians = fit_gaussians(losses, p)
            fit: Fit = gaussians
            if self.config.mixture == "beta":
                fit = fit_two_betas(
                    losses, p.max_iter, minimum_separation=0, clean="lower_mean", histogram_from=p.histogram_from
                )
            # no bound on the separation of two Betas tells one group from two: two Gaussians say whether there are two
            belief = Belief.of(gaussians, own.mismatched[DIVISION_LOSS], p)
            verdicts[name] = divide_by_mixture(
                DIVISION_LOSS, losses, fit, belief, data.pairs, len(data.image_of_pair), p, name
            )
        return exchange(verdicts)

    # --- steps: the peer's labels first; then noisy pairs in the second half, clean pairs, consistency of clean pairs

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step on a noisy batch (from the middle on), on a clean one, and on the consistency of the clean one."""
        clean = batches["clean"]
        noisy = batches.get("noisy") if now.epoch >= int(self.config.noisy_from * now.epochs) else None
        with evaluating(peer):
            y_clean, y_noisy = self._labels(peer, clean, noisy)
        if noisy is not None and y_noisy is not None:
            yield self._step(net, noisy, y_noisy, "noisy")
        yield self._step(net, clean, y_clean, "clean")
        if self.config.regulariser_weight > 0:
            yield self._regulariser(net, clean)

    def _labels(self, peer: Net, clean: Batch, noisy: Batch | None) -> tuple[Tensor, Tensor | None]:
        """Return the soft labels (Eq. 4) of the clean and of the noisy pairs, by the anchors of the clean batch."""
        encoded = peer.encode(*[batch for batch in (clean, noisy) if batch is not None])
        anchors = trusted_pairs(peer.score(*encoded[0]), self.config.margin, no_negatives(clean, asked=False))
        near = tuple(whole_vectors(items[anchors]) for items in encoded[0])
        agreement = [
            mean_agreement(whole_vectors(images), whole_vectors(texts), near[0], near[1]) for images, texts in encoded
        ]
        y_clean = self._above_threshold((0.5 + agreement[0] / 2).index_fill(0, anchors, 1.0))
        return y_clean, None if noisy is None else self._above_threshold(agreement[1])

    def _above_threshold(self, labels: Tensor) -> Tensor:
        return labels.masked_fill(labels <= self.config.label_threshold, 0.0)

    def _step(self, net: Net, batch: Batch, labels: Tensor, name: str) -> Step:
        """L = Σ_i max_j [m(y_i) + S_ij - S_ii]_+ + Σ_j max_i [m(y_j) + S_ij - S_jj]_+ (Eq. 5)."""
        c = self.config
        similarity, ignore = net.score(*net.encode(batch)[0]), no_negatives(batch, asked=False)
        if c.margins == "released":  # of the captions that are rows now, the margin is theirs in both directions
            similarity = similarity.T
        loss = soft_margin_triplet_loss(
            similarity, labels, c.margin, "exponential", c.curve_base, c.margins, ignore=ignore
        )
        return Step({name: loss, "total": loss}, notes={f"label_{name}": labels.mean()})

    def _regulariser(self, net: Net, clean: Batch) -> Step:
        """L_eq = Σ_i e_i (Eq. 6), or its hinged form; after the step on the clean batch, on the same pairs."""
        c, similarity = self.config, net.score(*net.encode(clean)[0])
        if c.regulariser == "normalised":
            error = equivariance_error(similarity)
        else:
            row, column = _through_anchor(similarity)
            error = ((row - column).square() - c.tolerance).clamp(min=0)
        loss = error.sum()
        return Step({"equivariance": loss, "total": c.regulariser_weight * loss})


def equivariance_error(similarity: Tensor) -> Tensor:
    """Return how far each pair of a batch is from equivariance with the surest pair.

    Eq. 2: a = argmax_i S_ii; D_ij = S_aj - S_ia; e_i = [D_ii / (||D_i.||_2 + 1e-8)]^2.

    Args:
        similarity: (B, B) S, rows are images, the diagonal is the given pairs.

    Returns:
        (B,) e in [0, 1], in at least float32; 0 of the anchor. Gradients flow to S.
    """
    row, column = _through_anchor(similarity)
    difference = row[None, :] - column[:, None]
    tiny = torch.finfo(difference.dtype).tiny  # a row of zeros, as of a batch of one, has a gradient of 0 and not NaN
    norm = difference.square().sum(dim=1).clamp(min=tiny).sqrt()
    return ((row - column) / (norm + EPSILON)).square()


def _through_anchor(similarity: Tensor) -> tuple[Tensor, Tensor]:
    """Return S_a. (B,), the anchor's image with all captions, and S_.a (B,), all images with its caption."""
    sims = at_least_float32(similarity)
    anchor = sims.diagonal().argmax(dim=0, keepdim=True)
    return sims[anchor].squeeze(0), sims[:, anchor].squeeze(1)


def trusted_pairs(similarity: Tensor, margin: float, ignore: Tensor | None = None) -> Tensor:
    """Return the anchors of Eq. 4: the floor(B/10) + 1 pairs of the largest q_i = clamp(m - l_i / 2, 0, m).

    Args:
        similarity: (B, B) S.
        margin: m.
        ignore: (B, B) bool; entries that are no negatives.

    Returns:
        (k,) int64. q falls as l_i rises, so these are the pairs of the smallest l_i; those beyond 2 m, where q is 0 and
        tells nothing, keep that order.
    """
    hinge = triplet_loss(similarity.detach(), margin, negatives="mean", reduction="none", ignore=ignore)
    return hinge.topk(len(hinge) // PAIRS_PER_ANCHOR + 1, largest=False).indices


def whole_vectors(items: Items) -> Tensor:
    """Return g (n, D), unit norm: the mean of an item's regions or words; its embedding where it has no parts."""
    return unit_norm(items.vector if items.parts is None else masked_mean(items.parts, items.mask))


def mean_agreement(images: Tensor, texts: Tensor, anchor_images: Tensor, anchor_texts: Tensor) -> Tensor:
    """Return (r^I_i + r^T_i) / 2: how far images and captions agree on the likeness of a pair and an anchor (Eq. 4).

    r^I_i = ratio(cos(g^I_i, g^I_a), cos(g^T_i, g^T_a)), a the anchor whose image is the most alike; r^T_i the same with
    the anchor whose caption is.

    Args:
        images: (n, D) g^I, unit norm.
        texts: (n, D) g^T, unit norm.
        anchor_images: (k, D), unit norm.
        anchor_texts: (k, D), unit norm.

    Returns:
        (n,) in [0, 1].
    """
    by_images, by_texts = images @ anchor_images.T, texts @ anchor_texts.T
    found = []
    for own, other in ((by_images, by_texts), (by_texts, by_images)):
        nearest = own.argmax(dim=1, keepdim=True)
        found.append(ratio(own.gather(1, nearest), other.gather(1, nearest)).squeeze(1))
    return (found[0] + found[1]) / 2


def ratio(one: Tensor, other: Tensor) -> Tensor:
    """Return one / other or other / one, whichever is below 1.

    Departs from the released code: values of two signs, whose ratio is negative, and two zeros give 0, not a number
    outside [0, 1] or NaN.
    """
    larger = torch.maximum(one.abs(), other.abs())
    found = torch.minimum(one.abs(), other.abs()) / larger.clamp(min=torch.finfo(larger.dtype).tiny)
    return found * (one * other > 0)
