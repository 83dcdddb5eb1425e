"""PCSR: noisy pairs are cut in two by how steady their image's pseudo-class is; steady ones borrow a caption.

"PCSR: Pseudo-label Consistency-Guided Sample Refinement for Noisy Correspondence Learning", Liu et al., AAAI 2026. Read
top to bottom: settings, warm-up, votes and division, steps. S is the similarity of a batch (B, B), rows images; P, Q
(B, C) are the pseudo-class predictions of images and captions. The paper's equations have no numbers in the
specification; docs/methods/pcsr.md maps each formula to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor

from in2r.config import key
from in2r.layers.classifier import PseudoClassifier
from in2r.losses import sce_loss, soft_margin_triplet_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import NOISY, Division, exchange
from in2r.methods.network import Batch, Net
from in2r.methods.pseudo_class import (
    ClassTerms,
    PseudoOwn,
    borrowing,
    divide_with_labels,
    observe,
    storing,
    trusted_with_labels,
    with_places,
)
from in2r.methods.warmup import warmup_of
from in2r.models.base import Items

AMBIGUOUS = 2
"""the third set; the second one, NOISY, is that of the refinable pairs"""


@dataclass(frozen=True)
class PcsrConfig(MethodConfig):
    """Section `method` for name = pcsr."""

    name: str = key("pcsr", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (released code)", low=0)
    warmup_temperature: float = key(0.05, "τ of the warm-up's softmax (released code)", low=1e-3)
    margin: float = key(0.2, "margin α (released code)", low=0)
    curve: Literal["exponential", "linear", "sine"] = key(
        "exponential", "how a label y becomes a margin: α (m^y - 1) / (m - 1) (released code), α y, or half a sine"
    )
    curve_base: float = key(10.0, "base m of the exponential curve (released code)", above=1)
    margins: Literal["own", "released"] = key(
        "own",
        "each caption's margin is that of its own pair; or, of clean pairs, that of the negative image, and, of noisy "
        "pairs, each image's is that of the negative caption (released code)",
    )
    classes: int = key(256, "pseudo-classes C (released code)", low=2)
    hidden: int = key(256, "width of the classifier's hidden layer (released code)", low=1)
    positions: int = key(
        0,
        "positions to which regions and words are brought for the classifier (released code: 36, with SGR); 0: it "
        "reads the item's vector, which every backbone but scan learns",
        low=0,
    )
    entropy_weight: float = key(10.0, "λ of the entropy, which is made large (released code)", low=0)
    entropy_of: Literal["batch", "pair"] = key(
        "batch",
        "entropy of the batch's mean prediction, so that classes are used alike; or pair: the mean of each pair's "
        "(released code), which makes every prediction flat",
    )
    least_similarity: float = key(
        0.5, "borrowed captions of images whose predictions are less alike have label 0 (released code)", low=0, high=1
    )
    gce_power: float = key(0.7, "q of the generalised cross-entropy (released code)", above=0, high=1)
    refinable_from: float = key(
        0.5, "share of the main phase after which refinable pairs are trained on too (released code)", low=0, high=1
    )
    ambiguous_from: float = key(
        0.8, "share of the main phase after which ambiguous pairs are trained on too (released code)", low=0, high=1
    )
    ambiguous_borrow: bool = key(
        False,
        "ambiguous pairs borrow a caption for the hinge as well (released code); false: their robust loss alone, as "
        "the abstract says",
    )
    stable_start: float = key(0.4, "share of steady pairs that the threshold aims at, at first (released code)", low=0)
    stable_end: float = key(0.9, "the same at the end (released code)", low=0)
    threshold_step: float = key(0.2, "votes that the threshold moves per missing share (released code)", low=0)
    threshold_rate: float = key(0.3, "weight of the moved threshold in the running one (released code)", low=0, high=1)
    votes: int = key(
        1, "votes of a pair per division (released code: 2, as they are added in two places)", low=1, high=10
    )
    bank_mode: Literal["refreshed", "released"] = key(
        "refreshed",
        "refreshed: an oscillation compares with the last epoch; released: what was stored in the warm-up stays, and "
        "later predictions overwrite the rows of other pairs (released code)",
    )

    @property
    def class_terms(self) -> ClassTerms:
        """Return the classifier's part of the losses."""
        return ClassTerms(self.entropy_weight, self.entropy_of)


