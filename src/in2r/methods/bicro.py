"""BiCro: a pair is right as far as its image and its caption are equally like those of a trusted pair.

"BiCro: Noisy Correspondence Rectification for Multi-modality Data via Bi-directional Cross-modal Similarity
Consistency", Yang et al., CVPR 2023. Read top to bottom: settings, warm-up, division, anchors, labels, steps. S is the
similarity of a batch (B, B), rows images; v and t are one vector per image and caption; y in [0, 1] the label of a
pair. The paper's equations have no numbers in the specification; docs/methods/bicro.md maps each formula to its
function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from in2r.config import key
from in2r.losses import soft_margin_triplet_loss, triplet_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import Belief, Division, divide_by_mixture, exchange, fit_gaussians
from in2r.methods.network import Batch, Net
from in2r.models.base import Items
from in2r.models.encode import evaluating
from in2r.partition import fit_two_betas

HINGE = "triplet-mean"
"""the per-sample loss: the hinge averaged over all negatives"""
SMALLEST_NORM = 1e-8
"""floor of the product of two norms in a cosine (released code)"""


@dataclass(frozen=True)
class BicroConfig(MethodConfig):
    """Section `method` for name = bicro."""

    name: str = key("bicro", "the method")
    warmup_epochs: int = key(10, "epochs of warm-up on all pairs (released scripts)", low=0)
    warmup_share: float = key(
        0.3, "share of a batch, the pairs of the smallest losses, that the warm-up trains on (released scripts)",
        above=0, high=1,
    )  # fmt: skip
    margin: float = key(0.2, "margin α (paper)", low=0)
    curve: Literal["exponential", "linear", "sine"] = key(
        "exponential", "how a label y becomes a margin: α (m^y - 1) / (m - 1) (paper), α y, or half a sine"
    )
    curve_base: float = key(10.0, "base m of the exponential curve (paper)", above=1)
    margins: Literal["own", "released"] = key(
        "own", "each image's margin is that of its own pair (paper), or that of the negative caption (released code)"
    )
    anchor_share: float = key(
        0.1, "anchors are ⌊share · B⌋ + 1 pairs of a clean batch (released code: 0.1; paper: all, 1)", low=0, high=1
    )
    clean_labels: Literal["own", "one", "released"] = key(
        "own",
        "label of a clean pair that is no anchor: half of 1 and its own agreement; 1 (paper); or the same numbers "
        "written to other pairs of the batch (released code, by mistake)",
    )
    label_threshold: float = key(
        0.5, "a label at or below this one becomes 0 (released code); 0 keeps all of them", low=0, high=1
    )
    noisy_from: float = key(
        0.5, "share of the main phase after which noisy pairs are trained on too (released code: half)", low=0, high=1
    )


# --- warm-up


@dataclass(frozen=True)
class SmallLossWarmup:
    """The hinge averaged over all negatives, of the pairs of the smallest losses alone."""

    margin: float
    """α"""
    share: float
    """of a batch that is kept, in (0, 1]"""

    def step(self, net: Net, batch: Batch) -> Step:
        """L = Σ of the ⌊share · B⌋ smallest l_i; of at least one."""
        ignore = no_negatives(batch, asked=False)
        similarity = net.score(*net.encode(batch)[0])
        losses = triplet_loss(similarity, self.margin, negatives="mean", reduction="none", ignore=ignore)
        kept = losses.topk(max(1, int(self.share * len(losses))), largest=False).values
        return Step({"inter": kept.sum(), "total": kept.sum()})


class Bicro(Method):
    """Two networks; each divides the pairs for the other, and labels the batches that the other trains on."""

    Config = BicroConfig
    config: BicroConfig
    networks = 2
    sets = (Walk("clean"), Walk("noisy"))

    def warmup(self) -> tuple[int, SmallLossWarmup]:
        """Return the warm-up on the small losses of each batch."""
        return self.config.warmup_epochs, SmallLossWarmup(self.config.margin, self.config.warmup_share)

    # --- division: two Betas on the per-sample losses; a network trains on its peer's

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return l_i = 1/B Σ_j [α + S_ij - S_ii]_+ + 1/B Σ_k [α + S_ki - S_ii]_+."""
        similarity = net.score(images, texts)
        return {HINGE: triplet_loss(similarity, self.config.margin, negatives="mean", reduction="none")}

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give each network its peer's clean set."""
        p, verdicts = self.partition, {}
        for name, own in seen.items():
            fit = fit_two_betas(
                own[HINGE], p.max_iter, minimum_separation=0, clean="lower_mean", histogram_from=p.histogram_from
            )
            # no bound on the separation of two Betas tells one group from two: two Gaussians say whether there are two
            gaussians = fit_gaussians(own[HINGE], p)
            belief = Belief.of(gaussians, own.mismatched[HINGE], p)
            verdicts[name] = divide_by_mixture(
                HINGE, own[HINGE], fit, belief, data.pairs, len(data.image_of_pair), p, name
            )
        return exchange(verdicts)

    # --- steps: the peer's labels first; then, later in training, one step of noisy pairs, and one of clean pairs

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step on a clean batch; from the middle of the main phase on, step on a noisy batch before it."""
        clean = batches["clean"]
        noisy = batches.get("noisy") if now.epoch >= int(self.config.noisy_from * now.epochs) else None
        y_clean, y_noisy = self._labels(peer, clean, noisy)
        if noisy is not None and y_noisy is not None:
            yield self._step(net, noisy, y_noisy, "noisy")
        yield self._step(net, clean, y_clean, "clean")

    def _labels(self, peer: Net, clean: Batch, noisy: Batch | None) -> tuple[Tensor, Tensor | None]:
        """Return the labels of both batches by the peer, (B,) in [0, 1]; a noisy pair has y = (C_i2t + C_t2i) / 2."""
        c = self.config
        with evaluating(peer):
            encoded = peer.encode(*[batch for batch in (clean, noisy) if batch is not None])
            order = trust_order(peer.score(*encoded[0]), c.margin)
            trusted = order[: int(c.anchor_share * len(order)) + 1]
            found = [(summary(images), summary(texts)) for images, texts in encoded]
            anchors = found[0][0][trusted], found[0][1][trusted]
            agreements = [(i2t + t2i) / 2 for i2t, t2i in (consistency(pairs, anchors) for pairs in found)]
            labels = clean_labels(agreements[0], order, len(trusted), c.clean_labels), *agreements[1:]
            y_clean, *rest = [torch.where(y > c.label_threshold, y, 0).clamp(0, 1) for y in labels]
        return y_clean, rest[0] if rest else None

    def _step(self, net: Net, batch: Batch, labels: Tensor, name: str) -> Step:
        """L = Σ_i [α_i - S_ii + max_j S_ij]_+ + [α_i - S_ii + max_k S_ki]_+, with α_i the margin of label y_i."""
        c = self.config
        similarity, ignore = net.score(*net.encode(batch)[0]), no_negatives(batch, asked=False)
        if c.margins == "released":  # NCR's slip gives a caption the margins of negative images; BiCro's is the reverse
            similarity = similarity.T
        loss = soft_margin_triplet_loss(similarity, labels, c.margin, c.curve, c.curve_base, c.margins, ignore=ignore)
        return Step({name: loss, "total": loss}, notes={f"label_{name}": labels.mean()})


# --- anchors and labels: pure functions, the parts of `Bicro._labels`


def trust_order(similarity: Tensor, margin: float = 0.2) -> Tensor:
    """Return the pairs of a batch, the most trusted first.

    That is by q_i = clamp(α - l_i / 2, 0, α), the largest first. It is read off l_i, the smallest first, so that pairs
    whose q is cut off at 0 have an order too. Pairs of equal l go by S_ii: an order that does not depend on places.

    Args:
        similarity: S (B, B), the diagonal is the given pair.
        margin: α.

    Returns:
        (B,) int64.
    """
    losses = triplet_loss(similarity, margin, negatives="mean", reduction="none")
    near_first = torch.argsort(similarity.diagonal(), descending=True, stable=True)
    return near_first[torch.argsort(losses[near_first], stable=True)]


def summary(items: Items) -> Tensor:
    """Return one vector per item, (n, D): its embedding, or the mean of its regions or words, not of unit norm."""
    if items.parts is None:
        return items.vector
    real = items.parts.new_ones(items.parts.shape[:2]) if items.mask is None else items.mask.to(items.parts.dtype)
    return (items.parts * real[..., None]).sum(1) / real.sum(1, keepdim=True)


def consistency(pairs: tuple[Tensor, Tensor], anchors: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return how far image and caption of a pair agree on how near a trusted pair is, from both sides.

    C_i2t = rho(cos(v_n, v_c), cos(t_n, t_c)), c = argmax over the anchors of cos(v_n, v_c), and
    C_t2i = rho(cos(t_n, t_d), cos(v_n, v_d)), d = argmax of cos(t_n, t_d). rho is `agreement`.

    Args:
        pairs: v (n, D) and t (n, D), of any norm.
        anchors: v (m, D) and t (m, D), m at least 1.

    Returns:
        C_i2t (n,) and C_t2i (n,), below or at 1; negative where one side is near and the other opposite.
    """
    by_image, by_text = (_cosines(one, other) for one, other in zip(pairs, anchors, strict=True))
    c, d = by_image.argmax(1, keepdim=True), by_text.argmax(1, keepdim=True)
    i2t = agreement(by_image.gather(1, c), by_text.gather(1, c))
    t2i = agreement(by_text.gather(1, d), by_image.gather(1, d))
    return i2t[:, 0], t2i[:, 0]


