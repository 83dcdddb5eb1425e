"""Clean or noisy: two Beta distributions on the per-sample losses (BiCro, L2RM).

The fit is BiCro's expectation-maximisation by moments; scaling and the first rule for the clean component are L2RM's.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaln, expit

from in2r.partition.histogram import HISTOGRAM_FROM, Losses, checked_losses
from in2r.partition.mixture import Floats, Mixture

EDGE = 1e-3
"""Scaled losses stay this far from 0 and 1, where a Beta density may be 0 or infinite (L2RM)."""
STARTS = ((1.0, 2.0), (2.0, 1.0))
"""(a, b) of the two components before the first iteration (BiCro)."""
SMALLEST = 1e-12
"""Floor of weight × density in the fit (BiCro)."""
SMALLEST_VARIANCE = EDGE**2
"""Losses of one component that are all equal have no variance; a and b would be infinite."""


@dataclass(frozen=True, eq=False)
class TwoBetas(Mixture):
    """Two fitted Beta distributions.

    Attributes:
        shapes: (2, 2), a and b of each component; a mean is a / (a + b).
    """

    shapes: Floats


def fit_two_betas(
    losses: NDArray[np.floating] | torch.Tensor,
    max_iter: int = 10,
    minimum_separation: float = 2.0,
    clean: Literal["lowest_loss", "lower_mean"] = "lowest_loss",
    histogram_from: int = HISTOGRAM_FROM,
) -> TwoBetas:
    """Fit two Beta distributions to per-sample losses and return each pair's probability of being clean.

    x_i is the loss scaled to [0, 1] and clipped to [0.001, 0.999]. Each iteration weighs the losses by
    r_ik = w_k Beta(x_i; a_k, b_k), floored at 1e-12 and normalised over k, and takes from their weighted mean mu_k and
    variance s2_k: a_k = mu_k (mu_k (1 - mu_k) / s2_k - 1), b_k = a_k (1 - mu_k) / mu_k, w_k the mean of r_ik.

    Where the log-odds turn, the posterior keeps the value that it has at the turn; where they rise throughout, the
    value at x = 0.001.

    Departs from L2RM's code: losses strictly inside (0, 0.001) and (0.999, 1) are clipped as well, so that the order
    of the losses is kept.

    Args:
        losses: (N,) raw per-sample losses, finite.
        max_iter: iterations of the fit, all of which are made (released code).
        minimum_separation: Ashman's D below which `single_mode` is set. The bound is that of two Gaussians. Ten
            iterations leave these components wider: one group ended at D of 0.5 to 2.0, two groups that differ by
            three standard deviations or more at D of 0.3 to 6.
        clean: the clean component is the one with the larger posterior at x = 0.001 ("lowest_loss", L2RM) or with the
            smaller mean ("lower_mean"). They differ where one component is much wider, wins at both ends and is called
            clean by the first rule: then nearly all pairs count as noisy, as with 4 % of noisy pairs in a simulation.
        histogram_from: as of `fit_two_gaussians`.

    Returns:
        The mixture with the posteriors.

    Raises:
        ValueError: if `losses` is not one-dimensional, names the first loss that is not finite, or for an unknown
            rule.
    """
    if clean not in ("lowest_loss", "lower_mean"):
        raise ValueError(f"clean must be one of lowest_loss, lower_mean, got {clean!r}")
    given = Losses(checked_losses(losses), histogram_from, EDGE)
    if not given.differ:
        return _without_split(len(given.raw), given.scale)
    shapes, weights = _fit(*given.points(), max_iter)
    shapes, weights = _clean_first(shapes, weights, clean)
    clean_probability, monotone = given.posteriors(
        lambda scaled: _level_beyond_turn(scaled, shapes),
        lambda levelled: expit(_log_odds(levelled, shapes, weights)),
    )
    means = _means(shapes)
    variances = means * (1 - means) / (shapes.sum(axis=1) + 1)
    separation = float(abs(means[1] - means[0]) / np.sqrt(variances.mean()))
    return TwoBetas(
        clean_probability=clean_probability,
        shapes=shapes,
        means=means,
        variances=variances,
        weights=weights,
        scale=given.scale,
        separation=separation,
        split=True,
        monotone=monotone,
        single_mode=separation < minimum_separation,
    )


def _without_split(count: int, scale: tuple[float, float]) -> TwoBetas:
    return TwoBetas(
        clean_probability=np.ones(count),
        shapes=np.zeros((2, 2)),
        means=np.zeros(2),
        variances=np.zeros(2),
        weights=np.array([1.0, 0.0]),
        scale=scale,
        separation=0.0,
        split=False,
        monotone=True,
        single_mode=True,
    )


def _fit(scaled: Floats, counts: Floats, max_iter: int) -> tuple[Floats, Floats]:
    """Return shapes (2, 2) and weights (2,) after all iterations, of values (n,) that each stand for so many losses."""
    shapes, weights = np.array(STARTS), np.array([0.5, 0.5])
    for _ in range(max_iter):
        joint = np.exp(_log_joint(scaled, shapes, weights)).clip(min=SMALLEST)
        share = joint / joint.sum(axis=0) * counts
        total = share.sum(axis=1)
        mean = share @ scaled / total
        # The losses lie inside [EDGE, 1 - EDGE], so the variance is below mean (1 - mean): a and b are positive.
        variance = ((share * (scaled - mean[:, None]) ** 2).sum(axis=1) / total).clip(min=SMALLEST_VARIANCE)
        spread = mean * (1 - mean) / variance - 1
        shapes = np.stack([mean * spread, (1 - mean) * spread], axis=1)
        weights = total / total.sum()
    return shapes, weights


def _clean_first(shapes: Floats, weights: Floats, clean: str) -> tuple[Floats, Floats]:
    if clean == "lowest_loss":
        reversed_order = _log_odds(np.array([EDGE]), shapes, weights)[0] < 0
    else:
        reversed_order = _means(shapes)[0] > _means(shapes)[1]
    return (shapes[::-1], weights[::-1]) if reversed_order else (shapes, weights)


def _means(shapes: Floats) -> Floats:
    means: Floats = shapes[:, 0] / shapes.sum(axis=1)
    return means


def _log_joint(scaled: Floats, shapes: Floats, weights: Floats) -> Floats:
    """Return log(w_k Beta(x_i; a_k, b_k)), (2, N)."""
    a, b = shapes.T[..., None]
    joint: Floats = np.log(weights)[:, None] + (a - 1) * np.log(scaled) + (b - 1) * np.log1p(-scaled) - betaln(a, b)
    return joint


def _log_odds(scaled: Floats, shapes: Floats, weights: Floats) -> Floats:
    """Return the log of the first component's posterior over the second's, (N,)."""
    joint = _log_joint(scaled, shapes, weights)
    odds: Floats = joint[0] - joint[1]
    return odds


def _level_beyond_turn(scaled: Floats, shapes: Floats) -> Floats:
    """Move losses to where the log-odds, which change by da / x - db / (1 - x), do not rise."""
    da, db = shapes[0] - shapes[1]
    if da <= 0 <= db:
        return scaled
    if db <= 0 <= da:
        return np.full_like(scaled, EDGE)
    turn = da / (da + db)
    levelled: Floats = np.maximum(scaled, turn) if da > 0 else np.minimum(scaled, turn)
    return levelled
