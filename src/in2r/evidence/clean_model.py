"""From several kinds of evidence to one probability, without a single label: given pairs against mismatched ones.

Given pairs are a mixture of matching and mismatched ones: f = π f₊ + (1 - π) f₋. How f₋ looks is known, because anyone
can mismatch pairs on purpose. With P(x) the probability that a given pair of evidence x matches, f(x) / f₋(x) =
(1 - π) / (1 - P(x)). So a classifier that tells given pairs from those mismatched on purpose has P inside, if it has
this form. It is fitted by maximum likelihood, which alone does not say π: a larger π goes with a P that nowhere comes
near 0. So π is counted first (`share_of_matching`), by the rule that the worst pairs do not match.

Legend: N = given pairs, M = pairs mismatched on purpose, J = kinds of evidence, x = a pair's evidence, larger = better.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from in2r.evidence.changed_share import log_odds_of
from in2r.evidence.vectors import TINY, check_weights

KNOTS = 8
"""Of each evidence's piecewise linear curve: enough for its bend, few enough for some hundred pairs."""
PENALTY = 1.0
"""Of the squared slopes, as in a logistic regression with C = 1: curves of evidence that tells nothing stay flat."""
ROWS = 2**16
"""Pairs whose curves are looked at together: some 10 MB for each kind of evidence."""
STEPS = 200
"""Of L-BFGS, at most; typically 40 are taken."""
START = -2.0
"""Of the slopes before `softplus`: 0.13, so that all evidence counts a little when the fit begins."""

PARTS = 5
"""Of the given pairs, when the share is counted."""
CAUTION = 2.0
"""Standard errors of a ratio that count against its c: near the lower end, few pairs decide. 1 to 2 differ little."""


@dataclass(frozen=True)
class CleanModel:
    """P(x) = sigmoid(b + Σ_j h_j(x_j)), h_j rising and piecewise linear: more of any evidence never makes a pair worse.

    Attributes:
        knots: (J, KNOTS), quantiles of all pairs' evidence.
        slopes: (J, KNOTS - 1) >= 0, what each piece adds.
        offset: b.
        share: π in (0, 1), of the given pairs that match.
    """

    knots: Tensor
    slopes: Tensor
    offset: float
    share: float

    def contributions(self, evidence: Tensor) -> Tensor:
        """Return h_j(x_j) - h_j(median), (P, J), of evidence (P, J): log-odds; NaN (not known) counts as 0."""
        return (_from_median(self.knots, evidence.double()) * self.slopes).sum(dim=2)

    def log_odds(self, evidence: Tensor) -> Tensor:
        """Return log P / (1 - P), (P,) float64, of evidence (P, J)."""
        parts = [self.contributions(part).sum(dim=1) for part in torch.split(evidence, ROWS)]
        return self.offset + torch.cat(parts)

    def log_ratio(self, evidence: Tensor) -> Tensor:
        """Return log f₊ / f₋, (P,) float64: the log-odds if as many pairs matched as not."""
        return self.log_odds(evidence) - log_odds_of(self.share)


def _curve(knots: Tensor, evidence: Tensor) -> Tensor:
    """Return how far x has gone along each piece between two knots, (P, J, KNOTS - 1); the outer pieces have no end."""
    start, end = knots[:, :-1], knots[:, 1:]
    gone = (evidence[:, :, None] - start) / (end - start)
    gone[:, :, 1:] = gone[:, :, 1:].clamp(min=0)
    gone[:, :, :-1] = gone[:, :, :-1].clamp(max=1)
    return gone


