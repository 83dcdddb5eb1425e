"""The partition: every training pair's loss, the mixture, the clean and the noisy set."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from in2r.encode import encode_images, encode_texts, evaluating
from in2r.encoders import DualEncoder
from in2r.engine.settings import PartitionConfig
from in2r.engine.training_data import TrainingData
from in2r.errors import InputError
from in2r.partition import (
    TwoGaussians,
    elite,
    elite_threshold,
    fit_two_gaussians,
    is_believable,
    mismatch_divergence,
    split_pairs,
)
from in2r.seeds import torch_generator

SampleLosses = Callable[[Tensor], dict[str, Tensor]]
"""similarity (B, B) → named per-sample losses (B,)"""

BINS = 64
"""Bars of the recorded histogram of losses."""
CHUNK = 16
"""Loss batches whose captions are encoded together."""


@dataclass(frozen=True)
class PairLosses:
    """Named per-sample losses of the pairs, and of images and captions that were mismatched on purpose."""

    given: dict[str, Tensor]
    """name → (n,), in the order of the pairs"""
    mismatched: dict[str, Tensor]
    """name → (m,), in no order; m is about n"""


@dataclass(frozen=True)
class Partition:
    """One network's judgement of all training pairs; its peer trains on it."""

    clean_prob: Tensor
    """(N,) float32, as fitted; 0 for pairs that are not trained on"""
    clean: Tensor
    """(N,) bool"""
    split: bool
    """False where the mixture is not believed: there are no two sets, the peer trains with the warm-up loss on all
    pairs"""
    elite: Tensor
    """(N,) bool, clean pairs above τ_dyn, the mean clean probability of the clean set"""
    figures: dict[str, float | None]
    """what the fit says of itself, for the health record; None where it is not known"""
    mixture: dict[str, Any] = field(default_factory=dict)
    """the fitted components, the split and a histogram of the losses, for figures; empty where nothing was fitted"""


@dataclass(frozen=True)
class Judgement:
    """What one network says of the pairs that it scored."""

    losses: dict[str, Tensor]
    """name → per-sample losses (n,)"""
    loss: str
    """the one that made the partition"""
    partition: Partition
    noise_rates: dict[str, float | None]
    """name → the noise rate that each loss suggests: the mean of 1 - p_i, None where its mixture is not believed"""

    @property
    def known(self) -> bool:
        """Whether the partition's clean probabilities mean anything beyond their order."""
        return not self.partition.figures["single_mode"]

    def figures(self) -> dict[str, float | None]:
        """Return what the partition and the fits say of themselves."""
        rates = {f"estimated_noise_rate_{name}": rate for name, rate in self.noise_rates.items()}
        return {**self.partition.figures, **rates}


def score_pairs(
    encoder: DualEncoder,
    data: TrainingData,
    losses: SampleLosses,
    config: PartitionConfig,
    seed: int,
    *names: str | int,
) -> PairLosses:
    """Return each named per-sample loss of all pairs, in the order of `data.pairs`, and of as many mismatched ones.

    Eval mode; a pair's negatives are its batch mates in one fixed shuffled order, the same in every epoch and
    for both networks. Images are encoded once. The last batch is filled up from the first pairs, so that every
    loss is taken among equally many. With `config.augmented` the batches are augmented, as in the released code,
    by draws that depend on `names` (network, epoch).

    For the mismatched pairs the images of a batch meet the captions of another one (where there is one batch only: of
    the next pair), so that no image has its caption among them.

    Raises:
        InputError: a loss is not finite; the pair is named.
    """
    pairs = data.pairs
    size = min(config.batch_size, len(pairs))
    order = torch.randperm(len(pairs), generator=torch_generator(seed, "scoring order"))
    padded = torch.cat([order, order[: -len(pairs) % size]])
    images = None if config.augmented else encode_images(encoder, data.images, data.device)
    given: dict[str, list[Tensor]] = {}
    mismatched: dict[str, list[Tensor]] = {}
    for start in range(0, len(padded), size * CHUNK):
        chunk = pairs[padded[start : start + size * CHUNK]]
        with evaluating(encoder):
            if images is None:
                batch = data.batch(chunk, torch_generator(seed, "scoring augmentation", *names, start))
                v = encoder.encode_images(batch.images, batch.image_mask)
                u = encoder.encode_texts(batch.texts, batch.text_mask)
            else:
                v = images[data.image_of_pair[chunk].to(data.device)]
                u = encode_texts(encoder, data.texts, data.device, chunk)
            _add_losses(given, losses, v, u, size)
            _add_losses(mismatched, losses, v, u.roll(size if len(u) > size else 1, 0), size)
    found = {name: torch.cat(parts)[: len(pairs)].cpu() for name, parts in given.items()}
    _require_finite(found, pairs[order])
    in_order = {name: torch.empty_like(values).index_copy_(0, order, values) for name, values in found.items()}
    return PairLosses(in_order, {name: torch.cat(parts).cpu() for name, parts in mismatched.items()})


