"""The partition: every training pair's loss, the mixture, the clean and the noisy set."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from in2r.errors import InputError
from in2r.models.dual import DualEncoder
from in2r.models.encode import encode_images, encode_texts, evaluating
from in2r.partition import TwoGaussians, elite, elite_threshold, fit_two_gaussians, split_pairs
from in2r.runs.settings import PartitionConfig
from in2r.seeds import torch_generator
from in2r.training.training_data import TrainingData

SampleLosses = Callable[[Tensor], dict[str, Tensor]]
"""similarity (B, B) → named per-sample losses (B,)"""

BINS = 64
"""Bars of the recorded histogram of losses."""
CHUNK = 16
"""Loss batches whose captions are encoded together."""


@dataclass(frozen=True)
class Partition:
    """One network's judgement of all training pairs; its peer trains on it."""

    clean_prob: Tensor
    """(N,) float32, as fitted; 0 for pairs that are not trained on"""
    clean: Tensor
    """(N,) bool"""
    split: bool
    """False where one Gaussian suffices: there are no two sets, the peer goes on with the warm-up loss on all pairs"""
    elite: Tensor
    """(N,) bool, clean pairs above τ_dyn, the mean clean probability of the clean set"""
    figures: dict[str, float]
    """what the fit says of itself, for the health record"""
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
    noise_rates: dict[str, float]
    """name → the noise rate that each loss suggests: the mean of 1 - p_i, 0 where one Gaussian suffices. The losses
    order the pairs almost alike, but the sce loss calls a third of clean pairs noisy; the hinge averaged over the
    negatives stays near the truth where the model is good, and below it where the model is weak"""

    def figures(self) -> dict[str, float]:
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
) -> dict[str, Tensor]:
    """Return each named per-sample loss (n,), in the order of `data.pairs`.

    Eval mode; a pair's negatives are its batch mates in one fixed shuffled order, the same in every epoch and
    for both networks. Images are encoded once. The last batch is filled up from the first pairs, so that every
    loss is taken among equally many. With `config.augmented` the batches are augmented, as in the released code,
    by draws that depend on `names` (network, epoch).

    Raises:
        InputError: a loss is not finite; the pair is named.
    """
    pairs = data.pairs
    size = min(config.batch_size, len(pairs))
    order = torch.randperm(len(pairs), generator=torch_generator(seed, "scoring order"))
    padded = torch.cat([order, order[: -len(pairs) % size]])
    images = None if config.augmented else encode_images(encoder, data.images, data.device).vector
    found: dict[str, list[Tensor]] = {}
    for start in range(0, len(padded), size * CHUNK):
        chunk = pairs[padded[start : start + size * CHUNK]]
        with evaluating(encoder):
            if images is None:
                batch = data.batch(chunk, torch_generator(seed, "scoring augmentation", *names, start))
                v = encoder.encode_images(batch.images, batch.image_mask).vector
                u = encoder.encode_texts(batch.texts, batch.text_mask).vector
            else:
                v = images[data.image_of_pair[chunk].to(data.device)]
                u = encode_texts(encoder, data.texts, data.device, chunk).vector
            for v_batch, u_batch in zip(torch.split(v, size), torch.split(u, size), strict=True):
                for name, values in losses(v_batch @ u_batch.T).items():
                    found.setdefault(name, []).append(values)
    result = {}
    for name, parts in found.items():
        values = torch.cat(parts)[: len(pairs)].cpu()
        bad = ~values.isfinite()
        if bad.any():
            raise InputError(f"the {name} loss of pair {int(pairs[order[bad]][0])} is {float(values[bad][0])}")
        result[name] = torch.empty_like(values)
        result[name][order] = values
    return result


def judge_pairs(losses: dict[str, Tensor], pairs: Tensor, total: int, config: PartitionConfig) -> Judgement:
    """Fit the mixture to each per-sample loss of `pairs`; one of them splits the pairs (in2r.md, Phase 2, step 1).

    Args:
        losses: name → (n,), finite.
        pairs: (n,) int64, which of all pairs these are.
        total: N, all pairs.
        config: which loss, and how it is fitted and split.
    """
    fits = {
        name: fit_two_gaussians(
            values.numpy(), config.max_iter, config.tol, config.reg_covar, config.minimum_separation
        )
        for name, values in losses.items()
    }
    rates = {name: fit.noise_rate for name, fit in fits.items()}
    loss = config.loss if config.loss != "auto" else _believable(rates, config)
    return Judgement(losses, loss, _partition(loss, losses[loss], fits[loss], pairs, total, config), rates)


def _believable(rates: dict[str, float], config: PartitionConfig) -> str:
    """Choose the loss that makes the partition, where that is left to the losses (`partition.loss=auto`).

    The sce loss is bounded and spreads its clean pairs wide, so that it calls at least a third of any data noisy; what
    it says is near the truth only where much is noisy. The hinge averaged over negatives is the other way round.
    """
    return "sce" if rates["sce"] >= config.sce_from else "triplet-mean"


def _partition(
    loss: str, losses: Tensor, fit: TwoGaussians, pairs: Tensor, total: int, config: PartitionConfig
) -> Partition:
    prob = torch.as_tensor(fit.clean_probability, dtype=torch.float32)
    figures = {
        "mean_clean_prob": float(prob.mean()),
        "separation": fit.separation,
        "single_mode": float(fit.single_mode),
        "posterior_was_monotone": float(fit.monotone),
    }
    if not fit.split or (fit.single_mode and config.single_mode == "warmup"):
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
    figures: dict[str, float],
    mixture: dict[str, Any],
    split: bool = True,
) -> Partition:
    all_prob, all_clean = torch.zeros(total), torch.zeros(total, dtype=torch.bool)
    all_prob[pairs], all_clean[pairs] = prob, clean
    all_elite = torch.zeros_like(all_clean)
    trusted = prob[clean].double().numpy()
    tau = elite_threshold(trusted)
    all_elite[pairs[clean]] = torch.as_tensor(elite(trusted, tau))
    return Partition(all_prob, all_clean, split, all_elite, {**figures, "tau": tau}, mixture)
