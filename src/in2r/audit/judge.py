"""How likely each given pair matches, by all kinds of evidence together.

1. Pairs are mismatched on purpose, in two ways: a caption alone goes to another image; all of an image go together.
2. The evidence of given pairs and of those is collected (`audit/evidence.py`).
3. A model tells the two apart, and has the probability that a given pair matches inside (`evidence/clean_model.py`).
4. Steps 2 and 3 again, in which pairs are asked as far as they are believed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from in2r.audit.evidence import NAMES, Asked, EvidenceBase, given_pairs
from in2r.audit.settings import AuditConfig
from in2r.evidence import CleanModel, LinearMaps, fit_clean_model, share_of_matching
from in2r.seeds import torch_generator

MOST_FITTED = 20_000
"""Given pairs that the model is fitted on; more move it by less than its rounding."""
SPREADS = 2 * 1.96
"""Standard deviations to either side: twice those of a normal 95 %. One half is for chance, the other for matching
pairs among the worst, which make the rate too high."""
LEAST_SPREAD = 0.5
"""By 1 / √N: of clean pairs all draws are alike."""
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
        interval: where it lies, with some certainty.
        moved_alone: estimated share of wrong captions that moved without their image's other captions.
        separation: AUROC between given pairs and pairs mismatched on purpose, in the first pass as the share is; 0.5:
            the evidence tells nothing.
        model: of the evidence.
        apart: likewise, without the images' other captions.
        wrong: (M, kinds) float32, the evidence of the pairs mismatched on purpose.
        ways: (M,) how much each of them counts.
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
    apart: CleanModel
    wrong: Tensor
    ways: Tensor
    maps: list[LinearMaps]


@dataclass(frozen=True)
class Counts:
    """Scores by which pairs are counted: of given pairs, whose numbers are `pairs`, and of mismatched ones."""

    pairs: Tensor
    given: Tensor
    wrong: Tensor


def judge(base: EvidenceBase, on_step: Callable[[str], None] = lambda what: None) -> Judgement:
    """Judge all given pairs.

    Args:
        base: the data set as witness.
        on_step: called with what is done next, for a progress line.
    """
    config, data = base.config, base.data
    count = len(data.image_of_pair)
    seen = [base.look(asked) for asked in (given_pairs(data), *mismatched_on_purpose(base))]
    rest = without_siblings(base.names)
    trust, share = torch.ones(count), None
    for number in range(config.rounds):
        on_step(f"evidence, pass {number + 1} of {config.rounds}")
        maps = base.fit(trust)
        evidence, *wrong = (base.of(one, maps, trust) for one in seen)
        on_step(f"model, pass {number + 1} of {config.rounds}")
        both = torch.cat(wrong)
        fitted = _drawn(count, MOST_FITTED, config, "fitted")
        if share is None:
            halves = _halves(evidence[:, rest], fitted, both[:, rest])
            share = _share(halves)
            interval = _interval(base, halves, share)
        apart = fit_clean_model(evidence[fitted][:, rest], both[:, rest], share=share)
        log_odds = apart.log_odds(evidence[:, rest])
        if number == 0:
            counted = apart.log_odds(both[:, rest])
            separation = _auroc(log_odds, counted, torch.ones(len(counted)))
        moved_alone = 0.5  # not known
        if len(rest) < len(base.names):
            siblings = evidence[:, OTHER], [part[:, OTHER] for part in wrong]
            moved_alone = _moved_alone(1 - torch.sigmoid(log_odds), *siblings)
        ways = torch.tensor([moved_alone, 1 - moved_alone]).repeat_interleave(torch.tensor([len(w) for w in wrong]))
        model = fit_clean_model(evidence[fitted], both, mismatched_weight=ways, share=share)
        log_odds = model.log_odds(evidence)
        trust = torch.sigmoid(log_odds).float()
    return Judgement(
        score=trust,
        log_odds=log_odds,
        components=beaten(evidence, both, ways),
        evidence=evidence,
        share=model.share,
        interval=interval,
        moved_alone=moved_alone,
        separation=separation,
        model=model,
        apart=apart,
        wrong=both,
        ways=ways,
        maps=maps,
    )


def without_siblings(names: Sequence[str]) -> list[int]:
    """Return the columns of all kinds of evidence but the images' other captions."""
    return [column for column, name in enumerate(names) if name != NAMES[OTHER]]


def _halves(given: Tensor, fitted: Tensor, wrong: Tensor) -> list[Counts]:
    """Return the scores by which the share of matching pairs is counted.

    An order is fitted on one half of the pairs and counts on the other, in turn. The count is made in the first pass:
    later ones believe pairs by what these pairs have taught, and count too many. It is made without the images' other
    captions, by which captions that moved alone and those that moved together differ: so it does not depend on how they
    moved.
    """
    found = []
    for own, other in ((0, 1), (1, 0)):
        order = fit_clean_model(given[fitted[own::2]], wrong[own::2])
        pairs = fitted[other::2]
        found.append(Counts(pairs, order.log_odds(given[pairs]), order.log_odds(wrong[other::2])))
    return found


