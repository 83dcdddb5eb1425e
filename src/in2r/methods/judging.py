"""Two losses per pair, and what two Gaussians on each of them say: clean probabilities and the noise rate."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from in2r.losses import sce_loss, triplet_loss
from in2r.methods.base import Seen
from in2r.methods.division import Belief, Division, PartitionConfig, divide_by_mixture, fit_gaussians
from in2r.partition import TwoGaussians

SCE, HINGE = "sce", "triplet-mean"
"""the losses' names"""


@dataclass(frozen=True)
class PairLosses:
    """The numbers of the two losses; IN²R's own, by default."""

    margin: float = 0.2
    temperature: float = 0.05
    ce_weight: float = 1.0
    rce_weight: float = 1.0
    epsilon: float = 1e-7

    def __call__(self, logits: Tensor, bounded: bool = False) -> dict[str, Tensor]:
        """Return both losses (B,) of logits (B, B): Eq. 1 per pair, and the hinge averaged over all negatives.

        The hinge compares S, which is the sigmoid of the logits where these are `bounded` by one.
        """
        sce = sce_loss(logits, self.temperature, self.ce_weight, self.rce_weight, self.epsilon, reduction="none")
        similarity = logits.sigmoid() if bounded else logits
        return {SCE: sce, HINGE: triplet_loss(similarity, self.margin, negatives="mean", reduction="none")}


@dataclass(frozen=True)
class Judgement:
    """What one network says of the pairs that it scored."""

    losses: Mapping[str, Tensor]
    """name → per-sample losses (n,)"""
    fits: Mapping[str, TwoGaussians]
    beliefs: Mapping[str, Belief]
    loss: str
    """the loss that the division is made from"""

    @property
    def belief(self) -> Belief:
        """Return whether there is a group of mismatched pairs: so it is where the mixture of any loss is believed.

        The losses order the pairs almost alike, but the sce loss calls a third of clean pairs noisy.
        """
        divergence = min(belief.divergence for belief in self.beliefs.values())
        return Belief(any(belief.believed for belief in self.beliefs.values()), divergence)

    @property
    def known(self) -> bool:
        """Return whether clean probabilities mean anything beyond their order."""
        return self.belief.believed and not self.fits[self.loss].single_mode

    @property
    def noise_rates(self) -> dict[str, float | None]:
        """Return the noise rate that each loss suggests: the mean of 1 - p_i, None where its mixture is not believed.

        The hinge averaged over the negatives stays near the truth where the model is good, and below it where it is
        weak.
        """
        return {name: fit.noise_rate if self.beliefs[name].believed else None for name, fit in self.fits.items()}

    def divide(self, pairs: Tensor, total: int, config: PartitionConfig, judge: str) -> Division:
        """Divide `pairs` (n,) of N = `total`; arguments as in `divide_by_mixture`."""
        losses, fit = self.losses[self.loss], self.fits[self.loss]
        division = divide_by_mixture(self.loss, losses, fit, self.belief, pairs, total, config, judge)
        rates = {f"estimated_noise_rate_{name}": rate for name, rate in self.noise_rates.items()}
        return replace(division, figures={**division.figures, **rates})


def judge_pairs(seen: Seen, loss: str, sce_from: float, config: PartitionConfig) -> Judgement:
    """Fit two Gaussians to each loss, and choose the loss that the division is made from.

    Args:
        seen: losses of the pairs, and of mismatched ones; with `loss` = auto those of `PairLosses`.
        loss: the name of one of them, or auto: sce where that loss calls at least `sce_from` of the pairs noisy. It is
            bounded and spreads its clean pairs wide, so that it calls at least a third of any data noisy; what it says
            is near the truth only where much is noisy. The hinge averaged over negatives is the other way round.
        sce_from: a share in [0, 1].
        config: how a mixture is fitted, and when it is believed.
    """
    fits = {name: fit_gaussians(values, config) for name, values in seen.columns.items()}
    beliefs = {name: Belief.of(fit, seen.mismatched[name], config) for name, fit in fits.items()}
    if loss == "auto":
        loss = SCE if (fits[SCE].noise_rate or 0) >= sce_from else HINGE
    return Judgement(seen.columns, fits, beliefs, loss)
