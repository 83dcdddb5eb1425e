"""Divisions: what a network trains on in an epoch, and how two fitted components make one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from in2r.config import key
from in2r.partition import (
    HISTOGRAM_FROM,
    Fit,
    TwoGaussians,
    elite,
    elite_threshold,
    fit_two_gaussians,
    is_believable,
    mismatch_divergence,
    split_pairs,
)

BINS = 64
"""Bars of the recorded histogram of losses."""
CLEAN, NOISY = 0, 1
"""the sets of a division into two"""


@dataclass(frozen=True)
class PartitionConfig:
    """Section `partition`: clean and noisy sets, made in each epoch, for a network's peer if there are two."""

    threshold: float = key(0.5, "clean = clean probability above this (IN²R's code)", low=0, high=1)
    minimum_noisy_share: float = key(
        0.0,
        "share that counts as noisy if nothing is below the threshold (IN²R's code: 0.01)",
        low=0,
        high=0.5,
    )
    minimum_clean_share: float = key(
        0.01, "share, at least two pairs, that counts as clean if nothing is above the threshold", above=0, high=0.5
    )
    augmented: bool = key(
        False, "score augmented batches (released code); false: without augmentation, so that losses are stable"
    )
    batch_size: int = key(128, "pairs that are each other's negatives in a per-sample loss", low=2)
    minimum_separation: float = key(
        2.0,
        "smallest Ashman's D of two components that count as two groups (his bound for two modes; losses of one group "
        "that pile up at their lower end reach 2.3)",
        low=0,
    )
    maximum_divergence: float = key(
        0.33,
        "largest Kullback-Leibler divergence (nats), from the noisy component, of pairs mismatched on purpose; above "
        "it the component is not believed to hold mismatched pairs (measured: at most 0.22 with 10 to 60 % "
        "noise, at least 0.48 with clean pairs, 0.77 at chance)",
        above=0,
    )
    single_mode: Literal["warmup", "split"] = key(
        "warmup",
        "if no group of mismatched pairs is found: warmup = the warm-up's loss on all pairs in this epoch; split = "
        "divide them by the two components nevertheless (IN²R's code)",
    )
    max_iter: int = key(10, "EM iterations (IN²R's code)", low=1)
    tol: float = key(1e-2, "EM stops below this gain (IN²R's code)", above=0)
    reg_covar: float = key(5e-4, "added to each variance (IN²R's code)", above=0)
    histogram_from: int = key(
        HISTOGRAM_FROM,
        "so many losses or more are fitted as a histogram of 65,536 bins: a fit to each loss takes 100 bytes a pair; "
        "clean probabilities differ by less than 0.001",
        low=2,
    )


@dataclass(frozen=True)
class Division:
    """What one network trains on in an epoch; a file beside the checkpoints holds it."""

    sets: Tensor
    """(N,) int8, index into `Method.sets`; -1 = left out"""
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    """name → (N, ...): posteriors, soft labels, margins; a batch has its pairs' rows. Where batches are made of images,
    the column `weight` says how likely each of an image's pairs is drawn"""
    images: Tensor | None = None
    """(N,) int64, the image that each caption is trained with; None: the given ones"""
    split: bool = True
    """False: the pairs form one group, and the network makes the warm-up's steps on all of them in this epoch"""
    judge: str = ""
    """the network whose judgement this is, where it is one network's: figures are recorded under its name"""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """what the division says of itself, for the record; None = not known"""
    losses: Mapping[str, Tensor] = field(default_factory=dict)
    """name → (n,) of the pairs that are trained on: what the division was made from, for the record, where `observe`
    returned nothing; larger = less likely to belong together"""
    mixture: Mapping[str, Any] = field(default_factory=dict)
    """the fitted components and a histogram of the losses, for plots; empty where nothing was fitted"""
    remark: str = ""
    """what is unusual about it, for the user; logged once per run"""


@dataclass(frozen=True)
class Belief:
    """Whether the noisy component of a mixture is believed to hold mismatched pairs."""

    believed: bool
    divergence: float
    """of pairs that are mismatched on purpose from the noisy component, in nats; infinite where nothing was fitted"""

    @staticmethod
    def of(fit: Fit, mismatched: Tensor, config: PartitionConfig) -> "Belief":
        """Hold a fit against the same loss (M,) of images and captions that were put together at random."""
        divergence = mismatch_divergence(fit, mismatched, config.reg_covar)
        return Belief(is_believable(fit, divergence, config.maximum_divergence), divergence)


def fit_gaussians(losses: Tensor, config: PartitionConfig) -> TwoGaussians:
    """Fit two Gaussians to per-sample losses (n,), as the settings say."""
    c = config
    return fit_two_gaussians(losses, c.max_iter, c.tol, c.reg_covar, c.minimum_separation, c.histogram_from)


def whole(pairs: Tensor, total: int, **more: Any) -> Division:
    """Put all of `pairs` (n,) of N = `total` into the first set, each with clean probability 1 and elite."""
    return in_two(torch.ones(len(pairs)), torch.ones(len(pairs), dtype=torch.bool), pairs, total, **more)