def _share(halves: Sequence[Counts]) -> float:
    shares = [share_of_matching(half.given, half.wrong) for half in halves]
    return min(max(sum(shares) / len(shares), LEAST_SHARE), 1 - LEAST_SHARE)


def mismatched_on_purpose(base: EvidenceBase) -> tuple[Asked, Asked]:
    """Return pairs of images and captions of different images: a caption moved alone, and with all its siblings.

    Both images are of one stratum: what judges the pair knows neither of them, as it does not know a given pair's. A
    caption that maps were fitted on is far from all images but its own, which no wrong given pair is.
    """
    config, data = base.config, base.data
    count = len(data.image_of_pair)
    stratum = base.stratum[data.image_of_pair]
    order, sizes = stratum.argsort(stable=True), stratum.bincount()
    first = sizes.cumsum(0) - sizes
    found = []
    for way in ("alone", "together"):
        texts = _drawn(count, config.mismatched, config, way)
        drawn = torch.randint(2**62, (len(texts),), generator=torch_generator(config.seed, way, "images"))
        other = order[first[stratum[texts]] + drawn % sizes[stratum[texts]]]
        images = data.image_of_pair[other]
        home = data.image_of_pair[texts]
        apart = data.group_of_image[images] != data.group_of_image[home]
        images, texts, home, other = images[apart], texts[apart], home[apart], other[apart]
        found.append(Asked(images, texts, images, other) if way == "alone" else Asked(images, texts, home, texts))
    return found[0], found[1]


def _drawn(count: int, most: int, config: AuditConfig, purpose: str) -> Tensor:
    return torch.randperm(count, generator=torch_generator(config.seed, purpose))[:most]


def _moved_alone(doubt: Tensor, given: Tensor, wrong: list[Tensor]) -> float:
    """Estimate how wrong captions have moved, by what their images' other captions say.

    Among the surely wrong pairs, the mean rank of that evidence lies between its mean ranks of both ways.

    Args:
        doubt: (N,) probability that a pair is wrong, found without that evidence.
        given: (N,) evidence of the images' other captions.
        wrong: the same of pairs mismatched on purpose: moved alone, moved together.
    """
    ranked = torch.cat(wrong)
    ranked = ranked[~ranked.isnan()].sort().values
    known = ~given.isnan()
    weight = doubt[known] ** DOUBT_POWER
    total = float(weight.sum())
    if not len(ranked) or total == 0:
        return 0.5
    alone, together = (_mean_rank(part, ranked) for part in wrong)
    seen = float((weight * _rank(given[known], ranked)).sum()) / total
    share = min(max((seen - together) / (alone - together), 0.0), 1.0) if alone != together else 0.5
    return (total * share + PRIOR) / (total + 2 * PRIOR)


def _rank(values: Tensor, ranked: Tensor) -> Tensor:
    return torch.searchsorted(ranked, values.contiguous()).double() / len(ranked)


def _mean_rank(values: Tensor, ranked: Tensor) -> float:
    return float(_rank(values[~values.isnan()], ranked).mean())


def beaten(evidence: Tensor, wrong: Tensor, weight: Tensor) -> Tensor:
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


def _interval(base: EvidenceBase, halves: Sequence[Counts], share: float) -> tuple[float, float]:
    def counted(times: Tensor, draws: torch.Generator) -> float:
        found = 0.0
        for half in halves:
            count = len(half.wrong)
            repeated = torch.randint(count, (count,), generator=draws).bincount(minlength=count)
            found += share_of_matching(half.given, half.wrong, times[half.pairs], repeated) / len(halves)
        return found

    return interval_by_draws(base, counted, share)


def interval_by_draws(
    base: EvidenceBase, counted: Callable[[Tensor, torch.Generator], float], share: float
) -> tuple[float, float]:
    """Return an interval of the share of matching pairs, by how far it moves on images drawn with replacement.

    Args:
        base: of the pairs that are judged.
        counted: times that each of them was drawn (N,), and a generator for further draws → the share.
        share: in [0, 1], of all of them.
    """
    group = torch.unique(base.data.group_of_image[base.data.image_of_pair], return_inverse=True)[1]
    groups, shares = int(group.max()) + 1, []
    for number in range(base.config.draws):
        draws = torch_generator(base.config.seed, "draws", number)
        times = torch.randint(groups, (groups,), generator=draws).bincount(minlength=groups)[group]
        shares.append(counted(times, draws))
    spread = SPREADS * float(torch.tensor(shares, dtype=torch.float64).std())
    spread = max(spread, LEAST_SPREAD / math.sqrt(len(group)))
    return max(0.0, share - spread), min(1.0, share + spread)


def _auroc(given: Tensor, wrong: Tensor, weight: Tensor) -> float:
    return float(beaten(given[:, None], wrong[:, None], weight).mean())