class PcsrOwn(PseudoOwn):
    """What a network keeps beside its backbone: classifier and bank, the votes, the threshold."""

    counts: Tensor
    """(N, C) int16, how often an image had each pseudo-class"""
    tau: Tensor
    """scalar, the threshold of the consistency score, in votes"""

    def __init__(self, head: PseudoClassifier, pairs: int) -> None:
        super().__init__(head, pairs)
        self.register_buffer("counts", torch.zeros(self.bank.shape, dtype=torch.int16))
        self.register_buffer("tau", torch.zeros(()))

    def vote(self, rows: Tensor, predictions: Tensor, votes: int = 1) -> None:
        """Count the likeliest class of predictions (n, C) at rows (n,) int64, each row once."""
        classes = predictions.argmax(1)
        self.counts[rows, classes] = self.counts[rows, classes] + votes


@dataclass(frozen=True)
class PcsrWarmup:
    """InfoNCE, the mean of both directions; the classifier learns nothing, and its first predictions are stored."""

    temperature: float
    """τ"""

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the loss of one batch; when the step is taken, each pair's prediction is stored and counted."""
        images, texts = net.encode(batch)[0]
        ignore = no_negatives(batch, asked=False)
        contrast = sce_loss(net.score(images, texts), self.temperature, rce_weight=0.0, ignore=ignore)
        own = _own(net)
        predictions = own.predict(images)

        def keep() -> None:
            own.store(batch.pairs, predictions)
            own.vote(batch.pairs, predictions)

        return Step({"contrast": contrast, "total": contrast}, after=keep)


