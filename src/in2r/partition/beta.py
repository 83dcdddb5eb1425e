"""Clean or noisy: two Beta components on the per-sample losses, fitted by moments (BiCro, L2RM, ESC).

A Beta component is skewed as losses are, which pile up at their lower end; a Gaussian is not.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta as beta_distribution

from in2r.partition.gaussian import EQUAL_LOSSES, Floats, checked_losses

EDGE = 1e-4
"""Scaled losses are kept this far from 0 and 1 (BiCro), where a Beta density may be infinite."""
SMALLEST = 1e-12
"""Smallest responsibility (released code)."""
STARTS = ((1.0, 2.0), (2.0, 1.0))
"""(a, b) of the two components before the first round (released code)."""


@dataclass(frozen=True, eq=False)
class TwoBetas:
    """A fitted mixture; component 0 is the clean one, parameters refer to the losses scaled to [0, 1].

    Attributes:
        clean_probability: (N,) posterior p_i of the clean component, never rising with the loss.
        shapes: (2, 2), a and b of each component.
        means: (2,), a / (a + b).
        variances: (2,).
        weights: (2,) shares of the components, sum 1.
        scale: smallest and largest raw loss.
        separation: Ashman's D of the two components, see `TwoGaussians`.
        split: False when there was nothing to fit (fewer than two losses, or all equal): every p_i is 1.
        monotone: False when the raw posterior rose with the loss somewhere and was levelled there.
        single_mode: True when the two components are not told apart (`separation` below the bound).
    """

    clean_probability: Floats
    shapes: Floats
    means: Floats
    variances: Floats
    weights: Floats
    scale: tuple[float, float]
    separation: float
    split: bool
    monotone: bool
    single_mode: bool


def fit_two_betas(
    losses: NDArray[np.floating] | torch.Tensor, rounds: int = 10, minimum_separation: float = 2.0
) -> TwoBetas:
    """Fit two Beta components to per-sample losses and return each pair's probability of being clean.

    EM with moments: given responsibilities r, a component has the weighted mean μ and variance σ² of the losses, and
    a = μ (μ (1 - μ) / σ² - 1), b = a (1 - μ) / μ. The clean component is the one with the larger posterior at the
    smallest loss (L2RM's rule).

    Args:
        losses: (N,) raw per-sample losses, finite; scaled to [0, 1] first.
        rounds: EM rounds; there is no test of convergence (released code).
        minimum_separation: Ashman's D below which `single_mode` is set.

    Returns:
        The mixture with the posteriors.

    Raises:
        ValueError: if `losses` is not one-dimensional, or names the first loss that is not finite.
    """
    values = checked_losses(losses)
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if len(values) < 2 or high - low <= EQUAL_LOSSES * max(abs(low), abs(high)):
        zeros = np.zeros(2)
        return TwoBetas(
            np.ones(len(values)), np.ones((2, 2)), zeros, zeros, np.array([1.0, 0.0]), (low, high), 0.0,
            split=False, monotone=True, single_mode=True,
        )  # fmt: skip
    scaled = np.clip((values - low) / (high - low), EDGE, 1 - EDGE)
    shapes, weights = _fit(np.sort(scaled), rounds)  # sorted: sums do not depend on the order of the pairs
    at_lowest = _responsibilities(np.array([EDGE]), shapes, weights)[:, 0]
    order = np.argsort(-at_lowest, kind="stable")
    shapes, weights = shapes[order], weights[order]
    raw = _responsibilities(scaled, shapes, weights)[0]
    by_loss = np.argsort(scaled, kind="stable")
    levelled = np.empty_like(raw)
    levelled[by_loss] = np.minimum.accumulate(raw[by_loss])
    means = shapes[:, 0] / shapes.sum(1)
    variances = means * (1 - means) / (shapes.sum(1) + 1)
    separation = float(abs(means[1] - means[0]) / np.sqrt(variances.mean()))
    return TwoBetas(
        levelled, shapes, means, variances, weights, (low, high), separation,
        split=True, monotone=bool(np.array_equal(levelled, raw)), single_mode=separation < minimum_separation,
    )  # fmt: skip


def _fit(scaled: Floats, rounds: int) -> tuple[Floats, Floats]:
    """Return shapes (2, 2) and weights (2,)."""
    shapes, weights = np.array(STARTS), np.array([0.5, 0.5])
    for _ in range(rounds):
        share = _responsibilities(scaled, shapes, weights)
        total = share.sum(1)
        mean = (share * scaled).sum(1) / total
        variance = np.maximum((share * (scaled - mean[:, None]) ** 2).sum(1) / total, np.finfo(float).tiny)
        # a variance of μ (1 - μ) or more is no Beta's; the shapes stay positive
        first = np.maximum(mean * (mean * (1 - mean) / variance - 1), SMALLEST)
        shapes = np.stack([first, first * (1 - mean) / mean], axis=1)
        weights = total / total.sum()
    return shapes, weights


def _responsibilities(scaled: Floats, shapes: Floats, weights: Floats) -> Floats:
    """Return the share (2, N) of each component in each loss."""
    density = beta_distribution.pdf(scaled[None, :], shapes[:, :1], shapes[:, 1:]) * weights[:, None]
    floored = np.maximum(density, SMALLEST)
    share: Floats = floored / floored.sum(0)
    return share