def agreement(x: Tensor, y: Tensor) -> Tensor:
    """Return rho(x, y) = x / y where that is below 1, else y / x; 0 where x or y is 0.

    It measures agreement, not nearness: two small, equal cosines agree.
    """
    nothing = (x == 0) | (y == 0)
    x, y = x.masked_fill(nothing, 1), y.masked_fill(nothing, 1)
    return torch.where(x / y < 1, x / y, y / x).masked_fill(nothing, 0)


def clean_labels(agreements: Tensor, order: Tensor, anchors: int, form: str = "own") -> Tensor:
    """Return labels of clean pairs: 1 of an anchor, y_i = 1/2 + (C_i2t + C_t2i) / 4 of any other.

    Args:
        agreements: (B,) (C_i2t + C_t2i) / 2.
        order: (B,) int64, the anchors first.
        anchors: how many they are.
        form: "own"; "one": every label is 1; "released": the k-th pair after the anchors gets the label of row k.
    """
    labels, others = torch.ones_like(agreements), order[anchors:]
    if form == "one":
        return labels
    halved = 0.5 + agreements / 2
    return labels.index_copy(0, others, halved[others] if form == "own" else halved[: len(others)])


def _cosines(one: Tensor, other: Tensor) -> Tensor:
    """Return cosines (n, m) of vectors (n, D) and (m, D)."""
    norms = torch.outer(one.norm(dim=1), other.norm(dim=1))
    return one @ other.T / norms.clamp(min=SMALLEST_NORM)
