"""What PC² and PCSR share: pseudo-classes of images, the bank of past predictions, labels, borrowed captions.

P, Q (B, C) are the pseudo-class predictions of images and captions; B_i is what was last stored of image i.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from in2r.layers.classifier import PseudoClassifier
from in2r.layers.mlp import unit_norm
from in2r.losses import entropy, oscillation, pseudo_class_loss, triplet_loss
from in2r.losses.pseudo_class import EntropyOf
from in2r.methods.base import Seen
from in2r.methods.division import Belief, Division, PartitionConfig, divide_by_mixture, fit_gaussians, whole
from in2r.methods.network import Batch, Net
from in2r.models.base import Items
from in2r.partition import split_pairs
from in2r.transfer import send

HINGE = "triplet-mean"
"""the per-sample loss: the hinge averaged over all negatives"""
OSCILLATION = "oscillation"
"""how far an image's pseudo-class has moved since it was stored"""
LABEL = "label"
"""the column of soft labels y"""
PLACE = "place"
"""the column that says where a pair stands inside its own set: the bank's keys in the released code"""

BankMode = Literal["refreshed", "released"]


class PseudoOwn(nn.Module):
    """What a network keeps beside its backbone: the classifier, and what it last said of each pair's image.

    Args:
        head: the classifier, one for both sides.
        pairs: N.
    """

    bank: Tensor
    """(N, C) float32, probabilities; a row of zeros where nothing is stored"""

    def __init__(self, head: PseudoClassifier, pairs: int) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("bank", torch.zeros(pairs, head.classes.out_features))
        self.fresh: Tensor | None = None
        """the same of the pass over the pairs that is under way; gone when the division is made"""

    def logits(self, items: Items) -> Tensor:
        """Classify items: (n, C), of images f, of captions t."""
        found: Tensor = self.head(items.vector, items.parts, items.mask)
        return found

    def predict(self, images: Items) -> Tensor:
        """Return P (n, C) without gradient."""
        with torch.no_grad():
            return self.logits(images).softmax(1)

    def moved(self, images: Items, pairs: Tensor) -> Tensor:
        """Return KL(P_i || B_i) of the images of pairs (n,) int64, and note P: `renew` makes it the bank's."""
        now, rows = self.predict(images), send(pairs, self.bank.device)
        if self.fresh is None:
            self.fresh = self.bank.clone()
        self.fresh[rows] = now
        return oscillation(now, self.bank[rows])

    def store(self, rows: Tensor, predictions: Tensor) -> None:
        """Put predictions (n, C) into the bank at rows (n,) int64."""
        self.bank.index_copy_(0, rows, predictions)

    def current(self) -> Tensor:
        """Return what the pass over the pairs has found, (N, C); the bank where there was none."""
        return self.bank if self.fresh is None else self.fresh

    def renew(self, mode: BankMode) -> None:
        """End the pass over the pairs; unless `mode` is released, what it found becomes the bank."""
        if self.fresh is not None and mode == "refreshed":
            self.bank.copy_(self.fresh)
        self.fresh = None


# --- observation and labels


def observe(net: Net, own: PseudoOwn, images: Items, texts: Items, pairs: Tensor, margin: float) -> dict[str, Tensor]:
    """Return of each pair the hinge averaged over all negatives, and how far its image's prediction has moved."""
    hinge = triplet_loss(net.score(images, texts), margin, negatives="mean", reduction="none")
    return {HINGE: hinge, OSCILLATION: own.moved(images, pairs)}


def divide_with_labels(seen: Seen, pairs: Tensor, total: int, config: PartitionConfig, judge: str) -> Division:
    """Divide pairs by the mixture of their hinges, and give each clean one a label.

    y_i = w_i + (1 - w_i) v_i o_i; w_i is the posterior of the lower of two Gaussians on the hinges, v_i that of two
    Gaussians on the oscillations, o_i = 1 where v_i is above the threshold. Where all oscillations are equal, they say
    nothing and y_i = w_i.

    Args:
        seen: hinges and oscillations (n,).
        pairs: (n,) int64.
        total: N.
        config: threshold, fits, and what is done where there is one group.
        judge: the network whose observations these are.

    Returns:
        A division into clean and noisy pairs, with the column `label`.
    """
    p = config
    hinge, moved = (fit_gaussians(seen[name], p) for name in (HINGE, OSCILLATION))
    belief = Belief.of(hinge, seen.mismatched[HINGE], p)
    division = divide_by_mixture(HINGE, seen[HINGE], hinge, belief, pairs, total, p, judge)
    w = division.columns["clean_prob"]
    calm = torch.zeros(total)
    if moved.split:
        v = moved.clean_probability
        calm[pairs] = torch.as_tensor(v * split_pairs(v, p.threshold, p.minimum_noisy_share)).float()
    figures = {**division.figures, "mean_oscillation": float(seen[OSCILLATION].mean())}
    return replace(division, columns={**division.columns, LABEL: w + (1 - w) * calm}, figures=figures)


