"""NCR: a refined soft label decides how far each pair must be pulled together.

"Learning with Noisy Correspondence for Cross-modal Matching", Huang et al., NeurIPS 2021. Read top to bottom: settings,
warm-up, division, labels, steps. S is the similarity of a batch (B, B); y in [0, 1] the label of a pair; w its clean
probability by the peer; p the matching probability that a network predicts for it. The paper's equations have no
numbers in the specification; docs/methods/ncr.md maps each formula to its function and test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from in2r.config import key
from in2r.losses import soft_margin_triplet_loss, triplet_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import no_negatives
from in2r.methods.division import Belief, Division, divide_by_mixture, exchange, fit_gaussians
from in2r.methods.network import Batch, Net
from in2r.methods.warmup import HingeWarmup
from in2r.models.base import Items
from in2r.models.encode import evaluating
from in2r.partition import matching_probability

HINGE = "triplet-mean"
"""the per-sample loss: the hinge averaged over all negatives"""


@dataclass(frozen=True)
class NcrConfig(MethodConfig):
    """Section `method` for name = ncr."""

    name: str = key("ncr", "the method")
    warmup_epochs: int = key(5, "epochs of warm-up on all pairs (paper: 5 on Flickr30K, 10 on COCO and CC152K)", low=0)
    margin: float = key(0.2, "margin α (paper)", above=0)
    curve: Literal["exponential", "linear", "sine"] = key(
        "exponential", "how a label y becomes a margin: α (m^y - 1) / (m - 1) (paper), α y, or half a sine"
    )
    curve_base: float = key(10.0, "base m of the exponential curve (paper)", above=1)
    margins: Literal["own", "released"] = key(
        "own", "each caption's margin is that of its own pair (paper), or that of the negative image (released code)"
    )
    noisy_from: float = key(
        0.5, "share of the main phase after which noisy pairs are trained on too (released code: half)", low=0, high=1
    )


class Ncr(Method):
    """Two networks; each divides the pairs for the other, and both predict the labels of noisy pairs."""

    Config = NcrConfig
    config: NcrConfig
    networks = 2
    sets = (Walk("clean"), Walk("noisy"))

    def warmup(self) -> tuple[int, HingeWarmup]:
        """Return the warm-up: the hinge averaged over all negatives, on all pairs."""
        return self.config.warmup_epochs, HingeWarmup(self.config.margin)

    # --- division: two Gaussians on the per-sample losses; a network trains on its peer's

    def observe(self, net: Net, images: Items, texts: Items, pairs: Tensor) -> Mapping[str, Tensor]:
        """Return l_i = 1/B Σ_j [α + S_ij - S_ii]_+ + 1/B Σ_k [α + S_ki - S_ii]_+."""
        similarity = net.score(images, texts)
        return {HINGE: triplet_loss(similarity, self.config.margin, negatives="mean", reduction="none")}

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Give each network its peer's clean set and clean probabilities w."""
        p, verdicts = self.partition, {}
        for name, own in seen.items():
            fit = fit_gaussians(own[HINGE], p)
            belief = Belief.of(fit, own.mismatched[HINGE], p)
            verdicts[name] = divide_by_mixture(
                HINGE, own[HINGE], fit, belief, data.pairs, len(data.image_of_pair), p, name
            )
        return exchange(verdicts)

    # --- steps: labels first, by networks in eval mode; then one step of clean and, later, one of noisy pairs

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """Step on a clean batch; from the middle of the main phase on, step on a noisy batch too."""
        clean = batches["clean"]
        noisy = batches.get("noisy") if now.epoch >= int(self.config.noisy_from * now.epochs) else None
        with evaluating(net, peer):
            w = clean.column("clean_prob")
            y_clean = w + (1 - w) * self._predicted(net, clean)
            y_noisy = None if noisy is None else (self._predicted(net, noisy) + self._predicted(peer, noisy)) / 2
        yield self._step(net, clean, y_clean, "clean")
        if noisy is not None and y_noisy is not None:
            yield self._step(net, noisy, y_noisy, "noisy")

    def _predicted(self, net: Net, batch: Batch) -> Tensor:
        """Return p_i (B,): how well the pairs of a batch match, by a network."""
        return matching_probability(net.score(*net.encode(batch)[0]), self.config.margin)

    def _step(self, net: Net, batch: Batch, labels: Tensor, name: str) -> Step:
        """L = Σ_i [α_i - S_ii + max_j S_ij]_+ + [α_i - S_ii + max_k S_ki]_+, with α_i the margin of label y_i."""
        c = self.config
        similarity, ignore = net.score(*net.encode(batch)[0]), no_negatives(batch, asked=False)
        loss = soft_margin_triplet_loss(similarity, labels, c.margin, c.curve, c.curve_base, c.margins, ignore=ignore)
        return Step({name: loss, "total": loss}, notes={f"label_{name}": labels.mean()})