def _add_losses(found: dict[str, list[Tensor]], losses: SampleLosses, v: Tensor, u: Tensor, size: int) -> None:
    """Add the losses of embeddings (n, D), taken in batches of `size`."""
    for v_batch, u_batch in zip(torch.split(v, size), torch.split(u, size), strict=True):
        for name, values in losses(v_batch @ u_batch.T).items():
            found.setdefault(name, []).append(values)


def _require_finite(losses: dict[str, Tensor], pairs: Tensor) -> None:
    for name, values in losses.items():
        bad = ~values.isfinite()
        if bad.any():
            raise InputError(f"the {name} loss of pair {int(pairs[bad][0])} is {float(values[bad][0])}")


def judge_pairs(losses: PairLosses, pairs: Tensor, total: int, config: PartitionConfig) -> Judgement:
    """Fit the mixture to each per-sample loss of `pairs`; one of them splits the pairs (in2r.md, Phase 2, step 1).

    The losses order the pairs almost alike, but the sce loss calls a third of clean pairs noisy. So a partition is
    believed where the mixture of any loss is believable: that shows that there are mismatched pairs.

    Args:
        losses: of n pairs.
        pairs: (n,) int64, which of all pairs these are.
        total: N, all pairs.
        config: which loss, and how it is fitted and split.
    """
    given = losses.given
    fits = {
        name: fit_two_gaussians(
            values.numpy(), config.max_iter, config.tol, config.reg_covar, config.minimum_separation
        )
        for name, values in given.items()
    }
    divergences = {
        name: mismatch_divergence(fit, losses.mismatched[name], config.reg_covar) for name, fit in fits.items()
    }
    rates = {
        name: fit.noise_rate if is_believable(fit, divergences[name], config.maximum_divergence) else None
        for name, fit in fits.items()
    }
    believed = any(rate is not None for rate in rates.values())
    loss = config.loss if config.loss != "auto" else _choose_loss(fits, config)
    divergence = min(divergences.values())
    partition = _partition(loss, given[loss], fits[loss], divergence, believed, pairs, total, config)
    return Judgement(given, loss, partition, rates)


def _choose_loss(fits: dict[str, TwoGaussians], config: PartitionConfig) -> str:
    """Choose the loss that makes the partition, where that is left to the losses (`partition.loss=auto`).

    The sce loss is bounded and spreads its clean pairs wide, so that it calls at least a third of any data noisy; what
    it says is near the truth only where much is noisy. The hinge averaged over negatives is the other way round.
    """
    return "sce" if (fits["sce"].noise_rate or 0) >= config.sce_from else "triplet-mean"


def _partition(
    loss: str,
    losses: Tensor,
    fit: TwoGaussians,
    divergence: float,
    believed: bool,
    pairs: Tensor,
    total: int,
    config: PartitionConfig,
) -> Partition:
    prob = torch.as_tensor(fit.clean_probability, dtype=torch.float32)
    one_group = fit.single_mode or not believed
    figures: dict[str, float | None] = {
        "mean_clean_prob": None if one_group else float(prob.mean()),
        "separation": fit.separation,
        "divergence": divergence if math.isfinite(divergence) else None,
        "single_mode": float(one_group),
        "posterior_was_monotone": float(fit.monotone),
    }
    if not fit.split or (one_group and config.single_mode == "warmup"):
        everything = torch.ones_like(prob, dtype=torch.bool)
        mixture = _mixture(loss, losses, fit, None)
        return _spread(prob, everything, pairs, total, {**figures, "clean_fraction": 1.0}, mixture, split=False)
    clean = torch.as_tensor(split_pairs(prob.double().numpy(), config.threshold, config.minimum_noisy_share))
    if clean.sum() < 2:
        # nothing is trusted: go on with the lowest losses, so that something can be learnt, and say so
        clean = torch.zeros_like(clean)
        clean[torch.argsort(losses, stable=True)[: max(2, int(config.minimum_clean_share * len(losses)))]] = True
        figures["clean_set_was_empty"] = 1.0
    figures["clean_fraction"] = float(clean.float().mean())
    return _spread(prob, clean, pairs, total, figures, _mixture(loss, losses, fit, clean))


def _mixture(loss: str, losses: Tensor, fit: TwoGaussians, clean: Tensor | None) -> dict[str, Any]:
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


def trust_all(pairs: Tensor, total: int) -> Partition:
    """Count all of `pairs` as clean (the oracle's partition)."""
    ones = torch.ones(len(pairs))
    return _spread(ones, ones.bool(), pairs, total, {"clean_fraction": 1.0}, {})


def _spread(
    prob: Tensor,
    clean: Tensor,
    pairs: Tensor,
    total: int,
    figures: dict[str, float | None],
    mixture: dict[str, Any],
    split: bool = True,
) -> Partition:
    all_prob, all_clean = torch.zeros(total), torch.zeros(total, dtype=torch.bool)
    all_prob[pairs], all_clean[pairs] = prob, clean
    all_elite = torch.zeros_like(all_clean)
    trusted = prob[clean].double().numpy()
    tau = elite_threshold(trusted)
    all_elite[pairs[clean]] = torch.as_tensor(elite(trusted, tau))
    threshold = {"tau": tau} if split else {}
    return Partition(all_prob, all_clean, split, all_elite, {**figures, **threshold}, mixture)
