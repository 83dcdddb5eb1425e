"""PC²: images learn the pseudo-classes of captions, and noisy images borrow the captions of clean ones.

"PC²: Pseudo-Classification Based Pseudo-Captioning for Noisy Correspondence Learning in Cross-Modal Retrieval", Duan et
al., ACM Multimedia 2024. Read top to bottom: settings, warm-up, division, steps. S is the similarity of a batch (B, B),
rows images; P, Q (B, C) are the pseudo-class predictions of images and captions; y in [0, 1] is the label of a pair.
The paper's equations have no numbers in the specification; docs/methods/pc2.md maps each formula to its function and
test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from torch import Tensor

from in2r.config import key
from in2r.layers.classifier import PseudoClassifier
from in2r.losses import soft_margin_triplet_loss, triplet_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import Division, exchange
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
from in2r.models.base import Items


@dataclass(frozen=True)
class Pc2Config(MethodConfig):
    """Section `method` for name = pc2."""

    name: str = key("pc2", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (released code: 5 on Flickr30K and COCO)", low=0)
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
    classes: int = key(128, "pseudo-classes C (released code)", low=2)
    hidden: int = key(256, "width of the classifier's hidden layer (released code)", low=1)
    positions: int = key(
        0,
        "positions to which regions and words are brought for the classifier (released code: 36, with SGR); 0: it "
        "reads the item's vector, which every backbone but scan learns",
        low=0,
    )
    entropy_weight: float = key(10.0, "λ of the entropy, which is made large (released commands; code: 1)", low=0)
    entropy_of: Literal["batch", "pair"] = key(
        "batch",
        "entropy of the batch's mean prediction, so that classes are used alike; or pair: the mean of each pair's "
        "(released code), which makes every prediction flat",
    )
    least_similarity: float = key(
        0.5, "borrowed captions of images whose predictions are less alike have label 0 (released code)", low=0, high=1
    )
    detach_pseudo_label: bool = key(
        True,
        "no gradient flows to the labels of borrowed captions; false: it does (released code), so that less alike "
        "predictions lower the loss",
    )
    noisy_from: float = key(
        0.5, "share of the main phase after which noisy pairs are trained on too (released code: half)", low=0, high=1
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


@dataclass(frozen=True)
class Pc2Warmup:
    """The hinge averaged over all negatives, and the classifier's part; each prediction is stored."""

    margin: float
    """α"""
    class_terms: ClassTerms

    def step(self, net: Net, batch: Batch) -> Step:
        """Make the losses of one batch; when the step is taken, each pair's prediction is stored."""
        (images, texts), own = net.encode(batch)[0], _own(net)
        ignore = no_negatives(batch, asked=False)
        hinge = triplet_loss(net.score(images, texts), self.margin, negatives="mean", ignore=ignore)
        parts, of_classes = self.class_terms(own.logits(images), own.logits(texts))
        predictions = own.predict(images)

        def keep() -> None:
            own.store(batch.pairs, predictions)

        return Step({"inter": hinge, **parts, "total": hinge + of_classes}, after=keep)


class Pc2(Method):
    """Two networks; each divides the pairs for the other, and says what an image's pseudo-class is."""

    Config = Pc2Config
    config: Pc2Config
    networks = 2
    sets = (Walk("clean"), Walk("noisy"))
    one_sided = "captions give the classes that images learn, and images borrow captions"

    @property
    def reads_vectors(self) -> tuple[str, ...]:
        """Name what makes the classifier read an item's vector."""
        return () if self.config.positions else ("method.positions=0",)

    @property
    def reads_parts(self) -> tuple[str, ...]:
        """Name what makes the classifier read regions and words."""
        return (f"method.positions={self.config.positions}",) if self.config.positions else ()

    def own(self, dim: int, pairs: int, batch_size: int) -> PseudoOwn:
        """Make classifier and bank."""
        c = self.config
        return PseudoOwn(PseudoClassifier(dim, c.hidden, c.classes, c.positions), pairs)

    def warmup(self) -> tuple[int, Pc2Warmup]:
        """Return the warm-up: the hinge averaged over all negatives, and the classifier, on all pairs."""
        return self.config.warmup_epochs, Pc2Warmup(self.config.margin, self.config.class_terms)

    # --- division: two mixtures give clean pairs and their labels; a network trains on its peer's

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return l_i, the hinge averaged over all negatives, and osc_i = KL(P_i || B_i)."""
        return observe(net, _own(net), images, texts, pairs, self.config.margin)

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give each network its peer's sets and labels, y_i = w_i + (1 - w_i) v_i o_i."""
        verdicts = {}
        for name, columns in seen.items():
            division = divide_with_labels(columns, data.pairs, len(data.image_of_pair), self.partition, name)
            _own(nets[name]).renew(self.config.bank_mode)
            verdicts[name] = with_places(division)
        return exchange(verdicts)

    def trust(self, pairs: Tensor, total: int) -> Division:
        """Return the division in which all of `pairs` are clean, with label 1."""
        return trusted_with_labels(pairs, total)

    # --- steps: clean pairs with the classifier; later noisy images with borrowed captions

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step on a clean batch; from the middle of the main phase on, step on a noisy batch too."""
        clean = batches["clean"]
        yield self._clean_step(net, clean)
        noisy = batches.get("noisy") if now.epoch >= int(self.config.noisy_from * now.epochs) else None
        if noisy is not None:
            yield self._noisy_step(net, noisy, clean)

    def _clean_step(self, net: Net, batch: Batch) -> Step:
        """L_clean = L_tri(y) + CE(f, argmax Q) - λ H(P)."""
        c, (images, texts), labels, own = self.config, net.encode(batch)[0], batch.column("label"), _own(net)
        similarity, ignore = net.score(images, texts), no_negatives(batch, asked=False)
        hinge = soft_margin_triplet_loss(similarity, labels, c.margin, c.curve, c.curve_base, c.margins, ignore=ignore)
        parts, of_classes = c.class_terms(own.logits(images), own.logits(texts))
        losses = {"clean": hinge, **parts, "total": hinge + of_classes}
        return Step(losses, notes={"label_clean": labels.mean()})

    def _noisy_step(self, net: Net, batch: Batch, clean: Batch) -> Step:
        """L_noisy = L_tri(y) on images and the captions that they borrow, y how alike the predictions are."""
        c, own = self.config, _own(net)
        (images, _), (clean_images, clean_texts) = net.encode(batch, clean)
        borrowed = borrowing(own, images, clean_images, c.least_similarity, c.detach_pseudo_label)
        similarity, ignore = net.score(images, clean_texts[borrowed.rows]), no_negatives(batch, asked=False)
        if c.margins == "released":  # of noisy pairs, the other direction has the wrong margins
            similarity = similarity.T
        hinge = soft_margin_triplet_loss(
            similarity,
            borrowed.labels,
            c.margin,
            c.curve,
            c.curve_base,
            c.margins,
            ignore=ignore,
            through_labels=not c.detach_pseudo_label,
        )
        after = storing(own, c.bank_mode, (batch, images), (clean, clean_images))
        return Step({"noisy": hinge, "total": hinge}, notes=dict(borrowed.notes("noisy")), after=after)


def _own(net: Net) -> PseudoOwn:
    return cast(PseudoOwn, net.own)
