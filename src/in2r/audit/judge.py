"""How likely each given pair matches, by all kinds of evidence together.

1. Pairs are mismatched on purpose, in two ways: a caption alone goes to another image; all of an image go together.
2. The evidence of given pairs and of those is collected (`audit/evidence.py`).
3. A model tells the two apart, and has the probability that a given pair matches inside (`evidence/clean_model.py`).
4. Steps 2 and 3 again, in which pairs are asked as far as they are believed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.audit.evidence import NAMES, Asked, EvidenceBase
from in2r.audit.settings import AuditConfig
from in2r.evidence import CleanModel, LinearMaps, fit_clean_model, share_of_matching
from in2r.seeds import torch_generator

MOST_FITTED = 20_000
"""Given pairs that the model is fitted on; more move it by less than its rounding."""
LEAST_SHARE = 1e-3
"""Of matching and of mismatched pairs, that is assumed at least."""
DOUBT_POWER = 8
"""Pairs count by (1 - P)^8 when it is told how captions have moved: those that are surely wrong."""
PRIOR = 10
"""Pairs of each way that are assumed beforehand."""
OTHER = NAMES.index("other captions")


@dataclass(frozen=True)
class Judgement:
    """What is known of N given pairs.

    Attributes:
        score: (N,) float32, the probability that the pair matches.
        log_odds: (N,) float64, log score / (1 - score): orders pairs also where the score rounds to 0 or 1.
        components: (N, kinds) float32, of each kind of evidence: the share of pairs mismatched on purpose that have
            less; NaN where it is not known.
        evidence: (N, kinds) float32, raw.
        share: estimated share of matching pairs.
        interval: its 95 % interval.
        moved_alone: estimated share of wrong captions that moved without their image's other captions.
        separation: AUROC of the model between given pairs and pairs mismatched on purpose; 0.5: it tells nothing.
        model: of the evidence.
        maps: the linear maps of each fold, by which "own similarity" was found.
    """

    score: Tensor
    log_odds: Tensor
    components: Tensor
    evidence: Tensor
    share: float
    interval: tuple[float, float]
    moved_alone: float
    separation: float
    model: CleanModel
    maps: list[LinearMaps]


def judge(base: EvidenceBase, on_step: Callable[[str], None] = lambda what: None) -> Judgement:
    """Judge all given pairs.

    Args:
        base: the data set as witness.
        on_step: called with what is done next, for a progress line.
    """
    config, data = base.config, base.data
    count = len(data.image_of_pair)
    given = Asked(data.image_of_pair, torch.arange(count), data.image_of_pair)
    alone, together = mismatched_on_purpose(base)
    trust = torch.ones(count)
    for number in range(config.rounds):
        on_step(f"evidence, pass {number + 1} of {config.rounds}")
        maps = base.fit(trust)
        evidence, *wrong = (base.of(asked, maps, trust) for asked in (given, alone, together))
        on_step(f"model, pass {number + 1} of {config.rounds}")
        fitted = _drawn(count, MOST_FITTED, config, "fitted")
        moved_alone = _moved_alone(evidence[fitted], wrong)
        ways = torch.cat(
            [torch.full((len(part),), share) for part, share in zip(wrong, (moved_alone, 1 - moved_alone), strict=True)]
        )
        both = torch.cat(wrong)
        order = fit_clean_model(evidence[fitted], both, mismatched_weight=ways)
        share = share_of_matching(order.log_odds(evidence), order.log_odds(both), mismatched_weight=ways)
        share = min(max(share, LEAST_SHARE), 1 - LEAST_SHARE)
        model = fit_clean_model(evidence[fitted], both, mismatched_weight=ways, share=share)
        log_odds = model.log_odds(evidence)
        trust = torch.sigmoid(log_odds).float()
    on_step("interval of the noise rate")
    return Judgement(
        score=trust,
        log_odds=log_odds,
        components=_beaten(evidence, both, ways),
        evidence=evidence,
        share=model.share,
        interval=_interval(base, log_odds, model.log_odds(both), ways, model.share),
        moved_alone=moved_alone,
        separation=_auroc(log_odds[fitted], model.log_odds(both), ways),
        model=model,
        maps=maps,
    )


def mismatched_on_purpose(base: EvidenceBase) -> tuple[Asked, Asked]:
    """Return pairs of images and captions of different images: a caption moved alone, and with all its siblings."""
    config, data = base.config, base.data
    count = len(data.image_of_pair)
    found = []
    for way in ("alone", "together"):
        texts = _drawn(count, config.mismatched, config, way)
        other = torch.randint(count, (len(texts),), generator=torch_generator(config.seed, way, "images"))
        images = data.image_of_pair[other]
        home = data.image_of_pair[texts]
        apart = data.group_of_image[images] != data.group_of_image[home]
        images, texts, home = images[apart], texts[apart], home[apart]
        found.append(Asked(images, texts, images if way == "alone" else home))
    return found[0], found[1]


def _drawn(count: int, most: int, config: AuditConfig, purpose: str) -> Tensor:
    return torch.randperm(count, generator=torch_generator(config.seed, purpose))[:most]


def _moved_alone(given: Tensor, wrong: list[Tensor]) -> float:
    """Estimate how wrong captions have moved, by what the image's other captions say of the surely wrong pairs.

    Without that evidence the others tell which pairs are wrong. The mean rank of "other captions" among those lies
    between the mean ranks of both ways.
    """
    ranked = torch.cat([part[:, OTHER] for part in wrong])
    ranked = ranked[~ranked.isnan()].sort().values
    if not len(ranked):
        return 0.5
    rest = [column for column in range(given.shape[1]) if column != OTHER]
    model = fit_clean_model(given[:, rest], torch.cat(wrong)[:, rest])
    doubt = (1 - torch.sigmoid(model.log_odds(given[:, rest]))) ** DOUBT_POWER
    known = ~given[:, OTHER].isnan()
    doubt, total = doubt[known], float(doubt[known].sum())
    alone, together = (_mean_rank(part[:, OTHER], ranked) for part in wrong)
    if total == 0 or alone == together:
        return 0.5
    seen = float((doubt * _rank(given[known, OTHER], ranked)).sum()) / total
    share = min(max((seen - together) / (alone - together), 0.0), 1.0)
    return (total * share + PRIOR) / (total + 2 * PRIOR)


def _rank(values: Tensor, ranked: Tensor) -> Tensor:
    return torch.searchsorted(ranked, values.contiguous()).double() / len(ranked)


def _mean_rank(values: Tensor, ranked: Tensor) -> float:
    return float(_rank(values[~values.isnan()], ranked).mean())


def _beaten(evidence: Tensor, wrong: Tensor, weight: Tensor) -> Tensor:
    """Return of each kind of evidence the weighted share of wrong pairs that have less, or as much by half."""
    shares = torch.full_like(evidence, torch.nan)
    for column in range(evidence.shape[1]):
        known = ~wrong[:, column].isnan()
        values, order = wrong[known, column].sort()
        total = torch.cat([weight.new_zeros(1), weight[known][order].cumsum(0)]).double()
        low, high = (
            torch.searchsorted(values, evidence[:, column].contiguous(), right=right) for right in (False, True)
        )
        shares[:, column] = ((total[low] + total[high]) / (2 * total[-1].clamp(min=1e-12))).float()
    return shares.masked_fill(evidence.isnan(), torch.nan)


def _interval(base: EvidenceBase, given: Tensor, wrong: Tensor, ways: Tensor, share: float) -> tuple[float, float]:
    """Return the 95 % interval of the share of matching pairs, counted on images drawn with replacement."""
    group = base.data.group_of_image[base.data.image_of_pair]
    groups, shares = int(group.max()) + 1, []
    for number in range(base.config.draws):
        draws = torch_generator(base.config.seed, "draws", number)
        times = torch.randint(groups, (groups,), generator=draws).bincount(minlength=groups)[group]
        repeated = torch.randint(len(wrong), (len(wrong),), generator=draws).bincount(minlength=len(wrong))
        shares.append(share_of_matching(given, wrong, times, repeated * ways))
    spread = 1.96 * float(torch.tensor(shares, dtype=torch.float64).std())
    return max(0.0, share - spread), min(1.0, share + spread)


def _auroc(given: Tensor, wrong: Tensor, weight: Tensor) -> float:
    return float(_beaten(given[:, None], wrong[:, None], weight).mean())