def in_two(prob: Tensor, clean: Tensor, pairs: Tensor, total: int, **more: Any) -> Division:
    """Make a division into a clean and a noisy set, with the columns `clean_prob` and `elite`.

    Args:
        prob: (n,) float32, clean probabilities.
        clean: (n,) bool, which of `pairs` are clean.
        pairs: (n,) int64, the pairs that are divided; all others are left out.
        total: N.
        more: other fields of the division; `figures` get τ_dyn, the mean clean probability of the clean set.

    Returns:
        A division whose `elite` pairs are the clean ones above τ_dyn, all of them where they are equal.
    """
    all_prob, all_elite = torch.zeros(total), torch.zeros(total, dtype=torch.bool)
    sets = torch.full((total,), -1, dtype=torch.int8)
    all_prob[pairs] = prob
    sets[pairs] = torch.where(clean, CLEAN, NOISY).to(torch.int8)
    trusted = prob[clean].double().numpy()
    tau = elite_threshold(trusted)
    all_elite[pairs[clean]] = torch.as_tensor(elite(trusted, tau))
    figures = {**more.pop("figures", {}), "clean_fraction": float(clean.float().mean())}
    if more.get("split", True):
        figures["tau"] = tau
    return Division(sets, {"clean_prob": all_prob, "elite": all_elite}, figures=figures, **more)


def divide_by_mixture(
    loss: str, losses: Tensor, fit: Fit, belief: Belief, pairs: Tensor, total: int, config: PartitionConfig, judge: str
) -> Division:
    """Divide pairs by the clean probabilities of a fitted mixture (in2r.md, Phase 2, step 1).

    Args:
        loss: the name of the per-sample loss that was fitted.
        losses: (n,) of `pairs`.
        fit: its two components.
        belief: whether there is a group of mismatched pairs at all.
        pairs: (n,) int64.
        total: N.
        config: threshold, and what is done where there is one group or nothing is clean.
        judge: the network whose losses these are.
    """
    prob = torch.as_tensor(fit.clean_probability, dtype=torch.float32)
    one_group = fit.single_mode or not belief.believed
    figures: dict[str, float | None] = {
        "mean_clean_prob": None if one_group else float(prob.mean()),
        "separation": fit.separation,
        "divergence": belief.divergence if math.isfinite(belief.divergence) else None,
        "single_mode": float(one_group),
        "posterior_was_monotone": float(fit.monotone),
    }
    if not fit.split or (one_group and config.single_mode == "warmup"):
        everything = torch.ones_like(prob, dtype=torch.bool)
        mixture = describe_mixture(loss, losses, fit, None)
        remark = (
            "the losses do not show a group of mismatched pairs (partition.minimum_separation="
            f"{config.minimum_separation:g}, partition.maximum_divergence={config.maximum_divergence:g}): the data are "
            "clean or the model is weak; in such an epoch a network trains on all pairs with the warm-up loss"
        )
        return in_two(
            prob, everything, pairs, total, figures=figures, mixture=mixture, split=False, judge=judge, remark=remark
        )
    clean = torch.as_tensor(split_pairs(prob.double().numpy(), config.threshold, config.minimum_noisy_share))
    remark = ""
    if clean.sum() < 2:
        # nothing is trusted: the lowest losses are used, so that something can be learnt, and a remark says so
        clean = torch.zeros_like(clean)
        clean[torch.argsort(losses, stable=True)[: max(2, int(config.minimum_clean_share * len(losses)))]] = True
        figures["clean_set_was_empty"] = 1.0
        remark = f"no two pairs above partition.threshold={config.threshold:g}; the lowest losses count as clean"
    mixture = describe_mixture(loss, losses, fit, clean)
    return in_two(prob, clean, pairs, total, figures=figures, mixture=mixture, judge=judge, remark=remark)


def describe_mixture(loss: str, losses: Tensor, fit: Fit, clean: Tensor | None) -> dict[str, Any]:
    """Describe a fit in plain values; `boundary` is the largest clean loss, scaled like all of them to [0, 1]."""
    if not fit.split:
        return {}
    low, high = fit.scale
    boundary = None if clean is None else (float(losses[clean].max()) - low) / (high - low)
    return {
        "loss": loss,
        "low": low,
        "high": high,
        "means": fit.means.tolist(),
        "variances": fit.variances.tolist(),
        "weights": fit.weights.tolist(),
        "boundary": boundary,
        "counts": loss_counts(losses, low, high),
    }


def loss_counts(losses: Tensor, low: float, high: float) -> list[int]:
    """Count losses (n,) in equal bins between the smallest and the largest one."""
    counts: list[int] = torch.histc(losses.double(), BINS, low, high).long().tolist()
    return counts


def exchange(verdicts: Mapping[str, Division]) -> dict[str, Division]:
    """Give each of two networks its peer's verdict."""
    one, other = verdicts
    return {one: verdicts[other], other: verdicts[one]}