class Pcsr(Method):
    """Two networks; each divides the pairs for the other into clean, refinable and ambiguous ones."""

    Config = PcsrConfig
    config: PcsrConfig
    networks = 2
    sets = (Walk("clean"), Walk("refinable"), Walk("ambiguous"))
    one_sided = "captions give the classes that images learn, and images borrow captions"

    @property
    def reads_vectors(self) -> tuple[str, ...]:
        """Name what makes the classifier read an item's vector."""
        return () if self.config.positions else ("method.positions=0",)

    @property
    def reads_parts(self) -> tuple[str, ...]:
        """Name what makes the classifier read regions and words."""
        return (f"method.positions={self.config.positions}",) if self.config.positions else ()

    def own(self, dim: int, pairs: int, batch_size: int) -> PcsrOwn:
        """Make classifier, bank and votes."""
        c = self.config
        return PcsrOwn(PseudoClassifier(dim, c.hidden, c.classes, c.positions), pairs)

    def warmup(self) -> tuple[int, PcsrWarmup]:
        """Return the warm-up: InfoNCE on all pairs."""
        return self.config.warmup_epochs, PcsrWarmup(self.config.warmup_temperature)

    # --- division: two mixtures give clean pairs and labels; votes cut the noisy pairs in two

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return the hinge averaged over all negatives, and KL(P_i || B_i)."""
        return observe(net, _own(net), images, texts, pairs, self.config.margin)

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give each network its peer's sets and labels."""
        verdicts = {}
        for name, columns in seen.items():
            own = _own(nets[name])
            division = divide_with_labels(columns, data.pairs, len(data.image_of_pair), self.partition, name)
            rows = data.pairs.to(own.bank.device)
            own.vote(rows, own.current()[rows], self.config.votes)
            own.renew(self.config.bank_mode)
            verdicts[name] = with_places(self._cut(division, own, data.pairs, now))
        return exchange(verdicts)

    def trust(self, pairs: Tensor, total: int) -> Division:
        """Return the division in which all of `pairs` are clean, with label 1."""
        return trusted_with_labels(pairs, total)

    def _cut(self, division: Division, own: PcsrOwn, pairs: Tensor, now: Now) -> Division:
        """Move noisy pairs whose consistency score is not above τ into the third set."""
        scores = torch.zeros(len(division.sets))
        scores[pairs] = consistency(own.counts[pairs.to(own.counts.device)]).float().cpu()
        own.tau.fill_(self._threshold(scores[pairs], float(own.tau), now))
        steady = scores > own.tau.cpu()
        sets = division.sets.clone()
        sets[(sets == NOISY) & ~steady] = AMBIGUOUS
        figures = {
            "refinable_fraction": float((sets[pairs] == NOISY).float().mean()),
            "steady_fraction": float(steady[pairs].float().mean()),
            "consistency_threshold": float(own.tau),
        }
        return replace(division, sets=sets, figures={**division.figures, **figures})

    def _threshold(self, scores: Tensor, tau: float, now: Now) -> float:
        """τ ← (1 - r) τ + r (τ - step (λ* - λ)); λ is the share of scores above τ, λ* the share aimed at.

        λ* rises with the epochs of the run, t / T. In the first epoch of the main phase τ starts at the mean score.
        """
        c = self.config
        tau = float(scores.mean()) if now.epoch == 0 else tau
        before = warmup_of(self)[0]
        passed = (now.epoch + before) / (now.epochs + before)
        aim = c.stable_start + (c.stable_end - c.stable_start) * passed
        share = float((scores > tau).float().mean())
        return (1 - c.threshold_rate) * tau + c.threshold_rate * (tau - c.threshold_step * (aim - share))

    # --- steps: clean pairs; later refinable pairs, which borrow captions; at last ambiguous ones

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step on a clean batch, then on an ambiguous one and on a refinable one where their stage has begun."""
        c, clean = self.config, batches["clean"]
        yield self._clean_step(net, clean)
        ambiguous = batches.get("ambiguous") if now.epoch >= int(c.ambiguous_from * now.epochs) else None
        if ambiguous is not None:
            yield self._ambiguous_step(net, ambiguous, clean)
        refinable = batches.get("refinable") if now.epoch >= int(c.refinable_from * now.epochs) else None
        if refinable is not None:
            yield self._refinable_step(net, refinable, clean)

    def _clean_step(self, net: Net, batch: Batch) -> Step:
        """L = T(y) + CE(f, argmax Q) - λ H(P)."""
        (images, texts), labels, own = net.encode(batch)[0], batch.column("label"), _own(net)
        hinge = self._hinge(net.score(images, texts), labels, batch)
        parts, of_classes = self.config.class_terms(own.logits(images), own.logits(texts))
        losses = {"clean": hinge, **parts, "total": hinge + of_classes}
        return Step(losses, notes={"label_clean": labels.mean()})

    def _refinable_step(self, net: Net, batch: Batch, clean: Batch) -> Step:
        """L = T(y) on images and the captions that they borrow, y how alike the predictions are."""
        c, own = self.config, _own(net)
        (images, _), (clean_images, clean_texts) = net.encode(batch, clean)
        hinge, notes = self._borrowed(net, images, clean_images, clean_texts, batch, "refinable")
        return Step({"refinable": hinge, "total": hinge}, notes=notes, after=storing(own, c.bank_mode, (batch, images)))

    def _ambiguous_step(self, net: Net, batch: Batch, clean: Batch) -> Step:
        """L = GCE(P, argmax Q) - λ H(P), Q of the given captions; as released with T(y) on borrowed ones."""
        c, own = self.config, _own(net)
        given, *beside = net.encode(batch, clean) if c.ambiguous_borrow else net.encode(batch)
        images, texts = given
        f = own.logits(images)
        robust = generalised_cross_entropy(f, own.logits(texts), c.gce_power)
        spread = c.class_terms(f, f)[0]["entropy"]
        losses = {"ambiguous": robust, "ambiguous_entropy": spread, "total": robust - c.entropy_weight * spread}
        notes: dict[str, float | Tensor] = {}
        for clean_images, clean_texts in beside:
            hinge, notes = self._borrowed(net, images, clean_images, clean_texts, batch, "ambiguous")
            losses |= {"ambiguous_hinge": hinge, "total": losses["total"] + hinge}
        return Step(losses, notes=notes, after=storing(own, c.bank_mode, (batch, images)))

    def _borrowed(
        self, net: Net, images: Items, clean_images: Items, clean_texts: Items, batch: Batch, which: str
    ) -> tuple[Tensor, dict[str, float | Tensor]]:
        borrowed = borrowing(_own(net), images, clean_images, self.config.least_similarity)
        similarity = net.score(images, clean_texts[borrowed.rows])
        if self.config.margins == "released":  # of noisy pairs, the other direction has the wrong margins
            similarity = similarity.T
        return self._hinge(similarity, borrowed.labels, batch), dict(borrowed.notes(which))

    def _hinge(self, similarity: Tensor, labels: Tensor, batch: Batch) -> Tensor:
        """T(y): the hinge with the hardest negative, the margin of each pair by its label."""
        c, ignore = self.config, no_negatives(batch, asked=False)
        return soft_margin_triplet_loss(similarity, labels, c.margin, c.curve, c.curve_base, c.margins, ignore=ignore)


def consistency(counts: Tensor) -> Tensor:
    """s_i: by how many votes (n, C) an image's first class leads its second, (n,); all its votes where it has one."""
    first, second = counts.topk(2, dim=1).values.unbind(1)
    return first - second


def generalised_cross_entropy(logits: Tensor, target_logits: Tensor, power: float) -> Tensor:
    """Mean of (1 - P_i,c^q) / q, c = argmax Q_i: cross-entropy as q vanishes, the absolute error at q = 1.

    Args:
        logits: (B, C); P is their softmax.
        target_logits: (B, C); no gradient flows to them.
        power: q in (0, 1].

    Returns:
        A scalar in [0, 1 / q].
    """
    chosen = torch.log_softmax(logits, 1).gather(1, target_logits.detach().argmax(1, keepdim=True))
    return ((1 - (power * chosen).exp()) / power).mean()


def _own(net: Net) -> PcsrOwn:
    return cast(PcsrOwn, net.own)
