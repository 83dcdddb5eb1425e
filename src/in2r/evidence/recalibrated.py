"""Where score and truth agree, by some pairs whose truth is known: a straight line through the log-odds."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

SLOPE_SPREAD = 0.5
"""Standard deviation of log a beforehand: a score is rarely more than twice as sure as it should be, or half."""
OFFSET_SPREAD = 2.0
"""Standard deviation of b beforehand, as log-odds: a score is rarely more than 4 off, whatever a few decisions say."""
LIMIT = 7.0
"""Log-odds count up to this, a score of 0.001 or 0.999: one slip among the surest pairs bends nothing."""
STEPS = 100
"""Of L-BFGS, at most; about 10 are taken."""


@dataclass(frozen=True)
class Recalibration:
    """P(match) = sigmoid(a ℓ + b), ℓ = log-odds of the score.

    Attributes:
        slope: a > 0.
        offset: b.
    """

    slope: float
    offset: float

    def score_at(self, probability: float) -> float:
        """Return the score, in (0, 1), at which P(match) is a probability in (0, 1)."""
        return 1 / (1 + math.exp(-(math.log(probability / (1 - probability)) - self.offset) / self.slope))


def recalibrate(log_odds: Tensor, right: Tensor) -> Recalibration:
    """Fit a and b by penalised maximum likelihood (Platt's scaling with a prior about a = 1, b = 0).

    Least: -Σ log P(what was decided) + (log a)² / (2 · 0.5²) + b² / (2 · 2²). All pairs count alike: they were picked
    by their score or by chance, and among pairs of one score, that says nothing of the truth. Weights by the inverse of
    how likely a pair was picked were tried, and made the cut worse: they leave little but the sample's surest pairs.

    Args:
        log_odds: (n,), of the scores; clamped to ± 7.
        right: (n,) bool, whether the pair matches.

    Raises:
        ValueError: shapes differ.

    >>> recalibrate(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    Recalibration(slope=1.0, offset=0.0)
    """
    if log_odds.ndim != 1 or log_odds.shape != right.shape:
        raise ValueError(f"log_odds and right must be (n,) alike, got {tuple(log_odds.shape)} and {tuple(right.shape)}")
    values, sign = log_odds.double().clamp(-LIMIT, LIMIT), 2 * right.double() - 1
    theta = torch.zeros(2, dtype=torch.float64, device=values.device, requires_grad=True)
    search = torch.optim.LBFGS([theta], max_iter=STEPS, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    def closure() -> Tensor:
        search.zero_grad()
        fit = logsigmoid(sign * (theta[0].exp() * values + theta[1])).sum()
        loss = (theta[0] / SLOPE_SPREAD).square() / 2 + (theta[1] / OFFSET_SPREAD).square() / 2 - fit
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        search.step(closure)  # type: ignore[no-untyped-call]
    return Recalibration(math.exp(float(theta[0].detach())), float(theta[1].detach()))