def _from_median(knots: Tensor, evidence: Tensor) -> Tensor:
    """Return `_curve` less that of the median, (P, J, KNOTS - 1); 0 where the evidence is not known."""
    middle = _curve(knots, knots[:, KNOTS // 2 - 1 : KNOTS // 2 + 1].mean(dim=1)[None])
    return (_curve(knots, evidence) - middle).nan_to_num(0.0)


def fit_clean_model(
    given: Tensor,
    mismatched: Tensor,
    given_weight: Tensor | None = None,
    mismatched_weight: Tensor | None = None,
    share: float | None = None,
) -> CleanModel:
    """Fit P on given pairs and on pairs mismatched on purpose.

    log f / f₋ = log(1 - π) + softplus(g), g = log-odds of P. The mean of both classes' log-likelihoods (each class
    counts as much as the other) is maximised, less a penalty on the slopes.

    Args:
        given: (N, J) evidence; NaN where it is not known.
        mismatched: (M, J).
        given_weight: (N,) >= 0, such as how often a pair was drawn; None: 1.
        mismatched_weight: (M,) >= 0, likewise.
        share: π in (0, 1); None: it is fitted too, with the prior of one pair of each kind. Then the order of the pairs
            is right, and P is not.

    Raises:
        ValueError: if a shape does not fit, or a weight is out of range.
    """
    a, b = given.double(), mismatched.double()
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"given and mismatched must be (pairs, J) alike, got {tuple(a.shape)} and {tuple(b.shape)}")
    weights = [
        torch.ones(len(x), dtype=torch.float64, device=x.device) if w is None else w.double()
        for x, w in ((a, given_weight), (b, mismatched_weight))
    ]
    for name, x, w in zip(("given_weight", "mismatched_weight"), (a, b), weights, strict=True):
        check_weights(name, w, len(x))
    knots = _knots(torch.cat([a, b]))
    curves = [_from_median(knots, x).flatten(1) for x in (a, b)]
    theta = torch.full((curves[0].shape[1] + 2,), START, dtype=torch.float64, device=a.device)
    theta[-2], theta[-1] = 0.0, 0.0 if share is None else log_odds_of(1 - share)
    theta.requires_grad_()
    count = len(a) + len(b)

    def loss() -> Tensor:
        slopes, offset = softplus(theta[:-2]), theta[-2]
        mismatch = theta[-1] if share is None else theta[-1].detach()
        ratio = [logsigmoid(mismatch) + softplus(offset + x @ slopes) for x in curves]
        kind = (weights[0] * logsigmoid(ratio[0])).sum() / weights[0].sum()
        other = (weights[1] * logsigmoid(-ratio[1])).sum() / weights[1].sum()
        prior = logsigmoid(mismatch) + logsigmoid(-mismatch)
        return -(kind + other) / 2 + (PENALTY * slopes.square().sum() / 2 - prior) / count

    search = torch.optim.LBFGS([theta], max_iter=STEPS, line_search_fn="strong_wolfe", tolerance_change=1e-10)

    def closure() -> Tensor:
        search.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        search.step(closure)  # type: ignore[no-untyped-call]
    slopes = softplus(theta[:-2].detach()).reshape(knots.shape[0], -1)
    return CleanModel(knots, slopes, float(theta[-2].detach()), float(torch.sigmoid(-theta[-1].detach())))


def share_of_matching(
    given: Tensor, mismatched: Tensor, given_weight: Tensor | None = None, mismatched_weight: Tensor | None = None
) -> float:
    """Return π, the share of given pairs that match, counted by scores of any scale.

    1 - π = min over c of F(c) / F₋(c), the shares of given and of mismatched pairs with a score up to c: hardly any
    matching pair is that bad. Looked for where F₋ is 0.2 to 0.95. The least of several ratios is too low by chance on
    the pairs that chose it. So for each fifth of the given pairs (every fifth one), c is chosen by the others, as that
    whose ratio plus two standard errors is least, and F is counted on that fifth.

    Args:
        given: (N,) scores, larger = better.
        mismatched: (M,) scores of pairs mismatched on purpose.
        given_weight: (N,) >= 0; None: 1.
        mismatched_weight: (M,) >= 0; None: 1.

    Returns:
        π in [0, 1].
    """
    values, order = mismatched.double().sort()
    weight = torch.ones_like(values) if mismatched_weight is None else mismatched_weight.double()[order]
    reached = weight.cumsum(0) / weight.sum()
    steps = torch.arange(4, 20, dtype=torch.float64, device=values.device) / 20
    cuts = values[torch.searchsorted(reached, steps).clamp(max=len(values) - 1)]
    total = reached[torch.searchsorted(values, cuts, right=True) - 1]
    own = torch.ones_like(given, dtype=torch.float64) if given_weight is None else given_weight.double()
    part = torch.arange(len(given), device=given.device) % PARTS
    below = own.new_zeros(PARTS, len(cuts)).index_add(0, part, (given.double()[:, None] <= cuts) * own[:, None])
    all_of = own.new_zeros(PARTS).index_add(0, part, own)
    rest = (below.sum(dim=0) - below) / (all_of.sum() - all_of).clamp(min=TINY)[:, None]
    rest = rest.clamp(0, 1)  # rounding
    chosen = ((rest + CAUTION * (rest * (1 - rest) / len(given)).sqrt()) / total).argmin(dim=1, keepdim=True)
    wrong = (below.gather(1, chosen).squeeze(1) / total[chosen.squeeze(1)]).sum() / own.sum()
    return min(max(1 - float(wrong), 0.0), 1.0)


def _knots(evidence: Tensor) -> Tensor:
    """Return quantiles of each evidence, (J, KNOTS), strictly rising."""
    places = torch.linspace(0.01, 0.99, KNOTS, dtype=torch.float64, device=evidence.device)
    found = []
    for column in evidence.T:
        known = column[~column.isnan()]
        if not len(known):
            known = column.new_zeros(1)  # known of no pair: its curve is never asked
        knots = known.sort().values[(places * (len(known) - 1)).round().long()]
        width = max(float(knots[-1] - knots[0]), 1e-6)
        found.append(knots + width * 1e-6 * torch.arange(KNOTS, device=knots.device))  # ties get a width
    return torch.stack(found)