def trusted_with_labels(pairs: Tensor, total: int) -> Division:
    """Return the division in which all of `pairs` (n,) of N = `total` are clean, with label 1."""
    every = whole(pairs, total)
    return with_places(replace(every, columns={**every.columns, LABEL: every.columns["clean_prob"]}))


def with_places(division: Division) -> Division:
    """Add where each pair stands inside its set, in the order of the pairs' numbers."""
    place = torch.zeros(len(division.sets), dtype=torch.int64)
    for which in torch.unique(division.sets):
        members = torch.nonzero(division.sets == which).flatten()
        place[members] = torch.arange(len(members))
    return replace(division, columns={**division.columns, PLACE: place})


# --- losses of the classifier, and captions that are borrowed


@dataclass(frozen=True)
class ClassTerms:
    """The classifier's part of a loss: L_class - λ H."""

    entropy_weight: float
    """λ"""
    entropy_of: EntropyOf

    def __call__(self, f: Tensor, t: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return cross-entropy and entropy by name, and CE(f, argmax t) - λ H(softmax f).

        Args:
            f: (B, C), logits of images.
            t: (B, C), logits of their captions, which give the targets.
        """
        parts = {"pseudo_class": pseudo_class_loss(f, t), "entropy": entropy(f, self.entropy_of)}
        return parts, parts["pseudo_class"] - self.entropy_weight * parts["entropy"]


@dataclass(frozen=True)
class Borrowed:
    """The captions that images borrow from the clean pairs of the same iteration."""

    rows: Tensor
    """(n,) int64, j*: which clean pair's caption"""
    labels: Tensor
    """(n,) y in [0, 1]"""

    @staticmethod
    def of(predictions: Tensor, clean: Tensor, least: float) -> "Borrowed":
        """j* = argmax_j cos(P_i, P_j), y_i that cosine s; 0 where s is below `least`.

        Args:
            predictions: P (n, C) of the images that borrow.
            clean: P (m, C) of the clean images.
            least: of s.
        """
        cosines = unit_norm(predictions) @ unit_norm(clean).T
        similarity, rows = cosines.max(1)
        return Borrowed(rows, torch.where(similarity >= least, similarity, torch.zeros_like(similarity)))

    def notes(self, which: str) -> Mapping[str, float | Tensor]:
        """Return what the record has of them."""
        return {f"label_{which}": self.labels.mean()}


def borrowing(own: PseudoOwn, images: Items, clean: Items, least: float, detach: bool = True) -> Borrowed:
    """Let images (n) borrow captions of clean pairs (m) by what the classifier says of both.

    Args:
        own: of the network that is trained.
        images: that borrow, encoded in training mode.
        clean: the clean images, likewise.
        least: labels below it are 0.
        detach: no gradient flows to the labels.
    """
    with torch.set_grad_enabled(not detach and torch.is_grad_enabled()):
        return Borrowed.of(own.logits(images).softmax(1), own.logits(clean).softmax(1), least)


def storing(own: PseudoOwn, mode: BankMode, *batches: tuple[Batch, Items]) -> Callable[[], None]:
    """Return what is stored when a step is taken: as released, predictions at the places of pairs inside their sets.

    Args:
        own: of the network that is trained.
        mode: refreshed: nothing is stored, as the bank is renewed between the epochs.
        batches: pairs and their images, encoded in training mode.
    """
    kept = [(batch.column(PLACE), own.predict(images)) for batch, images in batches if mode == "released"]

    def store() -> None:
        for rows, predictions in kept:
            own.store(rows, predictions)

    return store
