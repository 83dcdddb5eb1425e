"""How many of new pairs match, by a model that was fitted where another share of pairs matched."""

import torch
from torch import Tensor

from in2r.evidence.vectors import check_positive, check_weights

STEPS = 1000
"""of the search, at most; typically 20 are taken"""
SETTLED = 1e-6
"""change of the share at which the search ends"""


def changed_share(log_ratio: Tensor, share: float, prior: float = 10.0, weight: Tensor | None = None) -> float:
    """Return π', the share of new pairs that match, by expectation and maximisation (Saerens et al. 2002).

    P'_i = π' r_i / (π' r_i + 1 - π'), π' = (prior · π + Σ w_i P'_i) / (prior + Σ w_i), in turn until they agree:
    the evidence of matching pairs and of mismatched ones is as before, and only their shares have changed.

    Args:
        log_ratio: (N,) log r, r = f₊(x) / f₋(x), how much more often matching pairs have evidence x.
        share: π in (0, 1), of the pairs that the model was fitted on.
        prior: pairs of that share that are assumed beforehand, > 0: a small feed stays near it.
        weight: (N,) w >= 0; None: 1.

    Returns:
        π' in (0, 1); π where there is no pair.

    Raises:
        ValueError: if a value is out of range.
    """
    check_positive(prior=prior)
    if not 0 < share < 1:
        raise ValueError(f"share must be in (0, 1), got {share}")
    ratio = log_ratio.double()
    w = torch.ones_like(ratio) if weight is None else weight.double()
    check_weights("weight", w, len(ratio))
    total, found = prior + float(w.sum()), share
    for _ in range(STEPS):
        before = found
        matching = torch.sigmoid(ratio + log_odds_of(found))
        found = (prior * share + float((w * matching).sum())) / total
        if abs(found - before) < SETTLED:
            break
    return found


def log_odds_of(share: float) -> float:
    """Return log π / (1 - π), π held within [1e-6, 1 - 1e-6]."""
    return float(torch.logit(torch.tensor(share, dtype=torch.float64), eps=1e-6))
