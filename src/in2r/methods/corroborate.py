"""Corroborate: trust a pair as far as two kinds of evidence agree, and train afresh on what is trusted.

A method of this project. Read top to bottom: settings, warm-up, evidence and trust before each round, the steps of a
round. Letters: v, u are unit-norm image and text embeddings; p the clean probability of a pair; S a batch's
similarities (n images × m captions); q a soft target. docs/methods/corroborate.md maps formulas to functions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from in2r.config import key
from in2r.evidence import (
    best_other_image,
    has_other_captions,
    matching_share,
    mixture_posterior,
    neighbor_evidence,
    own_caption_evidence,
    standardize,
    whole_set_log_posterior,
)
from in2r.losses import distilled, image_targets, soft_contrast_loss
from in2r.methods.base import Method, MethodConfig, Now, Seen, Step, TrainingPairs, Walk
from in2r.methods.contrast import LossConfig, soft_owners
from in2r.methods.division import Division, PartitionConfig, describe_mixture
from in2r.methods.network import Batch, Net
from in2r.methods.warmup import SceWarmup
from in2r.partition import TwoGaussians

SCORE = "evidence"
"""what the mixture is fitted to: the negated score"""
FEW = 20
"""surest pairs at least: what fewer of them say is chance"""


@dataclass(frozen=True)
class CorroborateConfig(MethodConfig):
    """Section `method` for name = corroborate."""

    name: str = key("corroborate", "the method")
    warmup_epochs: int = key(6, "epochs of warm-up on all pairs", low=1)
    ce_weight: float = key(1.0, "α of Eq. 1, the warm-up's loss", low=0)
    rce_weight: float = key(1.0, "β of Eq. 1", low=0)
    epsilon: float = key(1e-7, "ε inside the logarithm of Eq. 1", above=0)
    warmup_temperature: float = key(0.05, "τ of the warm-up's loss", low=1e-3)
    rounds: int = key(
        2,
        "rounds of judging and training, if there are epochs enough; the last one has all that are left",
        low=1,
    )
    round_epochs: int = key(8, "epochs of each round but the last", low=1)
    fresh_weights: bool = key(
        True,
        "the first round starts from fresh weights, so that no wrong pair of the warm-up stays learnt; false: from the "
        "warm-up's, for which fewer epochs are enough, but much noise is too much",
    )
    posterior_temperature: float = key(0.05, "τ of the softmax over the whole training set", low=1e-3)
    raw_evidence: bool = key(True, "the first trust rests on the given features and captions as well")
    evidence_temperature: float = key(0.1, "T of the cosines of raw evidence", low=1e-3)
    neighbors: int = key(20, "nearest images whose captions may support a caption", low=1)
    text_evidence: Literal["given", "learnt"] = key(
        "given",
        "what says that captions are alike: their given vectors (of words TF-IDF, see loss.text_dim), or the "
        "networks' own text embeddings",
    )
    share: Literal["neighbors", "mixture"] = key(
        "neighbors",
        "where the share of pairs that belong together comes from: from the captions of similar images, beside what "
        "these say of captions in a random order; or from the two Gaussians on all evidence",
    )
    surest: float = key(
        0.05,
        "share neighbors: share of the pairs, the first by learnt evidence, that surely are right; at least 20 pairs",
        above=0,
        high=1,
    )
    anchor: bool = key(True, "each round trusts that share of the pairs; false: what its own two Gaussians say")
    distillation: float = key(
        0.5,
        "share of the target that is what the networks said when the round began, from the second round on",
        low=0,
        high=1,
    )
    least_weight: float = key(0.1, "pairs that are trusted less are left out", low=0, high=1)
    rematch: bool = key(
        True, "a caption is trained with the most likely other image where that one is likelier than the given one"
    )
    rematch_raw: float = key(10.0, "weight of the likeness of captions in what makes another image likely", low=0)


class CorroborateOwn(nn.Module):
    """What one network keeps beside its backbone: the share of pairs that belong together."""

    share: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("share", torch.ones(()))


class Corroborate(Method):
    """Two networks that are asked together; both train on the same trust."""

    Config = CorroborateConfig
    config: CorroborateConfig
    networks = 2
    sets = (Walk("all"),)
    compares_vectors = True

    def __init__(self, config: CorroborateConfig, partition: PartitionConfig, loss: LossConfig | None = None) -> None:
        super().__init__(config, partition, loss)
        self._teachers: tuple[int, list[tuple[Tensor, Tensor]]] = -1, []

    def fault(self, dim: int) -> str:
        """Refuse another loss than the softmax, whose targets the method makes."""
        return "" if self.loss.kind == "softmax" else f"corroborate needs `loss.kind=softmax`, got {self.loss.kind}"

    def own(self, dim: int, pairs: int, batch_size: int) -> CorroborateOwn:
        """Make a place for the share."""
        return CorroborateOwn()

    # --- phase 1: warm-up on all pairs (Eq. 1)

    def warmup(self) -> tuple[int, SceWarmup]:
        """Return IN²R's warm-up: robust to wrong pairs, so that right ones are learnt first."""
        c = self.config
        return c.warmup_epochs, SceWarmup(c.warmup_temperature, c.ce_weight, c.rce_weight, c.epsilon)

    # --- phase 2: rounds, the first of them from fresh weights; before each the pairs are judged anew

    @property
    def fresh_weights(self) -> bool:
        """Return the setting."""
        return self.config.fresh_weights

    def rounds(self, epochs: int) -> tuple[int, ...]:
        """Return the first epoch of each round; none that would be shorter than `round_epochs` follows the first."""
        c = self.config
        rounds = max(1, min(c.rounds, epochs // c.round_epochs))
        return tuple(range(0, rounds * c.round_epochs, c.round_epochs))

    def divide(
        self, seen: Mapping[str, Seen], nets: Mapping[str, Net], data: TrainingPairs, now: Now
    ) -> Mapping[str, Division]:
        """Judge all pairs by both networks together; each trains on every pair, as far as it is trusted."""
        c, embedded = self.config, [data.embed(net) for net in nets.values()]
        self._teachers = self._round(now), embedded  # of the networks as they are before the round
        given = data.image_of_pair.to(data.device)
        score = standardize(self._log_posterior(embedded, given))
        for net in nets.values():
            with torch.no_grad():
                net.count_scored(len(embedded[0][0]) * len(given))
            net.cost.passes += 1
        vectors = self._text_vectors(embedded, data)
        shares = [cast(CorroborateOwn, net.own).share for net in nets.values()]
        share: float | None = float(shares[0])
        if now.epoch == 0:
            score, share = self._corroborated(score, vectors, given, data, now)
        mixture = mixture_posterior(score, *self._fitting)
        if share is None:
            share = _trusted_share(mixture.prob)
        share = max(share, self.partition.minimum_clean_share)
        for kept in shares:
            kept.fill_(share)
        prob = mixture.anchored(share) if c.anchor else mixture.prob
        weight, images = self._rematched(prob, embedded, vectors, given) if c.rematch else (prob, given)
        columns = {"clean_prob": prob.cpu(), "weight": weight.cpu()}
        division = self._division(columns, images.cpu(), data, score.cpu(), mixture.fitted, share)
        return {name: replace(division, judge=name) for name in nets}  # one judgement, on record under each name

    @property
    def _fitting(self) -> tuple[int, float, float]:
        return self.partition.max_iter, self.partition.tol, self.partition.reg_covar

    def _log_posterior(self, embedded: list[tuple[Tensor, Tensor]], given: Tensor) -> Tensor:
        """ℓ(i, t) = Σ over networks of log p(i | t) + log p(t | i), over the whole training set; (N,)."""
        tau = self.config.posterior_temperature
        return torch.stack([whole_set_log_posterior(v, u, given, tau) for v, u in embedded]).sum(0)

    def _corroborated(
        self, learnt: Tensor, vectors: Tensor, given: Tensor, data: TrainingPairs, now: Now
    ) -> tuple[Tensor, float | None]:
        """Return 2 z(ℓ) + z(own) + z(nei), and π₀, the share of pairs that belong together; None: not known.

        own: what the image's other captions say; nei: what the captions of similar images say. How nei looks where it
        is wrong is known from captions in a random order, and so is π₀.
        """
        c = self.config
        if not c.raw_evidence:
            return learnt, None
        prob, score = mixture_posterior(learnt, *self._fitting).prob, 2 * learnt
        if has_other_captions(given).any():
            score = score + standardize(own_caption_evidence(vectors, given, prob, c.evidence_temperature))
        asked = data.image_vectors().to(data.device), vectors, given, prob, c.neighbors, c.evidence_temperature
        nearby = neighbor_evidence(*asked)
        score = score + standardize(nearby)
        if c.share == "mixture":
            return score, None
        order = torch.randperm(len(given), generator=now.generator("mismatched pairs")).to(data.device)
        count = max(round(c.surest * len(learnt)), min(FEW, len(learnt)))
        surest = learnt >= learnt.topk(count).values[-1]
        return score, matching_share(nearby, neighbor_evidence(*asked, placed=order), surest)

    def _text_vectors(self, embedded: list[tuple[Tensor, Tensor]], data: TrainingPairs) -> Tensor:
        if self.config.text_evidence == "learnt":
            return torch.cat([u for _, u in embedded], dim=1)
        return data.text_vectors(self.loss.text_dim).to(data.device)

    def _rematched(
        self, prob: Tensor, embedded: list[tuple[Tensor, Tensor]], vectors: Tensor, given: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the weight and the image of each caption: p and the given one, or (1 - p) P(i | t) and i if more.

        It never is more where p is above one half.
        """
        c, doubted = self.config, torch.nonzero(prob < 0.5).flatten()
        if len(doubted) == 0 or len(embedded[0][0]) < 2:
            return prob, given
        sides = [v for v, _ in embedded], [u for _, u in embedded]
        numbers = c.posterior_temperature, c.rematch_raw
        found, chance = best_other_image(*sides, doubted, given[doubted], vectors, given, prob > 0.5, *numbers, top=1)
        other = (1 - prob[doubted]) * chance[:, 0]
        better = other > prob[doubted]
        weight = prob.index_put((doubted[better],), other[better])
        return weight, given.index_put((doubted[better],), found[better, 0])

    def _division(
        self,
        columns: Mapping[str, Tensor],
        images: Tensor,
        data: TrainingPairs,
        score: Tensor,
        fit: TwoGaussians,
        share: float,
    ) -> Division:
        """Return the pairs that have some weight, and what is to be said of all of them."""
        total, pairs, trusted = len(data.image_of_pair), data.pairs, columns["clean_prob"] > 0.5
        sets = torch.full((total,), -1, dtype=torch.int8)
        kept = pairs[columns["weight"][pairs] >= self.config.least_weight]
        if len(torch.unique(images[kept])) < 2:  # something must be left to learn from
            kept, images = pairs, data.image_of_pair
            columns = {**columns, "weight": torch.ones(total)}
        sets[kept] = 0
        figures: dict[str, float | None] = {
            "clean_fraction": _trusted_share(columns["clean_prob"]),
            "mean_clean_prob": float(columns["clean_prob"].mean()),
            "matching_share": share,
            "rematched": float((images != data.image_of_pair).float().mean()),
            "separation": fit.separation,
        }
        mixture = describe_mixture(SCORE, -score, fit, trusted if trusted.any() else None)
        return Division(sets, columns, images, figures=figures, losses={SCORE: -score[pairs]}, mixture=mixture)

    def trust(self, pairs: Tensor, total: int) -> Division:
        """Give every pair of an oracle run the weight 1."""
        division = super().trust(pairs, total)
        return replace(division, columns={**division.columns, "weight": torch.ones(total)})

    # --- a round: soft targets, from the second one on half of them by the networks as the round found them

    def begin_epoch(self, nets: Mapping[str, Net], data: TrainingPairs, now: Now) -> None:
        """Embed the training set by the networks as the round found them, where `divide` of this process has not."""
        index = self._round(now)
        if index == 0 or not self.config.distillation:
            self._teachers = index, []
        elif self._teachers[0] != index:
            self._teachers = index, [data.embed(net, before=True) for net in nets.values()]

    def _round(self, now: Now) -> int:
        return sum(start <= now.epoch for start in self.rounds(now.epochs)) - 1

    def steps(self, net: Net, peer: Net, batches: Mapping[str, Batch], now: Now) -> Iterator[Step]:
        """-½ [mean_t q_t · log p(· | t) + mean_i q_i · log p(· | i)] of one batch, the means weighted by trust."""
        batch, loss = batches["all"], self.loss
        images, texts = net.encode(batch)[0]
        first, owner = batch.alike()
        logits = net.logits(images[first], texts)
        w = batch.column("weight")
        q_t = soft_owners(batch, owner, len(first), loss, w)
        q_i = image_targets(q_t, w)
        if self._teachers[1]:
            taught, share = self._taught(batch.groups[first], batch.pairs), self.config.distillation
            q_t = distilled(q_t, taught.T, loss.temperature, share)
            q_i = distilled(q_i, taught, loss.temperature, share)
        of_images = torch.zeros(len(first), device=w.device).index_add(0, owner, w).clamp(max=1)
        contrast = soft_contrast_loss(logits, q_t, q_i, loss.temperature, w, of_images)
        yield Step({"contrast": contrast, "total": contrast}, notes={"weight": w.mean()})

    def _taught(self, images: Tensor, pairs: Tensor) -> Tensor:
        """Return the similarities (n, m) by the networks as the round found them, their mean."""
        return torch.stack([v[images] @ u[pairs].T for v, u in self._teachers[1]]).mean(0)


def _trusted_share(prob: Tensor) -> float:
    return float((prob > 0.5).double().mean())
